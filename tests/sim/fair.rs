//! What the machine tells the shares of the senders, event by event (requirement F2).

use super::bench::{Bench, MILLI, SECOND, row_at, settings, stage};
use crate::machine::{Claimed, Event, Exit, Job, Machine, Micros};

fn of(sender: &str, id: i64) -> Claimed {
    Claimed { sender: sender.to_owned(), ..row_at("init", id, 0) }
}

/// One stage with two workers of one id each; of two senders each has one message with a worker, and more that wait.
fn busy() -> Bench {
    let mut spec = stage("init");
    spec.parallelism = 2;
    spec.queue_limit = 1;
    let mut bench = Bench::one();
    bench.machine = Machine::new(crate::machine::Settings { fair: true, ..settings() }, vec![spec], 7);
    bench.event(Event::Start);
    bench.arrive((0..40).map(|id| of(if id % 2 == 0 { "a" } else { "b" }, id)).collect());
    bench.ready(1);
    bench.ready(2);
    bench
}

fn lead(bench: &Bench, sender: &str) -> Micros {
    bench.machine.fair().senders(0).get(sender).map_or(0, |sender| sender.lead)
}

/// What the last claim takes for a message's time.
fn average(bench: &Bench) -> i64 {
    let asked = bench.jobs.iter().rev().find_map(|job| match job {
        Job::Claim { demand, .. } => Some(demand[0].ask.average),
        _ => None,
    });
    asked.expect("a claim")
}

// Req: F2
#[test]
fn an_answer_is_charged_what_it_took_and_the_average_learns() {
    let mut bench = busy();
    assert_eq!((lead(&bench, "a"), lead(&bench, "b")), (50 * MILLI, 50 * MILLI), "in advance");
    bench.pass(200 * MILLI);
    bench.answers(1, 0);
    // The claim that follows begins the count at the least-served one, and charges who gets the place.
    let leads = (lead(&bench, "a"), lead(&bench, "b"));
    assert!(leads.0.abs_diff(150 * MILLI) <= MILLI && leads.1.abs_diff(200 * MILLI) <= MILLI, "{leads:?}");
    assert_eq!(average(&bench), 200 * MILLI as i64);
}

// Req: F2
#[test]
fn a_hang_is_charged_max_runtime_and_a_crash_what_it_ran() {
    let mut bench = busy();
    bench.pass(2 * SECOND);
    bench.exits(1, Exit::Signal(9));
    assert!(lead(&bench, "a").abs_diff(2 * SECOND) <= 150 * MILLI, "{}", lead(&bench, "a"));
    let mut bench = busy();
    bench.pass(SECOND);
    bench.answers(2, 0);
    // The other one's worker goes on answering.
    for _ in 0..299 {
        bench.pass(SECOND);
        bench.answers(2, 0);
    }
    bench.pass(2 * SECOND);
    bench.exits(1, Exit::Signal(9));
    let (a, b) = (lead(&bench, "a"), lead(&bench, "b"));
    assert!(a > 200 * SECOND && b <= 2 * SECOND, "a {a}, b {b}");
}

// Req: F2
#[test]
fn what_did_not_run_is_refunded() {
    let mut bench = busy();
    bench.answers(1, 75);
    assert_eq!(bench.machine.fair().unsettled().count(), 1);
    assert_eq!((lead(&bench, "a"), lead(&bench, "b")), (0, 50 * MILLI));
}
