//! One worker process: how it is started, its two pipes, and what its output says as events for the machine.
//!
//! Invariants: no call waits for the worker, however full or silent its pipes are; what one turn reads of it is
//! bounded, so that a flood cannot starve the others; ids not yet written never exceed QUEUE_LIMIT lines; a line that
//! was begun is written whole or not at all; `Closed` and `Garbage` are reported once, together at most one of them.
//! What a report means for messages is the machine's to say; reaping is the shell's.

use super::machine::{Claim, Event, Exit, WorkerId};
use crate::host::find_program;
use crate::proto::line::{Lines, Output, encode_id, parse_output};
use crate::{Level, log, sys};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// What is read of one worker in one turn: the capacity of a pipe, and room for the longest line.
const TURN_BYTES: usize = 64 * 1024;

/// What is still read of a worker that has ended: the largest pipe that an unprivileged process can make. A process
/// of its own that it left behind may write on for ever.
const LAST_BYTES: usize = 1024 * 1024;

/// What a start needs for a moment (two pipes, and one by which a failed exec is told), and what stays free behind it: a
/// lost connection to the database must be made anew when workers have all the rest, with its three, its DNS look-up
/// and the look for its socket.
const DESCRIPTORS: u32 = 6 + 10;

/// `ID CLAIM\n` with two numbers of twenty characters.
const LONGEST_ID: usize = 42;

/// What every worker of this dispatcher is started with.
#[derive(Debug)]
pub struct Launcher {
    config: PathBuf,
    environment: Vec<(OsString, OsString)>,
    /// Where a program's name without a slash is searched.
    path: OsString,
}

/// How far its output was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// There may be more.
    More,
    /// There is nothing more now.
    All,
    /// There was the end of it.
    End,
}

/// A worker from its start until it is reaped.
#[derive(Debug)]
pub struct Child {
    worker: WorkerId,
    stage: String,
    pid: u32,
    /// None once it is closed, by us or by the worker.
    input: Option<ChildStdin>,
    unsent: Vec<u8>,
    /// The most that `unsent` can hold by the machine's own rules.
    room: usize,
    /// Close the input when `unsent` is empty.
    closing: bool,
    /// A write failed, and nobody was told yet.
    input_broke: bool,
    /// None once it has ended or is of no use any more.
    output: Option<ChildStdout>,
    lines: Lines,
    /// Whether it wants claim numbers, as its `ready` said.
    claims: bool,
    /// It was told to stop, and the stop was not reported.
    halting: bool,
    /// Whether Closed or Garbage was reported.
    reported: bool,
    /// Whether a report of its that cannot be read was logged: the first tells enough.
    report_noted: bool,
}

impl Launcher {
    /// `variables` are the dispatcher's own; the workers get those that requirement P7 names.
    pub fn new(config: PathBuf, variables: impl Iterator<Item = (OsString, OsString)>) -> Launcher {
        let mut environment: Vec<(OsString, OsString)> =
            variables.filter(|(name, _)| is_handed_down(name)).collect();
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, value)| value.clone()).unwrap_or_default();
        environment.push(("PEPSI_LOG".into(), crate::log_level().name().into()));
        Launcher { config, environment, path }
    }

    /// Starts `PROGRAM -c FILE worker` for `stage`; it is handed at most `queue_limit` ids at once. The error is one line.
    pub fn spawn(
        &self,
        worker: WorkerId,
        stage: &str,
        program: &str,
        queue_limit: u32,
    ) -> Result<Child, String> {
        let file = find_program(program, &self.path)
            .ok_or_else(|| format!("cannot start {program}: no such program on PATH"))?;
        let mut command = Command::new(file);
        command.arg0(program).arg("-c").arg(&self.config).arg("worker");
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("PEPSI_STAGE", stage).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |error: io::Error| format!("cannot start {program}: {error}");
        let spawned = sys::check_room(DESCRIPTORS).and_then(|()| sys::spawn(&mut command)).map_err(failed)?;
        let child = Child {
            worker,
            stage: stage.to_owned(),
            pid: spawned.pid,
            input: spawned.stdin,
            unsent: Vec::new(),
            room: LONGEST_ID * queue_limit as usize,
            closing: false,
            input_broke: false,
            output: spawned.stdout,
            lines: Lines::default(),
            claims: false,
            halting: false,
            reported: false,
            report_noted: false,
        };
        for pipe in [child.input.as_ref().map(AsFd::as_fd), child.output.as_ref().map(AsFd::as_fd)] {
            let pipe = pipe.expect("both pipes were asked for");
            if let Err(error) = sys::set_nonblocking(pipe) {
                child.kill();
                return Err(failed(error));
            }
        }
        Ok(child)
    }
}

fn is_handed_down(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    // The last says that standard error, which workers share, is the journal: they prefix their lines too.
    let whole: [&[u8]; 5] = [b"PATH", b"HOME", b"LANG", b"TZ", b"JOURNAL_STREAM"];
    whole.contains(&name) || name.starts_with(b"PG") || name.starts_with(b"PEPSI_")
}

impl Child {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The descriptor to await output on, while there can be any.
    pub fn output_fd(&self) -> Option<RawFd> {
        self.output.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The descriptor to await room on, while something is unsent.
    pub fn input_fd(&self) -> Option<RawFd> {
        self.input.as_ref().filter(|_| !self.unsent.is_empty()).map(AsRawFd::as_raw_fd)
    }

    /// Hands these over in one write, as far as the pipe has room; the rest when it has.
    pub fn send(&mut self, rows: &[Claim]) {
        for row in rows {
            let line = encode_id(row.id, self.claims.then_some(row.claim));
            self.unsent.extend_from_slice(line.as_bytes());
        }
        if self.unsent.len() > self.room {
            // It answers and does not read. What is unsent is dropped with it; the machine hears of a broken worker.
            self.unsent.clear();
            self.input = None;
            self.input_broke = true;
            return;
        }
        self.flush();
    }

    /// Closes its input behind what is unsent: half a line would be read as another id.
    pub fn close(&mut self) {
        self.closing = true;
        self.flush();
    }

    /// Writes what the pipe takes now.
    pub fn flush(&mut self) {
        let Some(input) = &mut self.input else {
            self.unsent.clear();
            return;
        };
        while !self.unsent.is_empty() {
            match input.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.unsent.clear();
                    self.input = None;
                    self.input_broke = true;
                    return;
                }
            }
        }
        if self.closing {
            self.input = None;
        }
    }

    /// Whether a write failed since the last `report_broken`.
    pub fn is_broken(&self) -> bool {
        self.input_broke
    }

    /// Its input broke: what it had answered before, then that it is closed.
    pub fn report_broken(&mut self, events: &mut Vec<Event>) {
        self.input_broke = false;
        self.read_up_to(TURN_BYTES, events);
        self.report_closed(events);
    }

    /// Reads what is there, at most a turn's share of it.
    pub fn read(&mut self, events: &mut Vec<Event>) {
        if self.read_up_to(TURN_BYTES, events) == Seen::End {
            self.report_closed(events);
        }
    }

    fn report_closed(&mut self, events: &mut Vec<Event>) {
        if !self.reported {
            self.reported = true;
            events.push(Event::Closed { worker: self.worker });
        }
    }

    /// It was reaped: what is left of its output, then its end.
    pub fn finish(mut self, status: ExitStatus, events: &mut Vec<Event>) {
        self.read_up_to(LAST_BYTES, events);
        let exit = match status.signal() {
            Some(signal) => Exit::Signal(signal),
            None => Exit::Code(status.code().unwrap_or_default()),
        };
        events.push(Event::Exited { worker: self.worker, exit });
    }

    /// SIGKILL to its process group. It must not have been reaped, nor for the next two.
    pub fn kill(&self) {
        self.signalled(sys::kill_group(self.pid), "cannot kill a worker");
    }

    /// SIGSTOP to its process group: a program that hands its work to a process of its own must not work on.
    pub fn halt(&mut self) {
        self.halting = true;
        self.signalled(sys::stop_group(self.pid), "cannot stop a worker");
    }

    pub fn resume(&mut self) {
        self.halting = false;
        self.signalled(sys::continue_group(self.pid), "cannot continue a worker");
    }

    fn signalled(&self, result: io::Result<()>, failure: &str) {
        if let Err(error) = result {
            log(Level::Error, &self.stage, failure, &[("pid", &self.pid), ("error", &error)]);
        }
    }

    /// If it was told to stop and has: what it wrote before, then that it is halted. If there is so much that the end of it
    /// cannot be seen, it is not reported, and goes on in time.
    pub fn report_halted(&mut self, events: &mut Vec<Event>) {
        if !self.halting {
            return;
        }
        match sys::has_stopped(self.pid) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.signalled(Err(error), "cannot await the stop of a worker"),
        }
        self.halting = false;
        match self.read_up_to(LAST_BYTES, events) {
            Seen::More => {}
            Seen::All => events.push(Event::Halted { worker: self.worker }),
            Seen::End => self.report_closed(events),
        }
    }

    fn read_up_to(&mut self, limit: usize, events: &mut Vec<Event>) -> Seen {
        let mut buffer = [0; 8192];
        let mut total = 0;
        while total < limit {
            let Some(output) = &mut self.output else { return Seen::All };
            match output.read(&mut buffer) {
                Ok(0) => {
                    self.output_ended();
                    return Seen::End;
                }
                Ok(count) => {
                    total += count;
                    self.parse(&buffer[..count], events);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Seen::All,
                Err(error) => {
                    self.note(Level::Error, "cannot read a worker's output", &error.to_string());
                    self.output_ended();
                    return Seen::End;
                }
            }
        }
        Seen::More
    }

    fn output_ended(&mut self) {
        self.output = None;
        if self.lines.is_partial() {
            self.note(Level::Warning, "a worker's output ends within a line", "dropped");
        }
    }

    fn parse(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        let pushed = self.lines.push(bytes);
        // Where the first of its answers is among the events, and how many there are.
        let mut burst: Option<(usize, u32)> = None;
        while let Some(line) = self.lines.next_line() {
            match parse_output(&line) {
                Ok(Output::Ready { claims }) => {
                    self.claims = claims;
                    events.push(Event::Ready { worker: self.worker, claims });
                }
                Ok(Output::Status { status, report, bad_report }) => {
                    if let Some(why) = bad_report.filter(|_| !std::mem::replace(&mut self.report_noted, true))
                    {
                        self.note(Level::Warning, "a worker's report is dropped, its status counts", &why);
                    }
                    let (first, answers) = burst.unwrap_or((events.len(), 0));
                    burst = Some((first, answers.saturating_add(1)));
                    events.push(Event::Answer { worker: self.worker, status, report });
                }
                Err(error) => {
                    self.give_up(error.0, events);
                    break;
                }
            }
        }
        if let Some((first, answers)) = burst.filter(|(_, answers)| *answers > 1) {
            events.insert(first, Event::Burst { worker: self.worker, answers });
        }
        if let Err(error) = pushed {
            self.give_up(error.0, events);
        }
    }

    /// Nothing more of it is read.
    fn give_up(&mut self, error: String, events: &mut Vec<Event>) {
        self.output = None;
        self.lines = Lines::default();
        if !self.reported {
            self.reported = true;
            events.push(Event::Garbage { worker: self.worker, error });
        }
    }

    fn note(&self, level: Level, message: &str, why: &str) {
        log(level, &self.stage, message, &[("pid", &self.pid), ("why", &why)]);
    }
}

#[cfg(test)]
mod tests;
