//! The simulated world: virtual time, a queue, worker processes and a shell around one machine after another.
//!
//! Time jumps from one happening to the next or to the machine's own deadline. What the world says goes through an
//! inbox, as pipes do: while the dispatcher is blocked in a statement nothing of it is heard.

use super::books::Life;
use super::database::Database;
use super::prng::Prng;
use super::process::{Process, Word};
use super::reloads::Written;
use super::server::Failure;
use crate::machine::{
    Action, Claim, Event, Exit, Job, Machine, Micros, Reply, Settings, StageSpec, WorkerId,
};
use std::collections::{BTreeMap, VecDeque};

pub const MILLI: Micros = 1_000;
pub const SECOND: Micros = 1_000_000;

/// How hostile the world is; shares are in thousandths, gaps are means, and 0 means never.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Replies may come while other events do; else the dispatcher is blocked meanwhile, as the shell is.
    pub asynchronous: bool,
    pub natures: u64,
    pub words: u64,
    pub siblings: u64,
    pub fusion: u64,
    pub tempers: u64,
    pub job_faults: u64,
    pub lost_notifications: u64,
    pub outage_gap: Micros,
    /// Between crashes of the server, which then forgets the last commits.
    pub forget_gap: Micros,
    /// Between times at which it refuses every statement.
    pub refusal_gap: Micros,
    /// Between times at which the dispatcher does not run, or no time passes for anybody else either.
    pub stall_gap: Micros,
    pub overload_gap: Micros,
    pub crash_gap: Micros,
    pub terminate_gap: Micros,
    pub rival_gap: Micros,
    pub lock_gap: Micros,
    pub reload_gap: Micros,
    pub insert_gap: Micros,
    pub service: Micros,
    pub backlog: usize,
}

#[derive(Clone, Debug)]
pub enum Happening {
    Insert,
    Commit(i64),
    Notify,
    Outage(bool),
    ServerCrash,
    Refusal(bool),
    Stall,
    Overload(bool),
    Rival(bool),
    RowLock(bool),
    /// Somebody edits the configuration and tells so.
    Reload,
    /// The overlay can be read again.
    Overlay,
    Telemetry,
    Terminate,
    Crash,
    Restart,
    Orphan(Claim),
    // These belong to one life of the dispatcher.
    Effect,
    Replied(Reply),
    GetsReady(WorkerId),
    Finishes(WorkerId, u64),
    Stops(WorkerId, u64),
    Dies(WorkerId, Exit),
    Backend(WorkerId, Claim),
    Hear(WorkerId, Word),
}

/// What waits to be heard by the machine.
#[derive(Clone, Debug)]
pub enum Incoming {
    Worker(WorkerId, Word),
    Notified,
    ConfigChanged,
    TelemetryChanged,
    Lost,
    Terminate,
}

pub struct World {
    pub now: Micros,
    pub prng: Prng,
    pub profile: Profile,
    /// As the machine has them, also of stages that it has not now.
    pub specs: Vec<StageSpec>,
    /// What the configuration says now.
    pub written: Written,
    pub names: Vec<String>,
    pub settings: Settings,
    pub database: Database,
    pub processes: BTreeMap<WorkerId, Process>,
    pub machine: Option<Machine>,
    pub life: Life,
    pub lives: u64,
    pub agenda: BTreeMap<(Micros, u64), (u64, Happening)>,
    entries: u64,
    pub inbox: VecDeque<Incoming>,
    pub job: Option<Job>,
    /// The server has done it, or not; the reply is on its way.
    pub is_done: bool,
    pub outage: bool,
    pub refusal: bool,
    /// The dispatcher does not run before then.
    pub stalled: Micros,
    /// So much is added to the next jump of time.
    pub leap: Micros,
    pub overload: bool,
    pub rival: bool,
    /// The former backend keeps the lock until then.
    pub lock_lingers: Micros,
    pub faults: bool,
    /// Else most do.
    pub every_worker_says_claims: bool,
    pub steps: u64,
    /// Rounds at the same instant.
    stuck: u32,
    /// Fails this job of the run with that fault, and no other.
    pub fail_job: Option<(u64, Failure)>,
    pub jobs: u64,
    /// Prints every step.
    pub trace: bool,
    /// How often what was met, to prove that a run means something.
    pub seen: BTreeMap<&'static str, u64>,
}

impl World {
    pub fn new(seed: u64, profile: Profile, specs: Vec<StageSpec>, settings: Settings) -> World {
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        let mut world = World {
            now: 0,
            prng: Prng::new(seed),
            database: Database::new(&names),
            life: Life::new(specs.len()),
            profile,
            written: Written::new(&specs),
            specs,
            names,
            settings,
            processes: BTreeMap::new(),
            machine: None,
            lives: 0,
            agenda: BTreeMap::new(),
            entries: 0,
            inbox: VecDeque::new(),
            job: None,
            is_done: false,
            outage: false,
            refusal: false,
            stalled: 0,
            leap: 0,
            overload: false,
            rival: false,
            lock_lingers: 0,
            faults: true,
            every_worker_says_claims: false,
            steps: 0,
            stuck: 0,
            fail_job: None,
            jobs: 0,
            trace: std::env::var_os("PEPSI_SIM_TRACE").is_some(),
            seen: BTreeMap::new(),
        };
        world.database.is_forgetful = world.profile.forget_gap > 0;
        world.restart();
        let profile = world.profile.clone();
        world.in_about(profile.insert_gap, Happening::Insert);
        world.in_about(profile.outage_gap, Happening::Outage(true));
        world.in_about(profile.forget_gap, Happening::ServerCrash);
        world.in_about(profile.refusal_gap, Happening::Refusal(true));
        world.in_about(profile.stall_gap, Happening::Stall);
        world.in_about(profile.overload_gap, Happening::Overload(true));
        world.in_about(profile.rival_gap, Happening::Rival(true));
        world.in_about(profile.lock_gap, Happening::RowLock(true));
        world.in_about(profile.reload_gap, Happening::Reload);
        world.in_about(profile.reload_gap, Happening::Telemetry);
        world.in_about(profile.crash_gap, Happening::Crash);
        world.in_about(profile.terminate_gap, Happening::Terminate);
        world
    }

    pub fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn at(&mut self, at: Micros, what: Happening) {
        let life = match what {
            Happening::Effect
            | Happening::Replied(_)
            | Happening::GetsReady(_)
            | Happening::Finishes(..)
            | Happening::Stops(..)
            | Happening::Dies(..)
            | Happening::Backend(..)
            | Happening::Hear(..) => self.lives,
            Happening::Insert
            | Happening::Commit(_)
            | Happening::Notify
            | Happening::Outage(_)
            | Happening::ServerCrash
            | Happening::Refusal(_)
            | Happening::Stall
            | Happening::Overload(_)
            | Happening::Rival(_)
            | Happening::RowLock(_)
            | Happening::Reload
            | Happening::Overlay
            | Happening::Telemetry
            | Happening::Terminate
            | Happening::Crash
            | Happening::Restart
            | Happening::Orphan(_) => 0,
        };
        self.entries += 1;
        self.agenda.insert((at, self.entries), (life, what));
    }

    pub fn after(&mut self, delay: Micros, what: Happening) {
        self.at(self.now + delay, what);
    }

    pub fn in_about(&mut self, gap: Micros, what: Happening) {
        if gap > 0 {
            let delay = self.prng.between(1, 2 * gap);
            self.after(delay, what);
        }
    }

    /// One jump of time with all that happens at its end.
    pub fn round(&mut self) {
        let blocked = (self.job.is_some() && !self.profile.asynchronous) || self.now < self.stalled;
        let happening = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let deadline = self.machine.as_ref().filter(|_| !blocked).and_then(Machine::deadline);
        let woken = Some(self.stalled).filter(|at| *at > self.now);
        // What was said while nobody listened is heard now.
        let said = Some(self.now).filter(|_| self.machine.is_some() && !blocked && !self.inbox.is_empty());
        let next = happening.into_iter().chain(deadline).chain(woken).chain(said).min();
        let leap = std::mem::take(&mut self.leap);
        let mut next = next.expect("somebody always has something to do").max(self.now) + leap;
        // A turn that nobody needs does nothing.
        let early = self.prng.chance(20) && !blocked && leap == 0 && next > self.now + 1;
        if early {
            next = self.prng.between(self.now, next - 1);
        }
        self.stuck = if next == self.now { self.stuck + 1 } else { 0 };
        assert!(self.stuck < 10_000, "time stands still");
        self.now = next;
        self.database.clock = next;
        if leap > 0 {
            // It came on top of the jump to whatever was next.
            self.life.stalled = self.life.stalled.max(Some(next));
        }
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= next) {
            let (life, what) = entry.remove();
            if life == 0 || life == self.lives {
                self.happen(what);
            }
        }
        let blocked = (self.job.is_some() && !self.profile.asynchronous) || self.now < self.stalled;
        if self.machine.is_none() || blocked {
            return;
        }
        let quiet = early && self.inbox.is_empty();
        while let Some(incoming) = self.inbox.pop_front() {
            self.deliver(incoming);
        }
        if self.machine.is_some() {
            self.before_turn();
            let actions = self.step(Event::Turn);
            assert!(!quiet || actions == 0, "an early turn did something");
            self.after_turn(actions);
        }
    }

    pub fn deliver(&mut self, incoming: Incoming) {
        if self.machine.is_none() {
            return;
        }
        match incoming {
            Incoming::Notified => {
                self.told_all();
                self.step(Event::Notified);
            }
            Incoming::ConfigChanged => {
                self.config_changed();
                self.step(Event::ConfigChanged);
            }
            Incoming::TelemetryChanged => {
                self.telemetry_changed();
                self.step(Event::TelemetryChanged);
            }
            Incoming::Lost => {
                // A job that was issued meanwhile finds out by itself.
                if self.job.is_none() && !self.life.connected {
                    self.step(Event::ConnectionLost("gone".to_owned()));
                }
            }
            Incoming::Terminate => {
                self.life.terminated(self.now, self.job.is_some());
                self.step(Event::Terminate);
            }
            Incoming::Worker(worker, word) => {
                self.burst(worker, &word);
                if self.before_word(worker, &word) {
                    let event = match word.clone() {
                        Word::SpawnFailed => Event::SpawnFailed { worker, error: "no such file".to_owned() },
                        Word::Ready => Event::Ready { worker, claims: self.says_claims(worker) },
                        Word::Answer { status, report, .. } => Event::Answer { worker, status, report },
                        Word::Halted(_) => Event::Halted { worker },
                        Word::Garbage => Event::Garbage { worker, error: "unreadable".to_owned() },
                        Word::Closed => Event::Closed { worker },
                        Word::Exited(exit) => Event::Exited { worker, exit },
                    };
                    self.step(event);
                    self.after_word(worker);
                }
            }
        }
    }

    /// Answers of one worker that wait one behind the other are read at once.
    fn burst(&mut self, worker: WorkerId, word: &Word) {
        let is_next =
            |one: &&Incoming| matches!(one, Incoming::Worker(id, Word::Answer { .. }) if *id == worker);
        let answers = 1 + self.inbox.iter().take_while(is_next).count() as u32;
        let Some(process) = self.processes.get_mut(&worker) else { return };
        if matches!(word, Word::Answer { .. }) && process.burst == 0 && answers > 1 {
            process.burst = answers;
            self.note("burst");
            self.step(Event::Burst { worker, answers });
        }
    }

    /// One step of the machine and the actions that follow; how many there were.
    pub fn step(&mut self, event: Event) -> usize {
        self.steps += 1;
        let turn = event == Event::Turn;
        let Some(machine) = &mut self.machine else { return 0 };
        let heard = if self.trace { format!("{event:?}") } else { String::new() };
        let actions = machine.step(self.now, event);
        let bound = 12 + 4 * (self.processes.len() + self.life.ledger.len());
        assert!(actions.len() <= bound, "{} actions in one step", actions.len());
        let count = actions.len();
        if self.trace && (!turn || count > 0) {
            println!("{:>12} {heard} -> {actions:?}", self.now);
        }
        for action in actions {
            self.before_action(&action, turn);
            self.perform(action);
        }
        count
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Job(job) => {
                assert!(self.job.replace(job).is_none(), "two jobs at once");
                self.is_done = false;
                let delay = self.delay();
                self.after(delay, Happening::Effect);
            }
            Action::Spawn { worker, stage, .. } => {
                let stage = self.names.iter().position(|name| *name == stage).expect("a stage that exists");
                self.spawn(worker, stage);
            }
            Action::Send { worker, rows } => self.feed(worker, &rows),
            Action::Close { worker } => self.close(worker),
            Action::Halt { worker } => self.halt(worker),
            Action::Continue { worker } => self.thaw(worker),
            Action::Kill { worker } => self.kill(worker),
            Action::Log { .. } | Action::Announce(_) => {}
            Action::Exit { .. } => self.ended(),
        }
    }
}
