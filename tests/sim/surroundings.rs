//! What happens to a world from outside: rows come, the database goes, dispatchers are told to end, killed and started.

use super::books::Life;
use super::database::{Herald, Temper};
use super::world::{Happening, Incoming, MILLI, SECOND, World};
use crate::machine::{Claim, Event, Job, Machine, WorkerId};

impl World {
    /// A new dispatcher, with nothing in its memory.
    pub fn restart(&mut self) {
        self.lives += 1;
        self.stalled = 0;
        self.processes.clear();
        self.inbox.clear();
        self.job = None;
        self.life = Life::new(self.specs.len());
        self.life.stalled = Some(self.now);
        let stages = self.read_at_start();
        let seed = self.prng.next();
        self.machine = Some(Machine::new(self.settings.clone(), stages, seed));
        self.step(Event::Start);
    }

    /// No more surprises: from now on everything must come to its end.
    pub fn calm(&mut self) {
        self.faults = false;
        self.outage = false;
        self.refusal = false;
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
                Happening::Crash
                    | Happening::ServerCrash
                    | Happening::Stall
                    | Happening::Terminate
                    | Happening::Insert
                    | Happening::RowLock(_)
                    | Happening::Reload
                    | Happening::Telemetry
            )
        });
        self.mend_configuration();
    }

    pub fn happen(&mut self, what: Happening) {
        match what {
            Happening::Insert => self.insert(),
            Happening::Commit(id) => {
                self.database.make_pending(id, self.now, Herald::Outside);
                // Admission is durable, and so is whatever was committed before it.
                self.database.sync();
                if !self.prng.chance(self.profile.lost_notifications) {
                    let delay = self.prng.between(0, 2 * MILLI);
                    self.after(delay, Happening::Notify);
                }
            }
            Happening::Notify => {
                // Several may be heard as one.
                let waits = self.inbox.iter().any(|word| matches!(word, Incoming::Notified));
                if self.life.connected && self.machine.is_some() && !waits {
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
            Happening::ServerCrash => {
                self.server_crash();
                self.in_about(self.profile.forget_gap, Happening::ServerCrash);
            }
            Happening::Refusal(on) => {
                self.refusal = on && self.faults;
                let gap = if on { 20 * SECOND } else { self.profile.refusal_gap };
                if self.faults {
                    self.in_about(gap, Happening::Refusal(!on));
                }
            }
            Happening::Stall => self.stall(),
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
                    self.life.is_disowned = true;
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
                let running = Some(&self.database.running).filter(|_| self.prng.chance(500));
                let rows = running.unwrap_or(&self.database.pending[stage]);
                self.database.locked = rows.first().copied().filter(|_| on && self.faults);
                let gap = if on { 3 * SECOND } else { self.profile.lock_gap };
                if self.faults {
                    self.in_about(gap, Happening::RowLock(!on));
                }
            }
            Happening::Reload => self.edit(),
            Happening::Overlay => self.written.unreadable = false,
            Happening::Telemetry => {
                if self.life.listens && self.machine.is_some() {
                    self.inbox.push_back(Incoming::TelemetryChanged);
                }
                self.in_about(self.profile.reload_gap, Happening::Telemetry);
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
            // Nobody reads it now.
            Happening::Replied(_) if self.now < self.stalled => self.at(self.stalled, what),
            Happening::Replied(reply) => {
                let job = self.job.take().expect("a job is under way");
                self.before_reply(&job, &reply);
                self.step(Event::Reply(reply));
            }
            Happening::GetsReady(id) => self.gets_ready(id),
            Happening::Finishes(id, run) => self.finishes(id, run),
            Happening::Stops(id, halt) => self.stops(id, halt),
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
            self.life.listens = false;
            self.life.troubled = true;
            self.lock_lingers = self.now + self.prng.pick(&[0, 0, SECOND]);
            if self.job.is_none() && self.machine.is_some() {
                self.inbox.push_back(Incoming::Lost);
            }
        }
    }

    /// All its connections break, what was under way is gone, and the last commits are forgotten.
    fn server_crash(&mut self) {
        self.drop_connection();
        self.lock_lingers = 0;
        self.agenda.retain(|_, (_, what)| !matches!(what, Happening::Orphan(_) | Happening::Backend(..)));
        let span = self.prng.between(0, 600 * MILLI);
        let forgotten = self.database.forget(self.now, span);
        self.life.is_disowned = true;
        self.note(if forgotten > 0 { "server crash: commits forgotten" } else { "server crash" });
    }

    /// The dispatcher alone stands still for a while, or the clock leaps for all.
    fn stall(&mut self) {
        let span = self.prng.pick(&[100 * MILLI, 3 * SECOND, 40 * SECOND, 1000 * SECOND]);
        if self.prng.chance(500) {
            self.note("the dispatcher stands still");
            self.stalled = self.stalled.max(self.now + span);
        } else {
            self.note("the clock leaps");
            self.leap = span;
        }
        self.life.stalled = self.life.stalled.max(Some(self.now + span));
        self.in_about(self.profile.stall_gap, Happening::Stall);
    }

    /// SIGKILL: its workers die with it, but what their backends or its own has begun may yet be committed.
    fn crash(&mut self) {
        if self.machine.take().is_none() {
            return;
        }
        if let Some(job) = self.job.take()
            && !self.is_done
            && !matches!(job, Job::Connect | Job::Lock | Job::Reread { .. })
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

    /// The machine has ended by itself; the service manager starts it again.
    pub fn ended(&mut self) {
        self.machine = None;
        self.lives += 1;
        self.life.connected = false;
        self.life.locked = false;
        self.after(2 * SECOND, Happening::Restart);
    }
}
