//! A graph of stages on a whim, and a table in memory that does what the statements do.

use super::super::super::Done;
use super::*;
use crate::proto::line;
use crate::sql::Error;
use crate::sql::fan::FanGroup;
use crate::sql::row::{Content, Load, Row};
use crate::worker::error::StageError;
use crate::worker::fixture;
use crate::worker::settings::Overrides;
use crate::worker::stage::Stage;
use crate::worker::tables::Tables;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// A row, and how long it was paused last.
pub type Table = RefCell<BTreeMap<i64, (Row, Option<u64>)>>;

/// What the workers asked of the table.
#[derive(Default)]
pub struct Count {
    pub loads: usize,
    pub writes: usize,
    /// Messages whose recipients were divided by their settings.
    pub divided: usize,
    /// The database refuses what is left of a pass that ended in a panic.
    pub refuses_stay: bool,
}

pub struct Database<'w>(pub &'w Table, pub &'w RefCell<Count>, pub &'w Value);

impl Database<'_> {
    /// As src/sql/load.sql does it.
    fn read(&self, row: &Row) -> Row {
        let is_local = row.state["local_origin"] == true;
        let of = |scope: &str| {
            let is_one = |address: &String| scope.ends_with(&format!(":{address}")) || scope == "domain:x";
            if is_local { is_one(&row.mail_from) } else { row.rcpt_to.iter().any(is_one) }
        };
        let all = self.2.as_array().expect("an array");
        let found = all.iter().filter(|one| of(one[0].as_str().expect("a scope"))).cloned();
        Row { settings: (!all.is_empty()).then(|| found.collect()), ..row.clone() }
    }
}

impl Database<'_> {
    /// As src/sql/rewrite.sql and its like do it.
    fn apply(&self, head: &Head, outcome: &Outcome) -> Result<bool, Error> {
        let mut table = self.0.borrow_mut();
        let Some((row, pause)) = table.get_mut(&head.id) else { return Ok(false) };
        if row.claim != head.claim || row.status != "running" {
            return Ok(false);
        }
        let Outcome { content, merge, to, fan } = outcome;
        let Content { mail_from, rcpt_to, header_from: _, subject: _, headers: _, body: _, stage } = content;
        if mail_from.as_ref().is_some_and(|sender| sender.contains('\0')) {
            return Err(Error::Refused("invalid byte sequence (SQLSTATE 22021)".into()));
        }
        let groups: Vec<Row> = fan.groups.iter().map(|group| sibling(row, group)).collect();
        let (status, target) = match to {
            Move::Finish => {
                table.remove(&head.id);
                table.extend(groups.into_iter().map(|row| (row.id, (row, None))));
                return Ok(true);
            }
            Move::Advance { stage } => ("pending", Some(stage)),
            Move::Pause { pause_us } => {
                *pause = Some(*pause_us);
                ("paused", stage.as_ref())
            }
            Move::Fail => ("failed", stage.as_ref()),
            Move::Stay if self.1.borrow().refuses_stay => return Err(Error::Refused("no".into())),
            Move::Stay => {
                self.1.borrow_mut().divided += usize::from(!groups.is_empty());
                ("running", stage.as_ref())
            }
        };
        let state = row.state.as_object_mut().expect("an object");
        if let Some(stage) = target {
            ["strikes", "temporary_failures", "last_error"].iter().for_each(|key| drop(state.remove(*key)));
            row.stage.clone_from(stage);
        }
        state.append(&mut merge.as_object().expect("an object").clone());
        row.status = status.into();
        row.mail_from = mail_from.clone().unwrap_or_else(|| row.mail_from.clone());
        row.rcpt_to = rcpt_to.clone().unwrap_or_else(|| row.rcpt_to.clone());
        table.extend(groups.into_iter().map(|row| (row.id, (row, None))));
        Ok(true)
    }
}

/// As workqueue_spawn does it. The id follows from the row's own history, so that it is the same whatever came in between.
fn sibling(row: &Row, group: &FanGroup) -> Row {
    let mut sibling = row.clone();
    let history = format!("{} {} {:?}", row.id, row.state, group.rcpt_to);
    let hash = history.bytes().fold(0, |hash, byte| mixed(hash ^ u64::from(byte)));
    sibling.id = i64::try_from(hash >> 2).expect("62 bits");
    let state = sibling.state.as_object_mut().expect("an object");
    if let Some(stage) = group.stage.as_ref().filter(|stage| **stage != row.stage) {
        ["strikes", "temporary_failures", "last_error"].iter().for_each(|key| drop(state.remove(*key)));
        sibling.stage.clone_from(stage);
    }
    state.append(&mut group.state.as_object().expect("an object").clone());
    sibling.status = "pending".into();
    sibling.rcpt_to.clone_from(&group.rcpt_to);
    sibling
}

impl Tables for Database<'_> {}

impl Store for Database<'_> {
    fn load(&mut self, id: i64, _: Load) -> Result<Option<Row>, Error> {
        self.1.borrow_mut().loads += 1;
        Ok(self.0.borrow().get(&id).map(|(row, _)| self.read(row)))
    }

    fn commit(&mut self, head: &Head, outcome: &Outcome) -> Result<bool, Error> {
        self.1.borrow_mut().writes += 1;
        self.apply(head, outcome)
    }

    fn load_batch(&mut self, ids: &[i64]) -> Result<Vec<Row>, Error> {
        self.1.borrow_mut().loads += 1;
        Ok(ids.iter().filter_map(|id| self.0.borrow().get(id).map(|(row, _)| self.read(row))).collect())
    }

    fn tables(&mut self) -> &mut dyn Tables {
        self
    }

    fn commit_batch(&mut self, outcomes: &[(&Head, &Outcome)]) -> Vec<Result<bool, Error>> {
        self.1.borrow_mut().writes += 1;
        // One statement: all or nothing.
        let before = self.0.borrow().clone();
        let results: Vec<_> = outcomes.iter().map(|(head, outcome)| self.apply(head, outcome)).collect();
        match results.iter().find_map(|result| result.clone().err()) {
            Some(error) => {
                *self.0.borrow_mut() = before;
                vec![Err(error); outcomes.len()]
            }
            None => results,
        }
    }
}

/// Numbers that look random and are the same each time (splitmix64).
fn mixed(seed: u64) -> u64 {
    let mut mix = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mix = (mix ^ (mix >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mix = (mix ^ (mix >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mix ^ (mix >> 31)
}

/// Does something that follows from the message, the stage and the seed alone.
struct Whim {
    seed: u64,
    stages: u64,
}

impl Whim {
    fn dice(&self, message: &Context) -> impl FnMut(u64) -> u64 + use<> {
        let state = Value::Object(message.state().clone()).to_string();
        let what = format!("{} {} {} {:?}", message.stage(), state, message.mail_from(), message.rcpt_to());
        let mut now = what.bytes().fold(self.seed, |hash, byte| mixed(hash ^ u64::from(byte)));
        move |sides| {
            now = mixed(now);
            now % sides
        }
    }
}

impl Stage for Whim {
    fn run(&self, mut message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        let mut dice = self.dice(&message);
        let visits = message.state().get("visits").and_then(Value::as_u64).unwrap_or(0);
        message.set_state("visits", json!(visits + 1));
        if dice(3) == 0 {
            message.set_mail_from(["", "x@y", "\"a b\"@c"][dice(3) as usize].into());
        }
        if dice(40) == 0 {
            message.set_mail_from("no\0t".into());
        }
        if dice(4) == 0 {
            let places: Vec<usize> = (0..message.rcpt_to().len()).filter(|_| dice(2) == 0).collect();
            message.keep_recipients(&places);
        }
        if dice(4) == 0 {
            let key = ["a", "b", "dsn", "origin", "local_origin"][dice(5) as usize];
            let by = json!({ "by": message.stage(), "n": dice(9) });
            message.set_state(key, if key == "local_origin" { json!(dice(2) == 0) } else { by });
        }
        let to = format!("s{}", dice(self.stages));
        if dice(6) == 0 && message.rcpt_to().len() > 1 {
            match dice(2) {
                0 => message.split_off_recipients(&[0], &to, json!({ "split": visits })),
                _ => message.split_to_one_per_row(),
            }
        }
        match if visits > 40 { 12 } else { dice(13) } {
            0 => Ok(message.pause(json!({ "p": visits }), Duration::from_secs(dice(100)))),
            1 => Ok(message.fail(json!({ "f": visits }))),
            2 => Ok(message.reroute(&to, json!({ "bounce": { "n": visits } }))),
            3 => Err(StageError::host("a host fault")),
            4 => Err(StageError::host("a defect").permanent()),
            5 => Err(message.stop(StageError::host("what is left"))),
            6 if dice(4) == 0 => std::panic::resume_unwind(Box::new("a panic without a word")),
            7 => message.advance(),
            8 => Ok(message.advance_or_finish()),
            12 => Ok(message.finish()),
            _ => Ok(message.advance_to(&to)),
        }
    }
}

/// A graph of stages of which some fuse, of some loads.
pub struct World {
    pub seed: u64,
    pub stages: BTreeMap<String, Rc<Served>>,
    pub fuses: Vec<String>,
    pub table: Table,
    /// As a load brings them.
    pub settings: Value,
    pub count: RefCell<Count>,
    /// By stage: messages that were answered for.
    pub executed: BTreeMap<String, u64>,
    pub hops: usize,
}

impl World {
    pub fn new(seed: u64, fuse: bool) -> World {
        let mut now = seed;
        let mut dice = |sides: u64| {
            now = mixed(now);
            now % sides
        };
        let count = 2 + dice(5);
        let name = |number: u64| format!("s{number}");
        let mut stages = BTreeMap::new();
        let mut fuses = Vec::new();
        for number in 0..count {
            let mut route = fixture::route(&name(number));
            route.next = (dice(4) > 0).then(|| name(dice(count)));
            route.bounce = (dice(2) == 0).then(|| name(dice(count))).filter(|stage| *stage != route.stage);
            // A few are past their lifetime at some stages.
            route.max_lifetime = Duration::from_millis([500, 3_600_000][dice(2) as usize]);
            let load = [Load::Metadata, Load::Metadata, Load::Full][dice(3) as usize];
            if dice(4) > 0 && fuse {
                fuses.push(name(number));
            }
            let (stage, route) = (Box::new(Whim { seed, stages: count }), Rc::new(route));
            stages.insert(
                name(number),
                Rc::new(Served { stage, route, load, options: &["SEED", "OWN"], personal: &["OWN"] }),
            );
        }
        let rows = (1..=12).map(|id| {
            let rcpt_to = (0..1 + dice(3)).map(|number| format!("r{number}@x")).collect();
            let local = dice(4) == 0;
            let state = json!({ "strikes": dice(2), "local_origin": local, "dsn": { "rcpt": [1, 2, 3] } });
            let stage = name(dice(count));
            (id, (Row { status: "pending".into(), stage, rcpt_to, state, ..fixture::row(id) }, None))
        });
        let table = RefCell::new(rows.collect());
        let scopes =
            ["owner:r0@x", "owner:r1@x", "address:r1@x", "domain:x", "owner:x@y", "address:ann@example.org"];
        // Every other world has none at all.
        let rows = (0..dice(2) * dice(6)).map(|_| {
            let scope = scopes[dice(6) as usize];
            let value = ["1", "2", "bad"][dice(3) as usize];
            let (section, option) =
                (format!("Stage-{}", name(dice(count))), ["seed", "Own"][dice(2) as usize]);
            json!([scope, section, option, value])
        });
        let settings = rows.collect();
        let (count, executed) = (RefCell::default(), BTreeMap::new());
        World { seed, stages, fuses, table, settings, count, executed, hops: 0 }
    }

    /// Serves all rows that are pending at `stage` now, with one worker after the other.
    pub fn serve(&mut self, stage: &str) -> bool {
        let mut input: Vec<(i64, i64)> = Vec::new();
        for (id, (row, _)) in self.table.borrow_mut().iter_mut() {
            if row.stage == stage && row.status == "pending" {
                row.status = "running".into();
                row.claim += 1;
                input.push((*id, row.claim));
            }
        }
        let any = !input.is_empty();
        while !input.is_empty() {
            let served = Rc::clone(&self.stages[stage]);
            let lines: String = input.iter().map(|(id, claim)| format!("{id} {claim}\n")).collect();
            let mut output = Vec::new();
            let successor = |name: &str| {
                self.stages.get(name).filter(|_| self.fuses.iter().any(|one| one == name)).cloned()
            };
            let code = Worker {
                load: served.load,
                batch: 3,
                served: BTreeMap::from([(stage.to_owned(), served)]),
                successor: &successor,
                tailor: &|served, overrides| self.tailor(served, overrides),
                not_served: &|_| String::new(),
                connect: &mut || Ok(Database(&self.table, &self.count, &self.settings)),
                store: None,
            }
            .serve(&mut lines.as_bytes(), &mut output);
            let answers = String::from_utf8(output).expect("text");
            let answers: Vec<&str> = answers.lines().skip(1).collect();
            for line in &answers {
                let Ok(line::Output::Status { report, .. }) = line::parse_output(line.as_bytes()) else {
                    panic!("{line}");
                };
                self.hops += report.len();
                for name in report.into_iter().map(|(name, _)| name).chain([stage.to_owned()]) {
                    *self.executed.entry(name).or_default() += 1;
                }
            }
            let unanswered = input.split_off(answers.len());
            assert_eq!(unanswered.is_empty(), code != exit::SOFTWARE, "{code}");
            input = unanswered;
            if let Some((head, _)) = (code == exit::SOFTWARE).then(|| input.remove(0)) {
                self.strike(head);
            }
        }
        any
    }

    /// What is laid over a stage turns its dice.
    fn tailor(&self, served: &Served, overrides: &Overrides) -> Result<Rc<Served>, String> {
        let mut seed = self.seed;
        for (option, laid) in overrides {
            assert!(["SEED", "OWN"].contains(&option.as_str()), "{option}");
            seed = mixed(seed ^ laid.value.parse::<u64>().map_err(|error| error.to_string())?);
        }
        let (stage, Served { route, load, .. }) = (Whim { seed, stages: self.stages.len() as u64 }, served);
        Ok(Rc::new(Served {
            stage: Box::new(stage),
            route: Rc::clone(route),
            load: *load,
            options: &[],
            personal: &[],
        }))
    }

    /// What the dispatcher does about a crash, at the stage that the row is at by now.
    fn strike(&mut self, id: i64) {
        let mut table = self.table.borrow_mut();
        let (row, _) = table.get_mut(&id).expect("a row");
        assert_eq!(row.status, "running");
        row.status = "paused".into();
        let strikes = row.state["strikes"].as_u64().unwrap_or(0);
        row.state["strikes"] = json!(strikes + 1);
        *self.executed.entry(format!("crash at {}", row.stage)).or_default() += 1;
    }

    /// Until all rest; then what was paused is due, some times.
    pub fn run(&mut self) {
        let names: Vec<String> = self.stages.keys().cloned().collect();
        for _ in 0..4 {
            let mut served = 1;
            while served > 0 {
                served = names.iter().filter(|name| self.serve(name)).count();
            }
            for (row, _) in self.table.borrow_mut().values_mut() {
                if row.status == "paused" {
                    row.status = "pending".into();
                }
            }
        }
    }

    pub fn rows(&self) -> Vec<String> {
        let table = self.table.borrow();
        let show = |(row, pause): &(Row, Option<u64>)| {
            let Row { id, status, stage, state, mail_from, rcpt_to, .. } = row;
            format!("{id} {status} {stage} {state} {mail_from:?} {rcpt_to:?} {pause:?}")
        };
        table.values().map(show).collect()
    }
}
