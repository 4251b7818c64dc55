//! The simulated shell: what the world hands to the machine, and what becomes of the machine's actions.
//!
//! It does what the real one does: a job is performed at once and its reply stepped in the same turn, and what a worker says
//! meanwhile waits in the inbox.

use super::*;

impl World {
    /// The machine has ended by itself; the service manager starts it again.
    pub fn ended(&mut self) {
        self.machine = None;
        self.lives += 1;
        self.life.connected = false;
        self.life.locked = false;
        self.after(2 * SECOND, Happening::Restart);
    }

    pub(super) fn deliver(&mut self, incoming: Incoming) {
        if self.machine.is_none() {
            return;
        }
        match incoming {
            Incoming::Notified => {
                self.told_all();
                self.step(Event::Notified);
            }
            Incoming::Lost => {
                // A job that was issued meanwhile finds out by itself.
                if self.job.is_none() && !self.life.connected {
                    self.step(Event::ConnectionLost("gone".to_owned()));
                }
            }
            Incoming::Terminate => {
                self.life.terminated(self.now);
                self.step(Event::Terminate);
            }
            Incoming::Worker(worker, word) => {
                if self.before_word(worker, &word) {
                    let event = match word.clone() {
                        Word::SpawnFailed => Event::SpawnFailed { worker, error: "no such file".to_owned() },
                        Word::Ready => Event::Ready { worker, claims: true },
                        Word::Answer { status, .. } => Event::Answer { worker, status, report: Vec::new() },
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
                let delay = self.delay();
                self.after(delay, Happening::Effect);
            }
            Action::Spawn { worker, stage } => {
                let stage = self.names.iter().position(|name| *name == stage).expect("a stage that exists");
                self.spawn(worker, stage);
            }
            Action::Send { worker, rows } => self.feed(worker, &rows),
            Action::Close { worker } => self.close(worker),
            Action::Kill { worker } => self.kill(worker),
            Action::Log { .. } | Action::Announce(_) => {}
            Action::Exit { .. } => self.ended(),
        }
    }

    fn delay(&mut self) -> Micros {
        if self.faults && self.prng.chance(10) {
            // A statement that waits for something.
            return self.prng.between(MILLI, 3 * SECOND);
        }
        self.prng.between(20, 500)
    }

    /// The job takes effect at the server, or does not.
    pub(super) fn effect(&mut self) {
        let job = self.job.clone().expect("a job is under way");
        self.jobs += 1;
        let failure = match self.fail_job {
            Some((number, failure)) => Some(failure).filter(|_| number == self.jobs),
            None if self.faults && self.prng.chance(self.profile.job_faults) => Some(self.prng.pick(&[
                Failure::LostBefore,
                Failure::LostAfter,
                Failure::Conflict,
                Failure::Refused,
                Failure::Overloaded,
            ])),
            None => None,
        };
        let reply = self.outcome(&job, failure);
        match &reply {
            Reply::Fault(Fault::Lost(_)) => self.note("fault: lost"),
            Reply::Fault(Fault::Conflict(_)) => self.note("fault: conflict"),
            Reply::Fault(Fault::Refused(_)) => self.note("fault: refused"),
            Reply::Fault(Fault::Overloaded(_)) => self.note("fault: overloaded"),
            Reply::LockHeld => self.note("lock held"),
            Reply::Connected
            | Reply::Locked
            | Reply::Rows { .. }
            | Reply::Swept { .. }
            | Reply::Done
            | Reply::Fatal { .. } => {}
        }
        if matches!(reply, Reply::Fault(Fault::Lost(_))) {
            self.life.connected = false;
            self.life.locked = false;
            self.lock_lingers = self.now + self.prng.pick(&[0, 0, 2 * SECOND]);
        }
        let delay = self.delay();
        self.after(delay, Happening::Replied(reply));
    }

    fn outcome(&mut self, job: &Job, failure: Option<Failure>) -> Reply {
        let text = "as the simulation wants it".to_owned();
        if self.outage || failure == Some(Failure::LostBefore) {
            return Reply::Fault(Fault::Lost(text));
        }
        match failure {
            Some(Failure::Conflict) => return Reply::Fault(Fault::Conflict(text)),
            Some(Failure::Refused) => return Reply::Fault(Fault::Refused(text)),
            Some(Failure::Overloaded) => return Reply::Fault(Fault::Overloaded(text)),
            Some(Failure::LostBefore | Failure::LostAfter) | None => {}
        }
        let reply = match job {
            Job::Connect => {
                if self.overload {
                    return Reply::Fault(Fault::Overloaded(text));
                }
                self.life.connected = true;
                Reply::Connected
            }
            // A connection that went away unseen.
            _ if !self.life.connected => return Reply::Fault(Fault::Lost(text)),
            Job::Lock => {
                if self.rival || self.now < self.lock_lingers {
                    return Reply::LockHeld;
                }
                self.life.locked = true;
                Reply::Locked
            }
            Job::Claim { demand, touched, skip_locked: false } if self.blocked(demand, touched) => {
                return Reply::Fault(Fault::Conflict(text));
            }
            Job::Reconcile { .. }
            | Job::Claim { .. }
            | Job::Requeue { .. }
            | Job::Pause { .. }
            | Job::Strike { .. }
            | Job::Condemn { .. }
            | Job::Fail { .. }
            | Job::Sweep { .. }
            | Job::Flush(_)
            | Job::CollectBodies { .. } => self.database.perform(job, self.now),
        };
        if failure == Some(Failure::LostAfter) { Reply::Fault(Fault::Lost(text)) } else { reply }
    }

    /// Whether the claim would wait for a row that somebody holds locked.
    fn blocked(&self, demand: &[crate::machine::Demand], touched: &[i64]) -> bool {
        self.database.locked.is_some_and(|id| self.database.would_take(demand, touched, id))
    }

    /// Sweep, reconcile, notification, a new connection: whatever is pending now, the machine has been told that there may be
    /// something.
    pub fn told_all(&mut self) {
        for stage in 0..self.names.len() {
            let pending: Vec<i64> = self.database.pending[stage].iter().copied().collect();
            for id in pending {
                self.database.row_mut(id).exposed_at.get_or_insert(self.now);
            }
        }
    }
}
