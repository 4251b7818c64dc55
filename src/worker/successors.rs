//! Which stages a message may go on to in the same pass (requirement U1): those that this very program can do, whose section does
//! not say FUSION=no, and passes its check. A section is checked when a message first comes to it.

use super::runtime::{Served, Tailored};
use super::settings::{Override, Overrides};
use super::{build, stage};
use crate::host;
use crate::proto::conf::Conf;
use crate::proto::graph::Graph;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub struct Successors<'a> {
    conf: &'a Conf,
    graph: &'a Graph,
    /// This program's file, links resolved; None if it cannot be found: then nothing is known to be the same program.
    ours: Option<PathBuf>,
    known: RefCell<BTreeMap<String, Option<Rc<Served>>>>,
    tailored: RefCell<BTreeMap<(String, Overrides), Tailored>>,
}

/// So many different sections of all stages are kept for correspondents who have their own options.
const MOST_TAILORED: usize = 1000;

impl<'a> Successors<'a> {
    pub fn new(conf: &'a Conf, graph: &'a Graph) -> Successors<'a> {
        let ours = std::env::current_exe().and_then(|file| file.canonicalize()).ok();
        Successors { conf, graph, ours, known: RefCell::default(), tailored: RefCell::default() }
    }

    /// The stage of that name; None: the message goes there by the database, as ever.
    pub fn find(&self, name: &str) -> Option<Rc<Served>> {
        if let Some(known) = self.known.borrow().get(name) {
            return known.clone();
        }
        let found = self.look(name).map(Rc::new);
        self.known.borrow_mut().insert(name.to_owned(), found.clone());
        found
    }

    fn look(&self, name: &str) -> Option<Served> {
        let section = self.graph.stage(name)?;
        let kind = stage::find(Path::new(&section.program).file_name()?.to_str()?)?;
        let fuses =
            self.graph.allow_fusion && section.fusion.unwrap_or(kind.fuses) && self.is_ours(&section.program);
        // What is wrong with the section its own workers say.
        if fuses { build(kind, self.conf, section).ok() } else { None }
    }

    /// The stage with these options laid over its section; or what is wrong with them, as a clause.
    pub fn tailored(&self, served: &Served, overrides: &Overrides) -> Tailored {
        let key = (served.route.stage.clone(), overrides.clone());
        if let Some(known) = self.tailored.borrow().get(&key) {
            return known.clone();
        }
        let made = self.tailor(&served.route.stage, overrides).map(Rc::new);
        let mut tailored = self.tailored.borrow_mut();
        if tailored.len() >= MOST_TAILORED {
            tailored.clear();
        }
        tailored.insert(key, made.clone());
        made
    }

    fn tailor(&self, name: &str, overrides: &Overrides) -> Result<Served, String> {
        let lacking = || format!("is for [stage-{name}], and there is no such section");
        let section = self.graph.stage(name).ok_or_else(lacking)?;
        let program = Path::new(&section.program).file_name().and_then(|name| name.to_str());
        let kind = program.and_then(stage::find).ok_or_else(lacking)?;
        let mut conf = self.conf.clone();
        let title = format!("stage-{name}");
        for (option, Override { value, is_owned }) in overrides {
            if *is_owned {
                conf.overlay_owned(&title, option, value);
            } else {
                conf.overlay(&title, option, value);
            }
        }
        build(kind, &conf, section).map_err(|error| format!("does not parse: {error}"))
    }

    /// Whether PROGRAM starts this program, as the dispatcher finds it.
    fn is_ours(&self, program: &str) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = host::find_program(program, &path).and_then(|file| file.canonicalize().ok());
        found.is_some() && found == self.ours
    }
}
