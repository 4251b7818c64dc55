//! The dispatcher, wired: configuration to machine, machine to shell. Who it is told by, what it exits with.
//!
//! machine decides, shell loops, child is one worker, listen is the database, announce the supervisor, options the
//! configuration, reread the configuration while it runs. Nothing here touches a message's content.

mod announce;
mod child;
mod listen;
mod machine;
mod options;
mod reread;
mod shell;

use crate::proto::conf::ConfError;
use crate::proto::graph::Graph;
use crate::sql::Error;
use crate::sys::Signals;
use crate::{Invocation, Level, exit, fail, host, log};
use announce::Supervisor;
use child::Launcher;
use listen::Link;
use machine::Machine;
use options::Options;
use reread::{Configuration, warn, warn_of};
use shell::Shell;
use std::hash::{BuildHasher, Hasher, RandomState};

/// `pepsi-dispatch serve`: runs until a signal or a fatal error; returns the exit code (requirement CLI3).
pub fn main(call: &Invocation) -> u8 {
    if call.args.len() != 1 || call.args[0] != "serve" {
        return fail(
            exit::USAGE,
            "the only command is 'serve', without arguments; see pepsi-dispatch --help",
        );
    }
    serve(call).unwrap_or_else(|code| code)
}

/// Each error has been logged where it arose; what is left of it is the exit code.
fn serve(call: &Invocation) -> Result<u8, u8> {
    let loaded = host::load_config(call.config.as_deref()).map_err(|error| fail(exit::FAILURE, &error))?;
    let mut conf = loaded.conf;
    let options = Options::read(&conf).map_err(refuse)?;
    warn(&options::unknown(&conf));
    let broken = |what: &str, error| fail(exit::FAILURE, &format!("{what}: {error}"));
    crate::sys::install_guard()
        .map_err(|error| broken("cannot bound the waiting for the database", error))?;
    let mut link = Link::open(&options.database, call.program).map_err(no_database)?;
    let rows = link.overrides().map_err(no_database)?;
    crate::config::overlay(&mut conf, &rows);
    let graph = Graph::parse(&conf).map_err(refuse)?;
    warn_of(Vec::new(), &conf, &graph);
    let config = options.workers_config.as_ref().unwrap_or(&loaded.path);
    let config = std::path::absolute(config).map_err(|error| broken("CONFIG_FILE", error))?;
    let launcher = Launcher::new(config, std::env::vars_os());
    let signals = Signals::install().map_err(|error| broken("cannot take the signals over", error))?;
    let machine = Machine::new(options.settings.clone(), options::stage_specs(&graph), seed());
    let supervisor = Supervisor::find(|name| std::env::var_os(name));
    let configuration = Configuration::new(loaded.path, conf, options);
    let shell = Shell::new(machine, link, configuration, launcher, signals, supervisor);
    shell.run().map_err(|error| broken("cannot wait for events", error))
}

/// At the start the operator is there, or a supervisor that tries again: nothing is retried here.
fn no_database(error: Error) -> u8 {
    match error {
        Error::Schema(text) => fail(exit::CONFIG, &text),
        Error::Lost(text)
        | Error::Overloaded(text)
        | Error::Conflict(text)
        | Error::Refused(text)
        | Error::Setup(text) => fail(exit::FAILURE, &text),
    }
}

fn refuse(errors: Vec<ConfError>) -> u8 {
    reread::lines(&errors).iter().for_each(|error| log(Level::Error, "", error, &[]));
    exit::FAILURE
}

/// The standard library seeds its hash maps from the system's random numbers.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
