//! One worker process: its life cycle as one table of state and event, its pipeline, its time limits, and what its end
//! says about the rows it held.
//!
//! Invariants: `sent` is in the order of the one write to the worker, so its front is the head; the clock of the head
//! starts when it gets there (E4); a row that must be alone is never sent beside another; nothing is sent before
//! `ready` (R1). A worker in any state is a process and counts against PARALLELISM.

use super::{Blame, Claim, Exit, Micros, StageSpec, WorkerId};
use std::collections::VecDeque;

/// A worker that is not ready by then is ended without a strike.
const START_LIMIT: Micros = 30_000_000;
/// After its input was closed.
const CLOSE_LIMIT: Micros = 10_000_000;
/// After its output ended: the exit is usually on its way.
const MUTE_LIMIT: Micros = 1_000_000;
/// After SIGKILL: a process that the kernel cannot end keeps no rows for longer.
const DEATH_LIMIT: Micros = 10_000_000;

/// A row that is running for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) claim: Claim,
    pub(super) strikes: u32,
    /// Handed out alone: it has strikes, or was in the pipeline of a worker that died.
    pub(super) alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not ready yet.
    Starting,
    /// Takes ids.
    Up,
    /// Takes no more, finishes what it has.
    Retiring,
    /// Its input is closed.
    Closing,
    /// Its output ended, or its input broke.
    Mute,
    /// Killed; what it wrote before still counts.
    Dying,
    /// Killed for breaking the protocol; nothing it wrote counts.
    Broken,
}

/// What happens to a worker.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Ready {
        claims: bool,
    },
    /// It answered its head.
    Answer {
        status: u8,
        report: Vec<(String, Micros)>,
    },
    /// It answered, and was asked nothing.
    Surplus,
    /// It answered an id that was withdrawn from it.
    Echo,
    Garbage(String),
    Closed,
    Exited(Exit),
    Unstartable(String),
    /// The time its state may last is over.
    Expired,
    /// Its head has run for MAX_RUNTIME.
    Overdue,
    /// It had nothing to do for WORKER_IDLE_TIMEOUT.
    Idle,
    /// Its pipeline is empty.
    Drained,
    /// It is not wanted any more.
    Retire,
    /// The dispatcher ends.
    Stop,
    /// The dispatcher ends, and the time to finish is over.
    Kill,
}

/// Why a worker was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Late,
    Hung,
    Deaf,
    Silent,
    Garbled,
    Stopped,
}

/// What the pool does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Nothing,
    /// It may be sent what waits for it.
    Welcome,
    /// The head is answered.
    Take,
    /// One of its ghosts is answered.
    Forget,
    Close,
    /// What was not sent goes back to its stage.
    Release,
    /// Both.
    Dismiss,
    Kill(Why),
    /// Take its rows away though it is not gone.
    Settle,
    /// Take its rows away, and it is gone.
    Bury,
}

/// The whole life of a worker: nothing else changes its state.
pub(super) fn next(state: State, input: &Input) -> (State, Deed) {
    use State::{Broken, Closing, Dying, Mute, Retiring, Starting, Up};
    match (state, input) {
        (Starting, Input::Ready { .. }) => (Up, Deed::Welcome),
        (Up | Retiring, Input::Ready { .. }) => (Broken, Deed::Kill(Why::Garbled)),
        (Closing | Mute | Dying | Broken, Input::Ready { .. }) => (state, Deed::Nothing),

        (Starting, Input::Answer { .. } | Input::Echo) => (Broken, Deed::Kill(Why::Garbled)),
        (Up | Retiring | Closing | Mute | Dying, Input::Answer { .. }) => (state, Deed::Take),
        (Up | Retiring | Closing | Mute | Dying, Input::Echo) => (state, Deed::Forget),
        (Broken, Input::Answer { .. } | Input::Echo) => (state, Deed::Nothing),

        (Starting | Up | Retiring | Closing | Mute, Input::Surplus | Input::Garbage(_)) => {
            (Broken, Deed::Kill(Why::Garbled))
        }
        (Dying, Input::Surplus | Input::Garbage(_)) => (Broken, Deed::Nothing),
        (Broken, Input::Surplus | Input::Garbage(_)) => (state, Deed::Nothing),

        (Starting | Up | Retiring, Input::Closed) => (Mute, Deed::Nothing),
        (Closing | Mute | Dying | Broken, Input::Closed) => (state, Deed::Nothing),

        (
            Starting | Up | Retiring | Closing | Mute | Dying | Broken,
            Input::Exited(_) | Input::Unstartable(_),
        ) => (state, Deed::Bury),

        (Starting, Input::Expired) => (Dying, Deed::Kill(Why::Late)),
        (Up | Retiring, Input::Expired) => (state, Deed::Nothing),
        (Closing, Input::Expired) => (Dying, Deed::Kill(Why::Deaf)),
        (Mute, Input::Expired) => (Dying, Deed::Kill(Why::Silent)),
        (Dying | Broken, Input::Expired) => (state, Deed::Settle),

        (Up | Retiring, Input::Overdue) => (Dying, Deed::Kill(Why::Hung)),
        (Starting | Closing | Mute | Dying | Broken, Input::Overdue) => (state, Deed::Nothing),

        (Up, Input::Idle) => (Closing, Deed::Close),
        (Starting | Retiring | Closing | Mute | Dying | Broken, Input::Idle) => (state, Deed::Nothing),

        (Retiring, Input::Drained) => (Closing, Deed::Close),
        (Starting | Up | Closing | Mute | Dying | Broken, Input::Drained) => (state, Deed::Nothing),

        (Starting, Input::Retire) => (Closing, Deed::Dismiss),
        (Up, Input::Retire) => (Retiring, Deed::Release),
        (Retiring | Closing | Mute | Dying | Broken, Input::Retire) => (state, Deed::Nothing),

        (Starting | Up | Retiring, Input::Stop) => (Closing, Deed::Close),
        (Closing | Mute | Dying | Broken, Input::Stop) => (state, Deed::Nothing),

        (Starting | Up | Retiring | Closing | Mute, Input::Kill) => (Dying, Deed::Kill(Why::Stopped)),
        (Dying | Broken, Input::Kill) => (state, Deed::Nothing),
    }
}

/// What a worker's end says about the rows it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: they go back.
    Innocent,
    /// It never came up, or refused to run: they go back, and the stage cools down (E5, E6).
    Unready,
    /// Database lost: what it was sent is paused (L1).
    Lost,
    /// Database overloaded: they go back, and the stage is held (O1).
    Overloaded,
    /// The head takes a strike, the others go back (E2, E3).
    Blame(Blame),
}

#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) id: WorkerId,
    pub(super) state: State,
    /// When it came into that state.
    since: Micros,
    ready: bool,
    /// It compares the claim that comes with an id before it begins.
    pub(super) claims: bool,
    answered: bool,
    why: Option<Why>,
    /// What it did against the protocol.
    note: String,
    /// The head that ran for too long.
    overdue: Option<Claim>,
    pub(super) sent: VecDeque<Row>,
    pub(super) unsent: VecDeque<Row>,
    /// Ids behind the head that were withdrawn: it will answer them, and holds nothing behind them (P8).
    pub(super) ghosts: VecDeque<Claim>,
    /// It was told to stop where it is.
    pub(super) halted: bool,
    /// Since when it is known to have stopped: the time of its head stands still.
    pub(super) still: Option<Micros>,
    /// Its head takes very long.
    pub(super) stuck: bool,
    /// It is not halted again before.
    pub(super) again: Micros,
    handed_out: u32,
    /// Since when the head is the head; with no head, since when there is none.
    pub(super) turned: Micros,
    /// So many answers of one burst are still to come.
    pub(super) burst: u32,
}

impl Worker {
    pub(super) fn new(id: WorkerId, now: Micros) -> Worker {
        Worker {
            id,
            state: State::Starting,
            since: now,
            ready: false,
            claims: false,
            answered: false,
            why: None,
            note: String::new(),
            overdue: None,
            sent: VecDeque::new(),
            unsent: VecDeque::new(),
            ghosts: VecDeque::new(),
            halted: false,
            still: None,
            stuck: false,
            again: 0,
            handed_out: 0,
            turned: now,
            burst: 0,
        }
    }

    pub(super) fn holds(&self) -> u32 {
        (self.sent.len() + self.ghosts.len() + self.unsent.len()) as u32
    }

    /// Takes new ids, now or once it is ready.
    pub(super) fn is_open(&self) -> bool {
        match self.state {
            State::Starting | State::Up => true,
            State::Retiring | State::Closing | State::Mute | State::Dying | State::Broken => false,
        }
    }

    /// How many more ids it may be given; none behind a head that is stuck, or behind what was withdrawn.
    pub(super) fn slots(&self, spec: &StageSpec) -> u32 {
        if self.stuck || !self.may_be_sent() {
            return 0;
        }
        if !self.is_open() || self.sent.iter().chain(&self.unsent).any(|row| row.alone) {
            return 0;
        }
        let given = self.handed_out.saturating_add(self.unsent.len() as u32);
        let left = spec.max_messages.saturating_sub(given);
        spec.queue_limit.saturating_sub(self.holds()).min(left)
    }

    fn may_be_sent(&self) -> bool {
        !self.halted && self.ghosts.is_empty()
    }

    /// Moves to `sent` what may be sent now.
    pub(super) fn send(&mut self, now: Micros) -> Vec<Claim> {
        let mut rows = Vec::new();
        if self.state != State::Up || !self.may_be_sent() {
            return rows;
        }
        while let Some(row) = self.unsent.front() {
            if (row.alone && !self.sent.is_empty()) || self.sent.front().is_some_and(|head| head.alone) {
                break;
            }
            if self.sent.is_empty() {
                self.turned = now;
            }
            rows.push(row.claim);
            self.sent.extend(self.unsent.pop_front());
        }
        self.handed_out = self.handed_out.saturating_add(rows.len() as u32);
        rows
    }

    pub(super) fn is_worn(&self, spec: &StageSpec) -> bool {
        self.handed_out >= spec.max_messages
    }

    /// Which of its time limits has passed; judged at a turn, after all that it said was heard (E4).
    pub(super) fn overstayed(&self, now: Micros, spec: &StageSpec, idle: Micros) -> Option<Input> {
        let deadline = self.deadline(spec, idle)?;
        if now < deadline {
            return None;
        }
        Some(match self.state {
            State::Starting | State::Closing | State::Mute | State::Dying | State::Broken => Input::Expired,
            State::Up | State::Retiring => {
                if self.sent.is_empty() && self.ghosts.is_empty() {
                    Input::Idle
                } else {
                    Input::Overdue
                }
            }
        })
    }

    pub(super) fn deadline(&self, spec: &StageSpec, idle: Micros) -> Option<Micros> {
        let (from, limit) = match self.state {
            State::Starting => (self.since, START_LIMIT),
            State::Closing => (self.since, CLOSE_LIMIT),
            State::Mute => (self.since, MUTE_LIMIT),
            State::Dying | State::Broken => {
                if self.sent.is_empty() && self.unsent.is_empty() {
                    return None;
                }
                (self.since, DEATH_LIMIT)
            }
            State::Up | State::Retiring if self.still.is_some() => return None,
            State::Up | State::Retiring if !self.sent.is_empty() || !self.ghosts.is_empty() => {
                (self.turned, spec.max_runtime)
            }
            // It was given rows before it was ready: they are sent by the end of the turn.
            State::Up | State::Retiring if !self.unsent.is_empty() => return None,
            State::Up | State::Retiring => (self.turned, idle),
        };
        Some(from.saturating_add(limit))
    }

    /// Moves on by the table, and says what is to be done.
    pub(super) fn meet(&mut self, now: Micros, input: &Input) -> Deed {
        let (state, deed) = next(self.state, input);
        if let (Deed::Kill(_), Some(note)) = (deed, breach(self.state, input)) {
            self.note = note;
        }
        if state != self.state {
            self.state = state;
            self.since = now;
        }
        match deed {
            Deed::Welcome => {
                self.ready = true;
                self.claims = matches!(input, Input::Ready { claims: true });
                self.turned = now;
            }
            Deed::Kill(why) => {
                self.why = Some(why);
                if why == Why::Hung {
                    self.overdue = self.sent.front().map(|row| row.claim);
                }
            }
            Deed::Nothing
            | Deed::Take
            | Deed::Forget
            | Deed::Close
            | Deed::Release
            | Deed::Dismiss
            | Deed::Settle
            | Deed::Bury => {}
        }
        deed
    }

    /// Its head is answered: the row, and how long it was the head.
    pub(super) fn take(&mut self, now: Micros) -> Option<(Row, Micros)> {
        let row = self.sent.pop_front()?;
        let spent = self.share(now);
        self.stuck = false;
        self.answered = true;
        Some((row, spent))
    }

    /// What of the time since the last answer is this one's: that of a burst is divided evenly (R1).
    fn share(&mut self, now: Micros) -> Micros {
        let share = self.spent(now) / u64::from(self.burst.max(1));
        self.turned = if self.burst > 1 { self.turned + share } else { now };
        self.burst = self.burst.saturating_sub(1);
        share
    }

    /// It answered what was withdrawn from it.
    pub(super) fn forget(&mut self, now: Micros) {
        self.ghosts.pop_front();
        self.share(now);
    }

    /// How long its head has been the head.
    pub(super) fn spent(&self, now: Micros) -> Micros {
        now - self.turned
    }

    /// What its end means. `exit` is None when it never started, or does not die.
    pub(super) fn verdict(&self, exit: Option<Exit>) -> Verdict {
        let head = self.sent.front().map(|row| row.claim);
        // One that was handed nothing and answered nothing failed at its start, whatever it said: it must not be started
        // again at once.
        let crash = match head {
            Some(_) => Verdict::Blame(Blame::Crashed),
            None if self.answered => Verdict::Innocent,
            None => Verdict::Unready,
        };
        match self.why {
            Some(Why::Late) => Verdict::Unready,
            Some(Why::Deaf | Why::Stopped) => Verdict::Innocent,
            Some(Why::Hung) if head.is_some() && head == self.overdue => Verdict::Blame(Blame::TimedOut),
            // It answered that one after all, just before it was killed.
            Some(Why::Hung) => Verdict::Innocent,
            Some(Why::Silent | Why::Garbled) => {
                if self.ready {
                    crash
                } else {
                    Verdict::Unready
                }
            }
            None if self.state == State::Closing => Verdict::Innocent,
            None if !self.ready => Verdict::Unready,
            None => match exit {
                Some(Exit::Code(78)) if !self.answered => Verdict::Unready,
                Some(Exit::Code(74)) => Verdict::Lost,
                Some(Exit::Code(75)) => Verdict::Overloaded,
                Some(Exit::Code(_) | Exit::Signal(_)) | None => crash,
            },
        }
    }

    /// Whether it ended as it should: asked to, and by itself.
    pub(super) fn ended_well(&self) -> bool {
        self.state == State::Closing && self.why.is_none()
    }

    /// How it ended, for the log and for the row.
    pub(super) fn obituary(&self, exit: Option<Exit>) -> String {
        let end = match exit {
            Some(Exit::Code(code)) => format!("exit code {code}"),
            Some(Exit::Signal(signal)) => format!("signal {signal}"),
            None => "it does not die".to_owned(),
        };
        match self.why {
            Some(Why::Late) => "it was not ready in time".to_owned(),
            Some(Why::Hung) => "it did not answer within MAX_RUNTIME".to_owned(),
            Some(Why::Deaf) => "it did not end when its input was closed".to_owned(),
            Some(Why::Silent) => "it closed its output".to_owned(),
            Some(Why::Garbled) => format!("it broke the protocol: {}", self.note),
            Some(Why::Stopped) => "it was stopped".to_owned(),
            None => end,
        }
    }
}

/// What an input that is against the protocol says.
fn breach(state: State, input: &Input) -> Option<String> {
    match input {
        Input::Ready { .. } => Some("it said ready twice".to_owned()),
        Input::Answer { .. } | Input::Surplus | Input::Echo => Some(match state {
            State::Starting => "it answered before it was ready".to_owned(),
            State::Up | State::Retiring | State::Closing | State::Mute | State::Dying | State::Broken => {
                "it answered more often than it was asked".to_owned()
            }
        }),
        Input::Garbage(error) => Some(error.clone()),
        Input::Closed
        | Input::Exited(_)
        | Input::Unstartable(_)
        | Input::Expired
        | Input::Overdue
        | Input::Idle
        | Input::Drained
        | Input::Retire
        | Input::Stop
        | Input::Kill => None,
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
