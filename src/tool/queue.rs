//! `pepsi-queue list|show`: what is in the queue, where it stands and why. It reads only.
//!
//! `list [--stage S] [--status S] [--sender ADDRESS] [--rcpt ADDRESS] [--limit N] [--json]` prints a table, oldest first;
//! `show ID [--json]` prints all about one message but its content. With `--json` each message is one object on one
//! line, with the columns' names as keys.

use super::{Failure, configuration, exit_code, table};
use crate::proto::conf::Conf;
use crate::proto::text;
use crate::sql::ops::{Filter, Listed};
use crate::sql::{Db, Error, Purpose};
use crate::{Invocation, Level, config, exit, fail, log, print};
use serde_json::{Map, Value, json};
use std::ffi::OsString;

const STATUSES: [&str; 5] = ["pending", "running", "paused", "failed", "timeout"];
const DEFAULT_LIMIT: u32 = 1000;
const MAX_LIMIT: u32 = 1_000_000;
/// A value of `show` is cut there; `--json` has the whole.
const MAX_SHOWN: usize = 4000;

/// What was asked for.
#[derive(Debug)]
enum Request {
    List { filter: Filter, json: bool },
    Show { id: i64, json: bool },
}

pub fn main(call: &Invocation) -> u8 {
    exit_code(run(call))
}

fn run(call: &Invocation) -> Result<u8, Failure> {
    let request = parse(&call.args).map_err(|error| Failure::usage(call, &error))?;
    let (conf, url) = configuration(call)?;
    Ok(answer(call.program, &url, conf, &request)?)
}

fn parse(args: &[OsString]) -> Result<Request, lexopt::Error> {
    use lexopt::Arg::{Long, Short, Value};
    let Some((subcommand, rest)) = args.split_first() else { return Err("no subcommand".into()) };
    let is_list = match subcommand.to_str() {
        Some("list") => true,
        Some("show") => false,
        _ => return Err(format!("there is no subcommand '{}'", subcommand.display()).into()),
    };
    let mut parser = lexopt::Parser::from_args(rest);
    let mut filter = Filter { limit: DEFAULT_LIMIT, ..Filter::default() };
    let (mut json, mut id) = (false, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("json") => json = true,
            Long("stage") if is_list => filter.stage = Some(value(&mut parser)?),
            Long("status") if is_list => {
                let status = value(&mut parser)?;
                if !STATUSES.contains(&status.as_str()) {
                    return Err(format!("--status '{status}' is none of {}", STATUSES.join(", ")).into());
                }
                filter.status = Some(status);
            }
            // As the table shows them: `<>` is the null sender.
            Long("sender") if is_list => {
                filter.sender = Some(value(&mut parser)?.trim_matches(['<', '>']).to_owned());
            }
            Long("rcpt") if is_list => filter.recipient = Some(value(&mut parser)?),
            Long("limit") if is_list => {
                let limit = value(&mut parser)?;
                filter.limit = limit
                    .parse()
                    .ok()
                    .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                    .ok_or_else(|| format!("--limit '{limit}' is not a number from 1 to {MAX_LIMIT}"))?;
            }
            Value(word) if !is_list && id.is_none() => {
                let number = word.to_str().and_then(|word| word.parse::<i64>().ok());
                id = Some(number.ok_or_else(|| format!("'{}' is no message id", word.display()))?);
            }
            Long(_) | Short(_) | Value(_) => return Err(arg.unexpected()),
        }
    }
    match (is_list, id) {
        (true, _) => Ok(Request::List { filter, json }),
        (false, Some(id)) => Ok(Request::Show { id, json }),
        (false, None) => Err("show needs a message id".into()),
    }
}

fn value(parser: &mut lexopt::Parser) -> Result<String, lexopt::Error> {
    let value = parser.value()?;
    value.into_string().map_err(|value| format!("'{}' is not UTF-8", value.display()).into())
}

fn answer(program: &str, url: &str, mut conf: Conf, request: &Request) -> Result<u8, Error> {
    let mut db = Db::connect(url, program, Purpose::Tool)?;
    db.check_schema()?;
    config::overlay(&mut conf, &db.overrides()?);
    match request {
        Request::List { filter, json } => {
            // One more than asked for tells whether there are more.
            let mut rows = db.list(&Filter { limit: filter.limit + 1, ..filter.clone() })?;
            let has_more = rows.len() > filter.limit as usize;
            rows.truncate(filter.limit as usize);
            let code = print(&list(&conf, &rows, *json));
            if has_more {
                let limit = filter.limit;
                log(Level::Warning, "", "there are more messages; see --limit", &[("shown", &limit)]);
            }
            Ok(code)
        }
        Request::Show { id, json } => Ok(match db.show(*id)? {
            Some(row) if *json => print(&table::json_line(&Value::Object(details(&conf, &row)))),
            Some(row) => print(&show(&details(&conf, &row))),
            None => fail(exit::FAILURE, &format!("there is no message {id}")),
        }),
    }
}

/// The columns of a list, and the keys of its JSON.
const COLUMNS: [&str; 9] = ["id", "stage", "status", "age", "due", "claims", "sender", "recipients", "why"];

fn list(conf: &Conf, rows: &[Listed], json: bool) -> String {
    if json {
        return rows.iter().map(|row| table::json_line(&Value::Object(columns(conf, row)))).collect();
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(conf, row)).collect();
    table::render(&COLUMNS, &cells)
}

/// A row for programs: times in seconds.
fn columns(conf: &Conf, row: &Listed) -> Map<String, Value> {
    let values = [
        json!(row.id),
        json!(row.stage),
        json!(row.status),
        json!(row.age_seconds),
        json!(row.due_seconds),
        json!(row.claims),
        json!(row.mail_from),
        json!(row.rcpt_to),
        json!(why(conf, row)),
    ];
    COLUMNS.iter().map(|name| (*name).to_owned()).zip(values).collect()
}

/// A row for people.
fn cells(conf: &Conf, row: &Listed) -> Vec<String> {
    let recipients = match row.rcpt_to.as_slice() {
        [] => "-".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    };
    vec![
        row.id.to_string(),
        row.stage.clone(),
        row.status.clone(),
        table::span(row.age_seconds),
        row.due_seconds.map_or_else(|| "-".into(), table::span),
        row.claims.to_string(),
        format!("<{}>", row.mail_from),
        recipients,
        why(conf, row).unwrap_or_default(),
    ]
}

/// Why a message waits or has failed. Nobody claims a pending one whose stage has no section (requirement W7).
fn why(conf: &Conf, row: &Listed) -> Option<String> {
    if row.status == "pending" && conf.section(&format!("stage-{}", row.stage)).is_none() {
        return Some(format!("there is no section [stage-{}]", row.stage));
    }
    let error = ["last_error", "dispatch_error"].iter().find_map(|key| row.state.get(key))?;
    Some(error.as_str().map_or_else(|| error.to_string(), str::to_owned))
}

/// All that is known of a row.
fn details(conf: &Conf, row: &Listed) -> Map<String, Value> {
    let mut all = columns(conf, row);
    for (name, value) in [
        ("sender_key", json!(row.sender_key)),
        ("received_at", json!(row.received_at)),
        ("size", json!(row.size)),
        ("header_from", json!(row.header_from)),
        ("subject", json!(row.subject)),
        ("state", row.state.clone()),
    ] {
        all.insert(name.to_owned(), value);
    }
    all
}

/// The details for people, one to a line; what is not there is left out, and each recipient has a line of its own.
fn show(details: &Map<String, Value>) -> String {
    let order =
        COLUMNS.iter().chain(&["sender_key", "received_at", "size", "header_from", "subject", "state"]);
    let mut out = String::new();
    for name in order {
        let lines: Vec<String> = match (details.get(*name), *name) {
            (None | Some(Value::Null), _) => Vec::new(),
            (Some(Value::Array(values)), "recipients") => values.iter().map(plain).collect(),
            (Some(Value::Number(seconds)), "age" | "due") => vec![table::span(seconds.as_i64().unwrap_or(0))],
            (Some(Value::String(sender)), "sender") => vec![format!("<{sender}>")],
            (Some(value), _) => vec![plain(value)],
        };
        for line in lines {
            out += &format!("{name:<12} {}\n", text::escape(&line, MAX_SHOWN));
        }
    }
    out
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
