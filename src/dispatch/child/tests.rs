//! Tests of one worker process. The program is `/bin/sh`, started as `sh -c FILE worker`: the name of the
//! configuration file is the worker's script.

use super::*;
use crate::host::OURSELVES;
use crate::sys::PollFd;
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const WORKER: WorkerId = WorkerId(7);

/// A launcher, and the program that it is to start.
struct Starter {
    launcher: Launcher,
    program: &'static str,
    queue_limit: u32,
}

impl Starter {
    fn spawn(&self, worker: WorkerId, stage: &str) -> Result<Child, String> {
        self.launcher.spawn(worker, stage, self.program, self.queue_limit)
    }
}

fn launcher_of(script: &str, program: &'static str, queue_limit: u32) -> Starter {
    let variables = [("PATH", "/usr/bin:/bin"), ("SECRET", "x"), ("PEPSI_STAGE", "wrong"), ("PGUSER", "me")];
    let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let launcher = Launcher::new(PathBuf::from(script), variables.into_iter());
    Starter { launcher, program, queue_limit }
}

fn start(script: &str) -> Child {
    launcher_of(script, "/bin/sh", 4).spawn(WORKER, "first").unwrap()
}

fn error_of(launcher: &Starter) -> String {
    launcher.spawn(WORKER, "first").err().unwrap()
}

/// Polls and reads as the shell does, until as many events as wanted have come; how they were put together is left out.
fn events(child: &mut Child, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let missing = count - events.len();
        events.extend(apart(all_events(child, missing)));
    }
    events
}

/// How many answers came at once depends on the machine.
fn apart(events: Vec<Event>) -> Vec<Event> {
    events.into_iter().filter(|event| !matches!(event, Event::Burst { .. })).collect()
}

fn all_events(child: &mut Child, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let start = Instant::now();
    while events.len() < count {
        assert!(start.elapsed() < PATIENCE, "only {events:?}");
        let mut set: Vec<PollFd> = child.output_fd().map(PollFd::input).into_iter().collect();
        sys::poll(&mut set, Some(Duration::from_secs(1))).unwrap();
        if set.iter().any(PollFd::is_ready) {
            child.read(&mut events);
        }
    }
    events
}

fn ended(pid: u32) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = sys::reap(pid).unwrap() {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "{pid} does not end");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn end(child: Child) -> Vec<Event> {
    let mut events = Vec::new();
    let status = ended(child.pid());
    child.finish(status, &mut events);
    apart(events)
}

/// Kills and reaps what a test leaves.
fn discard(child: Child) {
    child.kill();
    end(child);
}

fn rows(ids: std::ops::Range<i64>) -> Vec<Claim> {
    ids.map(|id| Claim { id, claim: id + 100 }).collect()
}

fn answer(status: u8) -> Event {
    Event::Answer { worker: WORKER, status, report: Vec::new() }
}

fn ready(claims: bool) -> Event {
    Event::Ready { worker: WORKER, claims }
}

const CLOSED: Event = Event::Closed { worker: WORKER };

fn exited(code: i32) -> Event {
    Event::Exited { worker: WORKER, exit: Exit::Code(code) }
}

// Req: P3, R1
#[test]
fn ids_go_in_and_answers_come_out() {
    let mut child = start("echo ready claims; while read id claim; do echo $((claim - id)); done; exit 3");
    assert_eq!(events(&mut child, 1), [ready(true)]);
    child.send(&rows(1..4));
    assert_eq!(events(&mut child, 3), [answer(100), answer(100), answer(100)]);
    child.close();
    assert_eq!(events(&mut child, 1), [CLOSED]);
    assert_eq!(end(child), [exited(3)]);
}

// Req: R1
#[test]
fn answers_of_one_write_are_a_burst() {
    let mut child = start("echo ready; printf '0\\n1\\n0\\n'; read id; echo 0");
    let mut first = all_events(&mut child, 1);
    if first.len() == 1 {
        first.extend(all_events(&mut child, 4));
    }
    let burst = Event::Burst { worker: WORKER, answers: 3 };
    assert_eq!(first, [ready(false), burst, answer(0), answer(1), answer(0)]);
    child.send(&rows(1..2));
    assert_eq!(all_events(&mut child, 1)[0], answer(0), "one alone is none");
    discard(child);
}

// Req: R1
#[test]
fn a_worker_that_wants_no_claims_gets_none() {
    let mut child =
        start("echo ready; while read line; do case $line in *' '*) echo 9;; *) echo $line;; esac; done");
    assert_eq!(events(&mut child, 1), [ready(false)]);
    child.send(&rows(5..7));
    assert_eq!(events(&mut child, 2), [answer(5), answer(6)]);
    discard(child);
}

// Req: P7
#[test]
fn the_environment_is_small_and_named() {
    let script = "echo ready; [ \"$(env | sed 's/=.*//' | grep -v '^PWD$\\|^_$\\|^SHLVL$\\|^OLDPWD$' | sort | tr '\\n' ' ')\" = \
                  'PATH PEPSI_LOG PEPSI_STAGE PGUSER ' ] && [ $PEPSI_STAGE = first ] && echo 0";
    let mut child = start(script);
    assert_eq!(events(&mut child, 3), [ready(false), answer(0), CLOSED]);
    assert_eq!(end(child), [exited(0)]);
    let names = ["PATH", "HOME", "LANG", "TZ", "PGHOST", "PEPSI_CONFIG", "JOURNAL_STREAM"];
    assert!(names.iter().all(|name| is_handed_down(OsStr::new(name))));
    let kept = ["LD_PRELOAD", "NOTIFY_SOCKET", "PAT", "PATHS", "LANGUAGE", "LC_ALL", "pgpass", ""];
    assert!(!kept.iter().any(|name| is_handed_down(OsStr::new(name))));
}

// Req: P6
#[test]
fn programs_are_found_on_path_or_in_ourselves() {
    let path = OsStr::new("relative:/nonexistent:/usr/bin:/bin");
    let found = find_program("sh", path).unwrap();
    assert!(found == Path::new("/usr/bin/sh") || found == Path::new("/bin/sh"));
    assert_eq!(find_program("/no/such", path), Some(PathBuf::from("/no/such")));
    assert_eq!(find_program("pepsi-stage-if", path), Some(PathBuf::from(OURSELVES)));
    assert_eq!(find_program("pepsi-stage-unheard-of", path), None);
    // A folder, and a file that nobody may execute.
    assert_eq!(find_program("null", OsStr::new("/dev")), None);
    assert_eq!(find_program("bin", OsStr::new("/usr")), None);
    assert_eq!(find_program("sh", OsStr::new("")), None);
}

// Req: P5, P6
#[test]
fn a_program_that_cannot_start_is_one_line() {
    assert_eq!(
        error_of(&launcher_of("", "nowhere-to-be-found", 1)),
        "cannot start nowhere-to-be-found: no such program on PATH"
    );
    assert!(
        error_of(&launcher_of("", "/nonexistent", 1)).starts_with("cannot start /nonexistent: No such file")
    );
    assert!(
        error_of(&launcher_of("", "/dev/null", 1)).starts_with("cannot start /dev/null: Permission denied")
    );
}

// Req: R5
#[test]
fn what_is_no_answer_ends_the_reading() {
    for (script, what) in [
        ("echo ready; echo fine", "neither"),
        ("echo ready; printf 'a\\000b\\n'", "NUL"),
        ("echo ready; printf '\\377\\n'", "UTF-8"),
        ("echo ready; exec tr '\\000' x </dev/zero", "more than"),
    ] {
        let mut child = start(script);
        let events = events(&mut child, 2);
        assert_eq!(events[0], ready(false), "{script}");
        let [_, Event::Garbage { worker: WORKER, error }] = &events[..] else {
            panic!("{script}: {events:?}");
        };
        assert!(error.contains(what), "{error}");
        assert_eq!(child.output_fd(), None);
        child.kill();
        let end = end(child);
        assert!(matches!(end[..], [Event::Exited { worker: WORKER, .. }]), "{script}: {end:?}");
    }
}

// Req: R2
#[test]
fn an_unreadable_report_leaves_the_status() {
    let mut child = start("echo ready; echo '0 [[\"second\",17]]'; echo '0 [oh'");
    let events = events(&mut child, 3);
    let report = vec![("second".to_owned(), 17)];
    assert_eq!(events[1..3], [Event::Answer { worker: WORKER, status: 0, report }, answer(0)]);
    discard(child);
}

// Req: R5
#[test]
fn a_flood_is_read_in_portions() {
    let mut child = start("exec yes 0");
    for _ in 0..20 {
        let portion = events(&mut child, 1);
        assert!(portion.len() <= TURN_BYTES, "{} in one turn", portion.len());
        assert!(portion.iter().all(|event| *event == answer(0)));
    }
    discard(child);
}

#[test]
fn the_end_of_the_output_is_told_once() {
    // It lives on behind a closed output: a hang-up without input.
    let mut child = start("echo ready; exec >&-; read line");
    assert_eq!(events(&mut child, 2), [ready(false), CLOSED]);
    assert_eq!(child.output_fd(), None);
    assert!(sys::reap(child.pid()).unwrap().is_none());
    let mut more = Vec::new();
    child.read(&mut more);
    child.close();
    assert_eq!(more, []);
    assert!(matches!(end(child)[..], [Event::Exited { .. }]));
}

#[test]
fn half_a_line_is_no_answer() {
    let mut child = start("echo ready; printf 0; exit 5");
    assert_eq!(events(&mut child, 2), [ready(false), CLOSED]);
    assert_eq!(end(child), [exited(5)]);
}

#[test]
fn a_grandchild_that_holds_the_output_delays_nothing() {
    let child = start("echo ready; echo 0; sleep 600 & exit 4");
    let mut set = [PollFd::input(child.output_fd().unwrap())];
    let group = child.pid();
    sys::poll(&mut set, Some(PATIENCE)).unwrap();
    let all = end(child);
    assert_eq!(all, [ready(false), answer(0), exited(4)]);
    assert!(
        std::process::Command::new("kill").arg("--").arg(format!("-{group}")).status().unwrap().success()
    );
}

#[test]
fn a_grandchild_that_writes_for_ever_delays_nothing() {
    let child = start("yes 0 & exit 4");
    let group = child.pid();
    let all = end(child);
    assert_eq!(all.last(), Some(&exited(4)));
    assert!(all.len() <= LAST_BYTES);
    // It ended when the last reader of its output did.
    let start = Instant::now();
    while std::process::Command::new("kill")
        .args(["-0", "--", &format!("-{group}")])
        .status()
        .unwrap()
        .success()
    {
        assert!(start.elapsed() < PATIENCE, "the grandchild lives");
    }
}

// Req: P3
#[test]
fn a_full_pipe_is_never_waited_for() {
    let launcher = launcher_of("echo ready; kill -STOP $$; exec md5sum", "/bin/sh", 10_000);
    let mut child = launcher.spawn(WORKER, "first").unwrap();
    assert_eq!(events(&mut child, 1), [ready(false)]);
    let first = 1_000_000_000_000_000_000;
    child.send(&rows(first..first + 10_000));
    let fd = child.input_fd().expect("the pipe holds less than 200 kB");
    let mut set = [PollFd::output(fd)];
    sys::poll(&mut set, Some(Duration::ZERO)).unwrap();
    assert!(!set[0].is_ready());
    // Closing does not cut a line short.
    child.close();
    assert_eq!(child.input_fd(), Some(fd));
    let pid = child.pid().to_string();
    assert!(std::process::Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
    while let Some(fd) = child.input_fd() {
        let mut set = [PollFd::output(fd)];
        sys::poll(&mut set, Some(PATIENCE)).unwrap();
        assert!(set[0].is_ready() && !set[0].is_broken());
        child.flush();
    }
    let sent: String = (first..first + 10_000).map(|id| format!("{id}\n")).collect();
    assert!(child.input.is_none());
    let garbage = events(&mut child, 1);
    let [Event::Garbage { error, .. }] = &garbage[..] else { panic!("{garbage:?}") };
    assert!(error.contains(&md5_of(&sent)), "{error}");
    assert_eq!(end(child), [exited(0)]);
}

fn md5_of(text: &str) -> String {
    let mut md5sum = Command::new("md5sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    md5sum.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = md5sum.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

// Req: R5
#[test]
fn a_worker_that_answers_and_does_not_read_is_given_up() {
    let mut child = start("kill -STOP $$");
    let first = -1_000_000_000_000_000_000;
    child.claims = true;
    let mut input = child.input.as_ref().unwrap();
    while input.write(&[b'\n'; 4096]).is_ok() {}
    child.send(&rows(first..first + 5));
    assert!(child.is_broken() && child.input_fd().is_none() && child.unsent.is_empty());
    let mut told = Vec::new();
    child.report_broken(&mut told);
    assert_eq!(told, [CLOSED]);
}

#[test]
fn a_broken_input_is_told_behind_the_answers() {
    let mut child = start("echo ready; read line; exec <&-; echo 0; echo 7; kill -STOP $$; sleep 600");
    assert_eq!(events(&mut child, 1), [ready(false)]);
    child.send(&rows(1..2));
    let mut set = [PollFd::input(child.output_fd().unwrap())];
    sys::poll(&mut set, Some(PATIENCE)).unwrap();
    // A process that another test is just starting has a copy of the reading end until it runs its program.
    let start = Instant::now();
    for id in 2.. {
        assert!(start.elapsed() < PATIENCE, "its input is not broken");
        child.send(&rows(id..id + 1));
        if child.is_broken() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert_eq!(child.input_fd(), None);
    let mut all = Vec::new();
    // The second answer may still be on its way.
    while all.len() < 3 {
        assert!(start.elapsed() < PATIENCE, "{all:?}");
        child.report_broken(&mut all);
        all = apart(all);
    }
    assert!(!child.is_broken());
    assert_eq!(all.iter().filter(|event| **event == CLOSED).count(), 1);
    assert_eq!(all.iter().position(|event| *event == answer(0)), Some(0));
    child.send(&rows(3..4));
    assert!(!child.is_broken());
    discard(child);
}

/// Plays its part in a second copy of the test program that may open few descriptors.
// Req: CLI5
#[test]
fn too_few_descriptors_is_an_error() {
    const NAME: &str = "dispatch::child::tests::too_few_descriptors_is_an_error";
    if std::env::var("TEST_ROLE").as_deref() != Ok(NAME) {
        let status = Command::new("/bin/sh")
            .args(["-c", "ulimit -n 48; exec \"$0\" --exact \"$TEST_ROLE\" --test-threads=1"])
            .arg(std::env::current_exe().unwrap())
            .env("TEST_ROLE", NAME)
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let launcher = launcher_of("echo ready; read line", "/bin/sh", 4);
    let mut children = Vec::new();
    let error = loop {
        match launcher.spawn(WorkerId(children.len() as u64), "first") {
            Ok(child) => children.push(child),
            Err(error) => break error,
        }
    };
    assert!(error.contains("Too many open files"), "{error}");
    assert!(children.len() > 5);
    let last = children.pop().unwrap();
    discard(last);
    children.push(launcher.spawn(WORKER, "first").unwrap());
    children.into_iter().for_each(discard);
}

/// Turns as the shell's, until it is reported to have stopped.
fn halted(child: &mut Child) -> Vec<Event> {
    let mut events = Vec::new();
    let start = Instant::now();
    child.halt();
    while events.last() != Some(&HALTED) {
        assert!(start.elapsed() < PATIENCE, "only {events:?}");
        child.report_halted(&mut events);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    apart(events)
}

const HALTED: Event = Event::Halted { worker: WORKER };

// Req: P8
#[test]
fn a_halted_worker_was_heard_to_the_end_and_says_nothing_more() {
    let script = "echo ready claims; while read id claim; do echo $id; done";
    let mut child = start(script);
    assert_eq!(events(&mut child, 1), [ready(true)]);
    child.send(&rows(1..3));
    let mut set = [PollFd::input(child.output_fd().unwrap())];
    sys::poll(&mut set, Some(PATIENCE)).unwrap();
    let before = halted(&mut child);
    assert!(before == [answer(1), HALTED] || before == [answer(1), answer(2), HALTED], "{before:?}");
    child.send(&rows(3..4));
    let mut set = [PollFd::input(child.output_fd().unwrap())];
    sys::poll(&mut set, Some(Duration::from_millis(50))).unwrap();
    assert!(!set[0].is_ready());
    let mut more = Vec::new();
    child.report_halted(&mut more);
    assert_eq!(more, [], "it is reported once");
    child.resume();
    assert_eq!(events(&mut child, 4 - before.len()).last(), Some(&answer(3)));
    discard(child);
}

// Req: P8
#[test]
fn a_program_that_leaves_its_work_to_another_process_stops_with_it() {
    let mut child = start("(echo ready claims; while read id claim; do echo $id; done); exit 3");
    assert_eq!(events(&mut child, 1), [ready(true)]);
    assert_eq!(halted(&mut child), [HALTED]);
    child.send(&rows(1..2));
    let mut set = [PollFd::input(child.output_fd().unwrap())];
    sys::poll(&mut set, Some(Duration::from_millis(50))).unwrap();
    assert!(!set[0].is_ready());
    child.resume();
    assert_eq!(events(&mut child, 1), [answer(1)]);
    discard(child);
}

// Req: P8
#[test]
fn a_worker_that_ends_instead_of_stopping_is_only_reaped() {
    let mut child = start("exit 3");
    let start = Instant::now();
    while status_letter(child.pid()) != Some('Z') {
        assert!(start.elapsed() < PATIENCE);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    child.halt();
    let mut seen = Vec::new();
    child.report_halted(&mut seen);
    assert_eq!(seen, []);
    assert_eq!(end(child), [exited(3)]);
    // One that stands still can be killed.
    let mut child = self::start("echo ready claims; read id");
    assert_eq!(events(&mut child, 1), [ready(true)]);
    halted(&mut child);
    child.kill();
    assert_eq!(end(child), [Event::Exited { worker: WORKER, exit: Exit::Signal(9) }]);
}

fn status_letter(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")?.1.chars().next()
}
