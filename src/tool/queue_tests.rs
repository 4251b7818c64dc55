//! Command lines, and how rows are shown. The program itself is run in `tests/queue.rs`.

use super::*;
use crate::proto::conf::Sources;

fn request(line: &str) -> Result<Request, String> {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse(&args).map_err(|error| error.to_string())
}

/// Both as they print: what a request holds has no other comparison.
fn same(line: &str, expected: Request) {
    assert_eq!(format!("{:?}", request(line)), format!("{:?}", Ok::<_, String>(expected)));
}

fn conf() -> Conf {
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    Conf::parse("t", "[stage-init]\nPROGRAM = p\n", &sources).unwrap()
}

fn row() -> Listed {
    Listed {
        id: 7,
        stage: "init".into(),
        status: "paused".into(),
        claims: 2,
        mail_from: "ann@x".into(),
        rcpt_to: vec!["bob@y".into(), "eve\x1b[2J@y".into()],
        header_from: None,
        subject: Some("Grüße\u{202e}".into()),
        sender_key: "user:ann".into(),
        size: 1234,
        received_at: "2026-11-30T18:00:00Z".into(),
        age_seconds: 300,
        due_seconds: Some(-5),
        state: json!({ "last_error": "no\nway", "dispatch_error": "other" }),
    }
}

#[test]
fn command_lines_are_read() {
    let all = Filter { limit: DEFAULT_LIMIT, ..Filter::default() };
    same("list", Request::List { filter: all.clone(), json: false });
    let filter = Filter {
        stage: Some("s".into()),
        status: Some("failed".into()),
        sender: Some("k".into()),
        recipient: Some("a@b".into()),
        limit: 3,
    };
    let line = "list --stage s --status=failed --sender k --rcpt a@b --limit 3 --json";
    same(line, Request::List { filter, json: true });
    same("show 7 --json", Request::Show { id: 7, json: true });
    same("show --json 7", Request::Show { id: 7, json: true });
}

// Req: CLI5
#[test]
fn bad_command_lines_say_what_is_wrong() {
    for (line, word) in [
        ("", "subcommand"),
        ("lst", "lst"),
        ("show", "id"),
        ("show x", "x"),
        ("show 99999999999999999999", "99999999999999999999"),
        ("show 1 2", "2"),
        ("show 1 --stage s", "--stage"),
        ("list 1", "1"),
        ("list --status done", "pending, running"),
        ("list --limit 0", "0"),
        ("list --limit -1", "limit"),
        ("list --limit many", "many"),
        ("list --stage", "stage"),
        ("list --nonsense", "nonsense"),
        ("list --json=1", "json"),
    ] {
        let error = request(line).unwrap_err();
        assert!(error.contains(word), "{line}: {error}");
    }
}

// Req: W7
#[test]
fn a_row_says_why_it_waits() {
    let conf = conf();
    assert_eq!(why(&conf, &row()).unwrap(), "no\nway");
    let struck = Listed { state: json!({ "dispatch_error": { "a": 1 } }), ..row() };
    assert_eq!(why(&conf, &struck).unwrap(), "{\"a\":1}");
    let lost = Listed { status: "pending".into(), stage: "gone".into(), ..row() };
    assert_eq!(why(&conf, &lost).unwrap(), "there is no section [stage-gone]");
    assert_eq!(why(&conf, &Listed { status: "pending".into(), state: json!(null), ..row() }), None);
}

#[test]
fn a_table_is_for_people_and_json_for_programs() {
    let text = list(&conf(), &[row()], false);
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(head.join(",").to_lowercase(), COLUMNS.join(","));
    let line = lines.next().unwrap();
    assert!(line.contains("5m") && line.contains("-5s") && line.contains("bob@y +1"), "{line}");
    assert!(line.ends_with("no\\nway"), "{line}");

    let text = list(&conf(), &[row(), row()], true);
    assert_eq!(text.lines().count(), 2);
    let object: Map<String, Value> = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let mut keys = COLUMNS.to_vec();
    keys.sort_unstable();
    assert_eq!(object.keys().map(String::as_str).collect::<Vec<_>>(), keys);
    assert_eq!((&object["age"], &object["recipients"][1]), (&json!(300), &json!("eve\x1b[2J@y")));
}

#[test]
fn details_are_shown_without_control_bytes() {
    let text = show(&details(&conf(), &row()));
    assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
    assert_eq!(text.matches("\nrecipients ").count(), 2, "{text}");
    assert!(text.contains("\nsender       <ann@x>\n") && !text.contains("header_from"), "{text}");
}
