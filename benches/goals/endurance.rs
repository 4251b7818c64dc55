//! A hundred thousand messages through two stages of the binary's own workers, some of which are killed at random. Triggers on
//! the queue record every passage, so that the audit is by id; and the dispatcher has to be as it was before.

use crate::harness::process::signal;
use crate::harness::{PATIENCE, Postgres, Process, holds_within, pepsi, wait_until};
use crate::processes::{children, descriptors, status};
use crate::report::{Report, Target};
use crate::world::rest;
use std::time::{Duration, Instant};

const MESSAGES: i64 = 100_000;
const WARMING: i64 = 2_000;
const KILL_EACH_MS: u64 = 250;
const KILLS_A_LOOK: u32 = 4;
const LAST_ONES: Duration = Duration::from_secs(120);

/// A passage is a row that leaves a stage; a second one of the same message is recorded too.
const AUDIT: &str = "CREATE TABLE passed (id bigint, stage text);
    CREATE FUNCTION note_passage() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS
        'BEGIN INSERT INTO passed VALUES (old.workqueue_id, old.stage); RETURN NULL; END';
    CREATE TRIGGER moved AFTER UPDATE ON pepsi.workqueue FOR EACH ROW
        WHEN (old.stage <> new.stage) EXECUTE FUNCTION note_passage();
    CREATE TRIGGER gone AFTER DELETE ON pepsi.workqueue FOR EACH ROW EXECUTE FUNCTION note_passage()";

struct Line {
    database: crate::harness::Database,
    dispatcher: Process,
}

/// What the system says of the dispatcher while nothing runs.
struct Footprint {
    memory: u64,
    descriptors: u64,
}

impl Line {
    fn start(server: &Postgres) -> Line {
        let mut database = server.database();
        database.run(AUDIT);
        let wide: &[(&str, &str)] = &[("QUEUE_LIMIT", "16")];
        let config = database
            .config()
            .stage(
                "init",
                "pepsi-stage-if",
                &[
                    &[("FIELD", "subject"), ("CONTAINS", "x"), ("NEXT_STAGE", "end"), ("THEN_STAGE", "end")],
                    wide,
                ]
                .concat(),
            )
            .stage("end", "pepsi-stage-discard", wide)
            // Both stages are to be passed by way of the queue.
            .set("pepsi", "ALLOW_FUSION", "no")
            .set("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "1 s");
        let mut command = pepsi("pepsi-dispatch", &config.write());
        command.arg("serve").env("PEPSI_LOG", "warning");
        let dispatcher = Process::start_quiet(command, database.folder().join("dispatch.log"));
        Line { database, dispatcher }
    }

    fn add(&mut self, messages: i64) {
        self.database.run(&format!(
            "INSERT INTO pepsi.workqueue (mail_from, rcpt_to, headers, subject)
             SELECT 's@s' || n % 50 || '.example', '{{r@example.net}}', 'Subject: x', 'x' FROM generate_series(1, {messages}) n;
             NOTIFY workqueue"
        ));
    }

    fn waiting(&mut self) -> i64 {
        self.database.number("SELECT count(*) FROM pepsi.workqueue")
    }

    /// Those that a killed worker left with a strike are not waited for: their pause is ended.
    fn finish(&mut self) {
        wait_until("the queue is empty", LAST_ONES, || {
            rest(200);
            self.database
                .run("UPDATE pepsi.workqueue SET timeout = now() WHERE status = 'paused'; NOTIFY workqueue");
            self.waiting()
                == self.database.number("SELECT count(*) FROM pepsi.workqueue WHERE status = 'failed'")
        });
    }

    fn footprint(&self) -> Footprint {
        let pid = self.dispatcher.id();
        // A zombie would stay; that is a figure of its own.
        let _ = holds_within(PATIENCE, || children(pid).is_empty());
        Footprint { memory: status(pid, "VmRSS"), descriptors: descriptors(pid) }
    }

    /// Kills a worker now and then until most messages have passed; how many.
    fn kill_workers(&mut self) -> u32 {
        let (mut kills, mut random) = (0, 0x2545_f491_4f6c_dd1d_u64);
        let (mut left, mut since) = (i64::MAX, Instant::now());
        loop {
            let waiting = self.waiting();
            if waiting <= MESSAGES / 10 {
                return kills;
            }
            if waiting < left {
                (left, since) = (waiting, Instant::now());
            }
            assert!(since.elapsed() < PATIENCE, "no progress, {waiting} wait");
            for _ in 0..KILLS_A_LOOK {
                let workers = children(self.dispatcher.id());
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if let Some((pid, _)) = workers.get((random >> 33) as usize % workers.len().max(1)) {
                    kills += u32::from(signal("KILL", &pid.to_string()));
                }
                rest(KILL_EACH_MS / 2 + (random >> 40) % KILL_EACH_MS);
            }
        }
    }
}

pub fn endurance(server: &Postgres, report: &mut Report) {
    let mut line = Line::start(server);
    line.add(WARMING);
    line.finish();
    let before = line.footprint();
    let begin = Instant::now();
    line.add(MESSAGES);
    let kills = line.kill_workers();
    line.finish();
    let took = begin.elapsed().as_secs_f64();
    let after = line.footprint();
    let zombies = children(line.dispatcher.id()).len();
    let passed = line.database.number("SELECT count(*) FROM passed");
    let different =
        line.database.number("SELECT count(*) FROM (SELECT DISTINCT id, stage FROM passed) AS one");
    let lost = 2 * (WARMING + MESSAGES) - different;
    line.dispatcher.signal("TERM");
    assert_eq!(line.dispatcher.wait(PATIENCE), 0, "{}", line.dispatcher.log());
    let spread = format!("{MESSAGES} messages, {kills} workers killed, {took:.0} s");
    let none = Target::AtMost(0.0);
    report.line("after kills of workers: passages missing", lost as f64, "", none, &spread);
    report.line("passages made twice", (passed - different) as f64, "", none, "");
    report.line("zombies", zombies as f64, "", none, "");
    let more = |after: u64, before: u64| after as f64 - before as f64;
    let spread = format!("{} before, {} after", before.descriptors, after.descriptors);
    report.line("descriptors more", more(after.descriptors, before.descriptors), "", none, &spread);
    let spread = format!("{} kB before, {} kB after", before.memory, after.memory);
    report.line(
        "resident memory more",
        more(after.memory, before.memory),
        "kB",
        Target::AtMost(1024.0),
        &spread,
    );
}
