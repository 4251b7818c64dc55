//! The pure dispatcher: `step(now, event)` decides everything, the shell performs it. No clock, no I/O, no environment.
//!
//! Database work is one job at a time: after `Action::Job` no other job is issued until its `Event::Reply` came, so
//! the machine always knows what may have been committed. Every write about a row carries the claim it acts under
//! (requirement D4), so a write that is repeated after a lost reply changes nothing the second time.
//!
//! Jobs are issued at `Event::Turn` alone, one a turn, after all that happened is known; `deadline` says at once when
//! another waits. A claimed row is at any time in exactly one place: it waits at its stage, is with one worker, is being
//! withdrawn from one, or in an unresolved write (`held` is their union); what a row owes when it leaves a worker is decided in `verdict`.

mod chance;
mod claims;
pub mod fair;
mod jobs;
mod journal;
mod pool;
mod pressure;
mod reload;
mod stats;
mod stop;
mod strike;
mod sweep;
mod turn;
mod unserved;
mod upkeep;
mod verdict;
mod withdraw;
mod worker;
mod writes;

use fair::{Ask, Notice};

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
    fn key(self) -> fair::Claim {
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
    fn is_collected(&self) -> bool {
        match self {
            Event::ConnectionLost(_)
            | Event::Notified
            | Event::ConfigChanged
            | Event::TelemetryChanged
            | Event::Ready { .. }
            | Event::Answer { .. }
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

/// The dispatcher's whole state.
#[derive(Clone, Debug)]
pub struct Machine {
    settings: Settings,
    now: Micros,
    chance: chance::Chance,
    stages: Vec<pool::Stage>,
    jobs: jobs::Jobs,
    writes: writes::Writes,
    claims: claims::Claims,
    withdrawal: Option<withdraw::Withdrawal>,
    upkeep: upkeep::Upkeep,
    sweeps: sweep::Sweeps,
    unserved: unserved::Unserved,
    stats: stats::Stats,
    pressure: pressure::Pressure,
    strikes: strike::Suspects,
    journal: journal::Journal,
    reload: reload::Reload,
    stop: Option<stop::Stop>,
    last_worker: u64,
    actions: Vec<Action>,
    ended: bool,
}

impl Machine {
    /// `seed` drives the jitter of reconnects and the spread of pauses.
    pub fn new(settings: Settings, stages: Vec<StageSpec>, seed: u64) -> Machine {
        stages.iter().for_each(StageSpec::check);
        let parallelism = stages.iter().map(|spec| spec.parallelism).collect();
        Machine {
            now: 0,
            chance: chance::Chance::new(seed),
            jobs: jobs::Jobs::new(),
            writes: writes::Writes::new(),
            claims: claims::Claims::new(&settings, stages.len()),
            withdrawal: None,
            upkeep: upkeep::Upkeep::new(settings.stats_interval),
            sweeps: sweep::Sweeps::new(),
            unserved: unserved::Unserved::default(),
            stats: stats::Stats::new(settings.stats_interval),
            pressure: pressure::Pressure::new(parallelism),
            strikes: strike::Suspects::default(),
            journal: journal::Journal::default(),
            reload: reload::Reload::new(),
            stages: stages.into_iter().map(pool::Stage::new).collect(),
            settings,
            stop: None,
            last_worker: 0,
            actions: Vec::new(),
            ended: false,
        }
    }

    /// Takes one event at `now` (never smaller than before) and says what to do, in order.
    pub fn step(&mut self, now: Micros, event: Event) -> Vec<Action> {
        assert!(now >= self.now, "the clock went back");
        self.now = now;
        if self.ended {
            return Vec::new();
        }
        let is_collected = event.is_collected();
        match event {
            Event::Start => {
                self.jobs.start(now);
                self.stats.start(now);
            }
            Event::Reply(reply) => self.reply(reply),
            Event::ConnectionLost(error) => self.connection_lost(error),
            Event::Notified => self.claims.expose(now),
            Event::ConfigChanged => self.config_changed(),
            Event::TelemetryChanged => self.telemetry_changed(),
            Event::SpawnFailed { worker, error } => self.worker(worker, worker::Input::Unstartable(error)),
            Event::Ready { worker, claims } => self.worker(worker, worker::Input::Ready { claims }),
            Event::Answer { worker, status, report } => {
                self.worker(worker, worker::Input::Answer { status, report });
            }
            Event::Halted { worker } => self.halted(worker),
            Event::Garbage { worker, error } => self.worker(worker, worker::Input::Garbage(error)),
            Event::Closed { worker } => self.worker(worker, worker::Input::Closed),
            Event::Exited { worker, exit } => self.worker(worker, worker::Input::Exited(exit)),
            Event::Terminate => self.terminate(),
            Event::Turn => self.turn(),
        }
        if !is_collected {
            self.hand_out();
        }
        std::mem::take(&mut self.actions)
    }

    /// Every claim that is ours: in a pipeline, waiting for one, being withdrawn, or in a write that is not known to be done.
    pub fn held(&self) -> Vec<Claim> {
        let rows = self.stages.iter().flat_map(pool::Stage::rows);
        let rows = rows.chain(self.withdrawal.iter().flat_map(withdraw::Withdrawal::rows));
        rows.map(|row| row.claim).chain(self.writes.rows()).collect()
    }

    /// The shares of the senders, by stage.
    #[cfg(test)]
    #[allow(dead_code)]
    pub fn fair(&self) -> &fair::Fair {
        &self.claims.fair
    }

    /// It goes back to its stage without having run.
    fn requeue(&mut self, row: Claim) {
        self.claims.fair.settle(self.now, row.key(), fair::End::Unrun);
        self.writes.push(row, writes::What::Requeue);
    }

    fn held_ids(&self) -> std::collections::BTreeSet<i64> {
        self.held().iter().map(|claim| claim.id).collect()
    }

    /// Adds one log line; `stage` is an index, None where no stage is meant.
    fn log(&mut self, level: Severity, stage: Option<usize>, message: String) {
        let stage = stage.map_or(String::new(), |index| self.stages[index].spec.name.clone());
        self.actions.push(Action::Log { level, stage, message });
    }

    /// As `log`, for a cause that may repeat often: one line an interval, with the number of those left out.
    fn log_often(&mut self, level: Severity, stage: Option<usize>, cause: journal::Cause, message: String) {
        match self.journal.admit(self.now, stage, cause) {
            None => {}
            Some(0) => self.log(level, stage, message),
            Some(silent) => self.log(level, stage, format!("{message} ({silent} more like it before)")),
        }
    }
}
