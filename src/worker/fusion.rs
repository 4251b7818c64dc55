//! One pass of a message through several stages (requirements U1-U4): where a stage sends it on to one that this program can do as
//! well, that one gets it at once, as if it had been written and loaded again. What all of them changed is one write.
//!
//! Invariants: what becomes of a message is what would have become of it stage by stage. Where a stage fails, what those before
//! it did is kept, and the failure is dealt with by that stage's own settings (U3). A pass whose write is refused is not
//! repeated: the first stage is done alone, and the others find it as ever.

use super::{Asked, Context, Head, Outcome, Served, Step, Work, Worker, clock};
use crate::sql::row::Move;
use crate::worker::commit::Store;
use crate::worker::error::{Kept, StageError};
use crate::worker::settings;
use crate::worker::tables::Unconnected;
use crate::{Level, exit, log};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The most stages behind the first one: a cycle of stages ends here, and begins anew when it is claimed again.
const MOST_HOPS: usize = 32;

impl<S: Store> Worker<'_, S> {
    /// The work of the stage, and of those that it sends the message on to.
    pub(super) fn pass(
        &mut self,
        asked: Asked,
        head: Head,
        served: Rc<Served>,
        message: Context,
    ) -> Result<Work, Step> {
        let (mut head, mut served, mut message) = (head, served, message);
        let mut report = Vec::new();
        loop {
            let carried = message.has_moved().then(|| message.carried());
            let began = clock();
            // No stage is run again after a panic, and the process ends with the unwinding.
            let tables = match self.store.as_mut() {
                Some(store) => store.tables(),
                None => &mut Unconnected,
            };
            let result = catch_unwind(AssertUnwindSafe(|| served.stage.run(message, tables)));
            if carried.is_some() {
                let took = u64::try_from(clock().duration_since(began).as_micros()).unwrap_or(u64::MAX);
                report.push((served.route.stage.clone(), took));
            }
            let done = match (result, carried) {
                (Ok(Ok(done)), Some(carried)) if done.message().has_fanned_out() => {
                    let before = written(carried);
                    let work = Work::new(asked, head, done.checked());
                    return Ok(Work { before: Some(before), report, ..work });
                }
                (Ok(Ok(done)), None) if done.message().has_fanned_out() => {
                    return Ok(Work::new(asked, head, done.checked()));
                }
                (Ok(Ok(done)), _) => done,
                (Ok(Err(StageError { database: Some(error), .. })), _) => {
                    return Err(self.defer(asked, &head.route.stage, &error));
                }
                (Ok(Err(error)), Some(carried)) if error.has_fanned_out() => {
                    let work = Work::new(asked, head, Err(error));
                    return Ok(Work { before: Some(written(carried)), report, ..work });
                }
                (Ok(Err(error)), Some(carried)) => {
                    return Ok(Work { report, ..Work::new(asked, head, Err(error.or_keeping(carried))) });
                }
                (Ok(Err(error)), None) => return Ok(Work::new(asked, head, Err(error))),
                (Err(_), carried) => {
                    // Its text and place are in the line before, from the panic hook.
                    log(Level::Error, &head.route.stage, "the stage panicked", &[("id", &head.id)]);
                    let Some(kept) = carried else { return Err(Step::Leave(exit::SOFTWARE)) };
                    // So that the next try begins with the stage that it is about.
                    return Ok(Work {
                        asked,
                        head,
                        before: None,
                        outcome: written(kept),
                        is_done: false,
                        report,
                    });
                }
            };
            let may = report.len() < MOST_HOPS && done.message().is_storable();
            let next = done.next_stage().filter(|_| may).and_then(self.successor);
            let next = next.and_then(|next| {
                let overrides = settings::in_pass(done.message(), &next)?;
                // What is wrong with them its own worker says.
                self.tailored(next, &overrides).ok()
            });
            match next.filter(|next| next.stage.can_fuse(done.message(), next.load)) {
                Some(next) => {
                    message = done.go_on(Rc::clone(&next.route));
                    head = head.moved(message.state(), Rc::clone(&next.route));
                    served = next;
                }
                None => return Ok(Work { report, ..Work::new(asked, head, Ok(done)) }),
            }
        }
    }

    /// The first stage alone.
    pub(super) fn handle_unfused(&mut self, asked: Asked) -> Step {
        let successor = std::mem::replace(&mut self.successor, &|_| None);
        let step = self.handle(asked);
        self.successor = successor;
        step
    }
}

/// What stages before have done, as a write of its own.
fn written(kept: Kept) -> Outcome {
    let Kept { content, merge, fan } = kept;
    Outcome { content, merge, to: Move::Stay, fan }
}

#[cfg(test)]
#[path = "fusion_tests.rs"]
mod tests;
