//! Deliveries into a temporary folder: what is on disk, and what becomes of the message.

use super::*;
use crate::proto::conf::{Conf, Sources};
use crate::worker::context::Outcome;
use crate::worker::fixture::{self, Move, Row};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

/// A folder of this test's own, removed at its end.
struct Base(PathBuf);

impl Base {
    fn new() -> Base {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pepsi-maildir-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Base(path)
    }

    /// Delivers under `MAILDIR = BASE/TEMPLATE` and these other options.
    fn run(&self, template: &str, options: &str, row: Row) -> Result<Outcome, StageError> {
        let mut route = fixture::route("relay");
        route.bounce = options.contains("BOUNCE_STAGE").then(|| "bounce".to_owned());
        let stage = read(&format!("MAILDIR = {}/{template}\n{options}", self.0.display())).unwrap();
        stage.run(fixture::context(row, route), &mut fixture::Unconnected).map(Done::into_outcome)
    }

    /// The files of a folder below the base, in order.
    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(self.0.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    /// The one message in `maildir`/new; nothing may be left in tmp.
    fn only(&self, maildir: &str) -> PathBuf {
        let files = self.files(&format!("{maildir}/new"));
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(self.files(&format!("{maildir}/tmp")).is_empty());
        files[0].clone()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(options: &str) -> Result<RelayToMaildir, ConfError> {
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    let text = format!("[stage-relay]\nPROGRAM = pepsi-stage-relay-to-maildir\n{options}\n");
    let conf = Conf::parse("test.conf", &text, &sources).unwrap();
    RelayToMaildir::read(&conf.section("stage-relay").unwrap())
}

/// A message that has just arrived.
fn row(rcpt_to: &[&str]) -> Row {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    let received_at_us = i64::try_from(now).unwrap();
    let rcpt_to = rcpt_to.iter().map(|rcpt| (*rcpt).to_owned()).collect();
    Row { rcpt_to, received_at_us, now_us: received_at_us, ..fixture::row(41) }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

const USUAL: &str = "${domain}/${local}/";

#[test]
fn a_delivery_makes_the_maildir_and_one_private_file() {
    let base = Base::new();
    let outcome = base.run(USUAL, "", row(&["Bob@Example.NET"])).unwrap();
    assert_eq!((outcome.to, outcome.merge), (Move::Finish, json!({})));
    let file = base.only("example.net/Bob");
    let text = fs::read(&file).unwrap();
    let expected =
        "Return-Path: <ann@example.org>\nDelivered-To: Bob@Example.NET\nSubject: x\n\nline one\nline two";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
    assert_eq!(mode(&file), 0o600);
    for folder in [
        "example.net",
        "example.net/Bob",
        "example.net/Bob/tmp",
        "example.net/Bob/new",
        "example.net/Bob/cur",
    ] {
        assert_eq!(mode(&base.0.join(folder)), 0o700, "{folder}");
    }
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.contains("Q41.") && !name.contains([':', '/']), "{name}");
}

#[test]
fn bytes_are_kept_but_for_line_ends() {
    let base = Base::new();
    let mut message = row(&["bob@x"]);
    message.headers = Some(b"A: \xff\r\nB: bare\rcr\r\n lf\n".to_vec());
    message.body = Some(b"\r\n\r\r\n.\r\n\n\r".to_vec());
    base.run("lf", "ADD_TRACE = no", message.clone()).unwrap();
    assert_eq!(fs::read(base.only("lf")).unwrap(), b"A: \xff\nB: bare\rcr\n lf\n\n\n\r\n.\n\n\r");
    base.run("crlf", "ADD_TRACE = no\nLINE_END = CRLF", message.clone()).unwrap();
    let whole = b"A: \xff\r\nB: bare\rcr\r\n lf\n\r\n\r\n\r\r\n.\r\n\n\r";
    assert_eq!(fs::read(base.only("crlf")).unwrap(), whole);
    message.body = None;
    base.run("bare", "ADD_TRACE = no\nLINE_END = crlf", message).unwrap();
    assert_eq!(fs::read(base.only("bare")).unwrap(), b"A: \xff\r\nB: bare\rcr\r\n lf\n");
}

#[test]
fn a_trace_line_stays_one_line() {
    let base = Base::new();
    let mut message = row(&["bob@x"]);
    message.mail_from = "a@x>\r\nBcc: <e".into();
    base.run("all", "", message).unwrap();
    let text = fs::read_to_string(base.only("all")).unwrap();
    assert!(text.starts_with("Return-Path: <a@x>??Bcc: <e>\nDelivered-To: bob@x\nSubject"), "{text}");
}

#[test]
fn each_maildir_gets_one_copy() {
    let base = Base::new();
    base.run("${local}/in", "", row(&["bob@x", "bob@y", "ann@x", "bob@x"])).unwrap();
    let text = fs::read_to_string(base.only("bob/in")).unwrap();
    assert_eq!(text.matches("Delivered-To: ").count(), 3);
    base.only("ann/in");
}

#[test]
fn a_retry_finds_the_first_copy_where_a_reader_keeps_it() {
    let base = Base::new();
    let message = row(&["bob@x"]);
    let again = || {
        base.run("in", "", message.clone()).unwrap();
        (base.files("in/new").len(), base.files("in/cur").len())
    };
    assert_eq!(again(), (1, 0));
    assert_eq!(again(), (1, 0));
    let file = base.only("in");
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let seen = base.0.join("in/cur").join(format!("{name}:2,RS"));
    fs::rename(&file, &seen).unwrap();
    assert_eq!(again(), (0, 1));
    let unflagged = base.0.join("in/cur").join(&name);
    fs::rename(&seen, &unflagged).unwrap();
    assert_eq!(again(), (0, 1));
    // Another message's file whose name begins the same way is not ours.
    fs::rename(&unflagged, base.0.join("in/cur").join(format!("{name}1:2,"))).unwrap();
    assert_eq!(again(), (1, 1));
}

#[test]
fn cur_is_not_read_unless_it_changed_since_the_message_came() {
    let base = Base::new();
    let message = row(&["bob@x"]);
    base.run("in", "", message.clone()).unwrap();
    let file = base.only("in");
    let cur = base.0.join("in/cur");
    fs::rename(&file, cur.join(file.file_name().unwrap())).unwrap();
    let before = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(&cur).unwrap().set_modified(before).unwrap();
    base.run("in", "", message).unwrap();
    // A folder that old cannot hold the file, so the message was written.
    assert_eq!(base.files("in/new").len(), 1);
}

#[test]
fn what_a_killed_process_left_in_tmp_is_removed_and_never_linked() {
    let base = Base::new();
    let message = row(&["bob@x"]);
    base.run("in", "", message.clone()).unwrap();
    let file = base.only("in");
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    fs::remove_file(&file).unwrap();
    let tmp = base.0.join("in/tmp");
    for left in [format!("{name}_1"), format!("{name}_{}", std::process::id())] {
        fs::write(tmp.join(left), "half a mess").unwrap();
    }
    fs::write(tmp.join("of-another"), "x").unwrap();
    base.run("in", "ADD_TRACE = no", message).unwrap();
    assert!(fs::read_to_string(&base.files("in/new")[0]).unwrap().starts_with("Subject: x\n"));
    assert_eq!(base.files("in/tmp"), [tmp.join("of-another")]);
}

#[test]
fn folders_that_are_not_what_they_should_be_are_host_faults() {
    for folder in ["tmp", "new", "cur"] {
        for kind in ["file", "link", "nowhere"] {
            let base = Base::new();
            fs::create_dir_all(base.0.join("in")).unwrap();
            fs::create_dir(base.0.join("elsewhere")).unwrap();
            let path = base.0.join("in").join(folder);
            match kind {
                "file" => fs::write(&path, "").unwrap(),
                "link" => symlink(base.0.join("elsewhere"), &path).unwrap(),
                _ => symlink("/nonexistent/x", &path).unwrap(),
            }
            let error = base.run("in", "", row(&["bob@x"])).unwrap_err();
            assert!(!error.is_permanent && error.text.contains(path.to_str().unwrap()), "{}", error.text);
            assert!(base.files("elsewhere").is_empty());
        }
    }
}

#[test]
fn a_file_in_the_way_of_a_maildir_is_a_host_fault_and_a_linked_one_is_followed() {
    let base = Base::new();
    fs::write(base.0.join("file"), "").unwrap();
    let error = base.run("${local}", "", row(&["file@x"])).unwrap_err();
    assert!(error.text.contains("/file is no folder"), "{}", error.text);
    fs::create_dir(base.0.join("real")).unwrap();
    symlink("real", base.0.join("link")).unwrap();
    base.run("${local}/box", "", row(&["link@x"])).unwrap();
    base.only("real/box");
}

#[test]
fn a_base_that_is_not_there_is_not_made() {
    let base = Base::new();
    let error = base.run("unmounted/${local}", "", row(&["bob@x"])).unwrap_err();
    assert!(error.text.contains("unmounted") && error.text.contains("os error 2"), "{}", error.text);
    assert!(!error.is_permanent && base.files("").is_empty());
}

#[test]
fn a_full_disk_leaves_nothing_and_names_the_file_and_the_reason() {
    let base = Base::new();
    let place = Place { base: base.0.clone(), folders: vec!["in".into()] };
    let delivery = Delivery { name: "1.M2Q3.host", received: SystemTime::now() };
    let error = delivery
        .make(&place, &|out| {
            out.write_all(b"some of it")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        })
        .unwrap_err();
    assert!(
        error.text.contains("in/tmp/1.M2Q3.host") && error.text.contains("os error 28"),
        "{}",
        error.text
    );
    assert!(base.files("in/new").is_empty() && base.files("in/tmp").is_empty());
}

#[test]
fn recipients_that_were_reached_are_not_tried_again() {
    let base = Base::new();
    fs::write(base.0.join("bad"), "").unwrap();
    let mut message = row(&["good@x", "bad@x", "@x", "other@x"]);
    message.state = json!({ "dsn": { "rcpt": ["g", "b", "n", "o"] } });
    let error = base.run("${local}", "", message).unwrap_err();
    assert!(!error.is_permanent);
    let kept = error.into_kept();
    assert_eq!(kept.content.rcpt_to, Some(vec!["bad@x".into(), "@x".into()]));
    assert_eq!(kept.merge, json!({ "dsn": { "rcpt": ["b", "n"] } }));
    base.only("good");
    base.only("other");
}

// Req: S3
#[test]
fn an_address_without_a_place_bounces_or_fails_alone() {
    let long = format!("{}@x", "l".repeat(300));
    for (hostile, template) in
        [("bob", USUAL), (long.as_str(), USUAL), ("", USUAL), ("bob@", "${address}"), ("a b@x", USUAL)]
    {
        for (options, to) in [("BOUNCE_STAGE = bounce", "bounce"), ("", "")] {
            let base = Base::new();
            let outcome = base.run(template, options, row(&["good@x", hostile])).unwrap();
            assert_eq!(outcome.content.rcpt_to, Some(vec![hostile.to_owned()]), "{hostile}");
            assert_eq!(outcome.merge["failure_class"], "permanent");
            assert_eq!(outcome.merge["failed_stage"], "relay");
            let text = outcome.merge["last_error"].as_str().unwrap();
            assert!(text.contains(hostile), "{text}");
            if to.is_empty() {
                assert_eq!(outcome.to, Move::Fail);
            } else {
                assert_eq!(outcome.to, Move::Advance { stage: to.into() });
                assert_eq!(outcome.merge["bounce"]["failed_recipient"], hostile);
            }
            base.only(if template == USUAL { "x/good" } else { "good@x" });
        }
    }
}

#[test]
fn a_bare_local_name_takes_the_default_domain() {
    let base = Base::new();
    base.run(USUAL, "DEFAULT_DOMAIN = Home.Example", row(&["root"])).unwrap();
    base.only("home.example/root");
    base.run("${local}/in", "", row(&["root"])).unwrap();
    base.only("root/in");
}

#[test]
fn a_message_for_nobody_is_a_permanent_error() {
    assert!(Base::new().run(USUAL, "", row(&[])).unwrap_err().is_permanent);
}

#[test]
fn a_message_with_a_next_stage_goes_on() {
    let base = Base::new();
    let mut route = fixture::route("relay");
    route.next = Some("archive".into());
    let stage = read(&format!("MAILDIR = {}/in", base.0.display())).unwrap();
    let outcome = stage
        .run(fixture::context(row(&["bob@x"]), route), &mut fixture::Unconnected)
        .unwrap()
        .into_outcome();
    assert_eq!(outcome.to, Move::Advance { stage: "archive".into() });
}

#[test]
fn folders_that_were_there_keep_their_mode() {
    let base = Base::new();
    fs::create_dir(base.0.join("in")).unwrap();
    fs::set_permissions(base.0.join("in"), Permissions::from_mode(0o2775)).unwrap();
    base.run("in", "", row(&["bob@x"])).unwrap();
    assert_eq!(mode(&base.0.join("in")), 0o2775, "a folder that was there keeps its mode");
    assert_eq!(mode(&base.only("in")), 0o600);
    assert_eq!(mode(&base.0.join("in/new")), 0o700);
}

// Req: S4
#[test]
fn bad_sections_are_refused_by_name() {
    for (options, word) in [
        ("", "MAILDIR"),
        ("MAILDIR =", "MAILDIR"),
        ("MAILDIR = mail/${local}", "absolute"),
        ("MAILDIR = /m/../x/${local}", ".."),
        ("MAILDIR = /m/${local}\nLINE_END = cr", "LINE_END"),
        ("MAILDIR = /m/${local}\nADD_TRACE = maybe", "ADD_TRACE"),
    ] {
        let error = read(options).unwrap_err().to_string();
        assert!(error.contains(word) && error.starts_with("test.conf:"), "{options}: {error}");
    }
}
