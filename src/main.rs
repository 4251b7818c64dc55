//! The program table: which program `argv[0]` names, global options, exit codes, the log sink. Nothing else.

mod dispatch;
mod host;
mod ingress;
mod mail;
mod proto;
mod sql;
mod sys;
mod tool;
mod worker;

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

/// One call of one program: what came before the subcommand, and the rest untouched.
pub struct Invocation {
    /// The program's own name, `pepsi-dispatch`.
    pub program: &'static str,
    /// `-c FILE`, if it was given.
    pub config: Option<PathBuf>,
    /// The subcommand and all behind it.
    pub args: Vec<OsString>,
}

/// Log levels, most severe first; the journal's numbers are 3, 4, 6 and 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

/// Writes one event as one line on standard error. `stage` is empty where no stage is meant.
pub fn log(level: Level, stage: &str, message: &str, pairs: &[(&str, &dyn Display)]) {
    let _ = (level, stage, message, pairs);
    unimplemented!()
}

fn main() -> ExitCode {
    unimplemented!()
}
