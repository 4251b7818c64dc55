//! What the running processes are to the system: threads, open descriptors, sockets, children. AUDIT.md refers to it.

mod harness;

use harness::{PATIENCE, Process, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The dispatcher and one worker of it, after a message went through.
struct Line {
    db: harness::Database,
    dispatcher: Process,
    worker: u32,
}

impl Line {
    fn start() -> Line {
        Line::of("pepsi-stage-discard", &[])
    }

    fn of(program: &str, options: &[(&str, &str)]) -> Line {
        let mut db = harness::database();
        let config =
            db.config().stage("init", program, options).set("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "1 h");
        let mut command = harness::pepsi("pepsi-dispatch", &config.write());
        command.arg("serve");
        let dispatcher = Process::start_quiet(command, db.folder().join("log"));
        db.run("SELECT pepsi.workqueue_inject('', ARRAY['a@example.org'], 'X: y', NULL)");
        wait_until("the message is gone", PATIENCE, || {
            db.number("SELECT count(*) FROM pepsi.workqueue") == 0
        });
        let children = children(dispatcher.id());
        assert_eq!(children.len(), 1, "one worker is enough for one message");
        Line { db, dispatcher, worker: children[0] }
    }

    fn processes(&self) -> [u32; 2] {
        [self.dispatcher.id(), self.worker]
    }
}

/// A field of /proc/PID/status.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a living process");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
    line.trim_start_matches(':').trim().to_owned()
}

fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |id: &u32| {
        fs::read_to_string(format!("/proc/{id}/status"))
            .is_ok_and(|text| text.contains(&format!("\nPPid:\t{parent}\n")))
    };
    ids.filter(is_child).collect()
}

/// What each descriptor leads to: `socket:[17]`, `/dev/null`, …
fn descriptors(pid: u32) -> Vec<(u32, String)> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours").flatten();
    let paths = entries.map(|entry| entry.path());
    let mut all: Vec<(u32, String)> = paths
        .filter_map(|path| Some((number(&path)?, fs::read_link(&path).ok()?.to_string_lossy().into_owned())))
        .collect();
    all.sort();
    all
}

/// The inode numbers of a table of /proc/net: the column whose heading is `Inode` or, for TCP and UDP, the tenth.
fn inodes(table: &str, column: usize) -> BTreeSet<String> {
    let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().nth(column).map(str::to_owned))
        .collect()
}

#[test]
fn each_process_has_one_thread() {
    let line = Line::start();
    for pid in line.processes() {
        assert_eq!(status(pid, "Threads"), "1", "{pid}");
    }
}

#[test]
fn the_only_sockets_are_the_connection_to_the_database_and_what_the_driver_wakes_itself_by() {
    let line = Line::start();
    let unix = inodes("unix", 6);
    let internet: BTreeSet<String> =
        ["tcp", "tcp6", "udp", "udp6", "raw"].iter().flat_map(|t| inodes(t, 9)).collect();
    for pid in line.processes() {
        let sockets: Vec<String> = descriptors(pid)
            .into_iter()
            .filter_map(|(_, target)| Some(target.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
            .collect();
        assert!(!sockets.is_empty(), "the connection is one");
        for inode in sockets {
            assert!(unix.contains(&inode) && !internet.contains(&inode), "{pid}: socket {inode}");
        }
    }
}

#[test]
fn a_worker_has_no_file_open_while_it_waits() {
    let line = Line::start();
    for (fd, target) in descriptors(line.worker) {
        let is_plain = ["pipe:[", "socket:[", "anon_inode:"].iter().any(|kind| target.starts_with(kind));
        // 2 is the dispatcher's own standard error.
        assert!(is_plain || fd == 2, "{fd} is {target}");
    }
}

// Req: D3
#[test]
fn an_orderly_end_leaves_no_process_and_no_connection() {
    let mut line = Line::start();
    line.dispatcher.signal("TERM");
    assert_eq!(line.dispatcher.wait(PATIENCE), 0);
    assert!(!PathBuf::from(format!("/proc/{}", line.worker)).exists(), "the worker lives on");
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    wait_until("the backends are gone", PATIENCE, || line.db.number(others) == 0);
}

// What a large message took is not kept: 16 workers that have each seen one are not to take a small host's memory.
#[test]
fn a_worker_gives_the_memory_of_a_large_message_back() {
    const BODY: u64 = 6_000_000;
    let folder = std::env::temp_dir().join(format!("pepsi-footprint-{}", std::process::id()));
    fs::create_dir(&folder).expect("a new folder");
    let maildir = folder.join("${local}");
    let mut line =
        Line::of("pepsi-stage-relay-to-maildir", &[("MAILDIR", maildir.to_str().expect("a path"))]);
    let anonymous = |pid| -> u64 {
        status(pid, "RssAnon").trim_end_matches(" kB").trim().parse().expect("a number of kilobytes")
    };
    for round in 0..2 {
        line.db.run(&format!(
            "SELECT pepsi.workqueue_inject('', ARRAY['a@example.org'], 'X: y', convert_to(repeat('0123456789', {}), 'UTF8'))",
            BODY / 10
        ));
        let queue = |line: &mut Line| line.db.number("SELECT count(*) FROM pepsi.workqueue");
        wait_until("the message is gone", PATIENCE, || queue(&mut line) == 0);
        wait_until("the memory is given back", PATIENCE, || anonymous(line.worker) <= 1536);
        let files = fs::read_dir(folder.join("a/new")).expect("a Maildir").flatten();
        let large = files.filter(|file| file.metadata().is_ok_and(|data| data.len() > BODY)).count();
        assert_eq!(large, round + 1, "it is delivered, with a new connection too");
    }
    let _ = fs::remove_dir_all(&folder);
}
