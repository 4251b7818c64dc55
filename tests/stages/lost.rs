//! A connection that is lost at each point of a pass: every message fares as it would have, and none twice.

use super::harness::{Config, PATIENCE};
use super::{Database, claimed, database, run_as};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// When a connection ends: instead of a request, or of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Request,
    Answer,
}

/// Stands as a server's socket in `folder`, and ends the connection that the request number `at`, counted from 0, comes on.
/// Returns how many requests have come.
fn cutter(folder: &Path, server: &Path, at: usize, cut: Cut) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).expect("a socket");
    let (requests, server) = (Arc::new(AtomicUsize::new(0)), server.to_owned());
    let count = Arc::clone(&requests);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) =
                (client.expect("a client"), UnixStream::connect(&server).expect("the server"));
            let count = Arc::clone(&count);
            std::thread::spawn(move || pass(client, server, &count, at, cut));
        }
    });
    requests
}

/// One request, then its answer, until one of the two ends. The driver sends no more before it has the answer.
fn pass(mut client: UnixStream, mut server: UnixStream, count: &AtomicUsize, at: usize, cut: Cut) {
    let mut buffer = vec![0; 1 << 16];
    server.set_read_timeout(Some(PATIENCE)).expect("set");
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let is_now = count.fetch_add(1, Ordering::SeqCst) == at;
        if is_now && cut == Cut::Request {
            break;
        }
        if server.write_all(&buffer[..read]).is_err() {
            break;
        }
        // An answer ends with ReadyForQuery (Z, length 5, a status), a request for a password or the like aside.
        let mut answer = Vec::new();
        while let Ok(read @ 1..) = server.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..read]);
            if answer.len() >= 6 && answer[answer.len() - 6..].starts_with(b"Z\0\0\0\x05") {
                break;
            }
        }
        if answer.is_empty() || (is_now && cut == Cut::Answer) || client.write_all(&answer).is_err() {
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

/// Four messages at the first of three stages that are one pass: one ends there, one goes on, one is split by the second
/// stage, one is divided by its settings before the first, and half of it ends.
fn world(db: &mut Database) -> Vec<i64> {
    db.run(
        "DELETE FROM pepsi.workqueue; DELETE FROM pepsi.settings; DELETE FROM pepsi.config_override;
         INSERT INTO pepsi.config_override VALUES ('address:d@own.example', 'stage-way', 'NEGATE', 'yes')",
    );
    let dsn = |count: usize| format!("{{\"dsn\": {{\"rcpt\": {:?}}}}}", (0..count).collect::<Vec<_>>());
    let to: [&[&str]; 4] = [
        &["x@drop.example"],
        &["a@a.example"],
        &["a@a.example", "b@b.example"],
        &["c@a.example", "d@own.example"],
    ];
    to.map(|to| claimed(db, "way", "s@s.example", to, &dsn(to.len()))).to_vec()
}

/// What there is, whatever its id.
fn rest(db: &mut Database) -> String {
    db.text(
        "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
             SELECT concat_ws(' ', stage, status, array_to_string(rcpt_to, ','), state -> 'dsn' ->> 'rcpt') AS line
             FROM pepsi.workqueue) AS lines",
    )
}

/// What the dispatcher does: what still runs is claimed again, and so is what waits at a stage that is served.
fn finish(db: &mut Database, config: &Path) {
    for _ in 0..4 {
        for (stage, program) in [("way", "pepsi-stage-if"), ("route", "pepsi-stage-route")] {
            let claim = "UPDATE pepsi.workqueue SET status = 'running', claims = claims + 1
                         WHERE stage = $1 AND status IN ('pending', 'running', 'paused') RETURNING workqueue_id, claims";
            let rows = db.client.query(claim, &[&stage]).expect("a claim");
            let ids: Vec<String> = rows
                .iter()
                .map(|row| format!("{} {}\n", row.get::<_, i64>(0), row.get::<_, i64>(1)))
                .collect();
            if !ids.is_empty() {
                run_as(program, stage, config, &ids.concat());
            }
        }
    }
}

// Req: L1, A5, X2, U3
#[test]
fn a_connection_may_be_lost_at_every_point() {
    let mut db = database();
    let way =
        [("FIELD", "rcpt_to"), ("SUFFIX", "@drop.example"), ("THEN_STAGE", "drop"), ("NEXT_STAGE", "route")];
    let route = [("ROUTES", "a.example:near b.example:far"), ("NEXT_STAGE", "own"), ("FUSION", "yes")];
    let (home, own) = (db.folder().to_owned(), db.url.clone());
    let config = |url: &str| {
        let file = home.join(if url == own { "direct.conf" } else { "cut.conf" });
        let config = Config::new(url, file).stage("way", "pepsi-stage-if", &way);
        config.stage("route", "pepsi-stage-route", &route).stage("drop", "pepsi-stage-discard", &[]).write()
    };
    let direct = config(&db.url);
    let server = db.url.split("host=").nth(1).expect("a folder").to_owned();
    let server = Path::new(&server).join(".s.PGSQL.5432");
    let through = |db: &mut Database, at, cut| {
        let folder = db.folder().join(format!("cut-{at}-{cut:?}"));
        std::fs::create_dir(&folder).expect("a folder");
        let requests = cutter(&folder, &server, at, cut);
        let url = format!("{}host={}", db.url.split("host=").next().expect("a URL"), folder.display());
        let ids: String = world(db).iter().map(|id| format!("{id} 1\n")).collect();
        (url, ids, requests)
    };

    let (url, ids, requests) = through(&mut db, usize::MAX, Cut::Request);
    let path = config(&url);
    let run = run_as("pepsi-stage-if", "way", &path, &ids);
    assert_eq!(run.code, 0, "{}", run.log);
    finish(&mut db, &direct);
    let (expected, all) = (rest(&mut db), requests.load(Ordering::SeqCst));
    let wanted = "far pending b@b.example [1]\nnear pending a@a.example [0]\n\
                  near pending a@a.example [0]\nnear pending c@a.example [0]";
    assert!(expected == wanted && all > 10, "{all} requests: {expected}");

    for cut in [Cut::Request, Cut::Answer] {
        for at in 0..all {
            let (url, ids, _) = through(&mut db, at, cut);
            let path = config(&url);
            let run = run_as("pepsi-stage-if", "way", &path, &ids);
            let answers: Vec<&str> =
                run.output.lines().skip(1).map(|line| line.split(' ').next().unwrap_or(line)).collect();
            assert!(answers.iter().all(|answer| ["0", "74"].contains(answer)), "{at} {cut:?}: {}", run.log);
            finish(&mut db, &direct);
            assert_eq!(rest(&mut db), expected, "{at} {cut:?}: {}", run.log);
        }
    }
}
