//! The limit: the line's own statements over as many connections, with as much under way, and nothing else. One connection makes
//! the fair claim for whatever there is room for; the others load what they are given and delete it.

use crate::claim::Claim;
use crate::fair::{End, Fair, Micros, Settings, Taken};
use crate::harness::{Database, PATIENCE};
use crate::sql::batch::Write;
use crate::sql::fan::Fan;
use crate::sql::queue::Held;
use crate::sql::row::{Content, Load, Move};
use crate::sql::{Db, Purpose};
use serde_json::json;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// As the dispatcher's session has it.
const SESSION: &str = "SET synchronous_commit = off; SET search_path = pg_catalog; SET plan_cache_mode = force_generic_plan; SET jit = off";

/// What is done about each message, and how much at once.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    pub stage: &'a str,
    pub workers: usize,
    pub queue_limit: usize,
    pub load: Load,
}

/// Messages that a worker is done with: its place, and which.
type Done = (usize, Vec<Held>);

/// Messages a second: `messages` of them wait.
pub fn rate(database: &Database, work: Work<'_>, messages: usize) -> f64 {
    let (done, finished) = channel::<Done>();
    std::thread::scope(|threads| {
        let mut pipes = Vec::new();
        for place in 0..work.workers {
            let (give, take) = channel::<Vec<Held>>();
            let db = Db::connect(&database.url, "limit", Purpose::Worker { synchronous_commit: false })
                .expect("a connection");
            let done = done.clone();
            threads.spawn(move || serve(db, work, place, take, &done));
            pipes.push(give);
        }
        drop(done);
        claim_all(database, work, messages, &pipes, &finished)
    })
}

fn claim_all(
    database: &Database,
    work: Work<'_>,
    messages: usize,
    pipes: &[Sender<Vec<Held>>],
    finished: &Receiver<Done>,
) -> f64 {
    let mut client = database.connect();
    client.batch_execute(SESSION).expect("a session");
    let claim = Claim::prepare(&mut client);
    let mut fair = Fair::new(Settings { fair: true, half_life: 60_000_000, fifo_percent: 10 }, 1);
    let mut room = vec![work.queue_limit; work.workers];
    let (mut left, begin) = (messages, Instant::now());
    let now = || begin.elapsed().as_micros() as Micros;
    while left > 0 {
        let capacity = room.iter().sum::<usize>() as u32;
        let (asks, touched) = fair.demand(now(), &[capacity], false);
        let reply = claim.run(&mut client, &[work.stage], &asks, &touched, false);
        let taken = |row: &'_ crate::claim::Claimed| (row.id, row.claim, row.sender.clone());
        let rows: Vec<_> = reply.rows.iter().map(taken).collect();
        let taken: Vec<Taken<'_>> = rows
            .iter()
            .map(|(id, claim, sender)| Taken { stage: 0, id: *id, claim: *claim, sender })
            .collect();
        fair.claimed(now(), &taken, &reply.notices, reply.top);
        let mut rows = taken.iter().map(|row| Held { id: row.id, claim: row.claim });
        for (pipe, room) in pipes.iter().zip(&mut room) {
            let some: Vec<Held> = rows.by_ref().take(*room).collect();
            *room -= some.len();
            if !some.is_empty() {
                pipe.send(some).expect("a worker");
            }
        }
        let first = finished.recv_timeout(PATIENCE).expect("an answer");
        for (place, done) in std::iter::once(first).chain(finished.try_iter()) {
            room[place] += done.len();
            left -= done.len();
            for held in done {
                fair.measured(0, 100);
                fair.settle(now(), (held.id, held.claim), End::Ran(100));
                fair.touch(held.id);
            }
        }
    }
    messages as f64 / begin.elapsed().as_secs_f64()
}

fn serve(mut db: Db, work: Work<'_>, place: usize, take: Receiver<Vec<Held>>, done: &Sender<Done>) {
    let (nothing, empty, alone) = (Content::default(), json!({}), Fan::default());
    for given in take {
        // As a worker does: metadata of all at once, more of each alone.
        let most = if work.load == Load::Metadata { given.len() } else { 1 };
        for some in given.chunks(most.max(1)) {
            let ids: Vec<i64> = some.iter().map(|held| held.id).collect();
            assert_eq!(db.load_some(&ids, work.load).expect("a load").len(), some.len());
            let write = |row: &Held| Write {
                row: *row,
                content: &nothing,
                merge: &empty,
                to: &Move::Finish,
                fan: &alone,
            };
            let writes: Vec<Write<'_>> = some.iter().map(write).collect();
            let written = match &writes[..] {
                [one] => vec![db.commit_one(one)],
                all => db.commit_batch(all),
            };
            assert!(written.iter().all(|one| *one == Ok(true)), "{written:?}");
            if done.send((place, some.to_vec())).is_err() {
                return;
            }
        }
    }
}
