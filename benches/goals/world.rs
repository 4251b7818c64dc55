//! One database, one dispatcher with one stage of scripted workers, and what the workers recorded.

use crate::harness::{self, Config, Database, PATIENCE, Postgres, Process};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file beside the configuration that the workers append to.
pub const RECORDS: &str = "records";
pub const STAGE: &str = "work";

const ADD: &str = "INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, headers, state)
    SELECT 'work', sender, '{r@example.net}', 'Subject: x', jsonb_build_object('ms', $2::integer)
    FROM unnest($1::text[]) AS sender RETURNING workqueue_id";

/// A message that a worker has finished; microseconds of the wall clock.
#[derive(Clone, Debug)]
pub struct Record {
    pub id: i64,
    pub sender: String,
    pub begun: u64,
    pub done: u64,
}

pub struct World {
    pub database: Database,
    pub config: Config,
    pub dispatcher: Option<Process>,
    path: PathBuf,
    /// What was read of the file at `path`, and how many bytes that is.
    records: Vec<Record>,
    offset: u64,
}

impl World {
    /// PARALLELISM 4, QUEUE_LIMIT 4; a worker stays.
    pub fn new(server: &Postgres, fair: bool) -> World {
        let mut database = server.database();
        // A notification is sent when its transaction is on disk; how long the disk takes is not the subject.
        database.run("SET synchronous_commit = off");
        let program = std::env::current_exe().expect("this program").display().to_string();
        let config = database
            .config()
            .stage(STAGE, &program, &[("PARALLELISM", "4"), ("QUEUE_LIMIT", "4")])
            .set("pepsi-dispatch", "FAIR_SCHEDULING", if fair { "yes" } else { "no" })
            .set("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "1 h");
        let path = database.folder().join(RECORDS);
        World { database, config, dispatcher: None, path, records: Vec::new(), offset: 0 }
    }

    pub fn set(&mut self, section: &str, option: &str, value: &str) {
        self.config = self.config.clone().set(section, option, value);
    }

    /// Starts the dispatcher, and returns when it serves.
    pub fn start(&mut self) {
        let mut command = harness::pepsi("pepsi-dispatch", &self.config.write());
        command.arg("serve");
        let dispatcher = Process::start_quiet(command, self.database.folder().join("dispatch.log"));
        dispatcher.wait_for_log("ready", PATIENCE);
        self.dispatcher = Some(dispatcher);
    }

    pub fn stop(&mut self) {
        let mut dispatcher = self.dispatcher.take().expect("it was started");
        dispatcher.signal("TERM");
        assert_eq!(dispatcher.wait(PATIENCE), 0, "{}", dispatcher.log());
    }

    pub fn process(&self) -> &Process {
        self.dispatcher.as_ref().expect("it was started")
    }

    /// One silent message of each of these senders, in one transaction.
    pub fn add(&mut self, milliseconds: i32, senders: &[String]) -> Vec<i64> {
        let rows = self.database.client.query(ADD, &[&senders, &milliseconds]);
        rows.unwrap_or_else(|error| panic!("{error:?}")).iter().map(|row| row.get(0)).collect()
    }

    /// `count` silent messages of one sender.
    pub fn pile(&mut self, sender: &str, milliseconds: i32, count: usize) {
        for part in vec![sender.to_owned(); count].chunks(20_000) {
            self.add(milliseconds, part);
        }
    }

    pub fn notify(&mut self) {
        self.database.run("NOTIFY workqueue");
    }

    /// One message, told of: its id, and the time just before that.
    pub fn send(&mut self, sender: &str, milliseconds: i32) -> (i64, u64) {
        let id = self.add(milliseconds, &[sender.to_owned()])[0];
        let sent = wall_clock();
        self.notify();
        (id, sent)
    }

    /// All that were finished so far, in the order of their ends.
    pub fn records(&mut self) -> &[Record] {
        if let Ok(mut file) = File::open(&self.path) {
            let mut text = String::new();
            file.seek(SeekFrom::Start(self.offset)).expect("a file");
            file.read_to_string(&mut text).expect("records are text");
            // The last line may not be whole yet.
            let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
            self.offset += whole.len() as u64;
            self.records.extend(whole.lines().map(record));
        }
        &self.records
    }

    pub fn finished(&mut self, id: i64) -> Option<Record> {
        self.records().iter().rev().find(|record| record.id == id).cloned()
    }

    /// Waits until so many are finished.
    #[track_caller]
    pub fn until(&mut self, finished: usize) {
        let what = format!("{finished} finished");
        harness::wait_until(&what, PATIENCE, || self.records().len() >= finished);
    }

    /// Waits until this one is finished: how long it waited since `sent` until its worker began with it, in seconds.
    #[track_caller]
    pub fn wait_of(&mut self, (id, sent): (i64, u64)) -> f64 {
        harness::wait_until("the message is finished", PATIENCE, || self.finished(id).is_some());
        let record = self.finished(id).expect("it is finished");
        seconds(record.begun.saturating_sub(sent))
    }
}

fn record(line: &str) -> Record {
    let fields: Vec<&str> = line.split(' ').collect();
    let [id, sender, begun, done] = fields[..] else { panic!("not a record: {line}") };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    Record { id: number(id) as i64, sender: sender.to_owned(), begun: number(begun), done: number(done) }
}

/// Microseconds; the same clock in all processes.
pub fn wall_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("before the year 580,000")
}

pub fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

pub fn rest(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
