//! The configuration changes while mail flows: file, overlay, SIGHUP, and what is wrong with them.

use crate::harness::{PATIENCE, Process};
use crate::workers::REFUSES;
use crate::world::{World, is_alive, stop, until};
use std::collections::BTreeMap;

/// Says its version, then answers every id with `1`; each line of the log is `VERSION ID`.
fn version(name: &str) -> String {
    format!("echo ready; while read id; do echo {name} $id >>$LOG; echo 1; done")
}

/// Awaits that so many rereadings were logged.
#[track_caller]
fn until_reread(dispatcher: &Process, times: usize) {
    let count = || dispatcher.log().matches("the configuration was read again").count();
    until(&format!("{times} rereadings"), || count() >= times);
}

/// Every message was answered once.
fn audit(world: &World, logs: &[&str], ids: &[i64]) {
    let mut runs: BTreeMap<i64, u32> = BTreeMap::new();
    for line in logs.iter().flat_map(|log| world.log(log)) {
        let id = line.rsplit(' ').next().and_then(|id| id.parse().ok()).expect("an id");
        *runs.entry(id).or_default() += 1;
    }
    for id in ids {
        assert_eq!(runs.get(id), Some(&1), "message {id} was run so often");
        assert_eq!(world.row(*id).claims, 1, "message {id}");
    }
}

// Req: C2
#[test]
fn a_changed_stage_runs_the_next_message_by_its_new_values() {
    let world = World::new();
    world.stage("init", &version("old"), &[]);
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 h");
    let dispatcher = world.serve();
    world.until_serving();
    let ids = world.inject("init");
    world.until_all("init", "failed");
    // By the overlay, whose trigger tells of it.
    world.stage("other", &version("new"), &[]);
    world.override_option("stage-init", "PROGRAM", world.script_path("other").to_str().unwrap());
    let next = world.inject("init");
    until("it has run", || world.log("other").len() == 1);
    assert_eq!(world.log("other"), [format!("new {next}")]);
    assert_eq!(world.log("init"), [format!("old {ids}")]);
    // By the file and a signal.
    world.write_config();
    world.forget_overrides();
    until_reread(&dispatcher, 2);
    world.stage_of("init", world.script_path("other").to_str().unwrap(), &[("PARALLELISM", "2")]);
    world.write_config();
    dispatcher.signal("HUP");
    until_reread(&dispatcher, 3);
    assert!(dispatcher.log().contains("edited init"), "{}", dispatcher.log());
    let last = world.inject("init");
    until("it has run", || world.log("other").len() == 2);
    assert_eq!(world.log("other")[1], format!("new {last}"));
    assert_eq!(stop(dispatcher), 0);
}

// Req: C2
#[test]
fn stages_come_change_and_go_while_mail_flows() {
    let world = World::new();
    let slow = |name: &str| {
        format!("echo ready; while read id; do sleep 0.02; echo {name} $id >>$LOG; echo 1; done")
    };
    world.stage("a", &slow("1"), &[("PARALLELISM", "3")]);
    world.stage("b", &slow("1"), &[("MAX_MESSAGES", "5")]);
    let mut ids: Vec<i64> = ["a", "b", "c"].iter().flat_map(|stage| world.add(stage, 60)).collect();
    let dispatcher = world.serve();
    until("both run", || world.log("a").len() > 3 && world.log("b").len() > 3);
    // c comes, a changes, b goes.
    world.stage("c", &slow("1"), &[("PARALLELISM", "2")]);
    world.stage("a", &slow("2"), &[("PARALLELISM", "1"), ("QUEUE_LIMIT", "2")]);
    world.remove_stage("b");
    world.write_config();
    world.notify("config_changed");
    until_reread(&dispatcher, 1);
    let log = dispatcher.log();
    assert!(log.contains("added c; edited a; removed b"), "{log}");
    until("c runs", || world.log("c").len() > 3);
    ids.extend(world.add("a", 10));
    until("what b had begun is over", || world.rows("b").iter().all(|row| row.status != "running"));
    let left = world.rows("b").iter().filter(|row| row.status == "pending").count();
    assert!(left > 20, "{left} messages wait for the stage that is gone");
    until("a was changed", || world.log("a").iter().any(|line| line.starts_with('2')));
    // b comes again.
    world.stage("b", &slow("3"), &[]);
    world.write_config();
    world.notify("config_changed");
    for stage in ["a", "b", "c"] {
        world.until_all(stage, "failed");
    }
    audit(&world, &["a", "b", "c"], &ids);
    assert_eq!(stop(dispatcher), 0);
}

// Req: C2
#[test]
fn a_burst_of_changes_ends_in_the_last_state() {
    let world = World::new();
    world.stage("init", &version("first"), &[("PARALLELISM", "1")]);
    world.stage("last", &version("last"), &[]);
    let dispatcher = world.serve();
    world.until_serving();
    world.inject("init");
    world.until_all("init", "failed");
    world.override_option("stage-init", "PROGRAM", "/nonexistent");
    for number in 1..100 {
        world.set_override("stage-init", "PROGRAM", &format!("/nonexistent/{number}"));
    }
    world.set_override("stage-init", "PROGRAM", world.script_path("last").to_str().unwrap());
    let id = world.inject("init");
    until("it has run", || !world.log("last").is_empty());
    assert_eq!(world.log("last"), [format!("last {id}")]);
    assert_eq!(world.row(id).claims, 1, "no other program was tried");
    let times = dispatcher.log().matches("the configuration was read again").count();
    assert!((1..50).contains(&times), "{times} rereadings");
    assert_eq!(stop(dispatcher), 0);
}

// Req: C3
// Req: CLI3
#[test]
fn a_graph_that_does_not_parse_ends_with_78_and_every_row_waits() {
    let world = World::new();
    let script = "echo $$ >>$LOG; echo ready; while read id; do sleep 0.2; echo 1; done";
    world.stage("init", script, &[]);
    world.add("init", 40);
    let mut dispatcher = world.serve();
    until("its workers run", || world.log("init").len() == 4);
    world.override_option("stage-init", "PARALLELISM", "many");
    assert_eq!(dispatcher.wait(PATIENCE), 78);
    let log = dispatcher.log();
    assert!(log.contains("config_override:0: [stage-init] PARALLELISM"), "{log}");
    let rows = world.rows("init");
    assert!(rows.iter().all(|row| ["pending", "failed"].contains(&row.status.as_str())), "a row was left");
    assert!(rows.len() == 40 && !rows.iter().any(|row| row.has_strikes()));
    assert!(!world.workers("init").iter().any(|pid| is_alive(*pid)));
    // At the start the same is 1; mended, all goes on.
    let mut again = world.serve();
    assert_eq!(again.wait(PATIENCE), 1);
    world.forget_overrides();
    world.stage("init", REFUSES, &[]);
    let dispatcher = world.serve();
    world.until_all("init", "failed");
    std::fs::write(world.config_path(), "[stage-init\n").unwrap();
    dispatcher.signal("HUP");
    let mut dispatcher = dispatcher;
    assert_eq!(dispatcher.wait(PATIENCE), 78);
    assert!(dispatcher.log().contains("pepsi.conf:1:"), "{}", dispatcher.log());
}

// Req: C3
#[test]
fn an_overlay_that_cannot_be_read_keeps_the_stages() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    world.override_option("stage-extra", "PROGRAM", world.script_path("init").to_str().unwrap());
    let dispatcher = world.serve();
    world.until_serving();
    world.inject("extra");
    world.until_all("extra", "failed");
    world.execute("ALTER TABLE pepsi.config_override RENAME TO config_elsewhere");
    world.notify("config_changed");
    dispatcher.wait_for_log("the configuration stays as it is", PATIENCE);
    // The stage that only the overlay has is still there, and its worker too.
    world.inject("extra");
    world.until_all("extra", "failed");
    world.stage("more", REFUSES, &[]);
    world.write_config();
    world.execute("ALTER TABLE pepsi.config_elsewhere RENAME TO config_override");
    until_reread(&dispatcher, 1);
    world.inject("more");
    world.until_all("more", "failed");
    let warnings = dispatcher.log().matches("the configuration stays as it is").count();
    assert_eq!(warnings, 1, "{}", dispatcher.log());
    assert_eq!(stop(dispatcher), 0);
}

// Req: C4
#[test]
fn the_telemetry_switch_replaces_workers_and_nothing_else() {
    let world = World::new();
    let script = "echo $$ >>$LOG; echo ready; while read id; do echo 1; done";
    world.stage("init", script, &[("PARALLELISM", "1")]);
    world.configure("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "1 h");
    let dispatcher = world.serve();
    world.until_serving();
    world.inject("init");
    world.until_all("init", "failed");
    let worker = world.workers("init")[0];
    // The file says something else by now, which is not for this notification to bring in.
    world.remove_stage("init");
    world.stage("other", REFUSES, &[]);
    world.write_config();
    world.notify("telemetry_changed");
    until("the worker is gone", || !is_alive(worker));
    world.inject("init");
    world.until_all("init", "failed");
    assert_eq!(world.workers("init").len(), 2);
    assert!(!dispatcher.log().contains("was read again"), "{}", dispatcher.log());
    assert_eq!(stop(dispatcher), 0);
}

// Req: C2
#[test]
fn a_mended_program_need_not_wait_for_the_cooldown() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    let good = world.script_path("init").display().to_string();
    world.stage_of("init", "/nonexistent/program", &[]);
    let dispatcher = world.serve();
    world.until_serving();
    let id = world.inject("init");
    // The fourth failure makes a cooldown of eight seconds.
    let failures = || dispatcher.log().matches("cannot start /nonexistent/program").count();
    until("it fails again and again", || failures() >= 1 && world.row(id).claims >= 4);
    let start = std::time::Instant::now();
    world.stage_of("init", &good, &[]);
    world.write_config();
    dispatcher.signal("HUP");
    world.until_all("init", "failed");
    assert!(start.elapsed().as_secs() < 6, "{:?}", start.elapsed());
    assert_eq!(stop(dispatcher), 0);
}

// Req: C2
// Req: W1
#[test]
fn what_changed_while_the_connection_was_lost_is_read_after_it() {
    let world = World::new();
    world.stage(
        "init",
        "echo $$ >>$LOG; echo ready; while read id; do echo 1; done",
        &[("PARALLELISM", "1")],
    );
    world.configure("pepsi-dispatch", "WORKER_IDLE_TIMEOUT", "1 h");
    let dispatcher = world.serve();
    world.until_serving();
    world.inject("init");
    world.until_all("init", "failed");
    let worker = world.workers("init")[0];
    // Nothing has changed: the worker stays.
    assert_eq!(world.terminate_dispatcher_backends(), 1);
    dispatcher.wait_for_log("connected to the database again", PATIENCE);
    world.inject("init");
    world.until_all("init", "failed");
    assert_eq!(world.workers("init"), [worker]);
    // Nobody says so, but the file has another stage now.
    world.stage("late", REFUSES, &[]);
    world.write_config();
    assert_eq!(world.terminate_dispatcher_backends(), 1);
    until_reread(&dispatcher, 1);
    assert!(dispatcher.log().contains("added late"), "{}", dispatcher.log());
    until("the worker is gone", || !is_alive(worker));
    world.inject("late");
    world.until_all("late", "failed");
    assert_eq!(stop(dispatcher), 0);
}

// Req: C2
// Req: C3
#[test]
fn a_file_that_is_half_written_when_the_connection_breaks_is_not_the_truth() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    let mut dispatcher = world.serve();
    world.until_serving();
    let whole = std::fs::read_to_string(world.config_path()).unwrap();
    std::fs::write(world.config_path(), "").unwrap();
    assert_eq!(world.terminate_dispatcher_backends(), 1);
    dispatcher.wait_for_log("the configuration stays as it is", PATIENCE);
    std::fs::write(world.config_path(), whole).unwrap();
    world.inject("init");
    world.until_all("init", "failed");
    assert!(!dispatcher.log().contains("removed init"), "{}", dispatcher.log());
    // Asked for, no stage at all is what was meant, and said; what does not parse is the end.
    std::fs::write(world.config_path(), "").unwrap();
    dispatcher.signal("HUP");
    dispatcher.wait_for_log("has no [stage-NAME] section", PATIENCE);
    std::fs::write(world.config_path(), "[stage-init").unwrap();
    dispatcher.signal("HUP");
    assert_eq!(dispatcher.wait(PATIENCE), 78);
}

// Req: C2
#[test]
fn what_only_a_restart_can_change_is_said_and_does_no_harm() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 h");
    world.configure("stag-if", "PROGRAM", "x");
    let dispatcher = world.serve();
    world.until_serving();
    assert_eq!(dispatcher.log().matches("[stag-if]: is no section").count(), 1, "{}", dispatcher.log());
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "2 h");
    world.write_config();
    dispatcher.signal("HUP");
    until_reread(&dispatcher, 1);
    dispatcher.wait_for_log("takes effect at the next start", PATIENCE);
    world.inject("init");
    world.until_all("init", "failed");
    assert_eq!(stop(dispatcher), 0);
}
