//! The stage graph: every `[stage-NAME]` section as typed values, with what is wrong or odd about it.
//!
//! Invariants: a `Graph` holds only values within their ranges (the constants below), each stage once, sorted by name.
//! All errors are found in one pass; what only may be a mistake (CLI3) is a warning. Whether a program exists, and its
//! own options, are not looked at here: each program checks its section itself.

use super::conf::{Conf, ConfError, Section};
use super::text::escape;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The options that every stage section may have, whatever its program.
pub const COMMON_OPTIONS: &[&str] = &[
    "PROGRAM",
    "NEXT_STAGE",
    "BOUNCE_STAGE",
    "PARALLELISM",
    "QUEUE_LIMIT",
    "MAX_MESSAGES",
    "MAX_RUNTIME",
    "MAX_LIFETIME",
    "FUSION",
];

/// The stage of a new message.
pub const INIT: &str = "init";

/// The longest stage name, in bytes: it stands in rows, reports and logs.
pub const MAX_STAGE_NAME: usize = 64;

/// Each worker is a process with a database connection; a thousand is beyond any host this is for.
const PARALLELISM: RangeInclusive<u64> = 1..=1000;

/// Ids in one worker's pipeline; a thousand lines fit a pipe's buffer.
const QUEUE_LIMIT: RangeInclusive<u64> = 1..=1000;

/// Messages until a worker is recycled.
const MAX_MESSAGES: RangeInclusive<u64> = 1..=1_000_000_000;

/// How long one message may take unless the section says it.
pub const MAX_RUNTIME: Duration = Duration::from_secs(5 * 60);

/// One stage as the dispatcher and the worker see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Without the `stage-` of its section, lower case.
    pub name: String,
    pub program: String,
    pub next: Option<String>,
    pub bounce: Option<String>,
    pub parallelism: u32,
    pub queue_limit: u32,
    pub max_messages: u32,
    /// At least a millisecond; `Duration::MAX` for `forever`.
    pub max_runtime: Duration,
    /// At least a millisecond; `Duration::MAX` for `forever`.
    pub max_lifetime: Duration,
    /// None: the program's own default.
    pub fusion: Option<bool>,
}

/// All stages by name, and warnings (a NEXT_STAGE to nowhere, a cycle, an unreachable stage).
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub stages: Vec<Stage>,
    /// `[pepsi] ALLOW_FUSION`.
    pub allow_fusion: bool,
    pub warnings: Vec<ConfError>,
}

/// Whether `name` may name a stage: `[a-z0-9][a-z0-9._-]*`, at most `MAX_STAGE_NAME` bytes. No blank, quote, brace or
/// slash: it stands unquoted in logs, arrays and the environment.
pub fn is_stage_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= MAX_STAGE_NAME
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|byte| plain(byte) || b"._-".contains(&byte))
}

impl Graph {
    /// Reads all stage sections. Requirement CLI3 says what does not parse; every such error is reported, not only the
    /// first.
    pub fn parse(conf: &Conf) -> Result<Graph, Vec<ConfError>> {
        let mut errors = Vec::new();
        let allow_fusion = match conf.section("pepsi") {
            Some(section) => kept(section.boolean("ALLOW_FUSION", true), &mut errors).unwrap_or(true),
            None => true,
        };
        let mut stages = BTreeMap::new();
        for section in conf.sections() {
            if let Some(name) = section.name().strip_prefix("stage-")
                && let Some(stage) = read_stage(&section, name, &mut errors)
            {
                stages.insert(stage.name.clone(), stage);
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let warnings = warnings(conf, &stages);
        Ok(Graph { stages: stages.into_values().collect(), allow_fusion, warnings })
    }
    /// The stage of that name (lower case).
    pub fn stage(&self, name: &str) -> Option<&Stage> {
        let at = self.stages.binary_search_by(|stage| stage.name.as_str().cmp(name)).ok()?;
        Some(&self.stages[at])
    }
}

/// One section as a stage; None when anything in it was an error, each of which was added to `errors`.
fn read_stage(section: &Section<'_>, name: &str, errors: &mut Vec<ConfError>) -> Option<Stage> {
    if !is_stage_name(name) {
        let wanted = format!("1 to {MAX_STAGE_NAME} of a-z, 0-9, '.', '_', '-', the first a letter or digit");
        let shown = escape(name, MAX_STAGE_NAME);
        errors.push(section.error("", &format!("\"{shown}\" is no stage name: {wanted}")));
        return None;
    }
    let mut number = |option, default, range| kept(section.number(option, default, range), errors);
    let parallelism = number("PARALLELISM", 4, PARALLELISM);
    let queue_limit = number("QUEUE_LIMIT", 4, QUEUE_LIMIT);
    let max_messages = number("MAX_MESSAGES", 1000, MAX_MESSAGES);
    let program = kept(section.required("PROGRAM"), errors);
    let next = kept(stage_option(section, "NEXT_STAGE"), errors);
    let bounce = kept(stage_option(section, "BOUNCE_STAGE"), errors);
    let max_runtime = kept(positive(section, "MAX_RUNTIME", MAX_RUNTIME), errors);
    let max_lifetime = kept(positive(section, "MAX_LIFETIME", Duration::from_secs(120 * 3600)), errors);
    let fusion = match section.get("FUSION") {
        Ok(None) => Some(None),
        Ok(Some(_)) => kept(section.boolean("FUSION", false).map(Some), errors),
        Err(error) => kept(Err(error), errors),
    };
    Some(Stage {
        name: name.to_owned(),
        program: program?,
        next: next?,
        bounce: bounce?,
        parallelism: within_u32(parallelism?),
        queue_limit: within_u32(queue_limit?),
        max_messages: within_u32(max_messages?),
        max_runtime: max_runtime?,
        max_lifetime: max_lifetime?,
        fusion: fusion?,
    })
}

fn kept<T>(result: Result<T, ConfError>, errors: &mut Vec<ConfError>) -> Option<T> {
    result.map_err(|error| errors.push(error)).ok()
}

/// A number whose range was checked.
fn within_u32(number: u64) -> u32 {
    u32::try_from(number).expect("every range ends below 2^32")
}

fn positive(section: &Section<'_>, option: &str, default: Duration) -> Result<Duration, ConfError> {
    let duration = section.duration(option, default)?;
    if duration.is_zero() {
        return Err(section.error(option, "must be more than nothing; write for example \"5 min\""));
    }
    Ok(duration)
}

/// A stage's name in lower case. An empty value is none, so that an overlay can take a successor away.
pub fn stage_option(section: &Section<'_>, option: &str) -> Result<Option<String>, ConfError> {
    let name = section.get(option)?.unwrap_or_default().to_ascii_lowercase();
    if name.is_empty() {
        return Ok(None);
    }
    if !is_stage_name(&name) {
        let shown = escape(&name, MAX_STAGE_NAME);
        return Err(section.error(option, &format!("\"{shown}\" cannot be the name of a stage")));
    }
    Ok(Some(name))
}

/// The stages that an option names, whoever's it is: `NEXT_STAGE`, `THEN_STAGE`, a listener's `STAGE`, the
/// entries of `ROUTES` and `EXIT_STAGES`.
fn stages_named(option: &str, value: &str) -> Vec<String> {
    let names: Vec<&str> = match option {
        "ROUTES" | "EXIT_STAGES" => {
            value.split_whitespace().filter_map(|entry| Some(entry.rsplit_once(':')?.1)).collect()
        }
        _ if option == "STAGE" || option.ends_with("_STAGE") => vec![value],
        _ => Vec::new(),
    };
    names.into_iter().filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect()
}

/// Names stages that are not known here.
const ROUTES_FILE: &str = "ROUTES_FILE";

fn warnings(conf: &Conf, stages: &BTreeMap<String, Stage>) -> Vec<ConfError> {
    let mut warnings = Vec::new();
    let mut named = BTreeSet::from([String::from(INIT)]);
    for section in conf.sections() {
        let own = section.name().strip_prefix("stage-");
        for option in section.options() {
            // An option of a program's own that does not expand is that program's to report.
            let Ok(Some(value)) = section.get(option) else { continue };
            for target in stages_named(option, &value) {
                if own.is_some() && !stages.contains_key(&target) {
                    let shown = escape(&target, MAX_STAGE_NAME);
                    warnings.push(section.error(option, &format!("there is no section [stage-{shown}]")));
                }
                if own != Some(target.as_str()) {
                    named.insert(target);
                }
            }
        }
    }
    let has_file = stage_sections(conf).any(|section| section.options().contains(&ROUTES_FILE));
    for section in stage_sections(conf).filter(|_| !has_file) {
        let name = section.name().strip_prefix("stage-").unwrap_or_default();
        if !named.contains(name) {
            warnings.push(section.error("", "nothing leads to this stage"));
        }
    }
    if let (false, Some(first)) = (stages.contains_key(INIT), stage_sections(conf).next()) {
        warnings.push(first.error("", "there is no section [stage-init], where new messages start"));
    }
    warnings.extend(cycles(conf, stages));
    warnings
}

fn stage_sections(conf: &Conf) -> impl Iterator<Item = Section<'_>> {
    conf.sections().into_iter().filter(|section| section.name().starts_with("stage-"))
}

/// One warning for each circle along NEXT_STAGE. Each stage has one successor at most, so a walk that meets a stage of
/// its own has found a circle, and a stage of an earlier walk leads to nothing new: linear in the stages.
fn cycles(conf: &Conf, stages: &BTreeMap<String, Stage>) -> Vec<ConfError> {
    let mut warnings = Vec::new();
    let mut walked: BTreeSet<&str> = BTreeSet::new();
    for start in stages.values() {
        let mut path: Vec<&str> = Vec::new();
        let mut at = Some(start);
        while let Some(stage) = at {
            if !walked.insert(&stage.name) {
                let from = path.iter().position(|name| *name == stage.name);
                warnings.extend(from.and_then(|from| circle(conf, &path[from..])));
                break;
            }
            path.push(&stage.name);
            at = stage.next.as_ref().and_then(|next| stages.get(next));
        }
    }
    warnings
}

/// The warning about one circle, at the first stage of it.
fn circle(conf: &Conf, names: &[&str]) -> Option<ConfError> {
    let first = names.first()?;
    let section = conf.section(&format!("stage-{first}"))?;
    let shown = escape(&names.join(" -> "), 500);
    Some(section.error("NEXT_STAGE", &format!("goes in a circle: {shown} -> {first}")))
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
