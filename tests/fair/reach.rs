//! Claims find every waiting row, and read next to nothing of what has passed: a pipeline in memory whose index keeps all
//! entries for ever, as PostgreSQL's does while some session holds a snapshot.

use crate::fair::choose::{Row, choose};
use crate::fair::{Ask, End, Fair, Micros, Notice, Settings, Taken};
use crate::prng::Prng;
use crate::world::{MS, SECOND, settings};
use std::collections::BTreeMap;

const STAGES: usize = 3;
const HEARTBEAT: Micros = 30 * SECOND;
/// What a claim takes without dead entries, and what each of them adds (measured, rounded).
const CLAIM: Micros = 300;
const ENTRIES_A_MICRO: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waits,
    Runs,
    /// Its transaction has not ended.
    Hidden {
        until: Micros,
    },
    /// Paused or failed, until somebody outside takes it up.
    Parked,
}

#[derive(Clone, Debug)]
struct Message {
    stage: usize,
    sender: String,
    place: Place,
}

/// How a run is disturbed.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// Of a thousand messages, how many are parked at a stage, and how many are given back without a run.
    parked: u64,
    given_back: u64,
    /// Of a thousand, how many are committed late, out of their order.
    late: u64,
    /// Messages of a sender whose backlog waits through the whole run.
    backlog: u64,
}

struct Pipeline {
    prng: Prng,
    now: Micros,
    fair: Fair,
    messages: BTreeMap<i64, Message>,
    /// By stage and id: the sender of each entry that was ever made.
    entries: Vec<BTreeMap<i64, String>>,
    top: i64,
    heartbeat: Micros,
    /// Time of each claim.
    took: Vec<Micros>,
    weather: Weather,
}

impl Pipeline {
    fn new(seed: u64, settings: Settings, weather: Weather) -> Pipeline {
        Pipeline {
            prng: Prng::new(seed),
            now: 0,
            fair: Fair::new(settings, STAGES),
            messages: BTreeMap::new(),
            entries: vec![BTreeMap::new(); STAGES],
            top: 0,
            heartbeat: HEARTBEAT,
            took: Vec::new(),
            weather,
        }
    }

    fn arrive(&mut self, sender: String) {
        self.top += 1;
        let late = self.prng.chance(self.weather.late);
        let place = if late { Place::Hidden { until: self.now + 700 * MS } } else { Place::Waits };
        self.messages.insert(self.top, Message { stage: 0, sender: sender.clone(), place });
        if !late {
            self.entries[0].insert(self.top, sender);
            self.fair.expose(self.now);
        }
    }

    /// Transactions end, and sometimes a person takes up what was parked: both notify.
    fn outside(&mut self) {
        let resume = self.prng.chance(5);
        for (id, message) in &mut self.messages {
            let comes = match message.place {
                Place::Hidden { until } => until <= self.now,
                Place::Parked => resume,
                Place::Waits | Place::Runs => false,
            };
            if comes {
                message.place = Place::Waits;
                self.entries[message.stage].insert(*id, message.sender.clone());
                self.fair.expose(self.now);
            }
        }
        if self.now >= self.heartbeat {
            self.heartbeat = self.now + HEARTBEAT;
            self.fair.beat();
        }
    }

    /// A running message ends its stage.
    fn answer(&mut self) {
        let running: Vec<i64> = self.of(Place::Runs);
        if running.is_empty() {
            return;
        }
        let id = self.prng.pick(&running);
        let spent = self.prng.between(10, 100) * MS;
        let (parked, given_back) =
            (self.prng.chance(self.weather.parked), self.prng.chance(self.weather.given_back));
        let message = self.messages.get_mut(&id).expect("it runs");
        let end = if given_back { End::Unrun } else { End::Ran(spent) };
        self.fair.settle(self.now, (id, 1), end);
        message.place = Place::Waits;
        if parked {
            message.place = Place::Parked;
        } else if !given_back {
            self.fair.measured(message.stage, spent);
            message.stage += 1;
        }
        self.fair.touch(id);
        if message.stage == STAGES {
            self.messages.remove(&id);
        } else if !parked {
            self.entries[message.stage].insert(id, message.sender.clone());
        }
    }

    fn of(&self, place: Place) -> Vec<i64> {
        self.messages.iter().filter(|(_, message)| message.place == place).map(|(id, _)| *id).collect()
    }

    fn claim(&mut self, capacities: &[u32; STAGES]) {
        let (demands, touched) = self.fair.demand(self.now, capacities, false);
        let is_waiting = |(_, message): &(&i64, &Message)| message.place == Place::Waits;
        let row = |(id, message): (&i64, &Message)| Row {
            id: *id,
            stage: message.stage,
            sender: message.sender.clone(),
        };
        let queue: Vec<Row> = self.messages.iter().filter(is_waiting).map(row).collect();
        let choice = choose(&queue, &demands, &touched);
        let dead = self.dead_entries(&queue, &demands, &choice.notices.iter().cloned().collect::<Vec<_>>());
        let took = CLAIM + dead / ENTRIES_A_MICRO;
        self.took.push(took);
        self.now += took;
        let taken: Vec<Row> =
            queue.iter().filter(|row| choice.taken.contains(&(row.stage, row.id))).cloned().collect();
        for row in &taken {
            self.messages.get_mut(&row.id).expect("it waits").place = Place::Runs;
        }
        let rows: Vec<Taken<'_>> = taken
            .iter()
            .map(|row| Taken { stage: row.stage, id: row.id, claim: 1, sender: &row.sender })
            .collect();
        let notices: Vec<_> = choice.notices.into_iter().collect();
        self.fair.claimed(self.now, &rows, &notices, self.top);
        if self.fair_is_on() {
            let running = self.of(Place::Runs);
            assert_eq!(
                self.fair.unsettled().map(|(id, _)| id).collect::<Vec<_>>(),
                running,
                "each charge is settled once"
            );
        }
    }

    fn fair_is_on(&self) -> bool {
        self.fair.unsettled().next().is_some()
    }

    /// Entries that this claim's ranges have to pass and that lead to no waiting row, about as PostgreSQL would.
    fn dead_entries(&self, queue: &[Row], demands: &[Ask], notices: &[(usize, Notice)]) -> u64 {
        let mut dead = 0;
        for (stage, demand) in demands.iter().enumerate().filter(|(_, demand)| demand.capacity > 0) {
            let live = |id: &i64| {
                self.messages.get(id).is_some_and(|row| row.place == Place::Waits && row.stage == stage)
            };
            let entries = &self.entries[stage];
            // A range from `from` ends behind the last of `limit` waiting rows, or at the end of the stage.
            let mut pass = |from: i64, limit: usize, sender: Option<&str>| {
                let mut found = 0;
                for (id, _) in
                    entries.range(from..).filter(|(_, of)| sender.is_none_or(|sender| sender == *of))
                {
                    if live(id) {
                        found += 1;
                        if found == limit {
                            break;
                        }
                    } else {
                        dead += 1;
                    }
                }
            };
            pass(demand.floor, demand.capacity as usize + 1, None);
            let waiting = queue.iter().filter(|row| row.stage == stage && row.id >= demand.floor).count();
            if waiting <= demand.capacity as usize || demand.fifo_slots >= demand.capacity {
                continue;
            }
            pass(demand.mark, crate::fair::choose::FRESH_LIMIT, None);
            for listed in &demand.senders {
                if let Some(floor) = listed.floor {
                    pass(floor, listed.rows as usize, Some(&listed.sender));
                }
            }
            if demand.visits > 0 {
                let last = notices.iter().find_map(|(of, notice)| match notice {
                    Notice::Cursor { sender } if *of == stage => Some(sender.as_str()),
                    _ => None,
                });
                let behind =
                    |sender: &str| sender > demand.cursor.as_str() && last.is_none_or(|last| sender <= last);
                dead += entries.iter().filter(|(id, sender)| behind(sender) && !live(id)).count() as u64;
            }
        }
        dead
    }

    fn step(&mut self, arrivals: bool) {
        self.now += self.prng.between(1, 10) * MS;
        let rare = self.prng.below(500);
        if arrivals && self.prng.chance(600) {
            let sender = self.prng.pick(&[0, 1, 2, 3, 10, rare]);
            self.arrive(format!("s{sender}"));
        }
        self.outside();
        for _ in 0..self.prng.below(4) {
            self.answer();
        }
        let running = self.of(Place::Runs).len() as u32;
        let capacities = [self.prng.below(4) as u32, self.prng.below(4) as u32, self.prng.below(8) as u32];
        if running < 30 {
            self.claim(&capacities);
        }
    }

    /// A run of so many steps, then everything has to come to its end.
    fn run(&mut self, steps: u64) {
        for number in 0..self.weather.backlog {
            self.arrive(format!("heavy{}", number % 3));
        }
        for _ in 0..steps {
            self.step(true);
        }
        self.weather = Weather { parked: 0, given_back: 0, late: 0, backlog: 0 };
        let end = self.now + 2 * HEARTBEAT + self.messages.len() as Micros * 100 * MS;
        while !self.messages.is_empty() {
            assert!(self.now < end, "rows that nobody finds: {:?}", self.messages);
            self.step(false);
        }
    }
}

const CALM: Weather = Weather { parked: 0, given_back: 0, late: 0, backlog: 0 };

// Req: F7
// Req: W4
#[test]
fn every_waiting_row_is_found() {
    for seed in 0..6 {
        for fair in [true, false] {
            let weather = Weather { parked: 30, given_back: 30, late: 100, backlog: 40 * (seed % 3) };
            Pipeline::new(seed, settings(fair), weather).run(1_000);
        }
    }
}

// Req: W4
// Req: F8
#[test]
fn what_has_passed_costs_nothing_though_its_entries_stay() {
    for (fair, backlog) in [(true, 0), (true, 400), (false, 0)] {
        let mut pipeline = Pipeline::new(3, settings(fair), Weather { backlog, ..CALM });
        pipeline.run(4_000);
        let entries: usize = pipeline.entries.iter().map(BTreeMap::len).sum();
        assert!(entries > 5_000, "{entries} entries");
        // Entries of the last second are read again by each claim, all others by the parts of rounds alone.
        pipeline.took.sort_unstable();
        let median = pipeline.took[pipeline.took.len() / 2];
        assert!(median <= CLAIM * 6 / 5, "fair {fair}, backlog {backlog}: {median} us");
        let more: Micros = pipeline.took.iter().map(|took| took.saturating_sub(CLAIM * 3 / 2)).sum();
        assert!(more * 25 <= pipeline.now, "fair {fair}, backlog {backlog}: {more} of {} us", pipeline.now);
    }
}
