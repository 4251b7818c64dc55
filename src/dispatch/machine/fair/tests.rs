//! Unit tests of shares, lists and reach; the long run and the SQL function are in tests/fair.rs.

use super::choose::{Row, choose};
use super::share::{ASSUMED_AVERAGE, MAX_LEAD, MAX_SENDERS};
use super::*;

const SECOND: Micros = 1_000_000;
const HALF_LIFE: Micros = 60 * SECOND;

fn fair(stages: usize) -> Fair {
    Fair::new(Settings { fair: true, half_life: HALF_LIFE, fifo_percent: 10 }, stages)
}

fn row(id: i64, sender: &str) -> Row {
    Row { id, stage: 0, sender: sender.to_owned() }
}

/// One claim of stage 0 after a notification; the rows it took leave the queue.
fn claim(fair: &mut Fair, now: Micros, queue: &mut Vec<Row>, capacity: u32) -> Vec<Row> {
    fair.expose(now);
    let top = queue.last().map_or(0, |row| row.id);
    let (demands, touched) = fair.demand(now, &[capacity], false);
    let choice = choose(queue, &demands, &touched);
    let (taken, left) = queue.drain(..).partition(|row| choice.taken.contains(&(0, row.id)));
    *queue = left;
    let rows: Vec<Taken<'_>> =
        taken.iter().map(|row: &Row| Taken { stage: 0, id: row.id, claim: 1, sender: &row.sender }).collect();
    let notices: Vec<(usize, Notice)> = choice.notices.into_iter().collect();
    fair.claimed(now, &rows, &notices, top);
    taken
}

fn lead(fair: &Fair, sender: &str) -> Micros {
    fair.senders(0).get(sender).map_or(0, |sender| sender.lead)
}

/// Two senders that wait, so that neither is all there is: of each so many rows, in turns.
fn two(rows: i64) -> Vec<Row> {
    (0..2 * rows).map(|id| row(id, if id % 2 == 0 { "a" } else { "b" })).collect()
}

// Req: F2
#[test]
fn a_claim_charges_the_average_and_its_end_corrects_it() {
    let mut fair = fair(1);
    fair.measured(0, 40_000);
    let mut queue = two(20);
    let taken = claim(&mut fair, 0, &mut queue, 4);
    assert_eq!((lead(&fair, "a"), lead(&fair, "b")), (80_000, 80_000));
    let of = |sender: &str| -> Vec<i64> {
        taken.iter().filter(|row| row.sender == sender).map(|row| row.id).collect()
    };
    fair.settle(0, (of("a")[0], 1), End::Ran(100_000));
    assert_eq!(lead(&fair, "a"), 140_000, "corrected to what it took");
    fair.settle(0, (of("a")[0], 1), End::Ran(100_000));
    assert_eq!(lead(&fair, "a"), 140_000, "once");
    fair.settle(0, (of("b")[0], 1), End::Unrun);
    assert_eq!(lead(&fair, "b"), 40_000, "refunded");
    fair.settle(0, (of("b")[1], 1), End::Burned(300 * SECOND));
    assert_eq!(lead(&fair, "b"), 300 * SECOND, "a message that hung is charged all of MAX_RUNTIME");
    assert_eq!(fair.unsettled().count(), 1);
}

// Req: F2
#[test]
fn what_a_message_takes_is_averaged_over_the_last_ones() {
    let mut fair = fair(1);
    let average = |fair: &mut Fair| {
        let (demands, _) = fair.demand(0, &[1], false);
        fair.not_claimed(0);
        demands[0].average
    };
    assert_eq!(average(&mut fair), ASSUMED_AVERAGE as i64);
    fair.measured(0, 8_000);
    assert_eq!(average(&mut fair), 8_000);
    fair.measured(0, 16_000);
    assert_eq!(average(&mut fair), 9_000);
    (0..200).for_each(|_| fair.measured(0, 0));
    assert_eq!(average(&mut fair), 1, "never nothing: ranks have to grow");
    fair.measured(0, Micros::MAX);
    assert!(average(&mut fair) <= 10_000_000_000, "a rank is a number that PostgreSQL can hold");
}

// Req: F4
#[test]
fn a_newcomer_begins_level_with_the_least_served() {
    let mut fair = fair(1);
    let mut queue = two(200);
    for _ in 0..10 {
        claim(&mut fair, 0, &mut queue, 4);
    }
    assert_eq!(fair.unsettled().count(), 40);
    queue.push(row(900, "new"));
    let next = claim(&mut fair, 0, &mut queue, 1);
    assert_eq!(next[0].sender, "new", "ahead of those who have a lead");
    let (a, b) = (lead(&fair, "a"), lead(&fair, "b"));
    assert!(a.max(b) <= 2 * ASSUMED_AVERAGE, "{a} {b}: no debt of old times");
}

// Req: F4
#[test]
fn a_sender_alone_gathers_no_lead() {
    let mut fair = fair(1);
    for id in 0..100 {
        let taken = claim(&mut fair, 0, &mut vec![row(id, "alone")], 4);
        fair.settle(0, (taken[0].id, 1), End::Ran(ASSUMED_AVERAGE));
    }
    assert!(lead(&fair, "alone") <= ASSUMED_AVERAGE);
}

// Req: F5
#[test]
fn leads_halve_with_each_half_life() {
    let mut fair = fair(1);
    let mut queue = two(100);
    let taken = claim(&mut fair, 0, &mut queue, 2);
    let of_a = taken.iter().find(|row| row.sender == "a").expect("one of each");
    fair.settle(0, (of_a.id, 1), End::Burned(64 * SECOND));
    let mut at = |now: Micros, expected: Micros| {
        let (_, _) = fair.demand(now, &[1], false);
        fair.not_claimed(now);
        let lead = lead(&fair, "a");
        assert!(lead.abs_diff(expected) <= expected / 1_000, "at {now}: {lead}, not {expected}");
    };
    at(HALF_LIFE, 32 * SECOND);
    at(HALF_LIFE * 3 / 2, 22_627_417);
    at(3 * HALF_LIFE, 8 * SECOND);
    at(100 * HALF_LIFE, 0);
}

// Req: F5
#[test]
fn a_small_lead_is_forgotten_when_nothing_of_its_sender_is_left() {
    let mut fair = fair(1);
    let mut queue = two(3);
    let taken = claim(&mut fair, 0, &mut queue, 4);
    assert_eq!(fair.senders(0).len(), 2);
    claim(&mut fair, 0, &mut queue, 4);
    assert!(queue.is_empty());
    for id in 0..6 {
        fair.settle(0, (id, 1), End::Ran(if id < 2 { ASSUMED_AVERAGE * 2 } else { ASSUMED_AVERAGE }));
    }
    assert!(taken.len() == 4 && fair.senders(0).len() == 2, "a lead of two messages is kept");
    fair.demand(2 * HALF_LIFE, &[1], false);
    fair.not_claimed(2 * HALF_LIFE);
    assert!(fair.senders(0).is_empty(), "of half a message it is not");
}

/// Or the same few of many senders with a backlog would look new again and again, and be served first.
// Req: F5
#[test]
fn a_small_lead_is_kept_while_something_of_its_sender_waits_or_runs() {
    let mut fair = fair(1);
    let mut queue = two(4);
    let taken = claim(&mut fair, 0, &mut queue, 4);
    for row in taken.iter().filter(|row| row.sender == "a") {
        fair.settle(0, (row.id, 1), End::Ran(ASSUMED_AVERAGE / 4));
    }
    assert_eq!(lead(&fair, "a"), ASSUMED_AVERAGE / 2, "it waits, and its lead of half a message is known");
    claim(&mut fair, HALF_LIFE, &mut queue, 8);
    assert!(queue.is_empty() && fair.senders(0).len() == 2);
    for id in [0, 2, 4, 6] {
        fair.settle(HALF_LIFE, (id, 1), End::Unrun);
    }
    assert!(!fair.senders(0).contains_key("a"), "nothing of it is left");
    // The other one's messages run, and the charge in advance has become less than a message.
    fair.demand(20 * HALF_LIFE, &[1], false);
    fair.not_claimed(20 * HALF_LIFE);
    assert!(fair.senders(0).get("b").is_some_and(|sender| sender.lead < 10 && sender.running == 4));
}

// Req: F5
#[test]
fn only_a_restart_forgets_all() {
    let mut fair = fair(1);
    let taken = claim(&mut fair, 0, &mut two(20), 4);
    let of_a = taken.iter().find(|row| row.sender == "a").expect("one of each");
    fair.settle(0, (of_a.id, 1), End::Burned(64 * SECOND));
    fair.reconnected();
    assert!(lead(&fair, "a") >= 64 * SECOND, "a lost connection is none");
    assert!(self::fair(1).senders(0).is_empty());
}

// Req: F6
#[test]
fn the_fifo_share_is_exact_over_time_at_any_capacity() {
    for (capacity, percent) in [(1, 10), (1, 7), (3, 10), (16, 33), (5, 0), (5, 100), (7, 250)] {
        let mut fair = Fair::new(Settings { fair: true, half_life: HALF_LIFE, fifo_percent: percent }, 1);
        let mut queue: Vec<Row> = (0..3_000).map(|id| row(id, "a")).collect();
        let (mut slots, mut rows) = (0, 0);
        while rows < 1_000 {
            let (demands, _) = fair.demand(0, &[capacity], false);
            fair.not_claimed(0);
            slots += demands[0].fifo_slots;
            rows += claim(&mut fair, 0, &mut queue, capacity).len() as u32;
            assert_eq!(slots, rows * percent.min(100) / 100, "{slots} of {rows} at {capacity}");
        }
    }
}

// Req: F6
#[test]
fn the_fifo_slot_takes_the_oldest_row_whoever_sent_it() {
    let mut fair = fair(1);
    // The heavy sender has the oldest rows and a lead that nobody else will have for long.
    let mut queue: Vec<Row> = (0..50).map(|id| row(id, "heavy")).collect();
    claim(&mut fair, 0, &mut queue, 1);
    fair.settle(0, (0, 1), End::Burned(1_000 * SECOND));
    queue.extend((100..200).map(|id| row(id, &format!("light{}", id % 7))));
    let order: Vec<String> =
        (0..40).flat_map(|_| claim(&mut fair, 0, &mut queue, 1)).map(|row| row.sender).collect();
    assert_eq!(order.iter().filter(|sender| *sender == "heavy").count(), 4, "{order:?}");
}

// Req: F3
#[test]
fn equals_go_by_age_and_not_by_name() {
    let mut fair = fair(1);
    let mut queue: Vec<Row> = ["m", "z", "a", "q"].iter().zip(0..).map(|(name, id)| row(id, name)).collect();
    queue.extend((10..30).map(|id| row(id, "a")));
    let ids: Vec<i64> = (0..4).flat_map(|_| claim(&mut fair, 0, &mut queue, 1)).map(|row| row.id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
}

// Req: F7
#[test]
fn no_claim_reads_the_rows_of_more_than_64_senders() {
    let mut fair = fair(1);
    let mut queue: Vec<Row> = (0..4_000).map(|id| row(id, &format!("s{:03}", id % 400))).collect();
    let mut visited = Vec::new();
    for round in 0..60 {
        let (demands, _) = fair.demand(round, &[200], false);
        fair.not_claimed(round);
        let read = demands[0].senders.iter().filter(|listed| listed.floor.is_some()).count();
        assert!(read + demands[0].visits as usize <= 64, "{read} and {}", demands[0].visits);
        assert!(demands[0].senders.iter().all(|listed| listed.rows <= 200), "no more rows than the capacity");
        visited.push(demands[0].cursor.clone());
        claim(&mut fair, round, &mut queue, 5);
    }
    assert!(
        visited.iter().take(25).is_sorted_by(|one, other| one < other),
        "the window goes on: {visited:?}"
    );
    assert_eq!(fair.senders(0).len(), 400, "all were met within one rotation");
}

// Req: F10
#[test]
fn a_flood_of_senders_does_not_fill_the_memory() {
    let mut fair = fair(1);
    let mut queue = Vec::new();
    for second in 0..200 {
        queue.extend((0..100).map(|number| row(second * 100 + number, &format!("s{second}-{number}"))));
        for _ in 0..5 {
            let now = second as Micros * SECOND;
            for row in claim(&mut fair, now, &mut queue, 16) {
                assert!(fair.senders(0).len() <= MAX_SENDERS + 16, "{} senders", fair.senders(0).len());
                fair.settle(now, (row.id, 1), End::Ran(ASSUMED_AVERAGE));
            }
        }
        fair.expose(second as Micros * SECOND);
    }
    assert!(fair.senders(0).len() >= MAX_SENDERS / 2, "the flood was one");
}

// Req: F2
#[test]
fn leads_are_never_negative_and_never_without_bound() {
    let mut fair = fair(1);
    fair.measured(0, 10 * SECOND);
    let mut queue = two(500);
    for _ in 0..200 {
        for row in claim(&mut fair, 0, &mut queue, 4) {
            let end = match row.id % 3 {
                0 => End::Unrun,
                1 => End::Burned(Micros::MAX),
                _ => End::Ran(0),
            };
            fair.settle(0, (row.id, 1), end);
        }
        assert!(fair.senders(0).values().all(|sender| sender.lead <= MAX_LEAD && sender.running == 0));
    }
}

#[test]
fn what_is_asked_for_a_stage_without_capacity_changes_no_share() {
    let mut fair = fair(2);
    let mut queue = two(50);
    for row in &mut queue {
        row.stage = 1;
    }
    let (demands, _) = fair.demand(0, &[4, 4], false);
    let choice = choose(&queue, &demands, &[]);
    let taken: Vec<Taken<'_>> = queue
        .iter()
        .filter(|row| choice.taken.contains(&(1, row.id)))
        .map(|row| Taken { stage: 1, id: row.id, claim: 1, sender: &row.sender })
        .collect();
    fair.claimed(0, &taken, &choice.notices.into_iter().collect::<Vec<_>>(), 100);
    let before = fair.senders(1).clone();
    fair.touch(77);
    let (demands, touched) = fair.demand(0, &[4, 0], false);
    assert_eq!((demands[1].capacity, touched.as_slice()), (0, [77].as_slice()));
    let moved = Notice::Seen { id: 77, sender: "c".to_owned() };
    fair.claimed(0, &[], &[(1, moved)], 100);
    let mut after = fair.senders(1).clone();
    assert_eq!(after.remove("c").and_then(|sender| sender.waits), Some(77), "and whoever came is known");
    assert_eq!(before, after);
    let floor = fair.demand(0, &[0, 4], false).0[1].floor;
    assert_eq!(floor, 4, "the oldest row that was not taken");
}

#[test]
fn stages_that_stay_keep_their_shares() {
    let mut fair = fair(2);
    let mut queue = two(20);
    let (demands, _) = fair.demand(0, &[4, 0], false);
    let choice = choose(&queue, &demands, &[]);
    queue.retain(|row| choice.taken.contains(&(0, row.id)));
    let taken: Vec<Taken<'_>> =
        queue.iter().map(|row| Taken { stage: 0, id: row.id, claim: 1, sender: &row.sender }).collect();
    fair.claimed(0, &taken, &choice.notices.into_iter().collect::<Vec<_>>(), 100);
    let before = fair.senders(0).clone();
    fair.restage(&[None, Some(0), Some(9)]);
    assert_eq!(fair.senders(1), &before);
    assert!(fair.senders(0).is_empty() && fair.senders(2).is_empty());
    fair.settle(0, (taken[0].id, 1), End::Unrun);
    assert_ne!(fair.senders(1), &before, "and their charges");
    fair.restage(&[]);
    assert_eq!(fair.unsettled().count(), 0);
}

#[test]
fn a_claim_that_failed_is_made_again_with_all_that_was_told() {
    let mut fair = fair(1);
    fair.touch(5);
    fair.touch(5);
    assert_eq!(fair.demand(0, &[1], false).1, [5]);
    fair.touch(6);
    fair.not_claimed(0);
    assert_eq!(fair.demand(0, &[1], false).1, [5, 6]);
    fair.touch(7);
    fair.claimed(0, &[], &[], 10);
    assert_eq!(fair.demand(0, &[1], false).1, [7], "what came meanwhile was not told yet");
    fair.claimed(0, &[], &[], 10);
    assert!(fair.round_wish(&[1]).is_none(), "the queue is empty: nothing to look for");
    (0..5_000).for_each(|id| fair.touch(id));
    let (_, touched) = fair.demand(0, &[1], false);
    assert!(touched.len() <= 1_024, "the list is bounded");
    fair.claimed(0, &[], &[], 10);
    fair.expose(0);
    assert!(fair.round_wish(&[1]).is_some() && fair.round_wish(&[0]).is_none());
}

#[test]
fn a_claim_around_locked_rows_proves_nothing() {
    let mut fair = fair(1);
    for now in [0, 10 * SECOND, 20 * SECOND] {
        fair.demand(now, &[4], false);
        fair.claimed(now, &[], &[], 500);
    }
    let floor = |fair: &mut Fair| {
        let floor = fair.demand(20 * SECOND, &[4], true).0[0].floor;
        fair.claimed(20 * SECOND, &[], &[], 900);
        floor
    };
    assert_eq!((floor(&mut fair), floor(&mut fair)), (501, 501));
}
