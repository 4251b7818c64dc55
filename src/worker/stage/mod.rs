//! The registry of stages: what each program needs to be told, what it loads, and how its section becomes a stage.
//!
//! A stage sees `Context` and its own section; it never sees SQL, and standard output belongs to the line protocol (R4).
//! To add one: a file here, a `Kind` in it, and its line in `KINDS`.

mod aliases;
mod auto_whitelist;
mod check_whitelist;
mod discard;
mod edit_settings;
mod if_;
pub mod personal;
mod pipe;
mod relay_to_maildir;
mod route;
mod srs;

use super::context::{Context, Done, Load};
use super::error::StageError;
use super::tables::{Change, Tables};
use crate::mail::line_end::LineEnd;
use crate::proto::conf::{ConfError, Section};

/// One section of the configuration, checked and ready to run.
pub trait Stage {
    /// Does the stage's work on one message. What it asks of `tables` costs a statement each.
    fn run(&self, message: Context, tables: &mut dyn Tables) -> Result<Done, StageError>;

    /// Whether it can have the message as the stage before leaves it; `load` is what this kind of stage declares (U1). A stage
    /// that needs less than that for some messages may say so here.
    fn can_fuse(&self, message: &Context, load: Load) -> bool {
        load <= message.loaded()
    }
}

/// A stage program.
pub struct Kind {
    pub program: &'static str,
    pub load: Load,
    /// What FUSION is where the section does not say it.
    pub fuses: bool,
    /// Its own options, upper case, besides those that every stage has.
    pub options: &'static [&'static str],
    /// Those of them that the owner of an address may set for it (X1).
    pub personal: &'static [&'static str],
    /// Reads a section; what it refuses makes the worker refuse to run (S4).
    pub check: fn(&Section<'_>) -> Result<Box<dyn Stage>, ConfError>,
}

const KINDS: &[Kind] = &[
    if_::KIND,
    discard::KIND,
    pipe::KIND,
    relay_to_maildir::KIND,
    srs::KIND,
    auto_whitelist::KIND,
    check_whitelist::KIND,
    route::KIND,
    aliases::KIND,
    edit_settings::KIND,
    pipe::KIND,
];

/// The kind of stage that `program` runs.
pub fn find(program: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.program == program)
}

/// LINE_END, which is lf where it is not set.
fn line_end(section: &Section<'_>) -> Result<LineEnd, ConfError> {
    let name = section.get("LINE_END")?.unwrap_or_else(|| "lf".into());
    LineEnd::parse(&name)
        .ok_or_else(|| section.error("LINE_END", &format!("\"{name}\" is neither lf nor crlf")))
}

#[cfg(test)]
#[path = "example_tests.rs"]
mod example_tests;
#[cfg(test)]
#[path = "../../../docs/examples/loop_guard.rs"]
mod loop_guard;
