//! The configuration read again, event by event (requirements C2-C4, CLI3).

use super::bench::{
    Bench, MILLI, SECOND, close, kill, name, requeue, row, row_at, send, spawn, spawn_of, stage,
};
use crate::machine::{
    Action, Announcement, Event, Exit, Fault, Job, Machine, Reply, Severity, StageSpec, WorkerId,
};

fn spec(name: &str, parallelism: u32, queue_limit: u32) -> StageSpec {
    StageSpec { parallelism, queue_limit, ..stage(name) }
}

/// The configuration is that now, and the dispatcher is told.
fn reload(bench: &mut Bench, stages: Vec<StageSpec>) -> Vec<Action> {
    bench.configured = (stages, true);
    bench.event(Event::ConfigChanged)
}

fn count(bench: &Bench, job: &str) -> usize {
    bench.jobs.iter().filter(|other| name(other) == job).count()
}

fn closes(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::Close { .. })).count()
}

// Req: C2
#[test]
fn the_next_message_meets_the_new_values() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0), row(2, 0)]);
    bench.ready(1);
    bench.jobs.clear();
    let mut edited = spec("init", 2, 7);
    edited.program = "another".to_owned();
    bench.configured = (vec![edited.clone()], true);
    bench.pending.push(row(3, 0));
    // Both are heard at once: first it is read, then claimed. The worker that is at work goes on; the other, not up yet,
    // gives back what it was to get.
    let actions = bench.events(vec![Event::Notified, Event::ConfigChanged]);
    assert_eq!(actions, [close(2)]);
    assert_eq!(bench.job_names(), ["Reread", "Sweep"], "there is no room");
    assert_eq!(bench.answers(1, 0), [close(1)]);
    assert_eq!(bench.exits(2, Exit::Code(0)), [spawn_of(3, &edited)]);
    assert_eq!(bench.ready(3), [send(3, &[2, 3])]);
}

// Req: C2
// Req: P1
#[test]
fn workers_from_before_count_against_the_new_parallelism() {
    let mut bench = Bench::one();
    bench.arrive((1..=16).map(|id| row(id, 0)).collect());
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    assert_eq!(reload(&mut bench, vec![spec("init", 1, 2)]), []);
    bench.pending.push(row(17, 0));
    for worker in 1..=4 {
        (0..3).for_each(|_| assert_eq!(bench.answers(worker, 0), []));
        assert_eq!(bench.answers(worker, 0), [close(worker)]);
        let started = bench.exits(worker, Exit::Code(0));
        assert_eq!(started, if worker == 4 { vec![spawn_of(5, &spec("init", 1, 2))] } else { vec![] });
    }
    assert_eq!(bench.ready(5), [send(5, &[17])]);
}

// Req: C2
#[test]
fn rows_of_a_removed_stage_go_back_and_those_at_work_are_finished() {
    let mut bench = Bench::up(vec![stage("init"), stage("gone")]);
    bench.arrive(vec![row_at("gone", 1, 0), row_at("gone", 2, 0), row_at("gone", 3, 2)]);
    bench.ready(1);
    bench.jobs.clear();
    assert_eq!(reload(&mut bench, vec![stage("init")]), [close(3), close(2)]);
    assert_eq!(bench.writes()[1..], [requeue(&[2, 3])], "after the reread");
    // Nothing is claimed for it, and what still runs there is answered and counted.
    bench.pending.push(row_at("gone", 4, 0));
    bench.event(Event::Notified);
    assert_eq!(bench.pending.len(), 1);
    assert_eq!(bench.answers(1, 1), [close(1)]);
    assert!(matches!(bench.writes()[..], [Job::Fail { .. }]));
    (1..=3).for_each(|worker| drop(bench.exits(worker, Exit::Code(0))));
    bench.event(Event::Notified);
    let last = bench.jobs.iter().rev().find_map(|job| match job {
        Job::Claim { demand, .. } => Some(demand.len()),
        _ => None,
    });
    assert_eq!(last, Some(1), "it is forgotten with its last worker");
    // It comes again.
    bench.pass(SECOND);
    let started = reload(&mut bench, vec![stage("gone"), stage("init")]);
    assert_eq!(started, [spawn_of(4, &stage("gone"))]);
}

// Req: C2
#[test]
fn a_stage_that_comes_again_knows_its_last_workers() {
    let mut bench = Bench::up(vec![spec("init", 1, 1)]);
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    assert_eq!(reload(&mut bench, vec![stage("other")]), []);
    bench.pass(SECOND);
    bench.pending.push(row(2, 0));
    assert_eq!(reload(&mut bench, vec![spec("init", 1, 1)]), [], "the old one is still at work");
    assert_eq!(bench.answers(1, 0), [close(1)]);
    assert_eq!(bench.exits(1, Exit::Code(0)), [spawn_of(2, &spec("init", 1, 1))]);
}

// Req: C2
#[test]
fn what_there_is_no_room_for_any_more_goes_back() {
    let mut bench = Bench::one();
    bench.arrive((1..=16).map(|id| row(id, 0)).collect());
    bench.jobs.clear();
    // Nobody is up yet, so all sixteen wait; two may stay.
    let actions = reload(&mut bench, vec![spec("init", 1, 2)]);
    assert_eq!(closes(&actions), 4);
    let writes = bench.writes();
    assert_eq!(writes.len(), 2, "{writes:?}");
    assert!(matches!(&writes[1], Job::Requeue { rows } if rows.len() == 14), "{writes:?}");
}

// Req: C2
#[test]
fn a_burst_is_read_once_and_what_comes_meanwhile_once_more() {
    let mut bench = Bench::one();
    bench.configured.1 = true;
    bench.events(vec![Event::ConfigChanged; 100]);
    assert_eq!(count(&bench, "Reread"), 1);
    // Within half a second the next has to wait, and claims with it.
    bench.events(vec![Event::ConfigChanged; 100]);
    bench.jobs.clear();
    bench.pending.push(row(1, 0));
    assert_eq!(bench.event(Event::Notified), []);
    assert_eq!(bench.job_names(), [""; 0]);
    assert_eq!(bench.pass(500 * MILLI), [spawn(1)]);
    assert_eq!(bench.job_names(), ["Reread", "Sweep", "Claim"]);
    // One that comes while it is being read leads to one more.
    bench.pass(SECOND);
    bench.machine.step(bench.now, Event::ConfigChanged);
    let actions = bench.machine.step(bench.now, Event::Turn);
    assert!(actions.contains(&Action::Job(Job::Reread { asked: true })), "{actions:?}");
    bench.machine.step(bench.now, Event::ConfigChanged);
    let reply = Reply::Config { stages: vec![stage("init")], changes: None };
    bench.machine.step(bench.now, Event::Reply(reply));
    bench.jobs.clear();
    bench.pass(2 * SECOND);
    assert_eq!(count(&bench, "Reread"), 1);
}

// Req: C2
#[test]
fn notifications_without_end_do_not_stop_all_claims() {
    let mut bench = Bench::one();
    bench.event(Event::ConfigChanged);
    bench.pending.push(row(1, 0));
    let start = bench.now;
    while bench.pending.len() == 1 {
        bench.machine.step(bench.now, Event::ConfigChanged);
        bench.event(Event::Notified);
        bench.now += 10 * MILLI;
        assert!(bench.now < start + 6 * SECOND, "nothing is claimed");
    }
    assert!(count(&bench, "Reread") < 30, "{}", count(&bench, "Reread"));
}

// Req: C2
#[test]
fn claims_wait_for_a_reload_but_not_for_one_that_is_put_off_long() {
    let mut bench = Bench::one();
    bench.configured.1 = true;
    // The second comes while the first keeps it waiting; of many in a row the last is far off.
    for (edits, first) in [(2, "Reread"), (8, "Claim")] {
        bench.pass(200 * SECOND);
        for _ in 1..edits {
            bench.event(Event::ConfigChanged);
            bench.pass(if edits == 2 { 200 * MILLI } else { 20 * SECOND });
        }
        bench.pass(if edits == 2 { 0 } else { 6 * SECOND });
        bench.jobs.clear();
        bench.event(Event::ConfigChanged);
        bench.pending.push(row(edits, 0));
        bench.event(Event::Notified);
        bench.pass(SECOND);
        assert_eq!(bench.job_names().first(), Some(&first), "{edits} edits");
    }
}

// Req: C2
// Req: C4
#[test]
fn notifications_without_end_leave_a_slow_worker_its_time() {
    for event in [Event::ConfigChanged, Event::TelemetryChanged] {
        let mut bench = Bench::one();
        bench.pending.push(row(1, 0));
        bench.event(Event::Notified);
        let start = bench.now;
        // Each worker needs 0.7 s to be ready.
        let (mut ups, mut sent) = (vec![(bench.now + 700 * MILLI, 1)], false);
        while !sent {
            assert!(bench.now < start + 20 * SECOND, "no worker gets ready");
            bench.now += 100 * MILLI;
            let mut events = vec![event.clone()];
            let due = ups.iter().filter(|(at, _)| *at <= bench.now);
            events.extend(due.map(|(_, id)| Event::Ready { worker: WorkerId(*id), claims: true }));
            ups.retain(|(at, _)| *at > bench.now);
            let mut actions = bench.events(events);
            while let Some(action) = actions.pop() {
                match action {
                    Action::Spawn { worker, .. } => ups.push((bench.now + 700 * MILLI, worker.0)),
                    Action::Close { worker } => actions.extend(bench.exits(worker.0, Exit::Code(0))),
                    Action::Send { .. } => sent = true,
                    _ => {}
                }
            }
        }
        // After a quiet minute the first is a first one again, and the second soon behind it.
        bench.pass(100 * SECOND);
        bench.event(event.clone());
        bench.jobs.clear();
        bench.event(Event::ConfigChanged);
        bench.pass(500 * MILLI);
        assert_eq!(count(&bench, "Reread"), 1);
    }
}

// Req: C2
// Req: C3
#[test]
fn what_nobody_asked_for_is_read_as_such_and_a_second_look_is_later() {
    let mut bench = Bench::one();
    let refused = Reply::Fault(Fault::Refused("half written, perhaps".to_owned()));
    bench.script.extend(vec![("Reread", refused.clone()); 2]);
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.jobs.clear();
    bench.pass(SECOND);
    assert_eq!(bench.jobs.iter().filter(|job| **job == Job::Reread { asked: false }).count(), 1);
    // Another connection is no reason to look again at once.
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.pass(SECOND);
    assert_eq!(count(&bench, "Reread"), 1);
    bench.pass(10 * SECOND);
    assert_eq!(count(&bench, "Reread"), 3, "the second was refused too");
    // What was asked for while it was being read is read soon, though not at once, and claims come in between.
    bench.machine.step(bench.now, Event::ConfigChanged);
    let actions = bench.machine.step(bench.now, Event::Turn);
    assert!(actions.contains(&Action::Job(Job::Reread { asked: true })), "{actions:?}");
    bench.machine.step(bench.now, Event::ConfigChanged);
    bench.jobs.clear();
    bench.pending.push(row(1, 0));
    bench.events(vec![Event::Reply(refused), Event::Notified]);
    assert_eq!((bench.pending.len(), count(&bench, "Reread")), (0, 0));
    bench.pass(500 * MILLI);
    assert_eq!(bench.jobs.iter().filter(|job| **job == Job::Reread { asked: true }).count(), 1);
}

// Req: C3
// Req: CLI3
#[test]
fn what_does_not_parse_ends_the_dispatcher_in_order() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0), row(2, 0), row(3, 0)]);
    bench.ready(1);
    bench.ready(2);
    bench.answers(2, 0);
    bench.jobs.clear();
    let errors = vec!["f:1: one".to_owned(), "f:2: two".to_owned()];
    bench.script.push_back(("Reread", Reply::Malformed { code: 78, errors }));
    let mut actions = bench.machine.step(bench.now, Event::ConfigChanged);
    actions.extend(bench.turn());
    let is_error = |action: &&Action| matches!(action, Action::Log { level: Severity::Error, .. });
    assert_eq!(actions.iter().filter(is_error).count(), 3, "{actions:?}");
    actions.retain(|action| !matches!(action, Action::Log { .. }));
    assert_eq!(actions, [Action::Announce(Announcement::Stopping), close(1), close(2), close(3)]);
    assert_eq!(bench.writes()[1..], [requeue(&[3])]);
    // It may finish what it has; later it is killed.
    assert_eq!(bench.pass(2 * SECOND), []);
    assert_eq!(bench.pass(2 * SECOND), [kill(1), kill(2), kill(3)]);
    bench.exits(1, Exit::Signal(9));
    assert_eq!(bench.writes(), [requeue(&[1])]);
    bench.exits(2, Exit::Signal(9));
    let end = bench.exits(3, Exit::Signal(9));
    assert_eq!(end, [Action::Exit { code: 78 }]);
    assert_eq!(bench.job_names().last(), Some(&"Flush"));
    // Who was told to end before ends as told.
    let mut bench = Bench::one();
    let reply = Reply::Malformed { code: 78, errors: Vec::new() };
    bench.machine.step(bench.now, Event::ConfigChanged);
    bench.machine.step(bench.now, Event::Turn);
    bench.machine.step(bench.now, Event::Terminate);
    assert_eq!(bench.event(Event::Reply(reply)), [Action::Exit { code: 0 }]);
}

// Req: C3
#[test]
fn what_cannot_be_read_keeps_the_table_and_is_tried_again() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.script.extend(vec![("Reread", Reply::Fault(Fault::Refused("no".to_owned()))); 5]);
    bench.configured = (vec![spec("init", 2, 1)], true);
    bench.jobs.clear();
    let mut actions = bench.machine.step(bench.now, Event::ConfigChanged);
    for _ in 0..200 {
        bench.now += 100 * MILLI;
        actions.extend(bench.turn());
    }
    let is_warning = |action: &&Action| matches!(action, Action::Log { level: Severity::Warning, .. });
    assert_eq!(actions.iter().filter(is_warning).count(), 1, "{actions:?}");
    // Meanwhile mail goes on, by the same worker.
    bench.pending.push(row(2, 0));
    bench.event(Event::Notified);
    assert_eq!(bench.pending.len(), 0);
    bench.pass(200 * SECOND);
    assert_eq!(count(&bench, "Reread"), 6);
    assert_eq!(bench.answers(1, 0), [close(1)]);
}

// Req: C2
// Req: W1
#[test]
fn a_new_connection_reads_again_and_keeps_the_workers_when_nothing_has_changed() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.jobs.clear();
    bench.pass(SECOND);
    assert_eq!(count(&bench, "Reread"), 1);
    assert_eq!(bench.answers(1, 0), []);
    // A notification counts even if the reply to its reading was lost.
    bench.script.push_back(("Reread", Reply::Fault(Fault::Lost("gone".to_owned()))));
    bench.event(Event::ConfigChanged);
    assert_eq!(bench.pass(SECOND), [close(1)]);
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.configured.1 = true;
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.pass(SECOND);
    assert_eq!(bench.answers(1, 0), [close(1)], "a change that nobody told of");
}

// Req: C4
#[test]
fn the_telemetry_switch_replaces_workers_and_reads_nothing() {
    let mut bench = Bench::one();
    bench.configured = (vec![stage("other")], true);
    bench.arrive(vec![row(1, 0), row(2, 0)]);
    bench.ready(1);
    bench.ready(2);
    bench.answers(2, 0);
    bench.jobs.clear();
    assert_eq!(bench.events(vec![Event::TelemetryChanged; 9]), [close(2)]);
    assert_eq!(bench.answers(1, 0), [close(1)]);
    assert_eq!(bench.exits(1, Exit::Code(0)), []);
    assert_eq!(bench.arrive(vec![row(3, 0)]), [spawn(3)]);
    // Again so soon: in half a second.
    assert_eq!(bench.event(Event::TelemetryChanged), []);
    assert_eq!(bench.pass(500 * MILLI), [close(3), spawn(4)]);
    assert_eq!(count(&bench, "Reread"), 0);
}

// Req: C2
// Req: C4
#[test]
fn the_telemetry_switch_does_not_put_a_reload_off() {
    let mut bench = Bench::one();
    bench.event(Event::TelemetryChanged);
    bench.pass(100 * MILLI);
    bench.event(Event::ConfigChanged);
    for _ in 0..5 {
        bench.event(Event::TelemetryChanged);
        bench.pass(100 * MILLI);
    }
    assert_eq!(count(&bench, "Reread"), 1);
}

// Req: C2
#[test]
fn a_reload_ends_cooldowns() {
    let mut bench = Bench::one();
    let failed = |worker| Event::SpawnFailed { worker: WorkerId(worker), error: "no such file".to_owned() };
    bench.arrive(vec![row(1, 0)]);
    for worker in 1..=4 {
        bench.event(failed(worker));
        bench.pending.push(row(1, 0));
        bench.pass([1, 2, 4, 0][worker as usize - 1] * SECOND);
    }
    assert_eq!(bench.pass(SECOND), [], "eight seconds");
    let mut mended = stage("init");
    mended.program = "mended".to_owned();
    assert_eq!(reload(&mut bench, vec![mended.clone()]), [spawn_of(5, &mended)]);
    // And the next one is a first one.
    bench.event(failed(5));
    bench.pending.push(row(1, 0));
    assert_eq!(bench.pass(SECOND), [spawn_of(6, &mended)]);
}

// Req: C2
#[test]
fn what_is_known_of_a_stage_stays_with_its_name() {
    let settings = crate::machine::Settings { fair: true, ..super::bench::settings() };
    let mut bench = Bench::one();
    bench.machine = Machine::new(settings, vec![stage("init")], 7);
    bench.event(Event::Start);
    bench.arrive(vec![row(1, 0), row(2, 0)]);
    bench.ready(1);
    bench.ready(2);
    bench.pass(2 * SECOND);
    bench.answers(1, 0);
    // Messages take two seconds, and the pool is cut to two.
    bench.answers(2, 75);
    reload(&mut bench, vec![stage("a"), stage("b"), stage("init")]);
    (1..=2).for_each(|worker| drop(bench.exits(worker, Exit::Code(0))));
    bench.pass(2 * SECOND);
    bench.jobs.clear();
    bench.event(Event::Notified);
    let asked = bench.jobs.iter().find_map(|job| match job {
        Job::Claim { demand, .. } => Some(demand.clone()),
        _ => None,
    });
    let asked: Vec<_> = asked.iter().flatten().map(|one| (one.ask.capacity, one.ask.average)).collect();
    assert_eq!(asked, [(16, 50_000), (16, 50_000), (8, 2_000_000)]);
}
