//! A load of numbered messages on a server of its own, and the audit of it: each message is for an address of its own, so
//! each must end as one file, and until then be a row.

use crate::harness::{Config, Database, Options, PATIENCE, Postgres, Process, pepsi, wait_until};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Long enough for what a dispatcher and its workers take to notice, to wait and to begin again.
const RECOVERY: Duration = Duration::from_secs(150);

/// How long a dispatcher may take to end, whatever its database does.
const ENDING: Duration = Duration::from_secs(10);

pub struct Load {
    // Before the server, whose folder holds this one's.
    pub database: Database,
    pub server: Postgres,
    count: usize,
    started: u32,
}

impl Load {
    /// `count` messages wait at the first of two stages; none is under way yet.
    pub fn new(count: usize, settings: &[(&str, &str)]) -> Load {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let server = Postgres::start(Options { fsync: false, settings });
        let database = server.database();
        fs::create_dir(database.folder().join("mail")).unwrap();
        let mut load = Load { database, server, count: 0, started: 0 };
        load.add(count);
        load
    }

    /// So many more.
    pub fn add(&mut self, count: usize) {
        let sql =
            "SELECT pepsi.workqueue_add('a' || n % 7 || '@example.org', ARRAY['r' || n || '@demo.example'],
                          'Subject: x', 'text')
                   FROM generate_series($1::bigint, $2::bigint) n";
        let (first, last) = (self.count + 1, self.count + count);
        let [first, last] = [first, last].map(|number| i64::try_from(number).unwrap());
        self.database.client.execute(sql, &[&first, &last]).unwrap();
        self.count += count;
    }

    /// A configuration of both stages, for this database at `url`.
    pub fn config(&self, url: &str, name: &str, options: &[(&str, &str)]) -> Config {
        let maildir = format!("{}/${{local}}", self.database.folder().join("mail").display());
        let condition =
            [("FIELD", "size"), ("MORE", "0"), ("THEN_STAGE", "deliver"), ("NEXT_STAGE", "deliver")];
        let config = Config::new(url, self.database.folder().join(name))
            .stage("init", "pepsi-stage-if", &condition)
            .stage("deliver", "pepsi-stage-relay-to-maildir", &[("MAILDIR", &maildir)])
            .set("pepsi-dispatch", "POLL_INTERVAL", "1 s");
        let set = |config: Config, (option, value): &(&str, &str)| {
            config.set("stage-init", option, value).set("stage-deliver", option, value)
        };
        options.iter().fold(config, set)
    }

    /// The same, directly at the server.
    pub fn direct(&self, options: &[(&str, &str)]) -> Config {
        self.config(&self.database.url, "direct.conf", options)
    }

    pub fn dispatcher(&mut self, config: &Path) -> Process {
        self.started += 1;
        let mut command = pepsi("pepsi-dispatch", config);
        command.arg("serve");
        Process::start_quiet(command, self.database.folder().join(format!("dispatch-{}.log", self.started)))
    }

    fn files(&self, number: usize) -> usize {
        let folder = self.database.folder().join(format!("mail/r{number}/new"));
        fs::read_dir(folder).map(|entries| entries.count()).unwrap_or(0)
    }

    /// A recipient's folder is made for its message.
    fn delivered(&self) -> usize {
        fs::read_dir(self.database.folder().join("mail")).unwrap().count()
    }

    /// Some are through and some are not.
    #[track_caller]
    pub fn until_under_way(&self) {
        let start = self.delivered();
        let enough = start + (self.count - start) / 10 + 1;
        wait_until("messages are delivered", PATIENCE, || self.delivered() >= enough);
        assert!(self.delivered() < self.count, "all was done before the fault");
    }

    /// Connects anew, as soon as the server has recovered.
    pub fn reconnect(&mut self) {
        let url = &self.database.url;
        let mut client = None;
        wait_until("the server is back", PATIENCE, || {
            client = postgres::Client::connect(url, postgres::NoTls).ok();
            client.is_some()
        });
        self.database.client = client.expect("it is waited for");
    }

    /// No message is lost, none is there twice, none is blamed.
    #[track_caller]
    pub fn audit(&mut self) {
        let sql = "SELECT ltrim(split_part(rcpt_to[1], '@', 1), 'r')::bigint, status::text, state::text
                   FROM pepsi.workqueue";
        let rows = self.database.client.query(sql, &[]).unwrap();
        let mut waiting = vec![0; self.count + 1];
        for row in &rows {
            let (number, status, state): (i64, String, String) = (row.get(0), row.get(1), row.get(2));
            waiting[usize::try_from(number).unwrap()] += 1;
            assert!(
                ["pending", "running", "paused"].contains(&status.as_str()),
                "{number}: {status} {state}"
            );
            assert!(!state.contains("strikes"), "{number}: {state}");
        }
        for (number, &rows) in waiting.iter().enumerate().skip(1) {
            let files = self.files(number);
            assert!(rows <= 1 && files <= 1 && rows + files > 0, "{number}: {rows} rows, {files} files");
        }
    }

    /// Audits, then waits until all are delivered; what was put off for some seconds is not waited for.
    #[track_caller]
    pub fn finish(&mut self, dispatcher: &Process) {
        self.audit();
        let end = Instant::now() + RECOVERY;
        loop {
            self.database.run("UPDATE pepsi.workqueue SET timeout = now() WHERE status = 'paused'");
            if self.database.number("SELECT count(*) FROM pepsi.workqueue") == 0 {
                break;
            }
            assert!(Instant::now() < end, "{} delivered\n{}", self.delivered(), dispatcher.log());
            std::thread::park_timeout(Duration::from_millis(100));
        }
        self.audit();
    }
}

/// SIGTERM ends it in time, in whatever state it is; its exit code, or 128 and the signal.
#[track_caller]
pub fn ends(mut dispatcher: Process, state: &str) -> i32 {
    let start = Instant::now();
    dispatcher.signal("TERM");
    let code = dispatcher.wait(PATIENCE);
    let took = start.elapsed();
    println!("SIGTERM {state}: ended with {code} after {:.1} s", took.as_secs_f64());
    assert!(took < ENDING, "{state}: {took:?}");
    code
}
