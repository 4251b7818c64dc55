//! `[pepsi-dispatch]` and the little of other sections that the dispatcher reads, typed and within their ranges.
//!
//! Invariants: what is handed to the machine is in microseconds and small enough that no sum of it overflows; every
//! wrong value is reported with its file and line, not only the first; the overlay never changes what is read here.

use super::machine::{Micros, Settings, StageSpec};
use crate::config;
use crate::host::is_program;
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

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Any longer time, also `forever`: longer than a process lives, and a small part of what the type holds.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// What the dispatcher is told before it connects, and does not change while it runs.
#[derive(Debug, PartialEq)]
pub struct Options {
    pub settings: Settings,
    pub database: String,
    /// CONFIG_FILE, where it is set.
    pub workers_config: Option<PathBuf>,
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
        let database = config::database_url(conf).unwrap_or_else(|error| {
            reader.errors.push(error);
            String::new()
        });
        if !reader.errors.is_empty() {
            return Err(reader.errors);
        }
        Ok(Options {
            settings,
            database,
            workers_config: config_file.filter(|file| !file.is_empty()).map(PathBuf::from),
        })
    }
}

/// Sections that no program of this release has, and of those that the dispatcher knows the options that nobody has.
pub fn unknown(conf: &Conf) -> Vec<ConfError> {
    let mut unknown = Vec::new();
    for section in conf.sections() {
        match section.name() {
            "pepsi-dispatch" => unknown.extend(section.unknown(DISPATCH)),
            "pepsi-postgres" => unknown.extend(section.unknown(POSTGRES)),
            "pepsi" => unknown.extend(section.unknown(COMMON)),
            name if !config::is_known_section(name) => {
                unknown.push(section.error("", "is no section of this release"));
            }
            _ => {}
        }
    }
    unknown
}

/// Programs that are not there: a warning each, since one may be installed later.
pub fn missing(conf: &Conf, graph: &Graph) -> Vec<ConfError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = graph.stages.iter().filter(|stage| !is_program(&stage.program, &path));
    let warning = |stage: &crate::proto::graph::Stage| {
        let section = conf.section(&format!("stage-{}", stage.name))?;
        Some(section.error("PROGRAM", "is no executable file, nor the name of one on PATH"))
    };
    missing.filter_map(warning).collect()
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
            Err(section.error(option, &format!("must be from {least} s to {most} s")))
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
        program: stage.program.clone(),
        parallelism: stage.parallelism,
        queue_limit: stage.queue_limit,
        max_messages: stage.max_messages,
        max_runtime: micros(stage.max_runtime),
    };
    graph.stages.iter().map(spec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::conf::Sources;

    fn conf(text: &str) -> Conf {
        let sources = Sources { variable: &|_| None, inline: &|name| Err(format!("no {name}")) };
        Conf::parse("test.conf", text, &sources).unwrap()
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        let options = Options::read(&conf("")).unwrap();
        let settings = Settings {
            poll_interval: 30_000_000,
            stats_interval: 60_000_000,
            worker_idle_timeout: 5_000_000,
            fair: true,
            fair_half_life: 60_000_000,
            fair_fifo_percent: 10,
        };
        assert_eq!(options.settings, settings);
        assert_eq!(options.database, "postgres:///pepsi");
        assert_eq!(options.workers_config, None);
        assert!(unknown(&conf("")).is_empty());
    }

    #[test]
    fn every_option_is_read() {
        let text = "[pepsi-dispatch]\nCONFIG_FILE = /etc/other.conf\nPOLL_INTERVAL = 1 min\nSTATS_INTERVAL = 2 s\n\
                    FAIR_SCHEDULING = no\nFAIR_HALF_LIFE = 10 s\nFAIR_FIFO_PERCENT = 0\nWORKER_IDLE_TIMEOUT = 0 s\n\
                    [pepsi-postgres]\nCONFIG = postgres:///other\n";
        let options = Options::read(&conf(text)).unwrap();
        let settings = Settings {
            poll_interval: 60_000_000,
            stats_interval: 2_000_000,
            worker_idle_timeout: 0,
            fair: false,
            fair_half_life: 10_000_000,
            fair_fifo_percent: 0,
        };
        assert_eq!(options.settings, settings);
        assert_eq!(options.database, "postgres:///other");
        assert_eq!(options.workers_config, Some(PathBuf::from("/etc/other.conf")));
    }

    // Req: CLI3, CLI5
    #[test]
    fn every_wrong_value_is_reported_with_its_place() {
        let text = "[pepsi-dispatch]\nPOLL_INTERVAL = 0 s\nSTATS_INTERVAL = forever\nFAIR_FIFO_PERCENT = 101\n\
                    FAIR_SCHEDULING = maybe\nFAIR_HALF_LIFE = 10 parsecs\nWORKER_IDLE_TIMEOUT = 25 h\n";
        let errors = Options::read(&conf(text)).unwrap_err();
        let mut lines: Vec<u32> = errors.iter().map(|error| error.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7]);
        let first = errors.iter().find(|error| error.line == 2).unwrap();
        assert_eq!(
            first.to_string(),
            "test.conf:2: [pepsi-dispatch] POLL_INTERVAL: must be from 1 s to 86400 s"
        );
    }

    #[test]
    fn an_unknown_option_is_only_a_warning() {
        let text = "[pepsi-dispatch]\nPOLL_INTERVALL = 5 s\n[pepsi]\nALLOW_FUSION = yes\nCOLOUR = red\n";
        assert!(Options::read(&conf(text)).is_ok());
        assert_eq!(unknown(&conf(text)).iter().map(|warning| warning.line).collect::<Vec<_>>(), [2, 5]);
    }

    #[test]
    fn an_unknown_section_is_a_warning_with_its_place() {
        let text = "[stage-init]\nPROGRAM = p\n[stag-if]\nA = 1\n[Pepsi-Postgre]\n[paths]\nX = 1\n[pepsi-sendmail]\n";
        let unknown: Vec<String> = unknown(&conf(text)).iter().map(ToString::to_string).collect();
        assert_eq!(
            unknown,
            [
                "test.conf:3: [stag-if]: is no section of this release",
                "test.conf:5: [pepsi-postgre]: is no section of this release"
            ]
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_a_warning() {
        let conf = conf(
            "[stage-init]\nPROGRAM = pepsi-stage-discrad\n[stage-a]\nPROGRAM = /etc/passwd\n[stage-b]\n\
             PROGRAM = pepsi-stage-discard\n[stage-c]\nPROGRAM = /bin/sh\n",
        );
        let missing = missing(&conf, &Graph::parse(&conf).unwrap());
        assert_eq!(missing.iter().map(|warning| warning.line).collect::<Vec<_>>(), [4, 2]);
    }

    #[test]
    fn for_ever_is_a_number_that_can_be_added_to() {
        assert!(micros(Duration::MAX) < Micros::MAX / 1000);
        let graph = Graph::parse(&conf("[stage-init]\nPROGRAM = one\nMAX_RUNTIME = 1 h\n")).unwrap();
        let specs = stage_specs(&graph);
        assert_eq!((specs[0].name.as_str(), specs[0].max_runtime), ("init", 3_600_000_000));
    }
}
