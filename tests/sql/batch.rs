//! The worker's statements for several rows at once: each does to each row what the single one does.

use super::harness;
use super::sql::batch::Write;
use super::sql::queue::Held;
use super::sql::row::{Content, Load, Move};
use super::sql::{Db, Error, Purpose};
use super::{ALONE, WORKER, admit, claim_one, open};
use serde_json::{Value, json};

fn claimed(dispatcher: &mut Db, worker: &mut Db, count: usize) -> Vec<Held> {
    (0..count)
        .map(|_| {
            admit(worker, "a");
            claim_one(dispatcher, "a")
        })
        .collect()
}

/// One of every kind there is.
fn outcomes() -> Vec<(Content, Value, Move)> {
    let advance = |stage: &str| Move::Advance { stage: stage.into() };
    let nothing = Content::default;
    let sender = Content { mail_from: Some("\"o, h\\\"{}\"@x.example".into()), ..nothing() };
    let recipients =
        Content { rcpt_to: Some(vec!["NULL".into(), "a,b@c".into(), String::new()]), ..nothing() };
    let nobody = Content { rcpt_to: Some(vec![]), ..nothing() };
    let body = Content { body: Some(None), ..nothing() };
    vec![
        (nothing(), json!({}), advance("b")),
        (nothing(), json!({ "a\0": [1, null, "\0é"] }), advance("c")),
        (sender.clone(), json!({ "k": 1 }), advance("b")),
        (Content { rcpt_to: recipients.rcpt_to.clone(), ..sender }, json!({}), advance("b")),
        (recipients, json!({}), advance("d")),
        (nobody, json!({}), advance("d")),
        (body, json!({}), advance("d")),
        (nothing(), json!({ "last_error": "x" }), Move::Pause { pause_us: 60_000_000 }),
        (nothing(), json!({}), Move::Pause { pause_us: u64::MAX }),
        (nothing(), json!({ "why": "y" }), Move::Fail),
        (nothing(), json!({}), Move::Finish),
        (nothing(), json!({}), Move::Finish),
    ]
}

// Req: B1, A3
#[test]
fn a_batch_does_to_each_row_what_is_done_to_one() {
    let mut database = harness::database();
    let (mut dispatcher, mut worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
    let all = outcomes();
    let (one_by_one, batch) =
        (claimed(&mut dispatcher, &mut worker, all.len()), claimed(&mut dispatcher, &mut worker, all.len()));
    database.run("UPDATE pepsi.workqueue SET state = '{\"strikes\": 1, \"last_error\": \"o\", \"kept\": 2}'");
    for (row, (content, merge, to)) in one_by_one.iter().zip(&all) {
        assert_eq!(worker.commit(row.id, row.claim, content, merge, to), Ok(true), "{to:?}");
    }
    let writes: Vec<Write<'_>> = batch
        .iter()
        .zip(&all)
        .map(|(row, (content, merge, to))| Write { row: *row, content, merge, to, fan: &ALONE })
        .collect();
    assert_eq!(worker.commit_batch(&writes), vec![Ok(true); all.len()]);
    let shown = |rows: &[Held], database: &mut harness::Database| -> Vec<String> {
        let show = |row: &Held| {
            database.text(&format!(
                "SELECT coalesce((SELECT concat_ws('|', status, stage, claims, state, mail_from, rcpt_to, sender_key, header_from, subject,
                     headers, (SELECT body FROM pepsi.workqueue_body b WHERE b.body_id = q.body_id),
                     date_trunc('minute', timeout - now() + interval '30 s'))
                 FROM pepsi.workqueue q WHERE workqueue_id = {}), 'gone')",
                row.id
            ))
        };
        rows.iter().map(show).collect()
    };
    assert_eq!(shown(&batch, &mut database), shown(&one_by_one, &mut database));
    assert_eq!(
        database.number("SELECT count(*) FROM pepsi.workqueue_body"),
        database.number("SELECT count(DISTINCT body_id) FROM pepsi.workqueue")
    );
}

// Req: B1, D4
#[test]
fn a_batch_is_fenced_row_by_row() {
    let mut database = harness::database();
    let (mut dispatcher, mut worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
    for (content, merge, to) in outcomes() {
        let rows = claimed(&mut dispatcher, &mut worker, 4);
        database.run(&format!(
            "UPDATE pepsi.workqueue SET status = 'pending' WHERE workqueue_id = {}",
            rows[1].id
        ));
        database.run(&format!("DELETE FROM pepsi.workqueue WHERE workqueue_id = {}", rows[2].id));
        let other = Held { claim: rows[0].claim + 1, ..rows[0] };
        let rows = [other, rows[1], rows[2], rows[3]];
        let writes = rows.map(|row| Write { row, content: &content, merge: &merge, to: &to, fan: &ALONE });
        let expected = [Ok(false), Ok(false), Ok(false), Ok(true)];
        assert_eq!(worker.commit_batch(&writes), expected, "{to:?} {content:?}");
        assert_eq!(
            database.number("SELECT count(*) FROM pepsi.workqueue WHERE status = 'running'"),
            1,
            "{to:?}"
        );
        database.run("DELETE FROM pepsi.workqueue");
    }
}

// Req: B2
#[test]
fn what_a_row_spoils_is_its_own_statement() {
    let database = harness::database();
    let (mut dispatcher, mut worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
    let rows = claimed(&mut dispatcher, &mut worker, 4);
    let (nothing, empty) = (Content::default(), json!({}));
    let (bad, good) = (Move::Advance { stage: String::new() }, Move::Advance { stage: "b".into() });
    let moves = [&good, &bad, &Move::Fail, &Move::Finish];
    let writes: Vec<Write<'_>> = rows
        .iter()
        .zip(moves)
        .map(|(row, to)| Write { row: *row, content: &nothing, merge: &empty, to, fan: &ALONE })
        .collect();
    let results = worker.commit_batch(&writes);
    assert!(matches!(&results[..2], [Err(Error::Refused(_)), Err(Error::Refused(_))]), "{results:?}");
    assert_eq!(results[2..], [Ok(true), Ok(true)]);
    assert_eq!(worker.load(rows[0].id, Load::Metadata).expect("a load").expect("a row").status, "running");
}

// Req: B1, A1
#[test]
fn a_batch_is_loaded_as_one_row_is() {
    let database = harness::database();
    let (mut dispatcher, mut worker) = (open(&database, Purpose::Dispatcher), open(&database, WORKER));
    let rows = claimed(&mut dispatcher, &mut worker, 3);
    let ids: Vec<i64> = rows.iter().map(|row| row.id).chain([1_000_000, i64::MIN]).collect();
    let mut loaded = worker.load_some(&ids, Load::Metadata).expect("a load");
    loaded.sort_by_key(|row| row.id);
    assert_eq!(loaded.len(), 3);
    for (mut row, held) in loaded.into_iter().zip(rows) {
        let mut one = worker.load(held.id, Load::Metadata).expect("a load").expect("a row");
        (row.now_us, one.now_us) = (0, 0);
        assert_eq!(row, one);
    }
    assert_eq!(worker.load_some(&[], Load::Metadata), Ok(vec![]));
}
