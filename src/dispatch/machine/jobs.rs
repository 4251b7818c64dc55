//! The connection and the one job under way (requirements D1, D6, L2, W1): connect, lock, and what each reply means.
//!
//! Until the lock was first taken a failure to connect ends the dispatcher (CLI3); after that it reconnects for ever.

use super::chance::Backoff;
use super::fair::{Notice, Taken};
use super::journal::Cause;
use super::worker::Row;
use super::{Action, Announcement, Claim, Claimed, Fault, Job, Machine, Micros, Reply, Severity};

/// Decorrelated jitter between attempts to connect (W1).
const RECONNECT: Micros = 100_000;
const LONGEST_RECONNECT: Micros = 10_000_000;
/// The lock is tried this often, for so long (D1).
const LOCK_RETRY: Micros = 500_000;
const LOCK_WAIT: Micros = 10_000_000;

/// What was asked of the database last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Connect,
    Lock,
    Withdraw,
    Write,
    Reconcile,
    Sweep,
    Claim,
    Flush,
    Bodies,
    Reread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// Before the start.
    None,
    Down {
        retry_at: Micros,
    },
    /// Connected, without the lock.
    Open {
        retry_at: Micros,
    },
    /// Connected and locked.
    Up,
}

#[derive(Clone, Debug)]
pub(super) struct Jobs {
    link: Link,
    under_way: Option<Kind>,
    /// There was a connection.
    connected_before: bool,
    /// The lock was ours once.
    established: bool,
    /// The first reconcile is done, and the service manager knows.
    announced: bool,
    lock_until: Option<Micros>,
    backoff: Backoff,
}

impl Jobs {
    pub(super) fn new() -> Jobs {
        Jobs {
            link: Link::None,
            under_way: None,
            connected_before: false,
            established: false,
            announced: false,
            lock_until: None,
            backoff: Backoff::new(RECONNECT, LONGEST_RECONNECT),
        }
    }

    pub(super) fn start(&mut self, now: Micros) {
        self.link = Link::Down { retry_at: now };
    }

    pub(super) fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    pub(super) fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    pub(super) fn is_established(&self) -> bool {
        self.established
    }

    /// While the link is not up: what is wanted next, and from when.
    pub(super) fn wish(&self) -> Option<(Kind, Micros)> {
        match self.link {
            Link::None | Link::Up => None,
            Link::Down { retry_at } => Some((Kind::Connect, retry_at)),
            Link::Open { retry_at } => Some((Kind::Lock, retry_at)),
        }
    }

    pub(super) fn issued(&mut self, kind: Kind) {
        assert!(self.under_way.is_none(), "one job at a time");
        self.under_way = Some(kind);
    }

    /// The end is near: connect without delay.
    pub(super) fn hurry(&mut self, now: Micros) {
        if let Link::Down { retry_at } = &mut self.link {
            *retry_at = (*retry_at).min(now);
        }
        self.backoff = Backoff::new(RECONNECT, 2 * RECONNECT);
    }
}

impl Machine {
    /// The answer to the job under way.
    pub(super) fn reply(&mut self, reply: Reply) {
        let kind = self.jobs.under_way.take();
        let fits = |kinds: &[Kind]| {
            let kind = kind.filter(|kind| kinds.contains(kind));
            kind.expect("a reply fits the job under way")
        };
        match reply {
            Reply::Connected => {
                fits(&[Kind::Connect]);
                if std::mem::replace(&mut self.jobs.connected_before, true) {
                    // A notification may have been missed. The first connection listened before it was read over.
                    self.reload.want(self.now, false);
                }
                self.jobs.link = Link::Open { retry_at: self.now };
            }
            Reply::Locked => {
                fits(&[Kind::Lock]);
                self.locked();
            }
            Reply::LockHeld => {
                fits(&[Kind::Lock]);
                self.lock_later("another dispatcher works on this database; there may be only one");
            }
            Reply::Rows { rows, notices, top, due_in, unserved } => {
                fits(&[Kind::Claim]);
                if self.claims.has_surveyed() {
                    self.sweeps.surveyed(self.now, due_in);
                    self.unserved(unserved);
                } else {
                    self.sweeps.heard(self.now, due_in);
                }
                self.arrived(rows, &notices, top);
            }
            Reply::Swept { rows, more, due_in } => {
                fits(&[Kind::Sweep]);
                for (_, id) in &rows {
                    self.claims.touch(*id);
                }
                self.sweeps.done(self.now, rows, more, due_in);
            }
            Reply::Config { stages, changes } => {
                fits(&[Kind::Reread]);
                self.reread(stages, changes);
            }
            Reply::Malformed { code, errors } => {
                fits(&[Kind::Reread]);
                self.malformed(code, errors);
            }
            Reply::Strays(rows) => {
                fits(&[Kind::Reconcile]);
                self.upkeep.reconciled();
                // There may be more than one look brings, and nobody else would ask for them.
                if !rows.is_empty() {
                    self.upkeep.suspect(self.now);
                }
                rows.into_iter().for_each(|row| self.stray(row));
            }
            Reply::Reconciled(locked) => {
                fits(&[Kind::Reconcile]);
                self.reconciled(locked);
            }
            Reply::Done => self.done(fits(&[Kind::Withdraw, Kind::Write, Kind::Flush, Kind::Bodies])),
            Reply::Fault(fault) => {
                let kind = kind.expect("a reply answers a job");
                self.fault(kind, fault);
            }
            Reply::Fatal { code, error } => {
                self.log(Severity::Error, None, error);
                if kind == Some(Kind::Withdraw) {
                    self.not_withdrawn(true);
                }
                self.disconnected();
                self.give_up(code);
            }
        }
    }

    fn locked(&mut self) {
        if self.jobs.established {
            self.log(Severity::Info, None, "connected to the database again".to_owned());
        }
        self.jobs.link = Link::Up;
        self.jobs.established = true;
        self.jobs.lock_until = None;
        self.jobs.backoff.reset();
        self.upkeep.connected(self.now);
        self.sweeps.connected(self.now);
        self.claims.connected();
    }

    /// The lock is not ours: tried again for a while, then this dispatcher ends (D1, D6).
    fn lock_later(&mut self, reason: &str) {
        let until = *self.jobs.lock_until.get_or_insert(self.now.saturating_add(LOCK_WAIT));
        if self.now >= until {
            self.log(Severity::Error, None, format!("the dispatcher's lock was not to be had: {reason}"));
            self.give_up(1);
        } else {
            let text = format!("waiting for the dispatcher's lock: {reason}");
            self.log_often(Severity::Warning, None, Cause::Lock, text);
        }
        self.jobs.link = Link::Open { retry_at: self.now.saturating_add(LOCK_RETRY) };
    }

    /// Claimed rows came.
    fn arrived(&mut self, rows: Vec<Claimed>, notices: &[(String, Notice)], top: i64) {
        let number = |name: &str| self.stages.iter().position(|stage| stage.spec.name == name);
        let placed: Vec<(Option<usize>, Claimed)> =
            rows.into_iter().map(|row| (number(&row.stage), row)).collect();
        let known: Vec<Taken<'_>> = placed
            .iter()
            .filter_map(|(stage, row)| {
                Some(Taken { stage: (*stage)?, id: row.row.id, claim: row.row.claim, sender: &row.sender })
            })
            .collect();
        let notices: Vec<(usize, Notice)> =
            notices.iter().filter_map(|(stage, notice)| Some((number(stage)?, notice.clone()))).collect();
        self.claims.done(self.now, &known, &notices, top);
        let taken = |index| known.iter().filter(|row| row.stage == index).count();
        if (0..self.stages.len()).any(|index| taken(index) >= super::turn::MOST_CLAIMED as usize) {
            // It may have been asked for less than there is room for.
            self.claims.want();
        }
        for (stage, Claimed { stage: name, row: claim, sender: _, strikes }) in placed {
            self.sweeps.claimed(self.now, &name, claim.id);
            match stage {
                Some(stage) if self.stop.is_none() && !self.stages[stage].is_removed() => {
                    let alone = self.strikes.take(claim.id) || strikes > 0;
                    self.stages[stage].waiting.push_back(Row { claim, strikes, alone });
                }
                Some(_) => self.requeue(claim),
                None => {
                    let text =
                        format!("message {} was claimed for stage {name}, which has no section", claim.id);
                    self.log_often(Severity::Error, None, Cause::Unknown, text);
                    self.requeue(claim);
                }
            }
        }
    }

    /// All stages without a section at which messages wait, and how many.
    fn unserved(&mut self, stages: Vec<(String, u64)>) {
        for (stage, count) in self.unserved.seen(stages) {
            let text =
                format!("stage {stage} has no section: nobody claims what waits there (messages: {count})");
            self.log(Severity::Warning, None, text);
        }
        self.stats.unserved(self.unserved.count());
    }

    /// No claim can meet the `locked` rows, as they are running: each is a write that is owed, like any other.
    fn reconciled(&mut self, locked: Vec<Claim>) {
        self.upkeep.reconciled();
        self.claims.expose(self.now);
        locked.into_iter().for_each(|row| self.requeue(row));
        if !self.jobs.announced && self.stop.is_none() {
            self.jobs.announced = true;
            self.actions.push(Action::Announce(Announcement::Ready));
        }
    }

    fn done(&mut self, kind: Kind) {
        match kind {
            Kind::Withdraw => self.withdrawn(),
            Kind::Write => {
                for row in self.writes.done() {
                    // Pending again or paused; or its worker had moved it on before it died, and this changed nothing.
                    self.claims.touch(row.id);
                }
            }
            Kind::Flush => self.stats.done(),
            Kind::Bodies => {}
            Kind::Connect | Kind::Lock | Kind::Reconcile | Kind::Sweep | Kind::Claim | Kind::Reread => {
                unreachable!("they have replies of their own")
            }
        }
    }

    fn fault(&mut self, kind: Kind, fault: Fault) {
        let (conflict, error) = match fault {
            Fault::Lost(error) => return self.broken(kind, &error),
            Fault::Conflict(error) => (true, error),
            Fault::Overloaded(error) | Fault::Refused(error) => (false, error),
        };
        if conflict {
            self.stats.serialization_failure();
        }
        match kind {
            Kind::Connect => self.broken(kind, &error),
            Kind::Lock => self.lock_later(&error),
            Kind::Withdraw => {
                self.not_withdrawn(false);
                let text = format!("messages behind a stuck one could not be withdrawn: {error}");
                self.log_often(Severity::Warning, None, Cause::Withdraw, text);
            }
            Kind::Claim => {
                if self.claims.has_surveyed() {
                    // Whether rows are due is not known then.
                    self.sweeps.surveyed(self.now, Some(0));
                }
                self.claims.refused(self.now, conflict, &mut self.chance);
                self.log_often(
                    Severity::Warning,
                    None,
                    Cause::Claim,
                    format!("a claim was not done: {error}"),
                );
            }
            Kind::Write => {
                if self.writes.refused(self.now, &mut self.chance) == 1 {
                    let text = format!("a write about a message was not done and is repeated: {error}");
                    self.log_often(Severity::Warning, None, Cause::Write, text);
                }
            }
            Kind::Reread => {
                if self.reload.refused(self.now, &mut self.chance) {
                    let text = format!("the configuration stays as it is for now: {error}");
                    self.log(Severity::Warning, None, text);
                }
            }
            Kind::Reconcile => {
                // At the end it is tried once; the next start reconciles anyway.
                if self.stop.is_none() {
                    self.upkeep.reconcile_refused(self.now, &mut self.chance);
                }
                self.upkeep_refused("the reconcile of running rows", &error);
            }
            Kind::Sweep => {
                self.sweeps.refused(self.now, &mut self.chance);
                self.upkeep_refused("the sweep of due rows", &error);
            }
            Kind::Flush => {
                self.stats.refused(self.now);
                self.upkeep_refused("the flush of statistics", &error);
            }
            Kind::Bodies => self.upkeep_refused("the collection of bodies", &error),
        }
    }

    fn upkeep_refused(&mut self, what: &str, error: &str) {
        self.log_often(Severity::Warning, None, Cause::Upkeep, format!("{what} was not done: {error}"));
    }

    /// The connection cannot be made, or broke with a job under way.
    fn broken(&mut self, kind: Kind, error: &str) {
        if kind == Kind::Connect && !self.jobs.established {
            self.log(Severity::Error, None, format!("no connection to the database: {error}"));
            self.give_up(1);
        }
        if kind == Kind::Flush && self.stats.lost() {
            let text =
                "the connection broke during a flush of statistics: these figures are dropped".to_owned();
            self.log(Severity::Warning, None, text);
        }
        if kind == Kind::Withdraw {
            self.not_withdrawn(true);
        }
        self.connection_lost(error.to_owned());
    }

    /// The connection is gone; nothing is under way any more.
    pub(super) fn connection_lost(&mut self, error: String) {
        if self.jobs.is_busy() || self.jobs.link == Link::None {
            return;
        }
        self.disconnected();
        if self.stop.is_none() {
            let text = format!("the database connection is lost, connecting again: {error}");
            self.log_often(Severity::Warning, None, Cause::Connection, text);
        }
    }

    fn disconnected(&mut self) {
        self.writes.lost();
        self.upkeep.lost();
        self.reload.lost();
        self.sweeps.lost();
        self.jobs.lock_until = None;
        let delay = self.jobs.backoff.next(&mut self.chance);
        self.jobs.link = Link::Down { retry_at: self.now.saturating_add(delay) };
    }

    /// Issues a job of this kind.
    pub(super) fn issue(&mut self, kind: Kind) {
        let job = match kind {
            Kind::Connect => Some(Job::Connect),
            Kind::Lock => Some(Job::Lock),
            Kind::Withdraw => self.issue_withdrawal(),
            Kind::Write => self.writes.issue(self.now),
            Kind::Reconcile => {
                self.upkeep.reconcile_issued(self.now);
                let held = self.held();
                // Over one connection no claim is made that is not heard of, so a row that nobody has was answered. Once no
                // worker is left there is nothing to find out.
                let strays = self.upkeep.is_reconciled() && self.stop.is_none();
                Some(if strays { Job::FindStrays { held } } else { Job::Reconcile { held } })
            }
            Kind::Sweep => {
                let rooms = self.rooms();
                Some(self.sweeps.issue(self.now, rooms))
            }
            Kind::Claim => {
                self.sweeps.since_claim = false;
                let capacities = self.capacities();
                let names = self.stages.iter().map(|stage| stage.spec.name.as_str());
                Some(self.claims.issue(self.now, &capacities, names))
            }
            Kind::Flush => {
                let held = self.held_ids();
                Some(Job::Flush(self.stats.issue(self.now, &held)))
            }
            Kind::Bodies => {
                self.upkeep.bodies_issued();
                Some(Job::CollectBodies { limit: super::upkeep::BODIES_LIMIT })
            }
            Kind::Reread => {
                let asked = self.reload.issued();
                Some(Job::Reread { asked })
            }
        };
        if let Some(job) = job {
            self.jobs.issued(kind);
            self.actions.push(Action::Job(job));
        }
    }
}
