//! A queue that is claimed again and again, and figures of how long that took.

use crate::claim::Claim;
use crate::fair::{End, Fair, Micros, Settings, Taken};
use crate::harness::{Database, Postgres};
use postgres::Statement;
use std::time::Instant;

pub const CAPACITY: u32 = 16;
/// While messages only have to pass.
const WIDE: u32 = 256;
const SERVICE: Micros = 50_000;
const STAGE: &str = "bench";
/// Claims of one queue before it is the next one's turn.
const TURN: usize = 20;
/// Claims before the measured ones: caches, plans, and the dispatcher's knowledge of a new queue.
pub const WARMING: usize = 100;

/// The plain statement: a stage's oldest rows from its first entry on, nothing remembered.
const PLAIN: &str = "WITH chosen AS (
        SELECT q.workqueue_id FROM pepsi.workqueue q
        WHERE q.status = 'pending' AND (q.stage, q.workqueue_id) >= ($1, 0) AND q.stage <= $1
        ORDER BY q.stage, q.workqueue_id LIMIT $2)
    UPDATE pepsi.workqueue q SET status = 'running', claims = claims + 1
    WHERE q.workqueue_id = ANY (ARRAY(SELECT workqueue_id FROM chosen)) AND q.status = 'pending'
    RETURNING q.workqueue_id, q.claims, q.sender_key";
/// As the dispatcher's session has it.
const SESSION: &str = "SET synchronous_commit = off; SET search_path = pg_catalog; SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off;
    SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
/// What becomes of a claimed message: it goes on to another stage, is claimed there, and is done.
const ENDING: [&str; 3] = [
    "UPDATE pepsi.workqueue SET stage = 'next', status = 'pending' WHERE workqueue_id = ANY ($1)",
    "UPDATE pepsi.workqueue SET status = 'running', claims = claims + 1 WHERE workqueue_id = ANY ($1)",
    "DELETE FROM pepsi.workqueue WHERE workqueue_id = ANY ($1)",
];
const ADD: &str = "INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, headers)
    SELECT $1, 'x@' || sender, '{y@example.net}', 'Subject: bench' FROM unnest($2::text[]) AS sender";

/// Rows that wait, the senders in turns.
#[derive(Clone, Copy, Debug)]
pub struct Filling {
    pub rows: u64,
    pub senders: u64,
}

/// Who claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Fair,
    OldestFirst,
    /// The plain statement.
    Plain,
}

pub struct Queue {
    pub database: Database,
    way: Way,
    fair: Fair,
    claim: Claim,
    plain: Statement,
    origin: Instant,
    filling: Filling,
    next: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub median: f64,
    pub mean: f64,
    percentile_99: f64,
    most: f64,
}

impl Figures {
    fn new(mut times: Vec<f64>) -> Figures {
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times[(times.len() - 1) * part / 100];
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        Figures { median: at(50), mean, percentile_99: at(99), most: at(100) }
    }

    pub fn print(&self, name: &str) {
        let Figures { median, mean, percentile_99, most } = self;
        println!(
            "  {name:<52} median {median:>7.0}  mean {mean:>7.0}  p99 {percentile_99:>7.0}  most {most:>7.0}"
        );
    }
}

impl Queue {
    pub fn new(server: &Postgres, way: Way, filling: Filling) -> Queue {
        let mut database = server.database();
        database.run(SESSION);
        let settings = Settings { fair: way == Way::Fair, half_life: 60_000_000, fifo_percent: 10 };
        let claim = Claim::prepare(&mut database.client);
        let plain = database.client.prepare(PLAIN).unwrap_or_else(|error| panic!("{error:?}"));
        let fair = Fair::new(settings, 1);
        let mut queue = Queue { database, way, fair, claim, plain, origin: Instant::now(), filling, next: 0 };
        let mut left = filling.rows;
        while left > 0 {
            let some = left.min(20_000);
            queue.add(some);
            left -= some;
        }
        queue.database.run("ANALYZE pepsi.workqueue");
        queue
    }

    fn now(&self) -> Micros {
        self.origin.elapsed().as_micros() as Micros
    }

    /// Of the senders of this queue, in turns; without any, of other senders.
    fn add(&mut self, rows: u64) {
        let first = self.next;
        self.next += rows;
        let senders = self.filling.senders;
        self.insert((first..first + rows).map(|number| format!("s{}", number % senders)).collect());
    }

    fn insert(&mut self, senders: Vec<String>) {
        self.database.client.execute(ADD, &[&STAGE, &senders]).unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// One claim: how long it took, and the senders of what was claimed and is gone again.
    fn step(&mut self, capacity: u32) -> (f64, Vec<String>) {
        if self.way == Way::Plain {
            return self.plain_step(capacity);
        }
        // Whoever added rows notified.
        let now = self.now();
        self.fair.expose(now);
        let begin = Instant::now();
        let (demands, touched) = self.fair.demand(now, &[capacity], false);
        let reply = self.claim.run(&mut self.database.client, &[STAGE], &demands, &touched, false);
        let taken: Vec<Taken<'_>> = reply
            .rows
            .iter()
            .map(|row| Taken { stage: 0, id: row.id, claim: 1, sender: &row.sender })
            .collect();
        self.fair.claimed(now + begin.elapsed().as_micros() as Micros, &taken, &reply.notices, reply.top);
        let took = begin.elapsed().as_secs_f64() * 1e6;
        let ids: Vec<i64> = reply.rows.iter().map(|row| row.id).collect();
        self.end(&ids);
        let now = self.now();
        for id in ids {
            self.fair.measured(0, SERVICE);
            self.fair.settle(now, (id, 1), End::Ran(SERVICE));
            self.fair.touch(id);
        }
        (took, reply.rows.into_iter().map(|row| row.sender).collect())
    }

    /// One claim, with as many rows after it as before.
    fn round(&mut self) -> f64 {
        if self.filling.rows == 0 {
            self.insert((0..CAPACITY).map(|number| format!("p{}", number * 7)).collect());
        }
        let (took, gone) = self.step(CAPACITY);
        if self.filling.rows > 0 {
            self.refill(gone);
        }
        took
    }

    fn plain_step(&mut self, capacity: u32) -> (f64, Vec<String>) {
        let begin = Instant::now();
        let rows = self.database.client.query(&self.plain, &[&STAGE, &i64::from(capacity)]);
        let took = begin.elapsed().as_secs_f64() * 1e6;
        let rows = rows.unwrap_or_else(|error| panic!("{error:?}"));
        let ids: Vec<i64> = rows.iter().map(|row| row.get("workqueue_id")).collect();
        self.end(&ids);
        (took, rows.iter().map(|row| row.get("sender_key")).collect())
    }

    /// From now on it is claimed that way.
    pub fn set_way(&mut self, way: Way) {
        self.way = way;
    }

    fn end(&mut self, ids: &[i64]) {
        for statement in ENDING {
            let done = self.database.client.execute(statement, &[&ids]);
            assert_eq!(done.unwrap_or_else(|error| panic!("{error:?}")), ids.len() as u64);
        }
    }

    /// As many messages again as were claimed, of the same senders.
    fn refill(&mut self, senders: Vec<String>) {
        let names = senders.iter().map(|key| key.trim_start_matches("from:").to_owned()).collect();
        self.insert(names);
    }

    /// So many messages of so many other senders arrive, are claimed and end, while this queue's own wait.
    pub fn pass(&mut self, messages: u64, senders: u64) {
        let mut sent = 0;
        let mut passed = 0;
        while passed < messages {
            let some = (0..u64::from(WIDE)).map(|number| format!("p{}", (sent + number) % senders)).collect();
            sent += u64::from(WIDE);
            self.insert(some);
            let (_, gone) = self.step(WIDE);
            passed += gone.len() as u64;
            let own: Vec<String> = gone.into_iter().filter(|key| key.starts_with("from:s")).collect();
            // So that what waits neither grows nor runs out.
            sent -= own.len() as u64;
            self.refill(own);
        }
    }
}

/// Claims the queues in turns, `TURN` claims after each other: as a dispatcher's under load, and what else the machine does
/// meets all alike.
pub fn measure<const N: usize>(
    mut queues: [Queue; N],
    warming: usize,
    claims: usize,
) -> [(Queue, Figures); N] {
    let mut times: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for turn in 0..(warming + claims).div_ceil(TURN) {
        for (queue, times) in queues.iter_mut().zip(&mut times) {
            for round in turn * TURN..(turn + 1) * TURN {
                let took = queue.round();
                if round >= warming {
                    times.push(took);
                }
            }
        }
    }
    let mut times = times.into_iter();
    queues.map(|queue| (queue, Figures::new(times.next().unwrap_or_default())))
}
