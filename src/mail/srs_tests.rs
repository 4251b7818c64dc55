//! Rewritten senders: vectors from another implementation of the hash, ways there and back, what is forged, what is odd.

use super::*;

const SECRET: &str = "a secret of one host";

fn srs(domain: &str, secrets: &[&str]) -> Srs {
    let secrets: Vec<String> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
    Srs::new(domain, &secrets, 21).unwrap()
}

fn made(sender: &str, day: u64) -> String {
    let made = srs("f.example", &[SECRET]).forward(sender, day).unwrap().unwrap();
    assert!(address::parse(&made).is_ok_and(|parsed| parsed.to_string() == made), "{made}");
    made
}

fn undone(recipient: &str, day: u64) -> Result<Option<String>, ReverseError> {
    srs("f.example", &[SECRET]).reverse(recipient, day)
}

/// A generator for test input, splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ mixed >> 31) % limit as u64).unwrap()
    }

    fn text(&mut self, pieces: &[&str], most: usize) -> String {
        (0..1 + self.below(most)).map(|_| pieces[self.below(pieces.len())]).collect()
    }
}

/// The hashes come from Python's hmac and base64 modules.
#[test]
fn known_addresses_are_made() {
    for (day, sender, expected) in [
        (20788, "Ann@example.org", "SRS0=4NFDUMMA=JU=example.org=Ann@f.example"),
        (1024, "ann@example.org", "SRS0=KO2DF4WC=AA=example.org=ann@f.example"),
        (1023, "grün@bücher.example", "SRS0=TWIAEPN3=77=bücher.example=grün@f.example"),
        (
            5,
            "SRS0=HHHH=TT=example.org=ann@one.example",
            "SRS1=4YLRDLGS=one.example==HHHH=TT=example.org=ann@f.example",
        ),
        (
            6,
            "srs1+xyz=one.example==HHHH=TT=example.org=ann@two.example",
            "SRS1=4YLRDLGS=one.example==HHHH=TT=example.org=ann@f.example",
        ),
    ] {
        assert_eq!(made(sender, day), expected);
    }
}

#[test]
fn a_sender_comes_back_as_it_was_written() {
    for sender in [
        "a@b.example",
        "Ann.Lee+tag@B.Example",
        "a=b=c@b.example",
        "=@b.example",
        "a@b.example.",
        "a@[192.0.2.1]",
        "a@[IPv6:2001:db8::1]",
        "\"a b\"@b.example",
        "\"a@b\"@c.example",
        "\"needless\"@b.example",
        "\"\"@b.example",
        "\"a..b\"@b.example",
        "\"q\\\"\\\\\\q\"@b.example",
        "用户@例子.广告",
        "\"ü x\"@bücher.example",
        "SRS0@b.example",
        "SRS0=@b.example",
        "SRS0=HHHH=TT=@b.example",
        "SRS0=HHHH=TT==x@b.example",
        "SRS0x=HHHH=TT=c.example=x@b.example",
        "SRS1=HHHH=c.example=TT=d.example=x@b.example",
        "SRS1=HHHH==@b.example",
        "SRS1=HHHH===HHHH=TT=c.example=x@b.example",
        "\"SRS1=HHHH=c d==HHHH=TT=c.example=x\"@b.example",
        "SRS1=HHHH=-c==HHHH=TT=c.example=x@b.example",
        "SRS2=HHHH=TT=c.example=x@b.example",
        "\"SRS0=HHHH=TT=c.example=\\x\"@b.example",
    ] {
        let made = made(sender, 20_000);
        assert!(address::content(&made).trim_start_matches('"').starts_with("SRS0="), "{made}");
        assert_eq!(undone(&made, 20_000), Ok(Some(sender.to_owned())), "{made}");
        let upper = undone(&made.to_ascii_uppercase(), 20_000).unwrap().unwrap();
        assert!(upper.eq_ignore_ascii_case(sender), "{upper}");
        let lower = undone(&made.to_ascii_lowercase(), 20_000).unwrap().unwrap();
        assert_eq!(lower, sender.to_ascii_lowercase());
    }
}

#[test]
fn a_senders_way_over_many_hosts_leads_back_to_the_first() {
    let hosts = ["f.example", "g.example", "[192.0.2.1]", "h.example"];
    let at = |host: &str| srs(host, &[&format!("a secret of {host}")]);
    for sender in ["ann@b.example", "\"a b\"@b.example", "grün@bücher.example"] {
        for separator in ["=", "+", "-"] {
            let first = at(hosts[0]).forward(sender, 9).unwrap().unwrap();
            // As a host with another separator would have written it.
            let mut last = first.replacen("SRS0=", &format!("SRS0{separator}"), 1);
            for host in &hosts[1..] {
                last = at(host).forward(&last, 9).unwrap().unwrap();
                assert!(last.contains("SRS1="), "{last}");
            }
            let back = at(hosts[3]).reverse(&last, 9).unwrap().unwrap();
            assert_eq!(back, first.replacen("SRS0=", &format!("SRS0{separator}"), 1));
            assert_eq!(at(hosts[0]).reverse(&back, 9), Ok(Some(sender.to_owned())));
            // The first host gets it once more, and need not ask itself.
            let round = at(hosts[0]).forward(&last, 10).unwrap().unwrap();
            assert_eq!(at(hosts[0]).reverse(&round, 10), Ok(Some(sender.to_owned())), "{round}");
        }
    }
}

#[test]
fn what_needs_no_rewriting_stays() {
    let srs = srs("f.example", &[SECRET]);
    let ours = made("ann@example.org", 0);
    for sender in ["", "root", "\"odd root\"", "ann@f.example", "ann@F.Example.", &ours] {
        assert_eq!(srs.forward(sender, 0), Ok(None), "{sender}");
    }
    for recipient in [
        "",
        "root",
        "SRS0=x",
        "ann@f.example",
        "SRS0=x=y=z=w@other.example",
        "SRS0@f.example",
        "\"SRS0=x=y=z=\"w\"@f.example",
    ] {
        assert_eq!(srs.reverse(recipient, 0), Ok(None), "{recipient}");
    }
}

#[test]
fn an_address_that_we_did_not_make_is_refused() {
    let good = made("ann@example.org", 100);
    let (local, _) = good.split_once('@').unwrap();
    for place in 5..local.len() {
        let mut forged = good.clone().into_bytes();
        forged[place] = if forged[place] == b'x' { b'y' } else { b'x' };
        let forged = String::from_utf8(forged).unwrap();
        assert_eq!(undone(&forged, 100), Err(ReverseError::Forged), "{forged}");
    }
    let long = format!("SRS0={}@f.example", "x".repeat(1 << 20));
    for forged in [
        &long,
        "SRS0=@f.example",
        "SRS0=é@f.example",
        "srs1-x@f.example",
        "SRS0====@F.EXAMPLE",
        "SRS0=4NFDUMM=JU=example.org=Ann@f.example.",
        "SRS0=4NFDUMMA4=JU=example.org=Ann@f.example",
        "SRS0=4NFD\0MMA=JU=example.org=Ann@f.example",
        "SRS1=4NFDUMMA=JU=example.org=Ann@f.example",
        "SRS0=4NFDUMMA=JU=example.org=Ann\"@f.example",
        "SRS0=4NFDUMMA=JU=\u{212a}.example=Ann@f.example",
        "a@SRS0=\n@f.example",
    ] {
        let expected = if forged.starts_with("a@") { Ok(None) } else { Err(ReverseError::Forged) };
        assert_eq!(undone(forged, 20_788), expected, "{}", &forged[..forged.len().min(80)]);
    }
    // The letter for letter same, in quotes that it does not need.
    let quoted = "\"SRS0=4NFDUMMA=JU=example.org=Ann\"@f.example";
    assert_eq!(undone(quoted, 20_788), Ok(Some("Ann@example.org".into())));
}

#[test]
fn only_days_within_the_window_are_taken_also_where_their_count_wraps() {
    let ages =
        [(-2, false), (-1, true), (0, true), (1, true), (21, true), (22, false), (1022, false), (1024, true)];
    for day in [3000, 1023, 1024, 1020, 2047, 2048, 2, 1024 * 30] {
        let address = made("ann@example.org", day);
        for (age, good) in ages {
            let seen = (day + 4096).checked_add_signed(age).unwrap();
            let expected = if good { Ok(Some("ann@example.org".into())) } else { Err(ReverseError::Expired) };
            assert_eq!(undone(&address, seen), expected, "{day} {age}");
        }
    }
    assert_eq!((day(-1), day(86_399_999_999), day(86_400_000_000), day(i64::MAX)), (0, 0, 1, 106_751_991));
    for day in 0..2 * DAYS {
        assert_eq!(unstamp(&stamp(day)), Some(day % DAYS));
    }
    assert_eq!([unstamp(""), unstamp("A"), unstamp("A1"), unstamp("AAA"), unstamp("é")], [None; 5]);
}

#[test]
fn a_new_secret_signs_and_the_old_ones_still_verify() {
    let (old, new) = ("the secret of last year", "the secret of this year");
    let [before, both, after] = [&[old][..], &[new, old], &[new]].map(|secrets| srs("f.example", secrets));
    let sender = "ann@example.org";
    let early = before.forward(sender, 7).unwrap().unwrap();
    let late = both.forward(sender, 7).unwrap().unwrap();
    assert_ne!(early, late);
    assert_eq!(after.forward(sender, 7), Ok(Some(late.clone())));
    for (srs, address, is_good) in
        [(&before, &late, false), (&both, &early, true), (&both, &late, true), (&after, &early, false)]
    {
        let expected = if is_good { Ok(Some(sender.into())) } else { Err(ReverseError::Forged) };
        assert_eq!(srs.reverse(address, 7), expected, "{address}");
    }
    assert!(Srs::new("f.example", &[], 21).is_err());
}

#[test]
fn what_cannot_be_carried_is_refused_and_never_cut() {
    let srs = srs("f.example", &[SECRET]);
    for sender in
        ["a b@c", "@c", "a@", "a@b@c", "a\0@c", "a@c\r\n", "<a@b.example>", "\"a@c", "a@b=c", ".a@c"]
    {
        assert!(matches!(srs.forward(sender, 0), Err(ForwardError::NotAnAddress(_))), "{sender:?}");
    }
    let of_length = |count: usize| format!("{}@b.example", "x".repeat(count));
    // 254 less "SRS0=HHHHHHHH=TT=b.example=" and "@f.example".
    let longest = of_length(217);
    let full = made(&longest, 0);
    assert_eq!(full.len(), MAX_ADDRESS);
    assert_eq!(undone(&full, 0), Ok(Some(longest)));
    assert_eq!(srs.forward(&of_length(218), 0), Err(ForwardError::TooLong));
    // Quotes take more room outside than inside.
    let quotes = format!("\"{}\"@b.example", "\\\"".repeat(70));
    assert_eq!(srs.forward(&quotes, 0), Err(ForwardError::TooLong));
}

#[test]
fn thousands_of_senders_are_kept() {
    let mut random = Random(4);
    let plain = ["a", "Z", "0", "=", "+", "-", "_", "SRS0", "srs1=", ".x", "ü", "用", "{", "=="];
    let quoted = ["a", "B", " ", "@", "\\\\", "\\\"", "\\x", ".", "SRS0=", "=", "é"];
    let domains = ["a", "B.example", "x-y.", "z_1.example", "ü.example", "[192.0.2.7]"];
    let mut kinds = [0; 3];
    for _ in 0..20_000 {
        let local = match random.below(2) {
            0 => address::local_of(&format!("x{}", random.text(&plain, 8))),
            _ => format!("\"{}\"", random.text(&quoted, 8)),
        };
        let domain = random.text(&domains, 1);
        // Half of them are what another host has made.
        let kind = [0, 0, 1, 2][random.below(4)];
        let rest = format!("{}H=TT=c.example={local}", random.text(&["=", "+", "-"], 1));
        let (sender, expected) = match kind {
            0 => (format!("{local}@{domain}"), None),
            1 => (format!("{}@{domain}", address::local_of(&format!("SRS0{rest}"))), None),
            _ => (
                format!("{}@{domain}", address::local_of(&format!("SRS1=H=d.example={rest}"))),
                Some(format!("{}@d.example", address::local_of(&format!("SRS0{rest}")))),
            ),
        };
        let day = random.below(5000) as u64;
        let made = made(&sender, day);
        assert!(kind == 0 || made.trim_start_matches('"').starts_with("SRS1="), "{sender} {made}");
        let back = undone(&made, day + random.below(22) as u64);
        assert_eq!(back, Ok(Some(expected.unwrap_or(sender))), "{made}");
        assert!(back.is_ok_and(|back| address::parse_long(&back.unwrap_or_default()).is_ok()), "{made}");
        kinds[kind] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 4000), "{kinds:?}");
}
