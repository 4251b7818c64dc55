//! One program run for one message: started, given its input, heard, awaited, and ended when it takes too long.
//!
//! Invariants: no shell, no descriptor but 0, 1 and 2, an environment of what it is given alone. It dies with this process, and
//! leads a group of its own. Nothing here waits longer than the time it is given and a few seconds: not for a program that does
//! not read, floods, ignores SIGTERM, or leaves somebody behind who holds its output open. What is kept of its output is
//! bounded. That it reads its input to the end is not asked of it. However it ends, it is reaped before `run` returns, unless the
//! kernel itself cannot end it.

use crate::proto::text;
use crate::sys::{self, PollFd};
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// What is read or written in one go: the capacity of a pipe.
const GO: usize = 64 * 1024;
/// What is kept of the start, and of the end, of what it says.
const SAID: usize = 1000;
/// What is still read of that when it has ended: somebody that it left behind may write on for ever.
const LAST_GOES: usize = 16;
/// While its pipes are silent it is looked after so often, and less and less.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);
/// How long after its end somebody else may hold its output open before the output counts as incomplete.
const LINGER: Duration = Duration::from_secs(2);
/// How long a process that was sent SIGKILL is awaited.
const DYING: Duration = Duration::from_secs(5);

/// A program and all that it is given.
pub struct Helper<'a> {
    pub file: &'a Path,
    /// Its name, then its arguments.
    pub arguments: &'a [String],
    pub environment: &'a [(&'a str, String)],
    pub input: &'a [u8],
    /// The most octets of its output, where that is wanted; else it counts to what it says.
    pub output: Option<usize>,
    pub time_limit: Duration,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub end: End,
    pub output: Vec<u8>,
    pub said: Said,
}

#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Code(u8),
    Signal(i32),
    /// It was not started, or not awaited, as this clause says.
    Failed(String),
}

/// The start and the end of its standard error, and of its standard output where that is not wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Said {
    fn push(&mut self, bytes: &[u8]) {
        let room = SAID.saturating_sub(self.first.len()).min(bytes.len());
        self.first.extend_from_slice(&bytes[..room]);
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(SAID)..]);
        self.last.drain(..self.last.len().saturating_sub(SAID));
    }

    /// The first line with something in it, as text without control characters; empty if there is none.
    pub fn first_line(&self, max: usize) -> String {
        lines(&self.first).next().map_or_else(String::new, |line| text::escape_bytes(line, max))
    }

    /// The same of the last line.
    pub fn last_line(&self, max: usize) -> String {
        lines(&self.last).last().map_or_else(String::new, |line| text::escape_bytes(line, max))
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

impl Helper<'_> {
    /// Runs it to its end, or ends it.
    pub fn run(&self) -> Report {
        let mut talk = match self.start() {
            Ok(talk) => talk,
            Err(error) => {
                let clause = format!("cannot be started: {error}");
                return Report { end: End::Failed(clause), output: Vec::new(), said: Said::default() };
            }
        };
        let end = match self.converse(&mut talk) {
            Ok(()) => reaped(talk.pid),
            Err(clause) => {
                self.put_down(talk.pid);
                End::Failed(clause)
            }
        };
        let Talk { output, said, .. } = talk;
        Report { end, output, said }
    }

    fn start(&self) -> io::Result<Talk<'_>> {
        let mut command = Command::new(self.file);
        let (name, rest) = self.arguments.split_first().expect("a program has a name");
        command.arg0(name).args(rest).current_dir("/").env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let (said_pipe, said_writer) = io::pipe()?;
        let (output_pipe, output_writer) = match self.output {
            Some(_) => io::pipe().map(|(reader, writer)| (Some(reader), writer))?,
            None => (None, said_writer.try_clone()?),
        };
        for pipe in std::iter::once(&said_pipe).chain(&output_pipe) {
            sys::set_nonblocking(pipe.as_fd())?;
        }
        command.stdin(Stdio::piped()).stdout(output_writer).stderr(said_writer);
        let spawned = sys::spawn(&mut command)?;
        let stdin = spawned.stdin.filter(|_| !self.input.is_empty());
        let mut talk = Talk {
            pid: spawned.pid,
            unsent: self.input,
            stdin: None,
            output_pipe,
            output: Vec::new(),
            said_pipe: Some(said_pipe),
            said: Said::default(),
            buffer: vec![0; GO],
        };
        if let Some(stdin) = stdin {
            if let Err(error) = sys::set_nonblocking(stdin.as_fd()) {
                self.put_down(talk.pid);
                return Err(error);
            }
            talk.stdin = Some(stdin);
        }
        Ok(talk)
    }

    /// Until it has ended and all it wrote is read; the error is a clause.
    fn converse(&self, talk: &mut Talk<'_>) -> Result<(), String> {
        let failed = |error: io::Error| format!("cannot be talked to: {error}");
        let began = Instant::now();
        let mut ended: Option<Instant> = None;
        let mut look = FIRST_LOOK;
        loop {
            // Before the pipes are read: what it wrote before its end is then there.
            if ended.is_none() && sys::has_ended(talk.pid).map_err(failed)? {
                ended = Some(Instant::now());
            }
            let has_moved = talk.exchange().map_err(failed)?;
            if self.output.is_some_and(|limit| talk.output.len() > limit) {
                return Err("printed more than OUTPUT_LIMIT".into());
            }
            let (since, limit) = match ended {
                Some(_) if talk.output_pipe.is_none() => {
                    return talk.hear_the_rest().map_err(failed);
                }
                Some(ended) => (ended, LINGER),
                None => (began, self.time_limit),
            };
            let left = limit.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Err(match ended {
                    Some(_) => "has ended, and what it left behind holds its output open".into(),
                    None => format!("took longer than {limit:?}"),
                });
            }
            if has_moved {
                look = FIRST_LOOK;
            } else {
                talk.sleep(look.min(left)).map_err(failed)?;
                look = (look * 2).min(LAST_LOOK);
            }
        }
    }

    /// Ends its group: first so that it can clean up. What fails here has no better way.
    fn put_down(&self, pid: u32) {
        let _ = sys::end_group(pid);
        await_end(pid, self.grace);
        // It is not reaped, so the number is still that of its group, whose others may live on.
        let _ = sys::kill_group(pid);
        await_end(pid, DYING);
        let _ = sys::reap(pid);
    }
}

fn await_end(pid: u32, limit: Duration) {
    let began = Instant::now();
    while !sys::has_ended(pid).unwrap_or(true) && began.elapsed() < limit {
        // Without a descriptor this only waits.
        let _ = sys::poll(&mut [], Some(FIRST_LOOK * 5));
    }
}

fn reaped(pid: u32) -> End {
    match sys::reap(pid) {
        Ok(Some(status)) => match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, signal) => End::Signal(signal.unwrap_or_default()),
        },
        Ok(None) => End::Failed("has ended, nobody knows how".into()),
        Err(error) => End::Failed(format!("has ended, and how cannot be told: {error}")),
    }
}

/// Its pipes; each is None once it is closed.
struct Talk<'a> {
    pid: u32,
    unsent: &'a [u8],
    stdin: Option<ChildStdin>,
    output_pipe: Option<PipeReader>,
    output: Vec<u8>,
    said_pipe: Option<PipeReader>,
    said: Said,
    buffer: Vec<u8>,
}

impl Talk<'_> {
    /// Writes and reads a little of what can be now; whether that was anything.
    fn exchange(&mut self) -> io::Result<bool> {
        let written = self.write()?;
        let output = read(&mut self.output_pipe, &mut self.buffer)?;
        if let Some(count) = output {
            self.output.extend_from_slice(&self.buffer[..count]);
        }
        Ok(self.hear()? || output.is_some() || written)
    }

    fn write(&mut self) -> io::Result<bool> {
        let Some(stdin) = &mut self.stdin else { return Ok(false) };
        let count = match stdin.write(&self.unsent[..self.unsent.len().min(GO)]) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(false);
            }
            // It does not want the rest.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.unsent.len(),
            Err(error) => return Err(error),
        };
        self.unsent = &self.unsent[count..];
        if self.unsent.is_empty() {
            self.stdin = None;
        }
        Ok(true)
    }

    fn hear(&mut self) -> io::Result<bool> {
        let count = read(&mut self.said_pipe, &mut self.buffer)?;
        if let Some(count) = count {
            self.said.push(&self.buffer[..count]);
        }
        Ok(count.is_some())
    }

    fn hear_the_rest(&mut self) -> io::Result<()> {
        for _ in 0..LAST_GOES {
            if !self.hear()? {
                break;
            }
        }
        Ok(())
    }

    fn sleep(&self, limit: Duration) -> io::Result<()> {
        let inputs = [&self.output_pipe, &self.said_pipe].into_iter().flatten();
        let mut set: Vec<PollFd> = inputs.map(|pipe| PollFd::input(pipe.as_raw_fd())).collect();
        set.extend(self.stdin.as_ref().map(|stdin| PollFd::output(stdin.as_raw_fd())));
        sys::poll(&mut set, Some(limit))
    }
}

/// How much was read, 0 at the end, which closes the pipe; None when there is nothing now.
fn read(pipe: &mut Option<PipeReader>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let Some(reader) = pipe else { return Ok(None) };
    match reader.read(buffer) {
        Ok(0) => {
            *pipe = None;
            Ok(Some(0))
        }
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "helper_tests.rs"]
mod tests;
