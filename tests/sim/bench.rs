//! One machine under one's own hands: events go in one by one, and every job is answered as a healthy database would,
//! but for the replies that the test has scripted.

use crate::machine::fair::choose::{self, choose};
use crate::machine::{
    Action, Claim, Claimed, Demand, Due, Event, Exit, Job, Machine, Micros, Reply, Settings, StageSpec,
    WorkerId,
};
use std::collections::VecDeque;

pub const MILLI: Micros = 1_000;
pub const SECOND: Micros = 1_000_000;

#[derive(Clone, Debug)]
pub struct Bench {
    pub machine: Machine,
    pub now: Micros,
    /// Rows that wait.
    pub pending: Vec<Claimed>,
    /// The greatest id there was.
    pub top: i64,
    /// What the next replies say of the earliest due row.
    pub due_in: Option<Micros>,
    /// What is read when the configuration is read again, and whether anything in it has changed.
    pub configured: (Vec<StageSpec>, bool),
    /// Paused rows that are due.
    pub due: Vec<Claimed>,
    /// What they say of stages without a section.
    pub unserved: Vec<(String, u64)>,
    /// The replies to the next jobs of that name, in order.
    pub script: VecDeque<(&'static str, Reply)>,
    /// All jobs since the start.
    pub jobs: Vec<Job>,
    pub turns: u64,
}

pub fn settings() -> Settings {
    Settings {
        poll_interval: 30 * SECOND,
        stats_interval: 60 * SECOND,
        worker_idle_timeout: 5 * SECOND,
        fair: false,
        fair_half_life: 60 * SECOND,
        fair_fifo_percent: 10,
    }
}

pub fn stage(name: &str) -> StageSpec {
    StageSpec {
        name: name.to_owned(),
        program: format!("run-{name}"),
        parallelism: 4,
        queue_limit: 4,
        max_messages: 1000,
        max_runtime: 300 * SECOND,
    }
}

/// A pending row of stage `init` that has `strikes`.
pub fn row(id: i64, strikes: u32) -> Claimed {
    row_at("init", id, strikes)
}

pub fn row_at(stage: &str, id: i64, strikes: u32) -> Claimed {
    Claimed { stage: stage.to_owned(), row: claim(id), sender: "ip:192.0.2.1".to_owned(), strikes }
}

pub fn claim(id: i64) -> Claim {
    Claim { id, claim: 1 }
}

/// The reply to a claim that took these, and saw nothing else.
pub fn rows(rows: Vec<Claimed>, due_in: Option<Micros>) -> Reply {
    let top = rows.iter().map(|row| row.row.id).max().unwrap_or(0);
    Reply::Rows { rows, notices: Vec::new(), top, due_in, unserved: Vec::new() }
}

pub fn name(job: &Job) -> &'static str {
    match job {
        Job::Connect => "Connect",
        Job::Lock => "Lock",
        Job::Reconcile { .. } => "Reconcile",
        Job::FindStrays { .. } => "FindStrays",
        Job::Claim { .. } => "Claim",
        Job::Requeue { .. } => "Requeue",
        Job::Pause { .. } => "Pause",
        Job::Strike { .. } => "Strike",
        Job::Condemn { .. } => "Condemn",
        Job::Fail { .. } => "Fail",
        Job::Sweep { .. } => "Sweep",
        Job::Flush(_) => "Flush",
        Job::CollectBodies { .. } => "CollectBodies",
        Job::Reread { .. } => "Reread",
    }
}

impl Bench {
    /// Not started yet.
    pub fn new(stages: Vec<StageSpec>) -> Bench {
        Bench::with(settings(), stages)
    }

    pub fn with(settings: Settings, stages: Vec<StageSpec>) -> Bench {
        Bench {
            machine: Machine::new(settings, stages.clone(), 7),
            configured: (stages, false),
            now: 1000 * SECOND,
            pending: Vec::new(),
            top: 0,
            due_in: None,
            due: Vec::new(),
            unserved: Vec::new(),
            script: VecDeque::new(),
            jobs: Vec::new(),
            turns: 0,
        }
    }

    /// Connected and idle, its first jobs forgotten.
    pub fn up(stages: Vec<StageSpec>) -> Bench {
        let mut bench = Bench::new(stages);
        bench.event(Event::Start);
        bench.jobs.clear();
        bench
    }

    /// One stage, `init`.
    pub fn one() -> Bench {
        Bench::up(vec![stage("init")])
    }

    /// One event and the turns that follow at once; the actions but for jobs and logs.
    pub fn event(&mut self, event: Event) -> Vec<Action> {
        let mut seen = self.machine.step(self.now, event);
        seen.extend(self.turn());
        seen.retain(|action| !matches!(action, Action::Log { .. } | Action::Job(_)));
        seen
    }

    /// Several events before one turn.
    pub fn events(&mut self, events: Vec<Event>) -> Vec<Action> {
        let mut seen = Vec::new();
        for event in events {
            seen.extend(self.machine.step(self.now, event));
        }
        seen.extend(self.turn());
        seen.retain(|action| !matches!(action, Action::Log { .. } | Action::Job(_)));
        seen
    }

    /// Turns until nothing is due now.
    pub fn turn(&mut self) -> Vec<Action> {
        let mut seen = Vec::new();
        for _ in 0..10_000 {
            self.turns += 1;
            let mut actions = self.machine.step(self.now, Event::Turn);
            while let Some(at) = actions.iter().position(|action| matches!(action, Action::Job(_))) {
                let Action::Job(job) = actions.remove(at) else { unreachable!() };
                let reply = self.answer(&job);
                self.jobs.push(job);
                actions.extend(self.machine.step(self.now, Event::Reply(reply)));
            }
            seen.extend(actions);
            if self.machine.deadline().is_none_or(|at| at > self.now) {
                return seen;
            }
        }
        panic!("it spins");
    }

    /// Time goes by, with a turn at each deadline.
    pub fn pass(&mut self, time: Micros) -> Vec<Action> {
        let end = self.now + time;
        let mut seen = Vec::new();
        while let Some(at) = self.machine.deadline().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            seen.extend(self.turn());
        }
        self.now = end;
        seen.retain(|action| !matches!(action, Action::Log { .. }));
        seen
    }

    fn claim(&mut self, demand: &[Demand], touched: &[i64]) -> Reply {
        let number = |stage: &str| demand.iter().position(|one| one.stage == stage);
        let waiting = |row: &Claimed| {
            Some(choose::Row { id: row.row.id, stage: number(&row.stage)?, sender: row.sender.clone() })
        };
        let mut queue: Vec<_> = self.pending.iter().filter_map(waiting).collect();
        queue.sort_by_key(|row| row.id);
        let asks: Vec<_> = demand.iter().map(|one| one.ask.clone()).collect();
        let choice = choose(&queue, &asks, touched);
        self.top = queue.last().map_or(self.top, |row| self.top.max(row.id));
        let is_taken = |row: &Claimed| choice.taken.iter().any(|(_, id)| *id == row.row.id);
        let rows = self.pending.iter().filter(|row| is_taken(row)).cloned().collect();
        self.pending.retain(|row| !is_taken(row));
        let name = |stage: usize| demand[stage].stage.clone();
        let notices = choice.notices.into_iter().map(|(stage, notice)| (name(stage), notice)).collect();
        Reply::Rows { rows, notices, top: self.top, due_in: self.due_in, unserved: self.unserved.clone() }
    }

    fn sweep(&mut self, stages: &[Due]) -> Reply {
        let (mut rows, mut more) = (Vec::new(), Vec::new());
        for Due { stage, rows: room, .. } in stages {
            let (here, elsewhere): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|row| row.stage == *stage);
            let (going, left) = here.split_at(here.len().min(*room as usize));
            rows.extend(going.iter().map(|row| (stage.clone(), row.row.id)));
            more.extend(left.first().map(|row| (stage.clone(), row.row.id)));
            self.pending.extend_from_slice(going);
            self.due.extend_from_slice(left);
            self.due.extend(elsewhere);
        }
        Reply::Swept { rows, more, due_in: self.due_in }
    }

    fn answer(&mut self, job: &Job) -> Reply {
        if let Some(at) = self.script.iter().position(|(of, _)| *of == name(job)) {
            return self.script.remove(at).expect("it is there").1;
        }
        match job {
            Job::Connect => Reply::Connected,
            Job::Lock => Reply::Locked,
            Job::Claim { demand, touched, .. } => self.claim(demand, touched),
            Job::Sweep { stages } => self.sweep(stages),
            Job::Reread { .. } => {
                let (stages, is_changed) = self.configured.clone();
                Reply::Config { stages, changes: is_changed.then(|| "edited".to_owned()) }
            }
            Job::FindStrays { .. } => Reply::Strays(Vec::new()),
            Job::Reconcile { .. } => Reply::Reconciled(Vec::new()),
            Job::Requeue { .. }
            | Job::Pause { .. }
            | Job::Strike { .. }
            | Job::Condemn { .. }
            | Job::Fail { .. }
            | Job::Flush(_)
            | Job::CollectBodies { .. } => Reply::Done,
        }
    }

    /// Rows come and the dispatcher is told.
    pub fn arrive(&mut self, rows: Vec<Claimed>) -> Vec<Action> {
        self.pending.extend(rows);
        self.event(Event::Notified)
    }

    pub fn ready(&mut self, worker: u64) -> Vec<Action> {
        self.event(Event::Ready { worker: WorkerId(worker), claims: true })
    }

    pub fn answers(&mut self, worker: u64, status: u8) -> Vec<Action> {
        self.event(Event::Answer { worker: WorkerId(worker), status, report: Vec::new() })
    }

    pub fn exits(&mut self, worker: u64, exit: Exit) -> Vec<Action> {
        self.event(Event::Exited { worker: WorkerId(worker), exit })
    }

    /// The jobs since the last call, but for claims, flushes and what keeps the queue.
    pub fn writes(&mut self) -> Vec<Job> {
        let all = std::mem::take(&mut self.jobs);
        let upkeep = ["Claim", "Flush", "Sweep", "Reconcile", "FindStrays", "CollectBodies"];
        all.into_iter().filter(|job| !upkeep.contains(&name(job))).collect()
    }

    /// The names of the jobs since the last call.
    pub fn job_names(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.jobs).iter().map(name).collect()
    }
}

pub fn spawn_of(worker: u64, spec: &StageSpec) -> Action {
    let (stage, program) = (spec.name.clone(), spec.program.clone());
    Action::Spawn { worker: WorkerId(worker), stage, program, queue_limit: spec.queue_limit }
}

pub fn spawn(worker: u64) -> Action {
    spawn_of(worker, &stage("init"))
}

pub fn send(worker: u64, ids: &[i64]) -> Action {
    Action::Send { worker: WorkerId(worker), rows: ids.iter().map(|id| claim(*id)).collect() }
}

pub fn close(worker: u64) -> Action {
    Action::Close { worker: WorkerId(worker) }
}

pub fn kill(worker: u64) -> Action {
    Action::Kill { worker: WorkerId(worker) }
}

pub fn requeue(ids: &[i64]) -> Job {
    Job::Requeue { rows: ids.iter().map(|id| claim(*id)).collect() }
}
