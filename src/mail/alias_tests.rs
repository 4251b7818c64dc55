//! Map files of all kinds, what is refused of them and where, and rows of a table.

use super::*;

/// Targets as a text: `\` in front of a final one.
fn words(meaning: &Meaning) -> String {
    match meaning {
        Meaning::Fail(text) => format!("fail <{text}>"),
        Meaning::Targets(targets) => {
            let words = targets.iter().map(|target| match target {
                Target::Discard => String::from("discard"),
                Target::Address { address, is_final } => {
                    format!("{}{address}", if *is_final { "\\" } else { "" })
                }
            });
            words.collect::<Vec<_>>().join(" ")
        }
    }
}

fn one(text: &str) -> String {
    let map = read(text, false).unwrap();
    let all: Vec<String> = map.iter().map(|(key, meaning)| format!("{key} = {}", words(meaning))).collect();
    all.join("; ")
}

fn wrong(text: &str, line: u32, clause: &str) {
    let wrong = read(text, false).expect_err(text);
    assert!(wrong.line == line && wrong.why.contains(clause), "{text}: {wrong:?}");
}

#[test]
fn a_map_is_read_as_it_has_always_been_written() {
    let text =
        "# head\r\n\r\nPostmaster: root\r\nroot : Ann@Example.ORG,\r\n\t\"first last\", # not a comment\n";
    wrong(text, 5, "\"# not a comment\" has a blank in it");
    assert_eq!(
        one("# head\n\nPostmaster: root\nroot : Ann@Example.ORG,,\n\t\"first last\",\n  # between\n\n bob\n"),
        "postmaster = root; root = Ann@Example.ORG \"first last\" bob"
    );
    for (text, expected) in [
        ("", ""),
        ("\u{feff}a: b", "a = b"),
        ("a:b", "a = b"),
        ("a@X.: b@Y.", "a@x = b@Y"),
        ("@X: b", "@x = b"),
        ("\"A B\": c", "\"a b\" = c"),
        ("\"a\": c", "a = c"),
        ("\"a:b\"@x: c", "\"a:b\"@x = c"),
        ("a@[IPv6:::1]: b@[192.0.2.1]", "a@[ipv6:::1] = b@[192.0.2.1]"),
        ("a: <b@x>, \"b@c\"@x, \"b,c\"", "a = b@x \"b@c\"@x \"b,c\""),
        ("a: \\a, \\\"b c\"@x", "a = \\a \\\"b c\"@x"),
        ("a: /dev/null", "a = discard"),
        ("a: :Discard:, b", "a = discard b"),
        ("a: \"/dev/null\"", "a = discard"),
        ("a: :fail: Gone, since May.\n  Ask bob.", "a = fail <Gone, since May. Ask bob.>"),
        ("a: :FAIL:", "a = fail <>"),
        ("a: /c=de/o=x/@gateway.example", "a = /c=de/o=x/@gateway.example"),
        ("ünï: bücher@bücher.example", "ünï = bücher@bücher.example"),
    ] {
        assert_eq!(one(text), expected, "{text}");
    }
    let map = read("Ann: b\nann: c\nAnn@X: d", true).unwrap();
    assert_eq!(map.keys().collect::<Vec<_>>(), ["Ann", "Ann@x", "ann"]);
}

// Req: S4
#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, line, clause) in [
        ("a: b\nc", 2, "no colon"),
        ("\"a: b", 1, "no colon"),
        (" a: b", 1, "nothing stands before it"),
        ("a: b\n\nA: c", 3, "has an entry already, in line 1"),
        ("a@x: b\n\"A\"@X.: c", 2, "has an entry already, in line 1"),
        (": b", 1, "is empty"),
        ("a b: c", 1, "has a blank in it"),
        ("*: c", 1, "@DOMAIN"),
        ("@: c", 1, "no domain"),
        ("\"\": c", 1, "empty local part"),
        ("a@b@c: d", 1, "second \"@\""),
        ("a:", 1, "there is no target"),
        ("a: ,\n\n ,", 1, "there is no target"),
        ("a: b,\n c,\n d e", 3, "has a blank in it"),
        ("a: b,\n \"c d", 2, "not closed"),
        ("a: b\n c", 1, "has a blank in it"),
        ("a: \"|/bin/sh -c x\"", 1, "runs a program"),
        ("a: |/bin/sh", 1, "runs a program"),
        ("a: b,\n  |\"x, y\"", 2, "runs a program"),
        ("a: /var/mail/a", 1, "writes to a file"),
        ("a: \"/var/mail/a b\"", 1, "writes to a file"),
        ("a: :include:/etc/list", 1, "includes a file"),
        ("a: \":Include:/etc/list\"", 1, "includes a file"),
        ("a: b, :fail: x", 1, ":fail: is the only one"),
        ("a: :defer: x", 1, "is neither :discard: nor an address"),
        ("a: b@", 1, "no domain"),
        ("a: Ann <a@x>", 1, "other half"),
        ("a: b\0c", 1, "control character"),
        (&format!("a: {}@x", "l".repeat(65)), 1, "longer than 64"),
        (&format!("a: :fail: {}", "x".repeat(501)), 1, "longer than 500"),
    ] {
        wrong(text, line, clause);
    }
    assert!(read(&format!("a: {}", "x".repeat(1 << 20)), false).unwrap_err().why.len() < 200);
}

#[test]
fn a_row_of_a_table_holds_targets_one_by_one() {
    let row = |texts: &[&str]| row(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>());
    let good = |texts: &[&str]| words(&row(texts).unwrap());
    assert_eq!(good(&["a@x", "b", ":discard:", "\\c, d"]), "a@x b discard \\c d");
    assert_eq!(good(&[":fail: No,\r\nnever"]), "fail <No,  never>");
    for (texts, clause) in [
        (&[][..], "there is no target"),
        (&[""], "there is no target"),
        (&["a", ":fail: x"], "only target"),
        (&["a", "|x"], "runs a program"),
        (&["a\nb"], "control character"),
    ] {
        let error = row(texts).unwrap_err();
        assert!(error.contains(clause), "{texts:?}: {error}");
    }
}

/// Whatever is read, each key is the key of what it names, and each address is one that parses.
#[test]
fn every_short_text_is_answered() {
    const TOKENS: &[&str] =
        &["a", ":", ",", "\n", " ", "\"", "\\", "@", "|", "/", "#", ":fail:", "/dev/null", "[", "]", "ü"];
    fn grow(text: &mut String, left: usize, accepted: &mut usize) {
        if let Ok(map) = read(text, false) {
            *accepted += usize::from(!map.is_empty());
            for (name, meaning) in &map {
                let (local, domain) = address::divide(name);
                let same = key(&address::content(local), domain.as_deref(), false);
                assert_eq!(&same, name, "{text:?}");
                if let Meaning::Targets(targets) = meaning {
                    assert!(!targets.is_empty(), "{text:?}");
                }
            }
        }
        if left > 0 {
            for token in TOKENS {
                let length = text.len();
                text.push_str(token);
                grow(text, left - 1, accepted);
                text.truncate(length);
            }
        }
    }
    let mut accepted = 0;
    grow(&mut String::from("a:"), 4, &mut accepted);
    grow(&mut String::new(), 4, &mut accepted);
    assert!(accepted > 1000, "{accepted}");
}
