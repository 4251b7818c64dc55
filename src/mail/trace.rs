//! Fields that Pepsi itself writes: Received, Return-Path (RFC 5321 section 4.4), Delivered-To, Date (RFC 5322 section 3.3), Message-ID.
//!
//! Invariants: what comes from outside (user, host, id) is cleaned so that it cannot end a line, a comment or a
//! clause; results are ASCII; every time that 64 bits can say has a date, none panics. The clock is the caller's.

/// The most characters of a line, without its CRLF (RFC 5322 section 2.1.1).
const WIDTH: usize = 78;

/// The most characters kept of a host name or an id.
const MAX_HOST: usize = 255;

/// The most characters kept of a user name.
const MAX_USER: usize = 64;

const SECONDS_OF_DAY: i64 = 86_400;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// From the day of the week of 1 January 1970.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// What a delivery puts in front: whom the message is from, and each recipient that it is for.
pub fn delivery<'a>(mail_from: &str, recipients: impl Iterator<Item = &'a str>) -> String {
    let mut trace = format!("Return-Path: <{}>\r\n", one_line(mail_from));
    for recipient in recipients {
        trace += &format!("Delivered-To: {}\r\n", one_line(recipient));
    }
    trace
}

/// An address was checked when it came in; still, what stands in a header field must not end it.
fn one_line(address: &str) -> String {
    address.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// `Mon, 30 Nov 2026 18:05:39 +0000` from seconds since 1970 (UTC).
pub fn date(unix_seconds: i64) -> String {
    let days = unix_seconds.div_euclid(SECONDS_OF_DAY);
    let second = unix_seconds.rem_euclid(SECONDS_OF_DAY);
    let (year, month, day) = civil(days);
    let weekday = pick(&WEEKDAYS, days.rem_euclid(7));
    let month = pick(&MONTHS, month);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000")
}

/// Year, month from 0 and day of the month of a day counted from 1 January 1970, in the Gregorian calendar. Years are
/// counted from March, so that the leap day is the last of its year, in eras of 400 years, which all have 146 097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_march_of_year_0 = days + 719_468;
    let era = from_march_of_year_0.div_euclid(146_097);
    let day_of_era = from_march_of_year_0.rem_euclid(146_097);
    // A leap day ends 4 years but not 100, and 400: take those away before dividing by 365.
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March have 31, 30, 31, 30, 31 days and again: 153 days each five.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + i64::from(month < 2);
    (year, month, day)
}

/// An entry whose index was made by a remainder.
fn pick(names: &[&'static str], index: i64) -> &'static str {
    usize::try_from(index).ok().and_then(|index| names.get(index)).expect("an index within its calendar")
}

/// A folded `Received:` field with CRLF for a message handed in locally.
pub fn received_local(user: &str, uid: u32, host: &str, id: &str, unix_seconds: i64) -> String {
    let user = comment_text(user);
    let id = host_text(id);
    let mut parts = vec![format!("by {}", host_or_localhost(host)), String::from("(Pepsi, from")];
    if !user.is_empty() {
        parts.push(format!("user {user},"));
    }
    parts.push(format!("uid {uid})"));
    if !id.is_empty() {
        parts.push(format!("id {id}"));
    }
    if let Some(last) = parts.last_mut() {
        last.push(';');
    }
    parts.push(date(unix_seconds));
    folded("Received:", &parts)
}

/// `<MICROSECONDS.PID@host>`: unique as long as one process does not ask twice in the same microsecond.
pub fn message_id(unix_us: i64, pid: u32, host: &str) -> String {
    format!("<{unix_us}.{pid}@{}>", host_or_localhost(host))
}

/// A field of parts that are not cut; each but the first goes to a new line when it does not fit on the last.
fn folded(name: &str, parts: &[String]) -> String {
    let mut out = String::from(name);
    let mut width = name.len();
    for (number, part) in parts.iter().enumerate() {
        if number > 0 && width + 1 + part.len() > WIDTH {
            out.push_str("\r\n\t");
            width = 1 + part.len();
        } else {
            out.push(' ');
            width += 1 + part.len();
        }
        out.push_str(part);
    }
    out.push_str("\r\n");
    out
}

/// Text for a comment: printable ASCII, parentheses and backslashes escaped, anything else a question mark.
fn comment_text(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(MAX_USER) {
        match c {
            '(' | ')' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out.trim().to_owned()
}

/// The letters, digits, dots, hyphens and underscores of a host name or an id, without dots that stand wrong.
fn host_text(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(MAX_HOST) {
        let kept = c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if kept || (c == '.' && !out.is_empty() && !out.ends_with('.')) {
            out.push(c);
        }
    }
    out.trim_end_matches('.').to_owned()
}

fn host_or_localhost(host: &str) -> String {
    let host = host_text(host);
    if host.is_empty() { String::from("localhost") } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "Thu, 01 Jan 1970 00:00:00 +0000"),
            (-1, "Wed, 31 Dec 1969 23:59:59 +0000"),
            (1_796_061_939, "Mon, 30 Nov 2026 18:05:39 +0000"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 +0000"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 +0000"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 +0000"),
            (4_107_456_000, "Sun, 28 Feb 2100 00:00:00 +0000"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 +0000"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 +0000"),
            (-62_135_596_800, "Mon, 01 Jan 0001 00:00:00 +0000"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(date(seconds), expected, "{seconds}");
        }
        for extreme in [i64::MIN, i64::MIN + 1, i64::MAX] {
            assert!(date(extreme).ends_with(" +0000"));
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut year, mut month, mut day) = (1600, 0, 1);
        for days in -135_140..=200_000 {
            assert_eq!(civil(days), (year, month, day), "{days}");
            let last = match month {
                1 => 28 + i64::from(leap(year)),
                3 | 5 | 8 | 10 => 30,
                _ => 31,
            };
            day += 1;
            if day > last {
                (month, day) = (month + 1, 1);
            }
            if month == 12 {
                (year, month) = (year + 1, 0);
            }
        }
    }

    #[test]
    fn a_received_field_is_folded() {
        let field = received_local("alice", 1000, "mx.example.org", "4711", 1_796_061_939);
        let expected = "Received: by mx.example.org (Pepsi, from user alice, uid 1000) id 4711;\r\n\
                        \tMon, 30 Nov 2026 18:05:39 +0000\r\n";
        assert_eq!(field, expected);
        assert_eq!(
            received_local("", 0, "", "", 0),
            "Received: by localhost (Pepsi, from uid 0); Thu, 01 Jan 1970 00:00:00 +0000\r\n"
        );
        let long = received_local("alice", 1000, &"host.".repeat(12), "id-of-some-length", 0);
        assert!(long.lines().count() >= 3);
        for line in long.lines() {
            assert!(line.len() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn lines_are_folded_at_their_width() {
        let mut widest = 0;
        for user in 0..MAX_USER {
            for host in 1..60 {
                let field = received_local(&"u".repeat(user), 1, &"h".repeat(host), "id", 0);
                widest = field.lines().map(str::len).fold(widest, usize::max);
                assert_eq!(field.replace("\r\n\t", " ").lines().count(), 1);
            }
        }
        assert_eq!(widest, WIDTH);
    }

    #[test]
    fn nothing_from_outside_breaks_out_of_a_received_field() {
        let hostile = [
            "a\r\nBcc: x@y",
            "a) by evil (",
            "\\",
            "\0\x1b[2J",
            "ü\u{202e}",
            ";",
            &"x".repeat(10_000),
            "@<>\"",
            "..",
        ];
        assert!(received_local("a) by evil (\\", 1, "h", "", 0).contains("user a\\) by evil \\(\\\\, uid"));
        for user in hostile {
            for other in hostile {
                let field = received_local(user, 1, other, other, 0);
                assert!(field.len() < 2_000);
                assert!(field.is_ascii());
                assert!(field.ends_with("\r\n"));
                for (number, line) in field.split_terminator("\r\n").enumerate() {
                    assert!(line.starts_with(if number == 0 { "Received: by " } else { "\t" }), "{line:?}");
                    assert!(line.chars().all(|c| c == '\t' || !c.is_control()), "{line:?}");
                }
                let mut depth = 0;
                let mut chars = field.chars();
                while let Some(c) = chars.next() {
                    match c {
                        '\\' if depth > 0 => assert!(chars.next().is_some()),
                        '(' => depth += 1,
                        ')' => depth -= 1,
                        ';' if depth == 0 => {
                            assert!(chars.as_str().contains(" 1970 "), "one clause ends it: {field}")
                        }
                        _ => {}
                    }
                    assert!((0..=1).contains(&depth), "{field}");
                }
                assert_eq!(depth, 0, "{field}");
            }
        }
    }

    #[test]
    fn message_ids_are_message_ids() {
        assert_eq!(
            message_id(1_796_061_939_000_001, 42, "mx.example.org"),
            "<1796061939000001.42@mx.example.org>"
        );
        assert_eq!(message_id(-5, 1, "..a..b.>\r\n"), "<-5.1@a.b>");
        assert_eq!(message_id(0, 0, "[::1]"), "<0.0@1>");
        assert_eq!(message_id(0, 0, "\u{fc}"), "<0.0@localhost>");
    }
}
