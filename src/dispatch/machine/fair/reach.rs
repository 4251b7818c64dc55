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
const PAUSE: Micros = 32;
/// But no longer than this.
const LONGEST_PAUSE: Micros = 10_000_000;
/// What such a claim is thought to take before there was one.
const USUAL: Micros = 1_000;
const USUAL_OVER: Micros = 8;
/// At most so many ids are looked up by one claim; with more a round finds them.
const MAX_TOUCHED: usize = 1024;

/// How far the round of a stage is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Round {
    Over,
    /// To begin.
    Due,
    /// Senders up to this one are visited.
    Visited(String),
}

/// One stage.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Senders matter, so a round visits them.
    visits: bool,
    floor: i64,
    /// Rows from here on may be of senders not known; None until the first claim told how far ids go.
    mark: Option<i64>,
    round: Round,
    /// Something happened behind the round's back: another one after it.
    again: bool,
    /// A heartbeat: the next claim begins a round, whatever it costs.
    beat: bool,
}

/// What a claim looked at, of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub floor: i64,
    pub mark: i64,
    /// Where the round goes on; None: this claim has no part in it.
    pub cursor: Option<String>,
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

impl Reach {
    pub fn new(visits: bool) -> Reach {
        Reach { visits, floor: 0, mark: None, round: Round::Due, again: false, beat: false }
    }

    /// Others may have made any row pending.
    pub fn expose(&mut self) {
        match self.round {
            Round::Over | Round::Due => self.round = Round::Due,
            Round::Visited(_) => self.again = true,
        }
    }

    /// Nothing may stay unseen for longer than a heartbeat.
    pub fn beat(&mut self) {
        self.round = Round::Due;
        self.beat = true;
    }

    /// A row with this id is known to wait.
    pub fn lower(&mut self, id: i64) {
        self.floor = self.floor.min(id);
    }

    pub fn is_round_over(&self) -> bool {
        self.round == Round::Over
    }

    pub fn look(&self, round_is_due: bool) -> Look {
        let mark = self.mark.unwrap_or(i64::MAX);
        match &self.round {
            Round::Due if round_is_due || self.beat => Look { floor: 0, mark, cursor: Some(String::new()) },
            Round::Visited(sender) if round_is_due => {
                Look { floor: self.floor, mark, cursor: Some(sender.clone()) }
            }
            Round::Over | Round::Due | Round::Visited(_) => Look { floor: self.floor, mark, cursor: None },
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
        if look.cursor.is_none() {
            return;
        }
        self.beat = false;
        let next = match (found.floor, found.cursor) {
            // All were taken, whoever sent them.
            (None, _) => None,
            // Nobody was visited, but the floor is right now.
            (Some(_), None) if found.fifo_alone && self.visits => look.cursor.clone(),
            (Some(_), cursor) => cursor,
        };
        self.round = match next {
            Some(sender) => Round::Visited(sender),
            None if std::mem::take(&mut self.again) => Round::Due,
            None => Round::Over,
        };
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
    pause_until: Micros,
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
    pub fn rounds_from(&self) -> Micros {
        self.pause_until
    }

    /// A claim took that long, with a part of a round or without.
    pub fn claim_took(&mut self, now: Micros, took: Micros, with_round: bool) {
        if with_round {
            let more = took.saturating_sub(self.usual.unwrap_or(USUAL));
            self.pause_until = now.saturating_add(more.saturating_mul(PAUSE).min(LONGEST_PAUSE));
        } else {
            let usual = self.usual.unwrap_or(took);
            self.usual = Some(usual - usual / USUAL_OVER + took / USUAL_OVER);
        }
    }

    /// No rounds for a while.
    pub fn rest(&mut self, now: Micros) {
        self.pause_until = now.saturating_add(LONGEST_PAUSE);
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
