//! Withdrawal of ids behind a stuck head, event by event (requirement P8), and what it is worth to a whole queue.

use super::bench::{
    Bench, MILLI, SECOND, claim, close, kill, name, requeue, row, send, settings, spawn, stage,
};
use super::database::{Status, Temper};
use super::world::{Happening, Profile, World};
use crate::machine::{Action, Blame, Claim, Claimed, Event, Exit, Fault, Job, Reply, StageSpec, WorkerId};

fn halt() -> Action {
    Action::Halt { worker: WorkerId(1) }
}

fn go_on() -> Action {
    Action::Continue { worker: WorkerId(1) }
}

fn halted(bench: &mut Bench) -> Vec<Action> {
    bench.event(Event::Halted { worker: WorkerId(1) })
}

fn lost() -> Reply {
    Reply::Fault(Fault::Lost("gone".to_owned()))
}

/// Worker 1 has answered one message in a millisecond and got three more.
fn pipeline_of(spec: StageSpec, claims: bool) -> Bench {
    let mut bench = Bench::up(vec![spec]);
    bench.arrive(vec![row(1, 0)]);
    bench.event(Event::Ready { worker: WorkerId(1), claims });
    bench.now += MILLI;
    bench.answers(1, 0);
    assert_eq!(bench.arrive((2..=4).map(|id| row(id, 0)).collect()), [send(1, &[2, 3, 4])]);
    bench.jobs.clear();
    bench
}

/// The same a second later: its head is stuck.
fn stuck() -> Bench {
    let mut bench = pipeline_of(stage("init"), true);
    assert_eq!(bench.pass(999 * MILLI), []);
    assert_eq!(bench.pass(MILLI), [halt()]);
    assert_eq!(bench.writes(), [], "nothing is written before it has stopped");
    bench
}

/// Its siblings are back.
fn withdrawn() -> Bench {
    let mut bench = stuck();
    assert_eq!(halted(&mut bench), [go_on()]);
    assert_eq!(bench.writes(), [requeue(&[3, 4])]);
    bench
}

/// Row `id` claimed for the second time.
fn again(id: i64) -> Claimed {
    Claimed { row: Claim { id, claim: 2 }, ..row(id, 0) }
}

// Req: P8
#[test]
fn what_is_behind_a_stuck_head_goes_to_another_worker() {
    let mut bench = withdrawn();
    assert_eq!(bench.arrive(vec![again(3), again(4)]), [spawn(2)]);
    let rows = vec![Claim { id: 3, claim: 2 }, Claim { id: 4, claim: 2 }];
    assert_eq!(bench.ready(2), [Action::Send { worker: WorkerId(2), rows }]);
    bench.answers(2, 0);
    bench.answers(2, 0);
    // The head has its MAX_RUNTIME, and is counted once.
    bench.pass(200 * SECOND);
    bench.jobs.clear();
    assert_eq!(bench.answers(1, 0), []);
    assert_eq!(bench.machine.held(), []);
}

// Req: P8
#[test]
fn answers_to_withdrawn_ids_mean_nothing() {
    let mut bench = withdrawn();
    bench.answers(1, 0);
    // Until then they are in its pipeline: even an idle worker takes nothing behind them.
    bench.pending.push(row(5, 0));
    assert_eq!(bench.event(Event::Notified), [spawn(2)]);
    assert_eq!(bench.answers(1, 74), []);
    assert_eq!(bench.answers(1, 1), []);
    assert_eq!(bench.writes(), [], "no failure, no pause");
    assert_eq!(bench.arrive(vec![row(6, 0)]), [send(1, &[6])], "and no rest for the stage");
    bench.answers(1, 0);
    bench.event(Event::Terminate);
    let executed = bench.jobs.iter().filter_map(|job| match job {
        Job::Flush(deltas) => Some(deltas.executed),
        _ => None,
    });
    assert_eq!(executed.sum::<u64>(), 0, "the last flush awaits the last worker");
    bench.exits(1, Exit::Code(0));
    bench.exits(2, Exit::Code(0));
    let executed = bench.jobs.iter().filter_map(|job| match job {
        Job::Flush(deltas) => Some((deltas.executed, deltas.failed)),
        _ => None,
    });
    assert_eq!(executed.collect::<Vec<_>>(), [(3, 0)], "rows 1, 2 and 6");
}

// Req: P8
#[test]
fn more_answers_than_ids_and_ghosts_are_a_breach() {
    let mut bench = withdrawn();
    for _ in 0..3 {
        assert_eq!(bench.answers(1, 0), []);
    }
    assert_eq!(bench.answers(1, 0), [kill(1)]);
}

// Req: P8
// Req: E2
#[test]
fn a_stuck_head_that_crashes_or_hangs_is_struck_alone() {
    let strikes = |jobs: Vec<Job>| match jobs.as_slice() {
        [Job::Strike { row, strikes: 1, blame, .. }] => (row.id, *blame),
        other => panic!("{other:?}"),
    };
    let mut bench = withdrawn();
    bench.exits(1, Exit::Signal(11));
    assert_eq!(strikes(bench.writes()), (2, Blame::Crashed));
    let mut bench = withdrawn();
    assert_eq!(bench.pass(298_990 * MILLI), []);
    assert_eq!(bench.pass(20 * MILLI), [kill(1)]);
    bench.exits(1, Exit::Signal(9));
    assert_eq!(strikes(bench.writes()), (2, Blame::TimedOut));
    // A worker that does not get past what was withdrawn is ended, and nobody blamed.
    let mut bench = withdrawn();
    bench.answers(1, 0);
    assert_eq!(bench.pass(301 * SECOND), [kill(1)]);
    bench.exits(1, Exit::Signal(9));
    assert_eq!(bench.writes(), []);
}

// Req: P8
#[test]
fn a_head_that_is_answered_while_its_worker_stops_keeps_its_siblings() {
    let mut bench = stuck();
    let worker = WorkerId(1);
    let answer = Event::Answer { worker, status: 0, report: Vec::new() };
    assert_eq!(bench.events(vec![answer, Event::Halted { worker }]), [go_on()]);
    assert_eq!(bench.writes(), []);
    assert_eq!(bench.machine.held(), [claim(3), claim(4)]);
}

// Req: P8
#[test]
fn a_worker_that_ends_or_does_not_stop_is_not_waited_for() {
    let mut bench = stuck();
    bench.exits(1, Exit::Signal(11));
    let writes = bench.writes();
    assert!(writes.contains(&requeue(&[3, 4])), "{writes:?}");
    assert_eq!(bench.machine.held(), []);
    let mut bench = stuck();
    assert_eq!(bench.event(Event::Closed { worker: WorkerId(1) }), [go_on()]);
    let mut bench = stuck();
    assert_eq!(bench.pass(SECOND), [go_on()]);
    assert_eq!(halted(&mut bench), [], "it comes too late");
    assert_eq!(bench.pass(9 * SECOND), []);
    assert_eq!(bench.pass(SECOND), [halt()], "but it is tried again");
}

// Req: P8
#[test]
fn a_withdrawal_that_is_refused_leaves_the_rows_where_they_are() {
    for fault in [Fault::Refused("no".to_owned()), Fault::Conflict("locked".to_owned())] {
        let mut bench = stuck();
        bench.script.push_back(("Requeue", Reply::Fault(fault)));
        assert_eq!(halted(&mut bench), [go_on()]);
        assert_eq!(bench.machine.held(), [claim(2), claim(3), claim(4)]);
        (0..3).for_each(|_| assert_eq!(bench.answers(1, 0), []));
        assert_eq!(bench.machine.held(), []);
    }
}

// Req: P8
#[test]
fn after_a_lost_reply_the_worker_stands_until_nothing_can_come_of_it() {
    // The lock is ours again: our former backend has ended.
    let mut bench = stuck();
    bench.script.push_back(("Requeue", lost()));
    assert_eq!(halted(&mut bench), []);
    let actions = bench.pass(SECOND);
    assert_eq!(actions, [go_on()]);
    let lock = bench.jobs.iter().rposition(|job| name(job) == "Lock").expect("a new lock");
    assert!(matches!(&bench.jobs[lock + 1], Job::Reconcile { held } if held.len() == 3), "{:?}", bench.jobs);
    // Without a database, once the server must have given the statement up.
    let mut bench = stuck();
    bench.script.push_back(("Requeue", lost()));
    bench.script.extend(vec![("Connect", lost()); 1000]);
    assert_eq!(halted(&mut bench), []);
    assert_eq!(bench.pass(11 * SECOND), []);
    assert_eq!(bench.pass(2 * SECOND), [go_on()]);
    // That time is not the head's.
    assert_eq!(bench.pass(297 * SECOND), []);
    assert_eq!(bench.pass(2 * SECOND), [kill(1)]);
}

// Req: P8
// Req: D3
#[test]
fn nobody_is_left_stopped_at_the_end() {
    let worker = WorkerId(1);
    let mut bench = stuck();
    let end = bench.event(Event::Terminate);
    assert!(end.ends_with(&[close(1), go_on()]), "{end:?}");
    // While its rows are being written it waits for that alone.
    let mut bench = stuck();
    bench.machine.step(bench.now, Event::Halted { worker });
    let actions = bench.machine.step(bench.now, Event::Turn);
    assert!(matches!(actions.as_slice(), [Action::Job(Job::Requeue { .. })]), "{actions:?}");
    let actions = bench.machine.step(bench.now, Event::Terminate);
    assert!(!actions.contains(&go_on()), "{actions:?}");
    assert_eq!(bench.event(Event::Reply(Reply::Done)), [go_on()]);
    // And a second signal ends what stands still.
    let mut bench = stuck();
    bench.script.push_back(("Requeue", lost()));
    bench.script.extend(vec![("Connect", lost()); 1000]);
    halted(&mut bench);
    bench.event(Event::Terminate);
    assert_eq!(bench.event(Event::Terminate), [kill(1)]);
    assert_eq!(bench.pass(2 * SECOND), [], "SIGKILL needs no SIGCONT");
}

// Req: P8
#[test]
fn rows_of_a_worker_that_is_killed_during_the_write_are_written_back_all_the_same() {
    let mut bench = stuck();
    bench.machine.step(bench.now, Event::Halted { worker: WorkerId(1) });
    bench.machine.step(bench.now, Event::Turn);
    bench.machine.step(bench.now, Event::Exited { worker: WorkerId(1), exit: Exit::Signal(9) });
    bench.event(Event::Reply(Reply::Fault(Fault::Refused("no".to_owned()))));
    bench.pass(SECOND);
    assert!(bench.writes().contains(&requeue(&[3, 4])));
    assert_eq!(bench.machine.held(), []);
}

// Req: P8
#[test]
fn nothing_is_withdrawn_where_it_would_not_help() {
    // It did not say that it compares claims.
    let mut bench = pipeline_of(stage("init"), false);
    assert_eq!(bench.pass(200 * SECOND), []);
    // But nothing more is put behind its head either.
    assert_eq!(bench.arrive(vec![row(5, 0)]), [spawn(2)]);
    // There is no other worker.
    let mut bench = pipeline_of(StageSpec { parallelism: 1, ..stage("init") }, true);
    assert_eq!(bench.pass(200 * SECOND), []);
    // All are stuck, and then one is not.
    let mut bench = pipeline_of(StageSpec { parallelism: 2, ..stage("init") }, true);
    assert_eq!(bench.arrive((5..=8).map(|id| row(id, 0)).collect()), [spawn(2), send(1, &[5])]);
    assert_eq!(bench.ready(2), [send(2, &[6, 7, 8])]);
    assert_eq!(bench.pass(200 * SECOND), []);
    bench.answers(2, 0);
    assert_eq!(bench.pass(40 * SECOND), [], "a message takes 25 s on average here now");
    assert_eq!(bench.pass(11 * SECOND)[0], halt());
    // There is nothing behind it.
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.answers(1, 0);
    bench.arrive(vec![row(2, 0)]);
    assert_eq!(bench.pass(200 * SECOND), []);
}

// Req: P8
#[test]
fn what_is_slow_is_told_by_the_stages_average() {
    let mut bench = Bench::up(vec![StageSpec { parallelism: 2, ..stage("init") }]);
    bench.arrive((1..=8).map(|id| row(id, 0)).collect());
    bench.ready(1);
    bench.ready(2);
    assert_eq!(bench.pass(30 * SECOND), [], "nothing is known");
    bench.answers(2, 0);
    assert_eq!(bench.pass(250 * SECOND), [], "30 s are usual here");
    assert_eq!(bench.answers(1, 0), [], "and so it is for what comes next");
}

// Req: P8
#[test]
fn a_retiring_worker_does_not_keep_rows_behind_a_stuck_head() {
    let mut bench = pipeline_of(StageSpec { max_messages: 4, ..stage("init") }, true);
    assert_eq!(bench.pass(SECOND), [halt()]);
    assert_eq!(halted(&mut bench), [go_on()]);
    assert_eq!(bench.writes(), [requeue(&[3, 4])]);
    bench.answers(1, 0);
    bench.answers(1, 0);
    assert_eq!(bench.answers(1, 0), [close(1)], "it is closed behind its last ghost");
}

/// It was given to that worker while there was no other.
// Req: P8
#[test]
fn a_row_that_must_be_alone_does_not_wait_behind_a_stuck_head() {
    let mut bench = pipeline_of(StageSpec { parallelism: 2, ..stage("init") }, true);
    for _ in 2..=4 {
        bench.answers(1, 0);
    }
    bench.arrive(vec![row(5, 0), row(6, 1)]);
    bench.event(Event::Ready { worker: WorkerId(2), claims: true });
    bench.turn();
    bench.arrive(vec![row(7, 1)]);
    let actions = bench.answers(2, 0);
    assert_eq!(actions, [], "row 7 is for worker 1");
    assert_eq!(bench.pass(SECOND), [send(2, &[7])]);
}

// Req: P8
#[test]
fn a_message_that_never_ends_does_not_delay_the_others() {
    let profile = Profile { service: 5 * MILLI, ..Profile::default() };
    for seed in 1..=20 {
        let spec = StageSpec { parallelism: 2, ..stage("init") };
        let mut world = World::new(seed, profile.clone(), vec![spec], settings());
        world.every_worker_says_claims = true;
        world.faults = false;
        for number in 1..=60 {
            let temper = if number == 20 { Temper::Tar(0) } else { Temper::Good };
            let id = world.database.insert(0, temper);
            world.after(0, Happening::Commit(id));
        }
        let left =
            |world: &World| world.database.rows.iter().filter(|row| row.status != Status::Gone).count();
        while left(&world) > 1 {
            world.round();
        }
        assert!(world.now < 1500 * MILLI, "seed {seed}: {}", world.now);
        assert_eq!(world.database.row(20).status, Status::Running);
    }
}
