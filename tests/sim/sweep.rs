//! Due rows and rows that nobody serves (requirements E7, E8, W7).

use super::bench::{Bench, SECOND, row, row_at, stage};
use crate::machine::{Action, Due, Event, Fault, Job, Reply, StageSpec};

const MINUTE: u64 = 60 * SECOND;

/// The room of each sweep since the last call, at the first stage.
fn sweeps(bench: &mut Bench) -> Vec<u32> {
    let jobs = std::mem::take(&mut bench.jobs);
    let room = |job: &Job| if let Job::Sweep { stages } = job { Some(stages[0].rows) } else { None };
    jobs.iter().filter_map(room).collect()
}

/// One stage of four workers, and a crowd that falls due.
fn crowd(rows: i64) -> Bench {
    let mut bench = Bench::one();
    bench.due = (1..=rows).map(|id| row(id, 0)).collect();
    bench
}

/// They fall due now.
fn wake(bench: &mut Bench) {
    bench.jobs.clear();
    bench.due_in = Some(0);
    bench.event(Event::Notified);
    bench.due_in = None;
    bench.pass(SECOND);
}

/// Any row on its way is answered, until nothing is.
fn work(bench: &mut Bench, rounds: usize) {
    for _ in 0..rounds {
        for worker in 1..=4 {
            bench.answers(worker, 0);
        }
    }
}

// Req: E7
#[test]
fn due_rows_are_swept_when_they_are_due_and_in_steps() {
    let mut bench = Bench::one();
    bench.due_in = Some(10 * SECOND);
    bench.event(Event::Notified);
    bench.due = (1..=100).map(|id| row(id, 0)).collect();
    bench.due_in = None;
    bench.jobs.clear();
    bench.pass(9900 * 1000);
    assert_eq!(bench.job_names(), [""; 0]);
    bench.pass(SECOND);
    assert_eq!(sweeps(&mut bench), [16], "what fits into the pipelines");
    assert_eq!(bench.machine.held().len(), 16);
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    // When nothing else waits the pipelines never run dry, and all is done.
    for _ in 0..20 {
        work(&mut bench, 1);
        assert!(bench.due.is_empty() || bench.machine.held().len() >= 12);
    }
    work(&mut bench, 10);
    assert_eq!((bench.due.len(), bench.machine.held().len()), (0, 0));
    let steps = sweeps(&mut bench);
    assert!(steps.len() <= 30 && steps.iter().all(|room| *room <= 16), "{steps:?}");
}

// Req: E8
#[test]
fn while_other_mail_comes_swept_rows_take_half_of_the_workers() {
    let mut bench = crowd(1000);
    bench.arrive(vec![row(2000, 0)]);
    wake(&mut bench);
    assert_eq!(sweeps(&mut bench), [2]);
    (1..=4).for_each(|worker| drop(bench.ready(worker)));
    for id in 2001..2040 {
        bench.arrive(vec![row(id, 0)]);
        work(&mut bench, 1);
        let swept = bench.machine.held().iter().filter(|claim| claim.id <= 1000).count();
        assert!(swept <= 2, "{swept}");
    }
    assert!(bench.due.len() <= 980, "and so they get on: {}", bench.due.len());
    // When no more has come for a while they have all places.
    work(&mut bench, 1);
    bench.jobs.clear();
    bench.pass(11 * SECOND);
    work(&mut bench, 10);
    assert!(sweeps(&mut bench).contains(&16));
}

// Req: E8
#[test]
fn a_single_worker_gets_one_due_row_at_a_time() {
    let spec = StageSpec { parallelism: 1, ..stage("init") };
    let mut bench = Bench::up(vec![spec]);
    bench.due = (1..=9).map(|id| row(id, 0)).collect();
    bench.arrive(vec![row(20, 0)]);
    wake(&mut bench);
    assert_eq!(sweeps(&mut bench), [1]);
    bench.ready(1);
    for _ in 0..30 {
        bench.answers(1, 0);
    }
    assert_eq!((bench.due.len(), bench.machine.held().len()), (0, 0));
}

// Req: E7
#[test]
fn swept_rows_that_others_took_are_not_awaited_for_ever() {
    let mut bench = crowd(40);
    // An operator holds each before it is claimed.
    bench.due_in = Some(0);
    bench.script.push_back((
        "Sweep",
        Reply::Swept {
            rows: (1..=16).map(|id| ("init".to_owned(), id)).collect(),
            more: vec![("init".to_owned(), 17)],
            due_in: None,
        },
    ));
    bench.event(Event::Notified);
    bench.due_in = None;
    bench.pass(20 * SECOND);
    assert_eq!(bench.machine.held().len(), 0);
    bench.jobs.clear();
    bench.pass(50 * SECOND);
    assert_eq!(bench.machine.held().len(), 16);
    let first = sweeps(&mut bench).into_iter().find(|room| *room > 0);
    assert_eq!(first, Some(16));
}

// Req: E7
#[test]
fn a_crashed_swept_row_makes_room_and_a_full_stage_does_not_hold_up_another() {
    let mut bench = Bench::up(vec![stage("init"), stage("next")]);
    bench.due = (1..=100).map(|id| row(id, 0)).collect();
    bench.due.push(row_at("next", 200, 0));
    wake(&mut bench);
    let held: Vec<i64> = bench.machine.held().iter().map(|claim| claim.id).collect();
    assert!(held.len() == 17 && held.contains(&200), "{held:?}");
    bench.ready(1);
    bench.exits(1, crate::machine::Exit::Signal(9));
    bench.pass(SECOND);
    assert!(bench.machine.held().len() >= 16);
    // The connection breaks: nothing that was swept is forgotten, and the rest follows.
    bench.event(Event::ConnectionLost("gone".to_owned()));
    bench.pass(20 * SECOND);
    assert!(bench.due.len() >= 80, "no more than fits: {}", bench.due.len());
}

// Req: E7
#[test]
fn a_sweep_that_is_refused_or_moves_nothing_does_not_spin() {
    let mut bench = crowd(0);
    let locked = || Reply::Swept { rows: Vec::new(), more: vec![("init".to_owned(), 5)], due_in: Some(0) };
    bench.script.push_back(("Sweep", Reply::Fault(Fault::Conflict("deadlock".to_owned()))));
    bench.script.extend((0..100).map(|_| ("Sweep", locked())));
    wake(&mut bench);
    bench.pass(2 * SECOND);
    let count = sweeps(&mut bench).len();
    assert!((2..=61).contains(&count), "{count}");
}

// Req: E7
#[test]
fn a_backlog_goes_on_where_it_was_left_and_begins_anew_at_a_heartbeat() {
    let mut bench = crowd(0);
    let more =
        |rows: Vec<(String, i64)>| Reply::Swept { rows, more: vec![("init".to_owned(), 77)], due_in: None };
    bench.script.push_back(("Sweep", more(vec![("init".to_owned(), 1)])));
    wake(&mut bench);
    let since = |bench: &mut Bench| -> Vec<Option<i64>> {
        let jobs = std::mem::take(&mut bench.jobs);
        let since = |job: &Job| if let Job::Sweep { stages } = job { Some(stages[0].since) } else { None };
        jobs.iter().filter_map(since).collect()
    };
    assert_eq!(since(&mut bench), [None, Some(77)]);
    bench.script.push_back(("Sweep", more(Vec::new())));
    bench.due_in = Some(0);
    bench.pass(31 * SECOND);
    bench.due_in = None;
    assert_eq!(since(&mut bench).first(), Some(&None));
}

// Req: W7
// Req: D9
#[test]
fn a_stage_without_a_section_is_logged_once_until_it_is_gone() {
    let mut bench = Bench::one();
    bench.pass(MINUTE);
    let mut logged = |strays: &[(&str, u64)]| -> Vec<String> {
        bench.strays = strays.iter().map(|(stage, count)| ((*stage).to_owned(), *count)).collect();
        let mut texts = Vec::new();
        let end = bench.now + 2 * MINUTE;
        while let Some(at) = bench.machine.deadline().filter(|at| *at <= end) {
            bench.now = at.max(bench.now);
            let actions = bench.turn();
            texts.extend(actions.into_iter().filter_map(|action| match action {
                Action::Log { message, .. } => Some(message),
                _ => None,
            }));
        }
        bench.now = end;
        texts
    };
    let [text] = &logged(&[("gone", 3)])[..] else { panic!("one line") };
    assert_eq!(text, "3 messages wait at stage gone, which has no section: nobody claims them");
    assert_eq!(logged(&[("gone", 4)]), [""; 0]);
    assert_eq!(logged(&[]), [""; 0]);
    assert_eq!(logged(&[("gone", 1)]).len(), 1, "it came back");
    // Heartbeats alone, but for the figure, which is written when it changes.
    let jobs = bench.job_names();
    assert!(jobs.iter().all(|job| ["Claim", "Flush"].contains(job)), "{jobs:?}");
    assert_eq!(jobs.iter().filter(|job| **job == "Flush").count(), 4);
    bench.pass(MINUTE);
    bench.jobs.clear();
    bench.pass(5 * MINUTE);
    assert_eq!(bench.job_names().len(), 10, "POLL_INTERVAL is 30 s");
}

#[test]
fn a_claim_that_failed_looks_again_for_what_else_waits() {
    let mut bench = Bench::one();
    bench.jobs.clear();
    bench.script.push_back(("Claim", Reply::Fault(Fault::Refused("no".to_owned()))));
    bench.pass(2 * MINUTE);
    let surveys = bench.jobs.iter().filter(|job| matches!(job, Job::Claim { survey: true, .. })).count();
    let claims = bench.jobs.iter().filter(|job| matches!(job, Job::Claim { .. })).count();
    assert_eq!((surveys, claims), (5, 5));
    let due = |job: &Job| matches!(job, Job::Sweep { stages } if stages.contains(&Due { stage: "init".to_owned(), rows: 16, since: None }));
    assert!(!bench.jobs.iter().any(due), "nothing is due");
}
