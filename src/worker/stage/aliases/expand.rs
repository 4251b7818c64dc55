//! What the recipients of a message come to: pure, over what a `View` knows.
//!
//! An address that stands for others is looked at once for each recipient of the message: what leads back to it adds nothing
//! (a circle), except that an address directly among its own targets is one that mail is for. All or nothing: a
//! recipient that leads in a circle alone, too deep or to too many is refused as a whole, and one behind an entry that
//! cannot be read waits as a whole, as does one for which the others leave too little room.
//!
//! Invariants: bounded by `MAX_DEPTH`, `MAX_STEPS` and `MAX_RECIPIENTS`. Every recipient ends in at least one of the ways of
//! `End`, unless what it comes to is there already.

use super::maps::{Mailbox, Trouble, View};
use crate::mail::alias::{Meaning, Target};
use std::collections::BTreeSet;

/// How many entries may stand one behind the other.
pub const MAX_DEPTH: usize = 32;
/// Addresses that are looked for, for one message, behind its own recipients.
pub const MAX_STEPS: usize = 100_000;
/// Recipients that entries may make of one message.
pub const MAX_RECIPIENTS: usize = 10_000;

const ADDRESSES: &str = "100000 addresses";
const RECIPIENTS: &str = "10000 recipients";

/// Where one recipient of the message led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its place in the message.
    pub place: usize,
    pub end: End,
    /// Whether an entry with several addresses stands between.
    pub is_one_of_several: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Recipient(String),
    Discarded,
    /// The address that takes no mail, and what the sender is told, perhaps nothing.
    Failed {
        address: String,
        text: String,
    },
    /// Its entries are wrong; how, for the operator.
    Broken {
        address: String,
        why: String,
    },
    /// Not to be told now; why.
    Waits(String),
}

/// The ends of all recipients, in their order, each address once. None where no recipient has an entry.
pub fn expand(view: &View<'_>, rcpt_to: &[String]) -> Option<Vec<Ended>> {
    let mut walk = Walk { view, is_alone: rcpt_to.len() == 1, steps: 0, recipients: 0, has_entry: false };
    let mut ends = Vec::new();
    let (mut there, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for (place, recipient) in rcpt_to.iter().enumerate() {
        let found = walk.recipient(place, recipient);
        ends.extend(found.into_iter().filter(|ended| match &ended.end {
            End::Recipient(text) => there.insert(same(text)),
            End::Failed { address, .. } => failed.insert(same(address)),
            End::Discarded | End::Broken { .. } | End::Waits(_) => true,
        }));
    }
    walk.has_entry.then_some(ends)
}

/// Two addresses are one recipient if their domains are the same and their local parts are written alike: whether others
/// are is known to whoever has the mailbox.
fn same(text: &str) -> (String, Option<String>) {
    let (local, domain) = crate::mail::address::divide(text);
    (local.to_owned(), domain)
}

struct Walk<'a> {
    view: &'a View<'a>,
    /// The message has one recipient.
    is_alone: bool,
    steps: usize,
    /// That entries have made.
    recipients: usize,
    has_entry: bool,
}

/// What is known on the way from one recipient.
#[derive(Default)]
struct Way {
    place: usize,
    ends: Vec<Ended>,
    steps: usize,
    recipients: usize,
    /// The addresses that stand for others, by identity.
    seen: BTreeSet<String>,
    /// The first one that was met again.
    circle: Option<String>,
}

/// Why the way from one recipient ends before all is known.
enum Stopped {
    Broken(String),
    Waits(String),
}

impl Walk<'_> {
    fn recipient(&mut self, place: usize, text: &str) -> Vec<Ended> {
        let mut way = Way { place, ..Way::default() };
        let mailbox = Mailbox::new(text);
        let stopped = self.follow(&mut way, &mailbox, None, 0, false).err();
        let circle = way.circle.filter(|_| way.ends.is_empty());
        let stopped = stopped.or(circle.map(|at| Stopped::Broken(format!("goes in a circle at {at}"))));
        let end = match stopped {
            Some(Stopped::Broken(why)) => End::Broken { address: text.to_owned(), why },
            Some(Stopped::Waits(why)) => End::Waits(why),
            None => return way.ends,
        };
        self.recipients -= way.recipients;
        vec![Ended { place, end, is_one_of_several: false }]
    }

    /// Adds to `way` what the address comes to. The error is what becomes of the whole recipient.
    fn follow(
        &mut self,
        way: &mut Way,
        mailbox: &Mailbox,
        parent: Option<&str>,
        depth: usize,
        is_one_of_several: bool,
    ) -> Result<(), Stopped> {
        let place = way.place;
        let ended = |end| Ended { place, end, is_one_of_several };
        let identity = self.view.maps.rules.identity(mailbox);
        if parent.is_some() {
            self.step(way)?;
        }
        if parent == Some(identity.as_str()) {
            return self.arrive(way, ended(End::Recipient(mailbox.text.clone())));
        }
        if way.seen.contains(&identity) {
            way.circle.get_or_insert(mailbox.text.clone());
            return Ok(());
        }
        let view = self.view;
        let found = view.find(mailbox);
        self.has_entry |= !matches!(found, Ok(None));
        let (meaning, tag) = match found {
            Ok(Some(found)) => found,
            Ok(None) if parent.is_none() => {
                way.ends.push(ended(End::Recipient(mailbox.text.clone())));
                return Ok(());
            }
            Ok(None) => return self.arrive(way, ended(End::Recipient(mailbox.text.clone()))),
            Err(Trouble::Unreadable(why)) => return Err(Stopped::Waits(why.to_owned())),
            Err(Trouble::NotAsked) => return Err(self.too_many(self.is_alone, ADDRESSES)),
        };
        let targets = match meaning {
            Meaning::Targets(targets) => targets,
            Meaning::Fail(text) => {
                let end = End::Failed { address: mailbox.text.clone(), text: text.clone() };
                return self.arrive(way, ended(end));
            }
        };
        if depth == MAX_DEPTH {
            return Err(Stopped::Broken(format!("stands behind {MAX_DEPTH} others at {}", mailbox.text)));
        }
        way.seen.insert(identity.clone());
        let addresses = targets.iter().filter(|target| matches!(target, Target::Address { .. })).count();
        let several = is_one_of_several || addresses > 1;
        for target in targets {
            let Target::Address { address, is_final } = target else {
                way.ends.push(ended(End::Discarded));
                continue;
            };
            let next = view.maps.rules.target(address, mailbox, tag);
            if *is_final {
                let end = End::Recipient(next.text);
                self.arrive(way, Ended { place, end, is_one_of_several: several })?;
            } else {
                self.follow(way, &next, Some(&identity), depth + 1, several)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, way: &mut Way) -> Result<(), Stopped> {
        way.steps += 1;
        self.steps += 1;
        if self.steps > MAX_STEPS { Err(self.too_many(way.steps > MAX_STEPS, ADDRESSES)) } else { Ok(()) }
    }

    fn arrive(&mut self, way: &mut Way, ended: Ended) -> Result<(), Stopped> {
        way.recipients += 1;
        self.recipients += 1;
        if self.recipients > MAX_RECIPIENTS {
            return Err(self.too_many(way.recipients > MAX_RECIPIENTS, RECIPIENTS));
        }
        way.ends.push(ended);
        Ok(())
    }

    /// By itself, or only together with the other recipients.
    fn too_many(&self, by_itself: bool, what: &str) -> Stopped {
        if by_itself {
            Stopped::Broken(format!("leads to more than {what}"))
        } else {
            Stopped::Waits(format!("the recipients of the message together lead to more than {what}"))
        }
    }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
