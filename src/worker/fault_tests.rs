//! Each call of the database in turn fails, in each way: what becomes of the messages is what would have become of them.

use super::world::{Count, Database, Table};
use super::*;
use crate::proto::line;
use crate::sql::Error;
use crate::worker::runtime::Done;
use crate::worker::settings::Overrides;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;

/// How a call fails: with this error, its work done or not.
#[derive(Clone, Debug)]
struct How {
    error: Error,
    is_done: bool,
}

/// Calls until the one that fails.
struct Faults {
    left: Cell<Option<usize>>,
    calls: Cell<usize>,
    how: How,
}

impl Faults {
    fn call<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.calls.set(self.calls.get() + 1);
        let is_now = self.left.get() == Some(0);
        self.left.set(self.left.get().and_then(|left| left.checked_sub(1)));
        if is_now && !self.how.is_done {
            return Err(self.how.error.clone());
        }
        let result = work();
        if is_now { Err(self.how.error.clone()) } else { result }
    }
}

struct Faulty<'w>(Database<'w>, &'w Faults);

impl Tables for Faulty<'_> {
    fn list(&mut self, _: &str, _: &[String], _: &str) -> Result<u64, StageError> {
        self.1.call(|| Ok(1)).map_err(StageError::database)
    }
}

impl Store for Faulty<'_> {
    fn load(&mut self, id: i64, load: Load) -> Result<Option<Row>, Error> {
        self.1.call(|| self.0.load(id, load))
    }

    fn commit(&mut self, head: &Head, outcome: &Outcome) -> Result<bool, Error> {
        self.1.call(|| self.0.commit(head, outcome))
    }

    fn load_batch(&mut self, ids: &[i64]) -> Result<Vec<Row>, Error> {
        self.1.call(|| self.0.load_batch(ids))
    }

    fn commit_batch(&mut self, outcomes: &[(&Head, &Outcome)]) -> Vec<Result<bool, Error>> {
        let done = self.1.call(|| Ok(self.0.commit_batch(outcomes)));
        done.unwrap_or_else(|error| vec![Err(error); outcomes.len()])
    }

    fn tables(&mut self) -> &mut dyn Tables {
        self
    }
}

/// Leaves its name behind, and does what its number says.
struct Trace;

impl Stage for Trace {
    fn run(&self, mut message: Context, tables: &mut dyn Tables) -> Result<Done, StageError> {
        let mut trace = message.state().get("trace").and_then(Value::as_array).cloned().unwrap_or_default();
        trace.push(json!(message.stage()));
        message.set_state("trace", Value::Array(trace));
        match message.stage() {
            "s1" => {
                message.set_mail_from("rewritten@x".into());
                Ok(message.advance_to("s2"))
            }
            "s2" => {
                tables.list("a@x", &["b@x".into()], "s2")?;
                Ok(message.advance_to("s3"))
            }
            "s3" => {
                if message.rcpt_to().len() > 1 {
                    message.split_off_recipients(&[0], "s5", json!({}));
                }
                Ok(message.advance_to("s4"))
            }
            "s4" => Ok(message.advance_to("s5")),
            _ => Ok(message.fail(json!({}))),
        }
    }
}

struct World {
    table: Table,
    count: RefCell<Count>,
    settings: Value,
    stages: BTreeMap<String, Rc<Served>>,
    faults: Faults,
}

impl World {
    fn new(fail_at: Option<usize>, how: How) -> World {
        let stages = ["s1", "s2", "s3", "s4", "s5"].map(|name| {
            let (stage, route, own) = (Box::new(Trace), Rc::new(fixture::route(name)), &["OWN"]);
            let served = Served { stage, route, load: Load::Metadata, options: own, personal: own };
            (name.to_owned(), Rc::new(served))
        });
        let rows = (1..=3).map(|id| {
            let rcpt_to = (0..=id).map(|number| format!("r{number}@x")).collect();
            let state = json!({ "dsn": { "rcpt": (0..=id).collect::<Vec<_>>() } });
            (
                id,
                (
                    Row { status: "pending".into(), stage: "s1".into(), rcpt_to, state, ..fixture::row(id) },
                    None,
                ),
            )
        });
        World {
            table: RefCell::new(rows.collect()),
            count: RefCell::default(),
            settings: json!([["owner:r2@x", "stage-s4", "OWN", "1"]]),
            stages: stages.into(),
            faults: Faults { left: Cell::new(fail_at), calls: Cell::new(0), how },
        }
    }

    fn store(&self) -> Faulty<'_> {
        Faulty(Database(&self.table, &self.count, &self.settings), &self.faults)
    }

    /// What waits at `stage` passes one worker, and the dispatcher deals with what that says. Whether anything waited.
    fn serve(&self, stage: &str) -> bool {
        let mut asked: Vec<(i64, i64)> = Vec::new();
        for (id, (row, _)) in self.table.borrow_mut().iter_mut() {
            if row.stage == stage && row.status == "pending" {
                row.status = "running".into();
                row.claim += 1;
                asked.push((*id, row.claim));
            }
        }
        let lines: String = asked.iter().map(|(id, claim)| format!("{id} {claim}\n")).collect();
        let mut output = Vec::new();
        let code = Worker {
            load: Load::Metadata,
            batch: 2,
            served: BTreeMap::from([(stage.to_owned(), Rc::clone(&self.stages[stage]))]),
            // The fourth is always another pass.
            successor: &|name| self.stages.get(name).filter(|_| name != "s4").cloned(),
            tailor: &|served: &Served, _: &Overrides| Ok(Rc::clone(&self.stages[&served.route.stage])),
            not_served: &|_| String::new(),
            connect: &mut || self.faults.call(|| Ok(())).map(|()| self.store()),
            store: Some(self.store()),
        }
        .serve(&mut lines.as_bytes(), &mut output);
        let output = String::from_utf8(output).expect("text");
        let mut answers = output.lines().skip(1).map(|line| match line::parse_output(line.as_bytes()) {
            Ok(line::Output::Status { status, .. }) => status,
            other => panic!("{line}: {other:?}"),
        });
        for (id, claim) in &asked {
            let status = answers.next().unwrap_or(code);
            let mut table = self.table.borrow_mut();
            let Some((row, _)) =
                table.get_mut(id).filter(|(row, _)| row.claim == *claim && row.status == "running")
            else {
                continue;
            };
            assert!([74, 75].contains(&status), "the row still runs, and the answer was {status}");
            row.status = "pending".into();
        }
        !asked.is_empty()
    }

    /// Until all rest; what was put off is due at once. Then what there is, whatever its id.
    fn run(&self) -> Vec<String> {
        for _ in 0..100 {
            let is_busy = self.stages.keys().filter(|stage| self.serve(stage)).count() > 0;
            let mut table = self.table.borrow_mut();
            let paused: Vec<_> = table.values_mut().filter(|(row, _)| row.status == "paused").collect();
            if !is_busy && paused.is_empty() {
                let show = |(row, _): &(Row, Option<u64>)| {
                    let Row { status, stage, state, mail_from, rcpt_to, .. } = row;
                    format!("{status} {stage} {} {} <{mail_from}> {rcpt_to:?}", state["trace"], state["dsn"])
                };
                let mut shown: Vec<String> = table.values().map(show).collect();
                shown.sort();
                return shown;
            }
            paused.into_iter().for_each(|(row, _)| row.status = "pending".into());
        }
        panic!("it does not come to an end");
    }
}

// Req: L1, O1, S1, A5, X2, U3
#[test]
fn each_call_of_the_database_may_fail_in_each_way() {
    let how = |error: fn(String) -> Error, is_done| How { error: error("x".into()), is_done };
    let whole = World::new(None, how(Error::Lost, false));
    let expected = whole.run();
    let calls = whole.faults.calls.get();
    assert!(calls > 15 && expected.len() == 8, "{calls} calls, {expected:?}");
    for how in [
        how(Error::Lost, false),
        how(Error::Lost, true),
        how(Error::Overloaded, false),
        how(Error::Conflict, false),
        how(Error::Refused, false),
        how(Error::Setup, false),
        how(Error::Schema, false),
    ] {
        for at in 0..calls {
            assert_eq!(World::new(Some(at), how.clone()).run(), expected, "call {at}: {how:?}");
        }
    }
}
