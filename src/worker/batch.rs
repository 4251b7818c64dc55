//! Several ids at once (requirements B1, B2): one SELECT, each row's stage in the order of the ids, one statement for each shape of
//! outcome. Only where metadata is all that is loaded.
//!
//! A row that spoils a statement for the others is found by doing each alone, so that it fails alone.

use super::{Asked, Step, Work, Worker, plain};
use crate::exit;
use crate::sql::Error;
use crate::sql::row::{Move, Row};
use crate::worker::commit::Store;
use std::collections::BTreeMap;

impl<S: Store> Worker<'_, S> {
    /// What each id ends in, in their order. The list ends early with the one that ends the worker.
    pub(super) fn handle_batch(&mut self, asked: &[Option<Asked>]) -> Vec<Step> {
        let mut rows = match self.load_batch(asked) {
            Ok(Some(rows)) => rows,
            Ok(None) => return self.one_by_one(asked),
            Err(steps) => return steps,
        };
        let mut works = Vec::new();
        // For each id what it ends in, or the place of its work.
        let mut ends = Vec::new();
        for asked in asked {
            let end = match asked {
                None => Err(plain(exit::FAILURE)),
                Some(asked) => self.work(*asked, rows.remove(&asked.id)),
            };
            let is_last = match &end {
                Ok(work) => work.outcome.to == Move::Stay,
                Err(Step::Leave(_)) => true,
                Err(Step::Answer(..)) => false,
            };
            ends.push(end.map(|work| works.push(work)));
            if is_last {
                // Those before it are concluded, and it is the first that is not answered.
                break;
            }
        }
        let is_single = |work: &&Work| work.before.is_none();
        let outcomes: Vec<_> =
            works.iter().filter(is_single).map(|work| (&work.head, &work.outcome)).collect();
        let written = match self.store.as_mut() {
            Some(store) => store.commit_batch(&outcomes),
            None => vec![Err(Error::Lost("the connection is gone".into())); outcomes.len()],
        };
        let (mut works, mut written) = (works.into_iter(), written.into_iter());
        let step = |end: Result<(), Step>| {
            let work = match end {
                Ok(()) => works.next().expect("each work has its end"),
                Err(step) => return step,
            };
            if work.before.is_some() {
                return self.conclude(work);
            }
            match written.next().expect("each work is written once") {
                // Nothing of that statement was done, perhaps for another row's sake.
                Err(Error::Refused(_) | Error::Setup(_) | Error::Conflict(_) | Error::Schema(_)) => {
                    self.conclude(work)
                }
                written => self.concluded(work, written),
            }
        };
        ends.into_iter().map(step).collect()
    }

    fn one_by_one(&mut self, asked: &[Option<Asked>]) -> Vec<Step> {
        let mut steps = Vec::new();
        for asked in asked {
            let step = asked.map_or(plain(exit::FAILURE), |asked| self.handle(asked));
            let is_last = matches!(step, Step::Leave(_));
            steps.push(step);
            if is_last {
                break;
            }
        }
        steps
    }

    /// The rows by id; None when one of them may spoil it for the others. With the connection made anew once, as for one.
    fn load_batch(&mut self, asked: &[Option<Asked>]) -> Result<Option<BTreeMap<i64, Row>>, Vec<Step>> {
        let ids: Vec<i64> = asked.iter().flatten().map(|asked| asked.id).collect();
        let is_new = self.store.is_none();
        let connected = |worker: &mut Self| match worker.connected() {
            Ok(store) => Ok(store.load_batch(&ids)),
            Err(step) => Err(vec![step]),
        };
        let mut loaded = connected(self)?;
        if !is_new && matches!(loaded, Err(Error::Lost(_))) {
            self.store = None;
            loaded = connected(self)?;
        }
        match loaded {
            Ok(rows) => Ok(Some(rows.into_iter().map(|row| (row.id, row)).collect())),
            Err(Error::Refused(_) | Error::Setup(_)) => Ok(None),
            Err(error) => {
                let step = |asked: &Option<Asked>| match asked {
                    Some(asked) => self.defer(*asked, "", &error),
                    None => plain(exit::FAILURE),
                };
                Err(asked.iter().map(step).collect())
            }
        }
    }
}
