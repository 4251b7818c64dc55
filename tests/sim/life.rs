//! The dispatcher's own life, its connection and its claims, event by event (requirement groups D, W, L, CLI3).

use super::bench::{
    Bench, MILLI, SECOND, claim, close, kill, name, requeue, row, row_at, rows, send, spawn, stage,
};
use crate::machine::{Action, Announcement, Claim, Event, Exit, Fault, Job, Reply, WorkerId};

fn lost() -> Reply {
    Reply::Fault(Fault::Lost("gone".to_owned()))
}

fn demands(bench: &Bench) -> Vec<(String, u32, i64)> {
    let Some(Job::Claim { demand, .. }) = bench.jobs.iter().rev().find(|job| name(job) == "Claim") else {
        panic!("no claim: {:?}", bench.jobs);
    };
    let with_room = demand.iter().filter(|want| want.ask.capacity > 0);
    with_room.map(|want| (want.stage.clone(), want.ask.capacity, want.ask.floor)).collect()
}

fn touched(bench: &Bench) -> Vec<i64> {
    match bench.jobs.iter().rev().find(|job| name(job) == "Claim") {
        Some(Job::Claim { touched, .. }) => touched.clone(),
        _ => panic!("no claim: {:?}", bench.jobs),
    }
}

// Req: D2
#[test]
fn running_rows_go_back_before_anything_is_claimed() {
    let mut bench = Bench::new(vec![stage("init")]);
    let actions = bench.event(Event::Start);
    assert_eq!(bench.jobs[2], Job::Reconcile { held: vec![] });
    assert_eq!(bench.job_names(), ["Connect", "Lock", "Reconcile", "Sweep", "Claim"]);
    assert_eq!(actions, [Action::Announce(Announcement::Ready)]);
}

// Req: D1
#[test]
fn a_held_lock_is_waited_for_and_then_refused() {
    let mut bench = Bench::new(vec![stage("init")]);
    bench.script.extend(vec![("Lock", Reply::LockHeld); 3]);
    bench.event(Event::Start);
    bench.pass(1600 * MILLI);
    assert_eq!(bench.job_names().iter().filter(|job| **job == "Lock").count(), 4);

    let mut bench = Bench::new(vec![stage("init")]);
    bench.script.extend(vec![("Lock", Reply::LockHeld); 100]);
    bench.event(Event::Start);
    assert_eq!(bench.pass(9_900 * MILLI), []);
    let end = bench.pass(SECOND);
    assert_eq!(end.last(), Some(&Action::Exit { code: 1 }));
    assert_eq!(bench.machine.deadline(), None);
}

// Req: CLI3
#[test]
fn a_first_start_without_a_database_ends() {
    let text = || "no such host".to_owned();
    let faults =
        [Fault::Lost(text()), Fault::Overloaded(text()), Fault::Conflict(text()), Fault::Refused(text())];
    for fault in faults {
        let mut bench = Bench::new(vec![stage("init")]);
        bench.script.push_back(("Connect", Reply::Fault(fault)));
        assert_eq!(bench.event(Event::Start).last(), Some(&Action::Exit { code: 1 }));
    }
    let mut bench = Bench::new(vec![stage("init")]);
    bench.script.push_back(("Connect", Reply::Fatal { code: 78, error: "the schema is older".to_owned() }));
    assert_eq!(bench.event(Event::Start).last(), Some(&Action::Exit { code: 78 }));
}

// Req: D3
#[test]
fn a_signal_ends_in_order() {
    let mut bench = Bench::one();
    bench.arrive((1..=3).map(|id| row(id, 0)).collect());
    bench.ready(1);
    bench.ready(2);
    bench.jobs.clear();
    // Row 3 waits for worker 3, which is not ready; rows 1 and 2 are being worked on.
    let actions = bench.event(Event::Terminate);
    assert_eq!(actions, [Action::Announce(Announcement::Stopping), close(1), close(2), close(3)]);
    assert_eq!(bench.writes(), [requeue(&[3])]);
    bench.pending.push(row(9, 0));
    bench.event(Event::Notified);
    assert_eq!(bench.job_names(), [""; 0], "nothing is claimed any more");
    bench.answers(1, 0);
    bench.exits(1, Exit::Code(0));
    bench.exits(3, Exit::Code(0));
    assert_eq!(bench.pass(2900 * MILLI), []);
    assert_eq!(bench.pass(200 * MILLI), [kill(2)]);
    let end = bench.exits(2, Exit::Signal(9));
    assert_eq!(end, [Action::Exit { code: 0 }]);
    let jobs = bench.jobs.clone();
    assert!(jobs.contains(&requeue(&[2])), "{jobs:?}");
    let Some(Job::Flush(deltas)) = jobs.last() else { panic!("the last job is the flush: {jobs:?}") };
    assert_eq!((deltas.executed, deltas.answered.as_slice()), (1, &[1][..]));
}

// Req: D3
#[test]
fn a_second_signal_loses_nothing() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0), row(2, 0)]);
    bench.ready(1);
    bench.ready(2);
    bench.jobs.clear();
    bench.event(Event::Terminate);
    assert_eq!(bench.event(Event::Terminate), [kill(1), kill(2)]);
    // What a killed worker wrote before still counts.
    bench.answers(1, 0);
    bench.exits(1, Exit::Signal(9));
    let end = bench.exits(2, Exit::Signal(9));
    assert_eq!(end, [Action::Exit { code: 0 }]);
    assert_eq!(bench.writes(), [requeue(&[2])]);
}

// Req: D3
#[test]
fn a_signal_without_a_database_still_ends() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.script.extend(vec![("Connect", lost()); 1000]);
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.event(Event::Terminate);
    bench.exits(1, Exit::Code(0));
    assert_eq!(bench.pass(3900 * MILLI), []);
    assert_eq!(bench.pass(200 * MILLI), [Action::Exit { code: 0 }]);
}

// Req: D3
#[test]
fn rows_claimed_while_the_signal_came_go_back() {
    let mut bench = Bench::one();
    bench.machine.step(bench.now, Event::Notified);
    let actions = bench.machine.step(bench.now, Event::Turn);
    assert!(matches!(actions.as_slice(), [Action::Job(Job::Claim { .. })]));
    bench.machine.step(bench.now, Event::Terminate);
    let reply = rows(vec![row(4, 0), row(5, 1)], None);
    assert_eq!(bench.event(Event::Reply(reply)).last(), Some(&Action::Exit { code: 0 }));
    assert_eq!(bench.writes(), [requeue(&[4, 5])]);
}

// Req: D4
#[test]
fn a_write_that_met_a_lost_connection_is_repeated_under_the_same_claim() {
    let mut bench = Bench::one();
    let mut again = row(5, 1);
    again.row = Claim { id: 5, claim: 17 };
    bench.arrive(vec![again]);
    bench.ready(1);
    bench.script.push_back(("Strike", lost()));
    bench.jobs.clear();
    bench.exits(1, Exit::Signal(11));
    bench.pass(SECOND);
    let writes = bench.writes();
    let strikes: Vec<&Job> = writes.iter().filter(|job| name(job) == "Strike").collect();
    assert_eq!(strikes.len(), 2);
    assert_eq!(strikes[0], strikes[1]);
    assert!(matches!(strikes[0], Job::Strike { row: Claim { id: 5, claim: 17 }, strikes: 2, .. }));
}

// Req: D6
#[test]
fn a_lock_lost_to_another_dispatcher_ends_this_one() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.script.extend(vec![("Lock", Reply::LockHeld); 100]);
    bench.event(Event::ConnectionLost("gone".to_owned()));
    let actions = bench.pass(11 * SECOND);
    assert_eq!(actions, [Action::Announce(Announcement::Stopping), close(1), kill(1)]);
    assert_eq!(bench.exits(1, Exit::Signal(9)), [Action::Exit { code: 1 }]);
}

// Req: D7
#[test]
fn a_reconnect_frees_what_nobody_holds() {
    let mut bench = Bench::one();
    bench.arrive((1..=5).map(|id| row(id, 0)).collect());
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    // Row 1 is answered, row 2 owes a write that was refused, row 6 was claimed by a reply that never came.
    bench.answers(1, 0);
    bench.script.push_back(("Fail", Reply::Fault(Fault::Refused("no".to_owned()))));
    bench.answers(2, 1);
    bench.script.push_back(("Claim", lost()));
    bench.jobs.clear();
    bench.event(Event::Notified);
    bench.pass(SECOND);
    let held: Vec<Claim> = match bench.jobs.iter().find(|job| name(job) == "Reconcile") {
        Some(Job::Reconcile { held }) => held.clone(),
        other => panic!("{other:?}"),
    };
    let mut held = held;
    held.sort_unstable();
    assert_eq!(held, [claim(2), claim(3), claim(4), claim(5)]);
    let names = bench.job_names();
    let lock = names.iter().position(|job| *job == "Lock").expect("the lock is taken again");
    let order: Vec<_> =
        names[lock..].iter().filter(|job| ["Reconcile", "Sweep", "Claim"].contains(job)).collect();
    assert_eq!(order[..3], [&"Reconcile", &"Sweep", &"Claim"]);
}

// Req: D9
#[test]
fn an_idle_dispatcher_only_beats() {
    let mut bench = Bench::one();
    bench.pass(SECOND);
    bench.jobs.clear();
    bench.turns = 0;
    bench.pass(600 * SECOND);
    assert_eq!(bench.job_names(), ["Claim"; 20]);
    assert!(bench.turns <= 40, "{} turns", bench.turns);
}

// Req: W1
#[test]
fn a_lost_connection_is_made_again_with_jitter() {
    let mut bench = Bench::one();
    bench.script.extend(vec![("Connect", lost()); 50]);
    bench.event(Event::ConnectionLost("gone".to_owned()));
    let mut pauses = Vec::new();
    let mut last = bench.now;
    for _ in 0..50 {
        bench.now = bench.machine.deadline().expect("an attempt");
        bench.turn();
        pauses.push(bench.now - last);
        last = bench.now;
    }
    assert!(pauses.iter().all(|pause| (100 * MILLI..=10 * SECOND).contains(pause)), "{pauses:?}");
    assert!(
        pauses.windows(2).any(|pair| pair[0] > pair[1]) && pauses.iter().any(|pause| *pause > 5 * SECOND)
    );
    assert!(pauses.iter().zip(pauses.iter().skip(1)).all(|(before, after)| *after <= 3 * before));
    bench.jobs.clear();
    bench.pass(11 * SECOND);
    assert_eq!(bench.job_names(), ["Connect", "Lock", "Reconcile", "Reread", "Sweep", "Claim"]);
}

// Req: W2
#[test]
fn every_wake_claims_once() {
    let mut bench = Bench::one();
    let claims = |bench: &mut Bench, wake: &str, count: usize| {
        let names = bench.job_names();
        assert_eq!(names.iter().filter(|job| **job == "Claim").count(), count, "{wake}: {names:?}");
    };
    bench.event(Event::Notified);
    claims(&mut bench, "notification", 1);
    bench.arrive(vec![row(1, 0), row(2, 0)]);
    bench.ready(1);
    bench.ready(2);
    bench.job_names();
    bench.answers(1, 0);
    claims(&mut bench, "answer", 1);
    bench.exits(2, Exit::Signal(9));
    claims(&mut bench, "dead worker", 1);
    bench.pass(20 * SECOND);
    bench.job_names();
    bench.pass(30 * SECOND);
    claims(&mut bench, "heartbeat", 1);
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.pass(SECOND);
    claims(&mut bench, "reconnect", 1);
    let mut bench = Bench::one();
    bench.due_in = Some(10 * SECOND);
    bench.event(Event::Notified);
    bench.due_in = None;
    bench.due = vec![row(3, 0)];
    bench.job_names();
    bench.pass(9 * SECOND);
    claims(&mut bench, "nothing", 0);
    bench.pass(2 * SECOND);
    claims(&mut bench, "a due retry", 1);
    assert!(bench.machine.held().contains(&claim(3)), "which brought it");
}

// Req: W2
// Req: W5
#[test]
fn all_events_are_heard_before_one_claim() {
    let mut bench = Bench::one();
    bench.arrive((1..=16).map(|id| row(id, 0)).collect());
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    bench.job_names();
    let mut events: Vec<Event> = vec![Event::Notified; 50];
    for worker in 1..=4 {
        events.push(Event::Answer { worker: WorkerId(worker), status: 0, report: Vec::new() });
    }
    bench.events(events);
    assert_eq!(demands(&bench), [("init".to_owned(), 4, 0)]);
    assert_eq!(bench.job_names(), ["Claim"]);
}

// Req: W3
#[test]
fn one_claim_asks_for_every_stage_with_capacity() {
    let mut tight = stage("init");
    tight.parallelism = 1;
    tight.queue_limit = 2;
    let mut bench = Bench::up(vec![tight, stage("deliver")]);
    bench.arrive(vec![row(1, 0), row(2, 0), row(3, 0), row_at("deliver", 4, 0)]);
    bench.jobs.clear();
    bench.event(Event::Notified);
    assert_eq!(demands(&bench), [("deliver".to_owned(), 15, 0)], "a full stage is left out");
    bench.ready(1);
    bench.jobs.clear();
    bench.answers(1, 0);
    let stages: Vec<(String, u32)> =
        demands(&bench).into_iter().map(|(stage, want, _)| (stage, want)).collect();
    assert_eq!(stages, [("init".to_owned(), 1), ("deliver".to_owned(), 15)]);
}

// Req: W3
#[test]
fn after_a_lock_timeout_one_claim_passes_locked_rows() {
    let mut bench = Bench::one();
    bench.script.push_back(("Claim", Reply::Fault(Fault::Conflict("lock timeout".to_owned()))));
    bench.event(Event::Notified);
    bench.event(Event::Notified);
    let skipping: Vec<bool> =
        bench.jobs.iter().map(|job| matches!(job, Job::Claim { skip_locked: true, .. })).collect();
    assert_eq!(skipping, [false, true, false]);
}

// Req: W4
#[test]
fn the_floor_rises_behind_what_was_claimed_and_what_may_come_back_is_looked_up() {
    let mut two = stage("init");
    two.parallelism = 1;
    two.queue_limit = 2;
    let mut bench = Bench::up(vec![two, stage("deliver")]);
    bench.pass(SECOND);
    bench.arrive(vec![row(10, 0), row(11, 0)]);
    bench.ready(1);
    // A second later all transactions that had ids up to 11 have ended. An answer puts row 10 somewhere.
    bench.pass(2 * SECOND);
    bench.jobs.clear();
    bench.answers(1, 0);
    assert_eq!(touched(&bench), [10]);
    // That claim brought nothing, so nothing up to 11 is pending.
    bench.jobs.clear();
    bench.answers(1, 0);
    assert_eq!(demands(&bench), [("init".to_owned(), 2, 12), ("deliver".to_owned(), 16, 12)]);
    assert_eq!(touched(&bench), [11]);
    bench.jobs.clear();
    bench.event(Event::Notified);
    assert_eq!(demands(&bench), [("init".to_owned(), 2, 0), ("deliver".to_owned(), 16, 0)]);
    bench.jobs.clear();
    bench.pass(30 * SECOND);
    assert_eq!(demands(&bench), [("deliver".to_owned(), 16, 0)], "the heartbeat looks everywhere");
}

// Req: W4
#[test]
fn the_floor_stays_below_ids_whose_transactions_may_not_have_ended() {
    let mut bench = Bench::one();
    bench.pass(SECOND);
    bench.arrive(vec![row(10, 0), row(12, 0)]);
    bench.ready(1);
    bench.ready(2);
    bench.answers(1, 0);
    bench.jobs.clear();
    bench.answers(2, 0);
    assert!(demands(&bench)[0].2 <= 10, "row 11 may be committed any moment: {:?}", bench.jobs);
}

// Req: W4
#[test]
fn a_row_that_moved_on_before_its_worker_died_is_looked_up() {
    let mut bench = Bench::up(vec![stage("init"), stage("deliver")]);
    bench.arrive(vec![row(10, 0), row(11, 0)]);
    bench.ready(1);
    bench.ready(2);
    bench.arrive(vec![row_at("deliver", 20, 0)]);
    // The first death leads to a reconcile, which lays everything open; the second comes too soon for another, and the
    // write that would tell of its row is refused for now.
    bench.exits(1, Exit::Signal(9));
    bench.script.push_back(("Strike", Reply::Fault(Fault::Refused("no".to_owned()))));
    bench.jobs.clear();
    bench.exits(2, Exit::Signal(9));
    let first = bench.jobs.iter().position(|job| name(job) == "Claim").expect("a claim");
    bench.jobs.truncate(first + 1);
    assert!(touched(&bench).contains(&11), "{:?}", bench.jobs);
}

// Req: W4
#[test]
fn a_busy_dispatcher_looks_below_its_floors_every_poll_interval() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(100, 0)]);
    bench.ready(1);
    let mut full = Vec::new();
    for second in 1..=100 {
        bench.jobs.clear();
        bench.pass(SECOND);
        bench.pending.push(row(100 + second, 0));
        assert_eq!(bench.answers(1, 0), [send(1, &[100 + second])]);
        let all = |job: &Job| matches!(job, Job::Claim { demand, .. } if demand[0].ask.floor == 0);
        full.extend(bench.jobs.iter().any(all).then_some(second));
    }
    assert!(
        full.len() < 6 && full[0] <= 30 && full.windows(2).all(|pair| pair[1] - pair[0] <= 30),
        "{full:?}"
    );
}

// Req: W7
#[test]
fn a_stage_without_a_section_is_never_asked_for() {
    let mut bench = Bench::one();
    bench.pass(100 * SECOND);
    let asked = |job: &Job| matches!(job, Job::Claim { demand, .. } if demand.iter().any(|want| want.stage != "init"));
    assert!(!bench.jobs.iter().any(asked));
    // And one that is claimed all the same, by a table that has just changed, goes back.
    bench.script.push_back(("Claim", rows(vec![row_at("gone", 3, 0)], None)));
    bench.jobs.clear();
    bench.event(Event::Notified);
    assert_eq!(bench.writes(), [requeue(&[3])]);
}

// Req: L2
#[test]
fn work_goes_on_while_the_database_is_away() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0), row(2, 0)]);
    bench.ready(1);
    bench.ready(2);
    bench.script.extend(vec![("Connect", lost()); 3]);
    bench.event(Event::ConnectionLost("restarting".to_owned()));
    bench.answers(1, 0);
    bench.answers(2, 75);
    bench.jobs.clear();
    bench.pass(40 * SECOND);
    let jobs = bench.job_names();
    let first = jobs.iter().position(|job| *job == "Lock").expect("connected");
    assert_eq!(jobs[first + 1], "Requeue", "what is owed goes first: {jobs:?}");
}

#[test]
fn claimed_rows_reach_workers_in_order() {
    let mut bench = Bench::one();
    assert_eq!(bench.arrive(vec![row(1, 0)]), [spawn(1)]);
    assert_eq!(bench.ready(1), [send(1, &[1])]);
}
