//! Due rows beside fresh mail, rows that nobody serves, and rows that others have locked.

use crate::world::{World, stop, until};

const WORKS: &str = "echo ready; while read id; do echo $id >>$LOG; sleep 0.03; echo 1; done";

// Req: E7, E8
#[test]
fn a_crowd_that_falls_due_at_once_does_not_delay_fresh_mail() {
    const CROWD: i32 = 20_000;
    let world = World::new();
    world.stage("init", WORKS, &[("PARALLELISM", "4"), ("QUEUE_LIMIT", "4")]);
    world.add("init", CROWD);
    world.run("UPDATE pepsi.workqueue SET status = 'paused', timeout = now()");
    let dispatcher = world.serve();
    until("some of the crowd are done", || world.log("init").len() >= 8);
    let pending = "SELECT count(*) FROM pepsi.workqueue WHERE status = 'pending'";
    let mut behind = Vec::new();
    for _ in 0..20 {
        world.inject("init");
        let fresh = world.number("SELECT max(workqueue_id) FROM pepsi.workqueue").to_string();
        let begun = world.log("init").len();
        assert!(world.number(pending) <= 9, "only a few wait");
        until("the fresh message's turn", || world.log("init").contains(&fresh));
        behind.push(world.log("init").iter().position(|id| *id == fresh).unwrap().saturating_sub(begun));
    }
    // All are older, and of the same sender.
    behind.sort_unstable();
    assert!(behind[10] <= 8 && behind[19] <= 40, "so many went before: {behind:?}");
    let done = world.log("init").len();
    until("the crowd gets on", || world.log("init").len() >= done + 20);
    assert_eq!(stop(dispatcher), 0);
}

// Req: W7
#[test]
fn mail_for_a_stage_without_a_section_is_reported_once_and_left_alone() {
    let world = World::new();
    world.stage("init", WORKS, &[]);
    world.configure("pepsi-dispatch", "POLL_INTERVAL", "1 s");
    let lost = world.add("gone", 2);
    let dispatcher = world.serve();
    let line = "stage gone has no section: nobody claims what waits there (messages: 2)";
    until("it is told", || dispatcher.log().contains(line));
    until("it is counted", || world.number("SELECT unserved FROM pepsi.dispatch_stats") == 2);
    for _ in 0..2 {
        let before = world.last_statements();
        until("another heartbeat", || world.last_statements() != before);
    }
    assert_eq!(dispatcher.log().matches("has no section").count(), 1, "{}", dispatcher.log());
    assert!(lost.iter().all(|id| world.row(*id).status == "pending" && world.row(*id).claims == 0));
    assert_eq!(stop(dispatcher), 0);
}

// Req: D2, W3
#[test]
fn many_locked_rows_that_nobody_holds_stop_neither_the_start_nor_other_mail() {
    let world = World::new();
    world.stage("init", WORKS, &[]);
    let left = world.add("init", 60);
    world.run("UPDATE pepsi.workqueue SET status = 'running', claims = 1");
    let mut other = world.connect();
    let mut holding = other.transaction().unwrap();
    let lock = "SELECT 1 FROM pepsi.workqueue WHERE workqueue_id = ANY ($1) FOR UPDATE";
    holding.execute(lock, &[&left]).unwrap();
    let fresh = world.add("init", 20);
    let dispatcher = world.serve();
    until("other mail is done", || world.log("init").len() == fresh.len());
    assert!(left.iter().all(|id| world.row(*id).status == "running"));
    drop(holding);
    until("they are freed and done", || world.log("init").len() == fresh.len() + left.len());
    assert!(left.iter().all(|id| !world.row(*id).has_strikes()));
    assert_eq!(stop(dispatcher), 0);
}
