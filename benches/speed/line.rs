//! A database, a dispatcher with the binary's own stages, and how fast it is.

use crate::harness::{Config, Database, PATIENCE, Postgres, Process, pepsi};
use crate::processes::{children, processor_time};
use std::path::Path;
use std::time::{Duration, Instant};

/// `count` messages of `senders` senders in turns, told of when they are committed. Nothing of them but `body` is large.
const FILL: &str = "INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, subject, headers)
    SELECT $1, 'a@s' || n % $3 || '.example', '{b@example.net}', 'x', 'Subject: x' FROM generate_series(1, $2::bigint) AS n";
const FILL_BODIES: &str = "WITH bodies AS (
        INSERT INTO pepsi.workqueue_body (body)
        SELECT convert_to(string_agg(md5((n * 100000 + k)::text), E'\\n'), 'UTF8')
        FROM generate_series(1, $2::bigint) AS n CROSS JOIN LATERAL generate_series(1, $4::bigint / 33) AS k GROUP BY n
        RETURNING body_id)
    INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, subject, headers, body_id)
    SELECT $1, 'a@s' || body_id % $3 || '.example', '{b@example.net}', 'x', E'Subject: x\\r\\n', body_id FROM bodies";
/// The oldest row by the primary key: nobody reads more for that than the rows that are gone since the last look.
const OLDEST: &str =
    "SELECT coalesce((SELECT workqueue_id FROM pepsi.workqueue ORDER BY workqueue_id LIMIT 1), 0)";

/// What waits.
#[derive(Clone, Copy, Debug)]
pub struct Lot {
    pub messages: i64,
    pub senders: i64,
    /// Octets of each body; none for 0.
    pub body: i64,
}

impl Lot {
    pub fn of(messages: i64) -> Lot {
        Lot { messages, senders: 10, body: 0 }
    }
}

/// Puts a lot at a stage, and says nothing.
pub fn fill(database: &mut Database, stage: &str, lot: Lot) {
    let client = &mut database.client;
    let Lot { messages, senders, body } = lot;
    let done = match body {
        0 => client.execute(FILL, &[&stage, &messages, &senders]),
        _ => client.execute(FILL_BODIES, &[&stage, &messages, &senders, &body]),
    };
    assert_eq!(done.unwrap_or_else(|error| panic!("{error:?}")), messages as u64);
}

pub struct Line {
    pub database: Database,
    pub dispatcher: Process,
}

impl Line {
    /// Serves what `stages` adds to a configuration, with a folder for its files; no worker goes for idleness.
    pub fn start(server: &Postgres, stages: impl Fn(Config, &Path) -> Config) -> Line {
        let mut database = server.database();
        database.run("SET enable_seqscan = off; SET enable_bitmapscan = off");
        let config = stages(database.config(), database.folder())
            .set("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "1 h")
            .set("pepsi-dispatch", "POLL_INTERVAL", "1 h");
        let mut command = pepsi("pepsi-dispatch", &config.write());
        command.arg("serve");
        let dispatcher = Process::start_quiet(command, database.folder().join("dispatch.log"));
        dispatcher.wait_for_log("ready", PATIENCE);
        Line { database, dispatcher }
    }

    /// The oldest message there is; 0 without any.
    pub fn oldest(&mut self) -> i64 {
        self.database.number(OLDEST)
    }

    pub fn notify(&mut self) {
        self.database.run("NOTIFY workqueue");
    }

    /// Seconds from telling of what waits until nothing does.
    pub fn drain(&mut self) -> f64 {
        let begin = Instant::now();
        self.notify();
        let deadline = begin + PATIENCE * 5;
        while self.oldest() != 0 {
            assert!(Instant::now() < deadline, "not drained; {}", self.dispatcher.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        begin.elapsed().as_secs_f64()
    }

    /// Messages a second of a lot that waits at `stage` and is drained.
    pub fn rate(&mut self, stage: &str, lot: Lot) -> f64 {
        fill(&mut self.database, stage, lot);
        lot.messages as f64 / self.drain()
    }

    pub fn workers(&self) -> Vec<u32> {
        children(self.dispatcher.id()).into_iter().map(|(id, _)| id).collect()
    }

    pub fn stop(mut self) {
        self.dispatcher.signal("TERM");
        assert_eq!(self.dispatcher.wait(PATIENCE), 0, "{}", self.dispatcher.log());
    }
}

/// Seconds of processor time so far: of the dispatcher, of its workers, of the server's processes.
pub fn spent(server: &Postgres, line: &Line) -> [f64; 3] {
    let sum = |ids: Vec<u32>| ids.into_iter().map(processor_time).sum();
    let backends = children(server.pid()).into_iter().map(|(id, _)| id).collect();
    [processor_time(line.dispatcher.id()), sum(line.workers()), sum(backends)]
}

/// `discard` at the end, and before it `length` - 1 conditions that nothing fulfils: `s1`, `s2`, ...
pub fn chain(config: Config, length: usize, fusion: bool, options: &[(&str, &str)]) -> Config {
    let name = |number: usize| if number == length { "end".to_owned() } else { format!("s{number}") };
    let mut config = config.set("pepsi", "ALLOW_FUSION", if fusion { "yes" } else { "no" });
    for number in 1..length {
        let next = name(number + 1);
        let own =
            [("FIELD", "subject"), ("EQUALS", "y"), ("THEN_STAGE", "end"), ("NEXT_STAGE", next.as_str())];
        config = config.stage(&name(number), "pepsi-stage-if", &[&own[..], options].concat());
    }
    config.stage("end", "pepsi-stage-discard", options)
}

pub fn first(length: usize) -> &'static str {
    if length == 1 { "end" } else { "s1" }
}
