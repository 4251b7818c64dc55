//! What a claim costs, counted by the server in index entries that it reads (requirements F7, F8): time would depend on the
//! machine. benches/claim.rs measures that.

use crate::claim::Claim;
use crate::fair::{Fair, Micros, Notice, Taken, VISITS};
use crate::harness::{Database, Options, Postgres};
use crate::world::{SECOND, settings};

const CAPACITY: u32 = 16;

/// What this session's transaction has read of the queue: searches of an index and entries, and rows without an index.
const READ: &str =
    "SELECT (sum(pg_stat_get_xact_numscans(indexrelid) + pg_stat_get_xact_tuples_returned(indexrelid))
    + 1000000 * pg_stat_get_xact_tuples_returned('pepsi.workqueue'::regclass))::bigint
    FROM pg_index WHERE indrelid = 'pepsi.workqueue'::regclass";

/// One stage of a real queue, claimed as the dispatcher does.
struct Queue {
    db: Database,
    claim: Claim,
    fair: Fair,
    now: Micros,
}

/// A server where nothing else goes on: as long as anybody has a snapshot the entries of rows that are gone stay, and count.
fn server() -> Postgres {
    let settings = vec![("autovacuum".to_owned(), "off".to_owned())];
    Postgres::start(Options { settings, ..Options::default() })
}

impl Queue {
    /// So many senders have so many messages each, in turns.
    fn new(server: &Postgres, senders: u32, messages: u32) -> Queue {
        let mut db = server.database();
        db.run(&format!(
            "INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, headers)
             SELECT 'alpha', 'x@s' || g % {senders}, '{{}}', '' FROM generate_series(1, {senders} * {messages}) AS g;
             ANALYZE pepsi.workqueue"
        ));
        let claim = Claim::prepare(&mut db.client);
        Queue { db, claim, fair: Fair::new(settings(true), 1), now: 0 }
    }

    /// One claim after a notification: what it read, what it took, and whom it heard of besides.
    fn claim(&mut self, capacity: u32) -> (i64, usize, usize) {
        self.now += SECOND;
        self.fair.expose(self.now);
        let (asks, touched) = self.fair.demand(self.now, &[capacity], false);
        let mut transaction = self.db.client.transaction().expect("a transaction");
        let read = |transaction: &mut postgres::Transaction<'_>| -> i64 {
            transaction.query_one(READ, &[]).expect("figures").get(0)
        };
        let before = read(&mut transaction);
        let reply = self.claim.run(&mut transaction, &["alpha"], &asks, &touched, false);
        let cost = read(&mut transaction) - before;
        transaction.commit().expect("a commit");
        let row = |row: &'_ crate::claim::Claimed| (row.id, row.claim, row.sender.clone());
        let rows: Vec<_> = reply.rows.iter().map(row).collect();
        let taken: Vec<Taken<'_>> = rows
            .iter()
            .map(|(id, claim, sender)| Taken { stage: 0, id: *id, claim: *claim, sender })
            .collect();
        self.fair.claimed(self.now, &taken, &reply.notices, reply.top);
        let seen = reply.notices.iter().filter(|(_, notice)| matches!(notice, Notice::Seen { .. })).count();
        (cost, taken.len(), seen)
    }

    /// What a claim reads once the senders are known: the median.
    fn cost(&mut self) -> i64 {
        let mut costs: Vec<i64> = (0..30).map(|_| self.claim(CAPACITY).0).skip(15).collect();
        costs.sort_unstable();
        costs[costs.len() / 2]
    }
}

// Req: F8
#[test]
fn a_claim_reads_no_more_however_much_a_sender_has_waiting() {
    let server = server();
    let few = Queue::new(&server, 2, 300).cost();
    let many = Queue::new(&server, 2, 15_000).cost();
    assert!(few > 0 && many * 10 <= few * 11, "{few} entries with 300 each, {many} with 15,000");
}

// Req: F8
#[test]
fn what_a_claim_reads_grows_with_the_waiting_senders_only_up_to_the_window() {
    let server = server();
    let queues = [(2, 300), (64, 20), (1_000, 4)];
    let costs = queues.map(|(senders, messages)| Queue::new(&server, senders, messages).cost());
    assert!(costs[0] < costs[1], "the senders are told apart: {costs:?}");
    assert!(costs[2] * 10 <= costs[1] * 12, "64 senders and 1,000 cost the same: {costs:?}");
    // Each of 64 senders may be read as deep as the capacity, besides the oldest and newest rows and those that are taken.
    assert!(costs.iter().all(|cost| *cost <= 64 * i64::from(CAPACITY) + 200), "{costs:?}");
}

// Req: F7
#[test]
fn the_window_meets_every_sender_in_turn() {
    const SENDERS: u32 = 200;
    let server = server();
    let mut queue = Queue::new(&server, SENDERS, 3);
    let claims = (1..).find(|_| {
        queue.claim(1);
        queue.fair.senders(0).len() == SENDERS as usize
    });
    // Each claim visits some that follow, and reads some of the newest rows: none is visited twice before all were.
    let most = (SENDERS / VISITS + 2) as usize;
    assert!(claims.is_some_and(|claims: usize| claims <= most), "{claims:?} claims, at most {most}");
}
