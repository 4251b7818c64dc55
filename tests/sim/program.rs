//! What a simulated worker process is: its words, its nature, how its messages end, and what is known of it.

use crate::machine::{Claim, Exit, Micros};
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
    pub input: VecDeque<Claim>,
    pub input_closed: bool,
    pub ready: bool,
    pub run: Option<(u64, Claim, How)>,
    pub runs: u64,
    pub alive: bool,
    /// It said that it compares claims.
    pub claims: bool,
    /// How often it was told to stop.
    pub halts: u64,
    /// Stopped by the kernel, and the run that would have finished meanwhile.
    pub frozen: bool,
    pub late: Option<u64>,
    pub quiet: bool,
    pub last_word: Micros,
    // What the machine has been told of it.
    pub outstanding: VecDeque<Claim>,
    /// What was withdrawn from it and is not answered.
    pub ghosts: VecDeque<Claim>,
    /// Since when it is told to stop, its head then, and since when it is known to have stopped.
    pub halt: Option<(Micros, Claim)>,
    pub halted: Option<Micros>,
    pub head_since: Micros,
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
}

impl Process {
    pub fn new(stage: usize, nature: Nature, claims: bool, now: Micros) -> Process {
        Process {
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
            last_word: now,
            outstanding: VecDeque::new(),
            ghosts: VecDeque::new(),
            halt: None,
            halted: None,
            head_since: 0,
            born: now,
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
        }
    }

    /// It broke the protocol: nothing that it says counts any more.
    pub fn distrust(&mut self, now: Micros) {
        self.distrusted = true;
        self.broken_at.get_or_insert(now);
    }
}
