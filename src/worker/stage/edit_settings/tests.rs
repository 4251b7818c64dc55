//! Who may change what by mail, what becomes of messages that ask for something else, and the answers.

use super::*;
use crate::proto::conf::Sources;
use crate::worker::context::Outcome;
use crate::worker::fixture::{self, Move, Unconnected};
use crate::worker::stage::discard;

/// A stage of which the owner of an address may set two options.
static FILTER: Kind = Kind {
    program: "filter",
    personal: &["LEVEL", "TAG"],
    check: |section| {
        section.number("LEVEL", 1, 0..=9)?;
        if section.get("TAG")?.is_some_and(|tag| tag == "bad") {
            return Err(ConfError { file: "/etc/secret".into(), line: 1, message: "is broken".into() });
        }
        (discard::KIND.check)(section)
    },
    ..discard::KIND
};

fn find_test(program: &str) -> Option<&'static Kind> {
    [&FILTER, &discard::KIND].into_iter().find(|kind| kind.program == program)
}

fn read(options: &str) -> Result<EditSettings, ConfError> {
    let text = format!(
        "[stage-x]\nPROGRAM = pepsi-stage-edit-settings\nNEXT_STAGE = next\n{options}\n\
         [stage-spam]\nPROGRAM = /opt/filter\n[stage-bin]\nPROGRAM = pepsi-stage-discard\n[stage-other]\nPROGRAM = cat\n"
    );
    let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
    let conf = Conf::parse("test.conf", &text, &sources).unwrap();
    EditSettings::read(&conf.section("stage-x").unwrap(), find_test)
}

const OPTIONS: &str = "CONTROL_ADDRESS = Settings@Example.ORG\nLOCAL_DOMAINS = example.org";

/// What was set, for whom.
#[derive(Default)]
struct Settings(Vec<String>);

impl Tables for Settings {
    fn set(&mut self, address: &str, changes: &[Change]) -> Result<(), StageError> {
        let shown = |change: &Change| format!("{} {} {:?}", change.stage, change.option, change.value);
        self.0.push(format!("{address}: {}", changes.iter().map(shown).collect::<Vec<_>>().join(", ")));
        Ok(())
    }
}

struct Mail<'a> {
    rcpt_to: &'a [&'a str],
    mail_from: &'a str,
    login: Value,
    headers: &'a str,
    body: &'a str,
}

const MAIL: Mail<'static> = Mail {
    rcpt_to: &["settings@example.org"],
    mail_from: "Ann@Example.org",
    login: Value::Null,
    headers: "Message-ID: <1@x>\r\n",
    body: "set spam level 5\r\nend\r\n",
};

fn context(mail: &Mail<'_>, loaded: Load) -> Context {
    let mut row = fixture::row(7);
    row.rcpt_to = mail.rcpt_to.iter().map(|text| text.to_string()).collect();
    row.mail_from = mail.mail_from.into();
    let login = if mail.login.is_null() { json!("ann") } else { mail.login.clone() };
    row.state = json!({ "origin": { "auth_user": login }, "local_origin": true, "dsn": { "rcpt": [1, 2] } });
    row.headers = Some(mail.headers.as_bytes().to_vec()).filter(|_| loaded >= Load::Headers);
    row.body = Some(mail.body.as_bytes().to_vec()).filter(|_| loaded >= Load::Full);
    let mut route = fixture::route("x");
    route.next = Some("next".into());
    Context::new(row, loaded, std::rc::Rc::new(route))
}

/// What comes of it, and what was set.
fn run_with(options: &str, mail: &Mail<'_>) -> (Outcome, Vec<String>) {
    let mut settings = Settings::default();
    let done = read(options).unwrap().run(context(mail, Load::Full), &mut settings).unwrap();
    (done.into_outcome(), settings.0)
}

fn run(mail: &Mail<'_>) -> (Outcome, Vec<String>) {
    run_with(OPTIONS, mail)
}

fn answer(outcome: &Outcome) -> (String, String) {
    let [answer] = outcome.fan.sides.as_slice() else { panic!("{outcome:?}") };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&answer.headers), text(answer.body.as_deref().unwrap()))
}

#[test]
fn an_owner_changes_settings_and_is_told() {
    let (outcome, set) =
        run(&Mail { body: "SET Spam level 5\n\nset spam Tag a b\nunset spam level\n-- \nset x", ..MAIL });
    assert_eq!(set, ["ann@example.org: spam LEVEL Some(\"5\"), spam TAG Some(\"a b\"), spam LEVEL None"]);
    assert_eq!(outcome.to, Move::Finish);
    let [side] = outcome.fan.sides.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((side.mail_from.as_str(), side.rcpt_to.as_slice()), ("", &["ann@example.org".to_owned()][..]));
    assert_eq!((side.stage.as_str(), &side.state), ("init", &json!({})));
    let (headers, body) = answer(&outcome);
    for field in [
        "From: Settings@Example.ORG\r\n",
        "To: ann@example.org\r\n",
        "Subject: Your settings were changed\r\n",
        "Auto-Submitted: auto-replied\r\n",
        "In-Reply-To: <1@x>\r\n",
        "References: <1@x>\r\n",
        "Message-ID: <",
        "Date: ",
    ] {
        assert!(headers.contains(field), "{field}: {headers}");
    }
    assert!(
        body.contains("\r\n  set spam LEVEL 5\r\n  set spam TAG a b\r\n  unset spam LEVEL\r\n"),
        "{body}"
    );
    for text in [headers, body] {
        assert!(text.ends_with("\r\n") && !text.replace("\r\n", "").contains(['\r', '\n']), "{text}");
    }
}

#[test]
fn no_line_of_an_answer_is_longer_than_a_line_may_be() {
    let long = format!("{}x", "\u{e9}".repeat(499));
    for (text, cut) in
        [(format!("set spam tag {long}\nend"), true), (format!("set {long} tag {long}\nend"), true)]
    {
        let (outcome, _) = run(&Mail { body: &text, ..MAIL });
        let (_, body) = answer(&outcome);
        assert!(body.split("\r\n").all(|line| line.len() <= 998), "{body}");
        assert_eq!(body.contains("...\r\n"), cut, "{body}");
    }
}

#[test]
fn only_an_owner_gives_commands() {
    let stays = |options: &str, mail: Mail<'_>| {
        let (outcome, set) = run_with(options, &mail);
        assert_eq!(outcome.to, Move::Advance { stage: "next".into() }, "{}", mail.mail_from);
        assert!(set.is_empty() && outcome.fan.is_empty() && outcome.content.rcpt_to.is_none(), "{outcome:?}");
    };
    let obeyed = |options: &str, mail: Mail<'_>| {
        let (outcome, set) = run_with(options, &mail);
        assert!(outcome.to == Move::Finish && set.len() == 1, "{} {outcome:?}", mail.mail_from);
    };
    let login = |login: Value| Mail { login, ..MAIL };
    obeyed(OPTIONS, login(json!("ANN@example.ORG")));
    obeyed(OPTIONS, Mail { rcpt_to: &["\"SETTINGS\"@example.org."], ..MAIL });
    stays(OPTIONS, login(json!("bob")));
    stays(OPTIONS, login(json!("ann@example.net")));
    stays(OPTIONS, login(json!("")));
    stays(OPTIONS, login(json!(["ann"])));
    stays(OPTIONS, login(json!({})));
    stays(OPTIONS, Mail { mail_from: "ann@example.net", ..MAIL });
    stays(OPTIONS, Mail { mail_from: "", ..MAIL });
    stays(OPTIONS, Mail { mail_from: "ann", ..MAIL });
    stays(OPTIONS, Mail { mail_from: "a nn@example.org", ..MAIL });
    stays(OPTIONS, Mail { rcpt_to: &["settings@example.net"], ..MAIL });
    stays(OPTIONS, Mail { rcpt_to: &["settings"], ..MAIL });
    stays(OPTIONS, Mail { rcpt_to: &[], ..MAIL });
    // Without local domains a login is an address.
    stays("CONTROL_ADDRESS = settings@example.org", MAIL);
    let trusting = "CONTROL_ADDRESS = settings@example.org\nTRUST_LOCAL = yes";
    obeyed(trusting, Mail { mail_from: "bob@example.net", ..MAIL });
    stays(trusting, Mail { mail_from: "", ..MAIL });
}

#[test]
fn one_thing_wrong_and_nothing_is_changed() {
    for (body, clause) in [
        ("set spam level 5", "no line \"end\""),
        ("set spam level 5\nhello\nend", "Line 2 (hello)"),
        ("set spam tag x\nset spam secret x\nend", "Line 2: spam has no setting SECRET"),
        ("set bin level 5\nend", "bin has no setting LEVEL"),
        ("set other level 5\nend", "other has no setting LEVEL"),
        ("set none level 5\nend", "none has no setting LEVEL"),
        ("unset none level\nend", "none has no setting LEVEL"),
        (
            "set spam tag x\nset spam level 10\nend",
            "spam: [stage-spam] LEVEL: \"10\" is not a whole number from 0 to 9.",
        ),
        ("set spam tag bad\nend", "spam: the values do not fit."),
        ("", "no line \"end\""),
    ] {
        let (outcome, set) = run(&Mail { body, ..MAIL });
        assert!(set.is_empty() && outcome.to == Move::Finish, "{body}: {set:?}");
        let (headers, text) = answer(&outcome);
        assert!(headers.contains("Subject: Your settings were not changed"), "{headers}");
        assert!(text.contains(clause) && !text.contains("secret\r"), "{body}: {text}");
    }
    let html = Mail { headers: "Content-Type: text/html\r\n", ..MAIL };
    let (outcome, set) = run(&html);
    assert!(set.is_empty() && answer(&outcome).1.contains("Your message has no part in plain text."));
    let odd = Mail { headers: "Message-ID: <a\r\n b> x\r\n", ..MAIL };
    assert!(!answer(&run(&odd).0).0.contains("In-Reply-To"));
}

#[test]
fn automatic_mail_changes_nothing_and_is_not_answered() {
    for headers in [
        "Auto-Submitted: auto-replied\r\n",
        "auto-submitted: auto-generated; x=y\r\n",
        "Auto-Submitted:\r\n",
        "Precedence: Bulk\r\n",
        "List-Id: <x>\r\n",
        "Auto-Submitted: no\r\nAuto-Submitted: auto-replied\r\n",
    ] {
        let (outcome, set) = run(&Mail { headers, ..MAIL });
        assert!(outcome.to == Move::Finish && set.is_empty() && outcome.fan.is_empty(), "{headers}");
    }
    assert_eq!(run(&Mail { headers: "Auto-Submitted: No\r\nPrecedence: first\r\n", ..MAIL }).1.len(), 1);
}

// Req: A4
#[test]
fn its_other_recipients_get_it() {
    let (outcome, set) = run(&Mail { rcpt_to: &["settings@example.org", "bob@x"], ..MAIL });
    assert_eq!((outcome.to, set.len()), (Move::Advance { stage: "next".into() }, 1));
    assert_eq!(outcome.content.rcpt_to.unwrap(), ["bob@x"]);
    assert_eq!(outcome.merge["dsn"], json!({ "rcpt": [2] }));
    assert_eq!(outcome.fan.sides.len(), 1);
}

// Req: U1
#[test]
fn all_but_control_messages_pass_on_metadata() {
    let stage = read(OPTIONS).unwrap();
    let other = Mail { rcpt_to: &["bob@x"], ..MAIL };
    for (mail, loaded, fuses) in [
        (&other, Load::Metadata, true),
        (&MAIL, Load::Metadata, false),
        (&MAIL, Load::Headers, false),
        (&MAIL, Load::Full, true),
    ] {
        assert_eq!(stage.can_fuse(&context(mail, loaded), KIND.load), fuses, "{loaded:?}");
    }
    let done = stage.run(context(&other, Load::Metadata), &mut Unconnected).unwrap();
    assert_eq!(done.into_outcome().to, Move::Advance { stage: "next".into() });
}

#[test]
fn settings_that_cannot_be_written_put_the_message_off() {
    assert!(read(OPTIONS).unwrap().run(context(&MAIL, Load::Full), &mut Unconnected).is_err());
}

// Req: S4
#[test]
fn a_section_that_is_wrong_is_refused() {
    for (options, clause) in [
        ("", "[stage-x] CONTROL_ADDRESS: is missing"),
        ("CONTROL_ADDRESS = settings", "[stage-x] CONTROL_ADDRESS: \"settings\" has no domain"),
        ("CONTROL_ADDRESS = a b@x", "has a blank in it"),
        ("CONTROL_ADDRESS = a@x\nLOCAL_DOMAINS = x ..", "[stage-x] LOCAL_DOMAINS: \"..\" has an empty label"),
        ("CONTROL_ADDRESS = a@x\nTRUST_LOCAL = maybe", "[stage-x] TRUST_LOCAL: "),
        ("CONTROL_ADDRESS = a@x\nANSWER_STAGE = a b", "[stage-x] ANSWER_STAGE: "),
        ("CONTROL_ADDRESS = a@x\nNEXT_STAGE =", "[stage-x] NEXT_STAGE: is empty"),
    ] {
        let error = read(options).unwrap_err().to_string();
        assert!(error.contains(clause), "{options}: {error}");
    }
}
