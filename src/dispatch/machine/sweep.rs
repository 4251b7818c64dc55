//! Due paused rows come back (requirements E7, E8): when to sweep, and how many rows of each stage.
//!
//! A due row is older than fresh mail and so goes before it: whatever is swept, fresh mail has to wait for. So of each stage
//! only so many swept rows are on their way at a time, from the sweep to the answer: half as many as it may have workers while
//! other mail comes there too, as many as fit into its pipelines when none does. The others stay paused until there is room.
//!
//! A swept row that nobody claims (an operator took it, its claim was lost) is taken for gone after a while. After a restart
//! rows that were swept before count as other mail.

use super::chance::{Backoff, Chance};
use super::{Due, Job, Micros};
use std::collections::{BTreeMap, BTreeSet};

/// Due rows moved in one sweep, of each stage (E7: bounded steps).
const LIMIT: u32 = 256;
/// So long after other mail was claimed at a stage more of it is expected.
const OTHERS: Micros = 10_000_000;
/// A swept row that was not claimed for so long is not waited for.
const LOST: Micros = 60_000_000;
/// A sweep that moved nothing is not repeated sooner, whatever it says of the next due row.
const GAP: Micros = 50_000;
const RETRY: Micros = 1_000_000;
const LONGEST_RETRY: Micros = 30_000_000;

/// How many rows may be swept of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) stage: String,
    rows: u32,
    /// With nothing on its way.
    limit: u32,
}

impl Room {
    /// A sweep costs a statement: it waits until there is room for some rows at once.
    fn is_worth_it(&self) -> bool {
        self.rows > 0 && self.rows >= self.limit / 4
    }
}

/// A swept row that is not answered.
#[derive(Clone, Debug)]
struct Swept {
    stage: String,
    at: Micros,
    claimed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Sweeps {
    /// When rows of stages without a backlog are due.
    at: Option<Micros>,
    not_before: Micros,
    /// There was a sweep since the last claim: a claim that waits goes first now.
    pub(super) since_claim: bool,
    /// Stages of which more was due than there was room for, and from which time on, by the database's clock in
    /// microseconds; None: from the first.
    backlogs: BTreeMap<String, Option<i64>>,
    /// When other mail was last claimed, by stage.
    others: BTreeMap<String, Micros>,
    swept: BTreeMap<i64, Swept>,
    backoff: Backoff,
}

impl Sweeps {
    pub(super) fn new() -> Sweeps {
        Sweeps {
            at: None,
            not_before: 0,
            since_claim: false,
            backlogs: BTreeMap::new(),
            others: BTreeMap::new(),
            swept: BTreeMap::new(),
            backoff: Backoff::new(RETRY, LONGEST_RETRY),
        }
    }

    /// A new connection: paused rows may be due.
    pub(super) fn connected(&mut self, now: Micros) {
        self.at = Some(now);
        self.not_before = 0;
        self.since_claim = false;
        self.backlogs.clear();
        self.backoff.reset();
    }

    /// The connection is gone, and with it whatever job was under way.
    pub(super) fn lost(&mut self) {
        self.at = None;
        self.backlogs.clear();
    }

    /// How many rows of `stage` may be swept, which may have so many workers and holds so many rows.
    pub(super) fn room(&self, now: Micros, stage: &str, workers: u32, places: u32) -> Room {
        let is_shared = self.others.get(stage).is_some_and(|at| now < at.saturating_add(OTHERS));
        let limit = if is_shared { (workers / 2).max(1) } else { places.clamp(1, LIMIT) };
        let here = |row: &&Swept| row.stage == stage && !row.is_lost(now);
        let on_their_way = u32::try_from(self.swept.values().filter(here).count()).unwrap_or(u32::MAX);
        Room { stage: stage.to_owned(), rows: limit.saturating_sub(on_their_way), limit }
    }

    /// From when a sweep with this room is wanted.
    pub(super) fn wish(&self, rooms: &[Room]) -> Option<Micros> {
        let go_on = |room: &Room| room.is_worth_it() && self.backlogs.contains_key(&room.stage);
        let at = if rooms.iter().any(go_on) { Some(0) } else { self.at };
        at.map(|at| at.max(self.not_before))
    }

    pub(super) fn issue(&mut self, rooms: Vec<Room>) -> Job {
        self.at = None;
        self.since_claim = true;
        let due = |room: Room| Due {
            since: self.backlogs.get(&room.stage).copied().flatten(),
            stage: room.stage,
            rows: room.rows,
        };
        Job::Sweep { stages: rooms.into_iter().map(due).collect() }
    }

    /// These rows went, by stage; of those stages more are due; `due_in`: until the next is due of the others.
    pub(super) fn done(
        &mut self,
        now: Micros,
        rows: Vec<(String, i64)>,
        more: Vec<(String, i64)>,
        due_in: Option<Micros>,
    ) {
        self.backoff.reset();
        self.at = due_in.map(|pause| now.saturating_add(pause));
        self.backlogs = more.into_iter().map(|(stage, since)| (stage, Some(since))).collect();
        if rows.is_empty() {
            self.not_before = now.saturating_add(GAP);
        }
        for (stage, id) in rows {
            self.swept.insert(id, Swept { stage, at: now, claimed: false });
        }
    }

    pub(super) fn refused(&mut self, now: Micros, chance: &mut Chance) {
        self.not_before = now.saturating_add(self.backoff.next(chance));
        self.at = Some(self.not_before);
    }

    /// A claim heard of rows that were paused: the first is due then.
    pub(super) fn heard(&mut self, now: Micros, due_in: Option<Micros>) {
        let heard = due_in.map(|pause| now.saturating_add(pause));
        self.at = self.at.into_iter().chain(heard).min();
    }

    /// A claim has looked when the first of all paused rows is due. What is not held and was claimed is gone.
    pub(super) fn surveyed(&mut self, now: Micros, due_in: Option<Micros>, held: &BTreeSet<i64>) {
        self.at = due_in.map(|pause| now.saturating_add(pause));
        for since in self.backlogs.values_mut() {
            *since = None;
        }
        self.others.retain(|_, at| now < at.saturating_add(OTHERS));
        self.swept.retain(|id, row| if row.claimed { held.contains(id) } else { !row.is_lost(now) });
    }

    /// A row was claimed, swept or not.
    pub(super) fn claimed(&mut self, now: Micros, stage: &str, id: i64) {
        match self.swept.get_mut(&id) {
            Some(row) => row.claimed = true,
            None => {
                self.others.insert(stage.to_owned(), now);
            }
        }
    }

    /// It has left its worker.
    pub(super) fn gone(&mut self, id: i64) {
        self.swept.remove(&id);
    }
}

impl Swept {
    fn is_lost(&self, now: Micros) -> bool {
        !self.claimed && now >= self.at.saturating_add(LOST)
    }
}
