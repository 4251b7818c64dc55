//! Tests of envelope addresses: what is accepted and how it is split, what is refused and why, all short texts.

use super::*;

fn good(text: &str, local: &str, domain: &str) {
    let expected = Address { local: local.to_owned(), domain: domain.to_owned() };
    assert_eq!(parse(text), Ok(expected), "{text:?}");
}

fn refused(text: &str, why: &str) {
    let error = parse(text).expect_err(text);
    assert!(error.0.contains(why), "{text:?}: {error}");
    assert!(!error.0.chars().any(char::is_control), "{error:?}");
}

#[test]
fn mailboxes_are_split_at_their_at() {
    good("a@b", "a", "b");
    good("<a@b.example>", "a", "b.example");
    good("Jo.Do+x@Example.ORG", "Jo.Do+x", "Example.ORG");
    good("!#$%&'*+-/=?^_`{|}~@b", "!#$%&'*+-/=?^_`{|}~", "b");
    good("\"a@b\"@c", "\"a@b\"", "c");
    good("\"a\\\"b\"@c", "\"a\\\"b\"", "c");
    good("\"a b\\\\\"@c", "\"a b\\\\\"", "c");
    good("\"..\"@c", "\"..\"", "c");
    good("\"\"@c", "\"\"", "c");
    good("root", "root", "");
    good("\"odd root\"", "\"odd root\"", "");
    good("a@b.", "a", "b");
    good("grün@bücher.example", "grün", "bücher.example");
    good("用户@例子.广告", "用户", "例子.广告");
    good("a@xn--bcher-kva.example", "a", "xn--bcher-kva.example");
    good("a@[127.0.0.1]", "a", "[127.0.0.1]");
    good("a@[IPv6:::1]", "a", "[IPv6:::1]");
    good("a@[ipv6:2001:db8::1]", "a", "[ipv6:2001:db8::1]");
    good("a@under_score.example", "a", "under_score.example");
    good("a@1.2.3.4", "a", "1.2.3.4");
}

// Req: CLI5
#[test]
fn what_is_refused_says_why() {
    for text in ["", "<>"] {
        refused(text, "is empty");
    }
    for text in ["<a@b", "a@b>", "<", ">", "<a@b> "] {
        refused(text, "other half");
    }
    for text in ["a@b\n", "a\r\n@b", "a\0@b", "\"a\tb\"@c", "a@b\u{85}", "\x7f@b"] {
        refused(text, "control character");
    }
    refused("<@a,@b:c@d>", "source route");
    refused("@a:c@d", "source route");
    refused("@b", "nothing before");
    refused("a@", "no domain");
    refused("a@.", "no domain");
    for text in [".a@b", "a.@b", "a..b@c", ".", ".."] {
        refused(text, "dot");
    }
    for text in ["a@b@c", "a@@b"] {
        refused(text, "second \"@\"");
    }
    for text in ["a b@c", " a@b", "a @b", "a\u{a0}b@c", "\"a\u{2028}\"@b", "\"\\\u{2028}\"@b"] {
        refused(text, "blank");
    }
    for text in ["a,b@c", "a(b)@c", "a<b@c", "a:b@c", "a;@c", "a\\b@c", "a\"b\"@c", "a[b@c", "a]b@c"] {
        refused(text, "outside quotes");
    }
    for text in ["\"a", "\"a@b", "\"a\\\"@b", "\""] {
        refused(text, "not closed");
    }
    for text in ["\"a\"b@c", "\"a\".b@c", "\"a\"\"b\"@c"] {
        refused(text, "between its closing quote");
    }
    for text in ["a@b..c", "a@.b", "a@b.."] {
        refused(text, "empty label");
    }
    for text in ["a@-b", "a@b-.c"] {
        refused(text, "hyphen");
    }
    for text in ["a@b c", "a@b,c", "a@b/c", "a@b\u{3002}c", "a@b\u{2028}", "a@b[", "a@b!"] {
        refused(text, "in its domain");
    }
    for text in [
        "a@[127.0.0.1",
        "a@[]",
        "a@[127.0.0]",
        "a@[::1]",
        "a@[IPv6:1]",
        "a@[127.0.0.1].",
        "a@[IPv6:ü]",
        "a@[üüü]",
    ] {
        refused(text, "address literal");
    }
}

#[test]
fn lengths_are_bounded() {
    let local = "l".repeat(MAX_LOCAL);
    let label = "d".repeat(63);
    good(&format!("{local}@{label}"), &local, &label);
    refused(&format!("{local}l@d"), "longer than 64");
    refused(&format!("a@{label}d"), "label longer");
    let domain = format!("{label}.{label}.{}", "d".repeat(MAX_ADDRESS - MAX_LOCAL - 1 - 128));
    good(&format!("<{local}@{domain}.>"), &local, &domain);
    refused(&format!("{local}@{domain}d"), "longer than 254");
    refused(&format!("a@{}", "d.".repeat(200)), "longer than");
    refused(&"x".repeat(1 << 20), "longer than");
    refused(&format!("\"{}", "\\".repeat(1 << 20)), "longer than");
}

#[test]
fn domains_are_compared_in_lower_case() {
    assert_eq!(parse("A@B.Example").unwrap().domain_lower(), "b.example");
    assert_eq!(parse("a@BÜCHER.example").unwrap().domain_lower(), "bücher.example");
    assert_eq!(parse("Root").unwrap().domain_lower(), "");
}

#[test]
fn a_domain_alone_is_put_into_the_form_of_comparison() {
    for (text, expected) in [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("BÜCHER.example", "bücher.example"),
        ("xn--BCHER-kva.example", "xn--bcher-kva.example"),
        ("[192.0.2.1]", "[192.0.2.1]"),
        ("[IPv6:2001:DB8::1]", "[ipv6:2001:db8::1]"),
        ("localhost", "localhost"),
    ] {
        assert_eq!(domain(text).as_deref(), Ok(expected), "{text}");
    }
    for text in ["", ".", "a..b", "-a", "a b", "a@b", "[1.2.3]", "*", &"d.".repeat(200)] {
        assert!(domain(text).is_err(), "{text}");
    }
}

#[test]
fn any_text_is_divided_at_its_last_at_outside_quotes() {
    let long = "l".repeat(300);
    for (text, local, behind) in [
        ("Ann@Example.ORG.", "Ann", Some("example.org")),
        ("ann", "ann", None),
        ("", "", None),
        ("@x", "", Some("x")),
        ("a@", "a", Some("")),
        ("a@b@c", "a@b", Some("c")),
        ("\"a@b\"@c", "\"a@b\"", Some("c")),
        ("\"a@b\"", "\"a@b\"", None),
        ("\"a\\\"@b\"@c", "\"a\\\"@b\"", Some("c")),
        ("\"a@b", "\"a", Some("b")),
        ("a b@c\n", "a b", Some("c\n")),
        ("a@[IPv6:::1]", "a", Some("[ipv6:::1]")),
        (&format!("{long}@c"), &long, Some("c")),
    ] {
        assert_eq!(divide(text), (local, behind.map(str::to_owned)), "{text}");
    }
}

#[test]
fn quotes_alone_make_no_other_mailbox() {
    for (local, expected, plain) in [
        ("ann", "ann", "ann"),
        ("\"ann\"", "ann", "ann"),
        ("\"a\\nn\"", "ann", "ann"),
        ("\"ann.b\"", "ann.b", "ann.b"),
        ("\"a b\"", "a b", "\"a b\""),
        ("\"a\\ b\"", "a b", "\"a b\""),
        ("\"a\\\\b\"", "a\\b", "\"a\\\\b\""),
        ("\"a\\\"b\"", "a\"b", "\"a\\\"b\""),
        ("\"a@b\"", "a@b", "\"a@b\""),
        ("\"a..b\"", "a..b", "\"a..b\""),
        ("\"\"", "", "\"\""),
        ("\"", "\"", "\"\\\"\""),
        ("\"a\"b", "\"a\"b", "\"\\\"a\\\"b\""),
        ("\"a\\\"", "\"a\\\"", "\"\\\"a\\\\\\\"\""),
        ("a b", "a b", "\"a b\""),
        ("a\nb", "a\nb", "\"a\nb\""),
    ] {
        assert_eq!(content(local), expected, "{local}");
        assert_eq!(local_of(expected), plain, "{local}");
        assert_eq!(content(plain), expected, "{local}");
    }
}

/// Whatever is accepted displays as itself, is one line, and has no `@` outside quotes but the one it is split at.
#[test]
fn every_short_text_is_answered() {
    const TOKENS: &[&str] =
        &["a", "@", ".", "\"", "\\", "<", ">", " ", "[", "]", "127.0.0.1", "\n", "ü", ":", "-"];
    fn grow(text: &mut String, left: usize, accepted: &mut usize) {
        if let Ok(address) = parse(text) {
            *accepted += 1;
            let shown = address.to_string();
            assert_eq!(parse(&shown).as_ref(), Ok(&address), "{text:?}");
            assert!(!shown.chars().any(char::is_control), "{text:?}");
            assert!(!address.domain.contains(['@', ' ', '"']) && !address.local.is_empty(), "{text:?}");
            assert!(address.local.starts_with('"') || !address.local.contains(['@', ' ', '"']), "{text:?}");
            let trimmed = text.trim_start_matches('<').trim_end_matches('>');
            assert!(trimmed == shown || trimmed == format!("{shown}."), "{text:?}");
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
    grow(&mut String::new(), 5, &mut accepted);
    assert!(accepted > 500, "{accepted}");
}

#[test]
fn folded_addresses_are_one_where_they_mean_the_same() {
    for (text, expected) in [
        ("Ann@Example.ORG", "ann@example.org"),
        ("\"Ann\"@example.org.", "ann@example.org"),
        ("\"a\\nn\"@example.org", "ann@example.org"),
        ("\"A B\"@example.org", "\"a b\"@example.org"),
        ("\"a@b\\\\\\\"\"@c", "\"a@b\\\\\\\"\"@c"),
        ("GRÜN@Bücher.example", "grün@bücher.example"),
    ] {
        assert_eq!(folded(text).as_deref(), Ok(expected), "{text}");
        assert_eq!(folded(expected).as_deref(), Ok(expected));
    }
    for text in ["", "root", "\"a@b\"", "a@b@c", "a b@c", "a@", "@b"] {
        assert!(folded(text).is_err(), "{text}");
    }
}

#[test]
fn a_local_part_is_quoted_where_it_has_to_be() {
    for (text, local) in
        [("a.b+c", "a.b+c"), ("", "\"\""), ("a..b", "\"a..b\""), ("a@b", "\"a@b\""), ("\"\\", "\"\\\"\\\\\"")]
    {
        assert_eq!((local_of(text).as_str(), content(local).as_ref()), (local, text));
    }
    for local in ["\"", "a\"b\"", "\"a"] {
        assert_eq!(content(local), local);
    }
}
