//! The limit: the line's own statements over as many connections, with as much under way, and nothing else. One connection
//! claims whatever there is room for, oldest first; the others load what they are given and delete it.

use crate::harness::{Database, PATIENCE};
use crate::sql::batch::Write;
use crate::sql::claim::Want;
use crate::sql::fan::Fan;
use crate::sql::queue::Held;
use crate::sql::row::{Content, Load, Move};
use crate::sql::{Db, Purpose};
use serde_json::json;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// What is done about each message, and how much at once.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    pub stage: &'a str,
    pub workers: usize,
    pub queue_limit: usize,
    pub load: Load,
}

/// Messages a second: `messages` of them wait.
pub fn rate(database: &Database, work: Work<'_>, messages: usize) -> f64 {
    let open = |purpose| Db::connect(&database.url, "limit", purpose).expect("a connection");
    let mut claimer = open(Purpose::Dispatcher);
    let (done, finished) = channel::<(usize, usize)>();
    std::thread::scope(|threads| {
        let mut pipes = Vec::new();
        for place in 0..work.workers {
            let (give, take) = channel::<Vec<Held>>();
            let (db, done) = (open(Purpose::Worker { synchronous_commit: false }), done.clone());
            threads.spawn(move || serve(db, work, place, take, &done));
            pipes.push(give);
        }
        drop(done);
        claim_all(&mut claimer, work, messages, &pipes, &finished)
    })
}

fn claim_all(
    db: &mut Db,
    work: Work<'_>,
    messages: usize,
    pipes: &[Sender<Vec<Held>>],
    finished: &Receiver<(usize, usize)>,
) -> f64 {
    let mut room = vec![work.queue_limit; work.workers];
    let (mut left, mut floor, begin) = (messages, 0, Instant::now());
    while left > 0 {
        let capacity = room.iter().sum::<usize>() as u32;
        let want = Want {
            stage: work.stage.into(),
            capacity,
            fifo_slots: capacity,
            average_us: 1,
            floor,
            ..Want::default()
        };
        let claims = db.claim(&[want], &[], false, false).expect("a claim");
        let mut rows = claims.rows.iter().map(|row| row.held);
        floor = claims.rows.iter().map(|row| row.held.id).max().map_or(floor, |last| last + 1);
        for (pipe, room) in pipes.iter().zip(&mut room) {
            let some: Vec<Held> = rows.by_ref().take(*room).collect();
            *room -= some.len();
            if !some.is_empty() {
                pipe.send(some).expect("a worker");
            }
        }
        let (place, count) = finished.recv_timeout(PATIENCE).expect("an answer");
        let mut count_in = |place: usize, count: usize| {
            room[place] += count;
            left -= count;
        };
        count_in(place, count);
        while let Ok((place, count)) = finished.try_recv() {
            count_in(place, count);
        }
    }
    messages as f64 / begin.elapsed().as_secs_f64()
}

fn serve(mut db: Db, work: Work<'_>, place: usize, take: Receiver<Vec<Held>>, done: &Sender<(usize, usize)>) {
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
            if done.send((place, some.len())).is_err() {
                return;
            }
        }
    }
}
