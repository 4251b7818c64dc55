//! Tests of the system calls. What changes a whole process (signals, a parent's death) runs in a second copy of the
//! test program: the test named in TEST_ROLE then plays its part instead of passing at once.

use super::*;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Instant;

const ROLE: &str = "TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts this test program again with one test alone, its output going to us.
fn copy_of_us(test: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("sys::tests::{test}"), "--nocapture", "--test-threads=1"])
        .env(ROLE, test)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn plays(test: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == test)
}

/// The rest of the first line that starts with `key`; libtest writes lines of its own around it.
fn value_of(key: &str, output: ChildStdout) -> String {
    for line in BufReader::new(output).lines() {
        let line = line.unwrap();
        if let Some(at) = line.find(key) {
            return line[at + key.len()..].trim().to_owned();
        }
    }
    panic!("no {key} in the output");
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn is_readable(fd: RawFd) -> bool {
    let mut set = [PollFd::input(fd)];
    poll(&mut set, Some(Duration::ZERO)).unwrap();
    set[0].is_ready()
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'),
        Err(_) => false,
    }
}

fn status_field(pid: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn poll_reports_input_room_and_hang_up() {
    let (reader, mut writer) = io::pipe().unwrap();
    let mut set = [PollFd::input(reader.as_raw_fd()), PollFd::output(writer.as_raw_fd())];
    poll(&mut set, Some(Duration::ZERO)).unwrap();
    assert!(!set[0].is_ready() && set[1].is_ready());
    assert!(!is_readable(reader.as_raw_fd()));
    writer.write_all(b"x").unwrap();
    assert!(is_readable(reader.as_raw_fd()));
    poll(&mut set, None).unwrap();
    assert!(set[0].is_ready() && !set[0].is_broken());
    drop(writer);
    poll(&mut set[..1], None).unwrap();
    assert!(set[0].is_ready() && set[0].is_broken());
    let mut bad = [PollFd::input(i32::MAX)];
    poll(&mut bad, None).unwrap();
    assert!(bad[0].is_broken());
}

#[test]
fn a_timeout_never_ends_early() {
    let start = Instant::now();
    poll(&mut [], Some(Duration::from_micros(1500))).unwrap();
    assert!(start.elapsed() >= Duration::from_micros(1500));
}

#[test]
fn a_signal_ends_the_sleep_and_is_no_error() {
    const NAME: &str = "a_signal_ends_the_sleep_and_is_no_error";
    if !plays(NAME) {
        assert!(copy_of_us(NAME).wait().unwrap().success());
        return;
    }
    install_guard().unwrap();
    let (reader, _writer) = io::pipe().unwrap();
    let mut set = [PollFd::input(reader.as_raw_fd())];
    let start = Instant::now();
    let (result, signalled) = bounded(Duration::from_millis(20), || poll(&mut set, Some(PATIENCE)));
    assert!(result.is_ok() && signalled.is_some() && start.elapsed() < PATIENCE);
    assert!(!set[0].is_ready());
}

#[test]
fn room_is_what_the_limit_leaves() {
    check_room(0).unwrap();
    assert_eq!(check_room(u32::MAX).unwrap_err().raw_os_error(), Some(libc::EMFILE));
}

#[test]
fn nonblocking_pipes_do_not_wait() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    set_nonblocking(reader.as_fd()).unwrap();
    set_nonblocking(writer.as_fd()).unwrap();
    assert_eq!(reader.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let full = [0; 4096];
    while writer.write(&full).is_ok() {}
    assert_eq!(writer.write(&full).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn signals_become_input() {
    if !plays("signals_become_input") {
        assert!(copy_of_us("signals_become_input").wait().unwrap().success());
        return;
    }
    let mut signals = Signals::install().unwrap();
    let nothing = Caught { child: false, terminate: 0, reload: false };
    assert_eq!(signals.take(), nothing);
    let us = std::process::id().to_string();
    // Far more SIGCHLDs than the pipe holds bytes would take too long; what counts is that SIGTERM has its own flag.
    let mut seen = nothing;
    for signal in ["-TERM", "-INT", "-HUP"] {
        assert!(Command::new("kill").args([signal, &us]).status().unwrap().success());
    }
    until("all signals and the ends of kill", || {
        let mut set = [PollFd::input(signals.fd())];
        poll(&mut set, Some(Duration::from_millis(10))).unwrap();
        let caught = signals.take();
        seen.child |= caught.child;
        seen.terminate += caught.terminate;
        seen.reload |= caught.reload;
        seen == Caught { child: true, terminate: 2, reload: true }
    });
    assert_eq!(signals.take(), nothing);
    assert!(!is_readable(signals.fd()));
}

// Req: D3
#[test]
fn a_frozen_loop_still_ends() {
    if plays("a_frozen_loop_still_ends") {
        let _signals = Signals::install().unwrap();
        println!("FROZEN={}", std::process::id());
        loop {
            std::thread::park();
        }
    }
    let mut child = copy_of_us("a_frozen_loop_still_ends");
    let pid = value_of("FROZEN=", child.stdout.take().unwrap());
    assert_eq!(pid, child.id().to_string());
    let start = Instant::now();
    for _ in 0..3 {
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGALRM));
    assert!(start.elapsed() < Duration::from_secs(u64::from(FROZEN_SECONDS) + 5));
}

/// Awaits the end of a child of [`spawn`].
fn end_of(pid: u32) -> ExitStatus {
    let mut found = None;
    until("the child ends", || {
        found = reap(pid).unwrap();
        found.is_some()
    });
    assert!(reap(pid).unwrap().is_none(), "reaped twice");
    found.unwrap()
}

#[test]
fn reaps_each_child_once() {
    let coded = spawn(&mut shell("exit 75")).unwrap();
    let killed = spawn(&mut shell("kill -9 $$")).unwrap();
    let living = spawn(&mut shell("read line")).unwrap();
    assert_eq!(end_of(coded.pid).code(), Some(75));
    assert_eq!(end_of(killed.pid).signal(), Some(libc::SIGKILL));
    assert!(reap(living.pid).unwrap().is_none());
    kill_group(living.pid).unwrap();
    assert_eq!(end_of(living.pid).signal(), Some(libc::SIGKILL));
    kill_group(living.pid).unwrap();
}

#[test]
fn a_child_that_has_ended_is_told_until_it_is_reaped() {
    let child = spawn(&mut shell("sleep 600 & wait")).unwrap();
    assert!(!has_ended(child.pid).unwrap());
    end_group(child.pid).unwrap();
    until("it ends", || has_ended(child.pid).unwrap());
    assert!(has_ended(child.pid).unwrap());
    assert_eq!(reap(child.pid).unwrap().and_then(|status| status.signal()), Some(libc::SIGTERM));
    assert!(!has_ended(child.pid).unwrap());
}

// Req: P8
#[test]
fn a_stop_is_told_once_and_taken_back() {
    let child = spawn(&mut shell("echo BEGUN=1; read line; exit 5")).unwrap();
    value_of("BEGUN=", child.stdout.unwrap());
    assert!(!has_stopped(child.pid).unwrap());
    for _ in 0..3 {
        stop_group(child.pid).unwrap();
        until("it stops", || has_stopped(child.pid).unwrap());
        assert!(!has_stopped(child.pid).unwrap() && status_field(child.pid, "State:").starts_with('T'));
        continue_group(child.pid).unwrap();
        until("it goes on", || !status_field(child.pid, "State:").starts_with('T'));
        assert!(!has_stopped(child.pid).unwrap());
        // Whether it had stopped by then or not.
        stop_group(child.pid).unwrap();
        continue_group(child.pid).unwrap();
        assert!(!has_stopped(child.pid).unwrap());
    }
    drop(child.stdin);
    assert_eq!(end_of(child.pid).code(), Some(5));
    assert!(!has_stopped(child.pid).unwrap());
}

// Req: P8
#[test]
fn the_stop_of_a_child_is_input() {
    if !plays("the_stop_of_a_child_is_input") {
        assert!(copy_of_us("the_stop_of_a_child_is_input").wait().unwrap().success());
        return;
    }
    let mut signals = Signals::install().unwrap();
    let child = spawn(&mut shell("read line")).unwrap();
    stop_group(child.pid).unwrap();
    until("the stop is signalled", || signals.take().child);
    until("and it has stopped", || has_stopped(child.pid).unwrap());
    kill_group(child.pid).unwrap();
    assert_eq!(end_of(child.pid).signal(), Some(libc::SIGKILL));
}

// Req: P7
#[test]
fn a_child_leads_its_own_group_and_the_group_dies_with_it() {
    let child = spawn(&mut shell("sleep 600 & echo GROUP=$!; wait")).unwrap();
    let grandchild: u32 = value_of("GROUP=", child.stdout.unwrap()).parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.pid)).unwrap();
    let group = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap();
    assert_eq!(group, child.pid.to_string());
    assert!(alive(grandchild));
    kill_group(child.pid).unwrap();
    until("the grandchild dies", || !alive(grandchild));
    end_of(child.pid);
}

// Req: P7
#[test]
fn a_child_inherits_three_descriptors() {
    const NAME: &str = "a_child_inherits_three_descriptors";
    if !plays(NAME) {
        // An inheritable descriptor, such as a careless supervisor leaves open.
        let status = Command::new("/bin/sh")
            .args(["-c", "exec 7</dev/null; exec \"$0\" --exact \"sys::tests::$TEST_ROLE\" --test-threads=1"])
            .arg(std::env::current_exe().unwrap())
            .env(ROLE, NAME)
            .status();
        assert!(status.unwrap().success());
        return;
    }
    assert!(open_descriptors().unwrap().contains(&7));
    // The shell's own descriptors, as seen by a process of its own.
    let descriptors = |stdout: Option<ChildStdout>| -> BTreeSet<String> {
        let text = io::read_to_string(stdout.unwrap()).unwrap();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let list = || shell("ls /proc/$$/fd; :");
    let expected: BTreeSet<String> = ["0", "1", "2"].map(str::to_owned).into();
    let mut careless = list().spawn().unwrap();
    assert!(descriptors(careless.stdout.take()).contains("7"), "the test proves nothing");
    careless.wait().unwrap();
    assert_eq!(descriptors(spawn(&mut list()).unwrap().stdout), expected);
    let listed = Seal::Listed(open_descriptors().unwrap());
    assert_eq!(descriptors(spawn_sealed(&mut list(), listed, std::process::id()).unwrap().stdout), expected);
}

#[test]
fn a_child_has_default_signals() {
    const NAME: &str = "a_child_has_default_signals";
    if !plays(NAME) {
        let status = Command::new("/bin/sh")
            .args(["-c", "trap '' HUP USR1; exec \"$0\" --exact \"sys::tests::$TEST_ROLE\" --test-threads=1"])
            .arg(std::env::current_exe().unwrap())
            .env(ROLE, NAME)
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let child = spawn(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    // Signals 32 and 33 belong to the C library, which lets nobody change them.
    let signals = |pid, field| u64::from_str_radix(&status_field(pid, field), 16).unwrap() & !(0b11 << 31);
    assert_ne!(signals(std::process::id(), "SigIgn"), 0, "the test proves nothing");
    for field in ["SigIgn", "SigBlk", "SigCgt"] {
        assert_eq!(signals(child.pid, field), 0, "{field}");
    }
    kill_group(child.pid).unwrap();
    end_of(child.pid);
}

// Req: D5
#[test]
fn a_child_of_a_killed_parent_dies() {
    const NAME: &str = "a_child_of_a_killed_parent_dies";
    if plays(NAME) {
        let child = spawn(Command::new("sleep").arg("600").stdout(Stdio::null())).unwrap();
        println!("CHILD={}", child.pid);
        loop {
            std::thread::park();
        }
    }
    let mut parent = copy_of_us(NAME);
    let child: u32 = value_of("CHILD=", parent.stdout.take().unwrap()).parse().unwrap();
    assert!(alive(child));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the child dies", || !alive(child));
}

// Req: D5
#[test]
fn a_child_whose_parent_is_another_does_not_start() {
    let stranger = std::os::unix::process::parent_id();
    let error = spawn_sealed(&mut Command::new("true"), Seal::Range, stranger).err().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
}

#[test]
fn a_program_that_cannot_start_is_an_error() {
    let missing = spawn(&mut Command::new("/nonexistent/program")).err().unwrap();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let forbidden = spawn(&mut Command::new("/dev/null")).err().unwrap();
    assert_eq!(forbidden.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn finds_connected_sockets() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (left, _right) = UnixStream::pair().unwrap();
    let found = connected_sockets().unwrap();
    assert!(found.contains(&client.as_raw_fd()) && found.contains(&left.as_raw_fd()));
    assert!(!found.contains(&listener.as_raw_fd()));
}

#[test]
fn a_socket_that_is_shut_down_ends_for_both() {
    let (mut left, mut right) = UnixStream::pair().unwrap();
    shut_down(left.as_raw_fd());
    assert_eq!(left.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(right.read(&mut [0; 1]).unwrap(), 0);
    shut_down(i32::MAX);
}

#[test]
fn knows_host_and_user() {
    assert_eq!(hostname().unwrap(), fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim_end());
    let uids = status_field(std::process::id(), "Uid");
    assert_eq!(uid().to_string(), uids.split_whitespace().nth(1).unwrap());
}

#[test]
fn merged_signals_hide_no_child() {
    const NAME: &str = "merged_signals_hide_no_child";
    if !plays(NAME) {
        assert!(copy_of_us(NAME).wait().unwrap().success());
        return;
    }
    let mut signals = Signals::install().unwrap();
    let mut living: BTreeSet<u32> = (0..8).map(|_| spawn(&mut shell("read line")).unwrap().pid).collect();
    // Their input is closed, so they end at about the same time; we look only once some signal came.
    while !living.is_empty() {
        poll(&mut [PollFd::input(signals.fd())], Some(PATIENCE)).unwrap();
        assert!(signals.take().child, "a child was missed");
        while let Some(pid) = ended().unwrap() {
            assert_eq!(ended().unwrap(), Some(pid), "it stays until it is reaped");
            assert!(living.remove(&pid) && reap(pid).unwrap().is_some());
        }
    }
    assert_eq!(ended().unwrap(), None);
}

#[test]
fn what_waits_on_a_socket_is_ended_and_inherited_sockets_are_left_alone() {
    const NAME: &str = "what_waits_on_a_socket_is_ended_and_inherited_sockets_are_left_alone";
    if !plays(NAME) {
        assert!(copy_of_us(NAME).wait().unwrap().success());
        return;
    }
    let (inherited, mut its_peer) = UnixStream::pair().unwrap();
    install_guard().unwrap();
    let (result, expired) = bounded(PATIENCE, || 7);
    assert!(result == 7 && expired.is_none());
    let (mut mute, _peer) = UnixStream::pair().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // Twice: the second socket is made when the first limit is over already.
    let ((first, second), expired) = bounded(Duration::from_millis(50), || {
        let first = mute.read(&mut [0; 1]);
        (first, TcpStream::connect(address).unwrap().read(&mut [0; 1]))
    });
    assert_eq!(expired, Some(Duration::from_millis(50)));
    assert_eq!((first.unwrap(), second.unwrap()), (0, 0));
    (&inherited).write_all(b"x").unwrap();
    assert_eq!(its_peer.read(&mut [0; 1]).unwrap(), 1);
    assert!(bounded(PATIENCE, || ()).1.is_none(), "told once");
    let nested = || bounded(PATIENCE, || bounded(PATIENCE, || ()));
    assert!(std::panic::catch_unwind(nested).is_err(), "the inner one would disarm the outer");
    assert!(bounded(PATIENCE, || ()).1.is_none(), "a panic leaves nothing armed");
}

// Req: D3
#[test]
fn a_sigterm_makes_waits_short() {
    const NAME: &str = "a_sigterm_makes_waits_short";
    if !plays(NAME) {
        assert!(copy_of_us(NAME).wait().unwrap().success());
        return;
    }
    install_guard().unwrap();
    let _signals = Signals::install().unwrap();
    let us = std::process::id().to_string();
    let start = Instant::now();
    let terminate = || assert!(Command::new("kill").args(["-TERM", &us]).status().unwrap().success());
    let expiry = || until("the limit", || EXPIRED.load(Ordering::SeqCst));
    // One comes while it waits; then one has come.
    let both = || (terminate(), expiry());
    assert_eq!(bounded(10 * PATIENCE, both).1, Some(LAST_WAIT));
    assert_eq!(bounded(10 * PATIENCE, expiry).1, Some(LAST_WAIT));
    assert!(start.elapsed() >= 2 * LAST_WAIT, "{:?}", start.elapsed());
    assert_eq!(bounded(LAST_WAIT / 10, expiry).1, Some(LAST_WAIT / 10), "no wait gets longer");
}
