//! `pepsi-sendmail` against a real database: what becomes of a message, and what is refused with which code.

mod harness;

use harness::Database;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// pepsi-sendmail with `-C CONFIG` and `args`; `harness::pepsi` would give it `-c`.
fn command(config: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pepsi"));
    command
        .env_remove("PEPSI_LOG")
        .env_remove("JOURNAL_STREAM")
        .arg("pepsi-sendmail")
        .arg("-C")
        .arg(config)
        .args(args);
    command
}

fn run(config: &Path, args: &[&str], message: &[u8]) -> Output {
    let mut command = command(config, args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    // A message that is refused early is not read to its end.
    let _ = child.stdin.take().expect("a pipe").write_all(message);
    child.wait_with_output().expect("it ends")
}

/// Sends, and awaits silence and 0.
#[track_caller]
fn send(db: &Database, args: &[&str], message: &[u8]) {
    let config = db.config().set("pepsi-sendmail", "DOMAIN", "example.org").write();
    let output = run(&config, args, message);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.as_ref(), output.stdout.len()), (Some(0), "", 0), "{args:?}");
}

/// Sends, and awaits `code`, one line with `part`, and nothing in the queue.
#[track_caller]
fn refused(db: &mut Database, args: &[&str], message: &[u8], code: i32, part: &str) {
    let config = db.config().set("pepsi-sendmail", "DOMAIN", "example.org").write();
    refusal(&run(&config, args, message), code, part);
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 0);
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue_body"), 0);
}

#[track_caller]
fn refusal(output: &Output, code: i32, part: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(part) && said.lines().count() == 1, "no {part:?} in: {said}");
    assert!(!said.contains("internal error"), "{said}");
}

/// The message of the newest row, put together as requirement A8 says.
fn newest(db: &mut Database) -> Vec<u8> {
    let query = "SELECT headers, body FROM pepsi.workqueue LEFT JOIN pepsi.workqueue_body USING (body_id)
                 ORDER BY workqueue_id DESC LIMIT 1";
    let row = db.client.query_one(query, &[]).expect("a row");
    let (headers, body): (Vec<u8>, Option<Vec<u8>>) = (row.get(0), row.get(1));
    match body {
        Some(body) => [headers, b"\r\n".to_vec(), body].concat(),
        None => headers,
    }
}

/// One column of the newest row as text.
fn column(db: &mut Database, column: &str) -> String {
    db.text(&format!("SELECT ({column})::text FROM pepsi.workqueue ORDER BY workqueue_id DESC LIMIT 1"))
}

#[test]
fn a_message_becomes_a_row() {
    let mut db = harness::database();
    send(&db, &["-f", "ann@example.org", "bob@example.net", "carl"], b"Subject: hello\n\nworld\n");
    assert_eq!(column(&mut db, "mail_from"), "ann@example.org");
    assert_eq!(column(&mut db, "rcpt_to"), "{bob@example.net,carl@example.org}");
    assert_eq!(column(&mut db, "stage || status"), "initpending");
    assert_eq!(column(&mut db, "subject"), "hello");
    assert_eq!(column(&mut db, "header_from"), "ann@example.org");
    assert_eq!(column(&mut db, "state->>'local_origin'"), "true");
    assert_eq!(column(&mut db, "state->'origin'->>'listener'"), "sendmail");
    let user = column(&mut db, "state->'origin'->>'auth_user'");
    assert!(!user.is_empty());
    assert_eq!(column(&mut db, "sender_key"), format!("user:{user}"));
    let message = String::from_utf8(newest(&mut db)).expect("UTF-8");
    for field in ["Received: ", "\r\nDate: ", "\r\nMessage-ID: <", "\r\nFrom: ann@example.org\r\n"] {
        assert!(message.contains(field), "{field:?} in {message}");
    }
    assert!(message.ends_with("\r\nSubject: hello\r\n\r\nworld\r\n"), "{message}");
}

// Req: A8
#[test]
fn whatever_comes_in_stays_as_it_is_but_for_line_ends() {
    let mut db = harness::database();
    let long = [b"Subject: long\n\n".to_vec(), vec![b'x'; 100_000], b"\n".to_vec()].concat();
    for message in [
        &b""[..],
        b"\n",
        b"\n\n\n",
        b"Subject: header alone",
        b"Subject: header alone\n",
        b"Subject: empty body\n\n",
        b"no header\nat all\n",
        b"From now on it is text\n",
        b"Subject: bytes \xe9\xff\nX\xff: y\n\n\x80\xfe\n",
        b"Subject: CR\r\n\r\na\rb\r\r\n\r",
        b"\rSubject: x\n\n",
        b" leading blank\nSubject: x\n\nbody",
        b"Subject: x\nno colon here\n\tfolded nothing\n\nbody\n",
        b"Subject: dots\n\n.\n..\n",
        b"Subject: controls \x01\x1b\x7f\n\n\x01\x1b\x7f\n",
        &long,
    ] {
        send(&db, &["-i", "bob@example.net"], message);
        let mut expected = Vec::new();
        for (at, byte) in message.iter().enumerate() {
            if *byte == b'\n' && (at == 0 || message[at - 1] != b'\r') {
                expected.push(b'\r');
            }
            expected.push(*byte);
        }
        let stored = newest(&mut db);
        assert!(stored.ends_with(&expected), "{}", String::from_utf8_lossy(message));
        let front =
            String::from_utf8(stored[..stored.len() - expected.len()].to_vec()).expect("our own fields");
        assert!(front.starts_with("Received: ") && front.ends_with("\r\n"), "{front}");
    }
}

#[test]
fn the_null_sender_and_the_callers_own() {
    let mut db = harness::database();
    for null in ["", "<>"] {
        send(&db, &["-f", null, "bob@example.net"], b"\nx\n");
        assert_eq!(column(&mut db, "mail_from"), "");
    }
    send(&db, &["bob@example.net"], b"\nx\n");
    let user = column(&mut db, "state->'origin'->>'auth_user'");
    assert_eq!(column(&mut db, "mail_from"), format!("{user}@example.org"));
    send(&db, &["-rann", "-FAnn, here", "bob@example.net"], b"\nx\n");
    assert_eq!(column(&mut db, "mail_from"), "ann@example.org");
    assert!(
        String::from_utf8_lossy(&newest(&mut db)).contains("\r\nFrom: \"Ann, here\" <ann@example.org>\r\n")
    );
}

#[test]
fn recipients_come_from_the_header_and_bcc_goes() {
    let mut db = harness::database();
    let message = b"To: Bob <bob@Example.NET>, bob@example.net\nBcc: hidden@example.net,\n other@example.net\nSubject: x\n\nBcc: stays\n";
    send(&db, &["-t", "-i", "carl@example.net"], message);
    let list = "{carl@example.net,bob@example.net,hidden@example.net,other@example.net}";
    assert_eq!(column(&mut db, "rcpt_to"), list);
    let stored = String::from_utf8(newest(&mut db)).expect("UTF-8");
    assert!(!stored.contains("hidden") && !stored.contains("other@"), "{stored}");
    assert!(stored.ends_with("bob@example.net\r\nSubject: x\r\n\r\nBcc: stays\r\n"), "{stored}");
    send(&db, &["bob@example.net"], message);
    assert!(String::from_utf8_lossy(&newest(&mut db)).contains("hidden"), "without -t nothing is taken out");
}

#[test]
fn a_lone_dot_ends_the_message_without_i() {
    let mut db = harness::database();
    send(&db, &["bob@example.net"], b"Subject: x\n\na\n.\nb\n");
    assert!(newest(&mut db).ends_with(b"\r\n\r\na\r\n"));
    send(&db, &["-oi", "bob@example.net"], b"Subject: x\n\na\n.\nb\n");
    assert!(newest(&mut db).ends_with(b"\r\na\r\n.\r\nb\r\n"));
}

#[test]
fn wishes_about_reports_are_kept() {
    let mut db = harness::database();
    let args = ["-N", "failure,delay", "-R", "hdrs", "-V", "id-1", "a@example.net", "b@example.net"];
    send(&db, &args, b"\nx\n");
    assert_eq!(column(&mut db, "state#>>'{dsn,rcpt,1,notify}'"), "FAILURE,DELAY");
    assert_eq!(column(&mut db, "jsonb_array_length(state#>'{dsn,rcpt}')"), "2");
    assert_eq!(column(&mut db, "state#>>'{dsn,ret}'"), "HDRS");
    assert_eq!(column(&mut db, "state#>>'{dsn,envid}'"), "id-1");
}

// Req: A7
#[test]
fn admission_is_durable_whatever_the_databases_default() {
    let mut db = harness::database();
    let (name, seen) = (db.name.clone(), "SELECT string_agg(setting, ',') FROM public.seen");
    db.run(&format!(
        "ALTER DATABASE {name} SET synchronous_commit = off;
         CREATE TABLE public.seen (setting text);
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
         CREATE TRIGGER note AFTER INSERT ON pepsi.workqueue FOR EACH ROW EXECUTE FUNCTION public.note();"
    ));
    send(&db, &["bob@example.net"], b"\nx\n");
    assert_eq!(db.text(seen), "on");
}

// Req: W5, W6
#[test]
fn the_dispatcher_is_woken_once_with_nothing_but_a_wake() {
    use fallible_iterator::FallibleIterator;
    let db = harness::database();
    let mut listener = db.connect();
    listener.batch_execute("LISTEN workqueue").expect("a connection");
    send(&db, &["a@example.net", "b@example.net"], b"\nx\n");
    listener.batch_execute("").expect("a connection");
    let payloads: Vec<String> = listener
        .notifications()
        .iter()
        .map(|found| Ok(found.payload().to_owned()))
        .collect()
        .expect("a connection");
    assert_eq!(payloads, [""]);
}

// Req: CLI5
#[test]
fn what_cannot_be_taken_is_refused_and_leaves_nothing() {
    let db = &mut harness::database();
    let message = b"Subject: x\n\nx\n";
    for (args, message, code, part) in [
        (&[][..], &message[..], 64, "no recipients given"),
        (&["-t"], message, 64, "no recipients in To, Cc or Bcc"),
        (&["-t"], b"To: undisclosed-recipients:;\n\n", 64, "no recipients in To"),
        (&["a b@example.net"], message, 65, "'a b@example.net' has a blank"),
        (&["a@example.net", ""], message, 65, "'' is empty"),
        (&["a@exa\nmple.net"], message, 65, "control character"),
        (&["-f", "a@", "b@example.net"], message, 65, "sender 'a@' has no domain"),
        (&["-t"], b"To: a@example.net, b c@example.net\n\n", 65, "recipient"),
        (&["a@example.net"], b"Subject: x\n\na\0b\n", 65, "NUL byte in line 3"),
        (&["-bs"], message, 64, "-bs"),
        (&["a@example.net", "-t"], message, 64, "begins with '-'"),
    ] {
        refused(db, args, message, code, part);
    }
}

// Req: CLI5
#[test]
fn the_size_limit_is_for_the_message_as_it_came() {
    let mut db = harness::database();
    let config = db.config().set("pepsi-sendmail", "MESSAGE_SIZE_LIMIT", "1000").write();
    let message = [b"Subject: x\r\n\r\n".to_vec(), vec![b'x'; 986]].concat();
    assert_eq!(run(&config, &["a@example.net"], &message).status.code(), Some(0));
    let over = [message, vec![b'x'; 2]].concat();
    refusal(&run(&config, &["a@example.net"], &over), 65, "longer than the limit of 1000 bytes");
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 1);
}

// Req: CLI5
#[test]
fn a_message_that_cannot_be_read_is_no_message() {
    let mut db = harness::database();
    let config = db.config().write();
    let folder = File::open(db.folder()).expect("the test's folder");
    let output = command(&config, &["a@example.net"]).stdin(folder).output().expect("it runs");
    refusal(&output, 74, "cannot read the message");
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 0);
}

#[test]
fn a_caller_that_dies_half_way_leaves_nothing() {
    let mut db = harness::database();
    let mut child =
        command(&db.config().write(), &["a@example.net"]).stdin(Stdio::piped()).spawn().expect("it runs");
    child
        .stdin
        .as_mut()
        .expect("a pipe")
        .write_all(b"Subject: half\n\nhalf a mess")
        .expect("room in the pipe");
    child.kill().expect("a running child");
    assert_eq!(child.wait().expect("it ends").code(), None);
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 0);
}

// Req: CLI5
#[test]
fn settings_that_cannot_be_are_named() {
    let db = harness::database();
    for (option, value, part) in [
        ("MESSAGE_SIZE_LIMIT", "lots", "MESSAGE_SIZE_LIMIT"),
        ("MESSAGE_SIZE_LIMIT", "0", "MESSAGE_SIZE_LIMIT"),
        ("DOMAIN", "a b", "DOMAIN"),
        ("DOMAIN", "", "DOMAIN"),
        ("STAGE", "", "STAGE"),
    ] {
        let config = db.config().set("pepsi-sendmail", option, value).write();
        refusal(&run(&config, &["a@example.net"], b"\nx\n"), 78, part);
    }
    let config = db.config().set("pepsi-sendmail", "COLOUR", "red").write();
    let output = run(&config, &["a@example.net"], b"\nx\n");
    refusal(&output, 0, "COLOUR");
}

// Req: CLI5
#[test]
fn a_database_that_is_not_ours_is_named() {
    let db = &mut harness::shared().empty_database();
    let config = db.config().write();
    let name = db.name.clone();
    refusal(&run(&config, &["a@example.net"], b"\nx\n"), 78, "pepsi-setup");
    let missing =
        db.config().set("pepsi-postgres", "CONFIG", &harness::shared().url("no_such_database")).write();
    refusal(&run(&missing, &["a@example.net"], b"\nx\n"), 78, "no_such_database");
    let newer = harness::database();
    newer
        .connect()
        .batch_execute(
            "INSERT INTO pepsi.schema_version (patch, checksum, installed_at) VALUES ('9999', 'x', now())",
        )
        .expect("a row");
    refusal(&run(&newer.config().write(), &["a@example.net"], b"\nx\n"), 78, "newer");
    harness::shared().admin(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"));
    let output = run(&config, &["a@example.net"], b"\nx\n");
    assert!(matches!(output.status.code(), Some(75 | 78)), "{}", String::from_utf8_lossy(&output.stderr));
}
