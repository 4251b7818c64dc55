//! The simulated server's side of a job: when it takes effect, how it fails, and what is told by its reply.

use super::books::{Debt, Entry, Place};
use super::world::{Happening, MILLI, SECOND, World};
use crate::machine::{Claim, Demand, Fault, Job, Micros, Reply};

/// How a job fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    LostBefore,
    LostAfter,
    Conflict,
    Refused,
    Overloaded,
    /// The schema is of another release now.
    Fatal,
}

impl World {
    pub fn delay(&mut self) -> Micros {
        if self.faults && self.prng.chance(10) {
            // A statement that waits for something; the end of a dispatcher may not outwait it.
            self.life.troubled = true;
            return self.prng.between(MILLI, 3 * SECOND);
        }
        self.prng.between(20, 500)
    }

    /// The job takes effect at the server, or does not.
    pub fn effect(&mut self) {
        let job = self.job.clone().expect("a job is under way");
        self.jobs += 1;
        self.is_done = true;
        let failure = match self.fail_job {
            Some((number, failure)) => Some(failure).filter(|_| number == self.jobs),
            None if self.faults && self.prng.chance(self.profile.job_faults) => Some(self.prng.pick(&[
                Failure::LostBefore,
                Failure::LostAfter,
                Failure::Conflict,
                Failure::Refused,
                Failure::Overloaded,
                Failure::Fatal,
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
            | Reply::Strays(_)
            | Reply::Reconciled(_)
            | Reply::Done
            | Reply::Config { .. }
            | Reply::Malformed { .. }
            | Reply::Fatal { .. } => {}
        }
        if matches!(reply, Reply::Fault(Fault::Lost(_))) {
            self.life.connected = false;
            self.life.locked = false;
            self.life.listens = false;
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
            Some(Failure::Fatal) if *job == Job::Connect => return Reply::Fatal { code: 78, error: text },
            Some(Failure::Fatal) => {}
            None if self.refusal && !matches!(job, Job::Connect | Job::Lock) => {
                self.note("a time of refusal");
                return Reply::Fault(Fault::Refused(text));
            }
            Some(Failure::LostBefore | Failure::LostAfter) | None => {}
        }
        let reply = match job {
            Job::Connect => {
                if self.overload {
                    return Reply::Fault(Fault::Overloaded(text));
                }
                self.life.connected = true;
                self.life.listens = true;
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
            Job::Claim { demand, touched, skip_locked: false, .. } if self.blocked(demand, touched) => {
                return Reply::Fault(Fault::Conflict(text));
            }
            _ if self.is_refused(job) => return Reply::Fault(Fault::Conflict(text)),
            Job::Reread { asked } => self.read_again(*asked),
            Job::Reconcile { .. }
            | Job::FindStrays { .. }
            | Job::Claim { .. }
            | Job::Requeue { .. }
            | Job::Pause { .. }
            | Job::Strike { .. }
            | Job::Condemn { .. }
            | Job::Fail { .. }
            | Job::Sweep { .. }
            | Job::Flush(_)
            | Job::CollectBodies { .. } => {
                self.check_withdrawn(job);
                self.database.perform(job, self.now)
            }
        };
        if failure == Some(Failure::LostAfter) { Reply::Fault(Fault::Lost(text)) } else { reply }
    }

    /// Whether it is a write about a row that somebody holds locked.
    fn is_refused(&self, job: &Job) -> bool {
        let rows = match job {
            Job::Requeue { rows } => rows.as_slice(),
            Job::Pause { row, .. }
            | Job::Strike { row, .. }
            | Job::Condemn { row, .. }
            | Job::Fail { row, .. } => std::slice::from_ref(row),
            Job::Connect
            | Job::Lock
            | Job::Reconcile { .. }
            | Job::FindStrays { .. }
            | Job::Claim { .. }
            | Job::Sweep { .. }
            | Job::Flush(_)
            | Job::CollectBodies { .. }
            | Job::Reread { .. } => &[],
        };
        rows.iter().any(|row| self.database.locked == Some(row.id) && self.database.fence(*row))
    }

    /// A reconcile passed these over: they are owed.
    pub fn passed_over(&mut self, rows: &[Claim]) {
        for claim in rows {
            self.note("reconcile: a locked row");
            let row = self.database.row(claim.id);
            let place = Place::Owes(Debt::Requeue);
            let entry = Entry { place, strikes: row.strikes, stage: row.stage };
            assert!(self.life.ledger.insert(*claim, entry).is_none());
        }
    }

    /// Whether the claim would wait for a row that somebody holds locked.
    fn blocked(&self, demand: &[Demand], touched: &[i64]) -> bool {
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
