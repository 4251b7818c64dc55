//! The simulated world: virtual time, a queue, worker processes and a shell around one machine after another.
//!
//! Time jumps from one happening to the next or to the machine's own deadline. What the world says goes through an
//! inbox, as pipes do: while the dispatcher is blocked in a statement nothing of it is heard.

use super::books::Life;
use super::database::{Database, Herald, Temper};
use super::prng::Prng;
use super::process::{Process, Word};
use crate::machine::{
    Action, Claim, Event, Exit, Fault, Job, Machine, Micros, Reply, Settings, StageSpec, WorkerId,
};
use std::collections::{BTreeMap, VecDeque};

#[path = "shell.rs"]
mod shell;

pub const MILLI: Micros = 1_000;
pub const SECOND: Micros = 1_000_000;

/// How hostile the world is; shares are in thousandths, gaps are means, and 0 means never.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Replies may come while other events do; else the dispatcher is blocked meanwhile, as the shell is.
    pub asynchronous: bool,
    pub natures: u64,
    pub words: u64,
    pub siblings: u64,
    pub tempers: u64,
    pub job_faults: u64,
    pub lost_notifications: u64,
    pub outage_gap: Micros,
    pub overload_gap: Micros,
    pub crash_gap: Micros,
    pub terminate_gap: Micros,
    pub rival_gap: Micros,
    pub lock_gap: Micros,
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
    Overload(bool),
    Rival(bool),
    RowLock(bool),
    Terminate,
    Crash,
    Restart,
    Orphan(Claim),
    // These belong to one life of the dispatcher.
    Effect,
    Replied(Reply),
    GetsReady(WorkerId),
    Finishes(WorkerId, u64),
    Dies(WorkerId, Exit),
    Backend(WorkerId, Claim),
    Hear(WorkerId, Word),
}

/// What waits to be heard by the machine.
#[derive(Clone, Debug)]
pub enum Incoming {
    Worker(WorkerId, Word),
    Notified,
    Lost,
    Terminate,
}

pub struct World {
    pub now: Micros,
    pub prng: Prng,
    pub profile: Profile,
    pub specs: Vec<StageSpec>,
    pub names: Vec<String>,
    pub settings: Settings,
    pub database: Database,
    pub processes: BTreeMap<WorkerId, Process>,
    pub machine: Option<Machine>,
    pub life: Life,
    lives: u64,
    agenda: BTreeMap<(Micros, u64), (u64, Happening)>,
    entries: u64,
    inbox: VecDeque<Incoming>,
    pub job: Option<Job>,
    pub outage: bool,
    pub overload: bool,
    rival: bool,
    /// The former backend keeps the lock until then.
    lock_lingers: Micros,
    pub faults: bool,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    LostBefore,
    LostAfter,
    Conflict,
    Refused,
    Overloaded,
}

impl World {
    pub fn new(seed: u64, profile: Profile, specs: Vec<StageSpec>, settings: Settings) -> World {
        let names = specs.iter().map(|spec| spec.name.clone()).collect();
        let mut world = World {
            now: 0,
            prng: Prng::new(seed),
            database: Database::new(specs.len()),
            life: Life::new(specs.len()),
            profile,
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
            outage: false,
            overload: false,
            rival: false,
            lock_lingers: 0,
            faults: true,
            steps: 0,
            stuck: 0,
            fail_job: None,
            jobs: 0,
            trace: std::env::var_os("PEPSI_SIM_TRACE").is_some(),
            seen: BTreeMap::new(),
        };
        world.restart();
        let profile = world.profile.clone();
        world.in_about(profile.insert_gap, Happening::Insert);
        world.in_about(profile.outage_gap, Happening::Outage(true));
        world.in_about(profile.overload_gap, Happening::Overload(true));
        world.in_about(profile.rival_gap, Happening::Rival(true));
        world.in_about(profile.lock_gap, Happening::RowLock(true));
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
            | Happening::Dies(..)
            | Happening::Backend(..)
            | Happening::Hear(..) => self.lives,
            Happening::Insert
            | Happening::Commit(_)
            | Happening::Notify
            | Happening::Outage(_)
            | Happening::Overload(_)
            | Happening::Rival(_)
            | Happening::RowLock(_)
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

    fn in_about(&mut self, gap: Micros, what: Happening) {
        if gap > 0 {
            let delay = self.prng.between(1, 2 * gap);
            self.after(delay, what);
        }
    }

    /// A new dispatcher, with nothing in its memory.
    fn restart(&mut self) {
        self.lives += 1;
        self.processes.clear();
        self.inbox.clear();
        self.job = None;
        self.life = Life::new(self.specs.len());
        let seed = self.prng.next();
        self.machine = Some(Machine::new(self.settings.clone(), self.specs.clone(), seed));
        self.step(Event::Start);
    }

    /// No more surprises: from now on everything must come to its end.
    pub fn calm(&mut self) {
        self.faults = false;
        self.outage = false;
        self.overload = false;
        self.rival = false;
        self.database.locked = None;
        self.profile.natures = 0;
        self.profile.words = 0;
        self.profile.siblings = 0;
        self.profile.lost_notifications = 0;
        self.agenda.retain(|_, (_, what)| {
            !matches!(
                what,
                Happening::Crash | Happening::Terminate | Happening::Insert | Happening::RowLock(_)
            )
        });
    }

    /// One jump of time with all that happens at its end.
    pub fn round(&mut self) {
        let blocked = self.job.is_some() && !self.profile.asynchronous;
        let happening = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let deadline = self.machine.as_ref().filter(|_| !blocked).and_then(Machine::deadline);
        let next = happening.into_iter().chain(deadline).min().expect("somebody always has something to do");
        let mut next = next.max(self.now);
        // A turn that nobody needs does nothing.
        let early = self.prng.chance(20) && next > self.now + 1;
        if early {
            next = self.prng.between(self.now, next - 1);
        }
        self.stuck = if next == self.now { self.stuck + 1 } else { 0 };
        assert!(self.stuck < 10_000, "time stands still");
        self.now = next;
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= next) {
            let (life, what) = entry.remove();
            if life == 0 || life == self.lives {
                self.happen(what);
            }
        }
        if self.machine.is_none() || (self.job.is_some() && !self.profile.asynchronous) {
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

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Insert => self.insert(),
            Happening::Commit(id) => {
                self.database.make_pending(id, self.now, Herald::Outside);
                if !self.prng.chance(self.profile.lost_notifications) {
                    let delay = self.prng.between(0, 2 * MILLI);
                    self.after(delay, Happening::Notify);
                }
            }
            Happening::Notify => {
                if self.life.connected && self.machine.is_some() {
                    self.inbox.push_back(Incoming::Notified);
                }
            }
            Happening::Outage(on) => {
                self.outage = on && self.faults;
                if self.outage {
                    self.drop_connection();
                    let end = self.prng.pick(&[50 * MILLI, SECOND, 10 * SECOND, 60 * SECOND]);
                    self.in_about(end, Happening::Outage(false));
                } else if self.faults {
                    self.in_about(self.profile.outage_gap, Happening::Outage(true));
                }
            }
            Happening::Overload(on) => {
                self.overload = on && self.faults;
                let gap = if on { 5 * SECOND } else { self.profile.overload_gap };
                if self.faults {
                    self.in_about(gap, Happening::Overload(!on));
                }
            }
            Happening::Rival(on) => {
                self.rival = on && self.faults && !self.life.locked;
                if self.rival {
                    self.note("rival");
                    // Its own start frees every row, ours too.
                    self.database.perform(&Job::Reconcile { held: Vec::new() }, self.now);
                }
                let gap = if on { 8 * SECOND } else { self.profile.rival_gap };
                if self.faults {
                    self.in_about(gap, Happening::Rival(!on));
                }
            }
            Happening::RowLock(on) => {
                let stage = self.prng.below(self.names.len() as u64) as usize;
                self.database.locked =
                    self.database.pending[stage].first().copied().filter(|_| on && self.faults);
                let gap = if on { 3 * SECOND } else { self.profile.lock_gap };
                if self.faults {
                    self.in_about(gap, Happening::RowLock(!on));
                }
            }
            Happening::Terminate => {
                if self.machine.is_some() {
                    self.inbox.push_back(Incoming::Terminate);
                }
                let again = if self.prng.chance(300) { 2 * SECOND } else { self.profile.terminate_gap };
                self.in_about(again, Happening::Terminate);
            }
            Happening::Crash => {
                self.crash();
                self.in_about(self.profile.crash_gap, Happening::Crash);
            }
            Happening::Restart => {
                if self.machine.is_none() {
                    self.restart();
                }
            }
            Happening::Orphan(claim) => {
                if !self.outage {
                    let done = self.database.advance(claim, WorkerId(0), self.now);
                    self.note(if done { "orphan commits" } else { "orphan is fenced" });
                }
            }
            Happening::Effect => self.effect(),
            Happening::Replied(reply) => {
                let job = self.job.take().expect("a job is under way");
                self.before_reply(&job, &reply);
                self.step(Event::Reply(reply));
            }
            Happening::GetsReady(id) => self.gets_ready(id),
            Happening::Finishes(id, run) => self.finishes(id, run),
            Happening::Dies(id, exit) => self.dies(id, exit),
            Happening::Backend(id, claim) => self.backend(id, claim),
            Happening::Hear(id, word) => self.inbox.push_back(Incoming::Worker(id, word)),
        }
    }

    fn insert(&mut self) {
        if self.database.unfinished < self.profile.backlog {
            let stages = self.names.len() as u64;
            let burst = if self.prng.chance(50) { 12 } else { 1 };
            for _ in 0..burst {
                let at = self.prng.below(stages) as usize;
                let temper = if self.prng.chance(self.profile.tempers) {
                    match self.prng.below(3) {
                        0 => Temper::Poison(at),
                        1 => Temper::Tar(at),
                        _ => Temper::Hopeless(at),
                    }
                } else {
                    Temper::Good
                };
                let id = self.database.insert(0, temper);
                // Ids are given out before the commit: rows do not appear in the order of their ids.
                let wait = if self.prng.chance(100) { self.prng.between(0, SECOND) } else { 0 };
                self.after(wait, Happening::Commit(id));
            }
        }
        self.in_about(self.profile.insert_gap, Happening::Insert);
    }

    /// A few rows of each temper.
    pub fn populate(&mut self) {
        let tempers = [
            Temper::Good,
            Temper::Good,
            Temper::Poison(0),
            Temper::Good,
            Temper::Tar(1),
            Temper::Hopeless(2),
        ];
        for temper in tempers {
            let id = self.database.insert(0, temper);
            self.after(0, Happening::Commit(id));
        }
    }

    fn drop_connection(&mut self) {
        if self.life.connected {
            self.life.connected = false;
            self.life.locked = false;
            self.life.troubled = true;
            self.lock_lingers = self.now + self.prng.pick(&[0, 0, SECOND]);
            if self.job.is_none() && self.machine.is_some() {
                self.inbox.push_back(Incoming::Lost);
            }
        }
    }

    /// SIGKILL: its workers die with it, but what their backends or its own has begun may yet be committed.
    fn crash(&mut self) {
        if self.machine.take().is_none() {
            return;
        }
        if let Some(job) = self.job.take()
            && !matches!(job, Job::Connect | Job::Lock)
            && self.life.connected
            && self.prng.chance(500)
        {
            self.database.perform(&job, self.now);
        }
        let running: Vec<Claim> =
            self.processes.values().filter_map(|process| process.outstanding.front().copied()).collect();
        for claim in running {
            if self.prng.chance(500) {
                let wait = self.prng.between(0, 200 * MILLI);
                self.after(wait, Happening::Orphan(claim));
            }
        }
        self.note("crash of the dispatcher");
        self.lives += 1;
        self.life.connected = false;
        self.life.locked = false;
        self.lock_lingers = self.now + self.prng.pick(&[0, 100 * MILLI, 8 * SECOND, 12 * SECOND]);
        let pause = self.prng.pick(&[10 * MILLI, SECOND, 5 * SECOND]);
        self.after(pause, Happening::Restart);
    }
}
