//! Whether the queue's tables and indexes stay as large as the largest backlog made them, with their own settings of autovacuum.

use crate::harness::{PATIENCE, Postgres, holds_within};
use crate::line::{Line, Lot, chain, fill};
use crate::report::{Report, Target};

const MESSAGES: i64 = 1_000_000;
/// The largest backlog.
const BACKLOG: i64 = 50_000;
/// The last of them pass under a snapshot.
const HELD: i64 = 150_000;
const SIZE: &str =
    "SELECT pg_total_relation_size('pepsi.workqueue') + pg_total_relation_size('pepsi.workqueue_body')";

fn pass(line: &mut Line, messages: i64) {
    for _ in 0..messages / BACKLOG {
        fill(&mut line.database, "end", Lot::of(BACKLOG));
        line.drain();
    }
}

pub fn bloat(server: &Postgres, report: &mut Report) {
    let options = [("QUEUE_LIMIT", "64"), ("PARALLELISM", "4")];
    let mut line = Line::start(server, |config, _| chain(config, 1, true, &options));
    fill(&mut line.database, "end", Lot::of(BACKLOG));
    let needed = line.database.number(SIZE) as f64;
    line.drain();
    pass(&mut line, MESSAGES - HELD - BACKLOG);
    let times = |line: &mut Line| line.database.number(SIZE) as f64 / needed;
    let after = times(&mut line);
    let spread = format!("{BACKLOG} waiting need {:.0} MB", needed / 1e6);
    let text = "size of the queue after 850,000 messages, to what its backlog needed";
    report.line(text, after, "x", Target::AtMost(3.0), &spread);

    let mut holder = line.database.connect();
    let mut transaction = holder.transaction().expect("a transaction");
    let snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pepsi.workqueue";
    transaction.batch_execute(snapshot).expect("a snapshot");
    pass(&mut line, HELD);
    let held = times(&mut line);
    transaction.rollback().expect("a rollback");
    // The next messages find room where those were.
    let is_back = holds_within(PATIENCE, || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        line.database
            .number("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'pepsi.workqueue'::regclass")
            < BACKLOG
    });
    pass(&mut line, 2 * BACKLOG);
    let text = "  and after 150,000 more under a snapshot, when it has gone";
    let spread = format!("{held:.2} while it was held; vacuumed: {is_back}");
    report.line(text, times(&mut line), "x", Target::AtMost(3.0), &spread);
    line.stop();
}
