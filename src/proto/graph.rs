//! The stage graph: every `[stage-NAME]` section as typed values, with what is wrong or odd about it.

use super::conf::{Conf, ConfError};
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
    pub max_runtime: Duration,
    pub max_lifetime: Duration,
    /// None: the program's own default.
    pub fusion: Option<bool>,
}

/// All stages by name, and warnings (a NEXT_STAGE to nowhere, a cycle, an unreachable stage).
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub stages: Vec<Stage>,
    pub warnings: Vec<ConfError>,
}

impl Graph {
    /// Reads all stage sections. Requirement CLI3 says what does not parse; every such error is reported, not only the first.
    pub fn parse(conf: &Conf) -> Result<Graph, Vec<ConfError>> {
        let _ = conf;
        unimplemented!()
    }
    /// The stage of that name (lower case).
    pub fn stage(&self, name: &str) -> Option<&Stage> {
        let _ = name;
        unimplemented!()
    }
}
