//! The worker's loop: an id in, one load, the stage, one write, one status line out; then the next id. A stage that needs no
//! more than metadata takes as many ids at once as have come (`batch`).
//!
//! Invariants: a status line is written, unbuffered, before the next id's row, or the next batch, is loaded (P8). Every write
//! is fenced by the claim that the id came with (D4). An id is either answered, or the worker ends with all that it has not answered: with
//! 74 or 75 the dispatcher puts these rows off without blame, with any other code it takes the first of them for the
//! culprit. So no error of the database can leave a row running, and a panic is blamed on the message it came from (S6).

use super::commit::{Head, Store, after_error, status};
use super::context::{Context, Done, Outcome, Route};
use super::error::StageError;
use super::settings::{self, Overrides};
use super::stage::Stage;
use crate::proto::line::{self, Lines};
use crate::sql::Error;
use crate::sql::fan::Fan;
use crate::sql::row::{Content, Load, Move, Row};
use crate::{Level, exit, log, sys};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{BufRead, ErrorKind, Write};
use std::rc::Rc;
use std::time::Instant;

/// Octets of a message that a worker is not to keep the memory of.
const LARGE: i64 = 1 << 20;

/// One section that this worker serves.
pub struct Served {
    pub stage: Box<dyn Stage>,
    pub route: Rc<Route>,
    pub load: Load,
    /// The options that may be other ones for some correspondents, and those of them that their owners may set (X1).
    pub options: &'static [&'static str],
    pub personal: &'static [&'static str],
}

/// A stage with options of a correspondent laid over its section; or what is wrong with them, as a clause.
pub type Tailored = Result<Rc<Served>, String>;

/// What the loop needs besides its input and output.
pub struct Worker<'a, S: Store> {
    pub load: Load,
    /// At most so many ids at once, where metadata is all that is loaded.
    pub batch: usize,
    /// By stage name.
    pub served: BTreeMap<String, Rc<Served>>,
    /// The stage of that name, where a message may go on to it in the same pass (U1).
    pub successor: &'a dyn Fn(&str) -> Option<Rc<Served>>,
    /// A stage with these options laid over its section; or what is wrong with them.
    pub tailor: &'a dyn Fn(&Served, &Overrides) -> Tailored,
    /// Why a stage that is not served is not, as a clause.
    pub not_served: &'a dyn Fn(&str) -> String,
    pub connect: &'a mut dyn FnMut() -> Result<S, Error>,
    /// None once the connection broke.
    pub store: Option<S>,
}

/// One id as it came in: `claim` is None for a bare one, as from `echo`.
#[derive(Clone, Copy)]
struct Asked {
    id: i64,
    claim: Option<i64>,
}

/// What an id ends in.
enum Step {
    /// The status line's number, and the stages of the same pass with their microseconds.
    Answer(u8, Report),
    /// The worker ends with this code, the id unanswered.
    Leave(u8),
}

type Report = Vec<(String, u64)>;

/// What a stage came to, not yet written.
struct Work {
    asked: Asked,
    head: Head,
    /// What stages before the last one of this pass did, where that has to be written first.
    before: Option<Outcome>,
    outcome: Outcome,
    /// It is what the stage concluded, not what follows from an error.
    is_done: bool,
    /// The stages behind the first one of this pass.
    report: Report,
}

impl Work {
    fn new(asked: Asked, head: Head, result: Result<Done, StageError>) -> Work {
        let (outcome, is_done) = match result {
            Ok(done) => (done.into_outcome(), true),
            Err(error) => (blame(error, &head), false),
        };
        Work { asked, head, before: None, outcome, is_done, report: Vec::new() }
    }
}

/// A row to work on, or what its id ends in.
type Loaded = Result<(Row, Rc<Served>), Step>;

impl<S: Store> Worker<'_, S> {
    /// Serves until the input ends. The exit code: 0 when all was answered 0, else the last other status, so that
    /// `echo ID | PROGRAM worker` can be scripted.
    pub fn serve(&mut self, input: &mut impl BufRead, output: &mut impl Write) -> u8 {
        if let Err(code) = say(output, "ready claims\n") {
            return code;
        }
        let mut lines = Lines::default();
        let mut last = exit::OK;
        loop {
            match read_more(input, &mut lines) {
                Ok(true) => {}
                Ok(false) => break,
                Err(code) => return code,
            }
            loop {
                let asked = take(&mut lines, if self.load == Load::Metadata { self.batch } else { 1 });
                if asked.is_empty() {
                    break;
                }
                let (answers, leave) = self.handle_all(&asked);
                let lines: String =
                    answers.iter().map(|(status, report)| line::encode_status(*status, report)).collect();
                if let Err(code) = say(output, &lines) {
                    return code;
                }
                let statuses = answers.into_iter().map(|(status, _)| status);
                last = statuses.rev().find(|status| *status != exit::OK).unwrap_or(last);
                if let Some(code) = leave {
                    return code;
                }
            }
        }
        if lines.is_partial() {
            // Perhaps the front half of an id: acting on it could touch another message.
            log(Level::Error, "", "the input ended within a line; nothing was done about it", &[]);
            return exit::DATA;
        }
        last
    }

    /// The answers for the ids in front, and the code to leave with if that was not all of them.
    fn handle_all(&mut self, asked: &[Option<Asked>]) -> (Vec<(u8, Report)>, Option<u8>) {
        let steps = match asked {
            [one] => vec![one.map_or(plain(exit::FAILURE), |asked| self.handle(asked))],
            all => self.handle_batch(all),
        };
        let mut answers = Vec::new();
        for step in steps {
            match step {
                Step::Answer(status, report) => answers.push((status, report)),
                Step::Leave(code) => return (answers, Some(code)),
            }
        }
        (answers, None)
    }

    fn handle(&mut self, asked: Asked) -> Step {
        let row = match self.load(asked) {
            Ok(row) => row,
            Err(step) => return step,
        };
        let is_large = self.load == Load::Full && row.as_ref().is_some_and(|row| row.size > LARGE);
        let step = self.work(asked, row).map_or_else(|step| step, |work| self.conclude(work));
        if is_large {
            // The connection would keep the room that it took, and the C library what was given back.
            self.store = None;
            sys::trim_memory();
        }
        step
    }

    /// The stage's work on what was loaded for `asked`.
    fn work(&mut self, asked: Asked, row: Option<Row>) -> Result<Work, Step> {
        let (row, served) = self.admit(asked, row)?;
        let head = Head::new(&row, Rc::clone(&served.route));
        if row.state.is_null() {
            let error = StageError::host(
                "the row's state cannot be read: it is nested too deep, or holds too large a number",
            );
            return Ok(Work::new(asked, head, Err(error.permanent())));
        }
        let mut message = Context::new(row, self.load, Rc::clone(&served.route));
        let mut groups = settings::groups(&message, &served);
        if groups.len() > 1
            && let Some(step) = self.divide(asked, &head, &mut message, &groups)
        {
            return Err(step);
        }
        let (overrides, _) = groups.swap_remove(0);
        match self.tailored(served, &overrides) {
            Ok(served) => self.pass(asked, head, served, message),
            Err(clause) => Ok(Work::new(asked, head, Err(settings::refused(&message, &clause)))),
        }
    }

    /// The stage as it is for those whose overrides these are.
    pub(super) fn tailored(&self, served: Rc<Served>, overrides: &Overrides) -> Tailored {
        if overrides.is_empty() { Ok(served) } else { (self.tailor)(&served, overrides) }
    }

    /// The first group of recipients stays, each other one becomes a row at the same stage (X2). What the id ends in, if the
    /// message is not to be worked on now.
    fn divide(
        &mut self,
        asked: Asked,
        head: &Head,
        message: &mut Context,
        groups: &[(Overrides, Vec<usize>)],
    ) -> Option<Step> {
        let (_, stay) = &groups[0];
        let others = groups[1..].iter().map(|(_, places)| message.group_of(places)).collect();
        let fan = Fan { groups: others, sides: Vec::new() };
        let merge = message.dsn_of(stay).map_or_else(|| json!({}), |dsn| json!({ "dsn": dsn }));
        message.divided(stay);
        let content = Content { rcpt_to: Some(message.rcpt_to().to_vec()), ..Content::default() };
        let outcome = Outcome { content, merge, to: Move::Stay, fan };
        match self.write(head, &outcome) {
            Ok(true) => None,
            Ok(false) => Some(gone(asked, &head.route.stage)),
            Err(Error::Refused(text) | Error::Setup(text)) => {
                let error = StageError::host(format!("cannot divide the recipients: {text}"));
                Some(self.conclude(Work::new(asked, head.clone(), Err(error))))
            }
            Err(error) => Some(self.defer(asked, &head.route.stage, &error)),
        }
    }

    /// The row, with the connection made anew once: a database that was restarted while this worker was idle costs nothing.
    fn load(&mut self, asked: Asked) -> Result<Option<Row>, Step> {
        let is_new = self.store.is_none();
        let load = self.load;
        let mut loaded = self.connected()?.load(asked.id, load);
        if !is_new && matches!(loaded, Err(Error::Lost(_))) {
            self.store = None;
            loaded = self.connected()?.load(asked.id, load);
        }
        match loaded {
            Ok(row) => Ok(row),
            Err(Error::Refused(text) | Error::Setup(text)) => Err(self.set_aside(asked, &text)),
            Err(error) => Err(self.defer(asked, "", &error)),
        }
    }

    fn connected(&mut self) -> Result<&mut S, Step> {
        Ok(match self.store.take() {
            Some(store) => self.store.insert(store),
            None => self.store.insert((self.connect)().map_err(|error| cannot_connect(&error))?),
        })
    }

    /// A row that cannot be read in full, such as one with a damaged body: a host fault, if the rest of it can be read.
    fn set_aside(&mut self, asked: Asked, text: &str) -> Step {
        let row = match self.connected().map(|store| store.load(asked.id, Load::Metadata)) {
            Ok(Ok(row)) => row,
            Ok(Err(error)) => return self.defer(asked, "", &error),
            Err(step) => return step,
        };
        match self.admit(asked, row) {
            Ok((row, served)) => {
                let head = Head::new(&row, Rc::clone(&served.route));
                let error = StageError::host(format!("cannot load the message: {text}"));
                self.conclude(Work::new(asked, head, Err(error)))
            }
            Err(step) => step,
        }
    }

    /// Whether the row is the one that was asked for, is running, and is at a stage of this worker's.
    fn admit(&self, asked: Asked, row: Option<Row>) -> Loaded {
        let refuse = |stage: &str, reason: &str| {
            log(Level::Error, stage, "not handled", &[("id", &asked.id), ("reason", &reason)]);
            Err(plain(exit::FAILURE))
        };
        let Some(row) = row else {
            return match asked.claim {
                Some(_) => Err(gone(asked, "")),
                None => refuse("", "there is no such message"),
            };
        };
        let is_running = row.status == "running";
        match asked.claim {
            Some(claim) if !is_running || claim != row.claim => return Err(gone(asked, &row.stage)),
            Some(_) => {}
            None if !is_running => {
                return refuse(
                    &row.stage,
                    &format!("it is {}, and only a running one is handled", row.status),
                );
            }
            None => {}
        }
        match self.served.get(&row.stage) {
            Some(served) => Ok((row, Rc::clone(served))),
            None => refuse(&row.stage, &(self.not_served)(&row.stage)),
        }
    }

    /// Writes what the stage came to.
    fn conclude(&mut self, mut work: Work) -> Step {
        if let Some(before) = work.before.take() {
            match self.write(&work.head, &before) {
                // Now it is as if the last stage were the first.
                Ok(true) => return self.conclude_last(work),
                written => return self.concluded(work, written),
            }
        }
        let written = self.write(&work.head, &work.outcome);
        self.concluded(work, written)
    }

    fn conclude_last(&mut self, work: Work) -> Step {
        let report = work.report.clone();
        let written = self.write(&work.head, &work.outcome);
        match self.concluded(Work { report: Vec::new(), ..work }, written) {
            Step::Answer(status, _) => Step::Answer(status, report),
            Step::Leave(code) => Step::Leave(code),
        }
    }

    /// It was written, or was not.
    fn concluded(&mut self, work: Work, written: Result<bool, Error>) -> Step {
        let Work { asked, head, before: _, outcome, is_done, report } = work;
        if outcome.to == Move::Stay {
            // It panicked, and is the first that is not answered: whatever became of the write, nothing is run again.
            return Step::Leave(exit::SOFTWARE);
        }
        match written {
            // For what one of several stages wanted to write: alone, each is told for itself.
            Err(Error::Refused(_) | Error::Setup(_)) if !report.is_empty() => self.handle_unfused(asked),
            // Refused for what the stage wanted to write: that it is put off can still be written.
            Err(Error::Refused(text) | Error::Setup(text)) if is_done => {
                let outcome = blame(StageError::host(format!("cannot write the outcome: {text}")), &head);
                let written = self.write(&head, &outcome);
                self.answer(asked, &head, &outcome, report, written)
            }
            written => self.answer(asked, &head, &outcome, report, written),
        }
    }

    fn write(&mut self, head: &Head, outcome: &Outcome) -> Result<bool, Error> {
        match self.store.as_mut() {
            Some(store) => store.commit(head, outcome),
            None => Err(Error::Lost("the connection is gone".into())),
        }
    }

    fn answer(
        &mut self,
        asked: Asked,
        head: &Head,
        outcome: &Outcome,
        report: Report,
        written: Result<bool, Error>,
    ) -> Step {
        match written {
            Ok(true) => {
                // The one line a message that went well leaves in the log of an ordinary day is its end.
                let level = if outcome.to == Move::Finish { Level::Info } else { Level::Debug };
                let pairs: [(&str, &dyn Display); 3] =
                    [("id", &head.id), ("from", &head.from), ("to", &head.to)];
                log(level, &head.route.stage, way(&outcome.to), &pairs);
                Step::Answer(status(&outcome.to), report)
            }
            Ok(false) => gone(asked, &head.route.stage),
            Err(error) => self.defer(asked, &head.route.stage, &error),
        }
    }

    /// Nothing was written about the row. 74 and 75 make the dispatcher put it off, so that it does not stay running:
    /// 74 also where the connection is whole and the statement failed, as a row that nobody moved is nobody's failure.
    fn defer(&mut self, asked: Asked, stage: &str, error: &Error) -> Step {
        log(Level::Warning, stage, "the database failed", &[("id", &asked.id), ("error", error)]);
        match error {
            Error::Lost(_) => {
                self.store = None;
                plain(exit::IO)
            }
            Error::Overloaded(_) => plain(exit::TEMPORARY),
            Error::Conflict(_) | Error::Refused(_) | Error::Setup(_) | Error::Schema(_) => plain(exit::IO),
        }
    }
}

/// What an error comes to, and the log line about it.
fn blame(error: StageError, head: &Head) -> Outcome {
    let text = error.text.clone();
    let outcome = after_error(error, head);
    let (level, message, after) = match &outcome.to {
        Move::Pause { pause_us } => (Level::Warning, "put off after an error", Some(pause_us / 1_000_000)),
        Move::Advance { .. } => (Level::Warning, "given up after an error", None),
        Move::Fail | Move::Finish | Move::Stay => (Level::Error, "failed", None),
    };
    let after = after.map_or_else(String::new, |seconds| format!("{seconds} s"));
    let pairs: [(&str, &dyn Display); 3] = [("id", &head.id), ("error", &text), ("retry_in", &after)];
    log(level, &head.route.stage, message, if after.is_empty() { &pairs[..2] } else { &pairs });
    outcome
}

/// Of one stage, or of none.
fn plain(status: u8) -> Step {
    Step::Answer(status, Vec::new())
}

/// The claim moved on: whoever holds the row now answers for it.
fn gone(asked: Asked, stage: &str) -> Step {
    log(Level::Warning, stage, "the claim is gone; nothing was changed", &[("id", &asked.id)]);
    plain(if asked.claim.is_some() { exit::OK } else { exit::FAILURE })
}

/// The ids that wait go with this one: waiting for the database once for each would only take longer.
fn cannot_connect(error: &Error) -> Step {
    log(Level::Error, "", "the database was lost and cannot be reached", &[("error", error)]);
    Step::Leave(match error {
        Error::Overloaded(_) => exit::TEMPORARY,
        // Not 78 for the last two either: after an answer that would be a strike. The next worker refuses to start.
        Error::Lost(_) | Error::Conflict(_) | Error::Refused(_) | Error::Setup(_) | Error::Schema(_) => {
            exit::IO
        }
    })
}

fn way(to: &Move) -> &'static str {
    match to {
        Move::Advance { .. } => "advanced",
        Move::Pause { .. } => "paused",
        Move::Fail => "failed",
        Move::Finish => "finished",
        Move::Stay => "moved on",
    }
}

/// The next ids that have come, at most so many and none twice; None for a line that is none.
fn take(lines: &mut Lines, most: usize) -> Vec<Option<Asked>> {
    let mut taken: Vec<Option<Asked>> = Vec::new();
    while taken.len() < most {
        let Some(line) = lines.peek_line() else { break };
        let asked = match line::parse_id(line) {
            Ok((id, claim)) => Some(Asked { id, claim }),
            Err(error) => {
                log(Level::Error, "", "not an id", &[("reason", &error.0)]);
                None
            }
        };
        let is_there =
            |one: &Option<Asked>| one.is_some_and(|one| asked.is_some_and(|asked| asked.id == one.id));
        // The second time it is what the first has made of it.
        if taken.iter().any(is_there) {
            break;
        }
        lines.next_line();
        taken.push(asked);
    }
    taken
}

/// Takes in what there is, waiting for the first of it. False at the end; the error is an exit code.
fn read_more(input: &mut impl BufRead, lines: &mut Lines) -> Result<bool, u8> {
    let bytes = loop {
        match input.fill_buf() {
            Ok(bytes) => break bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                log(Level::Error, "", "cannot read standard input", &[("error", &error)]);
                return Err(exit::IO);
            }
        }
    };
    let count = bytes.len();
    if let Err(error) = lines.push(bytes) {
        log(Level::Error, "", "the input is no list of ids", &[("reason", &error.0)]);
        return Err(exit::DATA);
    }
    input.consume(count);
    Ok(count > 0)
}

/// Writes a line at once; the error is an exit code.
fn say(output: &mut impl Write, line: &str) -> Result<(), u8> {
    output.write_all(line.as_bytes()).and_then(|()| output.flush()).map_err(|error| {
        log(Level::Error, "", "cannot write to standard output", &[("error", &error)]);
        exit::IO
    })
}

/// For the time that a stage takes.
fn clock() -> Instant {
    Instant::now()
}

#[path = "batch.rs"]
mod batch;
#[path = "fusion.rs"]
mod fusion;
#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
