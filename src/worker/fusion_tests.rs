//! Passes through several stages against the same stages one by one, on a table in memory that does what the statements do.

use super::super::Done;
use super::*;
use crate::sql::row::{Load, Row};
use crate::worker::error::StageError;
use crate::worker::fixture;
use crate::worker::stage::Stage;
use crate::worker::tables::Tables;
use std::cell::RefCell;
use world::{Count, World};

#[path = "fault_tests.rs"]
mod faults;
#[path = "fusion_world.rs"]
mod world;

// Req: U1, U3, U4, X2
#[test]
fn a_message_fares_the_same_in_one_pass_and_stage_by_stage() {
    let (mut hops, mut without_crash, mut divided) = (0, 0, 0);
    for seed in 0..1_000 {
        let (mut fused, mut unfused) = (World::new(seed, true), World::new(seed, false));
        fused.run();
        unfused.run();
        assert_eq!(fused.rows(), unfused.rows(), "seed {seed}");
        if unfused.executed.keys().any(|stage| stage.starts_with("crash")) {
            // What a worker did in the pass in which it died nobody has told.
            let told =
                |(stage, count): (&String, &u64)| unfused.executed.get(stage).is_some_and(|one| count <= one);
            assert!(
                fused.executed.iter().all(told),
                "seed {seed}: {:?} {:?}",
                fused.executed,
                unfused.executed
            );
        } else {
            assert_eq!(fused.executed, unfused.executed, "seed {seed}");
            without_crash += 1;
        }
        assert_eq!(unfused.hops, 0);
        hops += fused.hops;
        divided += fused.count.borrow().divided;
    }
    assert!(
        hops > 10_000 && without_crash > 500 && divided > 500,
        "{hops} fused stages, {without_crash} worlds without a crash, {divided} divisions"
    );
}

/// Sends each message on to the next number, the last of five ends it.
struct Line;

impl Stage for Line {
    fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        let number: usize = message.stage()[1..].parse().expect("a number");
        Ok(if number == 5 { message.finish() } else { message.advance_to(&format!("s{}", number + 1)) })
    }
}

fn line_of(stages: usize, load: Load) -> World {
    let mut world = World::new(0, true);
    world.stages = (1..=stages)
        .map(|number| {
            let route = fixture::route(&format!("s{number}"));
            (format!("s{number}"), fixture::served(Box::new(Line), route, load))
        })
        .collect();
    world.fuses = world.stages.keys().cloned().collect();
    let rows = (1..=3)
        .map(|id| (id, (Row { status: "pending".into(), stage: "s1".into(), ..fixture::row(id) }, None)));
    world.table = RefCell::new(rows.collect());
    world
}

// Req: U2
#[test]
fn a_pass_is_one_load_one_write_and_one_answer_that_names_each_stage() {
    for (load, trips) in [(Load::Metadata, 1), (Load::Full, 3)] {
        let mut world = line_of(5, load);
        world.run();
        assert!(world.table.borrow().is_empty());
        let Count { loads, writes, .. } = *world.count.borrow();
        assert_eq!((loads, writes, world.hops), (trips, trips, 12), "{load:?}");
        assert_eq!(world.executed.values().copied().collect::<Vec<_>>(), [3; 5]);
    }
}

// Req: U1
#[test]
fn what_a_stage_needs_and_has_not_got_is_loaded_for_it() {
    let mut world = line_of(5, Load::Metadata);
    let route = fixture::route("s3");
    world.stages.insert("s3".into(), fixture::served(Box::new(Line), route, Load::Headers));
    world.run();
    assert!(world.table.borrow().is_empty());
    // From s1 to s2, and from s3, which has more than the others need, to the end.
    assert_eq!(world.hops, 3 + 6);
}

// Req: S6, U3
#[test]
fn after_a_panic_nothing_is_run_again_whatever_can_be_written() {
    struct Panics;
    impl Stage for Panics {
        fn run(&self, _: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
            std::panic::resume_unwind(Box::new("a panic without a word"))
        }
    }
    for refuses_stay in [false, true] {
        let mut world = line_of(5, Load::Metadata);
        let route = fixture::route("s2");
        world.stages.insert("s2".into(), fixture::served(Box::new(Panics), route, Load::Metadata));
        world.count.borrow_mut().refuses_stay = refuses_stay;
        assert!(world.serve("s1"));
        let crashes: u64 = world.executed.values().sum();
        // Each of the three ends its worker, and what is then loaded is loaded for those behind it.
        assert_eq!((crashes, world.hops, world.count.borrow().loads), (3, 0, 3), "{refuses_stay}");
    }
}

// Req: U4
#[test]
fn a_cycle_of_stages_is_left_now_and_then() {
    struct Round;
    impl Stage for Round {
        fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
            let other = if message.stage() == "s1" { "s2" } else { "s1" };
            Ok(message.advance_to(other))
        }
    }
    let mut world = line_of(2, Load::Metadata);
    for name in ["s1", "s2"] {
        let route = fixture::route(name);
        world.stages.insert(name.into(), fixture::served(Box::new(Round), route, Load::Metadata));
    }
    assert!(world.serve("s1"));
    assert_eq!(world.hops, 3 * MOST_HOPS);
    let table = world.table.borrow();
    assert!(table.values().all(|(row, _)| row.status == "pending" && row.stage == "s2"), "{table:?}");
}
