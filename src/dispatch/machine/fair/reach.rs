//! Where in the index a claim has to look (requirements W4, F7, F8), so that it neither reads what was claimed before nor
//! misses what waits.
//!
//! While any session of the server holds an old snapshot, the index entries of rows that have passed stay, and reading
//! over them costs more the longer it lasts. So each stage has a floor: no waiting row is older, as far as is known. It is
//! exact as of the claim that set it, and sound because what can become pending below it is known otherwise:
//! - a row that left a worker, was given back or swept is named to the next claim by its id (`touch`);
//! - a new row has an id above those that had been given out `LAG` before that claim, unless its transaction took longer;
//! - whatever else others do to rows they tell by a notification, or the heartbeat stands for it: a round begins.
//!
//! A round looks at a stage from its first entry, then visits the waiting senders in the order of their keys, some a claim. It
//! alone would find every row; all else only makes it seldom needed. After each part it rests, the longer the more that
//! cost, so that rounds take little of the time whatever lies in the index. A heartbeat begins a new one without rest.

use super::Micros;

/// A transaction that makes rows is taken to have ended so long after it was given their ids.
const LAG: Micros = 1_000_000;
/// At most so many greatest ids are remembered for `LAG`.
const TOPS: usize = 20;
/// After a part of a round there is none for so many times what it took longer than a claim without.
const REST: Micros = 32;
/// But no longer than this.
const LONGEST_REST: Micros = 10_000_000;
/// What such a claim is thought to take before there was one.
const USUAL: Micros = 1_000;
const USUAL_OVER: Micros = 8;
/// At most so many ids are looked up by one claim; with more a round finds them.
const MAX_TOUCHED: usize = 1024;

/// One stage.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Senders matter, so they are visited.
    visits: bool,
    floor: i64,
    /// Rows from here on may be of senders not known; None until the first claim told how far ids go.
    mark: Option<i64>,
    /// Rows may lie below the floor, and are looked for by then at the latest, even if others go on with their rounds
    /// meanwhile.
    exposed: Option<Micros>,
    /// Visits are under way, and got as far as this sender.
    visited: Option<String>,
    /// Something happened behind their back: they begin again after the last.
    again: bool,
}

/// What a claim looked at, of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub floor: i64,
    pub mark: i64,
    /// Where the visits go on; None: this claim makes none.
    pub cursor: Option<String>,
    /// It looks from the first entry, and by then at the latest it had to.
    exposed: Option<Micros>,
}

/// What it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The oldest row that was not taken; None: all were.
    pub floor: Option<i64>,
    pub mark: Option<i64>,
    pub cursor: Option<String>,
    /// New rows and senders were not looked for.
    pub fifo_alone: bool,
}

impl Look {
    /// Whether it is more than a claim has to look at.
    pub fn is_of_round(&self) -> bool {
        self.exposed.is_some() || self.cursor.is_some()
    }
}

impl Reach {
    /// Nothing is known: a round begins at once.
    pub fn new(visits: bool) -> Reach {
        let mut reach = Reach { visits, floor: 0, mark: None, exposed: None, visited: None, again: false };
        reach.overdue();
        reach
    }

    /// Others may have made any row pending.
    pub fn expose(&mut self, now: Micros) {
        self.expose_by(now.saturating_add(LONGEST_REST));
    }

    /// They may have done so long ago.
    pub fn overdue(&mut self) {
        self.expose_by(0);
    }

    fn expose_by(&mut self, latest: Micros) {
        self.exposed = Some(self.exposed.map_or(latest, |exposed| exposed.min(latest)));
        if self.visited.is_some() {
            self.again = true;
        } else if self.visits {
            self.visited = Some(String::new());
        }
    }

    /// A row with this id is known to wait.
    pub fn lower(&mut self, id: i64) {
        self.floor = self.floor.min(id);
    }

    /// From when a claim would go on with the round; None: it is over.
    pub fn wish(&self, rest_until: Micros) -> Option<Micros> {
        let exposed = self.exposed.map(|latest| latest.min(rest_until));
        let visits = self.visited.as_ref().map(|_| rest_until);
        exposed.into_iter().chain(visits).min()
    }

    /// What the next claim looks at. Rows that become exposed while it is under way are for the one after it.
    pub fn look(&mut self, now: Micros, rest_until: Micros) -> Look {
        let exposed = self.exposed.take_if(|latest| now >= rest_until.min(*latest));
        Look {
            floor: if exposed.is_some() { 0 } else { self.floor },
            mark: self.mark.unwrap_or(i64::MAX),
            cursor: self.visited.clone().filter(|_| now >= rest_until),
            exposed,
        }
    }

    /// That claim did not come about.
    pub fn missed(&mut self, look: &Look) {
        if let Some(latest) = look.exposed {
            self.expose_by(latest);
        }
    }

    /// A claim that looked there found that; `settled`: rows up to this id, and the ids of no transaction under way, were
    /// given out well before it; `top`: the greatest id given out by now.
    pub fn found(&mut self, look: &Look, found: Found, settled: i64, top: i64) {
        let beyond = settled.saturating_add(1);
        // A look from the first entry may have found the floor too high.
        let least = if look.floor == 0 { 0 } else { self.floor };
        self.floor = found.floor.unwrap_or_else(|| beyond.max(least));
        self.mark = match (self.mark, found.mark) {
            (None, _) => Some(top.saturating_add(1)),
            (Some(mark), _) if found.fifo_alone => Some(mark),
            (Some(_), Some(next)) => Some(next),
            (Some(mark), None) => Some(mark.max(beyond)),
        };
        let Some(cursor) = &look.cursor else { return };
        self.visited = match (found.floor, found.cursor) {
            // All were taken, whoever sent them.
            (None, _) => None,
            // Nobody was visited.
            (Some(_), None) if found.fifo_alone => Some(cursor.clone()),
            (Some(_), next) => next,
        };
        if self.visited.is_none() && std::mem::take(&mut self.again) {
            self.visited = Some(String::new());
        }
    }
}

/// What all stages share.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The greatest id given out, as of some times, oldest first.
    tops: Vec<(Micros, i64)>,
    touched: Vec<i64>,
    /// So many of them the claim under way was told.
    told: usize,
    overflowed: bool,
    /// What a claim without a part of a round takes.
    usual: Option<Micros>,
    rest_until: Micros,
}

impl Watch {
    /// A row changed its place and we know its id.
    pub fn touch(&mut self, id: i64) {
        if self.touched.len() < MAX_TOUCHED {
            self.touched.push(id);
        } else {
            self.overflowed = true;
        }
    }

    /// The ids a claim must look up; true with it: there were more, and a round has to find them.
    pub fn tell(&mut self) -> (Vec<i64>, bool) {
        let mut ids = self.touched.clone();
        ids.sort_unstable();
        ids.dedup();
        self.told = self.touched.len();
        (ids, std::mem::take(&mut self.overflowed))
    }

    /// The claim looked them up.
    pub fn heard(&mut self) {
        self.touched.drain(..self.told);
        self.told = 0;
    }

    /// The claim did not come about; they are told again.
    pub fn unheard(&mut self) {
        self.told = 0;
    }

    /// The greatest id that had been given out a while before `now`.
    pub fn settled(&self, now: Micros) -> i64 {
        let old = self.tops.iter().rev().find(|(at, _)| has_settled(*at, now));
        old.map_or(0, |(_, top)| *top)
    }

    pub fn top(&mut self, now: Micros, top: i64) {
        if self.tops.last().is_some_and(|(at, _)| at.saturating_add(LAG / TOPS as Micros) > now) {
            return;
        }
        // The newest of those that are old enough is all that is needed of them.
        let old = self.tops.iter().rposition(|(at, _)| has_settled(*at, now)).unwrap_or(0);
        self.tops.drain(..old);
        self.tops.push((now, top));
    }

    /// When rounds may go on.
    pub fn rest_until(&self) -> Micros {
        self.rest_until
    }

    /// A claim took that long, with a part of a round or without.
    pub fn claim_took(&mut self, now: Micros, took: Micros, with_round: bool) {
        if with_round {
            let more = took.saturating_sub(self.usual.unwrap_or(USUAL));
            self.rest_until = now.saturating_add(more.saturating_mul(REST).min(LONGEST_REST));
        } else {
            let usual = self.usual.unwrap_or(took);
            self.usual = Some(usual - usual / USUAL_OVER + took / USUAL_OVER);
        }
    }

    /// No rounds for a while.
    pub fn rest(&mut self, now: Micros) {
        self.rest_until = now.saturating_add(LONGEST_REST);
    }

    /// A new connection, another time: nothing of the old is known.
    pub fn reset(&mut self) {
        *self = Watch::default();
    }
}

/// Whether the transactions of that time have ended by now.
fn has_settled(at: Micros, now: Micros) -> bool {
    at.saturating_add(LAG) <= now
}
