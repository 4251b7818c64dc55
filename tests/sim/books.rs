//! The simulation's own books: where each claim is, and what each worker's word or end makes of it.
//!
//! The ledger follows each claim from the reply that brought it to the answer or the write that ended it, by the rules
//! of the requirements (E1-E6, R3, L1, O1) and not by the machine's code.

use super::database::Herald;
use super::process::{Process, Word};
use super::reloads::Reloads;
use super::world::{SECOND, World};
use crate::machine::{Blame, Claim, Deltas, Demand, Exit, Fault, Job, Micros, Reply, Stray, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// Where a claimed row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// With the machine, sent to nobody.
    Kept,
    Sent(WorkerId),
    /// Being written back while this worker stands still.
    Withdrawn(WorkerId),
    Owes(Debt),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debt {
    Requeue,
    Pause,
    Fail,
    Strike(Blame),
}

#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub place: Place,
    pub strikes: u32,
    pub stage: usize,
}

/// The books about one run of the dispatcher.
pub struct Life {
    pub ledger: BTreeMap<Claim, Entry>,
    pub connected: bool,
    pub locked: bool,
    pub reconciled: bool,
    pub stopping: Option<Micros>,
    /// A job failed, or the database was away, since the stop began.
    pub troubled: bool,
    pub given_up: bool,
    /// When it was started, or its last standstill is over.
    pub stalled: Option<Micros>,
    /// Rows may have been taken from it behind its back: another dispatcher's start, or commits that were forgotten.
    pub is_disowned: bool,
    /// The code that it has to end with for what it was told.
    pub fatal: Option<u8>,
    /// The last time a job failed.
    pub failed_at: Option<Micros>,
    truth: Deltas,
    written: Deltas,
    stages: Vec<StageTruth>,
    /// No worker may be started for the stage before then (P5, E5, E6).
    pub cooling: Vec<Micros>,
    /// The time of a message, by stage.
    pub average: Vec<Option<Micros>>,
    /// As long as a stage may rest after a worker that neither was handed a row nor answered one.
    pub useless: Vec<Micros>,
    /// The stage may not be claimed before then (O1).
    pub held: Vec<Micros>,
    pub claims: u64,
    pub other_jobs: u64,
    pub last_demand: Vec<Demand>,
    pub reload: Reloads,
    /// What is notified reaches the dispatcher, now or later.
    pub listens: bool,
    /// The telemetry switch was thrown, and workers from before may still be at work.
    pub telemetry_at: Option<Micros>,
    /// Claims that were answered with 0 over this connection, and rows that turned out to be left running by such an answer.
    pub done: BTreeSet<Claim>,
    strayed: BTreeSet<(usize, i64)>,
    /// Rows that were answered, and of which no flush has asked yet whether they are finished.
    to_finish: BTreeSet<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StageTruth {
    messages: u64,
    time: Micros,
    timeouts: u64,
    crashes: u64,
}

impl Life {
    pub fn new(stages: usize) -> Life {
        Life {
            ledger: BTreeMap::new(),
            connected: false,
            locked: false,
            reconciled: false,
            stopping: None,
            troubled: false,
            given_up: false,
            stalled: None,
            is_disowned: false,
            fatal: None,
            failed_at: None,
            truth: Deltas::default(),
            written: Deltas::default(),
            stages: vec![StageTruth::default(); stages],
            cooling: vec![0; stages],
            average: vec![None; stages],
            useless: vec![0; stages],
            held: vec![0; stages],
            claims: 0,
            other_jobs: 0,
            last_demand: Vec::new(),
            reload: Reloads::new(stages),
            // It listens before it reads its configuration.
            listens: true,
            telemetry_at: None,
            done: BTreeSet::new(),
            strayed: BTreeSet::new(),
            to_finish: BTreeSet::new(),
        }
    }

    pub fn terminated(&mut self, now: Micros, busy: bool) {
        if self.stopping.is_none() {
            self.stopping = Some(now);
            self.troubled = busy || !self.locked;
        }
    }

    fn owe(&mut self, claim: Claim, debt: Debt) {
        let entry = self.ledger.get_mut(&claim).expect("a claim of this life");
        entry.place = Place::Owes(debt);
    }

    /// Nothing is counted that is not written or declared lost.
    pub fn books_balance(&self) {
        assert!(self.to_finish.is_empty(), "nobody asks whether these are finished: {:?}", self.to_finish);
        assert_eq!(self.truth.executed, self.written.executed, "stages_executed");
        assert_eq!(self.truth.failed, self.written.failed, "messages_failed");
        assert_eq!(
            self.truth.serialization_failures, self.written.serialization_failures,
            "serialization_failures"
        );
        assert!(
            self.stages.iter().all(|stage| *stage == StageTruth::default()),
            "stage_stats: {:?}",
            self.stages
        );
    }
}

impl World {
    /// Whether the machine should hear it at all; the books are kept.
    pub fn before_word(&mut self, id: WorkerId, word: &Word) -> bool {
        let now = self.now;
        let steps = self.steps;
        let Some(process) = self.processes.get_mut(&id) else { return false };
        match word {
            Word::Ready => {
                let done = process.asked_to_close.is_some()
                    || process.closed_at.is_some()
                    || process.killed_at.is_some();
                if process.known_ready && !done {
                    process.distrust(now);
                }
                if !done {
                    process.known_ready = true;
                }
                process.head_since = now;
            }
            Word::Garbage => {
                if process.distrusted {
                    // Nothing more is read of it.
                    return false;
                }
                process.distrust(now);
            }
            Word::Closed => {
                process.closed_at.get_or_insert(now);
            }
            Word::Answer { status, about, report } => {
                if process.distrusted {
                    return true;
                }
                let spent = process.share(now);
                let Some(head) = process.outstanding.pop_front() else {
                    if process.ghosts.pop_front().is_some() {
                        self.note("a ghost is answered");
                    } else {
                        process.distrust(now);
                    }
                    return true;
                };
                let stage = process.stage;
                process.answered = true;
                if *about == Some(head) {
                    self.told(id, head, steps);
                }
                self.answered(head, stage, *status, spent, report);
            }
            Word::Halted(halt) => {
                // After a Continue it is not reported any more.
                process.halted = process.halt.filter(|_| process.halts == *halt).map(|_| now);
                return process.halted.is_some();
            }
            Word::Exited(exit) => {
                self.buried(id, Some(*exit));
                self.processes.remove(&id);
            }
            Word::SpawnFailed => {
                self.buried(id, None);
                self.processes.remove(&id);
            }
        }
        true
    }

    fn answered(
        &mut self,
        head: Claim,
        stage: usize,
        status: u8,
        spent: Micros,
        report: &[(String, Micros)],
    ) {
        match status {
            74 => {
                self.life.owe(head, Debt::Pause);
                self.life.held[stage] = self.now + SECOND;
            }
            75 => {
                self.life.owe(head, Debt::Requeue);
                self.life.held[stage] = self.now + SECOND;
            }
            _ => {
                self.life.truth.executed += 1;
                let average = &mut self.life.average[stage];
                *average = Some(average.map_or(spent, |average| average - average / 8 + spent / 8));
                self.life.stages[stage].messages += 1;
                self.life.stages[stage].time += self.fused(stage, spent, report);
                self.life.to_finish.insert(head.id);
                if status == 0 {
                    self.life.ledger.remove(&head);
                    self.life.done.insert(head);
                } else {
                    self.life.truth.failed += 1;
                    self.life.owe(head, Debt::Fail);
                }
            }
        }
    }

    /// Each reported stage has its own time, and the claimed one what is left (R1).
    fn fused(&mut self, stage: usize, spent: Micros, report: &[(String, Micros)]) -> Micros {
        let mut left = spent;
        for (name, time) in report {
            let is_known = self.machine.as_ref().is_some_and(|machine| machine.place(name).is_some());
            let fused = self.names.iter().position(|other| is_known && other == name);
            let Some(fused) = fused else { continue };
            let time = (*time).min(self.specs[stage].max_runtime);
            self.life.stages[fused].messages += 1;
            self.life.stages[fused].time += time;
            left = left.saturating_sub(time);
        }
        left
    }

    /// What became pending with that claim is known to the machine now.
    fn told(&mut self, id: WorkerId, claim: Claim, steps: u64) {
        for stage in 0..self.names.len() {
            let pending: Vec<i64> = self.database.pending[stage].range(claim.id..).copied().collect();
            for row in pending {
                let row = self.database.row_mut(row);
                if row.herald == Herald::Worker(id, claim) {
                    row.told_at.get_or_insert(steps);
                }
            }
        }
    }

    /// A worker is gone: what its rows owe by E2-E6, R3, L1 and O1.
    pub fn buried(&mut self, id: WorkerId, exit: Option<Exit>) {
        let process = self.processes.get_mut(&id).expect("it is there");
        let rows: Vec<Claim> = process.outstanding.drain(..).collect();
        let process = process.clone();
        let steps = self.steps;
        self.slow_down(&process, exit);
        let Some(head) = rows.first().copied() else { return };
        let debt = debt(&process, head, exit);
        for claim in rows {
            self.told(id, claim, steps);
            self.note(match debt {
                Debt::Strike(Blame::Crashed) => "end: crash",
                Debt::Strike(Blame::TimedOut) => "end: hang",
                Debt::Requeue => "end: innocent",
                Debt::Pause => "end: database lost",
                Debt::Fail => unreachable!("no end fails a row"),
            });
            let own = match debt {
                Debt::Strike(_) if claim != head => Debt::Requeue,
                Debt::Strike(_) | Debt::Requeue | Debt::Pause | Debt::Fail => debt,
            };
            self.life.owe(claim, own);
        }
        if let Debt::Strike(blame) = debt {
            let truth = &mut self.life.stages[process.stage];
            match blame {
                Blame::Crashed => truth.crashes += 1,
                Blame::TimedOut => truth.timeouts += 1,
            }
            if self.life.ledger[&head].strikes == 2 {
                self.life.truth.failed += 1;
            }
        }
    }

    /// What a worker's end means for its stage.
    fn slow_down(&mut self, process: &Process, exit: Option<Exit>) {
        // A worker that is asked to end may end as it likes, but not break the protocol.
        if process.stopped || (process.asked_to_close.is_some() && !process.distrusted) {
            return;
        }
        let by_itself = process.killed_at.is_none();
        let refused = by_itself && exit == Some(Exit::Code(78)) && !process.answered;
        let database = by_itself && matches!(exit, Some(Exit::Code(74 | 75)));
        if !process.known_ready || refused {
            self.life.cooling[process.stage] = self.now + SECOND;
        }
        if !process.answered && process.outstanding.is_empty() {
            self.life.useless[process.stage] = self.now + SECOND;
        }
        if process.known_ready && database {
            self.life.held[process.stage] = self.now + SECOND;
        }
    }

    pub fn before_reply(&mut self, job: &Job, reply: &Reply) {
        if let Reply::Fatal { code, .. } = reply {
            self.life.fatal = Some(*code);
            self.life.troubled = true;
        }
        if let Reply::Fault(fault) = reply {
            self.life.troubled = true;
            self.life.failed_at = Some(self.now);
            if matches!(job, Job::Reread { .. }) {
                self.life.reload.failed(self.now, matches!(fault, Fault::Lost(_)));
            }
            if let Job::Requeue { rows } = job {
                self.not_withdrawn(rows);
            }
            match fault {
                Fault::Lost(_) => {
                    if let Job::Flush(deltas) = job {
                        self.count_written(deltas);
                    }
                }
                Fault::Conflict(_) => self.life.truth.serialization_failures += 1,
                Fault::Overloaded(_) | Fault::Refused(_) => {}
            }
            return;
        }
        match (job, reply) {
            (Job::Claim { .. }, Reply::Rows { rows, .. }) => {
                for row in rows {
                    let stage =
                        self.names.iter().position(|name| *name == row.stage).expect("a stage that exists");
                    let entry = Entry { place: Place::Kept, strikes: row.strikes, stage };
                    assert!(self.life.ledger.insert(row.row, entry).is_none());
                }
            }
            (Job::Lock, Reply::Locked) => {
                self.life.reconciled = false;
                self.life.done.clear();
                self.told_all();
            }
            (Job::Reconcile { .. }, Reply::Reconciled(rows)) => {
                self.life.reconciled = true;
                self.passed_over(rows);
                self.told_all();
            }
            (Job::FindStrays { .. }, Reply::Strays(rows)) => rows.iter().for_each(|row| self.strayed(row)),
            (Job::Sweep { .. }, Reply::Swept { rows, .. }) => {
                let steps = self.steps;
                for (_, id) in rows {
                    self.database.row_mut(*id).told_at = Some(steps);
                }
            }
            (Job::Requeue { rows }, _) => rows.iter().for_each(|row| self.settled(*row)),
            (
                Job::Pause { row, .. }
                | Job::Strike { row, .. }
                | Job::Condemn { row, .. }
                | Job::Fail { row, .. },
                _,
            ) => self.settled(*row),
            (Job::Flush(deltas), _) => self.count_written(deltas),
            (Job::Connect, Reply::Connected) => self.reconnected(),
            (Job::Reread { .. }, reply) => self.reread(reply),
            _ => {}
        }
    }

    /// A row that was answered and not moved: it goes back once, and then takes a strike.
    fn strayed(&mut self, stray: &Stray) {
        let claim = stray.row;
        assert!(self.life.done.remove(&claim), "{claim:?} is no stray");
        // It may have moved on since it was found.
        let stage = self.names.iter().position(|name| *name == stray.stage).expect("a stage of this world");
        let is_known = self.machine.as_ref().is_some_and(|machine| machine.place(&stray.stage).is_some());
        let debt = if is_known && !self.life.strayed.insert((stage, claim.id)) {
            self.life.stages[stage].crashes += 1;
            self.life.truth.failed += u64::from(stray.strikes == 2);
            self.note("stray: struck");
            Debt::Strike(Blame::Crashed)
        } else {
            self.note("stray: freed");
            Debt::Requeue
        };
        let entry = Entry { place: Place::Owes(debt), strikes: stray.strikes, stage };
        assert!(self.life.ledger.insert(claim, entry).is_none());
    }

    /// What was to be written back and is not is the worker's again, if it is there.
    fn not_withdrawn(&mut self, rows: &[Claim]) {
        for row in rows {
            let entry = self.life.ledger.get_mut(row).expect("a claim that is ours");
            let Place::Withdrawn(worker) = entry.place else { continue };
            entry.place = Place::Owes(Debt::Requeue);
            let process = self.processes.get_mut(&worker).filter(|process| process.killed_at.is_none());
            let Some(process) = process else { continue };
            if process.ghosts.contains(row) {
                process.ghosts.retain(|ghost| ghost != row);
                process.outstanding.push_back(*row);
                entry.place = Place::Sent(worker);
            }
        }
        self.note("a withdrawal fails");
    }

    /// A write is done: the claim is over, and whatever came of the row is known.
    fn settled(&mut self, claim: Claim) {
        self.life.ledger.remove(&claim).expect("a claim that is ours");
        let steps = self.steps;
        for stage in 0..self.names.len() {
            let pending: Vec<i64> = self.database.pending[stage].range(claim.id..).copied().collect();
            for id in pending {
                let row = self.database.row_mut(id);
                if id == claim.id || matches!(row.herald, Herald::Worker(_, of) if of == claim) {
                    row.told_at.get_or_insert(steps);
                }
            }
        }
    }

    fn count_written(&mut self, deltas: &Deltas) {
        for id in &deltas.answered {
            assert!(self.life.to_finish.remove(id), "row {id} was not answered");
        }
        self.life.written.executed += deltas.executed;
        self.life.written.failed += deltas.failed;
        self.life.written.serialization_failures += deltas.serialization_failures;
        for delta in &deltas.stages {
            let stage = self.names.iter().position(|name| *name == delta.stage).expect("a stage that exists");
            let truth = &mut self.life.stages[stage];
            // What is left in the books is what is not written yet; below zero would be counted twice.
            truth.messages = truth.messages.checked_sub(delta.messages).expect("messages");
            truth.time = truth.time.checked_sub(delta.processing_us).expect("processing_us");
            truth.timeouts = truth.timeouts.checked_sub(delta.timeouts).expect("timeouts");
            truth.crashes = truth.crashes.checked_sub(delta.crashes).expect("crashes");
        }
    }
}

fn debt(process: &Process, head: Claim, exit: Option<Exit>) -> Debt {
    if process.stopped {
        return Debt::Requeue;
    }
    if let Some(overdue) = process.overdue {
        return if overdue == head { Debt::Strike(Blame::TimedOut) } else { Debt::Requeue };
    }
    if process.killed_at.is_some() {
        return Debt::Strike(Blame::Crashed);
    }
    if process.asked_to_close.is_some() {
        return Debt::Requeue;
    }
    match exit {
        Some(Exit::Code(78)) if !process.answered => Debt::Requeue,
        Some(Exit::Code(74)) => Debt::Pause,
        Some(Exit::Code(75)) => Debt::Requeue,
        Some(Exit::Code(_) | Exit::Signal(_)) | None => Debt::Strike(Blame::Crashed),
    }
}
