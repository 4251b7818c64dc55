//! Processes of tests: programs of the binary under test, and children that end with the test.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A program of the binary under test, with a clean environment: what the tester's own shell has set must not matter.
pub fn pepsi(program: &str, config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pepsi"));
    for (name, _) in std::env::vars_os() {
        let is_ours = ["PG", "PEPSI_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix));
        if is_ours || name == "JOURNAL_STREAM" || name == "NOTIFY_SOCKET" {
            command.env_remove(&name);
        }
    }
    command.arg(program).arg("-c").arg(config);
    command
}

/// A running child: in a process group of its own, its standard error in a file, killed with its group when dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
    name: String,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts `command`; standard input and output are as the command says, by default those of the test.
    pub fn start(mut command: Command, log: PathBuf) -> Process {
        let name = format!("{command:?}");
        let file = File::create(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let child = command.stderr(file).process_group(0).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name}: {error}"));
        Process { child, log, name, status: None }
    }

    /// As `start`, without standard input and output.
    pub fn start_quiet(mut command: Command, log: PathBuf) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Process::start(command, log)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends a signal by name (`TERM`) to the process alone.
    pub fn signal(&self, name: &str) {
        assert!(signal(name, &self.id().to_string()), "{}: cannot send SIG{name}", self.name);
    }

    /// Its exit status, once it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("a child can be waited for");
        }
        self.status
    }

    /// Awaits its end and returns its exit code, or 128 and the signal that ended it.
    #[track_caller]
    pub fn wait(&mut self, patience: Duration) -> i32 {
        if !super::holds_within(patience, || self.ended().is_some()) {
            panic!("{} has not ended within {patience:?}; its log:\n{}", self.name, self.log());
        }
        let status = self.status.expect("it has ended");
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }

    /// Awaits a line of its log that contains `part`.
    #[track_caller]
    pub fn wait_for_log(&self, part: &str, patience: Duration) {
        if !super::holds_within(patience, || self.log().contains(part)) {
            panic!("{} has not logged {part:?} within {patience:?}; its log:\n{}", self.name, self.log());
        }
    }

    /// SIGKILL to the process alone: what it leaves behind is the test's subject.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.wait(super::PATIENCE);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            signal("KILL", &format!("-{}", self.id()));
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- log of {}\n{}", self.name, self.log());
        }
    }
}

/// `kill -s NAME -- TARGET`, by the shell: no unsafe code for it here.
pub fn signal(name: &str, target: &str) -> bool {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -s \"$0\" -- \"$1\"", name, target]).stderr(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}
