//! Every sequence of a few events, to a small depth, from a few starting points; then the dispatcher is told to end, and
//! must do so in time with every row accounted for. And every job of a run failing in every way, one at a time.

use super::bench::{self, Bench, SECOND, row, stage};
use super::prng::Prng;
use super::runs;
use super::server::Failure;
use super::world::{Happening, MILLI, Profile, World};
use crate::machine::{Action, Claim, Event, Exit, Fault, Job, Machine, Micros, Reply, StageSpec, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

#[path = "sequences_reload.rs"]
mod reload;
use reload::Read;

const DEPTH: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Move {
    Turn,
    /// Time goes on to the deadline.
    Wait,
    Good,
    Lost,
    Conflict,
    Notified,
    Disconnected,
    Terminate,
    Ready(u64),
    Done(u64),
    Failed(u64),
    Busy(u64),
    Crash(u64),
    Closed(u64),
    Garbage(u64),
    /// The configuration has changed.
    Reload,
    /// It has stopped, as it was told.
    Halted(u64),
}

const MOVES: [Move; 17] = [
    Move::Turn,
    Move::Wait,
    Move::Good,
    Move::Lost,
    Move::Conflict,
    Move::Notified,
    Move::Disconnected,
    Move::Terminate,
    Move::Ready(2),
    Move::Done(1),
    Move::Failed(1),
    Move::Busy(1),
    Move::Crash(1),
    Move::Crash(2),
    Move::Closed(1),
    Move::Garbage(1),
    Move::Halted(1),
];

/// What the outside knows of one worker.
#[derive(Clone, Debug, Default)]
struct Known {
    ready: bool,
    mute: bool,
    killed: bool,
    closed: bool,
    /// Told to stop; known to have stopped.
    halting: bool,
    halted: bool,
    asked: Vec<Claim>,
}

fn two_of_two() -> StageSpec {
    let mut spec = stage("init");
    spec.parallelism = 2;
    spec.queue_limit = 2;
    spec.max_runtime = 20 * SECOND;
    spec
}

/// The machine with the least that is needed to know whether a row got lost.
#[derive(Clone)]
struct Node {
    machine: Machine,
    now: Micros,
    job: Option<Job>,
    workers: BTreeMap<WorkerId, Known>,
    claimed: BTreeSet<Claim>,
    /// Answered with success, or written.
    over: BTreeSet<Claim>,
    next_id: i64,
    /// What the next rereadings bring, the last first.
    reads: Vec<Read>,
    ended: bool,
}

impl Node {
    /// One stage with two workers of two ids; `rows` are claimed, and worker 1 is up.
    fn new(rows: i64) -> Node {
        let bench = Bench::up(vec![two_of_two()]);
        let mut node = Node {
            machine: bench.machine,
            now: bench.now,
            job: None,
            workers: BTreeMap::new(),
            claimed: BTreeSet::new(),
            over: BTreeSet::new(),
            next_id: 1,
            reads: Vec::new(),
            ended: false,
        };
        if rows > 0 {
            node.step(Event::Notified);
            node.step(Event::Turn);
            node.reply(rows);
            node.apply(Move::Ready(1));
        }
        node
    }

    /// The same, and worker 1 was just told to stop: its head is stuck, and another row behind it.
    fn stuck() -> Node {
        let mut node = Node::new(0);
        for rows in [vec![row(3, 0)], vec![row(6, 0), row(9, 0)]] {
            node.step(Event::Notified);
            node.step(Event::Turn);
            assert!(matches!(node.job.take(), Some(Job::Claim { .. })));
            node.claimed.extend(rows.iter().map(|row| row.row));
            node.step(Event::Reply(bench::rows(rows, None)));
            if node.next_id == 1 {
                node.apply(Move::Ready(1));
                node.apply(Move::Turn);
                node.apply(Move::Done(1));
            }
            node.next_id = 10;
        }
        node.now += SECOND;
        node.apply(Move::Turn);
        assert!(node.workers[&WorkerId(1)].halting && node.workers.len() == 1);
        node
    }

    /// A row that goes back was not begun, or whoever began it is gone.
    fn check_job(&self, job: &Job) {
        let Job::Requeue { rows } = job else { return };
        for known in self.workers.values().filter(|known| !known.killed) {
            let asked = |row: &&Claim| known.asked.contains(row) && !self.over.contains(row);
            for row in rows.iter().filter(asked) {
                assert!(known.halted && known.asked[0] != *row, "{row:?} goes back while a worker has it");
            }
        }
    }

    fn check_continue(&self, known: &Known) {
        if let Some(Job::Requeue { rows }) = &self.job {
            assert!(!rows.iter().any(|row| known.asked.contains(row)), "it goes on too soon");
        }
    }

    fn step(&mut self, event: Event) {
        for action in self.machine.step(self.now, event) {
            match action {
                Action::Job(job) => {
                    self.check_job(&job);
                    assert!(self.job.replace(job).is_none(), "two jobs at once");
                }
                Action::Spawn { worker, .. } => {
                    assert!(self.workers.insert(worker, Known::default()).is_none());
                    assert!(self.workers.len() <= 2, "more workers than PARALLELISM");
                }
                Action::Send { worker, rows } => {
                    let known = self.workers.get_mut(&worker).expect("a worker that is there");
                    assert!(known.ready && !known.mute && !known.killed && !known.closed && !known.halting);
                    known.asked.extend(rows);
                    assert!(known.asked.len() <= 2, "more ids than QUEUE_LIMIT");
                }
                Action::Close { worker } => {
                    self.workers.get_mut(&worker).expect("a worker that is there").closed = true
                }
                Action::Kill { worker } => {
                    let known = self.workers.get_mut(&worker).expect("a worker that is there");
                    assert!(!std::mem::replace(&mut known.killed, true), "killed twice");
                }
                Action::Halt { worker } | Action::Continue { worker } => {
                    let halt = matches!(action, Action::Halt { .. });
                    if !halt {
                        self.check_continue(&self.workers[&worker]);
                    }
                    let known = self.workers.get_mut(&worker).expect("a worker that is there");
                    assert_ne!(known.halting, halt);
                    known.halting = halt;
                    known.halted = false;
                }
                Action::Log { .. } | Action::Announce(_) => {}
                Action::Exit { .. } => self.ended = true,
            }
        }
        let held: BTreeSet<Claim> = self.machine.held().into_iter().collect();
        let known: BTreeSet<Claim> = held.union(&self.over).copied().collect();
        assert!(self.claimed.is_subset(&known), "lost: {:?}", self.claimed.difference(&known));
    }

    /// The job succeeds; a claim brings at most `rows`.
    fn reply(&mut self, rows: i64) {
        let Some(job) = self.job.take() else { return };
        let reply = match job {
            Job::Connect => Reply::Connected,
            Job::Lock => Reply::Locked,
            Job::Claim { demand, .. } => {
                let init = demand.iter().find(|want| want.stage == "init");
                let count = rows.min(init.map_or(0, |want| i64::from(want.ask.capacity)));
                let rows: Vec<_> =
                    (self.next_id..self.next_id + count).map(|id| row(id, (id % 3) as u32)).collect();
                self.next_id += count;
                self.claimed.extend(rows.iter().map(|row| row.row));
                bench::rows(rows, None)
            }
            Job::Sweep { .. } => Reply::Swept { rows: Vec::new(), more: Vec::new(), due_in: None },
            Job::FindStrays { .. } => Reply::Strays(Vec::new()),
            Job::Requeue { rows } => {
                self.over.extend(rows);
                Reply::Done
            }
            Job::Pause { row, .. }
            | Job::Strike { row, .. }
            | Job::Condemn { row, .. }
            | Job::Fail { row, .. } => {
                self.over.insert(row);
                Reply::Done
            }
            Job::Reconcile { .. } => Reply::Reconciled(Vec::new()),
            Job::Flush(_) | Job::CollectBodies { .. } => Reply::Done,
            Job::Reread { .. } => self.reads.pop().unwrap_or(Read::Same).reply(),
        };
        self.step(Event::Reply(reply));
    }

    fn fault(&mut self, fault: Fault) {
        if self.job.take().is_some() {
            self.step(Event::Reply(Reply::Fault(fault)));
        }
    }

    /// False when the move cannot happen here.
    fn apply(&mut self, what: Move) -> bool {
        let worker = match what {
            Move::Ready(id) | Move::Done(id) | Move::Failed(id) | Move::Busy(id) => Some(id),
            Move::Crash(id) | Move::Closed(id) | Move::Garbage(id) | Move::Halted(id) => Some(id),
            Move::Turn | Move::Wait | Move::Good | Move::Lost | Move::Conflict => None,
            Move::Notified | Move::Disconnected | Move::Terminate | Move::Reload => None,
        };
        let worker = worker.map(WorkerId);
        if worker.is_some_and(|worker| !self.workers.contains_key(&worker)) {
            return false;
        }
        let stands = |worker: WorkerId| self.workers[&worker].halted;
        let text = || "as the test wants it".to_owned();
        match what {
            // What has stopped says nothing, but may be killed.
            Move::Ready(_) | Move::Done(_) | Move::Failed(_) | Move::Busy(_) | Move::Closed(_)
                if worker.is_some_and(stands) =>
            {
                return false;
            }
            Move::Halted(id) => {
                let known = self.workers.get_mut(&WorkerId(id)).expect("it is there");
                if !known.halting || std::mem::replace(&mut known.halted, true) {
                    return false;
                }
                self.step(Event::Halted { worker: WorkerId(id) });
            }
            Move::Turn => self.step(Event::Turn),
            Move::Wait => {
                let Some(deadline) = self.machine.deadline() else { return false };
                self.now = self.now.max(deadline);
                self.step(Event::Turn);
            }
            Move::Good | Move::Lost | Move::Conflict if self.job.is_none() => return false,
            Move::Good => self.reply(2),
            Move::Lost => self.fault(Fault::Lost(text())),
            Move::Conflict => self.fault(Fault::Conflict(text())),
            Move::Notified => self.step(Event::Notified),
            Move::Reload => self.step(Event::ConfigChanged),
            Move::Disconnected if self.job.is_some() => return false,
            Move::Disconnected => self.step(Event::ConnectionLost(text())),
            Move::Terminate => self.step(Event::Terminate),
            Move::Ready(_)
            | Move::Done(_)
            | Move::Failed(_)
            | Move::Busy(_)
            | Move::Crash(_)
            | Move::Closed(_) => {
                self.says(worker.expect("these have one"), what);
            }
            Move::Garbage(_) => self.says(worker.expect("these have one"), what),
        }
        true
    }

    fn says(&mut self, worker: WorkerId, what: Move) {
        let known = self.workers.get_mut(&worker).expect("it is there");
        let status = |status| Event::Answer { worker, status, report: Vec::new() };
        let event = match what {
            Move::Ready(_) => {
                known.ready = true;
                Event::Ready { worker, claims: true }
            }
            Move::Done(_) => {
                if !known.asked.is_empty() {
                    self.over.insert(known.asked.remove(0));
                }
                status(0)
            }
            Move::Failed(_) | Move::Busy(_) => {
                if !known.asked.is_empty() {
                    known.asked.remove(0);
                }
                status(if matches!(what, Move::Busy(_)) { 75 } else { 1 })
            }
            Move::Closed(_) => {
                known.mute = true;
                Event::Closed { worker }
            }
            Move::Garbage(_) => Event::Garbage { worker, error: "rubbish".to_owned() },
            Move::Crash(_) => {
                self.workers.remove(&worker);
                Event::Exited { worker, exit: Exit::Signal(9) }
            }
            Move::Turn | Move::Wait | Move::Good | Move::Lost | Move::Conflict => return,
            Move::Halted(_) | Move::Notified | Move::Disconnected | Move::Terminate | Move::Reload => return,
        };
        self.step(event);
    }

    /// From here on all goes well, and the dispatcher is told to end.
    fn wind_up(mut self) {
        self.reply(0);
        self.step(Event::Terminate);
        let start = self.now;
        for _ in 0..1000 {
            if self.ended {
                assert!(self.now <= start + 8 * SECOND, "the end took {}", self.now - start);
                assert_eq!(self.machine.held(), [], "rows are left");
                return;
            }
            let gone = self
                .workers
                .iter()
                .find(|(_, known)| known.killed || (!known.halting && (known.closed || known.mute)));
            if let Some(worker) = gone.map(|(worker, _)| *worker) {
                self.says(worker, Move::Crash(worker.0));
            } else if self.job.is_some() {
                self.reply(0);
            } else {
                let deadline = self.machine.deadline().expect("it has not ended");
                self.now = self.now.max(deadline);
                self.step(Event::Turn);
            }
        }
        panic!("it does not end");
    }
}

fn explore(node: &Node, depth: usize, trail: &mut Trail, visited: &mut u64) {
    *visited += 1;
    if depth == 0 || node.ended {
        if !node.ended {
            node.clone().wind_up();
        }
        return;
    }
    for what in MOVES {
        let mut next = node.clone();
        trail.0.push(what);
        if next.apply(what) {
            explore(&next, depth - 1, trail, visited);
        }
        trail.0.pop();
    }
}

/// Says which sequence it was when something in it panics.
struct Trail(Vec<Move>);

impl Drop for Trail {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the sequence: {:?}", self.0);
        }
    }
}

#[test]
fn no_short_sequence_of_events_loses_a_row() {
    let mut visited = 0;
    for rows in [0, 1, 3] {
        explore(&Node::new(rows), DEPTH, &mut Trail(Vec::new()), &mut visited);
    }
    explore(&Node::stuck(), DEPTH, &mut Trail(Vec::new()), &mut visited);
    println!("{visited} states");
    assert!(visited > 100_000);
}

/// A world with a little of everything, and no chance in it but the seed's.
fn orderly() -> World {
    let mut prng = Prng::new(11);
    let profile = Profile { service: 5 * MILLI, ..Profile::default() };
    let (specs, settings) = (runs::specs_of(&mut prng, 3), runs::settings(&mut prng));
    let mut world = World::new(11, profile, specs, settings);
    world.populate();
    world
}

/// The same with a change of the configuration, which is told of when the end begins.
fn edited() -> World {
    let mut world = orderly();
    world.written.stages[0] = Some(runs::spec_of(&mut Prng::new(12), "init"));
    world
}

/// What may happen at any moment.
const BLOWS: [&[Happening]; 5] = [
    &[Happening::Terminate],
    &[Happening::Terminate, Happening::Terminate],
    &[Happening::Crash],
    &[Happening::ServerCrash],
    &[Happening::Stall],
];

// Req: D2
// Req: D3
// Req: L2
#[test]
fn a_signal_and_a_crash_may_come_at_any_moment() {
    let run = |moment: u32, blow: &[Happening]| {
        let mut world = orderly();
        world.database.is_forgetful = true;
        let mut rounds = 0;
        while rounds < moment {
            world.round();
            rounds += 1;
        }
        blow.iter().for_each(|what| world.happen(what.clone()));
        runs::finish(&mut world);
    };
    // All of the time in which most happens, and then now and then, until the last pauses are over.
    for moment in (0..150).chain((150..600).step_by(9)) {
        BLOWS.iter().for_each(|blow| run(moment, blow));
    }
}

// Req: L2
// Req: C3
#[test]
fn each_database_call_may_fail_in_each_way() {
    let mut world = edited();
    runs::drain(&mut world);
    let jobs = world.jobs;
    let failures = [
        Failure::LostBefore,
        Failure::LostAfter,
        Failure::Conflict,
        Failure::Refused,
        Failure::Overloaded,
        Failure::Fatal,
    ];
    for number in 1..=jobs {
        for failure in failures {
            let mut world = edited();
            world.fail_job = Some((number, failure));
            runs::finish(&mut world);
        }
    }
    println!("{jobs} jobs, each failed in {} ways", failures.len());
}
