//! The table of a worker's life, checked for every state and input.

use super::*;

const STATES: [State; 7] =
    [State::Starting, State::Up, State::Retiring, State::Closing, State::Mute, State::Dying, State::Broken];

fn inputs() -> Vec<Input> {
    vec![
        Input::Ready { claims: true },
        Input::Answer { status: 0, report: Vec::new() },
        Input::Surplus,
        Input::Echo,
        Input::Garbage("x".to_owned()),
        Input::Closed,
        Input::Exited(Exit::Code(0)),
        Input::Unstartable("x".to_owned()),
        Input::Expired,
        Input::Overdue,
        Input::Idle,
        Input::Drained,
        Input::Retire,
        Input::Stop,
        Input::Kill,
    ]
}

// Req: P1
// Req: R5
#[test]
fn a_worker_goes_one_way_and_each_of_its_ends_once() {
    let rank = |state: State| STATES.iter().position(|other| *other == state).expect("a state");
    let dead = |state: State| matches!(state, State::Dying | State::Broken);
    for state in STATES {
        for input in inputs() {
            let (after, deed) = next(state, &input);
            assert!(rank(after) >= rank(state), "{state:?} goes back on {input:?}");
            assert_eq!(matches!(deed, Deed::Kill(_)), dead(after) && !dead(state), "{state:?} {input:?}");
            let closes = matches!(deed, Deed::Close | Deed::Dismiss);
            assert_eq!(closes, after == State::Closing && state != State::Closing, "{state:?} {input:?}");
            let gone = matches!(input, Input::Exited(_) | Input::Unstartable(_));
            assert_eq!(gone, deed == Deed::Bury, "{state:?} {input:?}");
            let breach = matches!(deed, Deed::Kill(Why::Garbled));
            assert_eq!(breach, after == State::Broken && !dead(state), "{state:?} {input:?}");
        }
    }
    assert_eq!(next(State::Starting, &Input::Ready { claims: false }), (State::Up, Deed::Welcome));
}

// Req: R1, B1
#[test]
fn the_time_of_answers_that_come_at_once_is_divided_evenly() {
    let mut worker = Worker::new(WorkerId(1), 0);
    let row = |id| Row { claim: Claim { id, claim: 1 }, strikes: 0, alone: false };
    worker.sent.extend((1..=6).map(row));
    let take = |worker: &mut Worker, now| worker.take(now).map(|(row, spent)| (row.claim.id, spent));
    worker.burst = 3;
    let spent: Vec<_> = (0..3).map(|_| take(&mut worker, 100)).collect();
    assert_eq!(spent, [Some((1, 33)), Some((2, 33)), Some((3, 34))], "nothing of it is lost");
    assert_eq!(take(&mut worker, 150), Some((4, 50)), "one alone has all");
    // What was withdrawn has its share too, and is charged to nobody.
    worker.ghosts.push_back(Claim { id: 9, claim: 1 });
    worker.burst = 2;
    worker.forget(250);
    assert_eq!(take(&mut worker, 250), Some((5, 50)));
    assert_eq!(take(&mut worker, 260), Some((6, 10)));
}
