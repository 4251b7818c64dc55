//! The corners of the machine, event by event: rows that their worker did not move, bounds of one claim, whose workers are
//! cut, and the last moment of an end.

use super::bench::{
    Bench, MILLI, SECOND, claim, close, kill, name, requeue, row, row_at, send, settings, spawn, stage,
};
use super::workers::{pipeline, strikes};
use crate::machine::{
    Action, Announcement, Blame, Event, Exit, Fault, Job, Reply, Settings, Stray, WorkerId,
};

/// Row 2 is found running though nobody has it.
fn stray() -> (&'static str, Reply) {
    ("FindStrays", Reply::Strays(vec![Stray { stage: "init".to_owned(), row: claim(2), strikes: 0 }]))
}

// Req: D7
// Req: E2
#[test]
fn a_row_that_its_worker_did_not_move_goes_back_once_and_then_is_struck() {
    let mut bench = pipeline(2..=2);
    bench.script.push_back(stray());
    bench.answers(1, 0);
    bench.pass(59 * SECOND);
    assert_eq!(bench.writes(), []);
    bench.pass(2 * SECOND);
    assert_eq!(bench.writes(), [requeue(&[2])]);
    // Short work would be packed, but the answer may have been another row's: now it is alone.
    assert_eq!(bench.arrive(vec![row(2, 0), row(3, 0)]), [spawn(2), spawn(3)]);
    assert_eq!(bench.ready(2), [send(2, &[2])]);
    bench.script.push_back(stray());
    bench.answers(2, 0);
    bench.pass(61 * SECOND);
    assert_eq!(strikes(&bench.writes()), [(2, 1, Blame::Crashed)]);
}

/// A look brings a bounded number of them, and what follows from it may be no reason to look again.
// Req: D7
#[test]
fn strays_are_looked_for_until_there_are_none() {
    let mut bench = pipeline(2..=2);
    for id in [2, 3, 4] {
        let stray = Stray { stage: "init".to_owned(), row: claim(id), strikes: 2 };
        bench.script.push_back(("FindStrays", Reply::Strays(vec![stray])));
    }
    bench.answers(1, 0);
    bench.pass(64 * SECOND);
    assert_eq!(count(&bench, "FindStrays"), 4);
    bench.pass(600 * SECOND);
    assert_eq!(count(&bench, "FindStrays"), 4, "and then no more");
}

/// One that answers at once, moves nothing and ends would otherwise go round every second for ever.
// Req: E2
#[test]
fn a_row_that_was_left_running_by_a_worker_that_then_died_is_found_soon() {
    let mut bench = pipeline(2..=2);
    bench.script.push_back(stray());
    bench.answers(1, 0);
    bench.exits(1, Exit::Code(1));
    bench.pass(1100 * MILLI);
    assert_eq!(bench.writes(), [requeue(&[2])]);
    bench.arrive(vec![row(2, 0)]);
    bench.ready(2);
    bench.script.push_back(stray());
    bench.answers(2, 0);
    bench.exits(2, Exit::Code(1));
    bench.pass(1100 * MILLI);
    assert_eq!(strikes(&bench.writes()), [(2, 1, Blame::Crashed)]);
}

#[test]
fn a_stray_of_a_stage_without_a_section_goes_back() {
    let mut bench = Bench::one();
    for worker in 1..=3 {
        let stray = Stray { stage: "gone".to_owned(), row: claim(7), strikes: 0 };
        bench.script.push_back(("FindStrays", Reply::Strays(vec![stray])));
        bench.arrive(vec![row(3, 0)]);
        bench.ready(worker);
        bench.answers(worker, 0);
        bench.pass(61 * SECOND);
        assert_eq!(bench.writes(), [requeue(&[7])]);
    }
}

/// One claim is a statement of bounded size; the rest of a large pool is filled by the ones that follow at once.
// Req: W3
#[test]
fn a_large_pool_is_filled_by_several_claims() {
    let mut large = stage("init");
    large.parallelism = 100;
    large.queue_limit = 10;
    let mut bench = Bench::up(vec![large]);
    bench.arrive((1..=1200).map(|id| row(id, 0)).collect());
    let asked: Vec<u32> = bench
        .jobs
        .iter()
        .filter_map(|job| match job {
            Job::Claim { demand, .. } => Some(demand[0].ask.capacity),
            _ => None,
        })
        .collect();
    assert!(asked.iter().all(|asked| *asked <= 256), "{asked:?}");
    assert_eq!(bench.machine.held().len(), 1000, "{asked:?}");
    assert_eq!(bench.pending.len(), 200);
}

// Req: O1
#[test]
fn a_worker_that_ended_overloaded_counts_as_the_process_that_it_was() {
    let mut bench = Bench::up(vec![stage("init"), stage("deliver")]);
    bench.arrive(vec![row_at("deliver", 1, 0)]);
    // The only worker there is does not even get ready: it is not the first stage that is cut for it.
    bench.exits(1, Exit::Code(75));
    bench.pass(2 * SECOND);
    bench.jobs.clear();
    bench.event(Event::Notified);
    let Some(Job::Claim { demand, .. }) = bench.jobs.iter().find(|job| name(job) == "Claim") else {
        panic!("{:?}", bench.jobs)
    };
    let asked: Vec<u32> = demand.iter().map(|want| want.ask.capacity).collect();
    assert_eq!(asked[0], 16);
    assert!(asked[1] <= 8, "{asked:?}");
}

/// An alarm ends a frozen dispatcher nine seconds after the signal; the shell may take three of them to hear of it, and for
/// a last statement.
// Req: D3
#[test]
fn the_end_comes_before_the_alarm_whatever_hangs() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.jobs.clear();
    let start = bench.now;
    assert_eq!(bench.event(Event::Terminate), [Action::Announce(Announcement::Stopping), close(1)]);
    // The worker is killed and does not die, and the database is away.
    bench.script.extend(vec![("Connect", Reply::Fault(Fault::Lost("gone".to_owned()))); 1000]);
    bench.event(Event::ConnectionLost("gone".to_owned()));
    assert_eq!(bench.pass(3 * SECOND), [kill(1)]);
    assert_eq!(bench.pass(2400 * MILLI), []);
    assert_eq!(bench.pass(SECOND), [Action::Exit { code: 0 }]);
    assert_eq!(bench.machine.held(), [claim(1)], "the next start frees it");
    // And so while a statement is under way.
    let mut bench = Bench::one();
    bench.machine.step(bench.now, Event::Notified);
    let issued = bench.machine.step(bench.now, Event::Turn);
    assert!(matches!(issued.as_slice(), [Action::Job(Job::Claim { .. })]), "{issued:?}");
    bench.machine.step(bench.now, Event::Terminate);
    let mut end = Vec::new();
    while end.is_empty() {
        bench.now = bench.machine.deadline().expect("a limit");
        end = bench.machine.step(bench.now, Event::Turn);
        end.retain(|action| matches!(action, Action::Exit { .. }));
        assert!(bench.now <= start + 6 * SECOND, "it hangs");
    }
    let stray = Event::Answer { worker: WorkerId(1), status: 0, report: Vec::new() };
    assert_eq!(bench.machine.step(bench.now, stray), [], "nothing is heard after the end");
}

/// One cause that repeats for every row is told of once in a while.
#[test]
fn a_cause_that_repeats_does_not_flood_the_log() {
    let mut bench = Bench::one();
    let mut lines = 0;
    for id in 1..=300 {
        bench.arrive(vec![row(id, 0)]);
        bench.ready(id as u64);
        let answer = Event::Exited { worker: WorkerId(id as u64), exit: Exit::Code(74) };
        let actions = bench.machine.step(bench.now, answer);
        lines += actions.iter().filter(|action| matches!(action, Action::Log { .. })).count();
        bench.pass(1100 * MILLI);
    }
    // Five and a half minutes, at most a line each ten seconds for each of a few causes.
    assert!((10..=3 * 34).contains(&lines), "{lines} lines");
}

/// What is kept for the next flush is bounded, however long the interval.
// Req: K1
#[test]
fn many_answers_are_flushed_before_the_interval() {
    let settings = Settings { stats_interval: 3600 * SECOND, ..settings() };
    let mut tireless = stage("init");
    tireless.max_messages = 1_000_000;
    let mut bench = Bench::with(settings, vec![tireless]);
    bench.event(Event::Start);
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.jobs.clear();
    // It is never idle.
    for id in 2..=10_100 {
        bench.pending.push(row(id, 0));
        bench.event(Event::Notified);
        bench.answers(1, 0);
    }
    let answered = bench.jobs.iter().find_map(|job| match job {
        Job::Flush(deltas) => Some(deltas.answered.len()),
        _ => None,
    });
    assert!(answered.is_some_and(|answered| answered <= 10_000), "{answered:?}");
}

fn refused() -> Reply {
    Reply::Fault(Fault::Refused("a trigger says no".to_owned()))
}

fn count(bench: &Bench, wanted: &str) -> usize {
    bench.jobs.iter().filter(|job| name(job) == wanted).count()
}

#[test]
fn what_is_refused_is_not_repeated_at_once() {
    let mut bench = Bench::one();
    bench.script.extend(vec![("Claim", refused()); 100]);
    bench.event(Event::Notified);
    assert_eq!(count(&bench, "Claim"), 1);
    bench.pass(10 * SECOND);
    assert!((2..=20).contains(&count(&bench, "Claim")), "{}", count(&bench, "Claim"));

    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.script.extend(vec![("Flush", refused()); 100]);
    bench.answers(1, 0);
    bench.pass(11 * SECOND);
    assert!((2..=3).contains(&count(&bench, "Flush")), "{}", count(&bench, "Flush"));
}

// Req: K1
// Req: K3
#[test]
fn a_flush_that_was_refused_is_repeated_whole() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0), row(2, 2)]);
    bench.ready(1);
    bench.ready(2);
    bench.jobs.clear();
    bench.script.push_back(("Flush", refused()));
    bench.script.push_back(("Claim", Reply::Fault(Fault::Conflict("deadlock".to_owned()))));
    bench.now += MILLI;
    bench.answers(1, 1);
    bench.exits(2, Exit::Signal(9));
    bench.pass(20 * SECOND);
    let flushes: Vec<&Job> = bench.jobs.iter().filter(|job| matches!(job, Job::Flush(_))).collect();
    let [Job::Flush(first), Job::Flush(second)] = flushes.as_slice() else { panic!("{flushes:?}") };
    assert_eq!(first, second);
    assert_eq!((first.executed, first.failed, first.serialization_failures), (1, 2, 1));
    assert_eq!((first.stages[0].messages, first.stages[0].crashes), (1, 1));
}

// Req: D3
#[test]
fn writes_that_wait_for_their_time_are_tried_at_the_end() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.script.extend(vec![("Fail", refused()); 6]);
    bench.answers(1, 1);
    for _ in 0..100 {
        if !bench.script.is_empty() {
            bench.pass(SECOND);
        }
    }
    assert_eq!(bench.machine.held(), [claim(1)]);
    // Its worker ended when it was idle.
    bench.exits(1, Exit::Code(0));
    let end = bench.event(Event::Terminate);
    assert_eq!(end.last(), Some(&Action::Exit { code: 0 }));
    assert_eq!(bench.machine.held(), []);
}

// Req: D3, D7
#[test]
fn a_reconcile_that_waits_for_its_time_is_made_at_the_end() {
    let mut bench = Bench::one();
    let lost = Reply::Fault(Fault::Lost("the connection is gone".to_owned()));
    bench.script.extend([("Claim", lost), ("Reconcile", refused())]);
    bench.event(Event::Notified);
    bench.pass(500 * 1000);
    assert!(bench.script.is_empty(), "it is refused once, and then waits");
    bench.jobs.clear();
    let end = bench.event(Event::Terminate);
    assert_eq!(bench.job_names(), ["Reconcile"], "what the lost claim made running is freed");
    assert_eq!(end.last(), Some(&Action::Exit { code: 0 }));
}

// Req: O1
#[test]
fn reports_of_one_moment_cut_once() {
    let mut bench = Bench::one();
    bench.arrive((1..=4).map(|id| row(id, 0)).collect());
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    let busy = |worker| Event::Answer { worker: WorkerId(worker), status: 75, report: Vec::new() };
    let mut actions = bench.events(vec![busy(1), busy(2)]);
    actions.extend(bench.answers(3, 0));
    actions.extend(bench.answers(4, 0));
    let closed = actions.iter().filter(|action| matches!(action, Action::Close { .. })).count();
    assert_eq!(closed, 2, "{actions:?}");
}

// Req: O1
#[test]
fn under_a_cut_those_that_retire_count_with_what_they_hold() {
    let mut bench = Bench::one();
    bench.arrive((1..=16).map(|id| row(id, 0)).collect());
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    bench.answers(1, 75);
    bench.pass(1100 * MILLI);
    for _ in 0..4 {
        bench.answers(2, 0);
        bench.answers(3, 0);
    }
    bench.arrive((20..=40).map(|id| row(id, 0)).collect());
    assert_eq!(bench.machine.held().len(), 8, "two workers of four ids are allowed");
}

// Req: P5
// Req: E5
#[test]
fn rows_do_not_outwait_a_cooldown() {
    let mut narrow = stage("init");
    narrow.parallelism = 1;
    let mut bench = Bench::up(vec![narrow]);
    // Row 2 must be alone with the worker, and row 3 waits for it to be done.
    bench.arrive(vec![row(2, 1), row(3, 0)]);
    bench.jobs.clear();
    bench.exits(1, Exit::Code(1));
    let mut back = Vec::new();
    for job in bench.writes() {
        if let Job::Requeue { rows } = job {
            back.extend(rows);
        }
    }
    back.sort_unstable();
    assert_eq!(back, [claim(2), claim(3)]);
}

// Req: P5
#[test]
fn one_answer_ends_a_series_of_cooldowns() {
    let mut bench = Bench::one();
    let fails = |bench: &mut Bench, worker| {
        bench.pending.push(row(worker as i64, 0));
        bench.event(Event::Notified);
        bench.exits(worker, Exit::Code(1));
        // How long nothing is started for its stage.
        bench.pending.push(row(worker as i64, 0));
        let start = bench.now;
        let starts = (0..1000).find(|_| !bench.pass(100 * MILLI).is_empty());
        assert!(starts.is_some(), "nothing is started any more");
        (bench.now - start) / SECOND
    };
    assert_eq!(fails(&mut bench, 1), 1);
    bench.exits(2, Exit::Code(1));
    bench.pass(30 * SECOND);
    bench.pending.clear();
    bench.arrive(vec![row(3, 0)]);
    bench.ready(3);
    bench.answers(3, 0);
    bench.exits(3, Exit::Signal(9));
    assert_eq!(fails(&mut bench, 4), 1);
}
