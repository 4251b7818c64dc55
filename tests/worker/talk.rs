//! Workers as the tests run them: with all their input at once, or talked to line by line.

use super::harness::{self, Database, Process, pepsi};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// A worker that was given all its input at once.
pub struct Run {
    pub output: String,
    pub code: i32,
    pub log: String,
}

pub fn finish(mut command: Command, input: &str) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // A worker that refuses to start does not read.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    Run {
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        code: output.status.code().unwrap_or(-1),
        log: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub fn worker(program: &str, config: &Path, input: &str) -> Run {
    let mut command = pepsi(program, config);
    command.arg("worker");
    finish(command, input)
}

/// A worker that is talked to.
pub struct Talk {
    pub process: Process,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Talk {
    pub fn start(db: &Database, program: &str, config: &Path) -> Talk {
        let mut command = pepsi(program, config);
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command, db.folder().join(format!("log-{}", harness::unique())));
        let input = process.child().stdin.take();
        let output = BufReader::new(process.child().stdout.take().expect("a pipe"));
        let mut talk = Talk { process, input, output };
        assert_eq!(talk.answer(), "ready claims", "{}", talk.process.log());
        talk
    }

    /// Lets its input end.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    pub fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("its input is open"), "{line}").expect("the worker reads");
    }

    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the worker writes lines");
        line.trim_end().to_owned()
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }
}
