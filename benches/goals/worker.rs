//! The scripted worker: for each id it loads how long the message takes, sleeps so long, deletes the row under the claim that it
//! was given, and records what it did. It speaks the line protocol as any stage program does.

use crate::world::{RECORDS, wall_clock};
use postgres::{Client, NoTls, Statement};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const LOAD: &str = "SELECT coalesce((state ->> 'ms')::integer, 0), mail_from FROM pepsi.workqueue
    WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'";
const FINISH: &str =
    "DELETE FROM pepsi.workqueue WHERE workqueue_id = $1 AND claims = $2 AND status = 'running'";
/// As a worker's session of the binary has it.
const SESSION: &str = "SET synchronous_commit = off; SET plan_cache_mode = force_generic_plan; SET jit = off;
    SET enable_seqscan = off; SET enable_bitmapscan = off";

struct Worker {
    database: Client,
    load: Statement,
    finish: Statement,
    records: File,
}

pub fn run(config: &Path) -> ExitCode {
    let mut worker = Worker::start(config);
    println!("ready claims");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("ids are text");
        let (id, claim) = line.split_once(' ').expect("an id and a claim");
        worker.work(id.parse().expect("an id"), claim.parse().expect("a claim"));
        println!("0");
    }
    ExitCode::SUCCESS
}

impl Worker {
    fn start(config: &Path) -> Worker {
        let text = std::fs::read_to_string(config).expect("the configuration");
        let url = text.lines().find_map(|line| line.strip_prefix("CONFIG = ")).expect("the database");
        let mut database = Client::connect(url, NoTls).expect("the database");
        database.batch_execute(SESSION).expect("the session");
        let load = database.prepare(LOAD).expect("the load");
        let finish = database.prepare(FINISH).expect("the write");
        let path = config.with_file_name(RECORDS);
        let records = OpenOptions::new().create(true).append(true).open(path).expect("the records");
        Worker { database, load, finish, records }
    }

    fn work(&mut self, id: i64, claim: i64) {
        let begun = wall_clock();
        let row = self.database.query_opt(&self.load, &[&id, &claim]).expect("the row");
        // Not ours any more: 0, as the protocol has it.
        let Some(row) = row else { return };
        let (milliseconds, sender): (i32, String) = (row.get(0), row.get(1));
        std::thread::sleep(Duration::from_millis(milliseconds.unsigned_abs().into()));
        let gone = self.database.execute(&self.finish, &[&id, &claim]).expect("the write");
        if gone == 1 {
            // One write, so that the lines of all workers stay whole.
            let line = format!("{id} {sender} {begun} {}\n", wall_clock());
            self.records.write_all(line.as_bytes()).expect("the record");
        }
    }
}
