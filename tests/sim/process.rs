//! Simulated workers: programs that work, are slow, crash, hang, talk out of turn, or refuse to run or to end.

use super::database::{Status, Temper};
use super::world::{Happening, MILLI, SECOND, World};
use crate::machine::{Claim, Exit, Micros, WorkerId};
use std::collections::VecDeque;

/// What a process says, or what the kernel says of it.
#[derive(Clone, Debug)]
pub enum Word {
    SpawnFailed,
    Ready,
    /// `about` is the claim it means; None: it was asked nothing.
    Answer {
        status: u8,
        about: Option<Claim>,
        report: Vec<(String, Micros)>,
    },
    Garbage,
    Closed,
    /// It has stopped, as it was told that time.
    Halted(u64),
    Exited(Exit),
}

impl Word {
    /// An answer to nothing.
    pub fn nothing_asked() -> Word {
        Word::Answer { status: 0, about: None, report: Vec::new() }
    }
}

/// How a program behaves from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    Normal,
    Unstartable,
    DiesEarly(Exit),
    NeverReady,
    AnswersEarly,
    GarbageEarly,
    ClosesEarly,
    /// Ready, then exit 78 as soon as it has an id.
    Refuses,
    /// Ready, and ends some time later, mostly without a row.
    DiesIdle(Exit),
    ReadyTwice,
    IgnoresClose,
    /// SIGKILL takes long.
    Unkillable,
}

/// How one message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Commit,
    /// Commits the passes of so many stages more.
    Fused(u32),
    /// Commits `failed`, answers 1.
    CommitFailed,
    /// Answers 1 and commits nothing.
    SayFailed,
    /// Commits a pause (a host fault), answers 0.
    CommitPause,
    Say(u8),
    /// Answers 0 and commits nothing.
    Lie,
    CrashBefore(Exit),
    CrashAfter(Exit),
    Hang,
    Garbage,
    Twice,
    CloseAlive,
}

#[derive(Clone, Debug)]
pub struct Process {
    pub stage: usize,
    pub nature: Nature,
    input: VecDeque<Claim>,
    input_closed: bool,
    ready: bool,
    pub run: Option<(u64, Claim, How)>,
    runs: u64,
    pub alive: bool,
    /// It said that it compares claims.
    pub claims: bool,
    /// How often it was told to stop.
    pub halts: u64,
    /// Stopped by the kernel, and the run that would have finished meanwhile.
    pub frozen: bool,
    pub late: Option<u64>,
    pub quiet: bool,
    last_word: Micros,
    // What the machine has been told of it.
    pub outstanding: VecDeque<Claim>,
    /// What was withdrawn from it and is not answered.
    pub ghosts: VecDeque<Claim>,
    /// Since when it is told to stop, its head then, and since when it is known to have stopped.
    pub halt: Option<(Micros, Claim)>,
    pub halted: Option<Micros>,
    pub head_since: Micros,
    /// So many answers of one burst are still to be heard.
    pub burst: u32,
    pub born: Micros,
    pub known_ready: bool,
    pub answered: bool,
    pub distrusted: bool,
    pub closed_at: Option<Micros>,
    pub asked_to_close: Option<Micros>,
    pub killed_at: Option<Micros>,
    /// It was killed because the dispatcher ends.
    pub stopped: bool,
    pub broken_at: Option<Micros>,
    pub overdue: Option<Claim>,
    pub handed_out: u32,
    /// The configuration was read again: it gets nothing more.
    pub retired: bool,
}

impl Process {
    /// It broke the protocol: nothing that it says counts any more.
    /// The share of the next answer in the time since the last one.
    pub fn share(&mut self, now: Micros) -> Micros {
        let left = Micros::from(self.burst.max(1));
        let share = (now - self.head_since) / left;
        self.head_since = if left == 1 { now } else { self.head_since + share };
        self.burst = self.burst.saturating_sub(1);
        share
    }

    pub fn distrust(&mut self, now: Micros) {
        self.distrusted = true;
        self.broken_at.get_or_insert(now);
    }
}

impl World {
    pub fn spawn(&mut self, id: WorkerId, stage: usize) {
        let prng = &mut self.prng;
        let exits =
            [Exit::Code(1), Exit::Code(78), Exit::Code(74), Exit::Code(75), Exit::Signal(9), Exit::Code(0)];
        let nature = if prng.chance(self.profile.natures) {
            match prng.below(11) {
                0 => Nature::Unstartable,
                10 => Nature::DiesIdle(prng.pick(&exits)),
                1 | 2 => Nature::DiesEarly(prng.pick(&exits)),
                3 => Nature::NeverReady,
                4 => Nature::AnswersEarly,
                5 => Nature::GarbageEarly,
                6 => Nature::ClosesEarly,
                7 => Nature::Refuses,
                8 => Nature::ReadyTwice,
                _ => prng.pick(&[Nature::IgnoresClose, Nature::Unkillable]),
            }
        } else {
            Nature::Normal
        };
        let claims = self.every_worker_says_claims || self.prng.chance(800);
        let process = Process {
            stage,
            nature,
            input: VecDeque::new(),
            input_closed: false,
            ready: false,
            run: None,
            runs: 0,
            alive: true,
            claims,
            halts: 0,
            frozen: false,
            late: None,
            quiet: false,
            last_word: self.now,
            outstanding: VecDeque::new(),
            ghosts: VecDeque::new(),
            halt: None,
            halted: None,
            head_since: 0,
            burst: 0,
            born: self.now,
            known_ready: false,
            answered: false,
            distrusted: false,
            closed_at: None,
            asked_to_close: None,
            killed_at: None,
            stopped: false,
            broken_at: None,
            overdue: None,
            handed_out: 0,
            retired: false,
        };
        self.note(match nature {
            Nature::Normal => "nature: normal",
            Nature::Unstartable => "nature: unstartable",
            Nature::DiesEarly(_) => "nature: dies early",
            Nature::NeverReady => "nature: never ready",
            Nature::AnswersEarly => "nature: answers early",
            Nature::GarbageEarly => "nature: garbage early",
            Nature::ClosesEarly => "nature: closes early",
            Nature::Refuses => "nature: refuses",
            Nature::DiesIdle(_) => "nature: dies idle",
            Nature::ReadyTwice => "nature: ready twice",
            Nature::IgnoresClose => "nature: ignores close",
            Nature::Unkillable => "nature: unkillable",
        });
        let fresh = self.processes.insert(id, process).is_none();
        assert!(fresh, "worker {id:?} is started twice");
        let wait = self.prng.between(MILLI, 60 * MILLI);
        match nature {
            Nature::Unstartable => {
                self.processes.get_mut(&id).expect("just put in").alive = false;
                self.say(id, Word::SpawnFailed);
            }
            Nature::NeverReady => {}
            Nature::DiesEarly(exit) => self.after(wait, Happening::Dies(id, exit)),
            Nature::Normal
            | Nature::AnswersEarly
            | Nature::GarbageEarly
            | Nature::ClosesEarly
            | Nature::Refuses
            | Nature::DiesIdle(_)
            | Nature::ReadyTwice
            | Nature::IgnoresClose
            | Nature::Unkillable => {
                // A database that is down or full keeps a worker from getting ready.
                let exit = if self.outage { 74 } else { 75 };
                if self.outage || self.overload {
                    self.after(wait, Happening::Dies(id, Exit::Code(exit)));
                } else {
                    self.after(wait, Happening::GetsReady(id));
                }
            }
        }
    }

    /// Puts a word on its way: in order, and a little late.
    pub fn say(&mut self, id: WorkerId, word: Word) {
        let delay =
            if self.prng.chance(5) { self.prng.between(0, 20 * MILLI) } else { self.prng.between(10, 200) };
        let Some(process) = self.processes.get_mut(&id) else { return };
        let at = process.last_word.max(self.now + delay);
        process.last_word = at;
        self.at(at, Happening::Hear(id, word));
    }

    pub fn gets_ready(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive) else { return };
        let nature = process.nature;
        process.ready = true;
        match nature {
            Nature::AnswersEarly => self.say(id, Word::nothing_asked()),
            Nature::GarbageEarly => self.say(id, Word::Garbage),
            Nature::ClosesEarly => {
                self.say(id, Word::Closed);
                return;
            }
            Nature::ReadyTwice => self.say(id, Word::Ready),
            Nature::DiesIdle(exit) => {
                let wait = self.prng.between(0, SECOND);
                self.after(wait, Happening::Dies(id, exit));
            }
            Nature::Normal
            | Nature::Refuses
            | Nature::IgnoresClose
            | Nature::Unkillable
            | Nature::Unstartable
            | Nature::DiesEarly(_)
            | Nature::NeverReady => {}
        }
        self.say(id, Word::Ready);
        self.work(id);
    }

    pub fn feed(&mut self, id: WorkerId, rows: &[Claim]) {
        let process = self.processes.get_mut(&id).expect("a worker that is there");
        process.input.extend(rows);
        self.work(id);
    }

    pub fn close(&mut self, id: WorkerId) {
        self.processes.get_mut(&id).expect("a worker that is there").input_closed = true;
        self.work(id);
    }

    /// Takes the next id, if it is free to.
    pub fn work(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive) else { return };
        if !process.ready || process.run.is_some() || process.quiet || process.frozen {
            return;
        }
        let Some(claim) = process.input.pop_front() else {
            if process.input_closed && process.nature != Nature::IgnoresClose {
                if self.prng.chance(self.profile.words) {
                    self.say(id, Word::nothing_asked());
                }
                self.dies(id, Exit::Code(0));
            }
            return;
        };
        if process.nature == Nature::Refuses {
            self.dies(id, Exit::Code(78));
            return;
        }
        let (how, time) = self.choose(id, claim);
        let process = self.processes.get_mut(&id).expect("it is there");
        process.runs += 1;
        let run = process.runs;
        process.run = Some((run, claim, how));
        self.after(time, Happening::Finishes(id, run));
    }

    fn choose(&mut self, id: WorkerId, claim: Claim) -> (How, Micros) {
        let stage = self.processes[&id].stage;
        let service = self.profile.service;
        let time = self.prng.between(service / 2, service * 3 / 2);
        let row = self.database.row(claim.id);
        // A worker looks at the row first; without a valid claim it does nothing and answers 0.
        if !self.database.fence(claim) {
            return (How::Commit, time);
        }
        match row.temper {
            Temper::Poison(at) if at == stage => return (How::CrashBefore(Exit::Signal(11)), time),
            Temper::Tar(at) if at == stage => return (How::Hang, time),
            Temper::Hopeless(at) if at == stage => {
                return (if claim.id % 2 == 0 { How::CommitFailed } else { How::SayFailed }, time);
            }
            Temper::Good if self.prng.chance(self.profile.fusion) => {
                let left = (self.names.len() - 1 - stage) as u64;
                return (How::Fused(self.prng.between(0, left.min(3)) as u32), time);
            }
            Temper::Good | Temper::Poison(_) | Temper::Tar(_) | Temper::Hopeless(_) => {}
        }
        if !self.prng.chance(self.profile.words) {
            return (How::Commit, time);
        }
        let exit = self.prng.pick(&[
            Exit::Code(1),
            Exit::Code(0),
            Exit::Code(74),
            Exit::Code(75),
            Exit::Code(78),
            Exit::Signal(9),
            Exit::Signal(11),
        ]);
        let limit = self.specs[stage].max_runtime;
        let how = match self.prng.below(14) {
            0 => How::CommitPause,
            1 => How::Say(74),
            2 => How::Say(75),
            3 => How::Lie,
            4 | 5 => How::CrashBefore(exit),
            6 => How::CrashAfter(exit),
            7 => How::Hang,
            8 => How::Garbage,
            9 => How::Twice,
            10 => How::CloseAlive,
            // Slow, at times so slow that it is killed just when it is done.
            _ => return (How::Commit, self.prng.between(limit / 2, limit + limit / 8)),
        };
        (how, time)
    }

    pub fn finishes(&mut self, id: WorkerId, run: u64) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive) else { return };
        let Some((number, claim, how)) = process.run.filter(|(number, _, _)| *number == run) else { return };
        if process.frozen {
            process.late = Some(run);
            return;
        }
        assert_eq!(number, run);
        process.run = None;
        self.note(match how {
            How::Commit => "run: commit",
            How::Fused(_) => "run: fused",
            How::CommitFailed | How::SayFailed => "run: failed",
            How::CommitPause => "run: pause",
            How::Say(_) => "run: database status",
            How::Lie => "run: lie",
            How::CrashBefore(_) => "run: crash before commit",
            How::CrashAfter(_) => "run: crash after commit",
            How::Hang => "run: hang",
            How::Garbage => "run: garbage",
            How::Twice => "run: answers twice",
            How::CloseAlive => "run: closes alive",
        });
        let answer = |status: u8| Word::Answer { status, about: Some(claim), report: Vec::new() };
        // Without its database a worker can only say so, or die of it.
        let commits = matches!(
            how,
            How::Commit
                | How::Fused(_)
                | How::CommitFailed
                | How::CommitPause
                | How::Twice
                | How::CrashAfter(_)
        );
        if commits && (self.outage || self.overload) {
            let status = if self.outage { 74 } else { 75 };
            if claim.claim % 2 == 0 {
                self.dies(id, Exit::Code(i32::from(status)));
                return;
            }
            self.say(id, answer(status));
            self.work(id);
            return;
        }
        match how {
            How::Commit => {
                self.commit(id, claim);
                self.say(id, answer(0));
            }
            How::Fused(more) => {
                let report = self.fuse(id, claim, more);
                self.say(id, Word::Answer { status: 0, about: Some(claim), report });
            }
            How::Twice => {
                self.commit(id, claim);
                self.say(id, answer(0));
                self.say(id, answer(0));
            }
            How::CommitFailed => {
                if self.database.fence(claim) {
                    self.database.set(claim.id, Status::Failed);
                }
                self.say(id, answer(1));
            }
            How::SayFailed => self.say(id, answer(1)),
            How::CommitPause => {
                if self.database.fence(claim) {
                    let until = self.now + self.prng.between(SECOND, 60 * SECOND);
                    self.database.pause(claim.id, until);
                }
                self.say(id, answer(0));
            }
            How::Say(status) => self.say(id, answer(status)),
            How::Lie => self.say(id, answer(0)),
            How::CrashBefore(exit) => return self.dies(id, exit),
            How::CrashAfter(exit) => {
                self.commit(id, claim);
                return self.dies(id, exit);
            }
            How::Hang => {
                self.processes.get_mut(&id).expect("it is there").run = Some((u64::MAX, claim, how));
                return;
            }
            How::Garbage => {
                self.say(id, Word::Garbage);
                self.processes.get_mut(&id).expect("it is there").quiet = true;
                return;
            }
            How::CloseAlive => {
                self.say(id, Word::Closed);
                self.processes.get_mut(&id).expect("it is there").quiet = true;
                return;
            }
        }
        self.work(id);
    }

    /// The stage's effect: on to the next, at times with a sibling.
    pub fn commit(&mut self, id: WorkerId, claim: Claim) {
        let stage = self.database.row(claim.id).stage;
        if self.database.advance(claim, id, self.now) && self.prng.chance(self.profile.siblings) {
            let sibling = self.database.insert(stage, Temper::Good);
            self.database.row_mut(sibling).is_sibling = true;
            let herald = super::database::Herald::Worker(id, claim);
            self.database.make_pending(sibling, self.now, herald);
        }
    }

    /// Several stages in one pass, and what the worker reports of them; not every report is one to believe.
    fn fuse(&mut self, id: WorkerId, claim: Claim, more: u32) -> Vec<(String, Micros)> {
        let stage = self.database.row(claim.id).stage;
        if !self.database.advance_by(claim, 1 + more, id, self.now) {
            return Vec::new();
        }
        let time = self.prng.pick(&[0, 1, self.profile.service / 4, Micros::MAX]);
        let fused = (stage + 1..).take(more as usize).map(|stage| (self.names[stage].clone(), time));
        let mut report: Vec<(String, Micros)> = fused.collect();
        if self.prng.chance(50) {
            report.push(("nowhere".to_owned(), MILLI));
        }
        report
    }

    pub fn dies(&mut self, id: WorkerId, exit: Exit) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive) else { return };
        process.alive = false;
        if self.prng.chance(500) {
            self.say(id, Word::Closed);
        }
        self.say(id, Word::Exited(exit));
    }
}
