//! Tests of address lists: the forms of RFC 5322 and of real mail, wrong pieces, all short texts, linear time.

use super::*;
use std::time::{Duration, Instant};

/// The list with each address displayed, and `!` for an error.
fn shown(value: &str) -> Vec<String> {
    list(value)
        .iter()
        .map(|entry| entry.as_ref().map_or_else(|_| String::from("!"), ToString::to_string))
        .collect()
}

#[test]
fn the_forms_of_the_standard_are_read() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        (" , ,, ", &[]),
        ("a@b", &["a@b"]),
        (" a@b , c@d,", &["a@b", "c@d"]),
        ("Jo Do <jo@do.example>", &["jo@do.example"]),
        ("\"Do, Jo\" <jo@do.example>, x@y", &["jo@do.example", "x@y"]),
        ("\"a \\\" <x@y>, b\" <jo@do>", &["jo@do"]),
        ("jo@do (Jo, (the) Do \\) ), x@y", &["jo@do", "x@y"]),
        ("(c)jo(c)@(c)do(c).(c)example(c)", &["jo@do.example"]),
        ("jo . do @ example . org", &["jo.do@example.org"]),
        ("Jo\r\n Do\r\n\t<jo@\r\n do>", &["jo@do"]),
        ("friends: a@b, C <c@d>;, e@f", &["a@b", "c@d", "e@f"]),
        ("undisclosed-recipients:;", &[]),
        ("undisclosed-recipients: ;", &[]),
        ("<@a,@b:c@d>", &["c@d"]),
        ("X <@[IPv6:::1]:c@d>", &["c@d"]),
        ("a@[IPv6:::1], b@[127.0.0.1]", &["a@[IPv6:::1]", "b@[127.0.0.1]"]),
        ("Jo <a@[IPv6:2001:db8::1]>, x@y", &["a@[IPv6:2001:db8::1]", "x@y"]),
        ("\"a@b\"@c, \"x, y\"@z", &["\"a@b\"@c", "\"x, y\"@z"]),
        ("\"a\r\n b\"@c", &["\"a b\"@c"]),
        ("root", &["root"]),
        ("<root>", &["root"]),
        ("=?utf-8?q?J=C3=B6?= <jo@do>", &["jo@do"]),
        ("Jörg <jörg@do>", &["jörg@do"]),
    ];
    for (value, expected) in cases {
        assert_eq!(shown(value), *expected, "{value:?}");
    }
}

#[test]
fn the_habits_of_real_mail_are_read() {
    let cases: &[(&str, &[&str])] = &[
        ("a@b; c@d", &["a@b", "c@d"]),
        ("jo@do <jo@do>", &["jo@do"]),
        ("Jo Q. Do <jo@do>", &["jo@do"]),
        ("[List: x] Jo <jo@do>", &["jo@do"]),
        ("[Jo <jo@do>, x@y", &["jo@do", "x@y"]),
        ("mailto:jo@do", &["jo@do"]),
        ("Jo <jo@do> (at work)", &["jo@do"]),
        ("friends: a@b, c@d", &["a@b", "c@d"]),
        ("jo@do.", &["jo@do"]),
    ];
    for (value, expected) in cases {
        assert_eq!(shown(value), *expected, "{value:?}");
    }
}

#[test]
fn a_wrong_piece_is_named_and_the_others_count() {
    let cases: &[(&str, &[&str])] = &[
        ("a@b, foo bar, c@d", &["a@b", "!", "c@d"]),
        ("a..b@c, d@e", &["!", "d@e"]),
        ("<>, d@e", &["!", "d@e"]),
        ("Jo <>", &["!"]),
        ("<a@b> <c@d>, e@f", &["!", "e@f"]),
        ("<a <b@c>, d@e", &["!", "d@e"]),
        ("a@b: c@d", &["!", "c@d"]),
        ("a@b, \"open <c@d>, e@f", &["a@b", "!"]),
        ("a@b, (open c@d, e@f", &["a@b", "!"]),
        ("a@b, Jo <c@d, e@f", &["a@b", "!"]),
        ("a@b, <@c>, d@e", &["a@b", "!", "d@e"]),
        ("a@[IPv6:::1, b@c", &["!", "b@c"]),
        ("a@b\0, c@d", &["!", "c@d"]),
        ("a@b>", &["!"]),
        ("a@b\r\nBcc: c@d", &["!", "c@d"]),
    ];
    for (value, expected) in cases {
        assert_eq!(shown(value), *expected, "{value:?}");
    }
    let errors = list("a@b, x y , g: z z;");
    let texts: Vec<&str> = errors.iter().filter_map(|e| e.as_ref().err()).map(|e| e.0.as_str()).collect();
    assert_eq!(texts, ["\"x y\" has a blank in it", "\"z z\" has a blank in it"]);
    let errors = list(&format!("x y\r\n\u{202e}{}", "z".repeat(1000)));
    let Err(AddressError(why)) = &errors[0] else { panic!("{errors:?}") };
    assert!(why.starts_with("\"x y\\r\\n\\u{202e}zz"), "{why}");
    assert!(why.ends_with("has a blank in it") || why.contains("longer than"), "{why}");
    assert!(why.len() < 200, "{why}");
}

/// Every text of up to five tokens: each entry is a sound address or an error of one line.
#[test]
fn every_short_text_is_answered() {
    const TOKENS: &[&str] =
        &["a", "@", ".", "\"", "\\", "<", ">", "(", ")", " ", "[", "]", ",", ";", ":", "\r\n"];
    fn grow(text: &mut String, left: usize, found: &mut usize) {
        for entry in list(text) {
            match entry {
                Ok(found_one) => {
                    *found += 1;
                    assert_eq!(address::parse(&found_one.to_string()), Ok(found_one), "{text:?}");
                }
                Err(AddressError(why)) => assert!(!why.chars().any(char::is_control), "{why:?}"),
            }
        }
        if left > 0 {
            for token in TOKENS {
                let length = text.len();
                text.push_str(token);
                grow(text, left - 1, found);
                text.truncate(length);
            }
        }
    }
    let mut found = 0;
    grow(&mut String::new(), 4, &mut found);
    grow(&mut String::from("x <a"), 4, &mut found);
    assert!(found > 1000, "{found}");
}

/// A hundred thousand addresses, and shapes that a careless parser takes quadratic time or deep recursion for.
#[test]
fn large_values_take_linear_time() {
    let start = Instant::now();
    let many = vec!["Jo \"Q\" Do (c) <jo@do.example>"; 100_000].join(",\r\n ");
    let found = list(&many);
    assert_eq!(found.len(), 100_000);
    assert!(found.iter().all(Result::is_ok));
    for piece in [
        "(", "<", "\"", "[", "@[", "a@[,", "\\", "<@a:", "@", ",", ":", "a:", "a:;", "\"a\" ", "(a) ", "a ",
        "<a>", "\r\n ",
    ] {
        list(&piece.repeat((1 << 18) / piece.len()));
        list(&format!("<{}", piece.repeat((1 << 18) / piece.len())));
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}
