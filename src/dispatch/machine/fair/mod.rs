//! Fair shares among senders (requirements F2-F8, F10, W4): what each claim asks for, and what its outcome means.
//!
//! The database chooses rows, told whom the stage has served how much (`demand`); what came of it is noted (`claimed`), and each
//! claimed row is settled once. docs/fairness.md tells the algorithm. Pure: `now` is an argument, and nothing of the machine
//! around it is used, so that the tests can include this room alone.
//!
//! Invariants: leads are whole microseconds and not negative; a charge is settled once, since its claim is forgotten with it;
//! the shares are a matter of order alone: whatever they hold, every waiting row is served sooner or later, by the FIFO slots.

#[cfg(test)]
pub mod choose;
mod reach;
pub mod share;
mod stage;
#[cfg(test)]
mod tests;

use reach::{Look, Reach, Watch};
use stage::{Outcome, Stage};
use std::collections::BTreeMap;

/// Microseconds of the monotonic clock.
pub type Micros = u64;

/// At most so many senders that are thought to wait are listed, and so many visited: 64 a stage a claim together (F7).
pub const WINDOW: usize = 48;
pub const VISITS: u32 = 16;
/// More senders are listed than the capacity asks for, since some turn out to have nothing waiting.
const SPARE: usize = 2;
/// At most so many that are not thought to wait are listed for their lead alone, the foremost.
pub const LEADS: usize = 32;
/// More rows of one stage are not asked for by one claim.
const MAX_CAPACITY: u32 = 1_000_000;

/// Of `[pepsi-dispatch]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub fair: bool,
    pub half_life: Micros,
    pub fifo_percent: u32,
}

/// What a claim asks for one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// At most so many rows; 0: nothing is claimed, but touched rows are looked for.
    pub capacity: u32,
    /// Of which so many are the oldest, whoever sent them.
    pub fifo_slots: u32,
    /// Time of a message.
    pub average: i64,
    /// No waiting row is older, as far as is known.
    pub floor: i64,
    /// Rows from here on may be of senders not known yet.
    pub mark: i64,
    /// So many senders behind `cursor` are visited.
    pub visits: u32,
    pub cursor: String,
    /// The lead of senders that are not listed.
    pub unlisted: i64,
    pub senders: Vec<Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub sender: String,
    pub lead: i64,
    /// The oldest row that it may have waiting; None: it is not thought to wait.
    pub floor: Option<i64>,
    /// So many of its rows are read.
    pub rows: u32,
}

/// What a claim saw besides the rows that it took.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// A row of this sender waits and was not taken.
    Seen { id: i64, sender: String },
    /// The stage's oldest row that was not taken. Without it all were.
    Floor { id: i64 },
    /// Where the next reading of new rows begins.
    Mark { id: i64 },
    /// The last sender that was visited, and more may follow.
    Cursor { sender: String },
}

/// A row's id and the claim that took it.
pub type Claim = (i64, i64);

/// A row that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken<'a> {
    pub stage: usize,
    pub id: i64,
    pub claim: i64,
    pub sender: &'a str,
}

/// How a claimed message ended, for the account of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ran so long, and the stage's average learns from it.
    Ran(Micros),
    /// It crashed, or was killed after MAX_RUNTIME: charged, no example for others.
    Burned(Micros),
    /// It did not run.
    Unrun,
}

/// A charge that is not settled.
#[derive(Clone, Debug)]
struct Charge {
    stage: usize,
    sender: String,
    amount: Micros,
}

/// What the claim under way asked of a stage.
#[derive(Clone, Debug)]
struct Asked {
    ask: Ask,
    /// None without capacity.
    look: Option<Look>,
}

#[derive(Clone, Debug)]
pub struct Fair {
    settings: Settings,
    stages: Vec<Stage>,
    watch: Watch,
    charges: BTreeMap<Claim, Charge>,
    /// By stage; empty while no claim is under way.
    asked: Vec<Asked>,
    issued: Micros,
    skipping: bool,
}

impl Fair {
    pub fn new(settings: Settings, stages: usize) -> Fair {
        let mut fair = Fair {
            settings,
            stages: Vec::new(),
            watch: Watch::default(),
            charges: BTreeMap::new(),
            asked: Vec::new(),
            issued: 0,
            skipping: false,
        };
        fair.stages.resize_with(stages, || Stage::new(settings.fair));
        fair
    }

    /// Other stages from now on: what each of them was among the old ones. No claim may be under way.
    pub fn restage(&mut self, was: &[Option<usize>]) {
        assert!(self.asked.is_empty(), "a claim is under way");
        let fair = self.settings.fair;
        let old = std::mem::take(&mut self.stages);
        let stage = |was: &Option<usize>| {
            let kept = was.and_then(|was| old.get(was));
            kept.cloned().unwrap_or_else(|| Stage::new(fair))
        };
        self.stages = was.iter().map(stage).collect();
        let place = |charge: &Charge| was.iter().position(|was| *was == Some(charge.stage));
        self.charges.retain(|_, charge| match place(charge) {
            Some(stage) => {
                charge.stage = stage;
                true
            }
            None => false,
        });
    }

    /// What the next claim asks for, of each stage with that capacity, and the ids that it must look up.
    pub fn demand(&mut self, now: Micros, capacities: &[u32], skip_locked: bool) -> (Vec<Ask>, Vec<i64>) {
        assert!(self.asked.is_empty(), "one claim at a time");
        assert!(capacities.len() == self.stages.len(), "a capacity for each stage");
        let (touched, too_many) = self.watch.tell();
        if too_many {
            self.expose(now);
        }
        let step = self.step(now);
        let rest_until = self.watch.rest_until();
        for (stage, capacity) in self.stages.iter_mut().zip(capacities) {
            stage.share.decay(step);
            let look = (*capacity > 0).then(|| stage.reach.look(now, rest_until));
            let ask = stage.ask(&self.settings, (*capacity).min(MAX_CAPACITY), look.as_ref());
            self.asked.push(Asked { ask, look });
        }
        self.issued = now;
        self.skipping = skip_locked;
        (self.asked.iter().map(|asked| asked.ask.clone()).collect(), touched)
    }

    /// The claim took these rows and saw that; `top` is the greatest id given out by then.
    pub fn claimed(&mut self, now: Micros, taken: &[Taken<'_>], notices: &[(usize, Notice)], top: i64) {
        self.ended(now);
        let step = self.step(now);
        let settled = self.watch.settled(self.issued);
        // A row that was locked may have been passed over: then nothing is known of the others.
        let is_proof = !self.skipping;
        let mut rows: Vec<Vec<Taken<'_>>> = vec![Vec::new(); self.stages.len()];
        for row in taken {
            rows[row.stage].push(*row);
        }
        let mut seen: Vec<Vec<&Notice>> = vec![Vec::new(); self.stages.len()];
        for (stage, notice) in notices {
            seen[*stage].push(notice);
        }
        for (index, asked) in std::mem::take(&mut self.asked).into_iter().enumerate() {
            let stage = &mut self.stages[index];
            stage.share.decay(step);
            let outcome = Outcome::new(&rows[index], &seen[index]);
            if let Some(look) = &asked.look {
                if is_proof {
                    stage.reach.found(look, outcome.found(&asked.ask), settled, top);
                } else {
                    stage.reach.missed(look);
                }
            }
            outcome.seen.values().for_each(|id| stage.reach.lower(*id));
            if self.settings.fair {
                stage.note(now, &self.settings, &asked.ask, &outcome, is_proof);
                let amount = stage.share.average();
                stage.share.expect(rows[index].iter().map(|row| row.sender));
                for row in &rows[index] {
                    stage.share.charge(row.sender, amount);
                    let charge = Charge { stage: index, sender: row.sender.to_owned(), amount };
                    self.charges.insert((row.id, row.claim), charge);
                }
                stage.share.forget();
            }
        }
        if is_proof {
            self.watch.heard();
        } else {
            // What is locked may stay so for long: rounds go on later, and not as often as they find that out.
            self.watch.rest(now);
        }
        self.watch.top(now, top);
    }

    /// The claim did not come about.
    pub fn not_claimed(&mut self, now: Micros) {
        if !self.asked.is_empty() {
            self.ended(now);
        }
        self.forget_asked();
        self.watch.unheard();
    }

    fn forget_asked(&mut self) {
        for (stage, asked) in self.stages.iter_mut().zip(std::mem::take(&mut self.asked)) {
            if let Some(look) = &asked.look {
                stage.reach.missed(look);
            }
        }
    }

    fn ended(&mut self, now: Micros) {
        // One that looked nowhere says nothing about what a claim takes.
        if self.asked.iter().all(|asked| asked.look.is_none()) {
            return;
        }
        let with_round = self.asked.iter().any(|asked| asked.look.as_ref().is_some_and(Look::is_of_round));
        self.watch.claim_took(now, now.saturating_sub(self.issued), with_round);
    }

    /// A claimed row has ended; a second time means nothing.
    pub fn settle(&mut self, now: Micros, claim: Claim, end: End) {
        let Some(Charge { stage, sender, amount }) = self.charges.remove(&claim) else { return };
        let step = self.step(now);
        let share = &mut self.stages[stage].share;
        share.decay(step);
        let used = match end {
            End::Ran(spent) | End::Burned(spent) => spent,
            End::Unrun => 0,
        };
        share.settle(&sender, amount, used);
    }

    /// A message took that long at `stage`.
    pub fn measured(&mut self, stage: usize, spent: Micros) {
        self.stages[stage].share.measured(spent);
    }

    /// The row with this id may be pending now, at whatever stage.
    pub fn touch(&mut self, id: i64) {
        self.watch.touch(id);
    }

    /// Others may have made any rows pending: a notification.
    pub fn expose(&mut self, now: Micros) {
        self.stages.iter_mut().for_each(|stage| stage.reach.expose(now));
    }

    /// The heartbeat, for notifications that were lost.
    pub fn beat(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.reach.overdue());
    }

    /// A new connection.
    pub fn reconnected(&mut self) {
        self.asked.clear();
        self.watch.reset();
        for stage in &mut self.stages {
            stage.reach = Reach::new(self.settings.fair);
        }
    }

    /// From when a claim with that capacity would go on with a round that is not over; None: with none.
    pub fn round_wish(&self, capacities: &[u32]) -> Option<Micros> {
        let rest_until = self.watch.rest_until();
        let open = self.stages.iter().zip(capacities).filter(|(_, capacity)| **capacity > 0);
        open.filter_map(|(stage, _)| stage.reach.wish(rest_until)).min()
    }

    /// Senders kept for a stage, for who checks them.
    #[cfg(test)]
    pub fn senders(&self, stage: usize) -> &BTreeMap<String, share::Sender> {
        self.stages[stage].share.senders()
    }

    /// Claimed rows that are not settled.
    #[cfg(test)]
    pub fn unsettled(&self) -> impl Iterator<Item = Claim> {
        self.charges.keys().copied()
    }

    /// Small steps of time since the origin of the clock.
    fn step(&self, now: Micros) -> u64 {
        let step = (self.settings.half_life / share::STEPS).max(1);
        now / step
    }
}
