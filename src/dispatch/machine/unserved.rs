//! Messages at stages that have no section (requirement W7): nobody claims them. Each such stage is logged when it is first
//! seen, and again when it comes back after it was gone.

use std::collections::BTreeMap;

/// More names than a survey tells of are not remembered.
const MOST: usize = 100;

#[derive(Clone, Debug, Default)]
pub(super) struct Unserved {
    /// Messages that wait, by stage.
    stages: BTreeMap<String, u64>,
}

impl Unserved {
    /// All that were seen now; the new ones are returned.
    pub(super) fn seen(&mut self, stages: Vec<(String, u64)>) -> Vec<(String, u64)> {
        let stages: BTreeMap<String, u64> = stages.into_iter().take(MOST).collect();
        let new = stages.iter().filter(|(stage, _)| !self.stages.contains_key(*stage));
        let new = new.map(|(stage, count)| (stage.clone(), *count)).collect();
        self.stages = stages;
        new
    }

    /// How many messages wait at them.
    pub(super) fn count(&self) -> u64 {
        self.stages.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Req: W7
    #[test]
    fn a_stage_is_new_once_and_again_after_it_was_gone() {
        let mut unserved = Unserved::default();
        let some = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
            names.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        assert_eq!(unserved.seen(some(&[("a", 1), ("b", 2)])), some(&[("a", 1), ("b", 2)]));
        assert_eq!(unserved.seen(some(&[("a", 5), ("c", 1)])), some(&[("c", 1)]));
        assert_eq!(unserved.count(), 6);
        assert_eq!(unserved.seen(Vec::new()), []);
        assert_eq!(unserved.count(), 0);
        assert_eq!(unserved.seen(some(&[("a", 5)])), some(&[("a", 5)]));
        let many: Vec<_> = (0..1000).map(|number| (format!("s{number}"), 1)).collect();
        assert_eq!(unserved.seen(many).len(), MOST);
    }
}
