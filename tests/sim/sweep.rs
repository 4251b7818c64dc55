//! Due rows and rows that nobody serves (requirements E7, E8, W7).

use super::bench::{Bench, SECOND, row, row_at, stage};
use crate::machine::{Action, Event, Fault, Job, Reply, StageSpec};
use std::collections::{BTreeMap, VecDeque};

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
fn wake(bench: &mut Bench) -> Vec<Action> {
    bench.jobs.clear();
    bench.due_in = Some(0);
    let mut actions = bench.event(Event::Notified);
    bench.due_in = None;
    actions.extend(bench.pass(SECOND));
    actions
}

/// What each worker has.
#[derive(Default)]
struct Crew {
    rows: BTreeMap<u64, usize>,
}

impl Crew {
    /// New workers say that they are ready, and what is sent is noted.
    fn see(&mut self, bench: &mut Bench, actions: Vec<Action>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                // They compare no claims, so nothing is withdrawn from them while the test takes its time.
                Action::Spawn { worker, .. } => {
                    actions.extend(bench.event(Event::Ready { worker, claims: false }));
                }
                Action::Send { worker, rows } => *self.rows.entry(worker.0).or_default() += rows.len(),
                _ => {}
            }
        }
    }

    /// Each that has something answers once, so many times.
    fn work(&mut self, bench: &mut Bench, rounds: usize) {
        for _ in 0..rounds {
            let busy: Vec<u64> =
                self.rows.iter().filter(|(_, rows)| **rows > 0).map(|(worker, _)| *worker).collect();
            for worker in busy {
                self.rows.entry(worker).and_modify(|rows| *rows -= 1);
                let actions = bench.answers(worker, 0);
                self.see(bench, actions);
            }
        }
    }

    fn arrive(&mut self, bench: &mut Bench, rows: std::ops::Range<i64>) {
        let actions = bench.arrive(rows.map(|id| row(id, 0)).collect());
        self.see(bench, actions);
    }

    fn pass(&mut self, bench: &mut Bench, time: u64) {
        let actions = bench.pass(time);
        self.see(bench, actions);
    }
}

// Req: E7
#[test]
fn due_rows_are_swept_when_they_are_due_and_in_steps() {
    let (mut bench, mut crew) = (Bench::one(), Crew::default());
    bench.due_in = Some(10 * SECOND);
    bench.event(Event::Notified);
    bench.due = (1..=100).map(|id| row(id, 0)).collect();
    bench.due_in = None;
    bench.jobs.clear();
    bench.pass(9900 * 1000);
    assert_eq!(bench.job_names(), [""; 0]);
    crew.pass(&mut bench, SECOND);
    assert_eq!(sweeps(&mut bench), [4], "one for each worker");
    assert_eq!(bench.machine.held().len(), 4);
    // Messages are short, it turns out: then the pipelines never run dry, and all is done.
    crew.work(&mut bench, 2);
    for _ in 0..10 {
        assert!(bench.due.is_empty() || bench.machine.held().len() >= 12);
        crew.work(&mut bench, 1);
    }
    crew.work(&mut bench, 40);
    assert_eq!((bench.due.len(), bench.machine.held().len()), (0, 0));
    let steps = sweeps(&mut bench);
    assert!(steps.len() <= 40 && steps.iter().all(|room| *room <= 16), "{steps:?}");
}

// Req: E8
#[test]
fn while_other_mail_comes_swept_rows_take_what_it_leaves_but_for_one_worker() {
    let (mut bench, mut crew) = (crowd(1000), Crew::default());
    crew.arrive(&mut bench, 2000..2001);
    let actions = wake(&mut bench);
    assert_eq!(sweeps(&mut bench), [2], "of four workers one has work, and one is kept free");
    crew.see(&mut bench, actions);
    for id in 2001..2040 {
        crew.arrive(&mut bench, id..id + 1);
        crew.work(&mut bench, 1);
        let swept = bench.machine.held().iter().filter(|claim| claim.id <= 1000).count();
        assert!(swept <= 3, "{swept}");
    }
    assert!(bench.due.len() <= 980, "and so they get on: {}", bench.due.len());
    bench.jobs.clear();
    crew.pass(&mut bench, 11 * SECOND);
    crew.work(&mut bench, 1);
    let all = sweeps(&mut bench);
    assert!(all.iter().any(|room| *room >= 4), "no other mail comes any more: {all:?}");
}

// Req: E8
#[test]
fn a_single_worker_gets_one_due_row_at_a_time() {
    let spec = StageSpec { parallelism: 1, ..stage("init") };
    let (mut bench, mut crew) = (Bench::up(vec![spec]), Crew::default());
    bench.due = (1..=9).map(|id| row(id, 0)).collect();
    crew.arrive(&mut bench, 20..21);
    let actions = wake(&mut bench);
    assert_eq!(sweeps(&mut bench), [0], "it has work");
    crew.see(&mut bench, actions);
    for _ in 0..20 {
        assert!(bench.machine.held().len() <= 1);
        crew.work(&mut bench, 1);
    }
    assert_eq!((bench.due.len(), bench.machine.held().len()), (0, 0));
}

// Req: E8
#[test]
fn due_rows_get_on_behind_mail_that_takes_all_workers() {
    let (mut bench, mut crew) = (crowd(100), Crew::default());
    crew.arrive(&mut bench, 1000..1016);
    bench.due_in = Some(0);
    for round in 1..=25 {
        crew.arrive(&mut bench, 1000 + 16 * round..1016 + 16 * round);
        crew.work(&mut bench, 1);
        crew.pass(&mut bench, SECOND / 10);
    }
    // A hundred went, and one for ten of them.
    let left = bench.due.len();
    assert!((89..=92).contains(&left), "{left}");
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
    bench.pass(71 * SECOND);
    assert_eq!(bench.machine.held().len(), 4, "{:?}", bench.jobs);
    let first = sweeps(&mut bench).into_iter().find(|room| *room > 0);
    assert_eq!(first, Some(4));
}

// Req: E7
#[test]
fn a_crashed_swept_row_makes_room_and_a_full_stage_does_not_hold_up_another() {
    let mut bench = Bench::up(vec![stage("init"), stage("next")]);
    bench.due = (1..=100).map(|id| row(id, 0)).collect();
    bench.due.push(row_at("next", 200, 0));
    wake(&mut bench);
    let held: Vec<i64> = bench.machine.held().iter().map(|claim| claim.id).collect();
    assert!(held.len() == 5 && held.contains(&200), "{held:?}");
    bench.ready(1);
    bench.exits(1, crate::machine::Exit::Signal(9));
    bench.pass(SECOND);
    assert!(bench.machine.held().len() >= 4);
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

/// What is logged while that time goes by.
fn logs(bench: &mut Bench, time: u64) -> Vec<String> {
    let mut texts = Vec::new();
    let end = bench.now + time;
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
}

// Req: W7
// Req: D9
#[test]
fn a_stage_without_a_section_is_logged_once_until_it_is_gone() {
    let mut bench = Bench::one();
    bench.pass(MINUTE);
    let mut logged = |stages: &[(&str, u64)]| -> Vec<String> {
        bench.unserved = stages.iter().map(|(stage, count)| ((*stage).to_owned(), *count)).collect();
        logs(&mut bench, 2 * MINUTE)
    };
    let [text] = &logged(&[("gone", 3)])[..] else { panic!("one line") };
    assert_eq!(text, "stage gone has no section: nobody claims what waits there (messages: 3)");
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

/// Whether each of the claims since then looked what else waits.
fn surveys(bench: &mut Bench) -> Vec<bool> {
    let look = |job| if let Job::Claim { survey, .. } = job { Some(survey) } else { None };
    std::mem::take(&mut bench.jobs).into_iter().filter_map(look).collect()
}

// Req: W2
#[test]
fn a_look_at_what_else_waits_that_fails_stops_no_claims() {
    let mut bench = Bench::one();
    bench.pass(34 * SECOND);
    bench.jobs.clear();
    for fault in [Fault::Refused, Fault::Conflict, Fault::Overloaded, Fault::Lost] {
        bench.script.push_back(("Claim", Reply::Fault(fault("too slow".to_owned()))));
        bench.pass(30 * SECOND);
        let swept = bench.jobs.iter().filter(|job| matches!(job, Job::Sweep { .. })).count();
        assert_eq!(swept, 1, "due rows do not wait for the next look");
        let surveys = surveys(&mut bench);
        assert!(surveys.len() > 1, "it is repeated");
        assert!(surveys[0] && !surveys[1..].contains(&true), "without: {surveys:?}");
    }
}

// Req: W7
#[test]
fn the_heartbeat_looks_what_else_waits_where_there_is_no_stage() {
    let mut bench = Bench::up(Vec::new());
    bench.unserved = vec![("gone".to_owned(), 3)];
    assert_eq!(logs(&mut bench, MINUTE).len(), 1);
    assert_eq!(surveys(&mut bench), [true, true]);
}

// Req: W7
#[test]
fn the_heartbeat_looks_what_else_waits_where_all_stages_are_full() {
    let spec = StageSpec { parallelism: 1, queue_limit: 1, ..stage("init") };
    let (mut bench, mut crew) = (Bench::up(vec![spec]), Crew::default());
    crew.arrive(&mut bench, 100..101);
    bench.jobs.clear();
    bench.unserved = vec![("gone".to_owned(), 3)];
    assert_eq!(logs(&mut bench, MINUTE).len(), 1);
    assert_eq!(surveys(&mut bench), [true, true], "and nothing else: there is no room");
    bench.due_in = Some(0);
    bench.due = vec![row(7, 0)];
    bench.pass(MINUTE);
    bench.due_in = None;
    let looked = bench.jobs.iter().filter(|job| matches!(job, Job::Sweep { .. })).count();
    assert!(looked > 0 && bench.due.len() == 1, "it is known to be due, and stays paused");
}

/// Long messages have the other workers: there is no hurry, but no need to wait for them either.
// Req: E7
#[test]
fn one_idle_worker_of_many_gets_due_rows() {
    let spec = StageSpec { parallelism: 8, queue_limit: 1, ..stage("init") };
    let (mut bench, mut crew) = (Bench::up(vec![spec]), Crew::default());
    crew.arrive(&mut bench, 100..107);
    // Other mail is forgotten.
    crew.pass(&mut bench, 11 * SECOND);
    bench.due = (1..=5).map(|id| row(id, 0)).collect();
    let actions = wake(&mut bench);
    crew.see(&mut bench, actions);
    let held = bench.machine.held().len();
    assert_eq!(held, 8, "the idle worker has one");
    for _ in 0..4 {
        let worker = 8;
        let actions = bench.answers(worker, 0);
        crew.see(&mut bench, actions);
        crew.pass(&mut bench, 2 * SECOND);
    }
    assert!(bench.due.is_empty(), "{:?}", bench.due);
}
