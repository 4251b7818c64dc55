//! Tests of the line protocol: all short sequences of its vocabulary against an oracle, and any chunking of a stream.

use super::*;

/// Calls `check` with every sequence of at most `longest` tokens.
fn all_sequences(tokens: &[&[u8]], longest: usize, check: &mut dyn FnMut(&[u8])) {
    fn grow(tokens: &[&[u8]], left: usize, line: &mut Vec<u8>, check: &mut dyn FnMut(&[u8])) {
        check(line);
        if left == 0 {
            return;
        }
        for token in tokens {
            let length = line.len();
            line.extend_from_slice(token);
            grow(tokens, left - 1, line, check);
            line.truncate(length);
        }
    }
    grow(tokens, longest, &mut Vec::new(), check);
}

const VOCABULARY: &[&[u8]] = &[
    b"ready", b"claims", b"0", b"74", b"256", b" ", b"\n", b"\r", b"[", b"]", b"\"a\"", b",", b"-", b"\0",
    b"\xff",
];

/// What the protocol's text says about a line, written without the parser's means.
#[derive(Debug, PartialEq)]
enum Verdict {
    Ready(bool),
    Status(u8, Vec<(String, u64)>),
    StatusWithBadReport(u8),
    Bad,
}

fn oracle(line: &[u8]) -> Verdict {
    if line == b"ready" || line == b"ready claims" {
        return Verdict::Ready(line.len() > 5);
    }
    if line.iter().any(|byte| *byte == 0 || *byte == 0xff) {
        return Verdict::Bad;
    }
    let mut digits = 0;
    let mut status: u32 = 0;
    while digits < line.len() && line[digits] >= b'0' && line[digits] <= b'9' {
        status = (status * 10 + u32::from(line[digits] - b'0')).min(1_000_000);
        digits += 1;
    }
    if digits == 0 || digits > 3 || status > 255 {
        return Verdict::Bad;
    }
    let status = u8::try_from(status).unwrap();
    if digits == line.len() {
        return Verdict::Status(status, Vec::new());
    }
    if line[digits] != b' ' {
        return Verdict::Bad;
    }
    // The vocabulary's reports: no white space but " ", "\n", "\r", which JSON ignores; [] and pairs of "a".
    let json: Vec<u8> = line[digits + 1..].to_vec();
    match oracle_report(&json) {
        Some(report) => Verdict::Status(status, report),
        None => Verdict::StatusWithBadReport(status),
    }
}

/// A recursive descent over exactly the reports that the vocabularies can spell.
fn oracle_report(json: &[u8]) -> Option<Vec<(String, u64)>> {
    let mut at = 0;
    let blank = |at: &mut usize| {
        while *at < json.len() && b" \r\n".contains(&json[*at]) {
            *at += 1;
        }
    };
    let take = |at: &mut usize, token: &[u8]| {
        blank(at);
        let found = json[*at..].starts_with(token);
        if found {
            *at += token.len();
        }
        blank(at);
        found
    };
    let mut report = Vec::new();
    if !take(&mut at, b"[") {
        return None;
    }
    if !take(&mut at, b"]") {
        loop {
            if !(take(&mut at, b"[") && take(&mut at, b"\"a\"") && take(&mut at, b",")) {
                return None;
            }
            let digits = json[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = std::str::from_utf8(&json[at..at + digits]).unwrap();
            if digits == 0 || (digits > 1 && number.starts_with('0')) {
                return None;
            }
            let time = number.parse().ok().filter(|time| *time <= MAX_MICROSECONDS)?;
            at += digits;
            report.push((String::from("a"), time));
            if !take(&mut at, b"]") {
                return None;
            }
            if take(&mut at, b"]") {
                break;
            }
            if !take(&mut at, b",") {
                return None;
            }
        }
    }
    if at == json.len() { Some(report) } else { None }
}

fn verdict(line: &[u8]) -> Verdict {
    match parse_output(line) {
        Ok(Output::Ready { claims }) => Verdict::Ready(claims),
        Ok(Output::Status { status, report, bad_report: None }) => Verdict::Status(status, report),
        Ok(Output::Status { status, report, bad_report: Some(_) }) => {
            assert!(report.is_empty());
            Verdict::StatusWithBadReport(status)
        }
        Err(error) => {
            assert!(!error.to_string().chars().any(char::is_control));
            Verdict::Bad
        }
    }
}

// Req: R1
// Req: R2
// Req: R3
// Req: R5
#[test]
fn every_short_sequence_has_the_oracles_verdict() {
    let mut lines = 0;
    all_sequences(VOCABULARY, 4, &mut |line| {
        lines += 1;
        assert_eq!(verdict(line), oracle(line), "{line:?}");
    });
    assert_eq!(lines, 1 + 15 + 15 * 15 + 15 * 15 * 15 + 15 * 15 * 15 * 15);
}

// Req: R1
// Req: R2
#[test]
fn every_short_report_has_the_oracles_verdict() {
    let tokens: &[&[u8]] = &[b"[", b"]", b"[[\"a\",", b"\"a\"", b",", b"7", b"0", b" ", b"-"];
    let mut good = 0;
    all_sequences(tokens, 5, &mut |report| {
        let line = [b"12 ".as_slice(), report].concat();
        let seen = verdict(&line);
        assert_eq!(seen, oracle(&line), "{report:?}");
        good += usize::from(matches!(seen, Verdict::Status(_, report) if !report.is_empty()));
    });
    assert!(good > 10, "the vocabulary spells whole reports: {good}");
}

// Req: R3
#[test]
fn statuses_are_one_to_three_digits_up_to_255() {
    for number in 0..=2000u32 {
        let parsed = parse_output(number.to_string().as_bytes());
        let expected = u8::try_from(number).ok();
        let status = match parsed {
            Ok(Output::Status { status, bad_report: None, .. }) => Some(status),
            Ok(_) | Err(_) => None,
        };
        assert_eq!(status, expected);
    }
    for bad in
        ["", " ", "+1", "-0", " 1", "1x", "0000", "1\r", "1\t", "ready ", "Ready", "ready  claims", "٣"]
    {
        assert!(parse_output(bad.as_bytes()).is_err(), "{bad:?}");
    }
    assert!(matches!(parse_output(b"007"), Ok(Output::Status { status: 7, .. })));
}

// Req: R2
#[test]
fn an_unreadable_report_keeps_the_status() {
    let deep = "[".repeat(50_000);
    let many = format!("[{}]", vec!["[\"a\",1]"; MAX_REPORT + 1].join(","));
    let long_name = format!("[[\"{}\",1]]", "a".repeat(65));
    let over = format!("[[\"a\",{}]]", MAX_MICROSECONDS + 1);
    for bad in [
        "",
        "x",
        "{}",
        "null",
        "1",
        "[[]]",
        "[[\"a\"]]",
        "[[\"a\",1,2]]",
        "[[\"a\",-1]]",
        "[[\"a\",1.0]]",
        "[[\"a\",1e3]]",
        "[[1,\"a\"]]",
        "[[\"a\",\"1\"]]",
        "[[\"a\",18446744073709551616]]",
        "[[\"\",1]]",
        "[[\"A b\",1]]",
        "[[\"a\\u0000\",1]]",
        "[] []",
        "[[\"a\",1],]",
        &deep,
        &many,
        &long_name,
        &over,
    ] {
        match parse_output(format!("74 {bad}").as_bytes()) {
            Ok(Output::Status { status: 74, report, bad_report: Some(why) }) => {
                assert!(report.is_empty());
                assert!(why.len() < 300, "{why}");
                assert!(!why.chars().any(char::is_control));
            }
            other => panic!("{bad:?}: {other:?}"),
        }
    }
}

// Req: R5
#[test]
fn a_line_over_the_limit_is_refused_and_shown_short() {
    let line = vec![b'7'; MAX_LINE + 1];
    assert!(parse_output(&line).is_err());
    let error = parse_output(&line[..MAX_LINE]).unwrap_err();
    assert!(error.to_string().len() < 300);
}

// Req: R1
#[test]
fn what_is_encoded_parses_back() {
    let names = ["a", "deliver", "x.y_z-1", "0"];
    for status in 0..=255u8 {
        for length in 0..names.len() {
            let report: Vec<(String, u64)> = (0..length)
                .map(|at| (names[at].to_owned(), [0, 1, 123_456_789, MAX_MICROSECONDS][at]))
                .collect();
            let line = encode_status(status, &report);
            let parsed = parse_output(line.strip_suffix('\n').unwrap().as_bytes());
            assert_eq!(parsed, Ok(Output::Status { status, report, bad_report: None }));
        }
    }
    assert_eq!(encode_status(0, &[]), "0\n");
    assert_eq!(encode_status(1, &[("b".to_owned(), 5), ("c".to_owned(), 6)]), "1 [[\"b\",5],[\"c\",6]]\n");
    let longest = vec![("a".repeat(64), u64::MAX); MAX_REPORT];
    assert!(encode_status(255, &longest).len() <= MAX_LINE);
    for id in [0, 1, -1, 42, i64::MAX, i64::MIN] {
        for claim in [None, Some(0), Some(7), Some(i64::MAX)] {
            let line = encode_id(id, claim);
            assert_eq!(parse_id(line.strip_suffix('\n').unwrap().as_bytes()), Ok((id, claim)));
        }
    }
}

#[test]
fn an_id_line_is_strict_but_for_a_carriage_return() {
    assert_eq!(parse_id(b"12\r"), Ok((12, None)));
    assert_eq!(parse_id(b"12 3\r"), Ok((12, Some(3))));
    let bad = [
        "",
        " ",
        "\r",
        "1 ",
        " 1",
        "1  2",
        "1 2 3",
        "+1",
        "1\r\r",
        "x",
        "1 x",
        "9223372036854775808",
        "--1",
        "1\t2",
    ];
    for line in bad {
        assert!(parse_id(line.as_bytes()).is_err(), "{line:?}");
    }
    assert!(parse_id(b"1\0").is_err());
    assert!(parse_id(&vec![b'1'; 1 << 20]).is_err());
    let tokens: &[&[u8]] = &[b"0", b"17", b" ", b"-", b"\r", b"\0", b"\xff", b"9223372036854775807"];
    all_sequences(tokens, 5, &mut |line| {
        let text = String::from_utf8_lossy(line);
        let bare = text.strip_suffix('\r').unwrap_or(&text);
        let words: Vec<&str> = bare.split(' ').collect();
        let numbers: Option<Vec<i64>> = words.iter().map(|word| word.parse().ok()).collect();
        let short = words.iter().all(|word| word.trim_start_matches('-').len() <= 19);
        let expected = match numbers.as_deref() {
            Some([id]) if short => Some((*id, None)),
            Some([id, claim]) if short => Some((*id, Some(*claim))),
            Some(_) | None => None,
        };
        assert_eq!(parse_id(line).ok(), expected, "{line:?}");
    });
}

/// A small generator (xorshift64*), seeded so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % bound
    }
}

/// All lines and the error that come of a stream pushed in the given chunks.
fn drain(stream: &[u8], chunk: &mut dyn FnMut(usize) -> usize) -> (Vec<Vec<u8>>, bool, Option<LineError>) {
    let mut lines = Lines::default();
    let mut seen = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let size = chunk(stream.len() - at).min(stream.len() - at);
        let pushed = lines.push(&stream[at..at + size]);
        while let Some(line) = lines.next_line() {
            seen.push(line);
        }
        if let Err(error) = pushed {
            assert_eq!(lines.push(b"0\n"), Err(error.clone()), "the error is final");
            assert_eq!(lines.next_line(), None);
            return (seen, lines.is_partial(), Some(error));
        }
        at += size;
    }
    (seen, lines.is_partial(), None)
}

// Req: R5
#[test]
fn any_chunking_gives_the_same_lines() {
    for seed in 1..=400 {
        let mut random = Random(seed);
        let length = random.below(60);
        let nul = random.below(3) == 0;
        let stream: Vec<u8> =
            (0..length).map(|_| b"01 \n\n\nx\xff\r\0"[random.below(if nul { 10 } else { 9 })]).collect();
        let whole = drain(&stream, &mut |left| left);
        let single = drain(&stream, &mut |_| 1);
        assert_eq!(whole, single, "seed {seed}");
        for _ in 0..5 {
            assert_eq!(whole, drain(&stream, &mut |_| 1 + random.below(9)), "seed {seed}");
        }
        if !stream.contains(&0) {
            let mut pieces: Vec<Vec<u8>> = stream.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let rest = pieces.pop().unwrap();
            assert_eq!(whole, (pieces, !rest.is_empty(), None), "seed {seed}");
        }
    }
}

// Req: R5
#[test]
fn any_bytes_end_in_values_or_in_one_error_that_can_be_shown() {
    let mut random = Random(0x5eed);
    for round in 0..3_000 {
        let mut stream = Vec::new();
        for _ in 0..random.below(40) {
            match random.below(3) {
                0 => stream.extend_from_slice(VOCABULARY[random.below(VOCABULARY.len())]),
                1 => stream.push(u8::try_from(random.below(256)).unwrap()),
                _ => stream.extend((0..random.below(30)).map(|_| u8::try_from(random.below(256)).unwrap())),
            }
        }
        let (lines, _, error) = drain(&stream, &mut |left| 1 + random.below(left));
        let refused = lines.iter().filter_map(|line| parse_output(line).err());
        for error in error.into_iter().chain(refused) {
            let text = error.to_string();
            assert!(!text.contains(char::is_control) && text.len() < 1024, "round {round}: {text:?}");
        }
    }
}

// Req: R5
#[test]
fn chunking_does_not_move_the_limit() {
    let cases = [
        (MAX_LINE, None),
        (MAX_LINE + 1, None),
        (MAX_LINE + 9, Some(MAX_LINE)),
        (MAX_LINE + 9, Some(MAX_LINE + 5)),
    ];
    for (length, nul_at) in cases {
        let mut stream = b"0\n".to_vec();
        stream.extend(vec![b'x'; length]);
        if let Some(at) = nul_at {
            stream[2 + at] = 0;
        }
        stream.extend_from_slice(b"\n1\n");
        let whole = drain(&stream, &mut |left| left);
        for size in [1, 7, 4096, MAX_LINE + 1] {
            assert_eq!(whole, drain(&stream, &mut |_| size), "{length} in chunks of {size}");
        }
        assert_eq!(whole.0.len(), if length <= MAX_LINE { 3 } else { 1 });
        assert_eq!(whole.2.is_some(), length > MAX_LINE);
    }
}

// Req: R5
#[test]
fn a_flood_without_newline_is_not_kept() {
    let mut lines = Lines::default();
    let chunk = [b'y'; 4096];
    let mut pushed = 0;
    while lines.push(&chunk).is_ok() {
        pushed += chunk.len();
        assert!(pushed <= MAX_LINE);
        assert!(lines.buffer.len() <= MAX_LINE);
    }
    assert!(lines.buffer.is_empty());
}

#[test]
fn lines_that_are_taken_late_are_all_there() {
    let mut lines = Lines::default();
    let mut expected = 0u64;
    for number in 0..5000u64 {
        lines.push(format!("{number}\n").as_bytes()).unwrap();
        if number % 3 == 0 {
            assert_eq!(lines.next_line(), Some(expected.to_string().into_bytes()));
            expected += 1;
        }
    }
    while let Some(line) = lines.next_line() {
        assert_eq!(line, expected.to_string().into_bytes());
        expected += 1;
    }
    assert_eq!(expected, 5000);
    assert!(lines.push(b"").is_ok());
    assert!(lines.buffer.is_empty());
}
