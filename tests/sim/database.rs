//! The simulated queue: rows as PostgreSQL would keep them, every write fenced, every job all or nothing.

use crate::machine::fair::choose::{self, choose};
use crate::machine::{Claim, Claimed, Deltas, Demand, Due, Job, Micros, Reply, Stray, WorkerId};
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its id is taken, its transaction is not committed.
    Unborn,
    Pending,
    Running,
    Paused,
    Failed,
    TimedOut,
    /// Deleted.
    Gone,
}

/// What a row does to whoever works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temper {
    Good,
    /// Kills every worker at that stage.
    Poison(usize),
    /// Never ends at that stage.
    Tar(usize),
    /// Fails for good at that stage.
    Hopeless(usize),
}

/// Who has to tell the machine that a row became pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Herald {
    /// A notification, or else the heartbeat.
    Outside,
    /// The answer about that claim, or the end of that worker.
    Worker(WorkerId, Claim),
    /// The reply to the job that did it.
    Reply,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub stage: usize,
    pub sender: &'static str,
    pub status: Status,
    pub claims: i64,
    pub strikes: u32,
    pub due: Micros,
    pub temper: Temper,
    pub pending_since: Micros,
    pub herald: Herald,
    /// The step of the machine at which it was told of this row, if it was.
    pub told_at: Option<u64>,
    /// When it was told that any row may be pending, if it was.
    pub exposed_at: Option<Micros>,
    /// How many stages were passed, and how many it has to pass.
    pub passed: u32,
    pub length: u32,
    /// A worker made it.
    pub is_sibling: bool,
    /// It is in messages_finished.
    pub is_counted: bool,
}

impl Row {
    pub fn is_over(&self) -> bool {
        matches!(self.status, Status::Gone | Status::Failed | Status::TimedOut)
    }
}

/// A commit is on disk so long after it at the latest (three times wal_writer_delay).
const WRITTEN_AFTER: Micros = 600_000;

const SENDERS: [&str; 5] = ["ip:192.0.2.1", "user:b", "from:c.example", "null:d", "ip:2001:db8::/64"];

#[derive(Clone, Debug)]
pub struct Database {
    pub stages: usize,
    names: Vec<String>,
    /// Row `id` is at `id - 1`.
    pub rows: Vec<Row>,
    pub pending: Vec<BTreeSet<i64>>,
    pub running: BTreeSet<i64>,
    pub paused: BTreeSet<(Micros, i64)>,
    /// Not Gone, Failed or TimedOut.
    pub unfinished: usize,
    pub clock: Micros,
    /// Commits are recorded, as the server may crash and forget the last of them.
    pub is_forgetful: bool,
    /// What rows were before each commit that may not be on disk yet, and when that was.
    undo: VecDeque<(Micros, i64, Row)>,
    /// A row that somebody else holds locked.
    pub locked: Option<i64>,
    pub flushed: Deltas,
}

impl Database {
    pub fn new(names: &[String]) -> Database {
        let stages = names.len();
        Database {
            stages,
            names: names.to_vec(),
            rows: Vec::new(),
            pending: vec![BTreeSet::new(); stages],
            running: BTreeSet::new(),
            paused: BTreeSet::new(),
            unfinished: 0,
            clock: 0,
            is_forgetful: false,
            undo: VecDeque::new(),
            locked: None,
            flushed: Deltas::default(),
        }
    }

    /// The last claim of that row.
    pub fn claim_of(&self, id: i64) -> Claim {
        Claim { id, claim: self.row(id).claims }
    }

    pub fn row(&self, id: i64) -> &Row {
        &self.rows[id as usize - 1]
    }

    pub fn row_mut(&mut self, id: i64) -> &mut Row {
        &mut self.rows[id as usize - 1]
    }

    /// A new row that is not visible before `set(.., Pending)`.
    pub fn insert(&mut self, stage: usize, temper: Temper) -> i64 {
        // Of a few senders one has most.
        let sender = SENDERS[self.rows.len() * 7 % 12 % SENDERS.len()];
        self.rows.push(Row {
            stage,
            sender,
            status: Status::Unborn,
            claims: 0,
            strikes: 0,
            due: 0,
            temper,
            pending_since: 0,
            herald: Herald::Outside,
            told_at: None,
            exposed_at: None,
            passed: 0,
            length: (self.stages - stage) as u32,
            is_sibling: false,
            is_counted: false,
        });
        self.unfinished += 1;
        self.rows.len() as i64
    }

    /// The one place where a status changes.
    pub fn set(&mut self, id: i64, status: Status) {
        self.record(id);
        let row = self.row(id).clone();
        let removed = match row.status {
            Status::Pending => self.pending[row.stage].remove(&id),
            Status::Running => self.running.remove(&id),
            Status::Paused => self.paused.remove(&(row.due, id)),
            Status::Unborn => true,
            Status::Failed | Status::TimedOut | Status::Gone => panic!("row {id} came back from its end"),
        };
        assert!(removed);
        match status {
            Status::Pending => assert!(self.pending[row.stage].insert(id)),
            Status::Running => assert!(self.running.insert(id)),
            Status::Paused => assert!(self.paused.insert((row.due, id))),
            Status::Failed | Status::TimedOut | Status::Gone => self.unfinished -= 1,
            Status::Unborn => panic!("row {id} was there"),
        }
        self.row_mut(id).status = status;
    }

    pub fn make_pending(&mut self, id: i64, now: Micros, herald: Herald) {
        self.set(id, Status::Pending);
        let row = self.row_mut(id);
        row.pending_since = now;
        row.herald = herald;
        row.told_at = None;
        row.exposed_at = None;
    }

    pub fn pause(&mut self, id: i64, until: Micros) {
        // The old entry is found by the old time.
        let running = self.row(id).status == Status::Running;
        assert!(running);
        self.row_mut(id).due = until;
        self.set(id, Status::Paused);
    }

    fn record(&mut self, id: i64) {
        if self.is_forgetful {
            self.undo.push_back((self.clock, id, self.row(id).clone()));
            while self.undo.front().is_some_and(|(at, _, _)| at + WRITTEN_AFTER < self.clock) {
                self.undo.pop_front();
            }
        }
    }

    /// Whatever was committed so far is on disk.
    pub fn sync(&mut self) {
        self.undo.clear();
    }

    /// The server crashes: what was committed in the last `span` is forgotten, if nothing was synced since. How many
    /// changes that were.
    pub fn forget(&mut self, now: Micros, span: Micros) -> usize {
        let undo = std::mem::take(&mut self.undo);
        let mut forgotten = 0;
        for (_, id, row) in undo.into_iter().rev().take_while(|(at, _, _)| *at + span >= now) {
            *self.row_mut(id) = row;
            forgotten += 1;
        }
        self.locked = None;
        self.unfinished = 0;
        self.running.clear();
        self.paused.clear();
        self.pending.iter_mut().for_each(BTreeSet::clear);
        for (id, row) in (1..).zip(&mut self.rows) {
            // A sibling that was made by a forgotten commit has never been.
            if row.status == Status::Unborn && row.is_sibling {
                row.status = Status::Gone;
            }
            self.unfinished += usize::from(!row.is_over());
            match row.status {
                Status::Pending => {
                    row.pending_since = now;
                    row.herald = Herald::Outside;
                    row.told_at = None;
                    row.exposed_at = None;
                    self.pending[row.stage].insert(id);
                }
                Status::Running => {
                    self.running.insert(id);
                }
                Status::Paused => {
                    self.paused.insert((row.due, id));
                }
                Status::Unborn | Status::Failed | Status::TimedOut | Status::Gone => {}
            }
        }
        forgotten
    }

    /// Whether a write under that claim may change the row.
    pub fn fence(&self, claim: Claim) -> bool {
        let row = self.row(claim.id);
        row.status == Status::Running && row.claims == claim.claim
    }

    /// A worker's success: on to the next stage, or done. False when the claim is gone.
    pub fn advance(&mut self, claim: Claim, worker: WorkerId, now: Micros) -> bool {
        self.advance_by(claim, 1, worker, now)
    }

    /// As many stages further.
    pub fn advance_by(&mut self, claim: Claim, hops: u32, worker: WorkerId, now: Micros) -> bool {
        if !self.fence(claim) {
            return false;
        }
        self.record(claim.id);
        let stages = self.stages;
        let row = self.row_mut(claim.id);
        row.passed += hops;
        row.strikes = 0;
        assert!(row.passed <= row.length, "row {} passed a stage twice", claim.id);
        if row.stage + hops as usize == stages {
            assert_eq!(row.passed, row.length, "row {} skipped a stage", claim.id);
            self.set(claim.id, Status::Gone);
        } else {
            self.running.remove(&claim.id);
            let row = self.row_mut(claim.id);
            row.stage += hops as usize;
            row.status = Status::Unborn;
            self.make_pending(claim.id, now, Herald::Worker(worker, claim));
        }
        true
    }

    pub fn due_in(&self, now: Micros) -> Option<Micros> {
        self.paused.first().map(|(due, _)| due.saturating_sub(now))
    }

    fn touched_due_in(&self, touched: &[i64], now: Micros) -> Option<Micros> {
        let paused = touched.iter().map(|id| self.row(*id)).filter(|row| row.status == Status::Paused);
        paused.map(|row| row.due.saturating_sub(now)).min()
    }

    /// The waiting rows of the stages in the demand, by age; their stages are numbered as they are there.
    fn queue(&self, demand: &[Demand], without: Option<i64>) -> Vec<choose::Row<&'static str>> {
        let mut queue = Vec::new();
        for (name, pending) in self.names.iter().zip(&self.pending) {
            let Some(stage) = demand.iter().position(|one| one.stage == *name) else { continue };
            let open = pending.iter().filter(|id| without != Some(**id));
            queue.extend(open.map(|id| choose::Row { id: *id, stage, sender: self.row(*id).sender }));
        }
        queue.sort_unstable_by_key(|row| row.id);
        queue
    }

    /// Whether such a claim would take that row.
    pub fn would_take(&self, demand: &[Demand], touched: &[i64], id: i64) -> bool {
        let asks: Vec<_> = demand.iter().map(|one| one.ask.clone()).collect();
        choose(&self.queue(demand, None), &asks, touched).taken.iter().any(|(_, row)| *row == id)
    }

    fn claim(
        &mut self,
        demand: &[Demand],
        touched: &[i64],
        skip_locked: bool,
        survey: bool,
        now: Micros,
    ) -> Reply {
        let asks: Vec<_> = demand.iter().map(|one| one.ask.clone()).collect();
        let locked = self.locked.filter(|_| skip_locked);
        let choice = choose(&self.queue(demand, locked), &asks, touched);
        let mut rows = Vec::new();
        for (stage, id) in choice.taken {
            self.set(id, Status::Running);
            let row = self.row_mut(id);
            row.claims += 1;
            rows.push(Claimed {
                stage: demand[stage].stage.clone(),
                row: Claim { id, claim: row.claims },
                sender: row.sender.to_owned(),
                strikes: row.strikes,
            });
        }
        let notices = choice.notices.into_iter();
        Reply::Rows {
            rows,
            notices: notices.map(|(stage, notice)| (demand[stage].stage.clone(), notice)).collect(),
            top: self.rows.len() as i64,
            due_in: if survey { self.due_in(now) } else { self.touched_due_in(touched, now) },
            unserved: Vec::new(),
        }
    }

    /// The stages are all there are, in their order.
    fn sweep(&mut self, stages: &[Due], now: Micros) -> Reply {
        let (mut rows, mut more, mut due_in) = (Vec::new(), Vec::new(), None::<Micros>);
        for one in stages {
            let stage = self.names.iter().position(|name| *name == one.stage).expect("a stage of this world");
            let since = one.since.map_or(0, |since| since as Micros);
            let here = |(due, id): &&(Micros, i64)| *due >= since && self.row(*id).stage == stage;
            let paused: Vec<(Micros, i64)> =
                self.paused.iter().filter(here).take(one.rows as usize + 1).copied().collect();
            for (place, (due, id)) in paused.into_iter().enumerate() {
                if due > now {
                    due_in = Some(due_in.map_or(due - now, |other| other.min(due - now)));
                } else if place < one.rows as usize {
                    self.make_pending(id, now, Herald::Reply);
                    rows.push((one.stage.clone(), id));
                } else {
                    more.push((one.stage.clone(), due as i64));
                }
            }
        }
        Reply::Swept { rows, more, due_in }
    }

    /// What a job that is neither Connect nor Lock does, and its reply.
    pub fn perform(&mut self, job: &Job, now: Micros) -> Reply {
        match job {
            Job::Connect | Job::Lock | Job::Reread { .. } => panic!("not the queue's"),
            Job::Claim { demand, touched, skip_locked, survey } => {
                self.claim(demand, touched, *skip_locked, *survey, now)
            }
            Job::Reconcile { held } => {
                let held: BTreeSet<(i64, i64)> = held.iter().map(|claim| (claim.id, claim.claim)).collect();
                let running: Vec<i64> = self.running.iter().copied().collect();
                let mut passed = Vec::new();
                for id in running {
                    let (claim, is_locked) = (self.claim_of(id), self.locked == Some(id));
                    let is_forgotten = held.range((id, claim.claim + 1)..=(id, i64::MAX)).next().is_some();
                    if is_locked && !is_forgotten && !held.contains(&(id, claim.claim)) {
                        passed.push(claim);
                    } else if !held.contains(&(id, claim.claim)) {
                        self.make_pending(id, now, Herald::Reply);
                    }
                }
                for (id, claim) in held {
                    // Its number was forgotten, and must not be given to another worker.
                    let row = self.row_mut(id);
                    row.claims = row.claims.max(claim);
                }
                Reply::Reconciled(passed)
            }
            Job::FindStrays { held } => {
                let is_held = |id: i64| held.iter().any(|claim| *claim == self.claim_of(id));
                let strays = self.running.iter().filter(|id| !is_held(**id)).map(|id| Stray {
                    stage: self.names[self.row(*id).stage].clone(),
                    row: self.claim_of(*id),
                    strikes: self.row(*id).strikes,
                });
                Reply::Strays(strays.collect())
            }
            Job::Requeue { rows } => {
                for claim in rows {
                    if self.fence(*claim) {
                        self.make_pending(claim.id, now, Herald::Reply);
                    }
                }
                Reply::Done
            }
            Job::Pause { row, pause, .. } => {
                if self.fence(*row) {
                    self.pause(row.id, now + pause);
                }
                Reply::Done
            }
            Job::Strike { row, strikes, pause, .. } => {
                if self.fence(*row) {
                    self.row_mut(row.id).strikes = *strikes;
                    self.pause(row.id, now + pause);
                }
                Reply::Done
            }
            Job::Condemn { row, blame, .. } => {
                if self.fence(*row) {
                    let crashed = *blame == crate::machine::Blame::Crashed;
                    self.set(row.id, if crashed { Status::Failed } else { Status::TimedOut });
                }
                Reply::Done
            }
            Job::Fail { row, .. } => {
                if self.fence(*row) {
                    self.set(row.id, Status::Failed);
                }
                Reply::Done
            }
            Job::Sweep { stages } => self.sweep(stages, now),
            Job::Flush(deltas) => {
                self.flush(deltas);
                Reply::Done
            }
            Job::CollectBodies { .. } => Reply::Done,
        }
    }

    fn flush(&mut self, deltas: &Deltas) {
        self.flushed.executed += deltas.executed;
        self.flushed.failed += deltas.failed;
        self.flushed.serialization_failures += deltas.serialization_failures;
        assert!(deltas.answered.windows(2).all(|pair| pair[0] < pair[1]), "an id is flushed twice");
        for id in &deltas.answered {
            let row = self.row_mut(*id);
            if row.status == Status::Gone {
                assert!(!std::mem::replace(&mut row.is_counted, true), "row {id} is finished twice");
            }
        }
    }
}
