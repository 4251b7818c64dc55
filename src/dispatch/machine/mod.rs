//! The pure dispatcher: `step(now, event)` decides everything, the shell performs it. No clock, no I/O, no environment.
//!
//! Database work is one job at a time: after `Action::Job` no other job is issued until its `Event::Reply` came, so
//! the machine always knows what may have been committed. Every write about a row carries the claim it acts under
//! (requirement D4), so a write that is repeated after a lost reply changes nothing the second time.

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

/// What the machine needs to know of a `[stage-NAME]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSpec {
    pub name: String,
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

/// What a claim asks for one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    pub stage: String,
    pub capacity: u32,
    /// No pending row of this stage has a smaller id, as far as the machine knows.
    pub floor: i64,
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
    /// Every running row but these back to pending (D2, D7). Reply: Done.
    Reconcile { held: Vec<Claim> },
    /// Reply: Rows.
    Claim { demand: Vec<Demand>, skip_locked: bool },
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
    /// Due paused rows back to pending, at most `limit`. Reply: Swept.
    Sweep { limit: u32 },
    /// Adds to the statistics, and counts which of `answered` are gone from the table. Reply: Done.
    Flush(Deltas),
    /// Unreferenced bodies, at most `limit`. Reply: Done.
    CollectBodies { limit: u32 },
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
    /// `due_in`: until the earliest paused row is due by the database's clock; None when none waits.
    Rows {
        rows: Vec<Claimed>,
        due_in: Option<Micros>,
    },
    Swept {
        moved: u32,
        due_in: Option<Micros>,
    },
    Done,
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

/// What the shell must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Job(Job),
    /// Start `worker` for `stage`; afterwards only SpawnFailed or Exited ends it.
    Spawn {
        worker: WorkerId,
        stage: String,
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
    /// SIGKILL to its process group.
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

/// The dispatcher's whole state.
#[derive(Debug)]
pub struct Machine {}

impl Machine {
    /// `seed` drives the jitter of reconnects and the spread of pauses.
    pub fn new(settings: Settings, stages: Vec<StageSpec>, seed: u64) -> Machine {
        let _ = (settings, stages, seed);
        unimplemented!()
    }
    /// Takes one event at `now` (never smaller than before) and says what to do, in order.
    pub fn step(&mut self, now: Micros, event: Event) -> Vec<Action> {
        let _ = (now, event);
        unimplemented!()
    }
    /// When to step `Turn` next if nothing happens before.
    pub fn deadline(&self) -> Option<Micros> {
        unimplemented!()
    }
}
