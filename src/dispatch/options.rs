//! `[pepsi-dispatch]` and the little of other sections that the dispatcher reads, typed and within their ranges.
//!
//! Invariants: what is handed to the machine is in microseconds and small enough that no sum of it overflows; every
//! wrong value is reported with its file and line, not only the first; the overlay never changes what is read here.

use super::machine::{Micros, Settings, StageSpec};
use crate::proto::conf::{Conf, ConfError, Section};
use crate::proto::graph::Graph;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

const DISPATCH: &[&str] = &[
    "CONFIG_FILE",
    "POLL_INTERVAL",
    "STATS_INTERVAL",
    "FAIR_SCHEDULING",
    "FAIR_HALF_LIFE",
    "FAIR_FIFO_PERCENT",
    "WORKER_IDLE_TIMEOUT",
];
const POSTGRES: &[&str] = &["CONFIG", "WORKER_SYNCHRONOUS_COMMIT"];
const COMMON: &[&str] = &["ALLOW_FUSION", "SHARE_TELEMETRY", "MAIL_LOG"];

const DATABASE: &str = "postgres:///pepsi";

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Any longer time, also `forever`: longer than a process lives, and a small part of what the type holds.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// What the dispatcher is told before it connects.
#[derive(Debug)]
pub struct Options {
    pub settings: Settings,
    pub database: String,
    /// CONFIG_FILE, where it is set.
    pub workers_config: Option<PathBuf>,
    /// Options that nobody knows.
    pub unknown: Vec<ConfError>,
}

impl Options {
    pub fn read(conf: &Conf) -> Result<Options, Vec<ConfError>> {
        let mut reader = Reader { errors: Vec::new() };
        let dispatch = conf.section("pepsi-dispatch");
        let second = |count: u64| Duration::from_secs(count);
        let settings = Settings {
            poll_interval: reader.duration(dispatch, "POLL_INTERVAL", second(30), SECOND..=DAY),
            stats_interval: reader.duration(dispatch, "STATS_INTERVAL", second(60), SECOND..=DAY),
            worker_idle_timeout: reader.duration(
                dispatch,
                "WORKER_IDLE_TIMEOUT",
                second(5),
                Duration::ZERO..=DAY,
            ),
            fair: reader.take(dispatch, true, |section| section.boolean("FAIR_SCHEDULING", true)),
            fair_half_life: reader.duration(dispatch, "FAIR_HALF_LIFE", second(60), SECOND..=DAY),
            fair_fifo_percent: reader
                .take(dispatch, 10, |section| section.number("FAIR_FIFO_PERCENT", 10, 0..=100))
                as u32,
        };
        let config_file = reader.take(dispatch, None, |section| section.get("CONFIG_FILE"));
        let postgres = conf.section("pepsi-postgres");
        let database = reader.take(postgres, None, |section| section.get("CONFIG"));
        if !reader.errors.is_empty() {
            return Err(reader.errors);
        }
        let known = [(dispatch, DISPATCH), (postgres, POSTGRES), (conf.section("pepsi"), COMMON)];
        let unknown = known.iter().filter_map(|(section, names)| Some(section.as_ref()?.unknown(names)));
        Ok(Options {
            settings,
            database: database.filter(|url| !url.is_empty()).unwrap_or_else(|| DATABASE.to_owned()),
            workers_config: config_file.filter(|file| !file.is_empty()).map(PathBuf::from),
            unknown: unknown.flatten().collect(),
        })
    }
}

/// Collects the errors; a value that is wrong is its default meanwhile.
struct Reader {
    errors: Vec<ConfError>,
}

impl Reader {
    fn take<T>(
        &mut self,
        section: Option<Section<'_>>,
        default: T,
        read: impl FnOnce(Section<'_>) -> Result<T, ConfError>,
    ) -> T {
        match section.map(read) {
            None => default,
            Some(Ok(value)) => value,
            Some(Err(error)) => {
                self.errors.push(error);
                default
            }
        }
    }

    fn duration(
        &mut self,
        section: Option<Section<'_>>,
        option: &str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Micros {
        let value = self.take(section, default, |section| {
            let value = section.duration(option, default)?;
            if range.contains(&value) {
                return Ok(value);
            }
            let (least, most) = (range.start().as_secs(), range.end().as_secs());
            Err(section.error(option, &format!("{option} must be from {least} s to {most} s")))
        });
        micros(value)
    }
}

fn micros(duration: Duration) -> Micros {
    duration.min(LONGEST).as_micros() as Micros
}

/// What the machine needs to know of the stages.
pub fn stage_specs(graph: &Graph) -> Vec<StageSpec> {
    let spec = |stage: &crate::proto::graph::Stage| StageSpec {
        name: stage.name.clone(),
        parallelism: stage.parallelism,
        queue_limit: stage.queue_limit,
        max_messages: stage.max_messages,
        max_runtime: micros(stage.max_runtime),
    };
    graph.stages.iter().map(spec).collect()
}

/// Lays the rows of `config_override` over the file, as far as C1 lets them: stages only. What is needed before the
/// connection, and whatever a stage's worker must not be able to change for the dispatcher, stays the file's.
pub fn overlay(conf: &mut Conf, rows: &[(String, String, String)]) {
    for (section, option, value) in rows {
        let is_stage = section.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("stage-"));
        if is_stage {
            conf.overlay(section, option, value);
        }
    }
}
