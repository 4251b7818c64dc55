//! Due paused rows come back (requirements E7, E8): when to sweep, and how many rows of each stage.
//!
//! A due row is older than fresh mail and so goes before it: whatever is swept, fresh mail has to wait for. So while other mail
//! comes to a stage, its due rows get what that leaves, and one worker is kept free for what comes next; only one row in
//! `SHARE` goes in any case, so that they get on behind ever so much. When no other mail comes they have all workers, where
//! messages are short all places in the pipelines. The others stay paused until there is room.
//!
//! A swept row that nobody claims (an operator took it, its claim was lost) is taken for gone after a while. After a restart
//! rows that were swept before count as other mail.

use super::chance::{Backoff, Chance};
use super::{Due, Job, Micros};
use std::collections::BTreeMap;

/// Due rows moved in one sweep, of each stage (E7: bounded steps).
const LIMIT: u32 = 256;
/// So long after other mail was claimed at a stage more of it is expected.
const OTHERS: Micros = 10_000_000;
/// While there is no room, one row is swept for so many others that were claimed.
const SHARE: u32 = 10;
/// A swept row that was not claimed for so long is not waited for.
const LOST: Micros = 60_000_000;
/// A few places are worth a sweep of their own so long after the last one.
const FEW: Micros = 1_000_000;
/// A sweep that moved nothing is not repeated sooner, whatever it says of the next due row.
const GAP: Micros = 50_000;
const RETRY: Micros = 1_000_000;
const LONGEST_RETRY: Micros = 30_000_000;

/// How many rows may be swept of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) stage: String,
    rows: u32,
    /// Enough for a statement.
    is_worth_it: bool,
}

/// A swept row that was not claimed yet.
#[derive(Clone, Debug)]
struct Swept {
    stage: String,
    at: Micros,
}

/// What was claimed at a stage and had not been swept.
#[derive(Clone, Debug)]
struct Others {
    last: Micros,
    /// Since the last sweep that had room here.
    count: u32,
}

/// What a stage is like now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// So many workers there may be.
    pub(super) workers: u32,
    /// So many rows their pipelines hold.
    pub(super) places: u32,
    /// So many rows are there, waiting or with a worker.
    pub(super) held: u32,
    /// Messages are short, and packed on few workers.
    pub(super) is_quick: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Sweeps {
    /// When rows of stages without a backlog are due.
    at: Option<Micros>,
    not_before: Micros,
    last: Micros,
    /// There was a sweep since the last claim: a claim that waits goes first now.
    pub(super) since_claim: bool,
    /// Stages of which more was due than there was room for, and from which time on, by the database's clock in
    /// microseconds; None: from the first.
    backlogs: BTreeMap<String, Option<i64>>,
    /// Other mail, by stage.
    others: BTreeMap<String, Others>,
    swept: BTreeMap<i64, Swept>,
    backoff: Backoff,
}

impl Sweeps {
    pub(super) fn new() -> Sweeps {
        Sweeps {
            at: None,
            not_before: 0,
            last: 0,
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

    /// How many rows of `stage` may be swept.
    pub(super) fn room(&self, now: Micros, stage: &str, load: Load) -> Room {
        let others = self.others.get(stage).filter(|others| others.is_recent(now));
        let limit = match (others, load.is_quick) {
            (None, true) => load.places,
            (None, false) => load.workers,
            (Some(_), true) => 1,
            (Some(_), false) => load.workers.saturating_sub(1),
        };
        let limit = limit.clamp(1, LIMIT);
        let awaited = |row: &&Swept| row.stage == stage && !row.is_lost(now);
        let awaited = u32::try_from(self.swept.values().filter(awaited).count()).unwrap_or(u32::MAX);
        let mut rows = limit.saturating_sub(awaited.saturating_add(load.held));
        if awaited == 0 && others.is_some_and(|others| others.count >= SHARE) {
            rows = rows.max(1);
        }
        // With all workers for them, some go at once.
        let is_worth_it =
            rows > 0 && (others.is_some() || rows >= limit / 4 || now >= self.last.saturating_add(FEW));
        Room { stage: stage.to_owned(), rows, is_worth_it }
    }

    /// Whether more was due than there was room for.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlogs.is_empty()
    }

    /// From when a sweep with this room is wanted; where there is none yet, from when time alone gives some.
    pub(super) fn wish(&self, now: Micros, rooms: &[Room]) -> Option<Micros> {
        let waiting = || rooms.iter().filter(|room| self.backlogs.contains_key(&room.stage));
        let at = if waiting().any(|room| room.is_worth_it) {
            Some(0)
        } else {
            let roomier = waiting().filter_map(|room| self.roomier(now, room));
            roomier.chain(self.at).min()
        };
        at.map(|at| at.max(self.not_before))
    }

    /// When other mail is no longer expected at a stage, a swept row no longer waited for, or little room is enough.
    fn roomier(&self, now: Micros, room: &Room) -> Option<Micros> {
        let stage = room.stage.as_str();
        let few = (room.rows > 0).then(|| self.last.saturating_add(FEW));
        let others = self.others.get(stage).filter(|others| others.is_recent(now));
        let quiet = others.map(|others| others.last.saturating_add(OTHERS));
        let awaited = self.swept.values().filter(|row| row.stage == stage && !row.is_lost(now));
        awaited.map(|row| row.at.saturating_add(LOST)).chain(quiet).chain(few).min()
    }

    pub(super) fn issue(&mut self, now: Micros, rooms: Vec<Room>) -> Job {
        self.at = None;
        self.last = now;
        self.since_claim = true;
        for room in rooms.iter().filter(|room| room.rows > 0) {
            if let Some(others) = self.others.get_mut(&room.stage) {
                others.count = 0;
            }
        }
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
            self.swept.insert(id, Swept { stage, at: now });
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

    /// A claim has looked when the first of all paused rows is due.
    pub(super) fn surveyed(&mut self, now: Micros, due_in: Option<Micros>) {
        self.at = due_in.map(|pause| now.saturating_add(pause));
        for since in self.backlogs.values_mut() {
            *since = None;
        }
        self.others.retain(|_, others| others.is_recent(now));
        self.swept.retain(|_, row| !row.is_lost(now));
    }

    /// A row was claimed, swept or not.
    pub(super) fn claimed(&mut self, now: Micros, stage: &str, id: i64) {
        if self.swept.remove(&id).is_none() {
            let others = self.others.entry(stage.to_owned()).or_insert(Others { last: now, count: 0 });
            others.last = now;
            others.count = others.count.saturating_add(1);
        }
    }
}

impl Others {
    fn is_recent(&self, now: Micros) -> bool {
        now < self.last.saturating_add(OTHERS)
    }
}

impl Swept {
    fn is_lost(&self, now: Micros) -> bool {
        now >= self.at.saturating_add(LOST)
    }
}
