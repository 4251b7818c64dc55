//! Keeps one cause that repeats from flooding the log: at most one line an interval for each stage and cause.

use super::Micros;
use std::collections::BTreeMap;

/// How long a cause stays silent after a line of it.
const SILENCE: Micros = 10_000_000;

/// What may repeat for many rows, workers or attempts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// Workers that end and blame nothing.
    End,
    /// Workers that are killed.
    Kill,
    /// Workers that end before they are ready.
    Start,
    /// Status 74.
    DatabaseLost,
    /// Status 75.
    Overloaded,
    /// Waiting for the advisory lock.
    Lock,
    /// Reconnecting.
    Connection,
    /// A claim that was not done.
    Claim,
    /// Upkeep or statistics that were not written.
    Upkeep,
    /// A write about a row that was not done.
    Write,
    /// Rows of a stage that no section names.
    Unknown,
    /// A report that names a stage without a section.
    Report,
    /// Rows that were answered and not moved.
    Stray,
    /// Messages that were withdrawn from behind a stuck one, or could not be.
    Withdraw,
}

#[derive(Clone, Debug)]
struct Entry {
    until: Micros,
    silent: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    entries: BTreeMap<(Option<usize>, Cause), Entry>,
}

impl Journal {
    /// Stages have new values: whatever goes wrong with those is news.
    pub(super) fn renew(&mut self) {
        self.entries.retain(|(stage, _), _| stage.is_none());
    }

    /// Other stages from now on: which of the old ones each was.
    pub(super) fn restage(&mut self, was: &[Option<usize>]) {
        let place = |old: usize| was.iter().position(|was| *was == Some(old));
        let entries = std::mem::take(&mut self.entries).into_iter();
        let moved = entries.filter_map(|((stage, cause), entry)| match stage {
            None => Some(((None, cause), entry)),
            Some(old) => place(old).map(|stage| ((Some(stage), cause), entry)),
        });
        self.entries = moved.collect();
    }

    /// Some when a line may be written now, with the number of lines that were left out before it.
    pub(super) fn admit(&mut self, now: Micros, stage: Option<usize>, cause: Cause) -> Option<u64> {
        let entry = self.entries.entry((stage, cause)).or_insert(Entry { until: 0, silent: 0 });
        if now < entry.until {
            entry.silent += 1;
            return None;
        }
        entry.until = now.saturating_add(SILENCE);
        Some(std::mem::take(&mut entry.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_silent_for_a_while_and_then_tells_of_what_was_left_out() {
        let mut journal = Journal::default();
        let mut admit = |now, stage| journal.admit(now, stage, Cause::Start);
        assert_eq!([admit(0, Some(0)), admit(1, Some(0)), admit(1, Some(1))], [Some(0), None, Some(0)]);
        assert_eq!(admit(SILENCE, Some(0)), Some(1));
    }

    // Req: C2
    #[test]
    fn what_new_values_lead_to_is_said_at_once() {
        let mut journal = Journal::default();
        journal.admit(0, Some(0), Cause::Start);
        journal.admit(0, None, Cause::Connection);
        journal.renew();
        assert_eq!(journal.admit(1, Some(0), Cause::Start), Some(0));
        assert_eq!(journal.admit(1, None, Cause::Connection), None);
    }
}
