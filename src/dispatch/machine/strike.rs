//! The policy of strikes (requirement E2): which write a head owes after its worker crashed or hung, and which rows
//! are handed out alone afterwards.

use super::writes::What;
use super::{Blame, Micros};
use std::collections::BTreeSet;

/// The strike that ends a row.
pub(super) const LAST_STRIKE: u32 = 3;
/// The pause after the first strike; after the second it is twice as long.
const PAUSE: Micros = 60_000_000;
/// How many suspects are remembered; beyond that the oldest ids are forgotten, which costs them a place in a batch.
const MAX_SUSPECTS: usize = 4096;

/// What a row that had `strikes` owes for one more.
pub(super) fn sentence(strikes: u32, blame: Blame, error: String) -> What {
    let strikes = strikes.saturating_add(1);
    if strikes >= LAST_STRIKE {
        What::Condemn { strikes, blame, error }
    } else {
        What::Strike { strikes, pause: PAUSE * Micros::from(strikes), blame, error }
    }
}

/// Rows that were in the pipeline of a worker that died, behind the head. In a batch any of them may be the culprit,
/// so each is next handed out alone (requirement B2).
#[derive(Clone, Debug, Default)]
pub(super) struct Suspects {
    ids: BTreeSet<i64>,
    /// Rows that were answered at this stage and left running, once.
    strays: BTreeSet<(i64, String)>,
}

impl Suspects {
    pub(super) fn add(&mut self, id: i64) {
        self.ids.insert(id);
        if self.ids.len() > MAX_SUSPECTS {
            self.ids.pop_first();
        }
    }

    /// The row was answered and left running at that stage: whether it was so before.
    pub(super) fn strayed(&mut self, id: i64, stage: &str) -> bool {
        if !self.strays.insert((id, stage.to_owned())) {
            return true;
        }
        if self.strays.len() > MAX_SUSPECTS {
            self.strays.pop_first();
        }
        false
    }

    /// Whether the row is one; from then on it is not.
    pub(super) fn take(&mut self, id: i64) -> bool {
        self.ids.remove(&id)
    }
}
