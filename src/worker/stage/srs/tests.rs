//! Forwarding and what comes back: where messages go, which recipients part from the others, and sections that are refused.

use super::*;
use crate::proto::conf::{Conf, Sources};
use crate::worker::context::Outcome;
use crate::worker::fan_out::GroupStatus;
use crate::worker::fixture::{self, Content, Move, Row};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const SECRETS: &str = "SRS_DOMAIN = srs.example\nSECRET = a secret of this test\n";
const DAY_US: i64 = 86_400_000_000;

fn read(options: &str) -> Result<SrsStage, ConfError> {
    let text = format!("[stage-srs]\nPROGRAM = pepsi-stage-srs\nNEXT_STAGE = next\n{options}\n");
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    let conf = Conf::parse("test.conf", &text, &sources).unwrap();
    SrsStage::read(&conf.section("stage-srs").unwrap())
}

#[track_caller]
fn refused(options: &str, part: &str) -> String {
    let error = read(options).err().unwrap_or_else(|| panic!("{options:?} is taken")).to_string();
    assert!(error.starts_with("test.conf:") && error.contains(part), "{error}");
    error
}

fn run(options: &str, row: Row, bounce: Option<&str>) -> Result<Outcome, StageError> {
    let mut route = fixture::route("srs");
    route.next = Some("next".into());
    route.bounce = bounce.map(str::to_owned);
    let stage = read(&format!("{SECRETS}{options}")).unwrap();
    stage.run(fixture::context(row, route), &mut fixture::Unconnected).map(Done::into_outcome)
}

fn from(sender: &str) -> Row {
    Row { mail_from: sender.into(), ..fixture::row(1) }
}

/// The sender that it leaves with; None where it stays.
fn forwarded(options: &str, sender: &str) -> Option<String> {
    let outcome = run(&format!("MODE = forward\n{options}"), from(sender), None).unwrap();
    assert_eq!(outcome.to, Move::Advance { stage: "next".into() });
    assert_eq!(
        outcome.content,
        Content { mail_from: outcome.content.mail_from.clone(), ..Content::default() }
    );
    assert_eq!(outcome.merge, json!({}));
    outcome.content.mail_from
}

fn to(recipients: &[&str]) -> Row {
    let rcpt_to: Vec<String> = recipients.iter().map(|one| (*one).to_owned()).collect();
    let entries: Vec<Value> = rcpt_to.iter().map(|one| json!({ "orcpt": one })).collect();
    let state = json!({ "dsn": { "ret": "HDRS", "rcpt": entries }, "origin": { "helo": "x" } });
    Row { mail_from: String::new(), rcpt_to, state, ..fixture::row(1) }
}

// Req: A4
#[test]
fn a_sender_goes_out_and_comes_back() {
    let made = forwarded("", "ann@example.org").unwrap();
    assert!(made.starts_with("SRS0=") && made.ends_with("=example.org=ann@srs.example"), "{made}");
    let back = run("MODE = reverse", to(&["bob@example.net", &made, &made.to_lowercase()]), None).unwrap();
    let expected: Vec<String> =
        ["bob@example.net", "ann@example.org", "ann@example.org"].map(str::to_owned).into();
    assert_eq!(back.content, Content { rcpt_to: Some(expected), ..Content::default() });
    assert_eq!((back.to, back.merge), (Move::Advance { stage: "next".into() }, json!({})));
    assert!(back.fan.is_empty());
}

#[test]
fn senders_that_are_ours_stay() {
    let local = "LOCAL_DOMAINS = Example.ORG .sub.example. [192.0.2.1]";
    for sender in ["", "root", "x@srs.example", "SRS0=A=B=c=d@srs.example"] {
        assert_eq!(forwarded("", sender), None, "{sender}");
    }
    for sender in
        ["a@example.org", "\"a@b\"@EXAMPLE.org.", "a@x.sub.example", "a@y.X.SUB.example", "a@[192.0.2.1]"]
    {
        assert_eq!(forwarded(local, sender), None, "{sender}");
        assert!(forwarded("", sender).is_some(), "{sender}");
    }
    for sender in
        ["a@xexample.org", "a@x.example.org", "a@sub.example", "a@xsub.example", "\"a@example.org\"@b"]
    {
        assert!(forwarded(local, sender).is_some(), "{sender}");
    }
}

#[test]
fn a_stamp_is_of_the_day_of_rewriting_and_judged_by_the_day_of_arrival() {
    let mut row = from("ann@example.org");
    row.received_at_us = 100 * DAY_US;
    row.now_us = 120 * DAY_US;
    let sender = run("MODE = forward", row, None).unwrap().content.mail_from.unwrap();
    let seen = |age: i64, options: &str| {
        let mut row = to(&[&sender]);
        row.received_at_us = (120 + age) * DAY_US;
        row.now_us = 900 * DAY_US;
        run(&format!("MODE = reverse\n{options}"), row, None).unwrap().content.rcpt_to.is_some()
    };
    assert_eq!([-2, -1, 0, 21, 22].map(|age| seen(age, "")), [false, true, true, true, false]);
    assert_eq!([4, 5, 6].map(|age| seen(age, "MAX_AGE = 5 days")), [true, true, false]);
}

#[test]
fn a_sender_that_cannot_be_carried_fails_or_bounces() {
    for sender in ["a b@c", "@", "a@b@c", "\"a@b", "a@b\r\nX: y", &"x".repeat(1 << 20)] {
        let error = run("MODE = forward", from(sender), Some("bounce")).unwrap_err();
        assert!(error.is_permanent && error.text.starts_with("the sender \""), "{}", error.text);
        assert!(!error.text.contains(char::is_control) && error.text.len() < 200, "{}", error.text);
    }
    let long = format!("{}@example.org", "x".repeat(240));
    let outcome = run("MODE = forward", from(&long), Some("bounce")).unwrap();
    assert_eq!(
        (&outcome.to, &outcome.content),
        (&Move::Advance { stage: "bounce".into() }, &Content::default())
    );
    assert_eq!(outcome.merge["bounce"], json!({ "kind": "permanent", "diagnostic": TOO_LONG }));
    assert_eq!(outcome.merge["failed_stage"], "srs");
    let outcome = run("MODE = forward", from(&long), None).unwrap();
    assert_eq!((outcome.to, outcome.merge.get("bounce")), (Move::Fail, None));
}

// Req: A5, S5
#[test]
fn a_forged_recipient_parts_from_the_others() {
    let made = forwarded("", "ann@example.org").unwrap();
    let forged = made.replace("=ann@", "=bob@");
    let row = to(&[&forged, "bob@example.net", &made, "SRS0=x@SRS.example"]);
    let entries = row.state["dsn"]["rcpt"].as_array().unwrap().clone();
    let outcome = run("MODE = reverse", row.clone(), Some("bounce")).unwrap();
    assert_eq!(outcome.to, Move::Advance { stage: "next".into() });
    let kept: Vec<String> = ["bob@example.net", "ann@example.org"].map(str::to_owned).into();
    assert_eq!(outcome.content.rcpt_to, Some(kept));
    assert_eq!(outcome.merge, json!({ "dsn": { "ret": "HDRS", "rcpt": entries[1..3] } }));
    let [last, first] = outcome.fan.groups.as_slice() else { panic!("{:?}", outcome.fan) };
    for (group, recipient, entry) in [(first, &forged, &entries[0]), (last, &row.rcpt_to[3], &entries[3])] {
        assert_eq!((&group.rcpt_to, group.stage.as_deref()), (&vec![recipient.clone()], Some("bounce")));
        assert_eq!(group.state["dsn"], json!({ "ret": "HDRS", "rcpt": [entry] }));
        let bounce = json!({
            "kind": "permanent", "diagnostic": FORGED, "failed_recipient": recipient, "orcpt": recipient,
        });
        assert_eq!(group.state["bounce"], bounce);
        assert_eq!(
            (&group.state["failure_class"], group.status),
            (&json!("permanent"), GroupStatus::Pending)
        );
    }
    let outcome = run("MODE = reverse", row, None).unwrap();
    let statuses: Vec<GroupStatus> = outcome.fan.groups.iter().map(|group| group.status).collect();
    assert_eq!(statuses, [GroupStatus::Failed, GroupStatus::Failed]);
    assert_eq!(
        outcome.fan.groups[0].state["last_error"],
        "SRS0=x@SRS.example: no secret of ours made this address"
    );
    assert_eq!(outcome.fan.groups[0].state.get("bounce"), None);
}

#[test]
fn where_all_recipients_are_refused_one_stays_on_the_row() {
    let expired = "SRS0=x@srs.example";
    let outcome = run("MODE = reverse", to(&[expired]), Some("bounce")).unwrap();
    assert_eq!(
        (&outcome.to, &outcome.content),
        (&Move::Advance { stage: "bounce".into() }, &Content::default())
    );
    assert_eq!(outcome.merge["bounce"]["failed_recipient"], expired);
    assert!(outcome.fan.is_empty());
    let outcome = run("MODE = reverse", to(&[expired, "srs1-y@srs.example"]), None).unwrap();
    assert_eq!((&outcome.to, outcome.fan.groups.len()), (&Move::Fail, 1));
    assert_eq!(outcome.content.rcpt_to, Some(vec![expired.to_owned()]));
    assert_eq!(outcome.fan.groups[0].rcpt_to, ["srs1-y@srs.example"]);
}

#[test]
fn recipients_of_other_kinds_go_on_as_they_are() {
    let long = format!("{}@srs.example", "x".repeat(1 << 20));
    let odd = [
        "",
        "root",
        "ann@srs.example",
        "SRS0@srs.example",
        "SRS0=a=b=c=d@other.example",
        "\"a@b\"@c",
        "a b@",
        "@srs.example",
        "ü@srs.example",
        "\0",
        "SRS0=x",
        "SRS0=x@srs.example@x",
        &long,
    ];
    let outcome = run("MODE = reverse", to(&odd), Some("bounce")).unwrap();
    assert_eq!((outcome.to, outcome.content), (Move::Advance { stage: "next".into() }, Content::default()));
    assert!(outcome.fan.is_empty());
    let nobody = run("MODE = reverse", to(&[]), None).unwrap();
    assert_eq!((nobody.to, nobody.content), (Move::Advance { stage: "next".into() }, Content::default()));
}

// Req: S4
#[test]
fn a_section_says_what_is_wrong_with_it() {
    refused(SECRETS, "MODE: is missing");
    refused(&format!("{SECRETS}MODE = both"), "[stage-srs] MODE: \"both\" is neither forward nor reverse");
    for age in ["0 s", "36 h", "366 d", "forever", "-1 d", "21"] {
        refused(&format!("{SECRETS}MODE = reverse\nMAX_AGE = {age}"), "[stage-srs] MAX_AGE: ");
    }
    refused(
        &format!("MODE = forward\n{SECRETS}LOCAL_DOMAINS = a.example b..c"),
        "LOCAL_DOMAINS: \"b..c\" has an empty label",
    );
    refused("MODE = forward\nSECRET = 0123456789abcdef", "SRS_DOMAIN: is missing");
    refused("MODE = forward\nSECRET = 0123456789abcdef\nSRS_DOMAIN = a@b", "SRS_DOMAIN: \"a@b\" has");
    let options = "MODE = forward\nSRS_DOMAIN = srs.example\n";
    refused(options, "SECRET_FILE: is missing, and there is no SECRET either");
    refused(&format!("{options}SECRET = 0123456789abcdef\nSECRET_FILE = /x"), "SECRET: is one too many");
    let error =
        refused(&format!("{options}SECRET = 0123456789abcde"), "SECRET: secret 1 is shorter than 16 octets");
    assert!(!error.contains("0123"), "{error}");
    refused(&format!("{options}SECRET_FILE = secrets"), "SECRET_FILE: is no absolute path");
    refused(&format!("{options}SECRET_FILE = /nonexistent/x"), "SECRET_FILE: cannot read /nonexistent/x: ");
    refused(&format!("{options}SECRET_FILE = /dev/null"), "is no regular file");
}

// Req: S4
#[test]
fn a_file_of_secrets_is_read_whole_or_refused() {
    let path: PathBuf = std::env::temp_dir().join(format!("pepsi-srs-{}", std::process::id()));
    let set = format!("MODE = reverse\nSRS_DOMAIN = srs.example\nSECRET_FILE = {}", path.display());
    let try_it = |bytes: &[u8], mode: u32, part: Option<&str>| {
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        match part {
            None => drop(read(&set).unwrap()),
            Some(part) => assert!(!refused(&set, part).contains("this year")),
        }
    };
    let good = b"# newest first\n  the secret of this year \r\n\nthe secret of last year";
    try_it(good, 0o600, None);
    try_it(good, 0o640, None);
    try_it(good, 0o644, Some("its mode 0644 lets everybody use it"));
    try_it(good, 0o602, Some("its mode 0602 lets everybody use it"));
    try_it(b"\n# none\n", 0o600, Some("holds 0 secrets, not 1 to 16"));
    try_it("the secret of this year\n".repeat(17).as_bytes(), 0o600, Some("holds 17 secrets"));
    try_it(b"the secret of this year\nshort\n", 0o600, Some("secret 2 is shorter"));
    try_it(b"the secret of this year\xff\n", 0o600, Some("it is not UTF-8"));
    try_it(&[b'x'; 1 << 17], 0o600, Some("longer than 65536 bytes"));
    // The first line signs, and every line verifies.
    fs::write(&path, good).unwrap();
    let sign = |secret: &str| {
        Srs::new("srs.example", &[secret.to_owned()], 21)
            .unwrap()
            .forward("ann@example.org", 7)
            .unwrap()
            .unwrap()
    };
    let stage = read(&set).unwrap();
    for secret in ["the secret of this year", "the secret of last year"] {
        assert_eq!(stage.srs.reverse(&sign(secret), 7), Ok(Some("ann@example.org".into())));
    }
    assert_eq!(stage.srs.forward("ann@example.org", 7).unwrap().unwrap(), sign("the secret of this year"));
    fs::remove_file(&path).unwrap();
}
