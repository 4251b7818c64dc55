//! Withdrawal of ids behind a stuck head, with real processes (requirement P8).

use crate::harness::PATIENCE;
use crate::world::{World, is_alive, stop, until};
use std::fs;
use std::time::{Duration, Instant};

/// The first id in `$LOG.hang` takes until there is `$LOG.free`; what came behind it, up to the second, has lost its first
/// claim by then, as a worker finds out when it loads the row, and is answered with 0. All else is answered with 1, for
/// which the dispatcher sets the row failed. What is begun is logged with its claim and the worker.
const CAREFUL: &str = "echo $$ >>$LOG.pids; echo ready claims
    while read id claim; do
        read hang last <$LOG.hang
        if [ \"$hung\" ] && [ $claim = 1 ] && [ $id -le $last ]; then echo $id >>$LOG.ghosts; echo 0; continue; fi
        echo $id $claim $$ >>$LOG
        if [ $id = $hang ]; then
            until [ -e $LOG.free ]; do sleep 0.05; done; hung=1
        fi
        echo 1
    done";

/// One message is answered, so that it is known what is usual here; of the next four the first one hangs its worker, which
/// has others behind it: all, or one if the machine is so slow that work is spread. The ids of the four.
fn hang(world: &World) -> Vec<i64> {
    let path = world.path("init.log.hang");
    fs::write(&path, "0 0").unwrap();
    world.inject("init");
    world.until_all("init", "failed");
    let mut ids = world.add("init", 3);
    ids.push(ids[2] + 1);
    fs::write(path, format!("{} {}", ids[0], ids[3])).unwrap();
    world.inject("init");
    until("it hangs", || world.log("init").iter().any(|line| line.starts_with(&format!("{} ", ids[0]))));
    ids
}

fn first_worker(world: &World) -> u32 {
    world.side_log("init", "pids")[0].parse().unwrap()
}

/// The letter of its state in /proc; T: stopped.
fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")?.1.chars().next()
}

// Req: P8
#[test]
fn what_is_behind_a_hanging_message_is_done_by_another_worker() {
    let world = World::new();
    world.stage("init", CAREFUL, &[("PARALLELISM", "2"), ("QUEUE_LIMIT", "4")]);
    let dispatcher = world.serve();
    let ids = hang(&world);
    let start = Instant::now();
    let ended = || world.rows("init").iter().filter(|row| row.status == "failed").count();
    until("the others are done", || ended() == 4);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(world.row(ids[0]).status, "running", "it goes on");
    let worker = first_worker(&world);
    until("its worker goes on", || state_of(worker) != Some('T'));
    let claimed_anew = ids.iter().filter(|id| world.row(**id).claims == 2).count();
    assert!(claimed_anew > 0);
    fs::write(world.path("init.log.free"), "").unwrap();
    until("it is answered in its turn", || world.row(ids[0]).status == "failed");
    until("and so is what was withdrawn", || world.side_log("init", "ghosts").len() == claimed_anew);
    // The worker is as good as before.
    world.inject("init");
    world.until_all("init", "failed");
    assert_eq!(stop(dispatcher), 0);
    let row = world.row(ids[0]);
    assert!(row.claims == 1 && !row.has_strikes(), "{}", row.state);
    assert_eq!(world.number("SELECT stages_executed FROM pepsi.dispatch_stats"), 6, "each once");
    let begun = world.log("init");
    assert_eq!(begun.len(), 6, "each once: {begun:?}");
    let elsewhere = |line: &&String| line.contains(" 2 ") && !line.ends_with(&format!(" {worker}"));
    assert_eq!(begun.iter().filter(elsewhere).count(), claimed_anew, "{begun:?}");
}

// Req: P8, D3, D5
#[test]
fn a_worker_that_stands_still_is_not_left_behind() {
    for signal in ["TERM", "KILL"] {
        let world = World::new();
        world.stage("init", CAREFUL, &[("PARALLELISM", "2"), ("QUEUE_LIMIT", "4")]);
        let mut dispatcher = world.serve();
        hang(&world);
        // The rows cannot be written back until this ends.
        let mut other = world.connect();
        let mut holding = other.transaction().unwrap();
        holding.batch_execute("LOCK TABLE pepsi.workqueue IN SHARE MODE").unwrap();
        let worker = first_worker(&world);
        until("the worker stands still", || state_of(worker) == Some('T'));
        if signal == "TERM" {
            dispatcher.signal("TERM");
            drop(holding);
            assert_eq!(dispatcher.wait(PATIENCE), 0);
            assert!(world.rows("init").iter().all(|row| row.status != "running" && !row.has_strikes()));
        } else {
            dispatcher.kill();
        }
        until("it is gone", || !is_alive(worker));
    }
}

// Req: P8
#[test]
fn a_withdrawal_that_cannot_be_written_changes_nothing() {
    let world = World::new();
    world.stage("init", CAREFUL, &[("PARALLELISM", "2"), ("QUEUE_LIMIT", "4")]);
    let dispatcher = world.serve();
    let ids = hang(&world);
    let mut other = world.connect();
    let mut holding = other.transaction().unwrap();
    holding.batch_execute("LOCK TABLE pepsi.workqueue IN SHARE MODE").unwrap();
    let worker = first_worker(&world);
    until("the worker stands still", || state_of(worker) == Some('T'));
    until("the worker goes on", || state_of(worker) != Some('T'));
    assert!(ids.iter().all(|id| world.row(*id).status == "running" && world.row(*id).claims == 1));
    drop(holding);
    assert_eq!(stop(dispatcher), 0);
}
