//! Pools, the line protocol's rules and failures, event by event (requirement groups P, R, E).

use super::bench::{
    Bench, MILLI, SECOND, claim, close, kill, name, requeue, row, send, settings, spawn, stage,
};
use crate::machine::{Action, Blame, Event, Exit, Job, Settings, WorkerId};

pub fn garbage(worker: u64) -> Event {
    Event::Garbage { worker: WorkerId(worker), error: "not a status: \"hello\"".to_owned() }
}

pub fn strikes(jobs: &[Job]) -> Vec<(i64, u32, Blame)> {
    let strike = |job: &Job| match job {
        Job::Strike { row, strikes, blame, .. } | Job::Condemn { row, strikes, blame, .. } => {
            Some((row.id, *strikes, *blame))
        }
        _ => None,
    };
    jobs.iter().filter_map(strike).collect()
}

/// A stage whose messages take a millisecond, its first worker up and idle.
pub fn quick() -> Bench {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.now += MILLI;
    bench.answers(1, 0);
    bench
}

/// One worker with these rows in its pipeline.
pub fn pipeline(rows: std::ops::RangeInclusive<i64>) -> Bench {
    let mut bench = quick();
    let ids: Vec<i64> = rows.clone().collect();
    assert_eq!(bench.arrive(rows.map(|id| row(id, 0)).collect()), [send(1, &ids)]);
    bench.jobs.clear();
    bench
}

// Req: P1
#[test]
fn workers_come_with_work_and_go_without() {
    let mut bench = Bench::one();
    assert_eq!(bench.pass(100 * SECOND), []);
    assert_eq!(bench.arrive(vec![row(1, 0)]), [spawn(1)]);
    bench.ready(1);
    bench.answers(1, 0);
    assert_eq!(bench.pass(4900 * MILLI), []);
    assert_eq!(bench.pass(200 * MILLI), [close(1)]);
    assert_eq!(bench.exits(1, Exit::Code(0)), []);
}

// Req: P1
#[test]
fn a_worker_with_rows_that_wait_for_it_is_not_idle() {
    let settings = Settings { worker_idle_timeout: 0, ..settings() };
    let mut bench = Bench::with(settings, vec![stage("init")]);
    bench.event(Event::Start);
    bench.arrive(vec![row(1, 0)]);
    assert_eq!(bench.ready(1), [send(1, &[1])]);
    assert_eq!(bench.answers(1, 0), [close(1)]);
}

// Req: R5
#[test]
fn an_answer_that_came_before_the_row_was_handed_over_is_not_about_it() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    bench.pending.push(row(2, 0));
    let twice = Event::Answer { worker: WorkerId(1), status: 1, report: Vec::new() };
    assert_eq!(bench.events(vec![twice.clone(), twice]), [kill(1), spawn(2)]);
    let fails = |job: &Job| matches!(job, Job::Fail { row, .. } if row.id == 2);
    assert!(!bench.jobs.iter().any(fails), "{:?}", bench.jobs);
}

// Req: P1
#[test]
fn short_work_is_packed_on_the_fewest_workers() {
    let mut bench = quick();
    assert_eq!(bench.arrive((2..=4).map(|id| row(id, 0)).collect()), [send(1, &[2, 3, 4])]);
    assert_eq!(bench.arrive(vec![row(5, 0), row(6, 0)]), [spawn(2), send(1, &[5])]);
    // Never more than PARALLELISM workers and QUEUE_LIMIT ids.
    let more = bench.arrive((7..=40).map(|id| row(id, 0)).collect());
    assert_eq!(more, [spawn(3), spawn(4)]);
    assert_eq!(bench.pending.len(), 40 - 17);
}

// Req: P2
#[test]
fn long_work_is_spread_over_all_workers() {
    let mut bench = Bench::one();
    let four = (1..=4).map(|id| row(id, 0)).collect();
    assert_eq!(bench.arrive(four), [spawn(1), spawn(2), spawn(3), spawn(4)]);
    let start = bench.now;
    (1..=4).for_each(|worker| assert_eq!(bench.ready(worker), [send(worker, &[worker as i64])]));
    bench.now += SECOND;
    (1..=4).for_each(|worker| drop(bench.answers(worker, 0)));
    assert_eq!(bench.now - start, SECOND);
    // The next is for an idle worker, the fifth of five waits behind one.
    assert_eq!(bench.arrive(vec![row(5, 0)]), [send(1, &[5])]);
    let more = (6..=9).map(|id| row(id, 0)).collect();
    assert_eq!(bench.arrive(more), [send(1, &[9]), send(2, &[6]), send(3, &[7]), send(4, &[8])]);
}

// Req: P3
#[test]
fn all_ids_for_one_worker_go_in_one_write() {
    let mut bench = quick();
    bench.answers(1, 0);
    bench.exits(1, Exit::Signal(9));
    bench.pass(2 * SECOND);
    let four: Vec<_> = (2..=5).map(|id| row(id, 0)).collect();
    assert_eq!(bench.arrive(four), [spawn(2)]);
    assert_eq!(bench.ready(2), [send(2, &[2, 3, 4, 5])]);
}

// Req: P4
#[test]
fn a_worn_worker_is_recycled_once_its_pipeline_is_empty() {
    let mut three = stage("init");
    three.max_messages = 3;
    three.parallelism = 1;
    let mut bench = Bench::up(vec![three]);
    assert_eq!(bench.arrive((1..=5).map(|id| row(id, 0)).collect()), [spawn(1)]);
    assert_eq!(bench.pending.len(), 2, "no more is claimed than one worker may be given");
    assert_eq!(bench.ready(1), [send(1, &[1, 2, 3])]);
    assert_eq!(bench.answers(1, 0), []);
    assert_eq!(bench.answers(1, 0), []);
    assert_eq!(bench.answers(1, 0), [close(1)]);
    assert_eq!(bench.exits(1, Exit::Code(0)), [spawn(2)], "one at a time");
    assert_eq!(bench.ready(2), [send(2, &[4, 5])]);
}

// Req: P5
#[test]
fn a_program_that_does_not_start_cools_its_stage() {
    let mut bench = Bench::one();
    let mut spawns = Vec::new();
    let start = bench.now;
    bench.pending.push(row(1, 0));
    let mut actions = bench.event(Event::Notified);
    while bench.now < start + 600 * SECOND {
        if let Some(Action::Spawn { worker, .. }) = actions.first() {
            spawns.push(bench.now - start);
            actions = bench.event(Event::SpawnFailed { worker: *worker, error: "no such file".to_owned() });
            assert_eq!(bench.writes(), [requeue(&[1])]);
            bench.pending.push(row(1, 0));
            assert_eq!(actions, [], "not at once");
        } else {
            actions = bench.pass(100 * MILLI);
        }
    }
    let pauses: Vec<u64> = spawns.windows(2).map(|pair| (pair[1] - pair[0]) / SECOND).collect();
    assert_eq!(pauses[..7], [1, 2, 4, 8, 16, 30, 30], "{pauses:?}");
}

// Req: R1
#[test]
fn no_id_is_sent_before_ready() {
    let mut bench = Bench::one();
    assert_eq!(bench.arrive(vec![row(1, 0)]), [spawn(1)]);
    assert_eq!(bench.pass(29 * SECOND), []);
    assert_eq!(bench.ready(1), [send(1, &[1])]);
}

// Req: R2
// Req: R5
#[test]
fn a_worker_that_breaks_the_protocol_is_torn_down() {
    let answer = |worker| Event::Answer { worker: WorkerId(worker), status: 0, report: Vec::new() };
    // Garbage counts as a crash of the head.
    let mut bench = pipeline(2..=3);
    assert_eq!(bench.event(garbage(1)), [kill(1)]);
    assert_eq!(bench.event(answer(1)), [], "nothing it says counts any more");
    bench.exits(1, Exit::Signal(9));
    let writes = bench.writes();
    assert_eq!(strikes(&writes), [(2, 1, Blame::Crashed)]);
    assert!(writes.contains(&requeue(&[3])));
    // More answers than questions.
    let mut bench = pipeline(2..=2);
    bench.event(answer(1));
    assert_eq!(bench.event(answer(1)), [kill(1)]);
    bench.exits(1, Exit::Signal(9));
    assert_eq!(strikes(&bench.writes()), []);
    // Before ready nobody is blamed.
    for early in [answer(1), garbage(1)] {
        let mut bench = Bench::one();
        bench.arrive(vec![row(1, 0)]);
        bench.jobs.clear();
        assert_eq!(bench.event(early), [kill(1)]);
        assert_eq!(bench.ready(1), []);
        bench.exits(1, Exit::Signal(9));
        assert_eq!(bench.writes(), [requeue(&[1])]);
    }
    // Ready is said once.
    let mut bench = pipeline(2..=2);
    assert_eq!(bench.ready(1), [kill(1)]);
}

// Req: R5
#[test]
fn after_a_breach_rows_that_an_answer_was_wrongly_taken_for_are_freed() {
    let mut bench = pipeline(2..=2);
    bench.answers(1, 0);
    bench.answers(1, 0);
    bench.exits(1, Exit::Signal(9));
    bench.pass(2 * SECOND);
    assert!(bench.jobs.contains(&Job::FindStrays { held: vec![] }), "{:?}", bench.jobs);
}

// Req: R3
// Req: E1
#[test]
fn a_status_that_is_not_zero_fails_its_message_alone() {
    let mut bench = pipeline(2..=3);
    assert_eq!(bench.answers(1, 3), []);
    let writes = bench.writes();
    assert!(matches!(writes.as_slice(), [Job::Fail { row, .. }] if *row == claim(2)), "{writes:?}");
    assert_eq!(bench.answers(1, 0), [], "the worker stays");
    assert_eq!(bench.arrive(vec![row(4, 0)]), [send(1, &[4])]);
}

// Req: R3
#[test]
fn an_exit_with_74_or_75_is_the_status_of_all_unanswered_ids() {
    let mut bench = pipeline(2..=4);
    bench.answers(1, 0);
    bench.exits(1, Exit::Code(74));
    let paused: Vec<i64> = bench
        .writes()
        .iter()
        .map(|job| match job {
            Job::Pause { row, .. } => row.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(paused, [3, 4]);
    let mut bench = pipeline(2..=4);
    bench.answers(1, 0);
    bench.exits(1, Exit::Code(75));
    assert_eq!(bench.writes(), [requeue(&[3, 4])]);
}

// Req: E2
// Req: E3
#[test]
fn a_crash_strikes_the_head_alone() {
    // It has answered before, so even 78 is no refusal to run.
    for exit in [Exit::Signal(11), Exit::Code(1), Exit::Code(0), Exit::Code(78)] {
        let mut bench = pipeline(2..=4);
        bench.exits(1, exit);
        let writes = bench.writes();
        assert_eq!(strikes(&writes), [(2, 1, Blame::Crashed)], "{exit:?}");
        assert_eq!(writes.len(), 2);
        assert!(writes.contains(&requeue(&[3, 4])), "{writes:?}");
    }
}

// Req: E2
#[test]
fn strikes_pause_for_a_minute_then_two_then_end() {
    let outcomes: Vec<Job> = (0..3)
        .map(|had| {
            let mut bench = Bench::one();
            bench.arrive(vec![row(1, had)]);
            bench.ready(1);
            bench.jobs.clear();
            bench.exits(1, Exit::Signal(9));
            bench.writes().remove(0)
        })
        .collect();
    let pause = |job: &Job| match job {
        Job::Strike { pause, strikes, .. } => (*strikes, Some(*pause)),
        Job::Condemn { strikes, .. } => (*strikes, None),
        other => panic!("{other:?}"),
    };
    let pauses: Vec<_> = outcomes.iter().map(pause).collect();
    assert_eq!(pauses, [(1, Some(60 * SECOND)), (2, Some(120 * SECOND)), (3, None)]);
}

// Req: E2
#[test]
fn a_row_with_strikes_is_handed_out_alone() {
    let mut bench = quick();
    assert_eq!(bench.arrive(vec![row(2, 1)]), [send(1, &[2])], "an idle worker is its own");
    // Short work would be packed behind it.
    assert_eq!(bench.arrive(vec![row(3, 0)]), [spawn(2)]);
    let mut tight = stage("init");
    tight.parallelism = 1;
    let mut bench = Bench::up(vec![tight]);
    bench.arrive(vec![row(1, 0)]);
    bench.ready(1);
    assert_eq!(bench.arrive(vec![row(2, 2)]), [], "not beside row 1");
    assert_eq!(bench.arrive(vec![row(3, 0)]), [], "and nothing beside it");
    assert_eq!(bench.answers(1, 0), [send(1, &[2])]);
    assert_eq!(bench.answers(1, 0), [send(1, &[3])]);
}

// Req: B2
#[test]
fn rows_behind_a_crashed_head_are_next_handed_out_one_at_a_time() {
    let mut bench = pipeline(2..=4);
    bench.exits(1, Exit::Signal(11));
    let again = bench.arrive(vec![row(3, 0), row(4, 0), row(5, 0)]);
    assert_eq!(again, [spawn(2), spawn(3), spawn(4)]);
    assert_eq!(bench.ready(2), [send(2, &[3])]);
    assert_eq!(bench.ready(3), [send(3, &[4])]);
}

// Req: E2
// Req: E4
#[test]
fn a_hang_is_timed_from_the_head() {
    let mut bench = pipeline(2..=3);
    bench.pass(200 * SECOND);
    assert_eq!(bench.answers(1, 0), []);
    assert_eq!(bench.pass(299 * SECOND), [], "row 3 has its own 300 s");
    assert_eq!(bench.pass(2 * SECOND), [kill(1)]);
    bench.jobs.clear();
    bench.exits(1, Exit::Signal(9));
    assert_eq!(strikes(&bench.writes()), [(3, 1, Blame::TimedOut)]);
}

// Req: E4
#[test]
fn what_was_answered_in_time_is_not_blamed_after_the_dispatcher_was_blocked() {
    let mut bench = pipeline(2..=4);
    bench.now += 1000 * SECOND;
    assert_eq!(bench.answers(1, 0), [], "the answer is heard before the deadline is judged");
    assert_eq!(bench.pass(299 * SECOND), []);
    // And one that was on its way when the worker was killed still counts.
    assert_eq!(bench.pass(2 * SECOND), [kill(1)]);
    bench.jobs.clear();
    bench.answers(1, 0);
    bench.exits(1, Exit::Signal(9));
    assert_eq!(bench.writes(), [requeue(&[4])], "nor is the one behind it");
}

// Req: E5
#[test]
fn death_before_ready_blames_nothing() {
    for exit in [Exit::Signal(11), Exit::Code(1), Exit::Code(0), Exit::Code(74), Exit::Code(75)] {
        let mut bench = Bench::one();
        bench.arrive(vec![row(1, 0), row(2, 2)]);
        bench.jobs.clear();
        bench.exits(1, exit);
        bench.exits(2, exit);
        bench.pending.push(row(3, 0));
        assert_eq!(bench.event(Event::Notified), [], "cooldown");
        assert_eq!(bench.writes(), [requeue(&[1]), requeue(&[2])], "{exit:?}");
        bench.pass(SECOND + MILLI);
        assert_eq!(bench.pending.len(), 0);
    }
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    bench.jobs.clear();
    assert_eq!(bench.pass(30 * SECOND), [kill(1)], "and so does one that is never ready");
    bench.exits(1, Exit::Signal(9));
    assert_eq!(bench.writes(), [requeue(&[1])]);
}

// Req: E6
#[test]
fn exit_78_before_any_answer_is_a_refusal() {
    for ready in [false, true] {
        let mut bench = Bench::one();
        bench.arrive(vec![row(1, 0)]);
        if ready {
            bench.ready(1);
        }
        bench.jobs.clear();
        let step = Event::Exited { worker: WorkerId(1), exit: Exit::Code(78) };
        let logged = bench.machine.step(bench.now, step);
        let error = logged.iter().find_map(|action| match action {
            Action::Log { level: crate::machine::Severity::Error, message, .. } => Some(message.clone()),
            _ => None,
        });
        assert!(error.expect("an error").contains("configuration"));
        bench.pending.push(row(9, 0));
        assert_eq!(bench.event(Event::Notified), [], "cooldown");
        assert_eq!(bench.writes(), [requeue(&[1])]);
        assert_eq!(bench.pass(1100 * MILLI).len(), 1);
    }
}

#[test]
fn a_worker_that_closes_its_output_and_lives_is_killed() {
    let mut bench = pipeline(2..=3);
    assert_eq!(bench.event(Event::Closed { worker: WorkerId(1) }), []);
    assert_eq!(bench.pass(900 * MILLI), []);
    assert_eq!(bench.pass(200 * MILLI), [kill(1)]);
    bench.exits(1, Exit::Signal(9));
    assert_eq!(strikes(&bench.writes()), [(2, 1, Blame::Crashed)]);
}

#[test]
fn a_worker_that_ignores_its_closed_input_is_killed() {
    let mut bench = quick();
    assert_eq!(bench.pass(5 * SECOND), [close(1)]);
    assert_eq!(bench.pass(9900 * MILLI), []);
    assert_eq!(bench.pass(200 * MILLI), [kill(1)]);
    bench.jobs.clear();
    bench.exits(1, Exit::Signal(9));
    assert_eq!(bench.writes(), []);
}

#[test]
fn a_worker_that_does_not_die_keeps_no_rows() {
    let mut bench = pipeline(2..=3);
    bench.pass(300 * SECOND);
    bench.jobs.clear();
    bench.pass(9 * SECOND);
    assert_eq!(bench.writes(), []);
    bench.pass(2 * SECOND);
    let writes = bench.writes();
    assert_eq!(strikes(&writes), [(2, 1, Blame::TimedOut)]);
    assert!(writes.iter().any(|job| name(job) == "Requeue"));
    // It is a process all the same.
    assert_eq!(bench.arrive((4..=20).map(|id| row(id, 0)).collect()).len(), 3);
}

// Req: P5
#[test]
fn a_worker_that_is_ready_and_breaks_at_once_rests_its_stage() {
    let mut bench = Bench::one();
    bench.arrive(vec![row(1, 0)]);
    let ready = Event::Ready { worker: WorkerId(1), claims: true };
    assert_eq!(bench.events(vec![ready, garbage(1)]), [kill(1)]);
    assert_eq!(bench.exits(1, Exit::Signal(9)), [], "nothing is started in the cooldown");
    assert_eq!(bench.writes(), [requeue(&[1])]);
    bench.pending.push(row(1, 0));
    assert_eq!(bench.pass(900 * MILLI), []);
    assert_eq!(bench.pass(200 * MILLI), [spawn(2)]);
}
