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
