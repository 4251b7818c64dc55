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
mod terms;
mod turn;
mod unserved;
mod upkeep;
mod verdict;
mod withdraw;
mod worker;
mod writes;

pub use terms::*;

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
            Event::Burst { worker, answers } => {
                let all = self.stages.iter_mut().flat_map(|stage| &mut stage.workers);
                all.filter(|one| one.id == worker).for_each(|one| one.burst = answers);
            }
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
