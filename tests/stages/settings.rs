//! What is set for single addresses, from the operator's program to the stage that goes by it.

use super::{LEARN, claimed, database, rows, run, worker};
use std::path::Path;

const SETTINGS: &str = "pepsi-settings";

/// Exit code, output, log.
fn settings(config: &Path, args: &[&str]) -> (i32, String, String) {
    let run = run(SETTINGS, config, args, "");
    (run.code, run.output, run.log)
}

// Req: X1, CLI5
#[test]
fn what_an_owner_may_set_is_set_seen_and_taken_back() {
    let mut db = database();
    let config = db
        .config()
        .stage("learn", LEARN, &[("NEXT_STAGE", "out")])
        .stage("out", "pepsi-stage-discard", &[])
        .write();
    let done = |output: &str| (0, output.to_owned(), String::new());
    let ask = |args: &[&str]| settings(&config, args);
    assert_eq!(ask(&["set", "Ann@X.example", "learn", "learn", "no"]), done(""));
    assert_eq!(ask(&["set", "bob@x.example", "learn", "LEARN", "YES"]), done(""));
    assert_eq!(ask(&["get", "ann@x.example", "learn", "LEARN"]), done("no\n"));
    let line = "{\"address\":\"ann@x.example\",\"option\":\"LEARN\",\"stage\":\"learn\",\"value\":\"no\"}\n";
    assert_eq!(ask(&["list", "--json", "--address", "ann@x.example", "--stage", "learn"]), done(line));
    let table = ask(&["list"]).1;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let ann = ["ann@x.example", "learn", "LEARN", "no"];
    assert_eq!(
        lines,
        [["ADDRESS", "STAGE", "OPTION", "VALUE"], ann, ["bob@x.example", "learn", "LEARN", "YES"]]
    );

    for (args, code, why) in [
        (["set", "ann@x.example", "learn", "LEARN", "perhaps"], 65, "LEARN"),
        (["set", "ann@x.example", "learn", "LEARN", "${HOME}"], 65, "${HOME}"),
        (["set", "ann@x.example", "learn", "NEXT_STAGE", "out"], 65, "no setting NEXT_STAGE for an owner"),
        (["set", "ann@x.example", "out", "LEARN", "no"], 65, "no setting LEARN"),
        (["set", "ann@x.example", "nowhere", "LEARN", "no"], 65, "nowhere has no setting"),
    ] {
        let (found, output, log) = ask(&args);
        assert_eq!((found, output.as_str(), log.lines().count()), (code, "", 1), "{args:?}: {log}");
        assert!(log.contains(why), "{args:?}: {log}");
    }
    assert_eq!(db.number("SELECT count(*) FROM pepsi.settings"), 2, "nothing of that was set");

    assert_eq!(ask(&["unset", "ann@x.example", "learn"]), done(""));
    for args in [&["unset", "ann@x.example", "learn"][..], &["get", "ann@x.example", "learn", "LEARN"]] {
        let (code, output, log) = ask(args);
        assert_eq!((code, output.as_str(), log.lines().count()), (1, "", 1), "{log}");
    }
    assert_eq!(ask(&["unset", "bob@x.example", "learn", "learn"]), done(""));
    assert_eq!(db.number("SELECT count(*) FROM pepsi.settings"), 0);
}

// Req: X1, X2, S4
#[test]
fn a_stage_goes_by_what_is_set_for_each_correspondent() {
    let mut db = database();
    let rcpt_to =
        [("FIELD", "rcpt_to"), ("SUFFIX", "@b.example"), ("THEN_STAGE", "yes"), ("NEXT_STAGE", "no")];
    let config = db
        .config()
        .stage("learn", LEARN, &[("NEXT_STAGE", "out")])
        .stage("way", "pepsi-stage-if", &rcpt_to)
        .stage("out", "pepsi-stage-discard", &[("FUSION", "no")])
        .write();
    let sent = "{\"local_origin\": true}";
    db.run("INSERT INTO pepsi.settings VALUES ('ann@x.example', 'learn', 'LEARN', 'no'), ('ann@x.example', 'way', 'NEGATE', 'yes')");
    let ann = claimed(&mut db, "learn", "Ann@x.example", &["b@b.example"], sent);
    let bob = claimed(&mut db, "learn", "bob@x.example", &["b@b.example"], sent);
    let asked = format!("{ann} 1\n{bob} 1\n");
    let run = super::run_as(LEARN, "learn", &config, &asked);
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n0\n", 0), "{}", run.log);
    assert_eq!(db.text("SELECT string_agg(address, ' ') FROM pepsi.whitelist"), "bob@x.example");
    db.run("DELETE FROM pepsi.workqueue");

    // An owner may not set what is the administrator's, who may, for a domain and for one address of it.
    db.run(
        "INSERT INTO pepsi.config_override VALUES ('domain:b.example', 'Stage-way', 'negate', 'yes'),
             ('domain:x.example', 'stage-way', 'NEGATE', 'no'), ('address:c@b.example', 'stage-way', 'NEGATE', 'no'),
             ('address:d@b.example', 'stage-way', 'NEGATE', 'perhaps')",
    );
    let to = ["a@b.example", "x@x.example", "C@b.example", "b@b.example"];
    let state = "{\"dsn\": {\"rcpt\": [{\"orcpt\": \"1\"}, {\"orcpt\": \"2\"}, {\"orcpt\": \"3\"}, {\"orcpt\": \"4\"}]}}";
    let id = claimed(&mut db, "way", "e@x.example", &to, state);
    let run = worker("pepsi-stage-if", &config, &format!("{id} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n", 0), "{}", run.log);
    let expected =
        "no pending <e@x.example> a@b.example,b@b.example\nway pending <e@x.example> x@x.example,C@b.example";
    assert_eq!(rows(&mut db), expected, "the third and the second agree");
    let entries =
        "SELECT string_agg(state -> 'dsn' ->> 'rcpt', ' ' ORDER BY workqueue_id) FROM pepsi.workqueue";
    let of_them = r#"[{"orcpt": "1"}, {"orcpt": "4"}] [{"orcpt": "2"}, {"orcpt": "3"}]"#;
    assert_eq!(db.text(entries), of_them);
    db.run("UPDATE pepsi.workqueue SET status = 'running', claims = 1 WHERE stage = 'way'");
    let other = db.number("SELECT workqueue_id FROM pepsi.workqueue WHERE stage = 'way'");
    worker("pepsi-stage-if", &config, &format!("{other} 1\n"));
    assert_eq!(
        db.number("SELECT count(*) FROM pepsi.workqueue"),
        2,
        "one that does not diverge is not split"
    );
    assert!(rows(&mut db).contains("yes pending <e@x.example> x@x.example,C@b.example"), "{}", rows(&mut db));

    db.run("DELETE FROM pepsi.workqueue");
    let id = claimed(&mut db, "way", "e@x.example", &["d@b.example", "a@b.example"], "{}");
    let run = worker("pepsi-stage-if", &config, &format!("{id} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n1\n", 1), "{}", run.log);
    assert!(run.log.contains("what is set for d@b.example does not parse: config_override"), "{}", run.log);
    let expected = "way failed <e@x.example> d@b.example\nway pending <e@x.example> a@b.example";
    assert_eq!(rows(&mut db), expected, "it fails alone");
    assert_eq!(
        db.text("SELECT state ->> 'failure_class' FROM pepsi.workqueue WHERE status = 'failed'"),
        "permanent"
    );
}
