//! The short sequences with a rereading of the configuration in them, whatever it brings.

use super::{DEPTH, Move, Node, Trail, explore, two_of_two};
use crate::machine::Reply;

/// What a rereading brings.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    Same,
    /// One worker of one id instead of two of two.
    Less,
    /// Another stage in place of `init`.
    Other,
    Malformed,
}

impl Read {
    pub fn reply(self) -> Reply {
        let mut spec = two_of_two();
        match self {
            Read::Same => {}
            Read::Less => (spec.parallelism, spec.queue_limit) = (1, 1),
            Read::Other => spec.name = "other".to_owned(),
            Read::Malformed => return Reply::Malformed { code: 78, errors: vec!["nonsense".to_owned()] },
        }
        Reply::Config { stages: vec![spec], changes: Some(format!("{self:?}")) }
    }
}

// Req: C2
// Req: C3
#[test]
fn no_short_sequence_with_a_reload_loses_a_row() {
    let mut visited = 0;
    let ends = [vec![Read::Same], vec![Read::Less], vec![Read::Other], vec![Read::Malformed]];
    for reads in ends.into_iter().chain([vec![Read::Same, Read::Other], vec![Read::Less, Read::Other]]) {
        for rows in [1, 3] {
            let mut node = Node::new(rows);
            node.reads.clone_from(&reads);
            node.apply(Move::Reload);
            let mut trail = Trail(vec![Move::Reload]);
            explore(&node, DEPTH - 1, &mut trail, &mut visited);
            // The reading is under way, or done, when the rest happens.
            node.apply(Move::Turn);
            explore(&node, DEPTH - 1, &mut trail, &mut visited);
            node.apply(Move::Good);
            explore(&node, DEPTH - 1, &mut trail, &mut visited);
            node.apply(Move::Reload);
            explore(&node, DEPTH - 2, &mut trail, &mut visited);
        }
    }
    println!("{visited} states");
    assert!(visited > 100_000);
}
