//! The worker runtime and the stages: how a stage program starts.
//!
//! It reads the configuration, connects, lays the overlay over the file (C1), checks each section that it serves (S4),
//! and only then says `ready`. Whatever stops it before that ends in one line for each cause and an exit code: 78 for
//! what a person has to mend, 74 and 75 for a database that is lost or full.

pub mod commit;
pub mod context;
pub mod error;
pub mod fan_out;
#[cfg(test)]
mod fixture;
mod helper;
mod refusal;
pub mod runtime;
mod settings;
pub mod stage;
mod successors;
pub mod tables;

use crate::proto::conf::{Conf, ConfError, Section};
use crate::proto::graph::{self, COMMON_OPTIONS, Graph};
use crate::sql::{Db, Error, Purpose};
use crate::{Invocation, Level, config, exit, fail, host, log};
use context::Route;
use runtime::{Served, Worker};
use stage::Kind;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use successors::Successors;

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

/// Why a worker does not start: the exit code and a line for each cause.
struct Refusal {
    code: u8,
    causes: Vec<String>,
}

impl From<Vec<ConfError>> for Refusal {
    fn from(errors: Vec<ConfError>) -> Refusal {
        Refusal { code: exit::CONFIG, causes: errors.iter().map(ConfError::to_string).collect() }
    }
}

impl From<ConfError> for Refusal {
    fn from(error: ConfError) -> Refusal {
        Refusal::from(vec![error])
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let code = match error {
            Error::Lost(_) | Error::Conflict(_) => exit::IO,
            Error::Overloaded(_) => exit::TEMPORARY,
            Error::Refused(_) => exit::SOFTWARE,
            Error::Setup(_) | Error::Schema(_) => exit::CONFIG,
        };
        Refusal { code, causes: vec![error.to_string()] }
    }
}

fn run(kind: &'static Kind, conf: Conf) -> u8 {
    match start(kind, conf) {
        Ok(code) => code,
        Err(refusal) => {
            for cause in &refusal.causes {
                log(Level::Error, "", cause, &[]);
            }
            refusal.code
        }
    }
}

fn start(kind: &'static Kind, mut conf: Conf) -> Result<u8, Refusal> {
    let url = config::database_url(&conf)?;
    let synchronous_commit = match conf.section("pepsi-postgres") {
        Some(section) => section.boolean("WORKER_SYNCHRONOUS_COMMIT", false)?,
        None => false,
    };
    let mut connect = || {
        let mut db = Db::connect(&url, kind.program, Purpose::Worker { synchronous_commit })?;
        db.check_schema()?;
        Ok(db)
    };
    let mut db = connect()?;
    config::overlay(&mut conf, &db.overrides()?);
    let graph = Graph::parse(&conf)?;
    let served = serve_sections(kind, &conf, &graph, std::env::var("PEPSI_STAGE").ok().as_deref())?;
    let not_served = |stage: &str| match graph.stage(stage) {
        Some(section) if is_ours(section, kind) => "this worker serves another stage".to_owned(),
        Some(section) => format!("the PROGRAM of its stage is {}", section.program),
        None => format!("there is no section [stage-{stage}]"),
    };
    let limits = graph.stages.iter().filter(|stage| served.contains_key(&stage.name));
    let batch = limits.map(|stage| stage.queue_limit as usize).max().unwrap_or(1);
    let store = Some(db);
    let successors = Successors::new(&conf, &graph);
    let mut worker = Worker {
        load: kind.load,
        batch,
        served,
        successor: &|stage| successors.find(stage),
        tailor: &|served, overrides| successors.tailored(served, overrides),
        not_served: &not_served,
        connect: &mut connect,
        store,
    };
    Ok(worker.serve(&mut std::io::stdin().lock(), &mut std::io::stdout().lock()))
}

/// Whether a section's PROGRAM is this one, by its file's name: it may be given with a folder.
fn is_ours(section: &graph::Stage, kind: &Kind) -> bool {
    Path::new(&section.program).file_name().is_some_and(|name| name == kind.program)
}

/// The sections that this worker serves, checked: the one of PEPSI_STAGE, or each whose PROGRAM is this one.
fn serve_sections(
    kind: &Kind,
    conf: &Conf,
    graph: &Graph,
    only: Option<&str>,
) -> Result<BTreeMap<String, Rc<Served>>, Refusal> {
    let refuse = |cause: String| Refusal { code: exit::CONFIG, causes: vec![cause] };
    let mut errors = Vec::new();
    let mut served = BTreeMap::new();
    for section in graph.stages.iter().filter(|section| only.is_none_or(|only| section.name == only)) {
        if !is_ours(section, kind) {
            if only.is_some() {
                let text = format!("the PROGRAM of [stage-{}] is {}", section.name, section.program);
                return Err(refuse(format!("PEPSI_STAGE does not fit: {text}")));
            }
            continue;
        }
        match check(kind, conf, section) {
            Ok(stage) => {
                served.insert(section.name.clone(), Rc::new(stage));
            }
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors.into());
    }
    match only {
        Some(only) if served.is_empty() => {
            Err(refuse(format!("PEPSI_STAGE does not fit: there is no section [stage-{only}]")))
        }
        Some(_) | None => Ok(served),
    }
}

/// A section as a stage; warns of what may be a mistake in it.
fn check(kind: &Kind, conf: &Conf, stage: &graph::Stage) -> Result<Served, ConfError> {
    let section = section_of(conf, stage);
    let known: Vec<&str> = COMMON_OPTIONS.iter().chain(kind.options).copied().collect();
    for unknown in section.unknown(&known) {
        log(Level::Warning, &stage.name, &unknown.to_string(), &[]);
    }
    if stage.bounce.as_ref() == Some(&stage.name) {
        let warning = section.error("BOUNCE_STAGE", "is this stage itself, and counts as none");
        log(Level::Warning, &stage.name, &warning.to_string(), &[]);
    }
    build(kind, conf, stage)
}

fn section_of<'a>(conf: &'a Conf, stage: &graph::Stage) -> Section<'a> {
    // The graph was read from this configuration.
    conf.section(&format!("stage-{}", stage.name)).expect("a stage without its section")
}

fn build(kind: &Kind, conf: &Conf, stage: &graph::Stage) -> Result<Served, ConfError> {
    let route = Route {
        stage: stage.name.clone(),
        next: stage.next.clone(),
        // A stage that bounced to itself would be handed the message again at once, for ever.
        bounce: stage.bounce.clone().filter(|bounce| *bounce != stage.name),
        max_lifetime: stage.max_lifetime,
        host: host::hostname(),
    };
    let served = (kind.check)(&section_of(conf, stage))?;
    let Kind { load, options, personal, .. } = *kind;
    Ok(Served { stage: served, route: Rc::new(route), load, options, personal })
}
