//! Durations of the configuration: `5 s`, `1 h 30 min`, `forever`. Whole numbers, each with its unit.
//!
//! Invariant: a result is `Duration::MAX` (forever) or at most `LONGEST`, so it fits any count of microseconds in 64
//! bits, signed or not, with room for sums.

use super::text::escape;
use std::time::Duration;

/// The longest duration but `forever`: about a hundred years.
pub const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);

/// How much of a wrong value an error shows, in bytes.
const SHOWN: usize = 60;

/// Milliseconds of each unit and the names it goes by.
const UNITS: &[(u64, &[&str])] = &[
    (1, &["ms", "millisecond", "milliseconds"]),
    (1_000, &["s", "sec", "second", "seconds"]),
    (60_000, &["min", "minute", "minutes"]),
    (3_600_000, &["h", "hour", "hours"]),
    (86_400_000, &["d", "day", "days"]),
    (604_800_000, &["w", "week", "weeks"]),
];

/// Parses a duration; the error is a clause that says what is wrong and shows an example.
pub fn parse(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim_matches([' ', '\t']);
    if trimmed.eq_ignore_ascii_case("forever") {
        return Ok(Duration::MAX);
    }
    if trimmed.is_empty() {
        return Err(String::from("is empty; write a number and a unit, such as \"30 s\""));
    }
    let mut total: u64 = 0;
    let mut rest = trimmed;
    while !rest.is_empty() {
        let (milliseconds, behind) = term(rest, trimmed)?;
        total = total
            .checked_add(milliseconds)
            .filter(|total| Duration::from_millis(*total) <= LONGEST)
            .ok_or_else(|| too_long(trimmed))?;
        rest = behind;
    }
    Ok(Duration::from_millis(total))
}

/// One number with its unit at the start of `rest`: its milliseconds, and what is behind it.
fn term<'a>(rest: &'a str, whole: &str) -> Result<(u64, &'a str), String> {
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, behind) = rest.split_at(digits);
    if number.is_empty() {
        return Err(format!("\"{}\" is not a number and a unit, such as \"30 s\"", escape(whole, SHOWN)));
    }
    let behind = behind.trim_start_matches([' ', '\t']);
    let letters = behind.len() - behind.trim_start_matches(|c: char| c.is_alphabetic()).len();
    let (unit, behind) = behind.split_at(letters);
    if unit.is_empty() {
        let (shown, number) = (escape(whole, SHOWN), escape(number, SHOWN));
        return Err(format!("\"{shown}\" has a number without a unit; write for example \"{number} s\""));
    }
    let Some((factor, _)) =
        UNITS.iter().find(|(_, names)| names.iter().any(|n| unit.eq_ignore_ascii_case(n)))
    else {
        let shown = escape(unit, SHOWN);
        return Err(format!(
            "has the unknown unit \"{shown}\"; there are ms, s, min, h, d and w, and \"forever\""
        ));
    };
    let milliseconds =
        number.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor)).ok_or_else(|| too_long(whole))?;
    Ok((milliseconds, behind.trim_start_matches([' ', '\t'])))
}

fn too_long(whole: &str) -> String {
    format!("\"{}\" is more than a hundred years; write \"forever\"", escape(whole, SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units_sums_and_forever() {
        let cases = [
            ("500 ms", 500),
            ("5 s", 5_000),
            ("5s", 5_000),
            ("5 SEC", 5_000),
            ("0 s", 0),
            ("1 second", 1_000),
            ("2 min", 120_000),
            ("120 h", 432_000_000),
            ("1 d", 86_400_000),
            ("2 weeks", 1_209_600_000),
            ("1 h 30 min", 5_400_000),
            ("1h30min", 5_400_000),
            (" 1 day\t2 hours 3 minutes 4 seconds 5 milliseconds ", 93_784_005),
            ("36525 d", 3_155_760_000_000),
        ];
        for (text, milliseconds) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text:?}");
        }
        assert_eq!(parse("forever"), Ok(Duration::MAX));
        assert_eq!(parse("Forever"), Ok(Duration::MAX));
    }

    #[test]
    fn refuses_the_rest_with_an_example() {
        for text in [
            "",
            " ",
            "s",
            "-1 s",
            "+1 s",
            "1.5 h",
            "1,5 h",
            "5 s,",
            "1 s forever",
            "٣ s",
            "1 h and 2 min",
            "1\0s",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("5").unwrap_err().contains("\"5 s\""));
        assert!(parse("1 h 30").unwrap_err().contains("\"30 s\""));
        assert!(parse("5 parsecs").unwrap_err().contains("\"parsecs\""));
        for text in ["36525 d 1 ms", "18446744073709551615 ms", "18446744073709551616 ms", "30500568905 w"] {
            assert!(parse(text).unwrap_err().contains("forever"), "{text:?}");
        }
        let long = parse(&"9".repeat(100_000)).unwrap_err();
        assert!(long.len() < 300, "{}", long.len());
    }
}
