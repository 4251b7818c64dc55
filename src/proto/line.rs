//! The worker line protocol (requirements R1-R5): both directions, parsed and encoded, bounded.

/// The longest line that either side accepts, without its newline.
pub const MAX_LINE: usize = 64 * 1024;

/// What one line of a worker's output says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// `ready`, or `ready claims` (then it wants `ID CLAIM`).
    Ready { claims: bool },
    /// A status, 0 to 255, and the fused successors with the microseconds each took.
    Status { status: u8, report: Vec<(String, u64)>, bad_report: Option<String> },
}

/// Why a line is not of the protocol. Displays as a clause for a log line, with the line escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError(pub String);

/// Parses one line of a worker's output, without its newline.
pub fn parse_output(line: &[u8]) -> Result<Output, LineError> {
    let _ = line;
    unimplemented!()
}

/// Parses what a worker reads: `ID` or `ID CLAIM`, an optional CR before the newline allowed (a person types it).
pub fn parse_id(line: &[u8]) -> Result<(i64, Option<i64>), LineError> {
    let _ = line;
    unimplemented!()
}

/// `ID\n` or `ID CLAIM\n`.
pub fn encode_id(id: i64, claim: Option<i64>) -> String {
    let _ = (id, claim);
    unimplemented!()
}

/// `STATUS\n`, or with the fused successors `STATUS [["stage",microseconds],…]\n`.
pub fn encode_status(status: u8, report: &[(String, u64)]) -> String {
    let _ = (status, report);
    unimplemented!()
}

/// Cuts a stream into lines, never holding more than MAX_LINE of an unfinished one.
#[derive(Debug, Default)]
pub struct Lines {}

impl Lines {
    /// Takes bytes in; the error is final: an unfinished line grew over the limit, or a NUL came.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), LineError> {
        let _ = bytes;
        unimplemented!()
    }
    /// The next whole line without its newline.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        unimplemented!()
    }
    /// Whether an unfinished line is held.
    pub fn is_partial(&self) -> bool {
        unimplemented!()
    }
}
