//! The dispatcher's own life: start, lock, signals, lost connections, idleness, its supervisor.

use crate::harness::{self, PATIENCE};
use crate::proxy::Proxy;
use crate::workers::REFUSES;
use crate::world::{World, is_alive, stop, switches, until};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

// Req: W1, W2, W5
#[test]
fn a_notification_wakes_an_idle_dispatcher() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 h");
    let _dispatcher = world.serve();
    world.until_serving();
    for _ in 0..3 {
        world.inject("init");
        world.until_all("init", "failed");
    }
}

// Req: W2
#[test]
fn the_heartbeat_finds_what_nobody_announced() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 s");
    let _dispatcher = world.serve();
    world.until_serving();
    world.add("init", 1);
    world.until_all("init", "failed");
}

// Req: D3
#[test]
fn sigterm_returns_every_row() {
    let world = World::new();
    world.stage("deaf", "echo $$ >>$LOG; echo ready; trap '' TERM; exec sleep 600", &[]);
    world.stage("polite", "echo $$ >>$LOG; echo ready; while read id; do :; done", &[]);
    let names = ["deaf", "polite"];
    for name in names {
        world.add(name, 30);
    }
    let dispatcher = world.serve();
    for name in names {
        until("the pool is full", || world.log(name).len() == 4);
        until("the pipelines are full", || {
            world.rows(name).iter().filter(|row| row.status == "running").count() == 16
        });
    }
    let start = Instant::now();
    assert_eq!(stop(dispatcher), 0);
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    for name in names {
        assert!(world.rows(name).iter().all(|row| row.status == "pending" && !row.has_strikes()));
        assert!(!world.workers(name).iter().any(|pid| is_alive(*pid)));
    }
}

// Req: D3
#[test]
fn a_second_signal_loses_no_rows() {
    let world = World::new();
    world.stage("deaf", "echo $$ >>$LOG; echo ready; exec sleep 600", &[("PARALLELISM", "1")]);
    world.add("deaf", 6);
    let mut dispatcher = world.serve();
    until("it runs", || world.log("deaf").len() == 1);
    dispatcher.signal("INT");
    dispatcher.wait_for_log("stopping", PATIENCE);
    dispatcher.signal("TERM");
    assert_eq!(dispatcher.wait(PATIENCE), 0);
    assert!(world.rows("deaf").iter().all(|row| row.status == "pending"));
    assert!(!is_alive(world.workers("deaf")[0]));
}

// Req: D2, D5
#[test]
fn sigkill_leaves_no_worker_and_the_next_start_frees_the_rows() {
    let world = World::new();
    world.stage("init", "echo $$ >>$LOG; echo ready; exec sleep 600", &[]);
    let ids = world.add("init", 8);
    let mut dispatcher = world.serve();
    until("all workers run", || world.log("init").len() == 4);
    until("rows run", || ids.iter().any(|id| world.row(*id).status == "running"));
    dispatcher.kill();
    let workers = world.workers("init");
    until("no worker is left", || !workers.iter().any(|pid| is_alive(*pid)));
    world.stage("init", REFUSES, &[]);
    let _dispatcher = world.serve();
    world.until_all("init", "failed");
}

// Req: D1, CLI3
#[test]
fn a_second_dispatcher_is_refused() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    let first = world.serve();
    world.until_serving();
    let start = Instant::now();
    let mut second = world.serve();
    assert_eq!(second.wait(PATIENCE), 1);
    assert!((9..25).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(second.log().contains("another dispatcher"), "{}", second.log());
    world.inject("init");
    world.until_all("init", "failed");
    assert_eq!(stop(first), 0);
}

/// The exit code of a dispatcher that does not start, and what it logged: one line for each reason.
fn refusal(world: &World) -> (i32, Vec<String>) {
    let mut dispatcher = world.serve();
    let code = dispatcher.wait(PATIENCE);
    (code, dispatcher.log().lines().map(str::to_owned).collect())
}

// Req: CLI3, CLI5
#[test]
fn what_cannot_start_says_why() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    world.configure("pepsi-postgres", "CONFIG", "postgres:///nowhere?host=/nonexistent");
    let (code, log) = refusal(&world);
    assert!(code == 1 && log.len() == 1 && log[0].contains("/nonexistent"), "{code}: {log:?}");

    let world = World::on(harness::shared().empty_database());
    world.stage("init", REFUSES, &[]);
    let (code, log) = refusal(&world);
    assert!(code == 78 && log.len() == 1 && log[0].contains("pepsi-setup schema"), "{code}: {log:?}");

    let world = World::new();
    world.stage("init", REFUSES, &[("PARALLELISM", "none")]);
    world.stage("other", REFUSES, &[("MAX_RUNTIME", "soon")]);
    let (code, log) = refusal(&world);
    let is_placed =
        |option: &str| log.iter().any(|line| line.contains("pepsi.conf:") && line.contains(option));
    assert!(code == 1 && log.len() == 2 && is_placed("PARALLELISM") && is_placed("MAX_RUNTIME"), "{log:?}");

    std::fs::write(world.config_path(), "[stage-init\n").unwrap();
    let mut dispatcher = world.dispatch(&["serve"]);
    assert_eq!(dispatcher.wait(PATIENCE), 1);
    assert!(dispatcher.log().contains("pepsi.conf:1:"), "{}", dispatcher.log());
    for arguments in [&["start"][..], &["serve", "now"], &[]] {
        assert_eq!(world.dispatch(arguments).wait(PATIENCE), 64, "{arguments:?}");
    }
}

// Req: D9
#[test]
fn an_idle_dispatcher_does_nothing() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    world.configure("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "0 s");
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 h");
    world.configure("pepsi-dispatch", "STATS_INTERVAL", "1 h");
    world.add("init", 5);
    // Mail that waits for its time, for a person or for a section is no work.
    for (stage, status, timeout) in [
        ("later", "paused", "now() + interval '1 h'"),
        ("held", "paused", "NULL"),
        ("hung", "timeout", "NULL"),
    ] {
        world.stage(stage, REFUSES, &[]);
        world.add(stage, 3);
        let set = format!("SET status = '{status}', timeout = {timeout} WHERE stage = '{stage}'");
        world.execute(&format!("UPDATE pepsi.workqueue {set}"));
    }
    world.add("nowhere", 3);
    let dispatcher = world.serve();
    world.until_all("init", "failed");
    // The workers end and the statistics are written; from then on it neither wakes nor asks the database.
    let mut last = ((0, Vec::new()), Instant::now());
    until("three quiet seconds", || {
        let now = (switches(&dispatcher), world.last_statements());
        if now != last.0 {
            last = (now, Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(3)
    });
}

// Req: D8
#[test]
fn the_supervisor_is_told() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    let path = world.path("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut buffer = [0; 64];
        let count = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    };
    let before = format!("export WATCHDOG_USEC=200000 NOTIFY_SOCKET={}", path.display());
    let mut dispatcher = world.serve_after(&before);
    while heard() != "READY=1" {}
    for _ in 0..5 {
        assert_eq!(heard(), "WATCHDOG=1");
    }
    dispatcher.signal("TERM");
    while heard() != "STOPPING=1" {}
    assert_eq!(dispatcher.wait(PATIENCE), 0);
}

// Req: D7, W1
#[test]
fn a_lost_connection_is_made_again() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    let dispatcher = world.serve();
    world.until_serving();
    assert_eq!(world.terminate_dispatcher_backends(), 1);
    dispatcher.wait_for_log("connected to the database again", PATIENCE);
    world.inject("init");
    world.until_all("init", "failed");
    assert_eq!(stop(dispatcher), 0);
}

// Req: D6
#[test]
fn the_lock_of_our_own_former_backend_is_taken_back() {
    let world = World::new();
    let proxy = Proxy::start(&world.path(""), world.server_socket());
    world.configure("pepsi-postgres", "CONFIG", &world.url_at(&world.path("")));
    world.stage("init", REFUSES, &[]);
    let dispatcher = world.serve();
    world.until_serving();
    let before = world.dispatcher_backends();
    // The server keeps the old session, and with it the lock.
    proxy.cut();
    dispatcher.wait_for_log("connected to the database again", PATIENCE);
    until("the old session is gone", || world.dispatcher_backends().iter().all(|pid| !before.contains(pid)));
    world.inject("init");
    world.until_all("init", "failed");
    assert_eq!(stop(dispatcher), 0);
}

// Req: D6, D4
#[test]
fn a_dispatcher_whose_lock_went_to_another_ends() {
    let world = World::new();
    let proxy = Proxy::start(&world.path(""), world.server_socket());
    let direct = world.url_at(world.server_socket().parent().unwrap());
    world.configure("pepsi-postgres", "CONFIG", &world.url_at(&world.path("")));
    world.stage("init", "echo $$ >>$LOG; echo ready; exec sleep 600", &[("PARALLELISM", "1")]);
    world.add("init", 1);
    let mut first = world.serve();
    until("its worker runs", || world.log("init").len() == 1);
    world.configure("pepsi-postgres", "CONFIG", &direct);
    world.stage("init", REFUSES, &[]);
    let second = world.serve();
    second.wait_for_log("another dispatcher", PATIENCE);
    let worker = world.workers("init")[0];
    proxy.refuse(true);
    // The second one takes the lock and the message, which the first one's worker still works on.
    world.until_all("init", "failed");
    assert!(is_alive(worker));
    proxy.refuse(false);
    assert_eq!(first.wait(PATIENCE), 1);
    until("its worker is gone", || !is_alive(worker));
    assert_eq!(world.rows("init")[0].status, "failed");
    assert_eq!(stop(second), 0);
}

// Req: D3, D5
#[test]
fn a_dispatcher_that_hangs_in_a_statement_still_ends() {
    let world = World::new();
    let proxy = Proxy::start(&world.path(""), world.server_socket());
    world.configure("pepsi-postgres", "CONFIG", &world.url_at(&world.path("")));
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 s");
    world.stage("init", "echo $$ >>$LOG; echo ready; exec sleep 600", &[("PARALLELISM", "1")]);
    world.add("init", 1);
    let mut dispatcher = world.serve();
    until("the worker runs", || world.log("init").len() == 1);
    proxy.fall_silent();
    until("a statement is never answered", || proxy.holds_something());
    let start = Instant::now();
    dispatcher.signal("TERM");
    assert_eq!(dispatcher.wait(PATIENCE), 0);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(dispatcher.log().contains("1 messages stay running"), "{}", dispatcher.log());
    until("its worker is gone", || !is_alive(world.workers("init")[0]));
}

// Req: D3
#[test]
fn a_statement_that_takes_long_does_not_keep_the_end_waiting() {
    let world = World::new();
    world.stage("init", "echo $$ >>$LOG; echo ready; exec sleep 600", &[("PARALLELISM", "2")]);
    world.add("init", 1);
    let mut dispatcher = world.serve();
    until("the worker runs", || world.log("init").len() == 1);
    world.run(
        "CREATE FUNCTION pepsi.slow() RETURNS trigger LANGUAGE plpgsql AS
         $$BEGIN PERFORM pg_sleep(600); RETURN NEW; END$$;
         CREATE TRIGGER slow BEFORE UPDATE ON pepsi.workqueue
         FOR EACH ROW WHEN (NEW.status = 'running') EXECUTE FUNCTION pepsi.slow()",
    );
    world.add("init", 1);
    let asleep =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    until("the claim sleeps", || world.number(asleep) == 1);
    let start = Instant::now();
    dispatcher.signal("TERM");
    assert_eq!(dispatcher.wait(PATIENCE), 0);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let rows = world.rows("init");
    assert!(rows.iter().all(|row| row.status == "pending" && !row.has_strikes()), "{}", dispatcher.log());
}

// Req: E4
#[test]
fn answers_that_came_while_it_was_blocked_are_in_time() {
    let world = World::new();
    let proxy = Proxy::start(&world.path(""), world.server_socket());
    world.configure("pepsi-postgres", "CONFIG", &world.url_at(&world.path("")));
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 s");
    let script = "echo ready; read id; echo $id >>$LOG; while [ ! -e $LOG.go ]; do sleep 0.05; done; \
                  echo 1; echo answered >>$LOG; read id";
    world.stage("init", script, &[("MAX_RUNTIME", "4 s")]);
    world.add("init", 1);
    let dispatcher = world.serve();
    until("the worker works", || world.log("init").len() == 1);
    let start = Instant::now();
    proxy.fall_silent();
    until("the heartbeat's claim is not answered", || proxy.holds_something());
    std::fs::write(world.path("init.log.go"), "").unwrap();
    until("the worker has answered", || world.log("init").len() == 2);
    until("its time is over", || start.elapsed() > Duration::from_secs(5));
    proxy.speak_again();
    world.until_all("init", "failed");
    assert!(!world.rows("init")[0].has_strikes());
    assert_eq!(stop(dispatcher), 0);
}

// Req: C1
#[test]
fn the_overlay_adds_stages_at_the_start() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    world.override_option("stage-late", "PROGRAM", world.script_path("init").to_str().unwrap());
    world.override_option("pepsi-dispatch", "POLL_INTERVAL", "nonsense");
    world.add("late", 2);
    let _dispatcher = world.serve();
    world.until_all("late", "failed");
}
