//! The worker runtime and the stages: how a stage program starts.
//!
//! It reads the configuration, connects, lays the overlay over the file (C1), checks each section that it serves (S4),
//! and only then says `ready`. Whatever stops it before that ends in one line for each cause and an exit code: 78 for
//! what a person has to mend, 74 and 75 for a database that is lost or full.

pub mod commit;
pub mod context;
pub mod error;
#[cfg(test)]
mod fixture;
pub mod runtime;
pub mod stage;

use crate::proto::conf::{Conf, ConfError};
use crate::proto::graph::{COMMON_OPTIONS, Graph, Stage as Section};
use crate::sql::{Db, Error, Purpose};
use crate::{Invocation, Level, exit, fail, host, log};
use context::Route;
use runtime::{Served, Worker};
use stage::Kind;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

/// `pepsi-stage-NAME [-c FILE] worker`: reads ids until standard input ends; returns the exit code.
pub fn main(call: &Invocation) -> u8 {
    let is_worker = call.args.first().is_some_and(|word| word == "worker");
    if !is_worker || call.args.len() > 1 {
        let hint = "ids are read on standard input";
        return fail(exit::USAGE, &format!("the one subcommand is 'worker', without arguments; {hint}"));
    }
    let Some(kind) = stage::find(call.program) else {
        return fail(exit::SOFTWARE, "this program is no stage");
    };
    match host::load_config(call.config.as_deref()) {
        Ok(loaded) => run(kind, loaded.conf),
        Err(error) => fail(exit::CONFIG, &error),
    }
}
