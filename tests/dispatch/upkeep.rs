//! What nobody would miss at once: rows that run in no worker, and bodies of no row.

use crate::harness::PATIENCE;
use crate::workers::REFUSES;
use crate::world::{World, stop, until};

// Req: D7
#[test]
fn a_reconnect_frees_the_rows_of_no_worker_and_leaves_those_of_workers_alone() {
    let world = World::new();
    let script = "echo ready; while read id; do echo $id >>$LOG; until [ -e $LOG.go ]; do sleep 0.05; done; echo 1; done";
    world.stage("init", script, &[("PARALLELISM", "1"), ("QUEUE_LIMIT", "2")]);
    let held = world.add("init", 2);
    let dispatcher = world.serve();
    until("a worker has both rows", || world.rows("init").iter().all(|row| row.status == "running"));
    until("it is at the first", || world.log("init").len() == 1);
    let stray = world.add("init", 1)[0];
    world.execute(&format!(
        "UPDATE pepsi.workqueue SET status = 'running', claims = 7 WHERE workqueue_id = {stray}"
    ));
    assert_eq!(world.terminate_dispatcher_backends(), 1);
    dispatcher.wait_for_log("connected to the database again", PATIENCE);
    // Its worker is full, so that it waits.
    until("the stray row is free", || world.row(stray).status == "pending");
    assert_eq!(world.row(stray).claims, 7);
    assert!(held.iter().all(|id| world.row(*id).status == "running" && world.row(*id).claims == 1));
    std::fs::write(world.path("init.log.go"), "").unwrap();
    world.until_all("init", "failed");
    let all: Vec<String> = held.iter().chain([&stray]).map(i64::to_string).collect();
    assert_eq!(world.log("init"), all, "each ran once");
    assert!(world.rows("init").iter().all(|row| !row.has_strikes()));
    assert_eq!(stop(dispatcher), 0);
}

// Req: K4
#[test]
fn the_tick_of_the_statistics_collects_bodies_of_no_row() {
    let world = World::new();
    world.stage("init", REFUSES, &[]);
    world.configure("pepsi-dispatch", "STATS_INTERVAL", "1 s");
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 h");
    let dispatcher = world.serve();
    world.until_serving();
    world.execute("INSERT INTO pepsi.workqueue_body (body) VALUES ('one'), ('two'), ('three')");
    world.inject("init");
    let bodies = "SELECT count(*) FROM pepsi.workqueue_body";
    until("the bodies are gone", || world.number(bodies) == 1);
    world.until_all("init", "failed");
    let kept = "SELECT count(*) FROM pepsi.workqueue JOIN pepsi.workqueue_body USING (body_id)";
    assert_eq!(world.number(kept), 1, "but for the one in use");
    assert_eq!(stop(dispatcher), 0);
}
