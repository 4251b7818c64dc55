//! `pepsi-sendmail`: a message on standard input becomes a row.
//!
//! It ends with 0 only when the row is on disk (`synchronous_commit` is on for admissions); every other end leaves
//! nothing behind, and its code says whether to try again: 75 and 74 yes, 64, 65 and 78 not unchanged. It says nothing
//! on success, because what calls it (cron, for one) mails what it says. It refuses to run set-id: `-C` and
//! $PEPSI_CONFIG choose the files that are read and the database.

mod compose;
mod input;
mod options;

use crate::mail::address::{self, Address};
use crate::mail::split;
use crate::proto::conf::{Conf, ConfError};
use crate::proto::graph::stage_option;
use crate::sql::ops::Admission;
use crate::sql::{Db, Error, Purpose};
use crate::{Invocation, Level, config, exit, host, sys};
use compose::Facts;
use options::{Command, Options};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub use options::USAGE;

/// A recipient list is kept in one row and read at every hop.
const MAX_RECIPIENTS: usize = 10_000;
const DEFAULT_MESSAGE_SIZE: u64 = 50 << 20;
/// Well under the 1 GiB that PostgreSQL can hold in one value.
const MAX_MESSAGE_SIZE: u64 = 512 << 20;

const KNOWN_OPTIONS: &[&str] = &["MESSAGE_SIZE_LIMIT", "STAGE", "DOMAIN"];

/// Why nothing was taken in: the exit code of sysexits.h, and one line.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    code: u8,
    message: String,
}

fn refuse<T>(code: u8, message: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { code, message: message.into() })
}

/// `[pepsi-sendmail]`, and the database.
struct Settings {
    database: String,
    size_limit: usize,
    stage: String,
    /// Of addresses without one.
    domain: String,
}

pub fn main(call: &Invocation) -> u8 {
    match options::parse(call.args.clone()).and_then(perform) {
        Ok(()) => exit::OK,
        Err(refused) => crate::fail(refused.code, &refused.message),
    }
}

fn perform(command: Command) -> Result<(), Refused> {
    match command {
        Command::Send(options) => send(&options),
        Command::RunQueue => {
            crate::log(
                Level::Info,
                "",
                "-q: nothing to do, pepsi-dispatch works on the queue by itself",
                &[],
            );
            Ok(())
        }
    }
}

fn send(options: &Options) -> Result<(), Refused> {
    if options.verbose {
        crate::set_log_level(Level::Debug);
    }
    if host::is_set_id() {
        return refuse(
            exit::CONFIG,
            "installed set-id, which it must not be: its caller chooses the configuration",
        );
    }
    let settings = read_settings(options)?;
    let uid = sys::uid();
    // A number without a name gets one, since senders are told apart by it.
    let user = host::user_name(uid).unwrap_or_else(|| format!("uid{uid}"));
    let sender = match &options.sender {
        Some(text) => sender(text, &settings.domain)?,
        None => format!("{}@{}", user, settings.domain),
    };
    let mut recipients = Recipients { domain: &settings.domain, list: Vec::new(), seen: BTreeSet::new() };
    for address in options.recipients.iter().flat_map(|text| addresses(text)) {
        recipients.add(address)?;
    }
    let original = input::read_message(&mut std::io::stdin().lock(), settings.size_limit, options.dot_ends)?;
    if options.header_recipients {
        for piece in compose::header_recipients(&original) {
            recipients.add(piece)?;
        }
    }
    let recipients = recipients.list;
    if recipients.is_empty() {
        let how = if options.header_recipients {
            "in To, Cc or Bcc"
        } else {
            "given; use -t for those of the header"
        };
        return refuse(exit::USAGE, format!("no recipients {how}"));
    }
    let message = compose::compose(
        &original,
        &Facts {
            user: &user,
            uid,
            host: &host::hostname(),
            domain: &settings.domain,
            sender: &sender,
            full_name: options.full_name.as_deref(),
            now_us: host::wall_clock_us(),
            pid: std::process::id(),
        },
        options.header_recipients,
    );
    let mut state = state(options, &user, recipients.len());
    if original.contains(&0) {
        // Whatever sends it on must know that it needs BINARYMIME (RFC 3030).
        state["origin"]["body"] = "BINARYMIME".into();
    }
    drop(original);
    admit(&settings, &sender, &recipients, &message, state)
}

/// Stores the message, then wakes the dispatcher once. After the commit nothing may fail any more: a caller that is
/// told to try again would send a second copy.
fn admit(
    settings: &Settings,
    sender: &str,
    recipients: &[String],
    message: &[u8],
    state: Value,
) -> Result<(), Refused> {
    let mut db = Db::connect(&settings.database, "pepsi-sendmail", Purpose::Admission).map_err(database)?;
    db.check_schema().map_err(database)?;
    let (headers, body) = split::split(message);
    let admission =
        Admission { mail_from: sender, rcpt_to: recipients, headers, body, state, stage: &settings.stage };
    let id = db.admit(&admission).map_err(database)?;
    crate::log(
        Level::Debug,
        "",
        "queued",
        &[("id", &id), ("from", &sender), ("recipients", &recipients.len())],
    );
    if let Err(error) = db.notify_workqueue() {
        crate::log(Level::Warning, "", "queued, but the dispatcher was not woken", &[("error", &error)]);
    }
    Ok(())
}

/// What a caller does about each class: all but a person's business may be tried again as it is.
fn database(error: Error) -> Refused {
    let code = match &error {
        Error::Lost(_) | Error::Overloaded(_) | Error::Conflict(_) | Error::Refused(_) => exit::TEMPORARY,
        Error::Setup(_) | Error::Schema(_) => exit::CONFIG,
    };
    Refused { code, message: error.to_string() }
}

fn read_settings(options: &Options) -> Result<Settings, Refused> {
    let loaded = host::load_config(options.config.as_deref())
        .map_err(|message| Refused { code: exit::CONFIG, message })?;
    settings(&loaded.conf).map_err(|error| Refused { code: exit::CONFIG, message: error.to_string() })
}

fn settings(conf: &Conf) -> Result<Settings, ConfError> {
    let mut settings = Settings {
        database: config::database_url(conf)?,
        size_limit: DEFAULT_MESSAGE_SIZE as usize,
        stage: "init".into(),
        domain: host::mail_name(),
    };
    let Some(section) = conf.section("pepsi-sendmail") else {
        return Ok(settings);
    };
    for unknown in section.unknown(KNOWN_OPTIONS) {
        crate::log(Level::Warning, "", &unknown.to_string(), &[]);
    }
    let limit = section.number("MESSAGE_SIZE_LIMIT", DEFAULT_MESSAGE_SIZE, 1..=MAX_MESSAGE_SIZE)?;
    settings.size_limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if section.get("STAGE")?.is_some() {
        let stage = stage_option(&section, "STAGE")?;
        settings.stage = stage.ok_or_else(|| section.error("STAGE", "needs the name of a stage"))?;
    }
    if let Some(domain) = section.get("DOMAIN")? {
        address::parse(&format!("x@{domain}")).map_err(|error| section.error("DOMAIN", &error.0))?;
        settings.domain = domain;
    }
    Ok(settings)
}

/// `-f`: empty and `<>` are the null sender.
fn sender(text: &str, domain: &str) -> Result<String, Refused> {
    if text.is_empty() || text == "<>" {
        return Ok(String::new());
    }
    match addresses(text).as_slice() {
        [Ok(address)] => Ok(qualify(address.clone(), domain).to_string()),
        [Err(error)] => refuse(exit::DATA, format!("sender {error}")),
        _ => refuse(exit::DATA, format!("sender '{text}' is more than one address")),
    }
}

/// What one argument names: an address as it is, or a list as a header has it, which callers such as cron (`MAILTO=a,b`)
/// hand on in one piece. Where neither is right, why the first is not.
fn addresses(text: &str) -> Vec<Result<Address, String>> {
    let error = match address::parse(text) {
        Ok(address) => return vec![Ok(address)],
        Err(error) => error,
    };
    let list: Option<Vec<Address>> = address::list(text).into_iter().map(Result::ok).collect();
    match list.filter(|list| !list.is_empty()) {
        Some(list) => list.into_iter().map(Ok).collect(),
        None => vec![Err(format!("'{text}' {}", error.0))],
    }
}

fn qualify(mut address: Address, domain: &str) -> Address {
    if address.domain.is_empty() {
        domain.clone_into(&mut address.domain);
    }
    address
}

/// Whom a message is for, each once: domains compare in any case, local parts exactly.
struct Recipients<'a> {
    /// Of addresses without one.
    domain: &'a str,
    list: Vec<String>,
    seen: BTreeSet<String>,
}

impl Recipients<'_> {
    /// Adds an address unless it is there already; an error is a clause that names the text.
    fn add(&mut self, parsed: Result<Address, String>) -> Result<(), Refused> {
        let address = match parsed {
            Ok(address) => qualify(address, self.domain),
            Err(error) => return refuse(exit::DATA, format!("recipient {error}")),
        };
        let address = Address { domain: address.domain_lower(), ..address }.to_string();
        if !self.seen.insert(address.clone()) {
            return Ok(());
        }
        if self.list.len() == MAX_RECIPIENTS {
            return refuse(exit::DATA, format!("more than {MAX_RECIPIENTS} recipients"));
        }
        self.list.push(address);
        Ok(())
    }
}

/// The row's state: where it came from, and what the sender wants to hear about its delivery (RFC 3461).
fn state(options: &Options, user: &str, recipients: usize) -> Value {
    let mut state = json!({
        "local_origin": true,
        "origin": { "auth_user": user, "listener": "sendmail" },
    });
    let mut dsn = serde_json::Map::new();
    if let Some(notify) = &options.notify {
        dsn.insert("rcpt".into(), vec![json!({ "notify": notify }); recipients].into());
    }
    if let Some(ret) = options.ret {
        dsn.insert("ret".into(), ret.into());
    }
    if let Some(envid) = &options.envid {
        dsn.insert("envid".into(), envid.as_str().into());
    }
    if !dsn.is_empty() {
        state["dsn"] = dsn.into();
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_an_address_or_a_list_as_in_a_header() {
        let all = |text: &str| {
            let found: Result<Vec<Address>, String> = addresses(text).into_iter().collect();
            found.map(|list| list.iter().map(Address::to_string).collect::<Vec<_>>().join(" "))
        };
        for (text, expected) in [
            ("ann", "ann"),
            ("ann,bob", "ann bob"),
            ("ann@x.example, bob@x.example", "ann@x.example bob@x.example"),
            ("Ann A <ann@x.example>", "ann@x.example"),
            ("\"a,b\"@x.example", "\"a,b\"@x.example"),
        ] {
            assert_eq!(all(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "a b", "ann,", "ann@@x", "ann,b c", "<>", "Ann <>"] {
            assert!(all(text).is_err() || text == "ann,", "{text}: {:?}", all(text));
        }
        assert!(
            sender("a@b.example,c@d.example", "x")
                .is_err_and(|refused| refused.message.contains("more than one"))
        );
        assert_eq!(sender("Ann <a@b.example>", "x").as_deref(), Ok("a@b.example"));
    }

    #[test]
    fn recipients_are_complete_once_and_not_too_many() {
        let mut recipients = Recipients { domain: "example.org", list: Vec::new(), seen: BTreeSet::new() };
        let mut add = |text: &str| recipients.add(address::parse(text).map_err(|error| error.0));
        for text in ["ann", "Ann@Example.ORG", "<ann@EXAMPLE.org>", "ann@example.org", "\"a b\"@[127.0.0.1]"]
        {
            assert_eq!(add(text), Ok(()), "{text}");
        }
        assert_eq!(add("a b").map_err(|refused| refused.code), Err(exit::DATA));
        for number in 3..MAX_RECIPIENTS {
            assert_eq!(add(&format!("{number}@example.net")), Ok(()));
        }
        assert_eq!(add("ann@example.org"), Ok(()), "it is there already");
        let refused = add("one.more@example.net").expect_err("too many");
        assert!(
            refused.code == exit::DATA && refused.message.contains("more than 10000"),
            "{}",
            refused.message
        );
        let start = ["ann@example.org", "Ann@example.org", "\"a b\"@[127.0.0.1]", "3@example.net"];
        assert_eq!(recipients.list[..4], start);
    }
}
