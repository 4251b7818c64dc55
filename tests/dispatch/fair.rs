//! Fair shares with real workers: small, and with wide limits. benches/goals.rs has the figures, tests/fair the model.

use crate::world::{World, stop, until};

const SENDS: &str = "echo ready; while read id; do echo $id >>$LOG; sleep 0.02; echo 1; done";

// Req: F3, F4
#[test]
fn a_light_sender_goes_before_a_heavy_ones_backlog() {
    let world = World::new();
    world.stage("init", SENDS, &[("PARALLELISM", "4"), ("QUEUE_LIMIT", "4")]);
    world.add_from("init", "a@heavy.example", 400);
    let dispatcher = world.serve();
    until("the workers are busy", || world.log("init").len() >= 40);
    let light = world.add_from("init", "a@light.example", 1)[0].to_string();
    let begun = world.log("init").len();
    until("the light one's turn", || world.log("init").contains(&light));
    let place = world.log("init").iter().position(|id| *id == light).unwrap();
    // What workers held already, as much again that was being claimed, and a few FIFO slots.
    assert!(place <= begun + 40, "{begun} had begun when it came, it was number {place}");
    assert_eq!(stop(dispatcher), 0);
}

// Req: F2
#[test]
fn long_messages_and_short_ones_get_the_same_time() {
    let world = World::new();
    let slow = *world.add_from("init", "a@slow.example", 200).last().unwrap();
    world.add_from("init", "a@quick.example", 2_000);
    let script = format!(
        "echo ready; while read id; do read begin rest </proc/uptime; \
         if [ $id -le {slow} ]; then sleep 0.3; else sleep 0.03; fi; \
         read end rest </proc/uptime; echo $id $begin $end >>$LOG; echo 1; done"
    );
    world.stage("init", &script, &[("PARALLELISM", "4"), ("QUEUE_LIMIT", "4")]);
    let dispatcher = world.serve();
    // Seconds of each, of what ended after the first claims, which had no average to go by.
    let used = || {
        let mut used = [0.0, 0.0];
        for line in world.log("init").iter().skip(40) {
            let fields: Vec<f64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
            used[usize::from(fields[0] as i64 > slow)] += fields[2] - fields[1];
        }
        used
    };
    until("some seconds of work are done", || used().iter().sum::<f64>() > 12.0);
    let [slow, quick] = used();
    let share = slow / (slow + quick);
    assert!((0.35..=0.65).contains(&share), "{slow} s of the slow ones, {quick} s of the quick ones");
    assert_eq!(stop(dispatcher), 0);
}
