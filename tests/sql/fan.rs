//! The rows that a message leaves beside it, and its own move, all in one.

use super::sql::fan::{Fan, FanGroup, GroupStatus, SideMessage};
use super::sql::queue::{Channel, Held};
use super::sql::row::{Load, Move};
use super::sql::{Db, Purpose};
use super::{WORKER, admit, claim_one, harness, open};
use harness::Database;
use serde_json::{Value, json};
use std::time::Duration;

struct World {
    database: Database,
    dispatcher: Db,
    worker: Db,
}

impl World {
    fn new() -> World {
        let database = harness::database();
        let (dispatcher, worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
        World { database, dispatcher, worker }
    }

    fn claimed(&mut self) -> Held {
        admit(&mut self.worker, "a");
        claim_one(&mut self.dispatcher, "a")
    }

    /// All rows but `id`, oldest first.
    fn others(&mut self, id: i64) -> Vec<Value> {
        let rows = "SELECT to_jsonb(q) || jsonb_build_object('raw', encode(headers, 'escape'), \
             'text', (SELECT encode(body, 'escape') FROM pepsi.workqueue_body b WHERE b.body_id = q.body_id)) \
             FROM pepsi.workqueue q WHERE workqueue_id <> $1 ORDER BY workqueue_id";
        let rows = self.database.client.query(rows, &[&id]).expect("rows");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

fn fan() -> Fan {
    let group = |to: &str| FanGroup::new(vec![to.into()]);
    let later = FanGroup {
        stage: Some("b".into()),
        state: json!({ "dsn": { "rcpt": ["2\u{0}"] } }),
        status: GroupStatus::Retry(Duration::from_secs(90)),
        ..group("later@x")
    };
    let failed = FanGroup { mail_from: Some(String::new()), status: GroupStatus::Failed, ..group("no\"@x") };
    let clone = FanGroup { token: Some("t".into()), is_fresh: true, ..group("clone@x") };
    let side = |body: Option<&[u8]>| SideMessage {
        mail_from: String::new(),
        rcpt_to: vec!["owner@x".into()],
        headers: b"Subject: side\r\n".to_vec(),
        body: body.map(<[u8]>::to_vec),
        state: json!({ "s": 1 }),
        stage: "side".into(),
    };
    Fan { groups: vec![later, failed, clone.clone(), clone], sides: vec![side(Some(b"\0\xff")), side(None)] }
}

// Req: A5, A6
#[test]
fn a_message_goes_its_way_and_leaves_rows_beside_it_in_one_statement() {
    let moves = [
        (Move::Advance { stage: "b".into() }, Some(("pending", "b"))),
        (Move::Pause { pause_us: 60_000_000 }, Some(("paused", "a"))),
        (Move::Fail, Some(("failed", "a"))),
        (Move::Stay, Some(("running", "a"))),
        (Move::Finish, None),
    ];
    for (to, expected) in moves {
        let mut world = World::new();
        let mut listener = open(&world.database, Purpose::Dispatcher);
        listener.listen().expect("LISTEN");
        let held = world.claimed();
        world.database.run("UPDATE pepsi.workqueue SET state = '{\"strikes\": 1, \"kept\": 2}', received_at = '2001-01-01 00:00:00+00'");
        let keep = ["kept@x".to_owned()];
        let merge = json!({ "new": "3\u{0}" });
        let done = world.worker.conclude(held, Some(&keep), &merge, &to, &fan());
        assert_eq!(done, Ok(true), "{to:?}");

        let row = world.worker.load(held.id, Load::Metadata).expect("a load");
        let state = match expected {
            Some((_, "b")) => json!({ "kept": 2, "new": "3" }),
            Some(_) | None => json!({ "kept": 2, "new": "3", "strikes": 1 }),
        };
        assert_eq!(row.as_ref().map(|row| (row.status.as_str(), row.stage.as_str())), expected);
        assert!(row.is_none_or(|row| row.rcpt_to == keep && row.state == state), "{to:?}");

        let others = world.others(held.id);
        let shown: Vec<Value> = others
            .iter()
            .map(|row| {
                json!([
                    row["rcpt_to"],
                    row["mail_from"],
                    row["stage"],
                    row["status"],
                    row["state"],
                    row["text"],
                    row["raw"]
                ])
            })
            .collect();
        let original = "Subject: x\r\n";
        let expected = [
            json!([["later@x"], "s@example.org", "b", "paused", { "kept": 2, "dsn": { "rcpt": ["2"] } }, "body", original]),
            json!([["no\"@x"], "", "a", "failed", { "kept": 2, "strikes": 1 }, "body", original]),
            json!([["clone@x"], "s@example.org", "a", "pending", { "kept": 2, "strikes": 1 }, "body", original]),
            json!([["owner@x"], "", "side", "pending", { "s": 1 }, "\\000\\377", "Subject: side\r\n"]),
            json!([["owner@x"], "", "side", "pending", { "s": 1 }, null, "Subject: side\r\n"]),
        ];
        assert_eq!(shown, expected, "{to:?}");
        let old = |row: &Value| row["received_at"].as_str().is_some_and(|time| time.starts_with("2001"));
        assert_eq!(others.iter().map(old).collect::<Vec<_>>(), [true, true, false, false, false]);
        assert_eq!(
            listener.poll_notifications(),
            Ok::<Vec<Channel>, _>(vec![]),
            "the status line is the wake"
        );
    }
}

// Req: D4, A6
#[test]
fn under_another_claim_nothing_is_left() {
    let mut world = World::new();
    let held = world.claimed();
    for (claim, to) in [(held.claim + 1, Move::Finish), (held.claim - 1, Move::Stay)] {
        let done = world.worker.conclude(Held { claim, ..held }, None, &json!({}), &to, &fan());
        assert_eq!(done, Ok(false));
    }
    assert_eq!(world.worker.conclude(held, None, &json!({}), &Move::Fail, &fan()), Ok(true));
    let before = world.others(held.id);
    let again = world.worker.conclude(held, None, &json!({}), &Move::Fail, &fan());
    assert_eq!(
        (again, world.others(held.id)),
        (Ok(false), before),
        "a reply that was lost, and asked for again"
    );
}

// Req: A5
#[test]
fn what_the_table_refuses_of_one_row_leaves_all_as_it_was() {
    let mut world = World::new();
    let held = world.claimed();
    let mut torn = fan();
    torn.groups[3] = FanGroup { stage: Some(String::new()), ..FanGroup::new(vec!["x@y".into()]) };
    world.worker.conclude(held, Some(&[]), &json!({ "x": 1 }), &Move::Finish, &torn).expect_err("no stage");
    let row = world.worker.load(held.id, Load::Metadata).expect("a load").expect("a row");
    assert_eq!(
        (row.status.as_str(), &row.rcpt_to[..], row.state),
        ("running", &["r@example.org".to_owned()][..], json!({}))
    );
    assert!(world.others(held.id).is_empty());
}
