//! `pepsi-stage-pipe`: runs a program for each message, and does as its exit code says.
//!
//! COMMAND is the program with its arguments (see `command`); no shell. It gets the message on standard input, with lines that end
//! as LINE_END says, and the envelope in its environment. EXIT_STAGES says where messages go on to by exit code. Of the codes that
//! are not named there 0 is done, 75 is a host fault, the rest of 64 to 78 refuses the message, as sysexits.h has it, and all else
//! is a host fault too. With CAPTURE what it prints becomes the message, or its header. TIME_LIMIT bounds it.
//!
//! Nothing of what it prints reaches a sender unless TELL_SENDER says so (S5). What it prints is no message unless it has a header
//! field, so that an error text does not replace one; nothing printed is a host fault.

mod command;

use super::{Context, Done, Kind, Load, Stage, StageError, Tables, line_end};
use crate::host;
use crate::mail::line_end::LineEnd;
use crate::mail::{header, trace};
use crate::proto::conf::{ConfError, Section};
use crate::proto::graph;
use crate::worker::helper::{End, Helper, Report, Said};
use command::{Command, VARIABLES, Values};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-pipe",
    load: Load::Full,
    fuses: false,
    options: &[
        "COMMAND",
        "LINE_END",
        "ADD_TRACE",
        "CAPTURE",
        "OUTPUT_LIMIT",
        "TIME_LIMIT",
        "EXIT_STAGES",
        "ONE_RECIPIENT",
        "TELL_SENDER",
    ],
    personal: &[],
    check: |section| Ok(Box::new(Pipe::read(section)?)),
};

/// What it inherits of the worker's environment.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

const OUTPUT_LIMIT: u64 = 52_428_800;
const MAX_OUTPUT_LIMIT: u64 = 536_870_912;
/// The longest time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// As much of what it says as a log line or a bounce takes.
const MAX_SAID: usize = 400;
/// What a sender is told of a refusal.
const REFUSED: &str = "The message was refused.";

/// The codes of sysexits.h.
const DONE: u8 = 0;
const FIRST_REFUSAL: u8 = 64;
const LAST_REFUSAL: u8 = 78;
const TEMPORARY: u8 = 75;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capture {
    No,
    Headers,
    Message,
}

#[derive(Debug)]
struct Pipe {
    file: PathBuf,
    command: Command,
    line_end: LineEnd,
    add_trace: bool,
    capture: Capture,
    output_limit: usize,
    time_limit: Duration,
    grace: Duration,
    exit_stages: BTreeMap<u8, String>,
    one_recipient: bool,
    tell_sender: bool,
}

impl Stage for Pipe {
    fn run(&self, mut message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        if message.rcpt_to().is_empty() {
            return Err(StageError::host("the message has no recipient").permanent());
        }
        if self.one_recipient && message.rcpt_to().len() > 1 {
            // Written before anything is run: each recipient's row has its own outcome.
            message.split_to_one_per_row();
            let stage = message.stage().to_owned();
            return Ok(message.advance_to(&stage));
        }
        let values = Values {
            id: message.id(),
            sender: message.mail_from(),
            recipient: message.rcpt_to().first().map_or("", String::as_str),
        };
        let given = self.command.fill(&values).and_then(|words| Ok((words, environment(&message)?)));
        let (arguments, environment) = match given {
            Ok(given) => given,
            Err(clause) => {
                let place = only_place(&message);
                return Ok(message.refuse(place, &format!("the message cannot be piped: {clause}"), REFUSED));
            }
        };
        let input = self.input(&message)?;
        let report = Helper {
            file: &self.file,
            arguments: &arguments,
            environment: &environment,
            input: &input.octets,
            output: (self.capture != Capture::No).then_some(self.output_limit),
            time_limit: self.time_limit,
            grace: self.grace,
        }
        .run();
        self.conclude(message, &input, report)
    }
}

impl Pipe {
    fn read(section: &Section<'_>) -> Result<Pipe, ConfError> {
        let text = section.template("COMMAND", &VARIABLES)?.unwrap_or_default();
        let wrong = |clause: &str| section.error("COMMAND", &format!("\"{text}\" {clause}"));
        let command = Command::parse(&text).map_err(|clause| wrong(&clause))?;
        let file = find(&command.program).map_err(|clause| wrong(&clause))?;
        let exit_stages = match section.get("EXIT_STAGES")? {
            Some(text) => exit_stages(&text).map_err(|clause| section.error("EXIT_STAGES", &clause))?,
            None => BTreeMap::new(),
        };
        let capture = capture(section)?;
        let goes_on = section.get("NEXT_STAGE")?.is_some_and(|name| !name.is_empty());
        if capture != Capture::No && !goes_on && !exit_stages.contains_key(&DONE) {
            return Err(section.error("CAPTURE", "needs a NEXT_STAGE: what is captured would be lost"));
        }
        let add_trace = section.boolean("ADD_TRACE", false)?;
        if add_trace && capture != Capture::No {
            return Err(
                section.error("ADD_TRACE", "cannot be yes: with CAPTURE the message is not delivered here")
            );
        }
        let one_recipient = section.boolean("ONE_RECIPIENT", command.names_recipient())?;
        if command.names_recipient() && !one_recipient {
            return Err(section.error("ONE_RECIPIENT", "cannot be no: COMMAND names the recipient"));
        }
        let (time_limit, grace) = times(section)?;
        let output_limit = section.number("OUTPUT_LIMIT", OUTPUT_LIMIT, 1..=MAX_OUTPUT_LIMIT)?;
        Ok(Pipe {
            file,
            command,
            line_end: line_end(section)?,
            add_trace,
            capture,
            output_limit: usize::try_from(output_limit).unwrap_or(usize::MAX),
            time_limit,
            grace,
            exit_stages,
            one_recipient,
            tell_sender: section.boolean("TELL_SENDER", false)?,
        })
    }

    /// The message as the program gets it.
    fn input(&self, message: &Context) -> Result<Input, StageError> {
        let mut octets = Vec::new();
        if self.add_trace {
            let recipients = message.rcpt_to().iter().map(String::as_str);
            octets = self.line_end.convert(trace::delivery(message.mail_from(), recipients).as_bytes());
        }
        octets.append(&mut self.line_end.convert(message.headers()?));
        let headers = octets.len();
        let mut body = None;
        if let Some(old) = message.body()? {
            octets.append(&mut self.line_end.convert(b"\r\n"));
            body = Some(octets.len());
            self.line_end.pieces(old).for_each(|piece| octets.extend_from_slice(piece));
        }
        Ok(Input { octets, headers, body })
    }

    fn conclude(&self, mut message: Context, input: &Input, report: Report) -> Result<Done, StageError> {
        let Report { end, output, said } = report;
        let told = |what: &str| format!("{} {what}{}", self.command.program, excerpt(&said));
        let code = match end {
            End::Code(code) => code,
            End::Signal(number) => {
                return Err(StageError::host(told(&format!("was ended by signal {number}"))));
            }
            End::Failed(clause) => return Err(StageError::host(told(&clause))),
        };
        let stage = self.exit_stages.get(&code);
        if stage.is_some() || code == DONE {
            if self.capture != Capture::No {
                self.take(&mut message, input, &output).map_err(|clause| StageError::host(told(&clause)))?;
            }
            return Ok(match stage {
                Some(stage) => message.advance_to(stage),
                None => message.advance_or_finish(),
            });
        }
        let text = told(&format!("ended with {code}"));
        match code {
            TEMPORARY => Err(StageError::host(text)),
            FIRST_REFUSAL..=LAST_REFUSAL => {
                let place = only_place(&message);
                Ok(message.refuse(place, &text, &self.diagnostic(&said)))
            }
            _ => Err(StageError::host(text)),
        }
    }

    fn diagnostic(&self, said: &Said) -> String {
        let line = if self.tell_sender { said.first_line(MAX_SAID) } else { String::new() };
        if line.is_empty() { REFUSED.into() } else { line }
    }

    /// Puts what it printed in the place of the message, or of its header. A part that it left as it got it stays as it is, line
    /// ends and all. The error is a clause about the program.
    fn take(&self, message: &mut Context, input: &Input, output: &[u8]) -> Result<(), String> {
        if output.is_empty() {
            return Err("printed nothing, and that is no message".into());
        }
        if output == input.octets {
            return Ok(());
        }
        let (headers, body) = self.line_end.split(output);
        if header::fields(headers).is_empty() {
            return Err("printed something that does not begin with a header".into());
        }
        let old_headers = &input.octets[..input.headers];
        if self.line_end == LineEnd::Crlf && bare_line_ends(headers) > bare_line_ends(old_headers) {
            return Err("printed lines that end in LF alone, and LINE_END is crlf".into());
        }
        let old_body = input.body.map(|at| &input.octets[at..]);
        let body = if self.capture == Capture::Message { body } else { old_body };
        let failed = |error: StageError| error.text;
        if headers != old_headers {
            let mut headers = self.line_end.restore(headers);
            if body.is_some() && !headers.ends_with(b"\n") {
                headers.extend_from_slice(b"\r\n");
            }
            message.set_headers(headers).map_err(failed)?;
        }
        if body != old_body {
            message.set_body(body.map(|body| self.line_end.restore(body))).map_err(failed)?;
        }
        Ok(())
    }
}

/// The message as the program gets it: the length of its header, and where its body begins, if it has one.
struct Input {
    octets: Vec<u8>,
    headers: usize,
    body: Option<usize>,
}

/// The first and the last line of what it says, behind a colon.
fn excerpt(said: &Said) -> String {
    let (first, last) = (said.first_line(MAX_SAID), said.last_line(MAX_SAID));
    match (first.is_empty(), first == last) {
        (true, _) => String::new(),
        (false, true) => format!(": {first}"),
        (false, false) => format!(": {first} ... {last}"),
    }
}

/// The recipient that a refusal is about, if it can only be one.
fn only_place(message: &Context) -> Option<usize> {
    (message.rcpt_to().len() == 1).then_some(0)
}

fn bare_line_ends(block: &[u8]) -> usize {
    block
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n") && !line.ends_with(b"\r\n"))
        .count()
}

/// What it gets besides its arguments. The error is a clause about the message.
fn environment(message: &Context) -> Result<Vec<(&'static str, String)>, String> {
    let mut variables: Vec<(&str, String)> =
        INHERITED.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?))).collect();
    variables.push(("PEPSI_ID", message.id().to_string()));
    variables.push(("PEPSI_STAGE", message.stage().to_owned()));
    variables.push(("SENDER", message.mail_from().to_owned()));
    if message.rcpt_to().iter().any(|rcpt| rcpt.contains('\n')) {
        return Err("a recipient of it holds a line end".into());
    }
    variables.push(("RECIPIENTS", message.rcpt_to().join("\n")));
    if let [only] = message.rcpt_to() {
        variables.push(("RECIPIENT", only.clone()));
        let original = message.state().get("dsn").and_then(|dsn| dsn.get("rcpt")?.get(0)?.get("orcpt"));
        variables.extend(text_of(original).map(|text| ("ORIGINAL_RECIPIENT", text)));
    }
    let client = message.state().get("origin").and_then(|origin| origin.get("client_ip"));
    variables.extend(text_of(client).map(|text| ("CLIENT_ADDRESS", text)));
    variables.iter().try_for_each(|(_, value)| command::check(value))?;
    Ok(variables)
}

fn text_of(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}

/// The file of a program, which has to be there. The error is a clause about the template.
fn find(program: &str) -> Result<PathBuf, String> {
    if program.contains('/') && !program.starts_with('/') {
        return Err("names its program by a path that is not absolute".into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: &OsStr = &path;
    if !host::is_program(program, path) {
        return Err(format!("names {program}, and there is no such program, or it is not executable"));
    }
    host::find_program(program, path).ok_or_else(|| format!("names {program}, which is nowhere"))
}

fn capture(section: &Section<'_>) -> Result<Capture, ConfError> {
    let word = section.get("CAPTURE")?.unwrap_or_else(|| "no".into());
    match word.to_ascii_lowercase().as_str() {
        "no" => Ok(Capture::No),
        "headers" => Ok(Capture::Headers),
        "yes" => Ok(Capture::Message),
        _ => Err(section.error("CAPTURE", &format!("\"{word}\" is neither no, yes nor headers"))),
    }
}

/// TIME_LIMIT, and how long after SIGTERM there is SIGKILL: both before the dispatcher kills the worker.
fn times(section: &Section<'_>) -> Result<(Duration, Duration), ConfError> {
    let longest = section.duration("MAX_RUNTIME", graph::MAX_RUNTIME)?;
    let default = if longest == Duration::MAX { longest } else { longest / 4 * 3 };
    let limit = section.duration("TIME_LIMIT", default)?;
    if limit.is_zero() {
        return Err(section.error("TIME_LIMIT", "must be more than nothing; write for example \"1 min\""));
    }
    if limit >= longest && longest != Duration::MAX {
        let text = format!("must be below MAX_RUNTIME, which is {longest:?} here");
        return Err(section.error("TIME_LIMIT", &text));
    }
    let grace = if longest == Duration::MAX { GRACE } else { ((longest - limit) / 2).min(GRACE) };
    Ok((limit, grace))
}

/// `CODE:STAGE` and more of them, between blanks. The error is a clause.
fn exit_stages(text: &str) -> Result<BTreeMap<u8, String>, String> {
    let mut stages = BTreeMap::new();
    for word in text.split_ascii_whitespace() {
        let (code, stage) = word.split_once(':').ok_or_else(|| format!("\"{word}\" is not CODE:STAGE"))?;
        let is_number = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_digit());
        let code = code.parse().ok().filter(|_| is_number);
        let code: u8 = code.ok_or_else(|| format!("\"{word}\" does not begin with a code from 0 to 255"))?;
        let stage = stage.to_ascii_lowercase();
        if !graph::is_stage_name(&stage) {
            return Err(format!("\"{word}\" does not end in the name of a stage"));
        }
        if stages.insert(code, stage).is_some() {
            return Err(format!("has the code {code} twice"));
        }
    }
    Ok(stages)
}

#[cfg(test)]
mod tests;
