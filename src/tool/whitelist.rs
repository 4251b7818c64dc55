//! `pepsi-whitelist list|add|remove|import`: whose mail an address takes without questions, as a person sees and changes it.
//!
//! `list [--address A] [--correspondent C] [--limit N] [--json]` prints a table, by address; `add ADDRESS CORRESPONDENT ...`
//! enters; `remove ADDRESS CORRESPONDENT ...`, or `--all`, takes away; `import [FILE]` enters a pair a line.
//!
//! Invariants: everything is entered in the form in which it is compared (`mail::address::folded`). Each statement is
//! bounded and commits by itself, and may be repeated: a run that was cut short is simply run again. A line that is wrong
//! keeps no other from being imported.

use super::{Failure, configuration, exit_code, table};
use crate::mail::address;
use crate::proto::text;
use crate::sql::lists::Correspondent;
use crate::sql::{Db, Purpose};
use crate::{Invocation, Level, exit, fail, log, print};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};

const DEFAULT_LIMIT: u32 = 1000;
const MAX_LIMIT: u32 = 1_000_000;
/// Pairs in one statement.
const BATCH: u32 = 1000;
/// A person who waits is told after so many.
const PROGRESS: u64 = 100_000;
/// Two addresses with quotes, and some blanks; a longer line is no pair.
const MAX_LINE: usize = 4096;
/// Wrong lines are named up to here and then counted.
const MAX_NAMED: u64 = 100;
/// What entered it.
const SOURCE: &str = "manual";

/// What was asked for; addresses and correspondents are folded.
#[derive(Debug)]
enum Request {
    List {
        address: Option<String>,
        correspondent: Option<String>,
        limit: u32,
        json: bool,
    },
    Add {
        address: String,
        correspondents: Vec<String>,
    },
    /// None: all of them.
    Remove {
        address: String,
        correspondents: Option<Vec<String>>,
    },
    /// None: standard input.
    Import {
        file: Option<OsString>,
    },
}

pub fn main(call: &Invocation) -> u8 {
    exit_code(run(call))
}

fn run(call: &Invocation) -> Result<u8, Failure> {
    let request = parse(&call.args).map_err(|error| Failure::usage(call, &error))?;
    let (_, url) = configuration(call)?;
    let mut db = Db::connect(&url, call.program, Purpose::Tool)?;
    db.check_schema()?;
    match request {
        Request::List { address, correspondent, limit, json } => {
            // One more than asked for tells whether there are more.
            let mut rows = db.whitelist(address.as_deref(), correspondent.as_deref(), limit + 1)?;
            let has_more = rows.len() > limit as usize;
            rows.truncate(limit as usize);
            let code = print(&list(&rows, json));
            if has_more {
                log(Level::Warning, "", "there are more entries; see --limit", &[("shown", &limit)]);
            }
            Ok(code)
        }
        Request::Add { address, correspondents } => {
            for some in correspondents.chunks(BATCH as usize) {
                let pairs: Vec<(&str, &str)> =
                    some.iter().map(|one| (address.as_str(), one.as_str())).collect();
                db.add_listed(&pairs, SOURCE)?;
            }
            Ok(exit::OK)
        }
        Request::Remove { address, correspondents } => {
            let mut removed = 0;
            loop {
                let count = db.remove_listed(&address, correspondents.as_deref(), BATCH)?;
                removed += count;
                if count < u64::from(BATCH) {
                    break;
                }
            }
            if removed == 0 {
                return Ok(fail(exit::FAILURE, &format!("{address} has listed none of these")));
            }
            Ok(exit::OK)
        }
        Request::Import { file } => import(&mut db, file),
    }
}

fn parse(args: &[OsString]) -> Result<Request, lexopt::Error> {
    use lexopt::Arg::{Long, Short, Value};
    let Some((subcommand, rest)) = args.split_first() else { return Err("no subcommand".into()) };
    let command = subcommand.to_str().unwrap_or_default();
    if !["list", "add", "remove", "import"].contains(&command) {
        return Err(format!("there is no subcommand '{}'", subcommand.display()).into());
    }
    let (is_list, is_change) = (command == "list", command == "add" || command == "remove");
    let mut parser = lexopt::Parser::from_args(rest);
    let (mut address, mut correspondents, mut file) = (None, Vec::new(), None);
    let (mut json, mut all, mut limit) = (false, false, DEFAULT_LIMIT);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("json") if is_list => json = true,
            Long("address") if is_list => address = Some(folded(parser.value()?, address::folded)?),
            Long("correspondent") if is_list => {
                correspondents = vec![folded(parser.value()?, correspondent)?]
            }
            Long("limit") if is_list => {
                let value = parser.value()?;
                let number = value.to_str().and_then(|value| value.parse().ok());
                limit = number.filter(|limit| (1..=MAX_LIMIT).contains(limit)).ok_or_else(|| {
                    format!("--limit '{}' is not a number from 1 to {MAX_LIMIT}", value.display())
                })?;
            }
            Long("all") if command == "remove" => all = true,
            Value(word) if is_change && address.is_none() => address = Some(folded(word, address::folded)?),
            Value(word) if is_change => correspondents.push(folded(word, correspondent)?),
            Value(word) if command == "import" && file.is_none() => file = Some(word),
            Long(_) | Short(_) | Value(_) => return Err(arg.unexpected()),
        }
    }
    if is_list {
        return Ok(Request::List { address, correspondent: correspondents.pop(), limit, json });
    }
    if command == "import" {
        return Ok(Request::Import { file: file.filter(|file| file != "-") });
    }
    let address = address.ok_or_else(|| format!("{command} needs an address"))?;
    match (command, all, correspondents.is_empty()) {
        ("remove", true, true) => Ok(Request::Remove { address, correspondents: None }),
        (_, true, _) => Err("--all stands instead of correspondents".into()),
        (_, false, true) => Err(format!("{command} needs a correspondent: an address or @DOMAIN").into()),
        ("add", false, false) => Ok(Request::Add { address, correspondents }),
        (_, false, false) => Ok(Request::Remove { address, correspondents: Some(correspondents) }),
    }
}

type Fold = fn(&str) -> Result<String, address::AddressError>;

fn folded(word: OsString, fold: Fold) -> Result<String, lexopt::Error> {
    let word = word.into_string().map_err(|word| format!("'{}' is not UTF-8", word.display()))?;
    fold(&word).map_err(|error| format!("'{}' {error}", text::escape(&word, MAX_SHOWN)).into())
}

/// A wrong address is cut there in an error.
const MAX_SHOWN: usize = 80;

/// An address or `@DOMAIN`, as they are compared.
fn correspondent(word: &str) -> Result<String, address::AddressError> {
    match word.strip_prefix('@') {
        Some(domain) => Ok(format!("@{}", address::domain(domain)?)),
        None => address::folded(word),
    }
}

/// The columns of a list, and the keys of its JSON.
const COLUMNS: [&str; 4] = ["address", "correspondent", "source", "added_at"];

fn list(rows: &[Correspondent], json: bool) -> String {
    let cells = |row: &Correspondent| {
        vec![row.address.clone(), row.correspondent.clone(), row.source.clone(), row.added_at.clone()]
    };
    if !json {
        return table::render(&COLUMNS, &rows.iter().map(cells).collect::<Vec<_>>());
    }
    let object = |row: &Correspondent| {
        let values = cells(row).into_iter().map(|value| json!(value));
        let object: Map<String, Value> = COLUMNS.iter().map(|name| (*name).to_owned()).zip(values).collect();
        table::json_line(&Value::Object(object))
    };
    rows.iter().map(object).collect()
}

fn import(db: &mut Db, file: Option<OsString>) -> Result<u8, Failure> {
    let (name, mut input): (String, Box<dyn BufRead>) = match file {
        None => ("standard input".into(), Box::new(std::io::stdin().lock())),
        Some(file) => {
            let name = file.to_string_lossy().into_owned();
            let opened = File::open(&file);
            let opened = opened.map_err(|error| cannot_read(&name, &error))?;
            (name, Box::new(BufReader::new(opened)))
        }
    };
    let (mut pairs, mut line, mut number): (Vec<(String, String)>, Vec<u8>, u64) = Default::default();
    let (mut wrong, mut new, mut entered): (u64, u64, u64) = Default::default();
    loop {
        let has_more = read_line(&mut input, &mut line).map_err(|error| cannot_read(&name, &error))?;
        number += 1;
        match pair(&line) {
            Ok(pair) => pairs.extend(pair),
            Err(why) => {
                wrong += 1;
                if wrong <= MAX_NAMED {
                    log(Level::Error, "", &format!("{name}:{number}: {why}"), &[]);
                }
            }
        }
        if pairs.len() == BATCH as usize || !has_more {
            let some: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            new += db.add_listed(&some, SOURCE)?;
            entered += pairs.len() as u64;
            pairs.clear();
            if has_more && entered % PROGRESS == 0 && std::io::stderr().is_terminal() {
                log(Level::Info, "", "so far", &[("pairs", &entered)]);
            }
        }
        if !has_more {
            break;
        }
    }
    log(Level::Info, "", "imported", &[("pairs", &entered), ("new", &new), ("wrong", &wrong)]);
    Ok(if wrong > 0 { exit::DATA } else { exit::OK })
}

fn cannot_read(name: &str, error: &std::io::Error) -> Failure {
    Failure { code: exit::IO, text: format!("cannot read {}: {error}", text::escape(name, MAX_LINE)) }
}

/// The next line, and whether there may be one behind it. Of a line that is too long only so much is kept that it is seen to be.
fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    input.take(MAX_LINE as u64 + 1).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        return Ok(true);
    }
    if line.len() <= MAX_LINE {
        return Ok(false);
    }
    let mut rest = Vec::new();
    loop {
        rest.clear();
        input.take(MAX_LINE as u64).read_until(b'\n', &mut rest)?;
        match rest.last() {
            None => return Ok(false),
            Some(b'\n') => return Ok(true),
            Some(_) => {}
        }
    }
}

/// The pair of a line; None for one that is empty or a comment. The error is a clause.
fn pair(line: &[u8]) -> Result<Option<(String, String)>, String> {
    if line.len() > MAX_LINE {
        return Err(format!("the line is longer than {MAX_LINE} bytes"));
    }
    let line = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8")?.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let [owner, other] = words(line)[..] else {
        return Err(format!(
            "\"{}\" is not one ADDRESS and one CORRESPONDENT",
            text::escape(line, MAX_SHOWN)
        ));
    };
    let shown =
        |word: &str, error: address::AddressError| format!("\"{}\" {error}", text::escape(word, MAX_SHOWN));
    let owner = address::folded(owner).map_err(|error| shown(owner, error))?;
    let other = correspondent(other).map_err(|error| shown(other, error))?;
    Ok(Some((owner, other)))
}

/// What stands between blanks, but for those in quotes.
fn words(line: &str) -> Vec<&str> {
    let (mut in_quotes, mut escaped) = (false, false);
    let parts = line.split(|c: char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_quotes => escaped = true,
            '"' => in_quotes = !in_quotes,
            _ => {}
        }
        c.is_whitespace() && !in_quotes
    });
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
#[path = "whitelist_tests.rs"]
mod tests;
