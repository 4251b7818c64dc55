//! Tests of composition: which fields are added in front of what, what -t takes out, and where recipients come from.

use super::*;

const FACTS: Facts<'_> = Facts {
    user: "ann",
    uid: 1000,
    host: "mail.example",
    domain: "example.org",
    sender: "ann@example.org",
    full_name: None,
    now_us: 1_780_000_000_123_456,
    pid: 42,
};

fn composed(original: &[u8], facts: &Facts<'_>, remove_bcc: bool) -> String {
    String::from_utf8(compose(original, facts, remove_bcc)).expect("UTF-8")
}

/// The names of the fields in front of `original`, and what stands between them and it.
fn added(original: &[u8]) -> (Vec<String>, String) {
    let message = compose(original, &FACTS, false);
    let front = message.strip_suffix(without_mbox_line(original)).expect("the original stays as it is");
    let fields = header::fields(front);
    let names = fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
    let length: usize = fields.iter().map(|field| field.whole.len()).sum();
    (names, String::from_utf8_lossy(&front[length..]).into_owned())
}

#[test]
fn missing_fields_are_added_in_front() {
    let all = ["Received", "Date", "Message-ID", "From"].map(String::from).to_vec();
    for (original, present, gap) in [
        (&b"Subject: x\r\n\r\nbody"[..], &[][..], ""),
        (b"From: b@c.example\r\n\r\n", &["From"], ""),
        (b"DATE: x\r\nmessage-id: y\r\nfrom:\r\n\r\nbody\r\n", &["From", "Date", "Message-ID"], ""),
        (b"Date : x\r\nSubject: folded\r\n\tDate: no\r\n\r\nFrom: in the body\r\n", &["Date"], ""),
        (b"Subject: header alone\r\nDate: x\r\n", &["Date"], ""),
        (b"Subject: unfinished", &[], ""),
        (b"Subject: x\r\nno field\r\nDate: x\r\n\r\n", &["Date"], ""),
        (b"From now on\r\nit is text\r\n", &[], "\r\n"),
        (b"From now on", &[], "\r\n"),
        (b"\r\nDate: in the body\r\n", &[], ""),
        (b"", &[], ""),
        (b"no header\r\nDate: x\r\n\r\n", &[], "\r\n"),
        (b" leading blank\r\n", &[], "\r\n"),
        (b": no name\r\n", &[], "\r\n"),
        (b"\xff\xfe: no name\r\n", &[], "\r\n"),
        (b"\rDate: x\r\n", &[], "\r\n"),
        (b"one line", &[], "\r\n"),
    ] {
        let expected: Vec<String> =
            all.iter().filter(|name| !present.contains(&name.as_str())).cloned().collect();
        assert_eq!(added(original), (expected, gap.to_owned()), "{:?}", String::from_utf8_lossy(original));
    }
}

#[test]
fn the_line_of_an_mbox_file_is_dropped_above_a_field_alone() {
    for (original, kept) in [
        (
            &b"From ann Mon Nov 30 18:05:39 2026\r\nSubject: x\r\n\r\nFrom me\r\n"[..],
            &b"Subject: x\r\n\r\nFrom me\r\n"[..],
        ),
        (b">From ann\r\nFrom bob\r\nFrom: a@b.example\r\n\r\n", b"From: a@b.example\r\n\r\n"),
    ] {
        let message = compose(original, &FACTS, false);
        let text = String::from_utf8_lossy(&message);
        assert!(message.ends_with(kept) && !text.contains("From ann"), "{text}");
        let front = &message[..message.len() - kept.len()];
        assert!(header::fields(front).len() >= 3 && front.ends_with(b"\r\n"), "{text}");
    }
    let to = b"From ann\r\nTo: a@b.example\r\n\r\n";
    assert_eq!(header_recipients(to).len(), 1);
}

// Req: A8
#[test]
fn any_original_stays_behind_a_header_of_ours() {
    // All short texts of the pieces that matter to where a header ends.
    let pieces: [&[u8]; 6] = [b"\r\n", b"\r", b"A: b", b" ", b"x", b"From "];
    let mut texts: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..5 {
        let longer = texts.iter().flat_map(|text| pieces.iter().map(|piece| [&text[..], piece].concat()));
        texts.extend(longer.collect::<Vec<_>>());
        texts.sort();
        texts.dedup();
    }
    for text in texts {
        added(&text);
        let message = compose(&text, &FACTS, false);
        let (headers, body) = split::split(&message);
        assert!(headers.starts_with(b"Received: "));
        assert_eq!(split::join(headers, body), message);
    }
}

#[test]
fn the_fields_say_who_when_and_where() {
    let message = composed(b"", &FACTS, false);
    assert!(message.contains("mail.example"), "{message}");
    assert!(message.contains("ann, uid 1000"), "{message}");
    assert!(message.contains("Date: Thu, 28 May 2026 20:26:40 +0000\r\n"), "{message}");
    assert!(message.contains("Message-ID: <1780000000123456.42@example.org>\r\n"), "{message}");
    assert!(message.ends_with("From: ann@example.org\r\n"), "{message}");
    let null = composed(b"", &Facts { sender: "", ..FACTS }, false);
    assert!(null.ends_with("From: ann@example.org\r\n"), "{null}");
}

#[test]
fn a_full_name_cannot_leave_its_place() {
    for (name, expected) in [
        ("Ann Lee", "Ann Lee <"),
        ("Ann \"A\\B\" Lee", "\"Ann \\\"A\\\\B\\\" Lee\" <"),
        ("Lee, Ann", "\"Lee, Ann\" <"),
        ("a\r\nBcc: b@c.example", "\"a  Bcc: b@c.example\" <"),
        ("Gr\u{fc}\u{df}e", "=?UTF-8?Q?Gr=C3=BC=C3=9Fe?= <"),
        ("\u{fc}\nx", "=?UTF-8?Q?=C3=BC_x?= <"),
        ("  ", ""),
        ("\n", ""),
    ] {
        let message = composed(b"\r\n", &Facts { full_name: Some(name), ..FACTS }, false);
        let from =
            header::fields(message.as_bytes()).last().map(|field| field.whole.to_vec()).expect("a field");
        let close = if expected.is_empty() { "" } else { ">" };
        assert_eq!(
            String::from_utf8_lossy(&from),
            format!("From: {expected}ann@example.org{close}\r\n"),
            "{name:?}"
        );
    }
    let long = "\u{1f980}".repeat(1000);
    let message = composed(b"\r\n", &Facts { full_name: Some(&long), ..FACTS }, false);
    assert!(message.len() < 3000 && message.lines().all(|line| line.len() <= 78), "{message}");
    let shown = header::text(message.as_bytes(), "From").expect("a field");
    assert_eq!(shown, format!("{} <ann@example.org>", &long[..4 * MAX_NAME_CHARS]));
}

#[test]
fn blind_copies_are_taken_out_whole() {
    for (original, left) in [
        ("To: a\r\nBcc: b\r\nSubject: x\r\n\r\nBcc: body\r\n", "To: a\r\nSubject: x\r\n\r\nBcc: body\r\n"),
        ("bcc: b,\r\n c,\r\n\td\r\nTo: a\r\n\r\n", "To: a\r\n\r\n"),
        ("Bcc: b\r\n\r\nx", "\r\nx"),
        ("Resent-Bcc: b\r\nTo: a\r\nBCC : c\r\n", "To: a\r\n"),
        ("To: a\r\nBcc: b", "To: a\r\n"),
        ("Bcc: b", ""),
        ("To: a\r\nX-Bcc: b\r\nBccx: c\r\n\r\n", "To: a\r\nX-Bcc: b\r\nBccx: c\r\n\r\n"),
        ("no header\r\nBcc: b\r\n", "\r\nno header\r\nBcc: b\r\n"),
    ] {
        let message = composed(original.as_bytes(), &FACTS, true);
        let front = message.strip_suffix(left).unwrap_or_else(|| panic!("{original:?}: {message}"));
        assert!(front.ends_with("From: ann@example.org\r\n"), "{original:?}: {message}");
    }
}

#[test]
fn recipients_come_from_the_header() {
    let found = |text: &str| {
        let list = header_recipients(text.as_bytes()).into_iter();
        list.map(|piece| piece.map_or_else(|error| format!("! {error}"), |a| a.to_string()))
            .collect::<Vec<_>>()
    };
    let three = "To: Ann <a@x.example>, b@x.example\r\ncc: (c) c@x.example\r\nBcc: g:\r\n d@x.example;\r\n\r\nTo: no@x.example\r\n";
    assert_eq!(found(three), ["a@x.example", "b@x.example", "c@x.example", "d@x.example"]);
    let resent = format!("Resent-To: r@x.example\r\nResent-Bcc: s@x.example\r\n{three}");
    assert_eq!(found(&resent), ["r@x.example", "s@x.example"]);
    assert_eq!(found("Resent-From: a@x.example\r\nTo: b@x.example\r\n\r\n"), ["b@x.example"]);
    assert_eq!(found("To: undisclosed-recipients:;\r\n\r\n"), [""; 0]);
    assert_eq!(found("no header\r\nTo: b@x.example\r\n"), [""; 0]);
    assert!(found("To: a b@x.example\r\n")[0].starts_with("! "));
    let latin = header_recipients(b"To: \"caf\xe9\" <a@x.example>, caf\xe9@x.example\r\n");
    assert_eq!(latin[0].as_ref().map(ToString::to_string), Ok("a@x.example".into()));
    assert!(latin[1].is_err());
}
