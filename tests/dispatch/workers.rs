//! Good and bad workers: what their output, their silence and their end do to messages.

use crate::harness::PATIENCE;
use crate::world::{World, is_alive, stop, until};
use std::time::{Duration, Instant};

/// Answers every id with `1`, for which the dispatcher sets the row failed; `$LOG` gets a line for each.
pub const REFUSES: &str = "echo ready; while read id; do echo $id >>$LOG; echo 1; done";

// Req: E1, R1, R3, CLI4
#[test]
fn a_worker_answers_its_messages_in_order() {
    let world = World::new();
    world.stage("init", &format!("echo start >>$LOG; {REFUSES}"), &[("PARALLELISM", "1")]);
    let ids = world.add("init", 10);
    let dispatcher = world.serve();
    world.until_all("init", "failed");
    let mut expected = vec!["start".to_owned()];
    expected.extend(ids.iter().map(i64::to_string));
    assert_eq!(world.log("init"), expected, "one worker, oldest first");
    let row = world.row(ids[0]);
    assert!(row.state["dispatch_error"].as_str().is_some_and(|text| !text.is_empty()), "{}", row.state);
    assert_eq!(row.claims, 1);
    assert_eq!(stop(dispatcher), 0);
}

// Req: P3, D4
#[test]
fn ids_and_claims_are_pipelined() {
    let world = World::new();
    let script = "echo ready claims; read a; read b; read c; read d; printf '%s\\n' \"$a\" \"$b\" \"$c\" \"$d\" >>$LOG; \
                  printf '1\\n1\\n1\\n1\\n'; read e";
    world.stage("init", script, &[("PARALLELISM", "1"), ("QUEUE_LIMIT", "4")]);
    let ids = world.add("init", 4);
    let _dispatcher = world.serve();
    world.until_all("init", "failed");
    let expected: Vec<String> = ids.iter().map(|id| format!("{id} 1")).collect();
    assert_eq!(world.log("init"), expected);
}

// Req: E2, E3, B2
#[test]
fn a_crash_strikes_the_head_alone() {
    let world = World::new();
    let ids = world.add("init", 4);
    let script = format!("echo ready; while read id; do [ $id = {} ] && kill -9 $$; echo 1; done", ids[0]);
    world.stage("init", &script, &[("PARALLELISM", "1"), ("QUEUE_LIMIT", "4")]);
    let _dispatcher = world.serve();
    until("the others are answered", || ids[1..].iter().all(|id| world.row(*id).status == "failed"));
    until("the strike", || world.row(ids[0]).status == "paused");
    let row = world.row(ids[0]);
    assert_eq!(row.state["strikes"], 1);
    assert_eq!(row.state["failure_class"], "crashed");
    assert!(row.state["last_error"].as_str().is_some_and(|text| text.contains("signal 9")), "{}", row.state);
    assert!((30.0..=90.0).contains(&row.due_in.unwrap()), "paused for about a minute");
    assert!(!ids[1..].iter().any(|id| world.row(*id).has_strikes()));
}

// Req: E2, E4
#[test]
fn a_hang_ends_with_a_strike_and_a_dead_worker() {
    let world = World::new();
    let script = "echo $$ >>$LOG; echo ready; read id; exec sleep 600";
    world.stage("init", script, &[("MAX_RUNTIME", "1 s")]);
    let ids = world.add("init", 1);
    let _dispatcher = world.serve();
    until("the strike", || world.row(ids[0]).status == "paused");
    let row = world.row(ids[0]);
    assert_eq!(row.state["strikes"], 1);
    assert_eq!(row.state["failure_class"], "timed-out");
    until("the worker is gone", || !is_alive(world.workers("init")[0]));
}

// Req: E2
#[test]
fn the_third_strike_is_the_last() {
    let world = World::new();
    world.stage("crashes", "echo ready; read id; exit 0", &[]);
    world.stage("hangs", "echo ready; read id; exec sleep 600", &[("MAX_RUNTIME", "1 s")]);
    for (stage, status, class) in [("crashes", "failed", "crashed"), ("hangs", "timeout", "timed-out")] {
        world.add(stage, 1);
        world.set_strikes(stage, 2);
        let dispatcher = world.serve();
        world.until_all(stage, status);
        let row = world.rows(stage).remove(0);
        assert_eq!(row.state["failure_class"], class);
        assert!(row.state["dispatch_error"].is_string(), "{}", row.state);
        assert_eq!(stop(dispatcher), 0);
    }
}

// Req: D7, E2
#[test]
fn a_row_that_its_worker_does_not_move_is_struck_in_the_end() {
    let world = World::new();
    world.configure("pepsi-dispatch", "STATS_INTERVAL", "1 s");
    // One stays, the other ends each time.
    world.stage("stays", "echo ready; while read id; do echo 0; done", &[]);
    world.stage("ends", "echo ready; read id; echo 0; exit 1", &[]);
    for stage in ["stays", "ends"] {
        world.add(stage, 1);
    }
    let _dispatcher = world.serve();
    for stage in ["stays", "ends"] {
        until("the strike", || world.rows(stage)[0].status == "paused");
        let row = world.rows(stage).remove(0);
        assert_eq!(row.state["strikes"], 1);
        assert_eq!(row.claims, 2, "{stage}");
        let error = row.state["last_error"].as_str().unwrap_or_default();
        assert!(error.contains("did not move"), "{error}");
    }
}

// Req: R2
#[test]
fn reports_that_cannot_be_read_are_logged_once_a_worker_and_the_status_counts() {
    let world = World::new();
    let script = "echo ready; while read id; do echo 1 nonsense; done";
    world.stage("init", script, &[("PARALLELISM", "1"), ("QUEUE_LIMIT", "4")]);
    world.add("init", 12);
    let dispatcher = world.serve();
    world.until_all("init", "failed");
    let log = dispatcher.log();
    assert_eq!(log.matches("report is dropped").count(), 1, "{log}");
}

// Req: R3, L1, O1
#[test]
fn a_database_that_is_lost_or_overloaded_blames_no_message() {
    let world = World::new();
    let scripts = [
        ("says-lost", "echo 74; read id"),
        ("ends-lost", "exit 74"),
        ("says-busy", "echo 75; while read id; do echo 75; done"),
        ("ends-busy", "exit 75"),
    ];
    for (name, script) in scripts {
        world.stage(name, &format!("echo ready; read id; {script}"), &[("PARALLELISM", "1")]);
        world.add(name, 1);
    }
    let dispatcher = world.serve();
    let start = Instant::now();
    for name in ["says-lost", "ends-lost"] {
        world.until_all(name, "paused");
        let row = world.rows(name).remove(0);
        assert!((10.0..=40.0).contains(&row.due_in.unwrap()) && !row.has_strikes(), "{name}: {}", row.state);
    }
    for name in ["says-busy", "ends-busy"] {
        until("it is tried again", || world.rows(name)[0].claims >= 2);
        let row = world.rows(name).remove(0);
        let seconds = start.elapsed().as_secs().cast_signed();
        assert!(
            row.claims <= 2 + seconds && !row.has_strikes(),
            "{name}: {} claims in {seconds} s",
            row.claims
        );
    }
    assert_eq!(stop(dispatcher), 0);
    assert!(scripts.iter().all(|(name, _)| world.rows(name)[0].status != "running"));
}

// Req: P1, P4
#[test]
fn workers_are_recycled_and_idle_ones_end() {
    let world = World::new();
    world.configure("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "1 s");
    let script = format!("echo $$ >>$LOG.pids; {REFUSES}");
    world.stage("init", &script, &[("PARALLELISM", "1"), ("MAX_MESSAGES", "3"), ("QUEUE_LIMIT", "2")]);
    world.add("init", 10);
    let dispatcher = world.serve();
    world.until_all("init", "failed");
    let workers =
        || -> Vec<u32> { world.side_log("init", "pids").iter().map(|pid| pid.parse().unwrap()).collect() };
    assert_eq!(workers().len(), 4);
    assert_eq!(world.log("init").len(), 10);
    until("the last one ends too", || !workers().iter().any(|pid| is_alive(*pid)));
    assert_eq!(stop(dispatcher), 0);
}

// Req: R2, R5, E2
#[test]
fn what_is_no_answer_ends_in_a_strike_and_a_dead_worker() {
    let world = World::new();
    let scripts = [
        ("word", "echo ready; read id; echo fine; read id"),
        ("nul", "echo ready; read id; printf '0\\0000\\n'; read id"),
        ("latin", "echo ready; read id; printf '\\351\\n'; read id"),
        ("endless", "echo ready; read id; exec tr '\\0' x </dev/zero"),
        ("large", "echo ready; read id; echo 256; read id"),
        ("half", "echo ready; read id; printf 0; exit 0"),
        ("silent", "echo ready; read id; exec >&-; read id; exec sleep 600"),
        ("parent", "echo ready; read id; sleep 60 & exit 3"),
    ];
    for (name, script) in scripts {
        world.stage(name, &format!("echo $$ >>$LOG; {script}"), &[("PARALLELISM", "1")]);
    }
    world.stage("honest", REFUSES, &[]);
    let ids: Vec<(&str, i64)> = scripts.iter().map(|(name, _)| (*name, world.add(name, 1)[0])).collect();
    let dispatcher = world.serve();
    for (name, id) in ids {
        until(name, || world.row(id).status == "paused");
        assert_eq!(world.row(id).state["strikes"], 1, "{name}");
        assert_eq!(world.row(id).state["failure_class"], "crashed", "{name}");
        until(name, || !is_alive(world.workers(name)[0]));
    }
    world.inject("honest");
    world.until_all("honest", "failed");
    assert_eq!(stop(dispatcher), 0);
}

// Req: R5
#[test]
fn more_answers_than_questions_blame_nobody() {
    let world = World::new();
    let script = "echo $$ >>$LOG; echo ready; read id; echo 1; exec yes 1";
    world.stage("init", script, &[]);
    world.add("init", 1);
    let dispatcher = world.serve();
    world.until_all("init", "failed");
    dispatcher.wait_for_log("it answered more often than it was asked", PATIENCE);
    until("the worker is gone", || !is_alive(world.workers("init")[0]));
    assert!(!world.rows("init")[0].has_strikes());
    assert_eq!(stop(dispatcher), 0);
}

// Req: R5
#[test]
fn a_flood_starves_nobody() {
    let world = World::new();
    world.stage("loud", "exec yes ready", &[("PARALLELISM", "4")]);
    world.stage("honest", REFUSES, &[]);
    world.add("loud", 4);
    world.add("honest", 50);
    let dispatcher = world.serve();
    world.until_all("honest", "failed");
    dispatcher.wait_for_log("it said ready twice", PATIENCE);
    until("all are struck or wait", || {
        world.rows("loud").iter().all(|row| ["paused", "pending"].contains(&row.status.as_str()))
    });
    assert_eq!(stop(dispatcher), 0);
}

// Req: E5, E6, P5, P6
#[test]
fn a_worker_that_does_not_come_up_blames_nobody() {
    let world = World::new();
    world.stage("refuses", "echo x >>$LOG; exit 78", &[]);
    world.stage("refuses-late", "echo ready; read id; echo x >>$LOG; exit 78", &[]);
    world.stage("dies", "echo x >>$LOG; exit 1", &[]);
    world.stage("chatters", "echo 0", &[]);
    world.stage_of("missing", "/nonexistent/program", &[]);
    world.stage_of("unknown", "no-such-program-on-path", &[]);
    world.stage_of("forbidden", "/dev/null", &[]);
    let names = ["refuses", "refuses-late", "dies", "chatters", "missing", "unknown", "forbidden"];
    for name in names {
        world.add(name, 3);
    }
    let dispatcher = world.serve();
    let start = Instant::now();
    for text in [
        "cannot start /nonexistent/program",
        "no-such-program-on-path",
        "cannot start /dev/null",
        "exit code 78",
        "exit code 1",
    ] {
        dispatcher.wait_for_log(text, PATIENCE);
    }
    for name in names {
        world.until_all(name, "pending");
        assert!(!world.rows(name).iter().any(|row| row.has_strikes()), "{name}");
    }
    // No tight loop: there is a cooldown of a second, which doubles.
    let most = world.rows("missing").iter().map(|row| row.claims).max().unwrap();
    let seconds = start.elapsed().as_secs();
    assert!(most <= 2 + seconds.cast_signed(), "{most} claims in {seconds} s");
    assert_eq!(stop(dispatcher), 0);
    for name in names {
        assert!(world.rows(name).iter().all(|row| row.status == "pending"), "{name}");
    }
}

// Req: P7
#[test]
fn a_worker_gets_three_descriptors_and_a_small_environment() {
    let world = World::new();
    // In a subshell, since a redirection moves descriptors of the shell itself about.
    let script = "(ls -l /proc/$$/fd >$LOG.fd); (cut -d' ' -f5 /proc/$$/stat >$LOG.group); echo $$ >>$LOG.group; \
                  tr '\\0' '\\n' </proc/$$/environ | cut -d= -f1 >$LOG.env; tr '\\0' ' ' </proc/$$/cmdline >$LOG.args; \
                  echo ready; read id; echo 1; read id";
    world.stage("init", script, &[]);
    world.add("init", 1);
    let _dispatcher =
        world.serve_after("exec 7</dev/null 8>>/dev/null; export SECRET=x LC_ALL=C PGAPPNAME=y");
    world.until_all("init", "failed");
    let lines = |name: &str| world.side_log("init", name);
    // The shell itself holds its script open.
    let script = world.script_path("init").display().to_string();
    let inherited = lines("fd").into_iter().filter(|line| line.contains(" -> ") && !line.ends_with(&script));
    let descriptors: Vec<String> =
        inherited.filter_map(|line| line.split_whitespace().rev().nth(2).map(str::to_owned)).collect();
    assert_eq!(descriptors, ["0", "1", "2"]);
    let group = lines("group");
    assert_eq!(group[0], group[1], "its own process group");
    let names = lines("env");
    assert!(
        names.contains(&"PEPSI_STAGE".to_owned()) && names.contains(&"PGAPPNAME".to_owned()),
        "{names:?}"
    );
    let known = ["HOME", "LANG", "PATH", "TZ"];
    let is_known = |name: &String| {
        known.contains(&name.as_str()) || name.starts_with("PG") || name.starts_with("PEPSI_")
    };
    assert!(names.iter().all(is_known), "{names:?}");
    let arguments = format!("-c {} worker ", world.config_path().display());
    assert!(lines("args")[0].ends_with(&arguments), "{:?}", lines("args"));
}

// Req: P6
#[test]
fn a_program_of_ours_needs_no_link() {
    let world = World::new();
    world.stage_of("init", "pepsi-stage-discard", &[]);
    world.add("init", 20);
    let dispatcher = world.serve_after("PATH=/nonexistent");
    until("all are discarded", || world.rows("init").is_empty());
    assert_eq!(stop(dispatcher), 0);
}

// Req: P5, CLI5
#[test]
fn too_few_descriptors_is_a_cooldown() {
    let world = World::new();
    let options = [("PARALLELISM", "32"), ("QUEUE_LIMIT", "1")];
    world.stage("init", "echo ready; while read id; do sleep 0.1; echo 1; done", &options);
    world.add("init", 60);
    let dispatcher = world.serve_after("ulimit -n 32");
    dispatcher.wait_for_log("Too many open files", PATIENCE);
    world.until_all("init", "failed");
    assert_eq!(stop(dispatcher), 0);
}

// Req: P2
#[test]
fn slow_messages_run_side_by_side() {
    let world = World::new();
    world.stage("init", "echo ready; while read id; do sleep 1; echo 1; done", &[("PARALLELISM", "4")]);
    let _dispatcher = world.serve();
    world.until_serving();
    let start = Instant::now();
    world.add("init", 3);
    world.inject("init");
    world.until_all("init", "failed");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}
