//! A line that keeps up: how long a message takes from its commit to the end, with workers that are idle and at half the rate that
//! the line can bear; and how throughput holds however much waits, and behind an old snapshot.

use crate::backlog::ROUNDS;
use crate::harness::{PATIENCE, Postgres, wait_until};
use crate::line::{Line, Lot, chain, fill, first};
use crate::report::{Report, Samples, Target};
use std::time::{Duration, Instant};

/// When each message left, by the server's clock. Not logged, so that it costs little.
const LEDGER: &str = "CREATE UNLOGGED TABLE left_at (id bigint, at timestamptz);
    CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS
        'BEGIN INSERT INTO left_at VALUES (old.workqueue_id, clock_timestamp()); RETURN NULL; END';
    CREATE TRIGGER gone AFTER DELETE ON pepsi.workqueue FOR EACH ROW EXECUTE FUNCTION note_end();
    CREATE UNLOGGED TABLE came_at (id bigint, at timestamptz)";
const SEND: &str = "WITH sent AS (
        INSERT INTO pepsi.workqueue (stage, mail_from, rcpt_to, subject, headers)
        SELECT 's1', 'a@s' || n % 10 || '.example', '{b@example.net}', 'x', 'Subject: x' FROM generate_series(1, $1::bigint) AS n
        RETURNING workqueue_id)
    INSERT INTO came_at SELECT workqueue_id, clock_timestamp() FROM sent";
const WAITS: &str =
    "SELECT extract(epoch FROM l.at - c.at)::float8 * 1000 FROM left_at l JOIN came_at c USING (id)
    WHERE c.id > $1";

const STAGES: usize = 4;
/// One transaction of a sender's, in the steady state.
const LOT: i64 = 5;
const STEADY: Duration = Duration::from_secs(8);

/// Milliseconds from just before its commit until it left, of those behind `after`.
fn waits(line: &mut Line, after: i64) -> Samples {
    let rows = line.database.client.query(WAITS, &[&after]).unwrap_or_else(|error| panic!("{error:?}"));
    Samples::new(rows.iter().map(|row| row.get(0)).collect())
}

fn send(line: &mut Line, messages: i64) {
    line.database.client.execute(SEND, &[&messages]).unwrap_or_else(|error| panic!("{error:?}"));
    line.notify();
}

fn last_id(line: &mut Line) -> i64 {
    line.database.number("SELECT coalesce(max(id), 0) FROM came_at")
}

/// Four stages unfused, at half their peak.
pub fn steady(server: &Postgres, report: &mut Report) {
    let options = [("QUEUE_LIMIT", "16"), ("PARALLELISM", "4")];
    let mut line = Line::start(server, |config, _| chain(config, STAGES, false, &options));
    line.database.run(LEDGER);
    line.database.run("SET synchronous_commit = off");
    line.rate(first(STAGES), Lot::of(2_000));
    let peaks = Samples::new((0..3).map(|_| line.rate(first(STAGES), Lot::of(5_000))).collect());
    let half = peaks.median() / 2.0;
    let after = last_id(&mut line);
    let (begin, mut sent) = (Instant::now(), 0_i64);
    while begin.elapsed() < STEADY {
        let due = (begin.elapsed().as_secs_f64() * half) as i64;
        match due - sent {
            LOT.. => {
                send(&mut line, LOT);
                sent += LOT;
            }
            _ => std::thread::sleep(Duration::from_micros(500)),
        }
    }
    let rate = sent as f64 / begin.elapsed().as_secs_f64();
    wait_until("the queue is empty", PATIENCE, || line.oldest() == 0);
    let waits = waits(&mut line, after);
    line.stop();
    let spread = format!("{rate:.0} /s of at most {:.0}, {}", peaks.median(), waits.spread());
    let text = "steady at half the peak, four unfused stages: p99 from end to end";
    report.line(text, waits.percentile(99), "ms", Target::AtMost(30.0), &spread);
}

/// One message at a time, the worker idle: from before its commit until the worker's commit.
pub fn pickup(server: &Postgres, report: &mut Report) {
    const MESSAGES: u64 = 1_000;
    let mut line = Line::start(server, |config, _| chain(config, 1, true, &[]));
    line.database.run(LEDGER);
    line.database.run("SET synchronous_commit = off");
    let send = SEND.replace("'s1'", "'end'");
    let mut after = 0;
    for number in 0..MESSAGES + 50 {
        if number == 50 {
            after = last_id(&mut line);
        }
        line.database.client.execute(&send, &[&1_i64]).unwrap_or_else(|error| panic!("{error:?}"));
        line.notify();
        wait_until("it is gone", PATIENCE, || line.oldest() == 0);
        std::thread::sleep(Duration::from_micros(2_000 + 500 * (number % 5)));
    }
    let waits = waits(&mut line, after);
    line.stop();
    let text = "an idle line: from the commit to the worker's";
    report.line(&format!("{text}, p50"), waits.median(), "ms", Target::AtMost(1.0), &waits.spread());
    report.line("  p99", waits.percentile(99), "ms", Target::AtMost(3.0), "");
}

/// Throughput while as many arrive as leave, with so many waiting all the time.
fn kept_up(line: &mut Line, messages: i64) -> f64 {
    const TURN: i64 = 500;
    let begin = line.oldest();
    assert!(begin > 0, "the backlog is there");
    let (began, mut added) = (Instant::now(), 0);
    line.notify();
    loop {
        // The oldest ones of ten equal senders go first, so the oldest one tells how many are gone.
        let gone = line.oldest() - begin;
        if gone >= messages {
            return gone as f64 / began.elapsed().as_secs_f64();
        }
        assert!(began.elapsed() < PATIENCE, "no progress");
        if added < gone {
            fill(&mut line.database, "end", Lot::of(TURN));
            added += TURN;
        } else {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A thousand and a million waiting; and a thousand behind a snapshot that others have passed under.
pub fn depth(server: &Postgres, report: &mut Report) {
    const MESSAGES: i64 = 8_000;
    let options = [("QUEUE_LIMIT", "16"), ("PARALLELISM", "4")];
    let start = |waiting: i64| {
        let mut line = Line::start(server, |config, _| chain(config, 1, true, &options));
        line.rate("end", Lot::of(2_000));
        for _ in 0..(waiting / 100_000).max(1) {
            fill(&mut line.database, "end", Lot::of(waiting.min(100_000)));
        }
        line
    };
    let (mut shallow, mut deep) = (start(1_000), start(1_000_000));
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (few, many) = (kept_up(&mut shallow, MESSAGES), kept_up(&mut deep, MESSAGES));
        rates.push(many);
        ratios.push(many / few);
    }
    let (rates, ratios) = (Samples::new(rates), Samples::new(ratios));
    report.line(
        "as many arrive as leave, 1,000,000 wait",
        rates.median(),
        "/s",
        Target::None,
        &rates.spread(),
    );
    report.line("  to that with 1,000", ratios.median(), "x", Target::AtLeast(0.9), &ratios.spread());
    shallow.stop();
    deep.stop();

    let (mut fresh, mut held) = (start(1_000), start(1_000));
    let mut holder = held.database.connect();
    let mut transaction = holder.transaction().expect("a transaction");
    let snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pepsi.workqueue";
    transaction.batch_execute(snapshot).expect("a snapshot");
    kept_up(&mut held, 150_000);
    let ratio = |_| {
        let before = kept_up(&mut fresh, MESSAGES);
        kept_up(&mut held, MESSAGES) / before
    };
    let ratios = Samples::new((0..ROUNDS).map(ratio).collect());
    transaction.rollback().expect("a rollback");
    fresh.stop();
    held.stop();
    let text = "150,000 have passed under a held snapshot: throughput to that before";
    report.line(text, ratios.median(), "x", Target::AtLeast(0.7), &ratios.spread());
}
