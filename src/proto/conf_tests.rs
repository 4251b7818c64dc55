//! Tests of the configuration: the grammar, variables, inlined files, the overlay, typed values, and hostile input.

use super::*;
use std::cell::RefCell;

const ENVIRONMENT: &[(&str, &str)] = &[
    ("HOME", "/home/pepsi"),
    ("EMPTY", ""),
    ("ODD", "a${HOME}b"),
    ("LINES", "a\nb"),
    ("PGPASSWORD", "secret"),
];

const FILES: &[(&str, &str)] = &[
    ("/etc/pepsi/more.conf", "[b]\nX = 2\n[a]\nY = inlined\n"),
    ("/etc/pepsi/sub/deep.conf", "@inline@ deeper.conf\n"),
    ("/etc/pepsi/sub/deeper.conf", "[deep]\nX = 1\n"),
    ("/etc/pepsi/loop.conf", "@inline@ /etc/pepsi/loop.conf\n"),
    ("/etc/pepsi/bare.conf", "\nX = 1\n"),
    ("/abs.conf", "[abs]\r\nX = 1\r\n"),
];

fn variable(name: &str) -> Option<String> {
    ENVIRONMENT.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

fn inline(file: &str) -> Result<String, String> {
    let found = FILES.iter().find(|(name, _)| *name == file);
    found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| String::from("No such file"))
}

fn parse(text: &str) -> Result<Conf, ConfError> {
    Conf::parse("/etc/pepsi/pepsi.conf", text, &Sources { variable: &variable, inline: &inline })
}

fn value(conf: &Conf, section: &str, option: &str) -> String {
    conf.section(section).unwrap().get(option).unwrap().unwrap()
}

/// The error of a text that does not parse, as displayed, without the file's name.
fn refusal(text: &str) -> String {
    let shown = parse(text).unwrap_err().to_string();
    shown.strip_prefix("/etc/pepsi/pepsi.conf:").unwrap_or(&shown).to_owned()
}

/// The error of `[a] X = …` when it is asked for.
fn late_refusal(text: &str) -> String {
    let conf = parse(text).unwrap();
    let shown = conf.section("a").unwrap().get("X").unwrap_err().to_string();
    shown.strip_prefix("/etc/pepsi/pepsi.conf:").unwrap_or(&shown).to_owned()
}

#[test]
fn sections_options_comments_and_quotes() {
    let text = "\u{feff}# comment\r\n% comment\n\n [ Main ] \r\n Name = some value \nquoted=\" kept \"\n\
                Inner = say \"x\" now\nHash = a # b\nEmpty =\nEquals = a=b=c\nEmptyQuotes = \"\"\n\
                Tab\t=\tx\ty\t\n[other]\nX=1\n[MAIN]\nname = later\nnew-1.x = ü";
    let conf = parse(text).unwrap();
    assert_eq!(conf.sections().iter().map(Section::name).collect::<Vec<_>>(), ["main", "other"]);
    let main = conf.section("mAiN").unwrap();
    assert_eq!(
        main.options(),
        ["NAME", "QUOTED", "INNER", "HASH", "EMPTY", "EQUALS", "EMPTYQUOTES", "TAB", "NEW-1.X"]
    );
    let cases = [
        ("name", "later"),
        ("QUOTED", " kept "),
        ("Inner", "say \"x\" now"),
        ("hash", "a # b"),
        ("empty", ""),
        ("equals", "a=b=c"),
        ("emptyquotes", ""),
        ("tab", "x\ty"),
        ("NEW-1.x", "ü"),
    ];
    for (option, expected) in cases {
        assert_eq!(main.get(option), Ok(Some(expected.to_owned())), "{option}");
    }
    assert_eq!(main.get("absent"), Ok(None));
    assert!(conf.section("absent").is_none());
    assert!(parse("").unwrap().sections().is_empty());
}

// Req: CLI5
#[test]
fn what_does_not_parse_names_its_line() {
    let cases = [
        ("[a]\nhello\n", "2: \"hello\" is neither"),
        ("\nX = 1\n", "2: the option X stands before"),
        ("[a\nX = 1\n", "1: the section \"[a\" has no"),
        ("[a] # note\n", "1: \"# note\" stands behind"),
        ("[]\n", "1: \"[]\" is no section"),
        ("[ ]\n", "1: \"[]\" is no section"),
        ("[a[b]\n", "1: \"[a[b]\" is no section"),
        ("[a]\n\nX = \"open\n", "3: the value \"open begins with a quote"),
        ("[a]\nX = \"\n", "2: the value \" begins with a quote"),
        ("[a]\nX = \"a\" # note\n", "2: the value \"a\" # note begins"),
        ("[a]\n= 1\n", "2: \"\" is no name"),
        ("[a]\nX Y = 1\n", "2: \"X Y\" is no name"),
        ("[a]\nX = a\0b\n", "2: the line has the control character \\x00"),
        ("[a]\n# a\rb\n", "2: the line has the control character \\r"),
        ("[a]\nX = \u{85}\n", "2: the line has the control character \\u{85}"),
        ("@include@ x\n", "1: \"@include@\" is unknown"),
        ("@inline@\n", "1: \"@inline@\" names no file"),
        ("@inline@ \"\"\n", "1: \"@inline@\" names no file"),
    ];
    for (text, expected) in cases {
        let shown = refusal(text);
        assert!(shown.starts_with(expected), "{text:?}: {shown}");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        let crlf = refusal(&text.replace('\n', "\r\n"));
        assert_eq!(crlf, shown, "CRLF changes nothing");
    }
}

#[test]
fn sizes_are_bounded() {
    let name = "n".repeat(ini::MAX_NAME);
    let long = "v".repeat(variable::MAX_VALUE);
    let conf = parse(&format!("[{name}]\n{name} = \"{long}\"\n")).unwrap();
    assert_eq!(value(&conf, &name, &name), long);
    assert!(refusal(&format!("[{name}n]\n")).contains("is no section"));
    assert!(refusal(&format!("[a]\n{name}n = 1\n")).contains("is no name"));
    assert!(refusal(&format!("[a]\nX = {long}v\n")).starts_with("2: the value of X is longer"));
    assert!(
        refusal(&format!("[a]\nX = {}\n", "v".repeat(ini::MAX_LINE))).starts_with("2: the line is longer")
    );
    assert!(refusal(&"\n".repeat(ini::MAX_TEXT + 1)).contains("the file is larger"));
    let shown = refusal(&format!("[a]\n{long}\n"));
    assert!(shown.len() < 300, "{shown}");
}

#[test]
fn bytes_that_are_not_utf8_are_named_by_line() {
    assert_eq!(decode("f", b"[a]\nX = \xc3\xbc".to_vec()), Ok(String::from("[a]\nX = ü")));
    let error = decode("f", b"[a]\nX = \xff\n".to_vec()).unwrap_err();
    assert_eq!(error.to_string(), "f:2: the byte \\xff is not UTF-8");
    assert_eq!(decode("f", b"\xe2\x82".to_vec()).unwrap_err().line, 1);
}

#[test]
fn variables_come_from_paths_then_the_environment() {
    let conf = parse(
        "[paths]\nBase = /srv\nHOME = ${HOME:-/none}/own\nmail = ${BASE}/mail\n\
         [a]\nA = ${base}/x\nB = ${HOME}\nC = ${Mail}/${UNSET:-y}\nD = ${EMPTY:-e}${EMPTY}\nE = ${UNSET:-}\n\
         F = $HOME $ ${UNSET:-{}}\nG = ${UNSET:-${NEITHER:-${BASE}/in}}\nH = ${ODD}\nI = ${UNSET:-a:-b}\nJ = $${BASE}}\n",
    )
    .unwrap();
    let cases = [
        ("A", "/srv/x"),
        ("B", "/home/pepsi/own"),
        ("C", "/srv/mail/y"),
        ("D", "e"),
        ("E", ""),
        ("F", "$HOME $ {}"),
        ("G", "/srv/in"),
        ("H", "a${HOME}b"),
        ("I", "a:-b"),
        ("J", "$/srv}"),
    ];
    for (option, expected) in cases {
        assert_eq!(value(&conf, "a", option), expected, "{option}");
    }
}

#[test]
fn variables_that_do_not_expand_say_where_and_the_way_out() {
    let cases = [
        ("[a]\n\nX = ${NOPE}\n", "3: [a] X: needs the variable NOPE"),
        ("[paths]\nP = ${NOPE}\n[a]\nX = ${P}\n", "2: [paths] P: needs the variable NOPE"),
        ("[paths]\nP = ${Q}\nQ = ${P}\n[a]\nX = ${P}\n", "3: [paths] Q: needs the variable P"),
        ("[a]\nX = ${HOME\n", "2: [a] X: has a \"${\" without"),
        ("[a]\nX = ${HOME:-${B}\n", "2: [a] X: has a \"${\" without"),
        ("[a]\nX = ${}\n", "2: [a] X: has \"${}\", which is no variable"),
        ("[a]\nX = ${1A}\n", "2: [a] X: has \"${1A}\", which is no variable"),
        ("[a]\nX = ${A-b}\n", "2: [a] X: has \"${A-b}\", which is no variable"),
        ("[a]\nX = ${A${B}}\n", "2: [a] X: has \"${A${B}}\", which is no variable"),
        ("[a]\nX = ${LINES}\n", "2: [a] X: has the control character \\n"),
    ];
    for (text, expected) in cases {
        let shown = late_refusal(text);
        assert!(shown.starts_with(expected), "{text:?}: {shown}");
    }
    assert!(late_refusal("[a]\nX = ${NOPE}\n").contains("${NOPE:-DEFAULT}"));
}

#[test]
fn variables_that_multiply_are_bounded() {
    let nested = format!("[a]\nX = {}x{}\n", "${N:-".repeat(40), "}".repeat(40));
    assert!(late_refusal(&nested).contains("nested deeper than"));
    let open = format!("[a]\nX = {}\n", "${N:-".repeat(3000));
    assert!(late_refusal(&open).contains("without its"));
    let mut wide = String::from("[paths]\n");
    for level in 0..12 {
        wide.push_str(&format!("V{level} = {}\n", format!("${{V{}}}", level + 1).repeat(1000)));
    }
    wide.push_str("V12 =\n[a]\nX = ${V0}\n");
    assert!(late_refusal(&wide).contains("comes to more than"));
    let long = "v".repeat(variable::MAX_VALUE / 2);
    let text = format!("[paths]\nV = {long}\n[a]\nX = ${{V}}${{V}}!\n");
    assert!(late_refusal(&text).contains("is longer than"));
}

#[test]
fn a_template_keeps_its_own_variables() {
    let conf =
        parse("[paths]\nM = /m\n[a]\nX = ${M}/${domain}/${local}/${UNSET:-${domain}}\nY = ${domain:-x}\n")
            .unwrap();
    let section = conf.section("a").unwrap();
    let keep = ["local", "domain"];
    assert_eq!(section.template("x", &keep), Ok(Some(String::from("/m/${domain}/${local}/${domain}"))));
    assert!(section.template("Y", &keep).unwrap_err().message.contains("has a default"));
    assert!(section.get("X").unwrap_err().message.contains("the variable domain"));
    assert_eq!(section.template("Z", &keep), Ok(None));
}

#[test]
fn inlined_files_are_found_beside_the_including_one() {
    let conf =
        parse("[a]\nX = 1\n@inline@ more.conf\nZ = 3\n@INLINE@\t\"sub/deep.conf\"\n@inline@ /abs.conf\n")
            .unwrap();
    assert_eq!(conf.section("a").unwrap().options(), ["X", "Y", "Z"]);
    assert_eq!(value(&conf, "b", "X"), "2");
    assert_eq!(value(&conf, "abs", "X"), "1");
    let deep = conf.section("deep").unwrap().error("X", "odd");
    assert_eq!(deep.to_string(), "/etc/pepsi/sub/deeper.conf:2: [deep] X: odd");
    assert!(refusal("\n@inline@ none.conf\n").starts_with("2: @inline@ /etc/pepsi/none.conf: No such file"));
    let looped = parse("@inline@ loop.conf\n").unwrap_err();
    assert_eq!((looped.file.as_str(), looped.line), ("/etc/pepsi/loop.conf", 1));
    assert!(looped.message.contains("a loop"));
    let bare = parse("[a]\n@inline@ bare.conf\n").unwrap_err();
    assert!(bare.to_string().starts_with("/etc/pepsi/bare.conf:2: the option X stands before"));
    let plain = Conf::parse("pepsi.conf", "@inline@ x\n", &Sources { variable: &variable, inline: &inline });
    assert!(plain.unwrap_err().message.starts_with("@inline@ x: No such file"));
}

#[test]
fn inlined_files_are_bounded_in_depth_and_number() {
    let reads = RefCell::new(0);
    let deeper = |file: &str| {
        *reads.borrow_mut() += 1;
        Ok(format!("@inline@ {}x\n", file.rsplit('/').next().unwrap_or_default()))
    };
    let sources = Sources { variable: &variable, inline: &deeper };
    assert!(Conf::parse("x", "@inline@ y\n", &sources).unwrap_err().message.contains("inside each other"));
    assert_eq!(*reads.borrow(), ini::MAX_DEPTH - 1);
    let empty = |_: &str| Ok(String::new());
    let sources = Sources { variable: &variable, inline: &empty };
    let many = "@inline@ y\n".repeat(ini::MAX_FILES - 1);
    assert!(Conf::parse("x", &many, &sources).is_ok());
    assert!(Conf::parse("x", &(many + "@inline@ y\n"), &sources).is_err());
}

// Req: C1
#[test]
fn the_overlay_lies_over_the_file() {
    let mut conf = parse("[Stage-A]\nX = 1\nY = ${HOME}\n[paths]\nP = /p\n").unwrap();
    conf.overlay("STAGE-a", "x", " 2 ");
    conf.overlay("new", "Z", "${P}/${HOME}");
    conf.overlay("new", "password", "${PGPASSWORD}");
    conf.overlay("new", "long", &"v".repeat(variable::MAX_VALUE + 1));
    conf.overlay("new", "nul", "a\0b");
    assert_eq!(value(&conf, "stage-a", "X"), " 2 ");
    assert_eq!(value(&conf, "new", "Z"), "/p//home/pepsi");
    let new = conf.section("NEW").unwrap();
    let error = new.get("password").unwrap_err();
    assert_eq!((error.file.as_str(), error.line), ("config_override", 0));
    assert!(error.message.contains("as far as the file names it"), "{error}");
    assert!(new.get("long").unwrap_err().message.contains("is longer"));
    assert!(new.get("nul").unwrap_err().message.contains("control character"));
    assert_eq!(
        conf.section("stage-a").unwrap().error("X", "odd").to_string(),
        "config_override:0: [stage-a] X: odd"
    );
    let copy: Conf = conf.clone();
    assert_eq!(value(&copy, "stage-a", "y"), "/home/pepsi");
}

#[test]
fn the_environment_is_asked_for_what_the_file_names_alone() {
    let asked = RefCell::new(Vec::new());
    let record = |name: &str| {
        asked.borrow_mut().push(name.to_owned());
        None
    };
    let text = "[a]\nX = ${ONE:-${TWO}} $THREE\n# ${FOUR}\nY = ${ONE} ${} ${\n";
    assert!(Conf::parse("f", text, &Sources { variable: &record, inline: &inline }).is_ok());
    let mut names = asked.into_inner();
    names.sort();
    names.dedup();
    assert_eq!(names, ["ONE", "TWO"]);
}

// Req: CLI5
#[test]
fn typed_values_and_their_errors() {
    let conf =
        parse("[a]\nYes = YES\nNo = no\nBad = maybe\nNum = 12\nNeg = -1\nPlus = +1\nEmpty =\nTime = 5 s\nBare = 5\n")
            .unwrap();
    let a = conf.section("a").unwrap();
    assert_eq!(a.boolean("yes", false), Ok(true));
    assert_eq!(a.boolean("NO", true), Ok(false));
    assert_eq!(a.boolean("absent", true), Ok(true));
    assert_eq!(a.boolean("bad", true).unwrap_err().message, "[a] BAD: \"maybe\" is neither yes nor no");
    assert!(a.boolean("empty", true).is_err());
    assert_eq!(a.number("num", 1, 12..=12), Ok(12));
    assert_eq!(a.number("absent", 7, 0..=1), Ok(7));
    for (option, range) in [
        ("num", 13..=20),
        ("num", 0..=11),
        ("neg", 0..=9),
        ("plus", 0..=9),
        ("empty", 0..=9),
        ("bare", 6..=9),
    ] {
        let error = a.number(option, 1, range).unwrap_err();
        assert!(error.message.contains("is not a whole number from"), "{error}");
    }
    assert_eq!(a.duration("time", Duration::ZERO), Ok(Duration::from_secs(5)));
    assert_eq!(a.duration("absent", Duration::MAX), Ok(Duration::MAX));
    let bare = a.duration("bare", Duration::ZERO).unwrap_err();
    assert_eq!((bare.line, bare.message.contains("\"5 s\"")), (10, true));
    assert!(a.duration("empty", Duration::ZERO).is_err());
    assert_eq!(a.required("time"), Ok(String::from("5 s")));
    assert_eq!(
        a.required("empty").unwrap_err().to_string(),
        "/etc/pepsi/pepsi.conf:8: [a] EMPTY: is empty, but must be set"
    );
    assert_eq!(
        a.required("absent").unwrap_err().to_string(),
        "/etc/pepsi/pepsi.conf:1: [a] ABSENT: is missing"
    );
    assert_eq!(a.error("", "is odd").to_string(), "/etc/pepsi/pepsi.conf:1: [a]: is odd");
    let unknown = a.unknown(&["YES", "NO", "BAD", "NUM", "NEG", "PLUS", "EMPTY", "TIME"]);
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0].to_string(), "/etc/pepsi/pepsi.conf:10: [a] BARE: is no option of this section");
}

/// Every text of up to six tokens parses or is refused with its line, and its values expand or are refused.
#[test]
fn every_short_text_is_answered() {
    const TOKENS: &[&str] = &["[", "a", "]", "=", "\n", "\"", "${", "}", ":-", "#"];
    fn grow(text: &mut String, left: usize, seen: &mut usize) {
        *seen += 1;
        match parse(text) {
            Ok(conf) => {
                for section in conf.sections() {
                    for option in section.options() {
                        let expanded = section.get(option);
                        assert!(expanded.map_or_else(|error| error.line > 0, |value| value.is_some()));
                    }
                }
            }
            Err(error) => {
                let lines = text.split('\n').count();
                assert!(
                    error.line >= 1 && usize::try_from(error.line).unwrap() <= lines,
                    "{text:?}: {error}"
                );
            }
        }
        if left == 0 {
            return;
        }
        for token in TOKENS {
            let length = text.len();
            text.push_str(token);
            grow(text, left - 1, seen);
            text.truncate(length);
        }
    }
    let mut seen = 0;
    grow(&mut String::new(), 4, &mut seen);
    grow(&mut String::from("[a]\na="), 4, &mut seen);
    grow(&mut String::from("[paths]\na=1\n[b]\nx=${a"), 4, &mut seen);
    assert_eq!(seen, 3 * 11_111);
}
