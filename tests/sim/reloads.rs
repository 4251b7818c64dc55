//! The configuration of a simulated world, who edits it and how, and the books about what the machine has read of it.

use super::prng::Prng;
use super::runs;
use super::world::{Happening, Incoming, MILLI, SECOND, World};
use crate::machine::{Fault, Micros, Reply, StageSpec};

/// Workers are not replaced more often; twice as long each time in a row.
const GAP: Micros = 500 * MILLI;
const LONGEST_GAP: Micros = 30 * SECOND;
const QUIET: Micros = 60 * SECOND;

/// What the configuration says.
#[derive(Clone, Debug)]
pub struct Written {
    pub stages: Vec<Option<StageSpec>>,
    /// Grows with what is no stage's: options that only workers read.
    revision: u64,
    malformed: bool,
    pub unreadable: bool,
}

impl Written {
    pub fn new(specs: &[StageSpec]) -> Written {
        let stages = specs.iter().cloned().map(Some).collect();
        Written { stages, revision: 0, malformed: false, unreadable: false }
    }

    /// Somebody changes something.
    fn edit(&mut self, prng: &mut Prng, names: &[String]) {
        let stage = prng.below(self.stages.len() as u64) as usize;
        match prng.below(8) {
            0 => {}
            1 => self.revision += 1,
            2 => self.malformed = prng.chance(200),
            3 | 4 => self.stages[stage] = None,
            _ => self.stages[stage] = Some(runs::spec_of(prng, &names[stage])),
        }
    }
}

/// What one life of the dispatcher has read, and has to read.
#[derive(Clone, Debug)]
pub struct Reloads {
    /// As of the last reading: the stages, whether they are there since when, and the revision.
    read: (Vec<Option<StageSpec>>, u64),
    since: Vec<Micros>,
    /// It was told of a change, or may have missed one, and has not begun to read since.
    wanted: Option<Micros>,
    /// It was told of one: workers are replaced whatever it reads.
    told: bool,
    /// And what it reads is meant.
    asked: bool,
    /// The reading under way was asked for by these two.
    under_way: (bool, bool),
    /// What a reading that was not asked for found, and did not take.
    seen: Option<(Vec<Option<StageSpec>>, u64)>,
    /// The revision that it found.
    found: u64,
    was_connected: bool,
    /// When workers may be replaced again, and how long that was after the last time.
    not_before: Micros,
    gap: Micros,
    pub malformed: bool,
}

impl Reloads {
    pub fn new(stages: usize) -> Reloads {
        Reloads {
            read: (vec![None; stages], 0),
            since: vec![0; stages],
            wanted: None,
            told: false,
            asked: false,
            under_way: (false, false),
            seen: None,
            found: 0,
            was_connected: false,
            not_before: 0,
            gap: 0,
            malformed: false,
        }
    }

    /// Whether the machine has that stage.
    pub fn has(&self, stage: usize) -> bool {
        self.read.0[stage].is_some()
    }

    /// Since when it has.
    pub fn since(&self, stage: usize) -> Micros {
        self.since[stage]
    }

    pub fn issued(&mut self, asked: bool) {
        self.wanted.take().expect("nobody asked for a rereading");
        self.under_way = (std::mem::take(&mut self.told), std::mem::take(&mut self.asked));
        assert_eq!(asked, self.under_way.1, "whether somebody said that it has changed");
    }

    /// The reading came to nothing, and the next is later.
    pub fn failed(&mut self, now: Micros, is_lost: bool) {
        if !is_lost {
            self.not_before = self.not_before.max(now + GAP);
        }
        let (told, asked) = std::mem::take(&mut self.under_way);
        self.told |= told;
        self.asked |= asked;
        self.wanted.get_or_insert(0);
    }

    fn replaced(&mut self, now: Micros) {
        let in_a_row = self.gap > 0 && now < self.not_before + QUIET;
        self.gap = if in_a_row { LONGEST_GAP.min(2 * self.gap) } else { GAP };
        self.not_before = now + self.gap;
    }
}

impl World {
    /// A dispatcher does not start with what does not parse; whoever starts it sees to that.
    pub fn read_at_start(&mut self) -> Vec<StageSpec> {
        self.written.malformed = false;
        self.note_read(self.written.stages.clone());
        self.life.reload.read.1 = self.written.revision;
        self.written.stages.iter().flatten().cloned().collect()
    }

    fn note_read(&mut self, stages: Vec<Option<StageSpec>>) {
        for (stage, spec) in stages.iter().enumerate() {
            if let Some(spec) = spec {
                self.specs[stage] = spec.clone();
                if !self.life.reload.has(stage) {
                    self.life.reload.since[stage] = self.now;
                    self.life.held[stage] = 0;
                    let name = &self.names[stage];
                    if self.machine.as_ref().is_none_or(|machine| machine.place(name).is_none()) {
                        self.life.average[stage] = None;
                    }
                }
            }
        }
        self.life.reload.read.0 = stages;
    }

    /// Somebody edits, once or in a burst, and each time it is told to who listens.
    pub fn edit(&mut self) {
        let times = if self.prng.chance(200) { self.prng.between(2, 8) } else { 1 };
        for _ in 0..times {
            self.written.edit(&mut self.prng, &self.names);
            self.tell_of_change();
        }
        if self.prng.chance(100) {
            self.written.unreadable = true;
            let end = self.prng.pick(&[SECOND, 20 * SECOND]);
            self.in_about(end, Happening::Overlay);
        }
        self.in_about(self.profile.reload_gap, Happening::Reload);
    }

    fn tell_of_change(&mut self) {
        if self.life.listens && self.machine.is_some() {
            self.inbox.push_back(Incoming::ConfigChanged);
        }
    }

    /// All stages are there, and nothing is wrong any more.
    pub fn mend_configuration(&mut self) {
        for (stage, spec) in self.specs.iter().enumerate() {
            self.written.stages[stage].get_or_insert(spec.clone());
        }
        self.written.malformed = false;
        self.written.unreadable = false;
        self.tell_of_change();
    }

    pub fn config_changed(&mut self) {
        self.life.reload.told = true;
        self.life.reload.asked = true;
        self.want_read();
    }

    /// Any connection but the first: it may have missed something.
    pub fn reconnected(&mut self) {
        if std::mem::replace(&mut self.life.reload.was_connected, true) {
            self.want_read();
        }
    }

    fn want_read(&mut self) {
        self.life.reload.told |= self.life.telemetry_at.take().is_some();
        self.life.reload.wanted.get_or_insert(self.now);
    }

    pub fn telemetry_changed(&mut self) {
        if self.life.reload.wanted.is_some() {
            self.life.reload.told = true;
        } else {
            self.life.telemetry_at.get_or_insert(self.now);
        }
    }

    /// The shell's part of a rereading.
    pub fn read_again(&mut self, asked: bool) -> Reply {
        let seen = self.life.reload.seen.take();
        if self.written.unreadable {
            return Reply::Fault(Fault::Refused("no permission".to_owned()));
        }
        if self.written.malformed && asked {
            return Reply::Malformed { code: 78, errors: vec!["t:1: nonsense".to_owned()] };
        }
        let now = (self.written.stages.clone(), self.written.revision);
        let is_same = self.life.reload.read == now;
        if self.written.malformed || (!asked && !is_same && seen.as_ref() != Some(&now)) {
            self.note("reload: half written, perhaps");
            self.life.reload.seen = Some(now).filter(|_| !self.written.malformed);
            return Reply::Fault(Fault::Refused("half written, perhaps".to_owned()));
        }
        self.life.reload.found = self.written.revision;
        Reply::Config {
            stages: self.written.stages.iter().flatten().cloned().collect(),
            changes: (!is_same).then(|| "edited".to_owned()),
        }
    }

    /// The reply to a rereading.
    pub fn reread(&mut self, reply: &Reply) {
        let is_ending = self.life.stopping.is_some() || self.life.given_up;
        if is_ending {
            self.note("reload: while stopping");
            return;
        }
        // What was wanted meanwhile has to wait for its turn.
        self.life.reload.wanted = self.life.reload.wanted.map(|_| self.now);
        let (told, _) = std::mem::take(&mut self.life.reload.under_way);
        match reply {
            Reply::Malformed { .. } => {
                self.life.reload.malformed = true;
                self.life.stopping = Some(self.now);
                self.life.troubled |= !self.life.locked;
            }
            Reply::Config { changes: None, .. } if !told => self.note("reload: nothing has changed"),
            Reply::Config { stages, .. } => self.reloaded(stages),
            other => panic!("a reply to a rereading: {other:?}"),
        }
    }

    /// All workers are replaced, cooldowns are over, the new table holds.
    fn reloaded(&mut self, stages: &[StageSpec]) {
        let find = |name: &String| stages.iter().find(|spec| spec.name == *name).cloned();
        let read: Vec<Option<StageSpec>> = self.names.iter().map(find).collect();
        for (stage, new) in read.iter().enumerate() {
            let live = self.processes.values().filter(|process| process.stage == stage).count();
            match (&self.life.reload.read.0[stage], new) {
                (None, Some(_)) => self.note("reload: stage added"),
                (Some(_), None) => self.note("reload: stage removed"),
                (Some(old), Some(spec)) if old != spec => self.note("reload: stage edited"),
                (Some(_), Some(_)) | (None, None) => {}
            }
            if new.as_ref().is_some_and(|spec| live > spec.parallelism as usize) {
                self.note("reload: fewer workers allowed than there are");
            }
            if self.now < self.life.cooling[stage] {
                self.note("reload: of a stage in cooldown");
            }
            self.life.cooling[stage] = 0;
            self.life.useless[stage] = 0;
        }
        self.note_read(read);
        self.life.reload.read.1 = self.life.reload.found;
        self.life.telemetry_at = None;
        self.life.reload.replaced(self.now);
        self.processes.values_mut().for_each(|process| process.retired = true);
        self.note("reload: all is replaced");
    }

    /// After each turn: a worker with old values is closed as soon as it has finished.
    pub fn check_retired(&mut self) {
        let ending = self.life.stopping.is_some() || self.life.given_up;
        let earliest = self.life.reload.not_before;
        if let Some(at) = self.life.telemetry_at.filter(|_| self.now >= earliest && !ending) {
            let old = self.processes.values_mut().filter(|process| process.born < at);
            old.for_each(|process| process.retired = true);
            self.life.telemetry_at = None;
            self.life.reload.replaced(self.now);
        }
        for process in self.processes.values().filter(|process| process.retired) {
            let at_work = !process.outstanding.is_empty() || !process.ghosts.is_empty();
            let ends = process.asked_to_close.or(process.closed_at).or(process.killed_at).is_some();
            assert!(at_work || ends, "a worker with old values is kept: {process:?}");
        }
    }

    /// While nothing is wrong: what is written is read, and rows of stages that are gone are given back. True while a
    /// rereading is awaited, when no row need be claimed.
    pub fn check_reloads(&self) -> bool {
        let reload = &self.life.reload;
        if let Some(since) = reload.wanted {
            let due = since.max(reload.not_before);
            assert!(self.now <= due + SECOND || since == 0, "a change is not read");
            return true;
        }
        let is_pending = self.inbox.iter().any(|incoming| matches!(incoming, Incoming::ConfigChanged));
        let is_read = reload.read.0 == self.written.stages && reload.read.1 == self.written.revision;
        assert!(is_read || is_pending, "an old configuration is kept");
        for (claim, entry) in &self.life.ledger {
            let kept = entry.place == super::books::Place::Kept && !reload.has(entry.stage);
            assert!(!kept, "{claim:?} waits at a stage that is gone");
        }
        false
    }
}
