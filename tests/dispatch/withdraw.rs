//! Withdrawal of ids behind a stuck head, with real processes (requirement P8).

use crate::harness::PATIENCE;
use crate::world::{World, is_alive, stop, until};
use std::time::{Duration, Instant};

/// A worker that keeps its promise: it answers an id before it begins the next, and begins none whose claim is not the
/// row's. It sets no row `failed`, so `1` has the dispatcher do that. The id in `$HANG` waits for `$LOG.free`.
fn careful(world: &World, hang: i64) -> String {
    format!(
        "HANG={hang}; PSQL={}; echo $$ >>$LOG.pids; echo ready claims
         while read id claim; do
           now=$($PSQL -c \"SELECT claims, status FROM pepsi.workqueue WHERE workqueue_id = $id\")
           if [ \"$now\" = \"$claim|running\" ]; then
             echo $id $claim >>$LOG
             if [ $id = $HANG ]; then until [ -e $LOG.free ]; do sleep 0.05; done; fi
             echo $id $claim >>$LOG.done; echo 1
           else
             echo $id $claim >>$LOG.gone; echo 0
           fi
         done",
        world.psql()
    )
}

/// Begins with one quick message, so that it is known what is usual here; then one that hangs, and three behind it.
fn behind_a_stuck_head(world: &World) -> Vec<i64> {
    let quick = world.add("init", 1)[0];
    let ids = world.add("init", 4);
    let script = careful(world, ids[0]);
    world.stage("init", &script, &[("PARALLELISM", "2"), ("QUEUE_LIMIT", "4")]);
    [vec![quick], ids].concat()
}

/// The state letter in /proc: T is stopped.
fn state_of(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('-')
}
