//! What a message costs a worker (requirements A1, B1, U2): statements that the server counts (pg_stat_statements), and the time
//! of one more stage in the same pass. `cargo bench --bench passes`; a PostgreSQL of its own, with fsync off; under a minute.
//!
//! A statement of a prepared kind is one round trip. Workers are the real ones, talked to by hand; what they do to get ready,
//! and their first messages, are not counted. Exits with 1 when a target is missed.

#[path = "../tests/harness/mod.rs"]
mod harness;
#[path = "goals/report.rs"]
#[allow(dead_code)]
mod report;

use harness::{Database, Options, Postgres, pepsi};
use report::{Report, Samples, Target};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, ExitCode, Stdio};
use std::time::Instant;

const MESSAGES: usize = 400;
const WARMING: usize = 40;
/// The longest chain of the two that are compared; a pass goes through 33 stages at most.
const LONG: usize = 32;

/// A worker that is talked to.
struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(program: &str, stage: &str, config: &Path) -> Worker {
        let mut command = pepsi(program, config);
        let command = command.arg("worker").env("PEPSI_STAGE", stage).env("PEPSI_LOG", "error");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut worker = Worker { child, output };
        assert_eq!(worker.line(), "ready claims\n");
        worker
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        line
    }

    /// These ids in one write, until each is answered.
    fn work(&mut self, ids: &[i64]) {
        let lines: String = ids.iter().map(|id| format!("{id} 1\n")).collect();
        self.child.stdin.as_mut().expect("a pipe").write_all(lines.as_bytes()).expect("written");
        for _ in ids {
            let answer = self.line();
            assert!(answer.starts_with('0'), "{answer}");
        }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends");
    }
}

fn messages(db: &mut Database, stage: &str, count: usize) -> Vec<i64> {
    let add = "SELECT pepsi.workqueue_add('a@example.org', '{b@example.net}', 'Subject: x\r\n', convert_to(repeat('x', 4000), 'UTF8'), '{}', $1) \
               FROM generate_series(1, $2::bigint)";
    let rows = db.client.query(add, &[&stage, &(count as i64)]).expect("messages");
    db.run("UPDATE pepsi.workqueue SET status = 'running', claims = 1");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Statements since the last call, but for this program's own.
fn statements(db: &mut Database) -> f64 {
    let count = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE toplevel AND query NOT LIKE '%pg_stat_statements%'";
    let count = db.number(count);
    db.client.query_one("SELECT pg_stat_statements_reset()", &[]).expect("a reset");
    count as f64
}

/// Statements for each of `MESSAGES` / `each` lots, and the time of a lot in microseconds.
fn measure(db: &mut Database, program: &str, stage: &str, config: &Path, each: usize) -> (f64, Samples) {
    let ids = messages(db, stage, WARMING + MESSAGES);
    let mut worker = Worker::start(program, stage, config);
    let (warming, measured) = ids.split_at(WARMING);
    warming.chunks(each).for_each(|some| worker.work(some));
    statements(db);
    let times = measured.chunks(each).map(|some| {
        let began = Instant::now();
        worker.work(some);
        began.elapsed().as_secs_f64() * 1e6
    });
    let samples = Samples::new(times.collect());
    let count = statements(db) / (MESSAGES / each) as f64;
    worker.end();
    db.run("DELETE FROM pepsi.workqueue");
    (count, samples)
}

/// Stages `s1` to `sN` of conditions, each to the next, the last to one that discards.
fn chain(db: &Database, length: usize, fusion: &str) -> std::path::PathBuf {
    let mut config =
        db.config().set("pepsi", "ALLOW_FUSION", fusion).stage("end", "pepsi-stage-discard", &[]);
    for number in 1..length {
        let next = if number + 1 == length { "end".to_owned() } else { format!("s{}", number + 1) };
        let options = [
            ("FIELD", "mail_from"),
            ("EQUALS", "nobody"),
            ("THEN_STAGE", "s1"),
            ("NEXT_STAGE", next.as_str()),
        ];
        config = config.stage(&format!("s{number}"), "pepsi-stage-if", &options);
    }
    config.write()
}

fn main() -> ExitCode {
    let settings = [("shared_preload_libraries", "pg_stat_statements"), ("pg_stat_statements.track", "top")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start(Options { fsync: false, settings });
    let mut db = server.database();
    db.run("CREATE EXTENSION pg_stat_statements");
    let mut report = Report::default();
    let most = Target::AtMost;

    let folder = db.folder().join("mail-${local}");
    let maildir = [("MAILDIR", folder.to_str().expect("a path"))];
    let config = db.config().stage("deliver", "pepsi-stage-relay-to-maildir", &maildir).write();
    let (trips, time) = measure(&mut db, "pepsi-stage-relay-to-maildir", "deliver", &config, 1);
    report.line("round trips a message, a stage of Load::Full", trips, "", most(2.0), &time.spread());

    let config = chain(&db, 2, "no");
    let (trips, time) = measure(&mut db, "pepsi-stage-if", "s1", &config, 4);
    report.line("round trips a batch of 4 messages, metadata", trips, "", most(2.0), &time.spread());

    let config = chain(&db, 5, "yes");
    let (trips, time) = measure(&mut db, "pepsi-stage-if", "s1", &config, 1);
    report.line("round trips a message through a chain of 5 stages", trips, "", most(2.0), &time.spread());

    let times = [2, LONG].map(|length| {
        let config = chain(&db, length, "yes");
        measure(&mut db, "pepsi-stage-if", "s1", &config, 1).1
    });
    let [short, long] = &times;
    let hop = (long.median() - short.median()) / (LONG - 2) as f64;
    report.line("time of one more stage in the same pass", hop, "us", most(20.0), "");
    if report.is_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
