//! The typed calls of src/sql on a real PostgreSQL. The room is included as it is; what it asks of the rest of the crate, the OS user's name, has a
//! stand-in.

mod harness;
#[allow(dead_code)]
#[path = "../src/sql/mod.rs"]
mod sql;

/// The tests name their user in the URL.
mod sys {
    pub fn uid() -> u32 {
        0
    }
}

mod host {
    pub fn user_name(_uid: u32) -> Option<String> {
        Some("tester".into())
    }
}

#[path = "sql/batch.rs"]
mod batch;
#[path = "sql/dispatcher.rs"]
mod dispatcher;
#[path = "sql/fan.rs"]
mod fan;
#[path = "sql/faults.rs"]
mod faults;
#[path = "sql/plans.rs"]
mod plans;
#[path = "sql/worker.rs"]
mod worker;

use harness::Database;
use sql::claim::{Claims, Want};
use sql::fan::Fan;
use sql::ops::Admission;
use sql::queue::Held;
use sql::{Db, Purpose};

/// A message that leaves nothing beside it.
static ALONE: Fan = Fan { groups: Vec::new(), sides: Vec::new() };

const WORKER: Purpose = Purpose::Worker { synchronous_commit: false };

fn open(database: &Database, purpose: Purpose) -> Db {
    Db::connect(&database.url, "pepsi-test", purpose).expect("a connection")
}

/// Stores a message of `stage` and returns its id.
fn admit(db: &mut Db, stage: &str) -> i64 {
    let rcpt_to = ["r@example.org".to_owned()];
    let message = Admission {
        mail_from: "s@example.org",
        rcpt_to: &rcpt_to,
        headers: b"Subject: x\r\n",
        body: Some(b"body"),
        state: serde_json::json!({}),
        stage,
    };
    db.admit(&message).expect("a message is stored")
}

fn want(stage: &str, capacity: u32) -> Want {
    Want { stage: stage.into(), capacity, fifo_slots: capacity, average_us: 1, ..Want::default() }
}

fn claim(db: &mut Db, wants: &[Want]) -> Claims {
    db.claim(wants, &[], false, false).expect("a claim")
}

/// The same, with a look at what else waits.
fn survey(db: &mut Db, wants: &[Want]) -> Claims {
    db.claim(wants, &[], false, true).expect("a claim")
}

/// Claims the one row that waits at `stage`.
fn claim_one(db: &mut Db, stage: &str) -> Held {
    let claims = claim(db, &[want(stage, 1)]);
    claims.rows.first().expect("a row waits").held
}
