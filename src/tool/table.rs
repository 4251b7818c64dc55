//! Tables for people and lines for programs, from text that came from outside.
//!
//! Invariants: nothing printed from here moves a terminal's cursor or turns its writing direction: cells are escaped, and
//! JSON is plain ASCII. A row is one line in both.

use crate::proto::text;
use serde_json::Value;
use std::fmt::Write;

/// A cell is cut there; `--json` has the whole.
const MAX_CELL: usize = 120;

/// An aligned table under a line of upper-case names. The last column is not padded.
pub fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let names: Vec<String> = head.iter().map(|name| name.to_uppercase()).collect();
    let cells = rows.iter().map(|row| row.iter().map(|cell| text::escape(cell, MAX_CELL)).collect());
    let lines: Vec<Vec<String>> = [names].into_iter().chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        out.push_str(padded.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// One value on one line, every character above ASCII as `\uXXXX`.
pub fn json_line(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_ascii() && c != '\x7f' {
            out.push(c);
        } else {
            // Only inside strings does JSON have such characters. Writing to a String cannot fail.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out.push('\n');
    out
}

/// A span of time in its largest unit, `-` in front of one that lies behind: `40s`, `5m`, `3h`, `12d`.
pub fn span(seconds: i64) -> String {
    let sign = if seconds < 0 { "-" } else { "" };
    let length = seconds.unsigned_abs();
    let (number, unit) = match length {
        0..120 => (length, "s"),
        120..7_200 => (length / 60, "m"),
        7_200..172_800 => (length / 3_600, "h"),
        _ => (length / 86_400, "d"),
    };
    format!("{sign}{number}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_aligned_and_control_bytes_shown() {
        let rows =
            [vec!["1".into(), "é\x1b[2J".into(), "x".into()], vec!["100".into(), "b".into(), String::new()]];
        assert_eq!(render(&["id", "what", "why"], &rows), "ID   WHAT      WHY\n1    é\\x1b[2J  x\n100  b\n");
        assert_eq!(render(&["id", "why"], &[]), "ID  WHY\n");
    }

    #[test]
    fn a_line_for_programs_is_ascii_and_says_the_same() {
        let value = json!({ "a": "é\u{9b}\u{202e}\u{1f600}\x7f\n", "b": [1, null] });
        let line = json_line(&value);
        assert!(line.trim_end().bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1);
    }

    #[test]
    fn spans_have_one_unit() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (-61, "-61s"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (i64::MIN, "-106751991167300d"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}
