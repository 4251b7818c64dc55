//! The worker's loop: an id in, one load, the stage, one write, one status line out; then the next id.
//!
//! Invariants: a status line is written, unbuffered, before the next id's row is loaded (P8). Every write is fenced by the
//! claim that the id came with (D4). An id is either answered, or the worker ends with all that it has not answered: with
//! 74 or 75 the dispatcher puts these rows off without blame, with any other code it takes the first of them for the
//! culprit. So no error of the database can leave a row running, and a panic is blamed on the message it came from (S6).

use super::commit::{Head, Store, after_error, status};
use super::context::{Context, Done, Outcome, Route};
use super::error::StageError;
use super::stage::Stage;
use crate::proto::line::{self, Lines};
use crate::sql::Error;
use crate::sql::row::{Load, Move, Row};
use crate::{Level, exit, log};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{BufRead, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// One section that this worker serves.
pub struct Served {
    pub stage: Box<dyn Stage>,
    pub route: Rc<Route>,
}

/// What the loop needs besides its input and output.
pub struct Worker<'a, S: Store> {
    pub load: Load,
    /// By stage name.
    pub served: BTreeMap<String, Served>,
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
    /// The status line's number.
    Answer(u8),
    /// The worker ends with this code, the id unanswered.
    Leave(u8),
}

/// A row to work on, or what its id ends in.
type Loaded<'s> = Result<(Row, &'s Served), Step>;

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
            while let Some(line) = lines.next_line() {
                let status = match self.handle(&line) {
                    Step::Answer(status) => status,
                    Step::Leave(code) => return code,
                };
                if let Err(code) = say(output, &line::encode_status(status, &[])) {
                    return code;
                }
                if status != exit::OK {
                    last = status;
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

    fn handle(&mut self, line: &[u8]) -> Step {
        let asked = match line::parse_id(line) {
            Ok((id, claim)) => Asked { id, claim },
            Err(error) => {
                log(Level::Error, "", "not an id", &[("reason", &error.0)]);
                return Step::Answer(exit::FAILURE);
            }
        };
        let row = match self.load(asked) {
            Ok(row) => row,
            Err(step) => return step,
        };
        let (row, served) = match self.admit(asked, row) {
            Ok(admitted) => admitted,
            Err(step) => return step,
        };
        let head = Head::new(&row, Rc::clone(&served.route));
        let context = Context::new(row, self.load, Rc::clone(&served.route));
        // The stage is not run again after a panic, and the process ends with the unwinding.
        let run = catch_unwind(AssertUnwindSafe(|| served.stage.run(context)));
        match run {
            Ok(result) => self.conclude(asked, &head, result),
            Err(_) => {
                // Its text and place are in the line before, from the panic hook.
                log(Level::Error, &head.route.stage, "the stage panicked", &[("id", &head.id)]);
                Step::Leave(exit::SOFTWARE)
            }
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
                self.conclude(asked, &head, Err(StageError::host(format!("cannot load the message: {text}"))))
            }
            Err(step) => step,
        }
    }

    /// Whether the row is the one that was asked for, is running, and is at a stage of this worker's.
    fn admit(&self, asked: Asked, row: Option<Row>) -> Loaded<'_> {
        let refuse = |stage: &str, reason: &str| {
            log(Level::Error, stage, "not handled", &[("id", &asked.id), ("reason", &reason)]);
            Err(Step::Answer(exit::FAILURE))
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
            Some(served) => Ok((row, served)),
            None => refuse(&row.stage, &(self.not_served)(&row.stage)),
        }
    }

    /// Writes what the stage came to.
    fn conclude(&mut self, asked: Asked, head: &Head, result: Result<Done, StageError>) -> Step {
        let (outcome, is_done) = match result {
            Ok(done) => (done.into_outcome(), true),
            Err(error) => (blame(error, head), false),
        };
        match self.write(head, &outcome) {
            // Refused for what the stage wanted to write: that it is put off can still be written.
            Err(Error::Refused(text) | Error::Setup(text)) if is_done => {
                let outcome = blame(StageError::host(format!("cannot write the outcome: {text}")), head);
                let written = self.write(head, &outcome);
                self.answer(asked, head, &outcome, written)
            }
            written => self.answer(asked, head, &outcome, written),
        }
    }

    fn write(&mut self, head: &Head, outcome: &Outcome) -> Result<bool, Error> {
        match self.store.as_mut() {
            Some(store) => store.commit(head, outcome),
            None => Err(Error::Lost("the connection is gone".into())),
        }
    }

    fn answer(&mut self, asked: Asked, head: &Head, outcome: &Outcome, written: Result<bool, Error>) -> Step {
        match written {
            Ok(true) => {
                // The one line a message that went well leaves in the log of an ordinary day is its end.
                let level = if outcome.to == Move::Finish { Level::Info } else { Level::Debug };
                let pairs: [(&str, &dyn Display); 3] =
                    [("id", &head.id), ("from", &head.from), ("to", &head.to)];
                log(level, &head.route.stage, way(&outcome.to), &pairs);
                Step::Answer(status(&outcome.to))
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
                Step::Answer(exit::IO)
            }
            Error::Overloaded(_) => Step::Answer(exit::TEMPORARY),
            Error::Conflict(_) | Error::Refused(_) | Error::Setup(_) | Error::Schema(_) => {
                Step::Answer(exit::IO)
            }
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
        Move::Fail | Move::Finish => (Level::Error, "failed", None),
    };
    let after = after.map_or_else(String::new, |seconds| format!("{seconds} s"));
    let pairs: [(&str, &dyn Display); 3] = [("id", &head.id), ("error", &text), ("retry_in", &after)];
    log(level, &head.route.stage, message, if after.is_empty() { &pairs[..2] } else { &pairs });
    outcome
}

/// The claim moved on: whoever holds the row now answers for it.
fn gone(asked: Asked, stage: &str) -> Step {
    log(Level::Warning, stage, "the claim is gone; nothing was changed", &[("id", &asked.id)]);
    Step::Answer(if asked.claim.is_some() { exit::OK } else { exit::FAILURE })
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
    }
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

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
