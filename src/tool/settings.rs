//! `pepsi-settings list|get|set|unset`: what the owners of addresses have set for single stages, as a person sees and changes it.
//!
//! `list [--address A] [--stage S] [--limit N] [--json]` prints a table, by address; `get ADDRESS STAGE OPTION` prints a value;
//! `set ADDRESS STAGE OPTION VALUE` and `unset ADDRESS STAGE [OPTION]` change it.
//!
//! Invariants: nothing is set that the stage does not leave to owners, or that its check refuses under the configuration as it is
//! now, overlay included. Addresses are in ASCII lower case, as a load compares them.

use super::{Failure, configuration, exit_code, table};
use crate::mail::address;
use crate::proto::conf::Conf;
use crate::proto::graph::is_stage_name;
use crate::proto::text;
use crate::sql::lists::Setting;
use crate::sql::{Db, Purpose};
use crate::worker::stage::personal;
use crate::worker::tables::Change;
use crate::{Invocation, Level, config, exit, fail, log, print};
use serde_json::json;
use std::ffi::OsString;

const DEFAULT_LIMIT: u32 = 1000;
const MAX_LIMIT: u32 = 1_000_000;
/// A wrong word is cut there in an error.
const MAX_SHOWN: usize = 80;
/// The columns of a list, and the keys of its JSON.
const COLUMNS: [&str; 4] = ["address", "stage", "option", "value"];

/// What was asked for; names are in the case in which they are compared.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    List {
        address: Option<String>,
        stage: Option<String>,
        limit: u32,
        json: bool,
    },
    Get {
        address: String,
        stage: String,
        option: String,
    },
    Set {
        address: String,
        change: Change,
    },
    /// None: all options of the stage.
    Unset {
        address: String,
        stage: String,
        option: Option<String>,
    },
}

pub fn main(call: &Invocation) -> u8 {
    exit_code(run(call))
}

fn run(call: &Invocation) -> Result<u8, Failure> {
    let request = parse(&call.args).map_err(|error| Failure::usage(call, &error))?;
    let (conf, url) = configuration(call)?;
    let mut db = Db::connect(&url, call.program, Purpose::Tool)?;
    db.check_schema()?;
    match request {
        Request::List { address, stage, limit, json } => {
            // One more than asked for tells whether there are more.
            let mut rows = db.settings(address.as_deref(), stage.as_deref(), limit + 1)?;
            let has_more = rows.len() > limit as usize;
            rows.truncate(limit as usize);
            let code = print(&list(&rows, json));
            if has_more {
                log(Level::Warning, "", "there are more settings; see --limit", &[("shown", &limit)]);
            }
            Ok(code)
        }
        Request::Get { address, stage, option } => {
            let rows = db.settings(Some(&address), Some(&stage), MAX_LIMIT)?;
            match rows.iter().find(|row| row.option == option) {
                // As it is, for a program; what would move a terminal's cursor no stage takes for a value.
                Some(row) if row.value.contains(char::is_control) => {
                    Ok(print(&format!("{}\n", text::escape(&row.value, usize::MAX))))
                }
                Some(row) => Ok(print(&format!("{}\n", row.value))),
                None => Ok(fail(exit::FAILURE, &format!("{address} has not set {option} of {stage}"))),
            }
        }
        Request::Set { address, change } => set(&mut db, conf, &address, change),
        Request::Unset { address, stage, option } => {
            let options = match option {
                Some(option) => vec![option],
                None => {
                    let rows = db.settings(Some(&address), Some(&stage), MAX_LIMIT)?;
                    rows.into_iter().map(|row| row.option).collect()
                }
            };
            let changes: Vec<_> =
                options.iter().map(|option| (stage.as_str(), option.as_str(), None)).collect();
            if db.change_settings(&address, &changes)? == 0 {
                return Ok(fail(exit::FAILURE, &format!("{address} has set nothing of this for {stage}")));
            }
            Ok(exit::OK)
        }
    }
}

fn set(db: &mut Db, mut conf: Conf, address: &str, change: Change) -> Result<u8, Failure> {
    config::overlay(&mut conf, &db.overrides()?);
    if let Some((_, why)) = personal::check(&conf, std::slice::from_ref(&change)).into_iter().next() {
        return Err(Failure { code: exit::DATA, text: why });
    }
    let Change { stage, option, value } = change;
    db.change_settings(address, &[(&stage, &option, value.as_deref())])?;
    Ok(exit::OK)
}

fn list(rows: &[Setting], json: bool) -> String {
    let row = |Setting { address, stage, option, value }: &Setting| {
        [address, stage, option, value].map(String::as_str).map(str::to_owned)
    };
    if !json {
        return table::render(&COLUMNS, &rows.iter().map(|one| row(one).to_vec()).collect::<Vec<_>>());
    }
    let object = |Setting { address, stage, option, value }: &Setting| {
        table::json_line(&json!({ "address": address, "stage": stage, "option": option, "value": value }))
    };
    rows.iter().map(object).collect()
}

fn parse(args: &[OsString]) -> Result<Request, lexopt::Error> {
    use lexopt::Arg::{Long, Short, Value};
    let Some((subcommand, rest)) = args.split_first() else { return Err("no subcommand".into()) };
    let command = subcommand.to_str().unwrap_or_default();
    if !["list", "get", "set", "unset"].contains(&command) {
        return Err(format!("there is no subcommand '{}'", subcommand.display()).into());
    }
    let is_list = command == "list";
    let mut parser = lexopt::Parser::from_args(rest);
    let (mut address, mut stage, mut json, mut limit) = (None, None, false, DEFAULT_LIMIT);
    let mut words = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("json") if is_list => json = true,
            Long("address") if is_list => address = Some(owner(&word(parser.value()?)?)?),
            Long("stage") if is_list => stage = Some(stage_name(&word(parser.value()?)?)?),
            Long("limit") if is_list => {
                let value = word(parser.value()?)?;
                let number = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                limit = number.ok_or_else(|| {
                    format!("--limit '{}' is not a number from 1 to {MAX_LIMIT}", shown(&value))
                })?;
            }
            Value(value) if !is_list => words.push(word(value)?),
            Long(_) | Short(_) | Value(_) => return Err(arg.unexpected()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match (command, &words[..]) {
        ("list", _) => Ok(Request::List { address, stage, limit, json }),
        ("get", [address, stage, option]) => {
            let (address, stage) = (owner(address)?, stage_name(stage)?);
            Ok(Request::Get { address, stage, option: option.to_ascii_uppercase() })
        }
        ("set", [address, stage, option, value]) => {
            let (stage, option) = (stage_name(stage)?, option.to_ascii_uppercase());
            let change = Change { stage, option, value: Some((*value).to_owned()) };
            Ok(Request::Set { address: owner(address)?, change })
        }
        ("unset", [address, stage, option @ ..]) if option.len() < 2 => {
            let option = option.first().map(|option| option.to_ascii_uppercase());
            Ok(Request::Unset { address: owner(address)?, stage: stage_name(stage)?, option })
        }
        ("get", _) => Err("get needs ADDRESS, STAGE and OPTION".into()),
        ("set", _) => Err("set needs ADDRESS, STAGE, OPTION and VALUE, one argument each".into()),
        _ => Err("unset needs ADDRESS and STAGE, and may have an OPTION".into()),
    }
}

fn word(word: OsString) -> Result<String, lexopt::Error> {
    word.into_string().map_err(|word| format!("'{}' is not UTF-8", word.display()).into())
}

fn shown(word: &str) -> String {
    text::escape(word, MAX_SHOWN)
}

/// An address as a load compares it.
fn owner(word: &str) -> Result<String, lexopt::Error> {
    let refuse = |why: &str| format!("'{}' {why}", shown(word));
    match address::parse(word) {
        Ok(address) if address.domain.is_empty() => Err(refuse("has no domain").into()),
        Ok(address) => Ok(address.to_string().to_ascii_lowercase()),
        Err(error) => Err(refuse(&error.0).into()),
    }
}

fn stage_name(word: &str) -> Result<String, lexopt::Error> {
    let name = word.to_ascii_lowercase();
    if is_stage_name(&name) {
        return Ok(name);
    }
    Err(format!("'{}' cannot be the name of a stage", shown(word)).into())
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
