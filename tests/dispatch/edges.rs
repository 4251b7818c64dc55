//! The edges: any bytes at all, programs that are none, descriptors that run out, processes that are left behind.

use crate::harness::{PATIENCE, Process};
use crate::proxy::Proxy;
use crate::workers::REFUSES;
use crate::world::{World, is_alive, stop, until};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// Bytes of a fixed seed (xorshift64*), none of which is the beginning of a status.
fn garbage(count: usize) -> Vec<Vec<u8>> {
    let mut state = 0x5eed_u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
    };
    let mut one = || {
        let length = 1 + next() % 2_000;
        let mut bytes: Vec<u8> = (0..length).map(|_| (next() % 256) as u8).collect();
        if bytes[0].is_ascii_digit() {
            bytes[0] |= 0x80;
        }
        bytes
    };
    (0..count).map(|_| one()).collect()
}

// Req: R2, R5
#[test]
fn any_bytes_cost_a_worker_and_one_line() {
    const COUNT: i32 = 40;
    let world = World::new();
    // The message's number names the file that its worker prints; then it lives on, until it is killed.
    let script = "echo ready; read id; cat $LOG.$id; echo; echo $$ >>$LOG; exec sleep 600";
    world.stage("init", script, &[("QUEUE_LIMIT", "1")]);
    world.stage("honest", REFUSES, &[]);
    let ids = world.add("init", COUNT);
    for (id, bytes) in ids.iter().zip(garbage(ids.len())) {
        fs::write(world.path(&format!("init.log.{id}")), bytes).unwrap();
    }
    let dispatcher = world.serve();
    world.until_all("init", "paused");
    for id in &ids {
        assert_eq!(world.row(*id).state["strikes"], 1);
    }
    let log = dispatcher.log();
    for id in ids {
        assert_eq!(log.matches(&format!("message {id}: strike 1 of 3")).count(), 1, "{log}");
    }
    assert!(!log.contains(|c: char| c.is_control() && c != '\n'), "{log:?}");
    until("no worker is left", || !world.workers("init").iter().any(|pid| is_alive(*pid)));
    world.inject("honest");
    world.until_all("honest", "failed");
    assert_eq!(stop(dispatcher), 0);
}

/// The processor time that a process took so far, in hundredths of a second.
fn ticks(process: &Process) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

// Req: P5, R5, E5
#[test]
fn no_bad_program_spins_the_dispatcher_or_costs_a_row() {
    let world = World::new();
    let one = [("PARALLELISM", "1")];
    world.stage("loops", "while :; do sleep 0.01; done", &one);
    world.stage("prints", "exec yes nonsense", &one);
    world.stage("prints-ready", "exec yes ready", &one);
    world.stage("answers", "echo ready; exec yes 0", &one);
    world.stage("complains", "echo 'cannot work here' >&2; exit 1", &one);
    world.stage_of("missing", "/nonexistent/program", &one);
    world.stage_of("forbidden", "/dev/null", &one);
    let names = ["loops", "prints", "prints-ready", "answers", "complains", "missing", "forbidden"];
    for name in names {
        world.add(name, 3);
    }
    let dispatcher = world.serve();
    world.until_serving();
    let (start, before) = (Instant::now(), ticks(&dispatcher));
    until("seven seconds", || start.elapsed() > Duration::from_secs(7));
    let (used, seconds) = (ticks(&dispatcher) - before, start.elapsed().as_secs());
    assert!(used < 10 * seconds, "{used} hundredths in {seconds} s");
    let log = dispatcher.log();
    // Attempts after 0, 1, 3 and 7 seconds; one line of the worker's own with each.
    assert!((1..=5).contains(&log.matches("cannot work here").count()), "{log}");
    assert!(log.lines().count() < 60, "{log}");
    assert_eq!(stop(dispatcher), 0);
    for name in names {
        let rows = world.rows(name);
        assert!(
            rows.len() == 3 && rows.iter().all(|row| ["pending", "paused"].contains(&row.status.as_str()))
        );
        // Only those that had said ready may be blamed.
        let may_be_blamed = ["answers", "prints-ready"].contains(&name);
        assert!(may_be_blamed || !rows.iter().any(|row| row.has_strikes()), "{name}");
    }
}

// Req: D7, CLI5
#[test]
fn a_connection_is_made_again_when_workers_have_all_descriptors() {
    let world = World::new();
    let options = [("PARALLELISM", "32"), ("QUEUE_LIMIT", "1")];
    world.stage(
        "init",
        "echo $$ >>$LOG; echo ready; while [ ! -e $LOG.go ]; do sleep 0.05; done; while read id; do echo 1; done",
        &options,
    );
    world.add("init", 32);
    let dispatcher = world.serve_after("ulimit -n 40");
    dispatcher.wait_for_log("Too many open files", PATIENCE);
    assert_eq!(world.terminate_dispatcher_backends(), 1);
    dispatcher.wait_for_log("connected to the database again", PATIENCE);
    fs::write(world.path("init.log.go"), "").unwrap();
    world.until_all("init", "failed");
    assert_eq!(stop(dispatcher), 0);
}

// Req: CLI3, CLI5
#[test]
fn a_server_that_is_mute_at_the_start_is_one_line_and_code_1() {
    let world = World::new();
    let proxy = Proxy::start(&world.path(""), world.server_socket());
    world.configure("pepsi-postgres", "CONFIG", &world.url_at(&world.path("")));
    world.stage("init", REFUSES, &[]);
    proxy.fall_silent();
    let mut dispatcher = world.serve();
    assert_eq!(dispatcher.wait(PATIENCE), 1);
    let log = dispatcher.log();
    assert!(log.lines().count() == 1 && log.contains("given up after 15 s"), "{log}");
}

// Req: P7
#[test]
fn what_a_worker_leaves_behind_ends_with_it() {
    let world = World::new();
    // The grandchild holds the output open.
    world.stage("init", "echo ready; read id; sleep 600 & echo $! >>$LOG; echo 1; exit 0", &[]);
    world.add("init", 1);
    let dispatcher = world.serve();
    world.until_all("init", "failed");
    until("the grandchild is gone", || !is_alive(world.workers("init")[0]));
    assert_eq!(stop(dispatcher), 0);
}

// Req: D8
#[test]
fn a_loop_that_hangs_is_not_called_alive() {
    let world = World::new();
    let proxy = Proxy::start(&world.path(""), world.server_socket());
    world.configure("pepsi-postgres", "CONFIG", &world.url_at(&world.path("")));
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 s");
    world.stage("init", REFUSES, &[]);
    let path = world.path("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    let heard = |patience| {
        let mut buffer = [0; 64];
        socket.set_read_timeout(Some(patience)).unwrap();
        socket.recv(&mut buffer).ok().map(|count| String::from_utf8_lossy(&buffer[..count]).into_owned())
    };
    let dispatcher =
        world.serve_after(&format!("export WATCHDOG_USEC=200000 NOTIFY_SOCKET={}", path.display()));
    while heard(PATIENCE).unwrap() != "READY=1" {}
    proxy.fall_silent();
    until("a statement is not answered", || proxy.holds_something());
    // What was said before the statement is still in the socket.
    let start = Instant::now();
    until("silence", || heard(Duration::from_secs(2)).is_none());
    assert!(start.elapsed() < Duration::from_secs(10), "it was called alive all the time");
    proxy.speak_again();
    assert_eq!(heard(PATIENCE).unwrap(), "WATCHDOG=1");
    assert_eq!(stop(dispatcher), 0);
}
