//! What the owner of an address may set for a stage (requirement X1): the options that its program declares personal, to values
//! that its check takes. Whoever stores settings asks here first, since a value that does not parse fails the owner's mail.

use super::{Change, Kind, find};
use crate::proto::conf::{Conf, SETTINGS};
use std::collections::BTreeSet;
use std::path::Path;

/// What is wrong with a change: its place in the list, None where it is only seen with the others, and the reason.
pub type Wrong = (Option<usize>, String);

/// What is wrong with these changes under the configuration `conf`; empty: they may be made.
pub fn check(conf: &Conf, changes: &[Change]) -> Vec<Wrong> {
    check_kinds(conf, changes, find)
}

/// The same with the programs that `find` knows.
pub(super) fn check_kinds(
    conf: &Conf,
    changes: &[Change],
    find: fn(&str) -> Option<&'static Kind>,
) -> Vec<Wrong> {
    let (mut wrong, mut laid) = (Vec::new(), conf.clone());
    let mut kinds: Vec<(&str, &Kind)> = Vec::new();
    for (place, Change { stage, option, value }) in changes.iter().enumerate() {
        let section = format!("stage-{stage}");
        let program = conf.section(&section).and_then(|section| section.get("PROGRAM").ok()?);
        let name = program.as_ref().and_then(|program| Path::new(program).file_name()?.to_str());
        let Some(kind) = name.and_then(find).filter(|kind| kind.personal.contains(&option.as_str())) else {
            wrong.push((Some(place), format!("{stage} has no setting {option} for an owner to change")));
            continue;
        };
        if let Some(value) = value {
            laid.overlay_owned(&section, option, value);
            kinds.push((stage, kind));
        }
    }
    let mut seen = BTreeSet::new();
    for (stage, kind) in kinds.into_iter().filter(|(stage, _)| seen.insert(*stage)) {
        let Some(section) = laid.section(&format!("stage-{stage}")) else { continue };
        if let Err(error) = (kind.check)(&section) {
            // What is not about the value itself is nothing for the owner (S5).
            let why = if error.file == SETTINGS { error.message } else { "the values do not fit".into() };
            wrong.push((None, format!("{stage}: {why}")));
        }
    }
    wrong
}
