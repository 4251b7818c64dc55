//! One message as its stage holds it: the row in memory, setters that change it, and the terminals that say where it goes.
//!
//! Invariants: a terminal takes the message by value and is the only maker of `Done`, so a stage that returns one has
//! concluded its message exactly once (requirement A2; `tests/contract.rs` shows that two or none do not compile). What
//! a setter changed is written together with the transition, and nothing else is (A3). State is merged, key by key of its
//! top level (A4). Nothing here touches the database: the runtime writes what `Done` holds.

use super::error::{Kept, StageError};
use super::settings::Settings;
use crate::mail::header;
use crate::sql::fan::Fan;
pub use crate::sql::row::Load;
use crate::sql::row::{Content, Move, Row};
use serde_json::{Map, Value};
use std::rc::Rc;
use std::time::Duration;

/// The longest pause: a later one would only be an overflow somewhere.
const MAX_PAUSE: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a stage goes by besides its own options. Stage names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub stage: String,
    pub next: Option<String>,
    pub bounce: Option<String>,
    pub max_lifetime: Duration,
    /// This host's name, for what has to be told apart from other hosts'.
    pub host: String,
}

/// What one statement writes: the columns that were rewritten, the keys laid over the state (an object), the move, and the rows
/// that the message leaves beside it. Where it leaves some, it is what the last stage alone did: whatever stages before it in the
/// same pass changed is to be written first, since these rows have it too.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub content: Content,
    pub merge: Value,
    pub to: Move,
    pub fan: Fan,
}

/// A concluded message. Made by the terminals of `Context` alone.
#[must_use]
#[derive(Debug)]
pub struct Done {
    message: Context,
    to: Move,
}

impl Done {
    pub fn into_outcome(self) -> Outcome {
        self.message.into_outcome(self.to)
    }

    /// Refused where rows beside it would lack what its stage has rewritten (A5).
    pub fn checked(self) -> Result<Done, StageError> {
        if self.message.is_torn() {
            let text = "the stage rewrites sender, headers or body, and splits or copies the message";
            return Err(StageError::host(text));
        }
        Ok(self)
    }

    /// The stage that it goes on to; None where it ends, waits or fails.
    pub fn next_stage(&self) -> Option<&str> {
        match &self.to {
            Move::Advance { stage } => Some(stage),
            Move::Pause { .. } | Move::Fail | Move::Finish | Move::Stay => None,
        }
    }

    /// The message as its stage has left it.
    pub fn message(&self) -> &Context {
        &self.message
    }

    /// The message at the stage of `route` as if it had been written and loaded again (U1): what is recorded of failures at
    /// the last stage is gone, unless that stage has just written it.
    pub fn go_on(self, route: Rc<Route>) -> Context {
        let mut message = self.message;
        for key in FAILURES {
            message.passed.remove(key);
            if !message.merge.contains_key(key) {
                message.state.remove(key);
            }
        }
        message.passed.append(&mut message.merge);
        message.before = message.before.and(message.touched);
        message.touched = Touched::default();
        message.has_moved = true;
        message.route = route;
        message
    }
}

/// What is recorded of failures at one stage (E2).
const FAILURES: [&str; 3] = ["strikes", "temporary_failures", "last_error"];

/// Which columns a setter changed.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    mail_from: bool,
    rcpt_to: bool,
    headers: bool,
    body: bool,
}

impl Touched {
    fn and(self, other: Touched) -> Touched {
        Touched {
            mail_from: self.mail_from || other.mail_from,
            rcpt_to: self.rcpt_to || other.rcpt_to,
            headers: self.headers || other.headers,
            body: self.body || other.body,
        }
    }

    /// Whether what all rows of a message share is another than in the database.
    fn is_shared(self) -> bool {
        self.mail_from || self.headers || self.body
    }
}

/// The message.
#[derive(Debug)]
pub struct Context {
    row: Row,
    /// The row's state with `merge` laid over it.
    state: Map<String, Value>,
    loaded: Load,
    route: Rc<Route>,
    /// By this stage, and by earlier ones of the same pass.
    touched: Touched,
    before: Touched,
    merge: Map<String, Value>,
    /// What earlier stages of the same pass have merged.
    passed: Map<String, Value>,
    /// It has come here from another stage in the same pass; nothing of that is written yet.
    has_moved: bool,
    /// What it leaves beside it.
    pub(super) fan: Fan,
    /// What is laid over the options of stages for it; None: nothing for anybody.
    settings: Option<Rc<Settings>>,
}

/// What can be read.
impl Context {
    /// `loaded` says which of the row's large columns were asked for. A state that is no object counts as empty.
    pub fn new(mut row: Row, loaded: Load, route: Rc<Route>) -> Context {
        let state = match row.state.take() {
            Value::Object(state) => state,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Map::new()
            }
        };
        let found = row.settings.take();
        let mut message = Context {
            row,
            state,
            loaded,
            route,
            touched: Touched::default(),
            before: Touched::default(),
            merge: Map::new(),
            passed: Map::new(),
            has_moved: false,
            fan: Fan::default(),
            settings: None,
        };
        message.settings = found.map(|found| Rc::new(Settings::read(&found, &message)));
        message
    }

    pub fn id(&self) -> i64 {
        self.row.id
    }

    /// The stage that the message is at.
    pub fn stage(&self) -> &str {
        &self.route.stage
    }

    pub fn host(&self) -> &str {
        &self.route.host
    }

    /// The envelope sender; empty for the null sender.
    pub fn mail_from(&self) -> &str {
        &self.row.mail_from
    }

    pub fn rcpt_to(&self) -> &[String] {
        &self.row.rcpt_to
    }

    pub fn header_from(&self) -> Option<&str> {
        self.row.header_from.as_deref()
    }

    pub fn subject(&self) -> Option<&str> {
        self.row.subject.as_deref()
    }

    /// Octets of the whole message as it is now.
    pub fn size(&self) -> i64 {
        self.row.size
    }

    /// Microseconds since 1970.
    pub fn received_at_us(&self) -> i64 {
        self.row.received_at_us
    }

    /// When it was loaded, by the database's clock; microseconds since 1970.
    pub fn now_us(&self) -> i64 {
        self.row.now_us
    }

    pub fn state(&self) -> &Map<String, Value> {
        &self.state
    }

    /// Where a message goes that cannot go on; never this stage itself.
    pub fn bounce_stage(&self) -> Option<&str> {
        self.route.bounce.as_deref()
    }

    /// Whether it has come here from another stage in the same pass.
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }

    pub(super) fn settings(&self) -> Option<&Settings> {
        self.settings.as_deref()
    }

    /// Only the recipients at these places are left in the database: nothing of that is to be written any more.
    pub(super) fn divided(&mut self, places: &[usize]) {
        let dsn = self.dsn_of(places);
        self.row.rcpt_to = places.iter().filter_map(|place| self.row.rcpt_to.get(*place).cloned()).collect();
        if let Some(dsn) = dsn {
            self.state.insert("dsn".to_owned(), dsn);
        }
    }

    /// Whether it leaves rows beside it.
    pub fn has_fanned_out(&self) -> bool {
        !self.fan.is_empty()
    }

    /// Whether the database would take its envelope: text there holds no NUL.
    pub fn is_storable(&self) -> bool {
        let texts = std::iter::once(&self.row.mail_from).chain(&self.row.rcpt_to);
        texts.into_iter().all(|text| !text.contains('\0'))
    }

    /// Which of its large columns are here.
    pub fn loaded(&self) -> Load {
        self.loaded
    }

    /// The header block; an error when the stage did not declare `Load::Headers`.
    pub fn headers(&self) -> Result<&[u8], StageError> {
        self.require(Load::Headers)?;
        Ok(self.row.headers.as_deref().unwrap_or_default())
    }

    /// The body, None in a message without an empty line; an error when the stage did not declare `Load::Full`.
    pub fn body(&self) -> Result<Option<&[u8]>, StageError> {
        self.require(Load::Full)?;
        Ok(self.row.body.as_deref())
    }

    fn require(&self, load: Load) -> Result<(), StageError> {
        if self.loaded >= load {
            return Ok(());
        }
        Err(StageError::host(format!(
            "the stage declares {:?} and uses what only {load:?} loads",
            self.loaded
        )))
    }
}

/// What can be changed. The whole contract stands here, whichever part of it the stages of this build use.
#[allow(dead_code)]
impl Context {
    pub fn set_mail_from(&mut self, mail_from: String) {
        self.row.mail_from = mail_from;
        self.touched.mail_from = true;
    }

    /// A wholly new recipient list. Whoever only takes recipients away uses `keep_recipients`.
    pub fn set_rcpt_to(&mut self, rcpt_to: Vec<String>) {
        self.row.rcpt_to = rcpt_to;
        self.touched.rcpt_to = true;
    }

    /// Keeps the recipients at these places, and their entries of `state.dsn.rcpt`, which runs parallel to them.
    pub fn keep_recipients(&mut self, places: &[usize]) {
        if places.iter().copied().eq(0..self.row.rcpt_to.len()) {
            return;
        }
        let dsn = self.dsn_of(places);
        let kept = places.iter().filter_map(|place| self.row.rcpt_to.get(*place).cloned()).collect();
        self.set_rcpt_to(kept);
        if let Some(dsn) = dsn {
            self.set_state("dsn", dsn);
        }
    }

    /// `state.dsn` of the recipients at these places; None where there is none, or it is not parallel to them.
    pub fn dsn_of(&self, places: &[usize]) -> Option<Value> {
        let Value::Object(dsn) = self.state().get("dsn")? else { return None };
        let Value::Array(entries) = dsn.get("rcpt")? else { return None };
        if entries.len() != self.rcpt_to().len() {
            return None;
        }
        let entries: Value = places.iter().filter_map(|place| entries.get(*place).cloned()).collect();
        // Not a copy of the whole: of a message to thousands there may be as many of these.
        let others =
            dsn.iter().filter(|(key, _)| *key != "rcpt").map(|(key, value)| (key.clone(), value.clone()));
        Some(Value::Object(others.chain([("rcpt".to_owned(), entries)]).collect()))
    }

    /// A new header block; the columns `header_from` and `subject` follow it.
    pub fn set_headers(&mut self, headers: Vec<u8>) -> Result<(), StageError> {
        self.resize(self.headers()?.len(), headers.len());
        self.row.header_from = header::text(&headers, "From");
        self.row.subject = header::text(&headers, "Subject");
        self.row.headers = Some(headers);
        self.touched.headers = true;
        Ok(())
    }

    /// A new body for this message alone, whoever else shares the old one.
    pub fn set_body(&mut self, body: Option<Vec<u8>>) -> Result<(), StageError> {
        // The line end between header and body is there when the body is.
        let octets = |body: Option<&[u8]>| body.map_or(0, |body| body.len() + 2);
        self.resize(octets(self.body()?), octets(body.as_deref()));
        self.row.body = body;
        self.touched.body = true;
        Ok(())
    }

    /// One key of the state's top level.
    pub fn set_state(&mut self, key: &str, value: Value) {
        self.state.insert(key.to_owned(), value.clone());
        self.merge.insert(key.to_owned(), value);
    }

    /// Lays an object over the state.
    pub fn merge_state(&mut self, state: Value) {
        let Value::Object(state) = state else { panic!("a state is an object, not {state}") };
        for (key, value) in state {
            self.set_state(&key, value);
        }
    }

    fn resize(&mut self, before: usize, after: usize) {
        let octets = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.row.size = self.row.size.saturating_sub(octets(before)).saturating_add(octets(after));
    }
}

/// The terminals. Each is the message's end at this stage.
#[allow(dead_code)]
impl Context {
    /// On to NEXT_STAGE. A stage that needs it requires it when its section is checked (S4).
    pub fn advance(self) -> Result<Done, StageError> {
        match self.route.next.clone() {
            Some(next) => Ok(self.advance_to(&next)),
            None => Err(StageError::host("the section has no NEXT_STAGE, and the message has to go on")),
        }
    }

    /// On to `stage`.
    pub fn advance_to(self, stage: &str) -> Done {
        self.conclude(Move::Advance { stage: stage.to_owned() })
    }

    /// On to `stage` with `state` laid over: how a message reaches a bounce stage.
    pub fn reroute(mut self, stage: &str, state: Value) -> Done {
        self.merge_state(state);
        self.advance_to(stage)
    }

    /// Waits at this stage, at most a year.
    pub fn pause(mut self, state: Value, pause: Duration) -> Done {
        self.merge_state(state);
        let pause_us = u64::try_from(pause.min(MAX_PAUSE).as_micros()).unwrap_or(u64::MAX);
        self.conclude(Move::Pause { pause_us })
    }

    /// Failed, and left for an operator.
    pub fn fail(mut self, state: Value) -> Done {
        self.merge_state(state);
        self.conclude(Move::Fail)
    }

    /// Delivered or dropped: the row goes.
    pub fn finish(self) -> Done {
        self.conclude(Move::Finish)
    }

    /// On to NEXT_STAGE where there is one, else the row goes: what a delivery ends in.
    pub fn advance_or_finish(self) -> Done {
        match self.route.next.clone() {
            Some(next) => self.advance_to(&next),
            None => self.finish(),
        }
    }

    /// On to NEXT_STAGE with a wholly new recipient list; `state` brings the `dsn` that runs parallel to it.
    pub fn rewrite_recipients(mut self, rcpt_to: Vec<String>, state: Value) -> Result<Done, StageError> {
        self.set_rcpt_to(rcpt_to);
        self.merge_state(state);
        self.advance()
    }

    /// No terminal, but the error that ends this attempt: what the setters changed so far is kept with it, such as the
    /// recipients that are left. An error returned without this drops the changes.
    pub fn stop(self, error: StageError) -> StageError {
        if self.is_torn() {
            return error;
        }
        let Outcome { content, merge, to: _, fan } = self.into_outcome(Move::Fail);
        error.keeping(Kept { content, merge, fan })
    }

    /// Whether this stage has rewritten what the rows beside it are to have as well: they would not have it (A5).
    pub(super) fn is_torn(&self) -> bool {
        !self.fan.groups.is_empty() && self.touched.is_shared()
    }

    /// What of it is to be written, by whichever stage of this pass: what is kept where the next one fails (U3).
    pub fn carried(&self) -> Kept {
        let Context { row, merge, passed, route, has_moved, .. } = self;
        let touched = self.touched.and(self.before);
        let content = Content {
            mail_from: touched.mail_from.then(|| row.mail_from.clone()),
            rcpt_to: touched.rcpt_to.then(|| row.rcpt_to.clone()),
            header_from: touched.headers.then(|| row.header_from.clone()),
            subject: touched.headers.then(|| row.subject.clone()),
            headers: row.headers.clone().filter(|_| touched.headers),
            body: touched.body.then(|| row.body.clone()),
            stage: has_moved.then(|| route.stage.clone()),
        };
        Kept { content, merge: laid_over(passed.clone(), merge.clone()), fan: Fan::default() }
    }

    fn conclude(self, to: Move) -> Done {
        Done { message: self, to }
    }

    fn into_outcome(self, to: Move) -> Outcome {
        let Context { row, touched, before, merge, mut passed, route, has_moved, fan, .. } = self;
        if !fan.is_empty() {
            let content = Content { rcpt_to: touched.rcpt_to.then_some(row.rcpt_to), ..Content::default() };
            return Outcome { content, merge: Value::Object(merge), to, fan };
        }
        let touched = touched.and(before);
        let stays = match &to {
            Move::Pause { .. } | Move::Fail | Move::Stay => true,
            Move::Advance { .. } => {
                // As if the move to this stage had been written: this one leaves nothing of it.
                FAILURES.iter().for_each(|key| drop(passed.remove(*key)));
                false
            }
            Move::Finish => false,
        };
        let content = Content {
            mail_from: touched.mail_from.then_some(row.mail_from),
            rcpt_to: touched.rcpt_to.then_some(row.rcpt_to),
            header_from: touched.headers.then_some(row.header_from),
            subject: touched.headers.then_some(row.subject),
            headers: if touched.headers { row.headers } else { None },
            body: touched.body.then_some(row.body),
            stage: (has_moved && stays).then(|| route.stage.clone()),
        };
        Outcome { content, merge: laid_over(passed, merge), to, fan }
    }
}

fn laid_over(mut under: Map<String, Value>, mut over: Map<String, Value>) -> Value {
    under.append(&mut over);
    Value::Object(under)
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
