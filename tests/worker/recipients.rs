//! Stages that look at recipients, on a real database: `route` splits a message, `aliases` replaces its recipients, `edit-settings`
//! takes those that are for it out.

use super::harness::{Database, database};
use super::talk::worker;
use std::fs;

const ROUTE: &str = "pepsi-stage-route";
const ALIASES: &str = "pepsi-stage-aliases";
const EDIT: &str = "pepsi-stage-edit-settings";

/// A message that was claimed once, with these recipients and NOTIFY parameters; its id.
fn claimed(db: &mut Database, stage: &str, rcpt_to: &[&str], notify: &[&str]) -> i64 {
    let entry = |notify: &&str| format!("{{\"notify\": \"{notify}\"}}");
    let entries = notify.iter().map(entry).collect::<Vec<_>>().join(", ");
    let state = format!("{{\"dsn\": {{\"envid\": \"e\", \"rcpt\": [{entries}]}}}}");
    let rcpt_to: Vec<String> = rcpt_to.iter().map(|text| text.to_string()).collect();
    let add = "SELECT pepsi.workqueue_add('ann@x', $1, 'Subject: s\r\n', 'body', $3::text::jsonb, $2)";
    let id: i64 = db.client.query_one(add, &[&rcpt_to, &stage, &state]).expect("a row is added").get(0);
    db.run(&format!("UPDATE pepsi.workqueue SET status = 'running', claims = 1 WHERE workqueue_id = {id}"));
    id
}

/// All rows, one a line: stage, status, recipients, NOTIFY parameters, whom a bounce is about.
fn rows(db: &mut Database) -> String {
    db.text(
        "SELECT coalesce(string_agg(concat_ws(' ', stage, status, array_to_string(rcpt_to, ','),
             (SELECT string_agg(entry ->> 'notify', '/') FROM jsonb_array_elements(state #> '{dsn,rcpt}') entry),
             state #>> '{bounce,failed_recipient}'), E'\n' ORDER BY workqueue_id), '')
         FROM pepsi.workqueue",
    )
}

// Req: A4, A5, U1
#[test]
fn a_message_is_split_by_the_domains_of_its_recipients() {
    let mut db = database();
    let file = db.folder().join("routes");
    fs::write(&file, "# ours\nexample.org here\n.example.org hosts\n").unwrap();
    let file = file.display().to_string();
    let config = |next: &str| {
        let options = [("ROUTES", "-:here"), ("ROUTES_FILE", &file), ("NEXT_STAGE", next), ("FUSION", "yes")];
        let condition =
            [("FIELD", "subject"), ("EQUALS", "s"), ("THEN_STAGE", "route"), ("NEXT_STAGE", "out")];
        db.config().stage("route", ROUTE, &options).stage("init", super::IF, &condition).write()
    };
    let config = config("out");
    let recipients = ["a@Example.ORG", "b@z", "c", "d@m.example.org", "e@Z"];
    let split = "here pending a@Example.ORG,c DELAY/NEVER\nout pending b@z,e@Z FAILURE/\nhosts pending d@m.example.org SUCCESS";
    // By itself, and in one pass behind another stage.
    for (stage, program) in [("route", ROUTE), ("init", super::IF)] {
        let id = claimed(&mut db, stage, &recipients, &["DELAY", "FAILURE", "NEVER", "SUCCESS", ""]);
        let run = worker(program, &config, &format!("{id} 1\n"));
        assert!(run.code == 0 && run.output.starts_with("ready claims\n0"), "{}{}", run.output, run.log);
        assert_eq!(rows(&mut db), split, "{stage}");
        assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue_body"), 1);
        db.run("DELETE FROM pepsi.workqueue");
    }
    // Several at once, of which only one is split.
    let ids: Vec<i64> = [&["a@example.org"][..], &["b@z", "c"], &["d@z"]]
        .map(|to| claimed(&mut db, "route", to, &[]))
        .to_vec();
    let input: String = ids.iter().map(|id| format!("{id} 1\n")).collect();
    assert_eq!(worker(ROUTE, &config, &input).output, "ready claims\n0\n0\n0\n");
    assert_eq!(rows(&mut db), "here pending a@example.org\nout pending b@z\nout pending d@z\nhere pending c");
}

// Req: A4, A5, S4
#[test]
fn aliases_come_from_files_and_from_the_database() {
    let mut db = database();
    let file = db.folder().join("aliases");
    fs::write(&file, "root: ann,\n  team@x\ngone: :fail: Ask bob.\nnull: /dev/null\n").unwrap();
    let maps = format!("{} table:virtual", file.display());
    let options = [
        ("MAPS", maps.as_str()),
        ("LOCAL_DOMAINS", "example.org"),
        ("NEXT_STAGE", "out"),
        ("BOUNCE_STAGE", "bounce"),
    ];
    let config = db.config().stage("aliases", ALIASES, &options).write();
    db.run(
        "INSERT INTO pepsi.alias (map, address, targets) VALUES ('virtual', 'team@x', '{\"bob@x\", ann}'),
             ('virtual', 'bad@x', '{|sh}'), ('other', 'ann', '{nobody}')",
    );
    let recipients = ["Root@Example.org", "gone", "Stays@x", "bad@x", "null"];
    let id =
        claimed(&mut db, "aliases", &recipients, &["SUCCESS,DELAY", "SUCCESS", "NEVER", "FAILURE", "DELAY"]);
    let untouched = claimed(&mut db, "aliases", &["\"odd one\"@X."], &["SUCCESS"]);
    let run = worker(ALIASES, &config, &format!("{id} 1\n{untouched} 1\n"));
    assert_eq!((run.output.as_str(), run.code), ("ready claims\n0\n0\n", 0), "{}", run.log);
    assert_eq!(
        rows(&mut db),
        "out pending ann@example.org,bob@x,Stays@x DELAY/DELAY/NEVER\n\
         out pending \"odd one\"@X. SUCCESS\n\
         bounce pending gone SUCCESS gone\n\
         aliases paused bad@x FAILURE"
    );
    let bad =
        "SELECT state ->> 'last_error' FROM pepsi.workqueue WHERE status = 'paused' AND timeout > now()";
    assert!(db.text(bad).contains("table:virtual, address bad@x: \"|sh\" runs a program"), "{}", run.log);
    // A change of the file is for the next worker; a wrong one keeps it from starting.
    fs::write(&file, "root: carl\n").unwrap();
    let id = claimed(&mut db, "aliases", &["root"], &[]);
    assert_eq!(worker(ALIASES, &config, &format!("{id} 1\n")).code, 0);
    assert!(rows(&mut db).contains("out pending carl@example.org"), "{}", rows(&mut db));
    fs::write(&file, "root: carl\n\nbob |sh\n").unwrap();
    let run = worker(ALIASES, &config, "");
    assert_eq!((run.output.as_str(), run.code), ("", 78));
    assert!(run.log.contains(&format!("{}:3: ", file.display())), "{}", run.log);
}

// Req: A6, U1
#[test]
fn settings_are_changed_by_mail_and_all_else_passes_without_its_body() {
    let mut db = database();
    let condition = [("FIELD", "subject"), ("EQUALS", "s"), ("THEN_STAGE", "edit"), ("NEXT_STAGE", "out")];
    let options = [("CONTROL_ADDRESS", "settings@x"), ("NEXT_STAGE", "out"), ("ANSWER_STAGE", "answers")];
    let learn = ("pepsi-stage-auto-whitelist", [("NEXT_STAGE", "out")]);
    let config = db.config().stage("init", super::IF, &condition).stage("edit", EDIT, &options);
    let config = config.stage("learn", learn.0, &learn.1).write();
    let login = "UPDATE pepsi.workqueue SET state = state || '{\"origin\": {\"auth_user\": \"Ann@X\"}}'";
    let (other, control) = (
        claimed(&mut db, "init", &["bob@x"], &[]),
        claimed(&mut db, "init", &["settings@x", "bob@x"], &["NEVER", ""]),
    );
    db.run(login);
    let run = worker(super::IF, &config, &format!("{other} 1\n"));
    assert!(run.output.starts_with("ready claims\n0 [[\"edit\","), "{}{}", run.output, run.log);
    assert_eq!(worker(super::IF, &config, &format!("{control} 1\n")).output, "ready claims\n0\n");
    assert_eq!(rows(&mut db), "out pending bob@x\nedit pending settings@x,bob@x NEVER/");
    db.run(&format!(
        "UPDATE pepsi.workqueue SET status = 'running', claims = 2 WHERE workqueue_id = {control}"
    ));
    assert_eq!(worker(EDIT, &config, &format!("{control} 2\n")).code, 0);
    assert_eq!(rows(&mut db), "out pending bob@x\nout pending bob@x \nanswers pending ann@x");
    let answer = db.text(
        "SELECT concat(mail_from, '|', convert_from(headers, 'UTF8'), convert_from(body, 'UTF8'))
         FROM pepsi.workqueue JOIN pepsi.workqueue_body USING (body_id) WHERE stage = 'answers'",
    );
    assert!(answer.starts_with("|Date: ") && answer.contains("There is no line \"end\""), "{answer}");
    let settings = "SELECT string_agg(concat_ws(' ', address, stage, option, value), ', ' ORDER BY option) FROM pepsi.settings";
    for (body, left) in
        [("set learn learn no\nend\n", "ann@x learn LEARN no"), ("unset learn LEARN\n-- \nset", "")]
    {
        let id = claimed(&mut db, "edit", &["settings@x"], &[]);
        db.run(login);
        db.run(&format!("UPDATE pepsi.workqueue_body b SET body = convert_to('{body}', 'UTF8') FROM pepsi.workqueue q WHERE q.body_id = b.body_id AND workqueue_id = {id}"));
        let run = worker(EDIT, &config, &format!("{id} 1\n"));
        assert_eq!(run.output, "ready claims\n0\n", "{}", run.log);
        assert_eq!(db.text(&format!("SELECT coalesce(({settings}), '')")), left, "{}", run.log);
    }
}
