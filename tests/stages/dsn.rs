//! `state.dsn` survives every stage (requirement A4): a row with all parameters of RFC 3461 goes through each of them.

use super::{claimed, database, run_as};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;

const TO: [&str; 3] = ["ann@a.example", "\"b b\"@b.example", "carl@a.example"];

/// The options of a section of each stage program, such that a message goes on.
fn options(program: &str, folder: &str) -> Vec<(&'static str, String)> {
    let own = match program {
        "pepsi-stage-if" => vec![("FIELD", "size"), ("MORE", "1"), ("THEN_STAGE", "rest")],
        "pepsi-stage-discard" => vec![],
        "pepsi-stage-relay-to-maildir" => vec![("MAILDIR", "FOLDER/${local}")],
        "pepsi-stage-srs" => {
            vec![("MODE", "forward"), ("SRS_DOMAIN", "srs.example"), ("SECRET", "a secret of sixteen octets")]
        }
        "pepsi-stage-auto-whitelist" => vec![],
        "pepsi-stage-check-whitelist" => vec![("LISTED_STAGE", "rest")],
        "pepsi-stage-route" => vec![("ROUTES", "a.example:rest")],
        "pepsi-stage-aliases" => vec![("MAPS", "FOLDER/aliases")],
        "pepsi-stage-edit-settings" => vec![("CONTROL_ADDRESS", "ann@a.example"), ("TRUST_LOCAL", "yes")],
        "pepsi-stage-pipe" => vec![("COMMAND", "/bin/cat"), ("CAPTURE", "yes")],
        other => panic!("{other}: a stage without a line in this test"),
    };
    own.into_iter().map(|(name, value)| (name, value.replace("FOLDER", folder))).collect()
}

// Req: A4
#[test]
fn the_parameters_of_each_recipient_survive_every_stage() {
    let mut db = database();
    let entry = |to: &str| json!({ "notify": "SUCCESS,FAILURE", "orcpt": format!("rfc822;{to}") });
    let dsn = json!({ "ret": "HDRS", "envid": "QQ314159", "rcpt": TO.map(entry) });
    let state = json!({ "dsn": dsn, "local_origin": true, "origin": { "auth_user": "x" } }).to_string();
    let folder = db.folder().to_str().expect("a path").to_owned();
    std::fs::write(format!("{folder}/aliases"), "carl@a.example: charles@c.example\n").expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_pepsi")).arg("--list").output().expect("it runs");
    let list = String::from_utf8(output.stdout).expect("UTF-8");
    let programs: Vec<&str> =
        list.split_whitespace().filter(|word| word.starts_with("pepsi-stage-")).collect();
    assert!(programs.len() >= 10, "{list}");
    for program in programs {
        let options = options(program, &folder);
        let mut options: Vec<(&str, &str)> =
            options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        options.push(("NEXT_STAGE", "next"));
        let config = db.config().stage("one", program, &options).write();
        // One of three is listed, so that the recipients part.
        db.run("DELETE FROM pepsi.workqueue; DELETE FROM pepsi.whitelist; INSERT INTO pepsi.whitelist VALUES ('ann@a.example', 'eve@e.example')");
        let id = claimed(&mut db, "one", "eve@e.example", &TO, &state);
        let run = run_as(program, "one", &config, &format!("{id} 1\n"));
        assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0), "{program}: {}", run.log);

        let rows = "SELECT to_jsonb(q) FROM pepsi.workqueue q WHERE stage IN ('next', 'rest')";
        let rows: Vec<Value> =
            db.client.query(rows, &[]).expect("rows").iter().map(|row| row.get(0)).collect();
        let mut left: BTreeMap<String, Value> = BTreeMap::new();
        for row in &rows {
            let dsn = &row["state"]["dsn"];
            assert_eq!(
                (&dsn["ret"], &dsn["envid"]),
                (&json!("HDRS"), &json!("QQ314159")),
                "{program}: {row}"
            );
            let (to, entries) = (row["rcpt_to"].as_array(), dsn["rcpt"].as_array());
            let (to, entries) = (to.expect("recipients"), entries.expect("entries"));
            assert_eq!(to.len(), entries.len(), "{program}: {row}");
            left.extend(
                to.iter().map(|to| to.as_str().expect("text").to_owned()).zip(entries.iter().cloned()),
            );
        }
        let expected: Vec<(&str, &str)> = match program {
            "pepsi-stage-discard" => vec![],
            // Whom the settings are asked of has got the message.
            "pepsi-stage-edit-settings" => vec![(TO[1], TO[1]), (TO[2], TO[2])],
            "pepsi-stage-aliases" => vec![(TO[0], TO[0]), (TO[1], TO[1]), ("charles@c.example", TO[2])],
            _ => TO.map(|to| (to, to)).to_vec(),
        };
        let expected: BTreeMap<String, Value> =
            expected.into_iter().map(|(to, first)| (to.to_owned(), entry(first))).collect();
        assert_eq!(left, expected, "{program}");
    }
}
