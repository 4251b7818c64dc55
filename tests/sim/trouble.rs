//! Database trouble, due rows and statistics, event by event (requirement groups L, O, K and E7, E8).

use super::bench::{Bench, MILLI, SECOND, claim, name, requeue, row, row_at, send, stage};
use crate::machine::{
    Action, Announcement, Deltas, Event, Exit, Fault, Job, Micros, Reply, StageDelta, WorkerId,
};

fn flushes(bench: &Bench) -> Vec<Deltas> {
    let flush = |job: &Job| match job {
        Job::Flush(deltas) => Some(deltas.clone()),
        _ => None,
    };
    bench.jobs.iter().filter_map(flush).collect()
}

/// `count` rows at `init`, each with a worker of its own.
fn busy(bench: &mut Bench, count: i64) {
    bench.arrive((1..=count).map(|id| row(id, 0)).collect());
    (1..=count as u64).for_each(|worker| drop(bench.ready(worker)));
    bench.jobs.clear();
}

// Req: L1
#[test]
fn a_worker_that_lost_the_database_pauses_its_row_and_counts_nothing() {
    let mut bench = Bench::one();
    busy(&mut bench, 1);
    bench.answers(1, 74);
    let writes = bench.writes();
    let [Job::Pause { row, pause, .. }] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(*row, claim(1));
    assert!((30 * SECOND..38 * SECOND).contains(pause));
    bench.pass(70 * SECOND);
    assert_eq!(flushes(&bench), []);
}

// Req: L1
#[test]
fn a_pause_that_cannot_be_written_is_kept_until_it_can() {
    let mut bench = Bench::one();
    busy(&mut bench, 1);
    bench.script.extend(vec![("Connect", Reply::Fault(Fault::Lost("gone".to_owned()))); 30]);
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.answers(1, 74);
    bench.pass(400 * SECOND);
    assert_eq!(bench.writes().iter().filter(|job| name(job) == "Pause").count(), 1);
}

// Req: E8
#[test]
fn rows_paused_for_one_cause_do_not_return_together() {
    let mut bench = Bench::one();
    bench.arrive((1..=16).map(|id| row(id, 0)).collect());
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    bench.jobs.clear();
    (1..=4).for_each(|worker| drop(bench.exits(worker, Exit::Code(74))));
    let mut pauses: Vec<Micros> = Vec::new();
    for job in bench.writes() {
        if let Job::Pause { pause, .. } = job {
            pauses.push(pause);
        }
    }
    assert_eq!(pauses.len(), 16);
    assert!(pauses.iter().all(|pause| (30 * SECOND..=37_500 * MILLI).contains(pause)), "{pauses:?}");
    pauses.sort_unstable();
    pauses.dedup();
    assert!(pauses.len() > 12 && pauses[pauses.len() - 1] - pauses[0] > 3 * SECOND, "{pauses:?}");
}

// Req: O1
#[test]
fn an_overloaded_database_is_given_a_second_and_half_of_the_largest_pool() {
    let mut big = stage("big");
    big.parallelism = 8;
    let mut bench = Bench::up(vec![stage("init"), big]);
    bench.arrive((1..=8).map(|id| row_at("big", id, 0)).collect());
    (1..=8).for_each(|worker| drop(bench.ready(worker)));
    bench.arrive(vec![row(20, 0)]);
    bench.ready(9);
    bench.jobs.clear();
    // The one that reports is not the one that is cut.
    bench.answers(9, 75);
    assert_eq!(bench.writes(), [requeue(&[20])]);
    bench.pending.push(row(20, 0));
    bench.event(Event::Notified);
    assert_eq!(bench.pending.len(), 1, "init is not claimed");
    let sent = bench.pass(1100 * MILLI);
    assert_eq!(sent, [send(9, &[20])]);
    let closed =
        |actions: &[Action]| actions.iter().filter(|action| matches!(action, Action::Close { .. })).count();
    let mut ended = 0;
    for worker in 1..=8 {
        ended += closed(&bench.answers(worker, 0));
    }
    assert_eq!(ended, 4, "the surplus is retired when it has finished");
}

// Req: O1
#[test]
fn cuts_ratchet_and_end_after_five_minutes() {
    let capacity = |bench: &mut Bench| {
        bench.jobs.clear();
        bench.event(Event::Notified);
        let claim = bench.jobs.iter().find_map(|job| match job {
            Job::Claim { demand, .. } => {
                demand.first().map(|want| want.ask.capacity).filter(|capacity| *capacity > 0)
            }
            _ => None,
        });
        claim.unwrap_or(0)
    };
    let mut bench = Bench::one();
    let mut caps = Vec::new();
    for worker in 1..=4 {
        bench.arrive(vec![row(worker, 0)]);
        bench.ready(worker as u64);
        bench.exits(worker as u64, Exit::Code(75));
        bench.pass(1100 * MILLI);
        caps.push(capacity(&mut bench));
    }
    assert_eq!(caps, [8, 4, 4, 4], "4 workers of 4 ids become 2, then 1");
    bench.pass(297 * SECOND);
    assert_eq!(capacity(&mut bench), 4);
    bench.pass(3 * SECOND);
    assert_eq!(capacity(&mut bench), 16);
}

// Req: O1
#[test]
fn a_pipeline_of_overloaded_answers_is_one_incident() {
    let mut bench = Bench::one();
    bench.arrive((1..=16).map(|id| row(id, 0)).collect());
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    bench.jobs.clear();
    for _ in 0..4 {
        bench.answers(1, 75);
    }
    assert_eq!(bench.writes().len(), 4);
    bench.pass(1100 * MILLI);
    let dispatched: usize = (2..=4).map(|worker| bench.answers(worker, 0).len()).sum();
    assert_eq!(dispatched, 0, "two of the three workers retire, the third goes on with its pipeline");
    assert_eq!(bench.machine.held().len(), 9);
}

// Req: E7
#[test]
fn a_pause_that_is_written_late_is_heard_of_at_once() {
    let mut bench = Bench::one();
    busy(&mut bench, 1);
    bench.script.push_back(("Strike", Reply::Fault(Fault::Conflict("deadlock".to_owned()))));
    bench.exits(1, Exit::Signal(9));
    bench.due_in = Some(60 * SECOND);
    bench.jobs.clear();
    // However late the write comes, a claim after it hears of the pause.
    bench.pass(2 * SECOND);
    let jobs = bench.job_names();
    let strike = jobs.iter().position(|job| *job == "Strike").expect("it is repeated");
    assert!(jobs[strike..].contains(&"Claim"), "{jobs:?}");
}

#[test]
fn a_refused_write_holds_up_nothing_else() {
    let mut bench = Bench::one();
    busy(&mut bench, 3);
    let refused = Reply::Fault(Fault::Refused("a trigger says no".to_owned()));
    bench.script.extend(vec![("Fail", refused); 5]);
    bench.answers(1, 1);
    bench.answers(2, 75);
    assert!(bench.writes().contains(&requeue(&[2])));
    bench.pass(2 * SECOND);
    assert_eq!(bench.arrive(vec![row(9, 0)]).len(), 1, "claims go on");
    assert!(bench.machine.held().contains(&claim(1)), "and it is not forgotten");
    bench.pass(60 * SECOND);
    assert!(!bench.machine.held().contains(&claim(1)));
}

#[test]
fn a_database_that_refuses_every_write_does_not_fill_the_memory() {
    let mut bench = Bench::one();
    let refused = Reply::Fault(Fault::Refused("a trigger says no".to_owned()));
    bench.script.extend(vec![("Fail", refused); 100_000]);
    bench.pending.extend((1..=3000).map(|id| row(id, 0)));
    let mut actions = bench.event(Event::Notified);
    while let Some(action) = actions.pop() {
        if let Action::Spawn { worker, .. } = action {
            actions.extend(bench.event(Event::Ready { worker, claims: true }));
        } else if let Action::Send { worker, rows } = action {
            for _ in rows {
                actions.extend(bench.event(Event::Answer { worker, status: 1, report: Vec::new() }));
            }
        }
    }
    let held = bench.machine.held().len();
    assert!((1000..=1016).contains(&held), "{held} rows are held");
}

// Req: K1
#[test]
fn statistics_are_written_when_idle_and_on_the_interval_and_not_for_nothing() {
    let mut bench = Bench::one();
    busy(&mut bench, 2);
    bench.now += 5 * MILLI;
    bench.answers(1, 0);
    bench.pass(2 * SECOND);
    assert_eq!(flushes(&bench), [], "not idle");
    bench.answers(2, 0);
    let delta = StageDelta {
        stage: "init".to_owned(),
        messages: 2,
        processing_us: 2_010 * MILLI,
        ..StageDelta::default()
    };
    let sum = Deltas { stages: vec![delta], executed: 2, answered: vec![1, 2], ..Deltas::default() };
    assert_eq!(flushes(&bench), [sum]);
    bench.jobs.clear();
    bench.arrive(vec![row(3, 0)]);
    bench.answers(1, 0);
    assert_eq!(flushes(&bench), [], "at most once a second");
    bench.pass(SECOND);
    assert_eq!(flushes(&bench).len(), 1);
    bench.pass(600 * SECOND);
    assert_eq!(flushes(&bench).len(), 1, "nothing when nothing changed");
    // Never idle: every interval. Worker 1 stays with its row.
    let mut bench = Bench::one();
    busy(&mut bench, 2);
    bench.answers(2, 0);
    for id in 100..230 {
        bench.pass(SECOND);
        bench.arrive(vec![row(id, 0)]);
        bench.answers(2, 0);
    }
    let executed: Vec<u64> = flushes(&bench).iter().map(|deltas| deltas.executed).collect();
    assert_eq!(executed.len(), 2, "130 seconds: {executed:?}");
    assert!(executed.iter().all(|count| (58..=62).contains(count)), "{executed:?}");
}

// Req: K1
#[test]
fn a_flush_that_was_refused_is_repeated_and_one_that_was_lost_is_not() {
    let mut bench = Bench::one();
    busy(&mut bench, 1);
    bench.script.push_back(("Flush", Reply::Fault(Fault::Conflict("deadlock".to_owned()))));
    bench.answers(1, 0);
    bench.pass(10 * SECOND);
    let both = flushes(&bench);
    assert_eq!((both.len(), both[0].executed, both[1].executed), (2, 1, 1));
    assert_eq!((both[0].serialization_failures, both[1].serialization_failures), (0, 1));

    let mut bench = Bench::one();
    busy(&mut bench, 1);
    bench.script.push_back(("Flush", Reply::Fault(Fault::Lost("gone".to_owned()))));
    bench.answers(1, 0);
    bench.pass(100 * SECOND);
    assert_eq!(flushes(&bench).len(), 1, "it may have been committed");
}

// Req: K2
// Req: R1
#[test]
fn a_fused_pass_counts_once_and_each_stage_its_own_time() {
    let mut bench = Bench::up(vec![stage("init"), stage("srs")]);
    busy(&mut bench, 1);
    bench.now += 10 * MILLI;
    let report = vec![("srs".to_owned(), 3 * MILLI), ("nowhere".to_owned(), MILLI)];
    bench.event(Event::Answer { worker: WorkerId(1), status: 0, report });
    bench.pass(SECOND);
    let deltas = flushes(&bench).remove(0);
    assert_eq!(deltas.executed, 1);
    let times: Vec<(&str, u64, u64)> = deltas
        .stages
        .iter()
        .map(|delta| (delta.stage.as_str(), delta.messages, delta.processing_us))
        .collect();
    assert_eq!(times, [("init", 1, 7 * MILLI), ("srs", 1, 3 * MILLI)]);
    // A worker that reports more than the pass took leaves nothing for its stage, and less than nothing there is not.
    bench.arrive(vec![row(2, 0)]);
    bench.now += 10 * MILLI;
    let report = vec![("srs".to_owned(), SECOND)];
    bench.event(Event::Answer { worker: WorkerId(1), status: 0, report });
    bench.pass(2 * SECOND);
    let deltas = flushes(&bench).remove(1);
    let times: Vec<(&str, u64)> =
        deltas.stages.iter().map(|delta| (delta.stage.as_str(), delta.processing_us)).collect();
    assert_eq!(times, [("init", 0), ("srs", SECOND)]);
}

// Req: K3
#[test]
fn failures_and_conflicts_are_counted_and_only_they() {
    let mut bench = Bench::one();
    busy(&mut bench, 3);
    bench.answers(1, 0);
    bench.answers(2, 1);
    bench.exits(3, Exit::Signal(9));
    bench.pass(2 * SECOND);
    let first = &flushes(&bench)[0];
    assert_eq!((first.executed, first.failed, first.serialization_failures), (2, 1, 0));
    assert_eq!((first.stages[0].messages, first.stages[0].crashes, first.stages[0].timeouts), (2, 1, 0));
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 2)]);
    bench.ready(1);
    bench.script.push_back(("Claim", Reply::Fault(Fault::Conflict("deadlock".to_owned()))));
    bench.event(Event::Notified);
    bench.jobs.clear();
    bench.pass(300 * SECOND);
    bench.exits(1, Exit::Signal(9));
    bench.pass(2 * SECOND);
    let sum = flushes(&bench).iter().fold((0, 0, 0), |sum, deltas| {
        let timeouts: u64 = deltas.stages.iter().map(|delta| delta.timeouts).sum();
        (sum.0 + deltas.failed, sum.1 + deltas.serialization_failures, sum.2 + timeouts)
    });
    assert_eq!(sum, (1, 1, 1), "a row that is condemned failed");
}

// Req: K4
#[test]
fn bodies_are_collected_with_the_tick_and_only_after_work() {
    let mut bench = Bench::one();
    bench.pass(600 * SECOND);
    assert!(!bench.jobs.iter().any(|job| name(job) == "CollectBodies"));
    busy(&mut bench, 1);
    bench.answers(1, 0);
    bench.pass(3600 * SECOND);
    let collected: Vec<&Job> = bench.jobs.iter().filter(|job| name(job) == "CollectBodies").collect();
    assert_eq!(collected, [&Job::CollectBodies { limit: 10_000 }]);
}

/// A crash of the server may have forgotten claims whose rows workers still hold: the reconcile raises their numbers first.
// Req: D4
#[test]
fn nothing_is_claimed_on_a_new_connection_before_a_reconcile_is_done() {
    let mut bench = Bench::one();
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.jobs.clear();
    bench.pending.push(row(1, 0));
    for _ in 0..3 {
        bench.script.push_back(("Reconcile", Reply::Fault(Fault::Conflict("a row is locked".to_owned()))));
    }
    bench.pass(30 * SECOND);
    let names = bench.job_names();
    let claim = names.iter().position(|name| *name == "Claim").expect("a claim in the end");
    let reconciles = names[..claim].iter().filter(|name| **name == "Reconcile").count();
    assert_eq!(reconciles, 4, "{names:?}");
}

// Req: D2, W3
#[test]
fn a_locked_row_that_nobody_holds_keeps_the_dispatcher_neither_from_ready_nor_from_claims() {
    let mut bench = Bench::new(vec![stage("init")]);
    bench.pending.push(row(8, 0));
    bench.script.push_back(("Reconcile", Reply::Reconciled(vec![claim(7)])));
    let locked = Reply::Fault(Fault::Conflict("a row is locked".to_owned()));
    bench.script.extend(vec![("Requeue", locked); 5]);
    let actions = bench.event(Event::Start);
    assert!(actions.contains(&Action::Announce(Announcement::Ready)), "{actions:?}");
    assert!(bench.pending.is_empty(), "claims go on");
    assert!(bench.machine.held().contains(&claim(7)), "it is no stray");
    bench.jobs.clear();
    bench.pass(60 * SECOND);
    assert!(bench.writes().contains(&requeue(&[7])));
    assert!(!bench.machine.held().contains(&claim(7)), "it is free in the end");
}

/// A message that is answered at one stage and gone before its next answer is heard is finished once.
// Req: K2
#[test]
fn an_answered_row_that_is_handed_out_again_is_counted_when_it_is_answered_again() {
    let mut bench = Bench::up(vec![stage("init"), stage("deliver")]);
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.pending.push(row_at("deliver", 1, 0));
    bench.answers(1, 0);
    bench.ready(2);
    let counted = |bench: &mut Bench| {
        let jobs = std::mem::take(&mut bench.jobs);
        let flushed =
            jobs.into_iter().filter_map(|job| if let Job::Flush(deltas) = job { Some(deltas) } else { None });
        flushed.flat_map(|deltas| deltas.answered).collect::<Vec<i64>>()
    };
    bench.pass(100 * SECOND);
    assert_eq!(counted(&mut bench), [] as [i64; 0], "it is with a worker");
    bench.answers(2, 0);
    bench.pass(100 * SECOND);
    assert_eq!(counted(&mut bench), [1]);
}
