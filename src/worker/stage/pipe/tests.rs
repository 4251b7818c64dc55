//! What becomes of a message by what a real program does with it.

use super::*;
use crate::proto::conf::{Conf, Sources};
use crate::worker::context::Outcome;
use crate::worker::fixture::{self, Content, Move, Row};
use serde_json::json;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

fn read(options: &str) -> Result<Pipe, String> {
    let text = format!("[stage-pipe]\nPROGRAM = pepsi-stage-pipe\n{options}\n");
    let nothing = |_: &str| Err("no file".to_owned());
    let conf = Conf::parse("f.conf", &text, &Sources { variable: &|_| None, inline: &nothing })
        .map_err(|error| error.to_string())?;
    Pipe::read(&conf.section("stage-pipe").unwrap()).map_err(|error| error.to_string())
}

/// Runs a shell script for a message, with these other options; NEXT_STAGE is `next`.
fn run(script: &str, options: &str, row: Row) -> Result<Outcome, StageError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("pepsi-pipe-{}-{number}", std::process::id()));
    fs::write(&file, script).unwrap();
    // Not run by itself: a file that another thread's child still has open for writing is busy.
    let outcome = run_command(&format!("/bin/sh {} ${{sender}} ${{id}}", file.display()), options, row);
    fs::remove_file(file).unwrap();
    outcome
}

fn run_command(command: &str, options: &str, row: Row) -> Result<Outcome, StageError> {
    let stage = read(&format!("COMMAND = {command}\nNEXT_STAGE = next\n{options}")).unwrap();
    let mut route = fixture::route("pipe");
    route.next = Some("next".into());
    route.bounce = options.contains("BOUNCE_STAGE").then(|| "bounce".to_owned());
    stage.run(fixture::context(row, route), &mut fixture::Unconnected).map(Done::into_outcome)
}

fn row() -> Row {
    fixture::row(17)
}

fn goes_to(stage: &str) -> Move {
    Move::Advance { stage: stage.into() }
}

/// A message of these octets, captured from this script: the header and body that are written, None where they stay.
fn capture(script: &str, options: &str, headers: &[u8], body: Option<&[u8]>) -> Result<Content, String> {
    let row = Row { headers: Some(headers.to_vec()), body: body.map(<[u8]>::to_vec), ..row() };
    match run(script, &format!("CAPTURE = yes\n{options}"), row) {
        Ok(outcome) => {
            assert_eq!(outcome.to, goes_to("next"));
            Ok(outcome.content)
        }
        Err(error) => {
            assert!(!error.is_permanent, "{error:?}");
            Err(error.text)
        }
    }
}

#[test]
fn the_exit_code_decides() {
    for code in [0, 1, 2, 63, 64, 65, 75, 77, 78, 79, 126, 255] {
        let script = format!("echo why; echo no; echo 'and more' >&2; exit {code}");
        let outcome = run(&script, "EXIT_STAGES = 2:unsure 255:Odd", row());
        match code {
            0 => assert_eq!(outcome.unwrap().to, goes_to("next")),
            2 => assert_eq!(outcome.unwrap().to, goes_to("unsure")),
            255 => assert_eq!(outcome.unwrap().to, goes_to("odd")),
            64..=74 | 76..=78 => {
                let outcome = outcome.unwrap();
                assert_eq!((&outcome.to, outcome.content), (&Move::Fail, Content::default()), "{code}");
                let error = outcome.merge["last_error"].as_str().unwrap();
                assert!(error.ends_with(&format!("ended with {code}: why ... and more")), "{error}");
            }
            _ => {
                let error = outcome.unwrap_err();
                assert!(!error.is_permanent, "{code}");
                let text = format!("ended with {code}: why ... and more");
                assert!(error.text.ends_with(&text), "{}", error.text);
                assert_eq!(error.into_kept().merge, json!({}));
            }
        }
    }
    let error = run("kill -9 $$", "", row()).unwrap_err();
    assert!(!error.is_permanent && error.text.ends_with("was ended by signal 9"), "{error:?}");
    assert_eq!(run("exit 0", "EXIT_STAGES = 0:a 75:b", row()).unwrap().to, goes_to("a"));
    assert_eq!(run("exit 75", "EXIT_STAGES = 0:a 75:b", row()).unwrap().to, goes_to("b"));
    assert_eq!(run("exit 0", "", row()).unwrap().content, Content::default());
}

// Req: S5
#[test]
fn a_refused_message_goes_to_the_bounce_stage_and_says_what_it_may() {
    let script = "echo 'secret \\033' | tr -d x; printf '\\001tail\\n' >&2; exit 65";
    for (options, told) in [("", REFUSED), ("TELL_SENDER = yes\n", "secret \\x1b")] {
        let outcome = run(script, &format!("{options}BOUNCE_STAGE = bounce"), row()).unwrap();
        assert_eq!((outcome.to, outcome.content), (goes_to("bounce"), Content::default()));
        let mut merge = outcome.merge;
        let error = merge["last_error"].take();
        assert!(error.as_str().unwrap().ends_with("ended with 65: secret \\x1b ... \\x01tail"), "{error}");
        assert_eq!(
            merge,
            json!({
                "bounce": { "kind": "permanent", "diagnostic": told, "failed_recipient": "bob@example.net" },
                "failed_stage": "pipe",
                "failure_class": "permanent",
                "last_error": null,
            })
        );
    }
    let silent = run("exit 65", "TELL_SENDER = yes\nBOUNCE_STAGE = bounce", row()).unwrap();
    assert_eq!(silent.merge["bounce"]["diagnostic"], REFUSED);
    let two = Row { rcpt_to: vec!["a@b".into(), "c@d".into()], ..row() };
    let outcome = run("exit 65", "BOUNCE_STAGE = bounce", two).unwrap();
    assert_eq!(outcome.merge["bounce"].get("failed_recipient"), None);
}

#[test]
fn the_message_comes_on_standard_input() {
    for (headers, body, options, whole) in [
        (
            &b"A: b\r\n"[..],
            Some(&b"x\r\ny\n\0\xff\r"[..]),
            "LINE_END = crlf",
            &b"A: b\r\n\r\nx\r\ny\n\0\xff\r"[..],
        ),
        (b"A: b\r\n", Some(b"x\r\ny\n\0\xff\r"), "", b"A: b\n\nx\ny\n\0\xff\r"),
        (b"A: b\r\n", Some(b""), "LINE_END = lf", b"A: b\n\n"),
        (b"A: b\r\n", None, "", b"A: b\n"),
        (b"", Some(b"x"), "", b"\nx"),
        (b"", None, "", b""),
    ] {
        let row = Row { headers: Some(headers.to_vec()), body: body.map(<[u8]>::to_vec), ..row() };
        let octal: String = whole.iter().map(|byte| format!("\\0{byte:o}")).collect();
        let script = format!("printf '%b' '{octal}' | cmp - /dev/stdin >&2");
        assert_eq!(run(&script, options, row).map(|outcome| outcome.to), Ok(goes_to("next")), "{whole:?}");
    }
    let script = "[ \"$(cat)\" = \"$(printf 'Return-Path: <ann@example.org>\nDelivered-To: bob@example.net\nSubject: x\n\nline one\nline two')\" ]";
    assert_eq!(run(script, "ADD_TRACE = yes", row()).map(|outcome| outcome.to), Ok(goes_to("next")));
    let large = vec![b'x'; 3 << 20];
    let row = Row { body: Some(large), ..row() };
    assert_eq!(run("[ $(wc -c) = 3145740 ]", "", row).unwrap().to, goes_to("next"));
}

#[test]
fn the_envelope_is_in_the_environment_and_in_the_arguments() {
    let expect = |row: Row, test: &str| {
        let outcome = run(&format!("env >&2; {test}"), "", row);
        assert_eq!(outcome.map(|outcome| outcome.to), Ok(goes_to("next")), "{test}");
    };
    let one = "[ \"$SENDER|$RECIPIENT|$RECIPIENTS|$PEPSI_ID|$PEPSI_STAGE\" = 'ann@example.org|bob@example.net|bob@example.net|17|pipe' ]";
    expect(row(), one);
    expect(
        row(),
        "[ \"$1|$2|$#\" = 'ann@example.org|17|2' ] && [ -z \"${CLIENT_ADDRESS+x}${ORIGINAL_RECIPIENT+x}\" ]",
    );
    let state = json!({
        "origin": { "client_ip": "192.0.2.7" },
        "dsn": { "rcpt": [{ "orcpt": "rfc822;old@x" }] },
    });
    expect(Row { state, ..row() }, "[ \"$CLIENT_ADDRESS|$ORIGINAL_RECIPIENT\" = '192.0.2.7|rfc822;old@x' ]");
    let two = Row { rcpt_to: vec!["a b@x".into(), "-c@d".into()], mail_from: String::new(), ..row() };
    expect(two, "[ \"$SENDER$1|$RECIPIENTS|${RECIPIENT-none}|$#\" = '|a b@x\n-c@d|none|2' ]");
    let hostile = "';$(id)`id`\n\"x y\" ../* ${recipient}";
    let row =
        Row { mail_from: hostile.into(), state: json!({ "origin": 7, "dsn": { "rcpt": "x" } }), ..row() };
    expect(row, &format!("[ \"$1\" = \"$SENDER\" ] && [ $# = 2 ] && [ ${{#1}} = {} ]", hostile.len()));
    // Nothing else, such as what may hold a password.
    expect(
        self::row(),
        "! env | grep -Ev '^(PATH|HOME|LANG|TZ|PEPSI_ID|PEPSI_STAGE|SENDER|RECIPIENTS?|PWD|SHLVL|OLDPWD|_)='",
    );
}

#[test]
fn what_cannot_be_handed_over_is_refused() {
    let long = "x".repeat(command::MAX_VALUE + 1);
    for (mail_from, rcpt_to, word) in [
        ("-rf@x", vec!["a@b"], "'-'"),
        ("a@b", vec!["a\nb@c", "d@e"], "line end"),
        ("a\0b", vec!["a@b"], "NUL"),
        (&long, vec!["a@b"], "octets"),
        ("a@b", vec![&long], "octets"),
    ] {
        let row = Row {
            mail_from: mail_from.into(),
            rcpt_to: rcpt_to.iter().map(|rcpt| rcpt.to_string()).collect(),
            ..row()
        };
        let failed = run("exit 1", "", row.clone()).unwrap();
        let error = failed.merge["last_error"].as_str().unwrap();
        assert!(failed.to == Move::Fail && error.contains(word), "{error}");
        let outcome = run("exit 1", "BOUNCE_STAGE = bounce", row).unwrap();
        assert_eq!(
            (outcome.to, &outcome.merge["bounce"]["diagnostic"]),
            (goes_to("bounce"), &json!(REFUSED))
        );
    }
    assert!(run("exit 0", "", Row { rcpt_to: Vec::new(), ..row() }).unwrap_err().is_permanent);
    let odd = Row { rcpt_to: vec!["a@b@c".into()], ..row() };
    let failed = run_command("/bin/true ${user}", "", odd).unwrap();
    assert!(failed.merge["last_error"].as_str().unwrap().contains("recipient"), "{failed:?}");
}

#[test]
fn a_message_to_several_is_split_where_the_command_is_for_one() {
    let state = json!({ "dsn": { "rcpt": [{ "orcpt": "1" }, { "orcpt": "2" }] } });
    let two = Row { rcpt_to: vec!["a@b".into(), "c@d".into()], state, ..row() };
    for (command, options) in [("/bin/false ${user}", ""), ("/bin/false", "ONE_RECIPIENT = yes")] {
        let outcome = run_command(command, options, two.clone()).unwrap();
        assert_eq!((outcome.to, outcome.content.rcpt_to), (goes_to("pipe"), Some(vec!["a@b".into()])));
        assert_eq!(outcome.merge, json!({ "dsn": { "rcpt": [{ "orcpt": "1" }] } }));
        assert_eq!(outcome.fan.groups.len(), 1);
        assert_eq!(run_command(command, options, row()).unwrap_err().text, "/bin/false ended with 1");
    }
    assert!(run_command("/bin/false", "", two).is_err());
}

// Req: A3, A8
#[test]
fn what_is_captured_becomes_the_message() {
    let (headers, body) = (&b"Subject: a\r\n"[..], Some(&b"one\r\ntwo\r\n"[..]));
    let taken = |script: &str| capture(script, "", headers, body).unwrap();
    assert_eq!(taken("cat"), Content::default());
    assert_eq!(taken("echo noise >&2; exec cat"), Content::default());
    let added = taken("echo 'X-New: 1'; cat");
    assert_eq!(added.headers.unwrap(), b"X-New: 1\r\nSubject: a\r\n");
    assert_eq!((added.body, added.subject.flatten().as_deref()), (None, Some("a")));
    let changed = taken("sed s/two/2/");
    assert_eq!((changed.headers, changed.body), (None, Some(Some(b"one\r\n2\r\n".to_vec()))));
    let mixed = taken("printf 'A: 1\\r\\nB: 2\\n\\nx\\ny\\r\\n'");
    assert_eq!(
        (&mixed.headers.unwrap()[..], mixed.body),
        (&b"A: 1\r\nB: 2\r\n"[..], Some(Some(b"x\r\ny\r\n".to_vec())))
    );
    let bare = taken("printf 'A: 1\\n'");
    assert_eq!((&bare.headers.unwrap()[..], bare.body), (&b"A: 1\r\n"[..], Some(None)));
    let empty = taken("printf 'A: 1\\n\\n'");
    assert_eq!(empty.body, Some(Some(Vec::new())));
}

#[test]
fn octets_that_a_program_leaves_alone_stay_as_they_are() {
    for (headers, body) in [
        (&b"A: b\nC: d\r\n"[..], Some(&b"x\ny\r\n\0\xff\r\r\n"[..])),
        (b"A: b\n\nnot a body\r\n", None),
        (b"", None),
        (b"no field\r\n", Some(b"x")),
        (b"A: b\r\n", Some(b"")),
    ] {
        for end in ["lf", "crlf"] {
            let outcome = capture("cat", &format!("LINE_END = {end}"), headers, body);
            // No octet of input is none of output.
            let expected = if headers.is_empty() { Err(()) } else { Ok(Content::default()) };
            assert_eq!(outcome.map_err(drop), expected, "{headers:?} {end}");
        }
    }
    let crlf = |script| capture(script, "LINE_END = crlf", b"A: b\r\n", Some(b"x\ny\r\r\n"));
    let added = crlf("printf 'X: 1\\r\\n'; cat").unwrap();
    assert_eq!((&added.headers.unwrap()[..], added.body), (&b"X: 1\r\nA: b\r\n"[..], None));
    assert!(crlf("echo 'X: 1'; cat").unwrap_err().contains("LF alone"));
    assert!(crlf("tr -d '\\r'").unwrap_err().contains("LF alone"));
    // A body whose own line ends are odd is not taken for changed where only the header is.
    let lf = capture("echo 'X: 1'; cat", "", b"A: b\r\n", Some(b"x\ny\r\r\n")).unwrap();
    assert_eq!((&lf.headers.unwrap()[..], lf.body), (&b"X: 1\r\nA: b\r\n"[..], None));
}

#[test]
fn a_captured_header_keeps_the_body() {
    let (headers, body) = (&b"Subject: a\r\n"[..], Some(&b"one\ntwo"[..]));
    let taken = |script: &str| capture(script, "CAPTURE = headers", headers, body);
    for script in
        ["echo X: 1; cat", "echo X: 1; sed '/^$/q'", "echo X: 1; head -n 1", "printf 'X: 1\\nSubject: a'"]
    {
        let content = taken(script).unwrap();
        assert_eq!(
            (&content.headers.unwrap()[..], content.body),
            (&b"X: 1\r\nSubject: a\r\n"[..], None),
            "{script}"
        );
    }
    assert_eq!(taken("head -n 1").unwrap(), Content::default());
    assert!(taken(":").is_err());
}

#[test]
fn an_output_that_is_no_message_loses_nothing() {
    for (script, options, word) in [
        (":", "", "nothing"),
        ("echo oops", "", "header"),
        ("echo; echo Subject: in the body", "", "header"),
        ("cat; echo 'disk full' >&2; exit 1", "", "disk full"),
        ("cat; kill -9 $$", "", "signal"),
        ("yes a: b", "OUTPUT_LIMIT = 100000", "OUTPUT_LIMIT"),
        ("cat; sleep 1000", "TIME_LIMIT = 300 ms", "took longer than 300ms"),
        ("cat; sleep 1000 & exit 0", "", "left behind"),
    ] {
        let error = capture(script, options, b"A: b\r\n", Some(b"x")).unwrap_err();
        assert!(error.contains(word), "{script}: {error}");
    }
}

#[test]
fn a_program_that_is_gone_is_a_host_fault() {
    let file = std::env::temp_dir().join(format!("pepsi-pipe-gone-{}", std::process::id()));
    fs::copy("/bin/true", &file).unwrap();
    let stage = read(&format!("COMMAND = {}", file.display())).unwrap();
    fs::remove_file(&file).unwrap();
    let message = fixture::context(row(), fixture::route("pipe"));
    let error = stage.run(message, &mut fixture::Unconnected).unwrap_err();
    assert!(!error.is_permanent && error.text.contains("cannot be started"), "{error:?}");
}

// Req: A2
#[test]
fn without_a_next_stage_the_row_goes() {
    let stage = read("COMMAND = true").unwrap();
    let done = stage.run(fixture::context(row(), fixture::route("pipe")), &mut fixture::Unconnected).unwrap();
    assert_eq!(done.into_outcome().to, Move::Finish);
}

// Req: S4
#[test]
fn options_are_checked_at_the_start() {
    for (options, word) in [
        ("", "COMMAND"),
        ("COMMAND = 'x", "f.conf:3: [stage-pipe] COMMAND"),
        ("COMMAND = bin/cat", "not absolute"),
        ("COMMAND = /nonexistent/cat", "no such program"),
        ("COMMAND = /etc/passwd", "not executable"),
        ("COMMAND = /usr", "not executable"),
        ("COMMAND = no-such-program-on-path", "no such program"),
        ("COMMAND = cat ${nobody}", "nobody"),
        ("COMMAND = cat\nLINE_END = cr", "[stage-pipe] LINE_END"),
        ("COMMAND = cat\nCAPTURE = maybe", "[stage-pipe] CAPTURE"),
        ("COMMAND = cat\nCAPTURE = yes", "NEXT_STAGE"),
        ("COMMAND = cat\nCAPTURE = yes\nEXIT_STAGES = 1:a", "NEXT_STAGE"),
        ("COMMAND = cat\nCAPTURE = yes\nNEXT_STAGE = a\nADD_TRACE = yes", "ADD_TRACE"),
        ("COMMAND = cat\nOUTPUT_LIMIT = 0", "OUTPUT_LIMIT"),
        ("COMMAND = cat\nTIME_LIMIT = 5", "TIME_LIMIT"),
        ("COMMAND = cat\nTIME_LIMIT = 0 s", "more than nothing"),
        ("COMMAND = cat\nTIME_LIMIT = 5 min", "below MAX_RUNTIME"),
        ("COMMAND = cat\nMAX_RUNTIME = 1 min\nTIME_LIMIT = 2 min", "below MAX_RUNTIME"),
        ("COMMAND = cat\nTIME_LIMIT = forever", "below MAX_RUNTIME"),
        ("COMMAND = cat\nEXIT_STAGES = 1", "EXIT_STAGES"),
        ("COMMAND = cat\nEXIT_STAGES = a:b", "from 0 to 255"),
        ("COMMAND = cat\nEXIT_STAGES = 256:b", "from 0 to 255"),
        ("COMMAND = cat\nEXIT_STAGES = +1:b", "from 0 to 255"),
        ("COMMAND = cat\nEXIT_STAGES = 1:b 01:c", "twice"),
        ("COMMAND = cat\nEXIT_STAGES = 1:b c", "CODE:STAGE"),
        ("COMMAND = cat\nEXIT_STAGES = 1:", "name of a stage"),
        ("COMMAND = cat ${user}\nONE_RECIPIENT = no", "ONE_RECIPIENT"),
        ("COMMAND = cat\nTELL_SENDER = 1", "TELL_SENDER"),
    ] {
        let error = read(options).unwrap_err();
        assert!(error.starts_with("f.conf:") && error.contains(word), "{options}: {error}");
    }
    let stage = read("COMMAND = cat\nCAPTURE = Headers\nEXIT_STAGES = 0:a").unwrap();
    assert_eq!((stage.capture, stage.one_recipient), (Capture::Headers, false));
    assert!(read("COMMAND = cat ${user}").unwrap().one_recipient);
    for (options, limit, grace) in [
        ("", 225_000, 5000),
        ("MAX_RUNTIME = 4 s", 3000, 500),
        ("MAX_RUNTIME = forever\nTIME_LIMIT = 1 s", 1000, 5000),
        ("TIME_LIMIT = 4 min 59 s", 299_000, 500),
    ] {
        let stage = read(&format!("COMMAND = cat\n{options}")).unwrap();
        assert_eq!((stage.time_limit.as_millis(), stage.grace.as_millis()), (limit, grace), "{options}");
    }
    let stage = read("COMMAND = cat\nMAX_RUNTIME = forever").unwrap();
    assert_eq!((stage.time_limit, stage.grace), (Duration::MAX, GRACE));
}
