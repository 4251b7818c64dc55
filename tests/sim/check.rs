//! What must hold at every step, by the simulation's own books: `Machine::held` equals the ledger at every turn, every
//! write about a row is the one that it owes, and every action is one that the requirements allow at that moment.

use super::books::{Debt, Place};
use super::process::Process;
use super::world::{MILLI, SECOND, World};
use crate::machine::fair::Ask;
use crate::machine::fair::share::MAX_LEAD;
use crate::machine::{Action, Announcement, Claim, Demand, Job, Micros, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// A round rests no longer than ten seconds, and the claim that goes on with it may take a while to come.
const REST: Micros = 14 * SECOND;

impl World {
    pub fn after_word(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get(&id) else { return };
        assert!(
            !process.distrusted || process.killed_at.is_some(),
            "a worker that breaks the protocol lives"
        );
    }

    pub fn before_action(&mut self, action: &Action, turn: bool) {
        match action {
            Action::Job(job) => {
                assert!(turn, "a job is issued at a turn");
                self.check_job(job);
            }
            Action::Spawn { stage, program, queue_limit, .. } => {
                let stage = self.names.iter().position(|name| name == stage).expect("a stage that exists");
                let live = self.processes.values().filter(|process| process.stage == stage).count();
                let spec = &self.specs[stage];
                assert!(self.life.reload.has(stage), "a worker is started for a stage that is not there");
                assert_eq!((program, *queue_limit), (&spec.program, spec.queue_limit));
                assert!(live < spec.parallelism as usize, "more workers than PARALLELISM");
                assert!(self.life.stopping.is_none(), "a worker is started while stopping");
                assert!(self.now >= self.life.cooling[stage], "a worker is started in a cooldown");
            }
            Action::Send { worker, rows } => self.check_send(*worker, rows),
            Action::Close { worker } => {
                let process = self.processes.get_mut(worker).expect("a worker that is there");
                assert!(process.asked_to_close.replace(self.now).is_none(), "closed twice");
                let stopping = self.life.stopping.is_some() || self.life.given_up;
                assert!(stopping || process.outstanding.is_empty(), "closed while it works");
            }
            Action::Halt { worker } => self.check_halt(*worker, turn),
            Action::Continue { worker } => self.check_continue(*worker),
            Action::Kill { worker } => self.check_kill(*worker, turn),
            Action::Log { message, .. } => assert!(!message.is_empty() && !message.contains('\n')),
            Action::Announce(kind) => {
                // The stop may be the machine's own decision.
                if *kind == Announcement::Stopping && self.life.stopping.is_none() {
                    self.life.given_up = true;
                    self.life.troubled = true;
                }
            }
            Action::Exit { code } => self.check_exit(*code),
        }
    }

    fn check_send(&mut self, worker: WorkerId, rows: &[Claim]) {
        let now = self.now;
        let process = self.processes.get_mut(&worker).expect("a worker that is there");
        assert!(process.known_ready && !process.distrusted, "sent before ready");
        assert!(!process.retired, "sent to a worker with old values");
        assert!(
            process.asked_to_close.is_none() && process.closed_at.is_none() && process.killed_at.is_none()
        );
        assert!(process.halt.is_none() && process.ghosts.is_empty(), "sent while it stands still");
        if process.outstanding.is_empty() {
            process.head_since = now;
        }
        for claim in rows {
            let entry = self.life.ledger.get_mut(claim).expect("a row that is ours");
            assert_eq!(entry.place, Place::Kept, "{claim:?} is sent twice");
            assert_eq!(entry.stage, process.stage, "{claim:?} is sent to another stage");
            entry.place = Place::Sent(worker);
            process.outstanding.push_back(*claim);
        }
        process.handed_out += rows.len() as u32;
        let spec = &self.specs[process.stage];
        assert!(process.outstanding.len() <= spec.queue_limit as usize, "more ids than QUEUE_LIMIT");
        assert!(process.handed_out <= spec.max_messages, "more ids than MAX_MESSAGES");
        let struck = process.outstanding.iter().any(|claim| self.life.ledger[claim].strikes > 0);
        assert!(!struck || process.outstanding.len() == 1, "a row with strikes is not alone");
    }

    /// Only behind a head that is stuck, and one worker at a time.
    fn check_halt(&mut self, id: WorkerId, turn: bool) {
        let now = self.now;
        let stands = |process: &Process| process.halt.is_some() && process.killed_at.is_none();
        assert!(turn && self.life.stopping.is_none() && !self.processes.values().any(stands));
        let process = self.processes.get_mut(&id).expect("a worker that is there");
        assert!(process.claims && process.known_ready && !process.distrusted && process.ghosts.is_empty());
        assert!(
            process.asked_to_close.is_none() && process.closed_at.is_none() && process.killed_at.is_none()
        );
        assert!(process.outstanding.len() > 1 && self.specs[process.stage].parallelism > 1);
        let average = self.life.average[process.stage].expect("something was answered here");
        assert!(now >= process.head_since + SECOND.max(10 * average), "its head is not stuck: {process:?}");
        process.halt = Some((now, process.outstanding[0]));
        process.halted = None;
    }

    fn check_continue(&mut self, id: WorkerId) {
        let back = self.life.ledger.values().any(|entry| entry.place == Place::Withdrawn(id));
        assert!(!back, "a worker goes on and its rows are not known to be back");
        let process = self.processes.get_mut(&id).expect("a worker that is there");
        process.halt.take().expect("a worker that stands still");
        if let Some(since) = process.halted.take() {
            process.head_since += self.now - process.head_since.max(since);
        }
    }

    /// All that is behind a head which was unanswered when its worker had stopped.
    fn check_withdrawal(&mut self, id: WorkerId, rows: &[Claim]) {
        self.note("job: withdrawal");
        let process = self.processes.get_mut(&id).expect("a worker that is there");
        assert!(process.halted.is_some() && process.killed_at.is_none() && process.closed_at.is_none());
        let (_, head) = process.halt.expect("a worker that stands still");
        assert_eq!(process.outstanding.pop_front(), Some(head), "its head is answered");
        assert!(process.outstanding.iter().eq(rows), "{rows:?} of {:?}", process.outstanding);
        process.ghosts = std::mem::take(&mut process.outstanding);
        process.outstanding.push_back(head);
        for row in rows {
            self.life.ledger.get_mut(row).expect("a row that is ours").place = Place::Withdrawn(id);
        }
    }

    /// Before a write takes effect: a row that is taken from a worker has not been begun there.
    pub fn check_withdrawn(&self, job: &Job) {
        let Job::Requeue { rows } = job else { return };
        for row in rows {
            if let Some(Place::Withdrawn(worker)) = self.life.ledger.get(row).map(|entry| entry.place) {
                assert!(!self.is_run(*row), "worker {worker:?} works on {row:?}, which goes back");
            }
        }
    }

    fn check_kill(&mut self, id: WorkerId, turn: bool) {
        let now = self.now;
        let stopping =
            self.life.given_up || self.life.stopping.is_some_and(|since| !turn || now >= since + 3 * SECOND);
        let process = self.processes.get_mut(&id).expect("a worker that is there");
        assert!(process.killed_at.replace(now).is_none(), "killed twice");
        if process.distrusted {
            return;
        }
        // Timers are judged at a turn alone.
        let overdue = turn && is_overdue(process, now, self.specs[process.stage].max_runtime);
        let outstayed = turn && outstayed(process, now);
        assert!(overdue || outstayed || stopping, "killed for nothing: {process:?}");
        if overdue {
            process.overdue = process.outstanding.front().copied();
        }
        process.stopped = !overdue && !outstayed;
    }

    fn check_job(&mut self, job: &Job) {
        self.note(match job {
            Job::Connect => "job: connect",
            Job::Lock => "job: lock",
            Job::Reconcile { .. } => "job: reconcile",
            Job::FindStrays { .. } => "job: find strays",
            Job::Claim { skip_locked: true, .. } => "job: claim around locks",
            Job::Claim { .. } => "job: claim",
            Job::Requeue { rows } if rows.len() > 1 => "job: requeue of many",
            Job::Requeue { .. } => "job: requeue",
            Job::Pause { .. } => "job: pause",
            Job::Strike { .. } => "job: strike",
            Job::Condemn { .. } => "job: condemn",
            Job::Fail { .. } => "job: fail",
            Job::Sweep { .. } => "job: sweep",
            Job::Flush(_) => "job: flush",
            Job::CollectBodies { .. } => "job: bodies",
            Job::Reread { .. } => "job: reread",
        });
        let life = &mut self.life;
        life.other_jobs += 1;
        match job {
            Job::Connect | Job::Lock => {}
            Job::Claim { demand, touched, .. } => {
                life.claims += 1;
                life.other_jobs -= 1;
                assert!(life.reconciled, "a claim before the reconcile");
                assert!(life.stopping.is_none() && !life.given_up, "a claim while stopping");
                life.last_demand = demand.clone();
                self.check_claim(demand, touched);
            }
            Job::Reconcile { .. } => {}
            Job::Requeue { rows } => {
                let place = |row: &Claim| self.life.ledger.get(row).map(|entry| entry.place);
                if let Some(Place::Sent(worker)) = rows.first().and_then(place) {
                    return self.check_withdrawal(worker, rows);
                }
                for row in rows {
                    self.check_write(*row, Debt::Requeue, 0);
                }
            }
            Job::Pause { row, pause, .. } => {
                assert!((30 * SECOND..=38 * SECOND).contains(pause));
                self.check_write(*row, Debt::Pause, 0);
            }
            Job::Strike { row, strikes, pause, blame, .. } => {
                assert!(*strikes < 3 && *pause == 60 * SECOND * u64::from(*strikes));
                self.check_write(*row, Debt::Strike(*blame), *strikes);
            }
            Job::Condemn { row, strikes, blame, .. } => {
                assert_eq!(*strikes, 3);
                self.check_write(*row, Debt::Strike(*blame), *strikes);
            }
            Job::Fail { row, .. } => self.check_write(*row, Debt::Fail, 0),
            Job::FindStrays { .. } | Job::Sweep { .. } | Job::Flush(_) | Job::CollectBodies { .. } => {}
            Job::Reread { asked } => {
                assert!(life.stopping.is_none() && !life.given_up, "a rereading while stopping");
                life.reload.issued(*asked);
            }
        }
    }

    /// Nothing that the machine was told of may lie below its floor and not be looked up, and nothing at all for longer than
    /// POLL_INTERVAL; what it was told of in general, not for longer than a round may rest.
    fn check_claim(&mut self, demand: &[Demand], touched: &[i64]) {
        let asked: BTreeSet<&String> = demand.iter().map(|want| &want.stage).collect();
        assert_eq!(asked.len(), demand.len(), "a stage is asked for twice");
        let all = self.names.iter().enumerate().filter(|(stage, _)| self.life.reload.has(*stage));
        assert!(all.clone().all(|(_, name)| asked.contains(name)), "a stage is left out");
        for want in demand {
            let Ask { capacity, floor, .. } = want.ask;
            if capacity == 0 {
                continue;
            }
            let stage = all.clone().find(|(_, name)| **name == want.stage);
            let (stage, _) = stage.expect("a claim for a stage that is not there");
            assert!(self.now >= self.life.held[stage], "a claim for a stage whose database is in trouble");
            let spec = &self.specs[stage];
            let kept = self
                .life
                .ledger
                .values()
                .filter(|entry| entry.stage == stage && !matches!(entry.place, Place::Owes(_)));
            let room = spec.parallelism * spec.queue_limit;
            assert!(capacity as usize + kept.count() <= room as usize, "more than the pool can hold");
            for id in self.database.pending[stage].range(..floor) {
                let row = self.database.row(*id);
                let told = row.told_at.is_some() && !touched.contains(id);
                assert!(!told, "row {id} is hidden by the floor {floor}: {row:?}");
                let rests = row.exposed_at.is_none_or(|at| self.now < at + REST);
                let hidden = self.now - row.pending_since;
                assert!(hidden < self.settings.poll_interval && rests, "row {id} is hidden for {hidden}");
            }
        }
    }

    fn check_write(&mut self, row: Claim, debt: Debt, strikes: u32) {
        let entry =
            self.life.ledger.get_mut(&row).unwrap_or_else(|| panic!("{row:?} is written about and not ours"));
        match entry.place {
            Place::Owes(owed) => assert_eq!(owed, debt, "{row:?}"),
            Place::Kept => assert_eq!(debt, Debt::Requeue, "{row:?} was sent to nobody"),
            Place::Sent(worker) | Place::Withdrawn(worker) => {
                panic!("{row:?} is written about while worker {worker:?} has it")
            }
        }
        if let Debt::Strike(_) = debt {
            assert_eq!(strikes, entry.strikes + 1, "{row:?}");
        }
        entry.place = Place::Owes(debt);
    }

    fn check_exit(&mut self, code: u8) {
        self.note(match (code, self.life.troubled, self.life.ledger.is_empty()) {
            (78, _, _) if self.life.reload.malformed => "exit: a configuration that does not parse",
            (0, false, _) => "exit: in peace",
            (0, true, true) => "exit: in trouble, all written",
            (0, true, false) => "exit: in trouble, rows left",
            (78, _, _) => "exit: another schema",
            _ => "exit: error",
        });
        let life = &self.life;
        assert!(life.stopping.is_some() || life.given_up, "it ended by itself");
        let (failure, end) = (life.fatal.unwrap_or(1), if life.reload.malformed { 78 } else { 0 });
        assert_eq!(code, if life.stopping.is_some() && !life.given_up { end } else { failure });
        if let Some(since) = life.stopping {
            // A dispatcher that is blocked in a statement meanwhile is ended by its alarm.
            let blocked = if self.profile.asynchronous { 0 } else { 6 * SECOND };
            let ran = life.stalled.map_or(since, |stalled| stalled.max(since));
            assert!(self.now <= ran + 5_500 * MILLI + blocked, "the end took {}", self.now - since);
        }
        for process in self.processes.values() {
            assert!(process.killed_at.is_some(), "a worker is left behind");
        }
        // One that stood still as it was to end has no time left for what it owes.
        let cut_short = life.stopping.is_some_and(|since| life.stalled.is_some_and(|until| until > since));
        if !life.troubled && !cut_short && self.processes.is_empty() {
            assert!(life.ledger.is_empty(), "rows are left: {:?}", life.ledger);
            assert!(self.database.running.is_empty(), "rows stay running: {:?}", self.database.running);
            life.books_balance();
        }
    }

    /// A process that the kernel cannot end keeps its rows no longer than ten seconds.
    pub fn before_turn(&mut self) {
        let mut gone = Vec::new();
        for (id, process) in &self.processes {
            let killed = process.killed_at.map(|at| at.max(process.broken_at.unwrap_or(0)));
            if !process.outstanding.is_empty() && killed.is_some_and(|at| self.now >= at + 10 * SECOND) {
                gone.push(*id);
            }
        }
        for id in gone {
            self.buried(id, None);
        }
    }

    pub fn after_turn(&mut self, actions: usize) {
        let Some(machine) = &self.machine else { return };
        let mut held = machine.held();
        held.sort_unstable();
        assert!(held.windows(2).all(|pair| pair[0] != pair[1]), "a row is held twice");
        assert!(held.iter().eq(self.life.ledger.keys()), "held {held:?}, but {:?}", self.life.ledger);
        if self.settings.fair {
            let mut unsettled: BTreeSet<(i64, i64)> = machine.fair().unsettled().collect();
            for (claim, entry) in &self.life.ledger {
                let is_charged = unsettled.remove(&(claim.id, claim.claim));
                match entry.place {
                    Place::Sent(_) | Place::Withdrawn(_) => {
                        assert!(is_charged, "{claim:?} is settled while it is with a worker")
                    }
                    Place::Owes(_) => assert!(!is_charged, "{claim:?} has left and is not settled"),
                    // It may be about to go back.
                    Place::Kept => {}
                }
            }
            assert!(unsettled.is_empty(), "charges without a row: {unsettled:?}");
        }
        self.check_owners();
        if actions == 0 {
            self.check_shares();
        }
        let deadline = machine.deadline();
        self.check_retired();
        if actions == 0 {
            assert!(deadline.is_none_or(|at| at > self.now), "it spins");
        }
        for process in self.processes.values() {
            let limit = self.specs[process.stage].max_runtime;
            let late = is_overdue(process, self.now, limit) || outstayed(process, self.now);
            assert!(process.killed_at.is_some() || !late, "nobody ends {process:?}");
            if let Some((since, _)) = process.halt.filter(|_| process.killed_at.is_none()) {
                // A statement may take three seconds, and one that was lost gets twelve to end.
                let failed = self.life.failed_at.is_some_and(|at| at >= since);
                let limit = if failed { 20 * SECOND } else { 8 * SECOND };
                assert!(self.now < since + limit, "nobody continues {process:?}");
            }
        }
        if actions == 0 {
            self.check_prompt();
        }
    }

    /// Every running row is somebody's: in the books, or answered and not moved. And whatever is kept here runs for us.
    fn check_owners(&self) {
        let life = &self.life;
        if life.locked && life.reconciled && self.job.is_none() {
            for id in &self.database.running {
                let claim = self.database.claim_of(*id);
                let known = life.ledger.contains_key(&claim) || life.done.contains(&claim);
                assert!(known, "{claim:?} runs for nobody");
            }
        }
        for (claim, entry) in life.ledger.iter().filter(|_| !life.is_disowned) {
            let ours = match entry.place {
                Place::Kept => self.database.fence(*claim),
                // Its worker may have moved it on, and it was claimed again before the answer was heard.
                Place::Sent(_) | Place::Withdrawn(_) | Place::Owes(_) => {
                    self.database.row(claim.id).claims >= claim.claim
                }
            };
            assert!(ours, "{claim:?} is not ours: {entry:?} {:?}", self.database.row(claim.id));
        }
    }

    /// Each sender has as many messages running at a stage as there are charges that are not settled, and no lead beyond
    /// its bound.
    fn check_shares(&self) {
        let Some(machine) = self.machine.as_ref().filter(|_| self.settings.fair) else { return };
        let mut running: BTreeMap<(usize, &str), u32> = BTreeMap::new();
        for (id, claim) in machine.fair().unsettled() {
            let stage = self.life.ledger[&Claim { id, claim }].stage;
            *running.entry((stage, self.database.row(id).sender)).or_default() += 1;
        }
        for stage in 0..self.names.len() {
            let Some(place) = machine.place(&self.names[stage]) else { continue };
            for (name, sender) in machine.fair().senders(place) {
                let expected = running.remove(&(stage, name.as_str())).unwrap_or(0);
                assert_eq!(sender.running, expected, "messages of {name} at stage {stage}");
                assert!(sender.lead <= MAX_LEAD, "a lead of {}", sender.lead);
            }
        }
        assert!(running.is_empty(), "charged to nobody: {running:?}");
    }

    /// While nothing is wrong, nothing that can be claimed waits for a stage that has nothing to do, and nothing that
    /// is due sleeps on.
    fn check_prompt(&mut self) {
        let life = &self.life;
        let wrong = life.failed_at.is_some_and(|at| self.now < at + 40 * SECOND);
        let open = life.locked && life.reconciled && life.stopping.is_none() && !life.given_up;
        if self.job.is_some() || wrong || !open {
            return;
        }
        if self.check_reloads() {
            return;
        }
        let life = &self.life;
        let poll = self.settings.poll_interval;
        for (stage, pending) in self.database.pending.iter().enumerate() {
            if !life.reload.has(stage) {
                continue;
            }
            let cooling = life.cooling[stage].max(life.useless[stage]);
            let resting = self.now < life.held[stage] || self.now < cooling + 30 * SECOND;
            if pending.is_empty() || resting || self.is_busy(stage) {
                continue;
            }
            for id in pending {
                let row = self.database.row(*id);
                let since = row.pending_since.max(life.reload.since(stage));
                let missed = self.now > since + poll + SECOND;
                let rests = row.exposed_at.is_none_or(|at| self.now < at + REST);
                assert!(row.told_at.is_none() && rests && !missed, "row {id} waits for nothing: {row:?}");
            }
        }
        // What is due is heard of in the reply to a claim, and there is none while every stage is full. A stage that has
        // something to do need not have its due rows yet, and those that were swept and not seen are awaited for a minute.
        let claims = (0..self.names.len()).any(|stage| !self.is_busy(stage) && self.now >= life.held[stage]);
        // Nothing is missed while the dispatcher does not run.
        let awake = life.stalled.unwrap_or(0);
        let late = |due: Micros| self.now >= due.max(awake) + 2 * poll + 61 * SECOND;
        let overdue = self.database.paused.iter().take_while(|(due, _)| late(*due));
        for (_, id) in overdue.filter(|_| claims) {
            let row = self.database.row(*id);
            let is_new = self.now < life.reload.since(row.stage) + 2 * poll + 61 * SECOND;
            if is_new || !life.reload.has(row.stage) {
                continue;
            }
            let waits = self.is_busy(row.stage) || !self.database.pending[row.stage].is_empty();
            assert!(waits || self.now < life.held[row.stage], "row {id} sleeps on: {row:?}");
        }
        self.note("promptness is checked");
    }

    /// Whether the stage has rows, or workers that take none and are not gone yet.
    fn is_busy(&self, stage: usize) -> bool {
        let limit = self.specs[stage].max_messages;
        let leaving = |process: &Process| {
            let closed = process.asked_to_close.is_some() || process.closed_at.is_some();
            closed || process.killed_at.is_some() || process.retired || process.handed_out >= limit
        };
        let resting = |process: &Process| leaving(process) || !process.ghosts.is_empty();
        self.processes.values().any(|process| process.stage == stage && resting(process))
            || self
                .life
                .ledger
                .values()
                .any(|entry| entry.stage == stage && !matches!(entry.place, Place::Owes(_)))
    }

    /// All is done: nothing is owed, nothing runs, every figure is written.
    pub fn check_end(&self) {
        assert_eq!(self.database.unfinished, 0);
        assert!(self.life.ledger.is_empty(), "rows are owed: {:?}", self.life.ledger);
        assert!(self.processes.is_empty(), "workers are left: {:?}", self.processes);
        self.life.books_balance();
    }
}

/// Its head has had MAX_RUNTIME. A worker whose output ended, or that is stopping, has limits of its own.
fn is_overdue(process: &Process, now: Micros, limit: Micros) -> bool {
    let working = process.known_ready && process.closed_at.is_none() && process.asked_to_close.is_none();
    let waits = !process.outstanding.is_empty() || !process.ghosts.is_empty();
    working && waits && process.halted.is_none() && now >= process.head_since + limit
}

/// It did not start in time, ignores that its input is closed, or closed its output and lives.
fn outstayed(process: &Process, now: Micros) -> bool {
    let over = |since: Option<Micros>, limit: Micros| since.is_some_and(|at| now >= at + limit);
    if process.asked_to_close.is_some() {
        return over(process.asked_to_close, 10 * SECOND);
    }
    if process.closed_at.is_some() {
        return over(process.closed_at, SECOND);
    }
    !process.known_ready && now >= process.born + 30 * SECOND
}
