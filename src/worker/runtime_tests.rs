//! The loop against a table that fails as told, and stages that do.

use super::*;
use crate::worker::fixture;
use crate::worker::tables::Tables;
use serde_json::{Value, json};
use std::cell::RefCell;

/// What the table and its connections did and are to do.
#[derive(Default)]
struct World {
    rows: BTreeMap<i64, Row>,
    /// Errors for the coming loads and commits, in order; None: it works.
    loads: Vec<Option<Error>>,
    commits: Vec<Option<Error>>,
    connects: Vec<Option<Error>>,
    done: Vec<String>,
}

fn next(errors: &mut Vec<Option<Error>>) -> Option<Error> {
    if errors.is_empty() { None } else { errors.remove(0) }
}

struct Table<'w>(&'w RefCell<World>);

impl Tables for Table<'_> {}

impl Store for Table<'_> {
    fn load(&mut self, id: i64, load: Load) -> Result<Option<Row>, Error> {
        let mut world = self.0.borrow_mut();
        world.done.push(format!("load {id} {load:?}"));
        match next(&mut world.loads) {
            Some(error) => Err(error),
            None => Ok(world.rows.get(&id).cloned()),
        }
    }

    fn commit(&mut self, head: &Head, outcome: &Outcome) -> Result<bool, Error> {
        let mut world = self.0.borrow_mut();
        let entry = format!("commit {} {} {:?} {}", head.id, head.claim, outcome.to, outcome.merge);
        if let Some(error) = next(&mut world.commits) {
            world.done.push(format!("refused {entry}"));
            return Err(error);
        }
        let is_ours = world.rows.get(&head.id).is_some_and(|row| row.claim == head.claim);
        world.done.push(if is_ours { entry } else { format!("gone {entry}") });
        Ok(is_ours)
    }

    fn load_batch(&mut self, ids: &[i64]) -> Result<Vec<Row>, Error> {
        let mut world = self.0.borrow_mut();
        world.done.push(format!("load {ids:?}"));
        match next(&mut world.loads) {
            Some(error) => Err(error),
            // In another order than was asked.
            None => Ok(ids.iter().rev().filter_map(|id| world.rows.get(id).cloned()).collect()),
        }
    }

    fn tables(&mut self) -> &mut dyn Tables {
        self
    }

    fn commit_batch(&mut self, outcomes: &[(&Head, &Outcome)]) -> Vec<Result<bool, Error>> {
        let mut world = self.0.borrow_mut();
        let ids: Vec<i64> = outcomes.iter().map(|(head, _)| head.id).collect();
        if let Some(error) = next(&mut world.commits) {
            world.done.push(format!("refused commit {ids:?}"));
            return vec![Err(error); outcomes.len()];
        }
        world.done.push(format!("commit {ids:?}"));
        let is_ours = |head: &Head| world.rows.get(&head.id).is_some_and(|row| row.claim == head.claim);
        outcomes.iter().map(|(head, _)| Ok(is_ours(head))).collect()
    }
}

/// Does what the message's subject says.
struct Puppet;

impl Stage for Puppet {
    fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        match message.subject() {
            Some("host") => Err(StageError::host("a host fault")),
            Some("permanent") => Err(StageError::host("a defect").permanent()),
            Some("fail") => Ok(message.fail(json!({ "why": "told to" }))),
            Some("panic") => panic!("the stage was told to"),
            Some(_) | None => Ok(message.finish()),
        }
    }
}

fn row(id: i64, subject: &str) -> Row {
    Row { subject: Some(subject.into()), ..fixture::row(id) }
}

fn world(rows: Vec<Row>) -> RefCell<World> {
    let rows = rows.into_iter().map(|row| (row.id, row)).collect();
    RefCell::new(World { rows, ..World::default() })
}

/// Feeds `input`; the output behind `ready claims`, and the exit code.
fn serve(world: &RefCell<World>, input: &str) -> (String, u8) {
    let mut output = Vec::new();
    let code = serve_into(world, input.as_bytes(), &mut output);
    let output = String::from_utf8(output).unwrap();
    (output.strip_prefix("ready claims\n").unwrap().replace('\n', " "), code)
}

fn serve_into(world: &RefCell<World>, input: &[u8], output: &mut impl Write) -> u8 {
    serve_loading(world, Load::Full, input, output)
}

/// A stage of metadata, three ids at once; the output behind `ready claims`, and the exit code.
fn serve_batch(world: &RefCell<World>, input: &str) -> (String, u8) {
    let mut output = Vec::new();
    let code = serve_loading(world, Load::Metadata, input.as_bytes(), &mut output);
    let output = String::from_utf8(output).unwrap();
    (output.strip_prefix("ready claims\n").unwrap().replace('\n', " "), code)
}

fn serve_loading(world: &RefCell<World>, load: Load, mut input: &[u8], output: &mut impl Write) -> u8 {
    let mut connect = || match next(&mut world.borrow_mut().connects) {
        Some(error) => Err(error),
        None => Ok(Table(world)),
    };
    let route = Rc::new(fixture::route("relay"));
    Worker {
        load,
        batch: 3,
        served: BTreeMap::from([(
            "relay".into(),
            Rc::new(Served { stage: Box::new(Puppet), route, load, options: &[], personal: &[] }),
        )]),
        successor: &|_| None,
        tailor: &|_, _| Err("nothing is set".into()),
        not_served: &|stage| format!("no {stage} here"),
        connect: &mut connect,
        store: Some(Table(world)),
    }
    .serve(&mut input, output)
}

fn lost() -> Option<Error> {
    Some(Error::Lost("gone".into()))
}

fn refused() -> Option<Error> {
    Some(Error::Refused("check violated (SQLSTATE 23514)".into()))
}

fn done(world: &RefCell<World>) -> Vec<String> {
    std::mem::take(&mut world.borrow_mut().done)
}

// Req: R1, A1, E1
#[test]
fn ids_are_answered_in_order_one_after_the_other() {
    let world = world(vec![row(1, "x"), row(2, "fail"), row(3, "x")]);
    assert_eq!(serve(&world, "1 3\n2 3\n3 3\n"), ("0 1 0 ".into(), 1));
    let done = done(&world);
    assert_eq!(done[0], "load 1 Full");
    assert_eq!(done[1], "commit 1 3 Finish {}");
    assert_eq!(done[2], "load 2 Full");
    assert_eq!(done[3], "commit 2 3 Fail {\"why\":\"told to\"}");
    assert_eq!(done.len(), 6);
}

// Req: D4
#[test]
fn a_claim_that_is_gone_is_answered_and_nothing_is_written() {
    let mut paused = row(2, "x");
    paused.status = "paused".into();
    let world = world(vec![row(1, "x"), paused]);
    assert_eq!(serve(&world, "1 2\n1 4\n2 3\n9 1\n"), ("0 0 0 0 ".into(), 0));
    assert!(done(&world).iter().all(|entry| entry.starts_with("load")));
}

// Req: CLI4, A1
#[test]
fn a_bare_id_is_refused_unless_its_row_runs_at_a_stage_of_ours() {
    let mut pending = row(2, "x");
    pending.status = "pending".into();
    let mut elsewhere = row(3, "x");
    elsewhere.stage = "init".into();
    let world = world(vec![row(1, "x"), pending, elsewhere]);
    assert_eq!(serve(&world, "9\n2\n3\nx\n\n1\n"), ("1 1 1 1 1 0 ".into(), 1));
    let written: Vec<String> = done(&world).into_iter().filter(|entry| !entry.starts_with("load")).collect();
    assert_eq!(written, ["commit 1 3 Finish {}"]);
}

// Req: D4
#[test]
fn a_claim_lost_while_the_stage_ran_is_0_with_a_claim_and_1_for_a_bare_id() {
    struct Thief<'w>(&'w RefCell<World>);
    impl Stage for Thief<'_> {
        fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
            self.0.borrow_mut().rows.get_mut(&message.id()).unwrap().claim += 1;
            Ok(message.finish())
        }
    }
    let world: &'static RefCell<World> = Box::leak(Box::new(world(vec![row(1, "x")])));
    let mut output = Vec::new();
    let route = Rc::new(fixture::route("relay"));
    Worker {
        load: Load::Full,
        batch: 1,
        served: BTreeMap::from([(
            "relay".into(),
            Rc::new(Served {
                stage: Box::new(Thief(world)),
                route,
                load: Load::Full,
                options: &[],
                personal: &[],
            }),
        )]),
        successor: &|_| None,
        tailor: &|_, _| Err("nothing is set".into()),
        not_served: &|_| String::new(),
        connect: &mut || Ok(Table(world)),
        store: Some(Table(world)),
    }
    .serve(&mut &b"1 3\n1\n"[..], &mut output);
    assert_eq!(output, b"ready claims\n0\n1\n");
    assert_eq!(done(world).iter().filter(|entry| entry.starts_with("gone commit")).count(), 2);
}

// Req: S1, S3
#[test]
fn stage_errors_are_paused_or_failed() {
    let world = world(vec![row(1, "host"), row(2, "permanent")]);
    assert_eq!(serve(&world, "1 3\n2 3\n"), ("0 1 ".into(), 1));
    let done = done(&world);
    assert!(done[1].starts_with("commit 1 3 Pause") && done[1].contains("a host fault"), "{done:?}");
    assert!(done[3].starts_with("commit 2 3 Fail") && done[3].contains("permanent"), "{done:?}");
}

// Req: L1
#[test]
fn a_connection_lost_while_idle_costs_nothing() {
    let world = world(vec![row(1, "x")]);
    world.borrow_mut().loads = vec![lost()];
    assert_eq!(serve(&world, "1 3\n"), ("0 ".into(), 0));
}

// Req: L1
#[test]
fn a_connection_lost_in_a_commit_is_74_and_the_next_id_gets_a_new_one() {
    let world = world(vec![row(1, "x"), row(2, "x")]);
    world.borrow_mut().commits = vec![lost()];
    assert_eq!(serve(&world, "1 3\n2 3\n"), ("74 0 ".into(), 74));
}

// Req: L1, O1, R3
#[test]
fn without_a_database_the_worker_ends_and_answers_nothing() {
    for (error, code) in [
        (Error::Lost("refused".into()), 74),
        (Error::Overloaded("too many".into()), 75),
        (Error::Schema("newer".into()), 74),
        (Error::Setup("no such database".into()), 74),
    ] {
        let world = world(vec![row(1, "x"), row(2, "x")]);
        world.borrow_mut().loads = vec![lost()];
        world.borrow_mut().connects = vec![Some(error)];
        assert_eq!(serve(&world, "1 3\n2 3\n"), (String::new(), code));
    }
    let world = world(vec![row(1, "x"), row(2, "x")]);
    world.borrow_mut().loads = vec![lost(), lost()];
    assert_eq!(serve(&world, "1 3\n2 3\n"), ("74 0 ".into(), 74));
}

// Req: O1
#[test]
fn an_overloaded_database_is_75() {
    let world = world(vec![row(1, "x")]);
    world.borrow_mut().loads = vec![Some(Error::Overloaded("slots".into()))];
    assert_eq!(serve(&world, "1 3\n"), ("75 ".into(), 75));
}

// Req: S1
#[test]
fn an_outcome_that_is_refused_is_a_host_fault() {
    let world = world(vec![row(1, "x")]);
    world.borrow_mut().commits = vec![refused()];
    assert_eq!(serve(&world, "1 3\n"), ("0 ".into(), 0));
    let done = done(&world);
    assert!(done[1].starts_with("refused commit 1 3 Finish"), "{done:?}");
    assert!(done[2].starts_with("commit 1 3 Pause") && done[2].contains("23514"), "{done:?}");
}

// Req: S1, L1
#[test]
fn a_row_about_which_nothing_can_be_written_is_left_to_the_dispatcher() {
    for (commits, status) in [
        (vec![refused(), refused()], 74),
        (vec![refused(), lost()], 74),
        (vec![refused(), Some(Error::Overloaded("slots".into()))], 75),
        (vec![Some(Error::Conflict("lock timeout".into()))], 74),
    ] {
        let world = world(vec![row(1, "x")]);
        world.borrow_mut().commits = commits;
        assert_eq!(serve(&world, "1 3\n"), (format!("{status} "), status));
    }
    let world = world(vec![row(1, "host")]);
    world.borrow_mut().commits = vec![refused()];
    assert_eq!(serve(&world, "1 3\n"), ("74 ".into(), 74));
    assert_eq!(done(&world).len(), 2);
}

// Req: S1
#[test]
fn a_message_that_cannot_be_loaded_whole_is_a_host_fault() {
    let world = world(vec![row(1, "x"), row(2, "x")]);
    world.borrow_mut().loads = vec![refused(), None, refused(), refused()];
    assert_eq!(serve(&world, "1 3\n2 3\n"), ("0 74 ".into(), 74));
    let done = done(&world);
    assert_eq!(done[1], "load 1 Metadata");
    assert!(done[2].starts_with("commit 1 3 Pause") && done[2].contains("cannot load"), "{done:?}");
}

// Req: S2
#[test]
fn retries_end() {
    let mut old = row(1, "host");
    old.now_us = old.received_at_us + 121 * 3_600_000_000;
    let world = world(vec![old]);
    assert_eq!(serve(&world, "1 3\n"), ("1 ".into(), 1));
    let entry = done(&world).remove(1);
    assert!(entry.starts_with("commit 1 3 Fail") && entry.contains("retries-exhausted"), "{entry}");
}

#[test]
fn an_input_that_ends_within_a_line_is_not_acted_upon() {
    let world = world(vec![row(1, "x"), row(12, "x")]);
    assert_eq!(serve(&world, "1 3\n12"), ("0 ".into(), 65));
    assert_eq!(serve(&world, "1 3\0\n"), (String::new(), 65));
    assert_eq!(serve(&world, &"1".repeat(line::MAX_LINE + 1)), (String::new(), 65));
}

// Req: P8, D4
#[test]
fn a_withdrawn_id_is_not_begun_and_answered_0() {
    // Pending again under the same claim, claimed anew, claimed anew by way of another stage.
    let withdrawn = Row { status: "pending".into(), ..row(1, "fail") };
    let elsewhere = Row { claim: 4, stage: "other".into(), ..row(3, "fail") };
    let world = world(vec![withdrawn, Row { claim: 4, ..row(2, "fail") }, elsewhere]);
    assert_eq!(serve(&world, "1 3\n2 3\n3 3\n"), ("0 0 0 ".into(), 0));
    assert_eq!(done(&world), ["load 1 Full", "load 2 Full", "load 3 Full"]);
}

// Req: P8
#[test]
fn each_status_is_out_before_the_next_row_is_loaded() {
    struct Watch<'w>(&'w RefCell<World>);
    impl Write for Watch<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().done.push(String::from_utf8_lossy(bytes).trim_end().to_owned());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let world = world(vec![row(1, "x"), row(2, "x")]);
    serve_into(&world, b"1 3\n2 3\n", &mut Watch(&world));
    let order: Vec<String> = done(&world).into_iter().filter(|entry| !entry.starts_with("commit")).collect();
    assert_eq!(order, ["ready claims", "load 1 Full", "0", "load 2 Full", "0"]);
}

#[test]
fn an_output_that_is_closed_ends_the_worker() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let world = world(vec![row(1, "x")]);
    assert_eq!(serve_into(&world, b"1 3\n", &mut Closed), 74);
    assert!(done(&world).is_empty());
}

// Req: B1
#[test]
fn what_has_come_is_loaded_and_written_at_once_and_answered_in_order() {
    let world = world((1..=5).map(|id| row(id, if id == 2 { "fail" } else { "x" })).collect());
    assert_eq!(serve_batch(&world, "1 3\n2 3\n3 3\n4 3\n5 3\n"), ("0 1 0 0 0 ".into(), 1));
    assert_eq!(done(&world), ["load [1, 2, 3]", "commit [1, 2, 3]", "load [4, 5]", "commit [4, 5]"]);
}

// Req: B1, D4
#[test]
fn each_id_of_a_batch_is_told_for_itself() {
    let paused = Row { status: "paused".into(), ..row(3, "x") };
    let world = world(vec![row(1, "x"), row(2, "host"), paused, row(4, "x")]);
    // No id, one that is not there, a bare one that does not run; a claim that is gone; the same once more.
    assert_eq!(serve_batch(&world, "x\n9\n3\n1 2\n1 3\n2 3\n4 3\n4 3\n"), ("1 1 1 0 0 0 0 0 ".into(), 1));
    let done = done(&world);
    assert_eq!(done[..2], ["load [9, 3]", "commit []"]);
    assert_eq!(done[2], "load 1 Metadata", "the same id twice is not of one batch");
    assert_eq!(done[3..5], ["load [1, 2, 4]", "commit [1, 2, 4]"]);
    assert_eq!(done[5], "load 4 Metadata");
}

// Req: B2
#[test]
fn a_row_that_spoils_a_statement_fails_alone() {
    let world = world((1..=3).map(|id| row(id, "x")).collect());
    world.borrow_mut().commits = vec![refused(), None, refused(), None, None];
    assert_eq!(serve_batch(&world, "1 3\n2 3\n3 3\n"), ("0 0 0 ".into(), 0));
    let written = done(&world);
    assert_eq!(written[..3], ["load [1, 2, 3]", "refused commit [1, 2, 3]", "commit 1 3 Finish {}"]);
    assert!(written[3].starts_with("refused commit 2 3 Finish"), "{written:?}");
    assert!(written[4].starts_with("commit 2 3 Pause") && written[4].contains("23514"), "{written:?}");
    assert_eq!(written[5..], ["commit 3 3 Finish {}"]);

    world.borrow_mut().loads = vec![refused(), None, refused(), refused(), None];
    assert_eq!(serve_batch(&world, "1 3\n2 3\n3 3\n"), ("0 74 0 ".into(), 74));
    assert_eq!(done(&world)[..2], ["load [1, 2, 3]", "load 1 Metadata"]);
}

// Req: B2, L1, O1
#[test]
fn a_batch_that_met_no_database_is_put_off_whole() {
    let rows = || world((1..=3).map(|id| row(id, "x")).collect());
    let (input, overloaded) = ("1 3\n2 3\n3 3\n", Some(Error::Overloaded("slots".into())));
    for (loads, commits, connects, answers) in [
        (vec![lost()], vec![], vec![], ("0 0 0 ", 0)),
        (vec![lost(), lost()], vec![], vec![], ("74 74 74 ", 74)),
        (vec![lost()], vec![], vec![lost()], ("", 74)),
        (vec![overloaded.clone()], vec![], vec![], ("75 75 75 ", 75)),
        (vec![], vec![lost()], vec![], ("74 74 74 ", 74)),
        (vec![], vec![overloaded], vec![], ("75 75 75 ", 75)),
    ] {
        let world = rows();
        {
            let mut world = world.borrow_mut();
            (world.loads, world.commits, world.connects) = (loads, commits, connects);
        }
        assert_eq!(serve_batch(&world, input), (answers.0.to_owned(), answers.1));
    }
}

#[test]
fn a_state_of_any_form_is_worked_on() {
    for state in [json!([1, 2]), json!("x"), json!({ "temporary_failures": -1 })] {
        let mut odd = row(1, "host");
        odd.state = state;
        assert_eq!(serve(&world(vec![odd]), "1 3\n"), ("0 ".into(), 0));
    }
    // What cannot be read fails for good, and alone.
    let mut unreadable = row(1, "host");
    unreadable.state = Value::Null;
    assert_eq!(serve(&world(vec![unreadable, row(2, "finish")]), "1 3\n2 3\n").0, "1 0 ");
}

#[path = "panic_tests.rs"]
mod panics;
