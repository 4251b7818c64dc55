//! Who is served when, in the long run: the goals of fair scheduling on the pure model.

use crate::fair::share::MAX_SENDERS;
use crate::world::{MS, Pool, SECOND, World, jain, settings};

const POOL: Pool = Pool { parallelism: 4, queue_limit: 4 };

fn world(fair: bool) -> World {
    World::new(settings(fair), POOL)
}

/// How long one light message waits behind `heavy` messages of one sender.
fn light_wait(fair: bool, heavy: u64) -> u64 {
    let mut world = world(fair);
    world.send("heavy", 50 * MS, 0, 0, heavy);
    world.send("light", 50 * MS, SECOND, 0, 1);
    world.run(heavy * 20 * MS + 10 * SECOND);
    world.wait_of("light")
}

// Req: F3
// Req: F4
#[test]
fn a_light_sender_does_not_wait_for_a_heavy_ones_backlog() {
    let idle = light_wait(true, 0);
    let short = light_wait(true, 300);
    let long = light_wait(true, 3_000);
    assert!(long <= idle + 250 * MS, "{idle} idle, {long} behind 3,000");
    assert!(long * 10 <= short * 12, "{short} behind 300, {long} behind 3,000");
    assert!(light_wait(false, 3_000) > 30 * SECOND, "oldest first, it waits for all of them");
}

// Req: F7
#[test]
fn a_newcomer_waits_for_a_turn_of_each_other_sender_at_most() {
    for heavy in [1, 10, 60, 200] {
        let mut world = world(true);
        for number in 0..heavy {
            world.send(&format!("heavy{number}"), 50 * MS, 0, 0, 20);
        }
        let arrival = 2 * SECOND;
        world.send("newcomer", 50 * MS, arrival, 0, 1);
        world.run(200 * SECOND);
        let limit = 250 * MS + (heavy + 1) * 50 * MS * 3 / 2 / 4;
        let wait = world.wait_of("newcomer");
        assert!(wait <= limit, "{heavy} others: waited {wait}, at most {limit}");
    }
}

// Req: F2
#[test]
fn worker_time_is_shared_not_messages() {
    let mut world = world(true);
    world.send("slow", 500 * MS, 0, 0, 400);
    world.send("quick", 50 * MS, 0, 0, 4_000);
    world.run(60 * SECOND);
    let used = world.used(10 * SECOND, 60 * SECOND);
    let share = used["slow"] as f64 / (used["slow"] + used["quick"]) as f64;
    assert!((0.45..=0.55).contains(&share), "the slow one has {share} of the time");
}

// Req: F3
#[test]
fn backlogged_equals_get_the_same() {
    for senders in [2, 10] {
        let mut world = world(true);
        for number in 0..senders {
            // Not evenly interleaved: each has its backlog in one piece.
            world.send(&format!("s{number}"), 50 * MS, 0, 0, 1_200 / senders);
        }
        world.run(10 * SECOND);
        let used = world.used(0, 10 * SECOND);
        let index = jain(used.values().copied().chain((used.len()..senders as usize).map(|_| 0)));
        assert!(index >= 0.99, "{senders} senders: {index}, {used:?}");
    }
}

// Req: F5
// Req: F10
#[test]
fn more_senders_than_can_be_remembered_take_turns() {
    let senders = MAX_SENDERS as u64 * 3 / 2;
    let mut world = World::new(settings(true), Pool { parallelism: 16, queue_limit: 4 });
    for round in 0..3 {
        for number in 0..senders {
            world.send(&format!("s{number}"), 10 * MS, round, 0, 1);
        }
    }
    // Time for two messages of each.
    world.run(2 * senders * 10 * MS / 16);
    let used = world.used(0, world.now);
    assert!(world.fair.senders(0).len() <= MAX_SENDERS + 64, "{} are kept", world.fair.senders(0).len());
    let index = jain(used.values().copied().chain((used.len() as u64..senders).map(|_| 0)));
    assert!(index >= 0.9, "{index}, {} of {senders} were served", used.len());
}

// Req: F6
#[test]
fn a_flood_of_newcomers_delays_the_oldest_row_no_more_than_the_fifo_share_says() {
    let mut world = world(true);
    // The victim has used a lot, so that any newcomer goes first; then it has one more row.
    world.send("victim", 50 * MS, 0, 50 * MS, 200);
    for number in 0..2_000 {
        // 100 newcomers a second where 80 messages a second are done.
        world.send(&format!("new{number}"), 50 * MS, 2 * SECOND + number * 10 * MS, 0, 1);
    }
    world.run(25 * SECOND);
    let victims = || world.messages.iter().filter(|message| message.sender == "victim");
    let waits: Vec<u64> =
        victims().map(|message| message.finished.unwrap_or(world.now) - message.arrived).collect();
    // At least one slot in ten is for the oldest rows, so whatever waited before it drains at 8 a second at least.
    let promise = |ahead: usize| ahead as u64 * SECOND / 8 + 2 * SECOND;
    for (number, (message, wait)) in victims().zip(waits).enumerate() {
        let arrived = message.arrived;
        let ahead = world
            .messages
            .iter()
            .filter(|other| other.arrived < arrived && other.finished.is_none_or(|at| at > arrived))
            .count();
        assert!(wait <= promise(ahead), "row {number} waited {wait} behind {ahead}");
    }
}

// Req: F4
#[test]
fn quiet_time_earns_nothing() {
    let mut world = world(true);
    world.send("busy", 50 * MS, 0, 0, 2_000);
    world.send("sleeper", 50 * MS, 0, 0, 8);
    // It was quiet for 20 seconds; then it has as much waiting as the other.
    world.send("sleeper", 50 * MS, 20 * SECOND, 0, 500);
    world.run(26 * SECOND);
    let used = world.used(21 * SECOND, 26 * SECOND);
    let (busy, sleeper) = (used["busy"], used["sleeper"]);
    assert!(busy * 10 >= sleeper * 8, "busy {busy}, sleeper {sleeper}: no catching up");
}

// Req: W4
#[test]
fn without_fairness_the_oldest_go_first() {
    let mut world = world(false);
    for number in 0..200_u64 {
        world.send(["a", "b", "c"][number as usize % 3], 10 * MS, number, 0, 1);
    }
    world.run(10 * SECOND);
    let order: Vec<_> = world.messages.iter().map(|message| message.claimed).collect();
    assert!(order.is_sorted(), "claimed in the order of arrival");
    assert!(world.fair.senders(0).is_empty() && world.waiting() == 0);
}

// Req: F2
#[test]
fn throughput_is_that_of_oldest_first() {
    let finished = |fair: bool| {
        let mut world = world(fair);
        for number in 0..10 {
            world.send(&format!("s{number}"), 50 * MS, 0, 0, 100);
        }
        world.run(10 * SECOND);
        world.messages.iter().filter(|message| message.finished.is_some()).count()
    };
    assert_eq!(finished(true), finished(false));
}
