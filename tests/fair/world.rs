//! A queue and a pool in memory, claimed through `Fair` by the model: enough to see who is served when.

use crate::fair::choose::{Row, choose};
use crate::fair::{End, Fair, Micros, Settings, Taken};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub const MS: Micros = 1_000;
pub const SECOND: Micros = 1_000_000;

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives { sender: String, cost: Micros },
    Finishes { id: i64 },
}

/// A message, for the record.
#[derive(Clone, Debug)]
pub struct Message {
    pub sender: String,
    pub cost: Micros,
    pub arrived: Micros,
    pub claimed: Option<Micros>,
    pub finished: Option<Micros>,
}

#[derive(Clone, Copy, Debug)]
pub struct Pool {
    pub parallelism: u32,
    pub queue_limit: u32,
}

/// One stage: messages arrive, are claimed whenever there is room, and are worked on in that order by `parallelism`.
pub struct World {
    pub now: Micros,
    pub fair: Fair,
    pub messages: Vec<Message>,
    /// Claims that took rows.
    pub claims: u64,
    pool: Pool,
    queue: Vec<Row>,
    events: BinaryHeap<std::cmp::Reverse<(Micros, u64, Event)>>,
    number: u64,
    claimed: VecDeque<i64>,
    running: BTreeMap<i64, Micros>,
}

pub fn settings(fair: bool) -> Settings {
    Settings { fair, half_life: 60 * SECOND, fifo_percent: 10 }
}

impl World {
    pub fn new(settings: Settings, pool: Pool) -> World {
        World {
            now: 0,
            fair: Fair::new(settings, 1),
            messages: Vec::new(),
            claims: 0,
            pool,
            queue: Vec::new(),
            events: BinaryHeap::new(),
            number: 0,
            claimed: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    fn at(&mut self, time: Micros, event: Event) {
        self.number += 1;
        self.events.push(std::cmp::Reverse((time, self.number, event)));
    }

    /// `count` messages of `sender`, the first at `from`, one each `gap`.
    pub fn send(&mut self, sender: &str, cost: Micros, from: Micros, gap: Micros, count: u64) {
        for number in 0..count {
            self.at(from + number * gap, Event::Arrives { sender: sender.to_owned(), cost });
        }
    }

    /// Until nothing happens any more, or that time.
    pub fn run(&mut self, until: Micros) {
        while let Some(std::cmp::Reverse((time, ..))) = self.events.peek() {
            if *time > until {
                break;
            }
            self.now = *time;
            while let Some(std::cmp::Reverse((time, _, event))) = self.events.pop() {
                if time > self.now {
                    self.events.push(std::cmp::Reverse((time, 0, event)));
                    break;
                }
                self.happen(event);
            }
            self.claim();
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrives { sender, cost } => {
                let id = self.messages.len() as i64;
                self.queue.push(Row { id, stage: 0, sender: sender.clone() });
                self.messages.push(Message {
                    sender,
                    cost,
                    arrived: self.now,
                    claimed: None,
                    finished: None,
                });
                self.fair.expose(self.now);
            }
            Event::Finishes { id } => {
                let spent = self.now - self.running.remove(&id).expect("it runs");
                self.messages[id as usize].finished = Some(self.now);
                self.fair.measured(0, spent);
                self.fair.settle(self.now, (id, 1), End::Ran(spent));
            }
        }
    }

    fn claim(&mut self) {
        loop {
            let held = self.claimed.len() + self.running.len();
            let capacity = self.pool.parallelism * self.pool.queue_limit - held as u32;
            if capacity == 0 {
                break;
            }
            let (demands, touched) = self.fair.demand(self.now, &[capacity], false);
            let choice = choose(&self.queue, &demands, &touched);
            let taken: Vec<Row> =
                self.queue.iter().filter(|row| choice.taken.contains(&(0, row.id))).cloned().collect();
            self.queue.retain(|row| !choice.taken.contains(&(0, row.id)));
            let rows: Vec<Taken<'_>> = taken
                .iter()
                .map(|row| Taken { stage: 0, id: row.id, claim: 1, sender: &row.sender })
                .collect();
            let notices: Vec<_> = choice.notices.into_iter().collect();
            self.fair.claimed(self.now, &rows, &notices, self.messages.len() as i64 - 1);
            if taken.is_empty() {
                break;
            }
            self.claims += 1;
            for row in taken {
                self.messages[row.id as usize].claimed = Some(self.now);
                self.claimed.push_back(row.id);
            }
            self.start();
        }
        self.start();
    }

    fn start(&mut self) {
        while self.running.len() < self.pool.parallelism as usize
            && let Some(id) = self.claimed.pop_front()
        {
            self.running.insert(id, self.now);
            self.at(self.now + self.messages[id as usize].cost, Event::Finishes { id });
        }
    }

    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// From arrival to finish of the only message of `sender`.
    pub fn wait_of(&self, sender: &str) -> Micros {
        let message = self.messages.iter().find(|message| message.sender == sender).expect("it was sent");
        message.finished.expect("it is finished") - message.arrived
    }

    /// Worker time of each sender on what finished in that span.
    pub fn used(&self, from: Micros, until: Micros) -> BTreeMap<&str, Micros> {
        let mut used = BTreeMap::new();
        for message in &self.messages {
            if message.finished.is_some_and(|at| at > from && at <= until) {
                *used.entry(message.sender.as_str()).or_default() += message.cost;
            }
        }
        used
    }
}

/// Jain's index of fairness: 1 when all have the same, 1/n when one has all.
pub fn jain(shares: impl Iterator<Item = Micros> + Clone) -> f64 {
    let count = shares.clone().count() as f64;
    let sum: f64 = shares.clone().map(|share| share as f64).sum();
    let squares: f64 = shares.map(|share| (share as f64).powi(2)).sum();
    sum * sum / (count * squares)
}
