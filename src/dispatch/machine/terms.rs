//! The terms in which the machine is spoken to: what it is told (`Event`), what it wants done (`Action`, `Job`), and what is named
//! in them.

use super::fair::{Ask, Notice};

/// Microseconds of the monotonic clock since an origin of the shell's choice.
pub type Micros = u64;

/// A worker process, never reused within one run of the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerId(pub u64);

/// A claimed row: its id, and the claim number everything about it is fenced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    pub id: i64,
    pub claim: i64,
}

impl Claim {
    pub(super) fn key(self) -> super::fair::Claim {
        (self.id, self.claim)
    }
}

/// What the machine needs to know of a `[stage-NAME]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSpec {
    pub name: String,
    pub program: String,
    pub parallelism: u32,
    pub queue_limit: u32,
    pub max_messages: u32,
    pub max_runtime: Micros,
}

/// `[pepsi-dispatch]`, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub poll_interval: Micros,
    pub stats_interval: Micros,
    pub worker_idle_timeout: Micros,
    pub fair: bool,
    pub fair_half_life: Micros,
    pub fair_fifo_percent: u32,
}

/// How a worker's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// Why a job was not done, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is gone; what was asked may have been committed all the same.
    Lost(String),
    /// Too many connections.
    Overloaded(String),
    /// Serialization failure, deadlock, lock or statement timeout: nothing was done, again later.
    Conflict(String),
    /// Refused for another reason; nothing was done.
    Refused(String),
}

/// A pending row that became running for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub stage: String,
    pub row: Claim,
    pub sender: String,
    /// `state.strikes`; a row that has any is handed out alone.
    pub strikes: u32,
}

/// A row that runs for us though nobody has it: its worker said that it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub stage: String,
    pub row: Claim,
    pub strikes: u32,
}

/// What a claim asks for one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    pub stage: String,
    pub ask: Ask,
}

/// What a sweep may move of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub stage: String,
    pub rows: u32,
    /// None was left before this time, microseconds of the database's clock; None: it is not known.
    pub since: Option<i64>,
}

/// What a strike was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    Crashed,
    TimedOut,
}

/// One unit of database work.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Connect, check the schema, LISTEN. Reply: Connected.
    Connect,
    /// Take the advisory lock; a former backend of ours that still holds it is terminated. Reply: Locked or LockHeld.
    Lock,
    /// Every running row but these back to pending (D2, D7). Reply: Reconciled.
    Reconcile { held: Vec<Claim> },
    /// Which rows are running, but for these; nothing is changed. Reply: Strays.
    FindStrays { held: Vec<Claim> },
    /// Reply: Rows.
    /// Of every stage, in their order; `touched` are rows to look up wherever they are; with `survey` the reply tells when the
    /// first of all paused rows is due, and what waits at stages that were not asked for.
    Claim { demand: Vec<Demand>, touched: Vec<i64>, skip_locked: bool, survey: bool },
    /// Reply: Done.
    Requeue { rows: Vec<Claim> },
    /// paused at its stage for `pause`, without a strike (database lost). Reply: Done.
    Pause { row: Claim, pause: Micros, error: String },
    /// A strike: paused for `pause`, with strikes, last_error, failure_class and dispatch_error. Reply: Done.
    Strike { row: Claim, strikes: u32, pause: Micros, blame: Blame, error: String },
    /// The last strike: failed (crash) or timeout (hang). Reply: Done.
    Condemn { row: Claim, strikes: u32, blame: Blame, error: String },
    /// failed, with dispatch_error, unless the worker wrote its own outcome already. Reply: Done.
    Fail { row: Claim, error: String },
    /// Due paused rows back to pending. Reply: Swept.
    Sweep { stages: Vec<Due> },
    /// Adds to the statistics, and counts which of `answered` are gone from the table. Reply: Done.
    Flush(Deltas),
    /// Unreferenced bodies, at most `limit`. Reply: Done.
    CollectBodies { limit: u32 },
    /// Read file and overlay again (C2); `asked`: somebody said that they have changed. Reply: Config, or Malformed; a Fault
    /// when either cannot be read. Not asked, what does not parse or may be half written is a Fault too.
    Reread { asked: bool },
}

/// Statistics not yet written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deltas {
    pub stages: Vec<StageDelta>,
    pub executed: u64,
    pub failed: u64,
    pub serialization_failures: u64,
    /// Ids answered since the last flush; those that are gone are the finished ones.
    pub answered: Vec<i64>,
    /// Messages that wait at stages without a section, as last seen.
    pub unserved: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageDelta {
    pub stage: String,
    pub messages: u64,
    pub processing_us: u64,
    pub timeouts: u64,
    pub crashes: u64,
}

/// The answer to the one job under way.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Connected,
    Locked,
    LockHeld,
    /// The rows that were claimed, what was seen of the others by stage, and the greatest id given out so far.
    /// `due_in`: until the first of the touched rows is due that are paused, with a survey of all paused rows, by the
    /// database's clock; None: there is none. `unserved`: of a survey, how many messages wait at which other stages.
    Rows {
        rows: Vec<Claimed>,
        notices: Vec<(String, Notice)>,
        top: i64,
        due_in: Option<Micros>,
        unserved: Vec<(String, u64)>,
    },
    /// The rows that are pending now, by stage; stages of which more is due, and from which time on; `due_in`: until the next
    /// row of the other stages is due.
    Swept {
        rows: Vec<(String, i64)>,
        more: Vec<(String, i64)>,
        due_in: Option<Micros>,
    },
    Strays(Vec<Stray>),
    /// All are pending again but these, which somebody has locked.
    Reconciled(Vec<Claim>),
    Done,
    /// The stages as they are configured now. `changes` tells in words what has changed; None: nothing at all.
    Config {
        stages: Vec<StageSpec>,
        changes: Option<String>,
    },
    /// The configuration does not parse, for these reasons. The dispatcher ends in order, with `code`.
    Malformed {
        code: u8,
        errors: Vec<String>,
    },
    Fault(Fault),
    /// Nothing but a person can mend it: a schema of another release, no permission. The dispatcher ends with `code`.
    Fatal {
        code: u8,
        error: String,
    },
}

/// What happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first event: begin.
    Start,
    Reply(Reply),
    /// The connection was seen closed while no job was under way.
    ConnectionLost(String),
    /// NOTIFY workqueue.
    Notified,
    /// NOTIFY config_changed, or SIGHUP.
    ConfigChanged,
    /// NOTIFY telemetry_changed.
    TelemetryChanged,
    SpawnFailed {
        worker: WorkerId,
        error: String,
    },
    Ready {
        worker: WorkerId,
        claims: bool,
    },
    Answer {
        worker: WorkerId,
        status: u8,
        report: Vec<(String, Micros)>,
    },
    /// So many of its answers came at once, and follow: it worked on these messages together, or told of them late, and the time
    /// is theirs in equal shares.
    Burst {
        worker: WorkerId,
        answers: u32,
    },
    /// After Halt: it has stopped, and all that it wrote before was reported.
    Halted {
        worker: WorkerId,
    },
    /// Its output is not of the protocol, or too long; nothing more of it is read.
    Garbage {
        worker: WorkerId,
        error: String,
    },
    /// It closed its output, or its input broke; it may still live.
    Closed {
        worker: WorkerId,
    },
    /// Reaped, and its output read to the end.
    Exited {
        worker: WorkerId,
        exit: Exit,
    },
    /// SIGTERM or SIGINT.
    Terminate,
    /// The last event of each turn: timers are judged and at most one claim is issued here.
    Turn,
}

impl Event {
    /// Whether it was collected with others of its turn, of which more may follow. Nothing is handed out before all are
    /// known: what a worker wrote before it was given a row must not be taken for an answer about that row.
    pub(super) fn is_collected(&self) -> bool {
        match self {
            Event::ConnectionLost(_)
            | Event::Notified
            | Event::ConfigChanged
            | Event::TelemetryChanged
            | Event::Ready { .. }
            | Event::Answer { .. }
            | Event::Burst { .. }
            | Event::Halted { .. }
            | Event::Garbage { .. }
            | Event::Closed { .. }
            | Event::Exited { .. }
            | Event::Terminate => true,
            Event::Start | Event::Reply(_) | Event::SpawnFailed { .. } | Event::Turn => false,
        }
    }
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Job(Job),
    /// Start `program` as `worker` for `stage`; afterwards only SpawnFailed or Exited ends it. It will not be sent more
    /// than `queue_limit` ids at once.
    Spawn {
        worker: WorkerId,
        stage: String,
        program: String,
        queue_limit: u32,
    },
    /// Hand these over in one write; `claims` as in its Ready.
    Send {
        worker: WorkerId,
        rows: Vec<Claim>,
    },
    /// Close its standard input.
    Close {
        worker: WorkerId,
    },
    /// SIGSTOP to its process group. Once it has stopped its output is drained, and then it is Halted.
    Halt {
        worker: WorkerId,
    },
    /// SIGCONT to its process group, stopped or not; it is not reported as Halted any more.
    Continue {
        worker: WorkerId,
    },
    /// SIGKILL to its process group, also when it is stopped.
    Kill {
        worker: WorkerId,
    },
    Log {
        level: Severity,
        stage: String,
        message: String,
    },
    /// sd_notify READY=1 or STOPPING=1.
    Announce(Announcement),
    /// All is done: end with this code.
    Exit {
        code: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
    Info,
    Debug,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    Ready,
    Stopping,
}
