//! The worker line protocol (requirements R1-R5): both directions, parsed and encoded, bounded.
//!
//! Invariants: whatever bytes a worker writes, parsing is linear, keeps at most `MAX_LINE` of an unfinished line, and
//! ends in a value or a `LineError`, never in a panic. What `encode_*` writes, `parse_*` reads back. Names and times
//! of a report are checked here, so that nothing of it can overflow a sum or be refused by the database.
//! Reading and writing the pipes is not done here.

use super::graph::is_stage_name;
use super::text;
use std::fmt;

/// The longest line that either side accepts, without its newline.
pub const MAX_LINE: usize = 64 * 1024;

/// The most fused successors that one report may name: above any fusion depth, and small enough for a line.
pub const MAX_REPORT: usize = 256;

/// The longest time of one report entry, in microseconds: about 31 years. Sums of it fit a bigint.
pub const MAX_MICROSECONDS: u64 = 1_000_000_000_000_000;

/// How much of an offending line an error shows, in bytes.
const SHOWN: usize = 120;

/// What one line of a worker's output says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// `ready`, or `ready claims` (then it wants `ID CLAIM`).
    Ready { claims: bool },
    /// A status, 0 to 255, and the fused successors with the microseconds each took. An unreadable report is empty
    /// here and `bad_report` says why; the status counts all the same (R2).
    Status { status: u8, report: Vec<(String, u64)>, bad_report: Option<String> },
}

/// Why a line is not of the protocol. Displays as a clause for a log line, with the line escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError(pub String);

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LineError {
    fn about(what: &str, line: &[u8]) -> LineError {
        LineError(format!("{what}: \"{}\"", text::escape_bytes(line, SHOWN)))
    }

    fn too_long() -> LineError {
        LineError(format!("a line of more than {MAX_LINE} bytes"))
    }
}

/// Parses one line of a worker's output, without its newline. A NUL or bytes that are not UTF-8 spoil the whole line
/// (R5), an unreadable report only itself (R2).
pub fn parse_output(line: &[u8]) -> Result<Output, LineError> {
    if line.len() > MAX_LINE {
        return Err(LineError::too_long());
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return Err(LineError::about("a line that is not UTF-8", line));
    };
    if line.contains(&0) {
        return Err(LineError::about("a line with a NUL", line));
    }
    if text == "ready" {
        return Ok(Output::Ready { claims: false });
    }
    if text == "ready claims" {
        return Ok(Output::Ready { claims: true });
    }
    let (number, report) = match text.split_once(' ') {
        Some((number, report)) => (number, Some(report)),
        None => (text, None),
    };
    let Some(status) = parse_status(number) else {
        return Err(LineError::about("neither \"ready\" nor a status from 0 to 255", line));
    };
    let (report, bad_report) = match report.map(parse_report) {
        None => (Vec::new(), None),
        Some(Ok(report)) => (report, None),
        Some(Err(why)) => (Vec::new(), Some(why)),
    };
    Ok(Output::Status { status, report, bad_report })
}

/// One to three digits that make a number up to 255; no sign, no blank.
fn parse_status(text: &str) -> Option<u8> {
    let digits = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// The JSON behind a status: `[["stage",microseconds],…]`. The depth of foreign JSON is bounded by serde_json.
fn parse_report(json: &str) -> Result<Vec<(String, u64)>, String> {
    let bad = |what: &str| format!("{what}: \"{}\"", text::escape(json, SHOWN));
    let value: serde_json::Value =
        serde_json::from_str(json).map_err(|_| bad("a report that is not JSON"))?;
    let Some(entries) = value.as_array() else {
        return Err(bad("a report that is not an array"));
    };
    if entries.len() > MAX_REPORT {
        return Err(bad(&format!("a report of more than {MAX_REPORT} stages")));
    }
    let mut report = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some([name, time]) = entry.as_array().map(Vec::as_slice) else {
            return Err(bad("a report entry that is not a pair"));
        };
        let (Some(name), Some(time)) = (name.as_str(), time.as_u64()) else {
            return Err(bad("a report entry that is not a stage and its microseconds"));
        };
        if !is_stage_name(name) {
            return Err(bad("a report entry whose stage is no stage name"));
        }
        if time > MAX_MICROSECONDS {
            return Err(bad("a report entry of more than 31 years"));
        }
        report.push((name.to_owned(), time));
    }
    Ok(report)
}

/// Parses what a worker reads: `ID` or `ID CLAIM`, an optional CR before the newline allowed (a person types it).
pub fn parse_id(line: &[u8]) -> Result<(i64, Option<i64>), LineError> {
    let bare = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = bare.splitn(2, |byte| *byte == b' ');
    let id = words.next().and_then(parse_i64);
    let claim = words.next().map(parse_i64);
    match (id, claim) {
        (Some(id), None) => Ok((id, None)),
        (Some(id), Some(Some(claim))) => Ok((id, Some(claim))),
        (None, _) | (_, Some(None)) => Err(LineError::about("neither ID nor ID CLAIM", line)),
    }
}

/// A bigint as PostgreSQL prints it: an optional minus and digits, nothing else.
fn parse_i64(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    if !(1..=19).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// `ID\n` or `ID CLAIM\n`.
pub fn encode_id(id: i64, claim: Option<i64>) -> String {
    match claim {
        Some(claim) => format!("{id} {claim}\n"),
        None => format!("{id}\n"),
    }
}

/// `STATUS\n`, or with the fused successors `STATUS [["stage",microseconds],…]\n`. The names must be stage names, at
/// most `MAX_REPORT` of them (the depth cap of fusion is far below); a time over `MAX_MICROSECONDS` is written as that.
pub fn encode_status(status: u8, report: &[(String, u64)]) -> String {
    assert!(report.len() <= MAX_REPORT, "a report of {} stages", report.len());
    if report.is_empty() {
        return format!("{status}\n");
    }
    let mut entries = Vec::with_capacity(report.len());
    for (name, time) in report {
        assert!(is_stage_name(name), "a report about {name:?}");
        entries.push(format!("[\"{name}\",{}]", time.min(&MAX_MICROSECONDS)));
    }
    format!("{status} [{}]\n", entries.join(","))
}

/// Cuts a stream into lines, never holding more than MAX_LINE of an unfinished one. Whole lines wait here until they
/// are taken: whoever pushes takes them before pushing more.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Where the next whole line begins in `buffer`.
    next: usize,
    /// Where the unfinished line begins in `buffer`; all between `next` and here is whole lines with their newlines.
    partial: usize,
    /// The first error; the stream is of no use behind it.
    error: Option<LineError>,
}

impl Lines {
    /// Takes bytes in; the error is final: an unfinished line grew over the limit, or a NUL came. Lines that were
    /// whole before that place can still be taken, however the stream was cut into chunks.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), LineError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.compact();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (content, ended) = match piece.strip_suffix(b"\n") {
                Some(content) => (content, true),
                None => (piece, false),
            };
            let room = MAX_LINE - (self.buffer.len() - self.partial);
            let reached = &content[..content.len().min(room + 1)];
            if reached.contains(&0) {
                return Err(self.fail(LineError(String::from("a NUL in the output"))));
            }
            if content.len() > room {
                return Err(self.fail(LineError::too_long()));
            }
            self.buffer.extend_from_slice(piece);
            if ended {
                self.partial = self.buffer.len();
            }
        }
        Ok(())
    }

    /// The next whole line without its newline.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let line = self.peek_line()?.to_vec();
        self.next += line.len() + 1;
        Some(line)
    }

    /// The same, and it stays the next one.
    pub fn peek_line(&self) -> Option<&[u8]> {
        let whole = &self.buffer[self.next..self.partial];
        let end = whole.iter().position(|byte| *byte == b'\n')?;
        Some(&whole[..end])
    }

    /// Whether an unfinished line is held.
    pub fn is_partial(&self) -> bool {
        self.partial < self.buffer.len()
    }

    /// Forgets the unfinished line and remembers why.
    fn fail(&mut self, error: LineError) -> LineError {
        self.buffer.truncate(self.partial);
        self.error = Some(error.clone());
        error
    }

    /// Drops what was taken, only when it is the larger part: each byte is then moved a bounded number of times.
    fn compact(&mut self) {
        if self.next > self.buffer.len() / 2 {
            self.buffer.drain(..self.next);
            self.partial -= self.next;
            self.next = 0;
        }
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
