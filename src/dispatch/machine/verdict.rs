//! What a worker's answer or end means for its rows (requirements R3, E1-E6, L1, O1): the one way out of a pipeline.
//!
//! Every row that leaves passes `answered` or `fell`, which tell where it may be now and what it has used (F2); it either is
//! done or owes a write.

use super::fair::End;
use super::journal::Cause;
use super::strike::{LAST_STRIKE, sentence};
use super::worker::{Deed, Input, Row, Verdict, Why};
use super::writes::What;
use super::{Action, Blame, Exit, Machine, Micros, Severity, Stray, WorkerId};
use std::collections::VecDeque;

/// How long a row waits whose worker lost the database (L1), before the spread of E8.
const LOST_PAUSE: Micros = 30_000_000;

/// A worker's end, as the pool saw it.
struct Fall {
    sent: VecDeque<Row>,
    unsent: VecDeque<Row>,
    /// How long the head had been the head.
    spent: Micros,
    verdict: Verdict,
    /// Why it ended, in words.
    text: String,
    refused: bool,
    /// Nobody had asked it to.
    unasked: bool,
}

impl Machine {
    /// One event of one worker; a worker that is gone has none any more.
    pub(super) fn worker(&mut self, id: WorkerId, input: Input) {
        let Some((stage, index)) = self.locate(id) else { return };
        let worker = &mut self.stages[stage].workers[index];
        let input = match input {
            Input::Answer { .. } if worker.sent.is_empty() => {
                if worker.ghosts.is_empty() {
                    Input::Surplus
                } else {
                    Input::Echo
                }
            }
            other => other,
        };
        match worker.meet(self.now, &input) {
            Deed::Nothing | Deed::Welcome => {}
            Deed::Take => self.answered(stage, index, input),
            Deed::Forget => {
                worker.forget(self.now);
                self.claims.want();
            }
            Deed::Close => self.actions.push(Action::Close { worker: id }),
            Deed::Release => self.release(stage, index),
            Deed::Dismiss => {
                self.release(stage, index);
                self.actions.push(Action::Close { worker: id });
            }
            Deed::Kill(why) => self.kill(stage, index, why),
            Deed::Settle => {
                let end = self.take_rows(stage, index, None);
                self.log(Severity::Error, Some(stage), "a worker was killed and does not die".to_owned());
                self.fell(stage, end);
            }
            Deed::Bury => self.bury(stage, index, input),
        }
    }

    /// Where a worker is: its stage, and its place there.
    pub(super) fn locate(&self, id: WorkerId) -> Option<(usize, usize)> {
        let find = |stage: &super::pool::Stage| stage.workers.iter().position(|worker| worker.id == id);
        self.stages.iter().enumerate().find_map(|(stage, pool)| Some((stage, find(pool)?)))
    }

    fn release(&mut self, stage: usize, index: usize) {
        self.stages[stage].release(index);
        self.claims.want();
    }

    fn kill(&mut self, stage: usize, index: usize, why: Why) {
        let worker = &self.stages[stage].workers[index];
        let text = worker.obituary(None);
        self.actions.push(Action::Kill { worker: worker.id });
        let level = match why {
            Why::Late | Why::Hung | Why::Deaf | Why::Silent | Why::Garbled => Severity::Warning,
            Why::Stopped => Severity::Info,
        };
        self.log_often(level, Some(stage), Cause::Kill, format!("killing a worker: {text}"));
    }

    fn bury(&mut self, stage: usize, index: usize, input: Input) {
        let exit = if let Input::Exited(exit) = input { Some(exit) } else { None };
        let workers = self.census();
        let mut end = self.take_rows(stage, index, exit);
        if let Input::Unstartable(error) = input {
            end.text = format!("it cannot be started: {error}");
        }
        if !self.stages[stage].workers.remove(index).ended_well() {
            end.unasked = self.stop.is_none();
            self.upkeep.suspect(self.now);
        }
        self.fell(stage, end);
        if exit == Some(Exit::Code(75)) && self.stop.is_none() {
            self.press(&workers);
        }
    }

    fn take_rows(&mut self, stage: usize, index: usize, exit: Option<Exit>) -> Fall {
        let worker = &mut self.stages[stage].workers[index];
        let verdict = worker.verdict(exit);
        worker.ghosts.clear();
        Fall {
            spent: worker.spent(self.now),
            text: worker.obituary(exit),
            refused: exit == Some(Exit::Code(78)),
            unasked: false,
            verdict,
            sent: std::mem::take(&mut worker.sent),
            unsent: std::mem::take(&mut worker.unsent),
        }
    }

    /// The head was answered.
    fn answered(&mut self, stage: usize, index: usize, input: Input) {
        let Input::Answer { status, report } = input else { return };
        let Some((row, spent)) = self.stages[stage].workers[index].take(self.now) else { return };
        let id = row.claim.id;
        self.claims.touch(id);
        match status {
            74 => {
                self.claims.fair.settle(self.now, row.claim.key(), End::Burned(spent));
                self.pause_lost(stage, &row);
                self.hold(stage, Cause::DatabaseLost, format!("message {id}: its worker lost the database"));
            }
            75 => {
                self.requeue(row.claim);
                self.hold(stage, Cause::Overloaded, format!("message {id}: the database is overloaded"));
                let workers = self.census();
                self.press(&workers);
            }
            status => {
                self.stages[stage].answered(spent);
                self.claims.fair.measured(stage, spent);
                self.claims.fair.settle(self.now, row.claim.key(), End::Ran(spent));
                let fused = self.known(stage, report);
                self.stats.pass(&self.stages[stage].spec.name, id, spent, &fused);
                self.upkeep.executed(self.now);
                if status != 0 {
                    let error = format!("the stage failed with status {status}");
                    self.log(Severity::Warning, Some(stage), format!("message {id}: {error}"));
                    self.stats.failed();
                    self.writes.push(row.claim, What::Fail { error });
                }
            }
        }
    }

    /// The report without stages that have no section, and no time in it longer than the pass may be.
    fn known(&mut self, stage: usize, mut report: Vec<(String, Micros)>) -> Vec<(String, Micros)> {
        let longest = self.stages[stage].spec.max_runtime;
        let all = report.len();
        report.retain(|(name, _)| self.stages.iter().any(|pool| pool.spec.name == *name));
        if report.len() < all {
            let text = "a worker reports a stage that no section names".to_owned();
            self.log_often(Severity::Warning, Some(stage), Cause::Report, text);
        }
        for (_, time) in &mut report {
            *time = (*time).min(longest);
        }
        report
    }

    /// A worker is gone, or as good as gone, and these were its rows.
    fn fell(&mut self, stage: usize, end: Fall) {
        let Fall { mut sent, unsent, spent, verdict, text, refused, unasked } = end;
        for row in sent.iter().chain(&unsent) {
            self.claims.touch(row.claim.id);
        }
        self.claims.want();
        match verdict {
            Verdict::Innocent => {
                let level = if unasked { Severity::Warning } else { Severity::Debug };
                self.log_often(level, Some(stage), Cause::End, format!("a worker ended: {text}"));
            }
            Verdict::Unready => self.cool(stage, &text, refused),
            Verdict::Lost => {
                for row in sent.drain(..) {
                    self.claims.fair.settle(self.now, row.claim.key(), End::Unrun);
                    self.pause_lost(stage, &row);
                }
                self.hold(stage, Cause::DatabaseLost, "a worker lost the database".to_owned());
            }
            Verdict::Overloaded => {
                self.hold(stage, Cause::Overloaded, "a worker found the database overloaded".to_owned());
            }
            Verdict::Blame(blame) => {
                if let Some(head) = sent.pop_front() {
                    let used = match blame {
                        Blame::Crashed => spent,
                        Blame::TimedOut => self.stages[stage].spec.max_runtime,
                    };
                    self.claims.fair.settle(self.now, head.claim.key(), End::Burned(used));
                    self.strike(stage, head, blame, &text);
                }
                for row in &sent {
                    self.strikes.add(row.claim.id);
                }
            }
        }
        for row in sent.iter().chain(&unsent) {
            self.requeue(row.claim);
        }
    }

    fn cool(&mut self, stage: usize, text: &str, refused: bool) {
        self.stages[stage].cool(self.now);
        let message = if refused {
            format!("a worker refused to run (its configuration, or the schema of another release): {text}")
        } else {
            format!("a worker did not get ready: {text}")
        };
        self.log_often(Severity::Error, Some(stage), Cause::Start, message);
    }

    fn hold(&mut self, stage: usize, cause: Cause, text: String) {
        self.stages[stage].hold(self.now);
        self.log_often(Severity::Warning, Some(stage), cause, text);
    }

    fn pause_lost(&mut self, stage: usize, row: &Row) {
        let pause = self.chance.spread(LOST_PAUSE);
        let error = format!("stage {}: the database connection was lost", self.stages[stage].spec.name);
        self.writes.push(row.claim, What::Pause { pause, error });
    }

    /// The one write and the one count for a head whose worker crashed or hung.
    fn strike(&mut self, stage: usize, row: Row, blame: Blame, text: &str) {
        let id = row.claim.id;
        let count = row.strikes.saturating_add(1);
        let doing = match blame {
            Blame::Crashed => "crashed",
            Blame::TimedOut => "timed out",
        };
        let error = format!("worker of stage {} {doing}: {text}", self.stages[stage].spec.name);
        let name = self.stages[stage].spec.name.clone();
        self.stats.strike(&name, blame);
        let level = if count >= LAST_STRIKE { Severity::Error } else { Severity::Warning };
        self.log(level, Some(stage), format!("message {id}: strike {count} of {LAST_STRIKE}: {error}"));
        if count >= LAST_STRIKE {
            self.stats.failed();
        }
        self.writes.push(row.claim, sentence(row.strikes, blame, error));
    }

    /// A row that its worker answered for and did not move. The first time it goes back: the answer may have been meant for
    /// another row of that pipeline, or a crash of the server have forgotten what the worker did; it is next handed out alone.
    /// After that it is a strike, or the row would go round for ever.
    pub(super) fn stray(&mut self, stray: Stray) {
        let Stray { stage: name, row: claim, strikes } = stray;
        let stage = self.stages.iter().position(|stage| stage.spec.name == name);
        match stage {
            Some(stage) if self.strikes.strayed(claim.id, &name) => {
                let text = "it said that it was done and did not move the message";
                self.strike(stage, Row { claim, strikes, alone: true }, Blame::Crashed, text);
            }
            Some(_) | None => {
                let text =
                    format!("message {}: its worker said that it was done and left it running", claim.id);
                self.log_often(Severity::Warning, stage, Cause::Stray, text);
                self.strikes.add(claim.id);
                self.requeue(claim);
            }
        }
    }

    /// The workers of each stage, whatever their state.
    fn census(&self) -> Vec<u32> {
        self.stages.iter().map(super::pool::Stage::live).collect()
    }

    /// The database has too many connections: the stage with the most workers gives some back (O1).
    fn press(&mut self, workers: &[u32]) {
        let Some((stage, cap)) = self.pressure.report(self.now, workers) else { return };
        let text = format!("the database is overloaded: at most {cap} workers here for five minutes");
        self.log(Severity::Warning, Some(stage), text);
        for worker in self.stages[stage].surplus(cap) {
            self.worker(worker, Input::Retire);
        }
    }
}
