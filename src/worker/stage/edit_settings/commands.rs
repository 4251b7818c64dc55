//! What a control message asks for: pure.
//!
//! One command a line, `set STAGE OPTION VALUE` or `unset STAGE OPTION`; empty lines do not count. A line `end` or `--` signs
//! it off: what is behind it, such as a signature or the text that is answered to, is not read. Without it nothing holds: a
//! message that was cut off asks for nothing.

use crate::worker::tables::Change;

/// More than anybody writes by hand.
pub const MAX_COMMANDS: usize = 100;
/// The longest value, in octets.
pub const MAX_VALUE: usize = 1000;
/// The longest name of an option, in octets.
const MAX_NAME: usize = 100;
/// Wrong lines that are told of.
const MAX_ERRORS: usize = 10;
/// How much of a wrong line is shown, in characters.
const SHOWN: usize = 60;

/// A change, and the line that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub line: usize,
    pub change: Change,
}

/// The commands of a text; else what is wrong with it, a line each.
pub fn read(text: &str) -> Result<Vec<Command>, Vec<String>> {
    let mut commands = Vec::new();
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.eq_ignore_ascii_case("end") || line == "--" {
            if commands.is_empty() && wrong.is_empty() {
                wrong.push("There is no command in front of the line that ends it.".to_owned());
            }
            if commands.len() > MAX_COMMANDS {
                wrong.push(format!("There are more than {MAX_COMMANDS} commands."));
            }
            return if wrong.is_empty() { Ok(commands) } else { Err(wrong) };
        }
        if line.is_empty() {
            continue;
        }
        match command(line) {
            Ok(change) => commands.push(Command { line: number, change }),
            Err(why) if wrong.len() < MAX_ERRORS => {
                let shown: String = line.chars().take(SHOWN).filter(|c| !c.is_control()).collect();
                wrong.push(format!("Line {number} ({shown}): {why}."));
            }
            Err(_) => {}
        }
    }
    Err(vec!["There is no line \"end\" behind the commands, so they may not be complete.".to_owned()])
}

fn command(line: &str) -> Result<Change, String> {
    let (verb, rest) = word(line);
    let (stage, rest) = word(rest);
    let (option, value) = word(rest);
    let is_set = verb.eq_ignore_ascii_case("set");
    if !is_set && !verb.eq_ignore_ascii_case("unset") {
        return Err("a command begins with set or unset".into());
    }
    if option.is_empty() {
        return Err("a stage and an option are missing, or one of them".into());
    }
    if is_set == value.is_empty() {
        let why = if is_set { "the value is missing" } else { "there is something behind the option" };
        return Err(why.into());
    }
    if value.len() > MAX_VALUE || option.len() > MAX_NAME {
        return Err(format!("it is longer than {MAX_VALUE} octets"));
    }
    if value.chars().any(char::is_control) {
        return Err("the value has a control character".into());
    }
    // It would be expanded by the variables of the whole host.
    if value.contains("${") {
        return Err("the value has a \"${\"".into());
    }
    let value = is_set.then(|| value.to_owned());
    Ok(Change { stage: stage.to_ascii_lowercase(), option: option.to_ascii_uppercase(), value })
}

/// The first word, and what is behind it, trimmed.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(text: &str) -> String {
        let commands = read(text).unwrap();
        let shown = commands.into_iter().map(|Command { line, change }| {
            format!("{line} {} {} {:?}", change.stage, change.option, change.value)
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    fn wrong(text: &str, clause: &str) {
        let all = read(text).expect_err(text).join(" ");
        assert!(all.contains(clause), "{text}: {all}");
    }

    #[test]
    fn commands_stand_one_a_line_up_to_the_end() {
        for (text, expected) in [
            ("set Spam level 5\nend", "1 spam LEVEL Some(\"5\")"),
            (
                "\n  SET spam Tag  a b  c \r\n\nUnset spam Level\n-- \nset x",
                "2 spam TAG Some(\"a b  c\"); 4 spam LEVEL None",
            ),
            ("set s o \u{fc}\n--", "1 s O Some(\"\u{fc}\")"),
            ("set\ts\to\tv\nEND", "1 s O Some(\"v\")"),
        ] {
            assert_eq!(good(text), expected, "{text}");
        }
    }

    #[test]
    fn one_line_that_does_not_parse_spoils_all() {
        for (text, clause) in [
            ("", "no line \"end\""),
            ("set s o v", "no line \"end\""),
            ("set s o v\nendless", "no line \"end\""),
            ("end", "no command"),
            ("\n\n-- \n", "no command"),
            ("set s o v\nhello\nend", "Line 2 (hello): a command begins with set or unset."),
            ("> set s o v\nend", "begins with set or unset"),
            ("set s\nend", "are missing, or one of them"),
            ("set s o\nend", "the value is missing"),
            ("unset s o v\nend", "something behind the option"),
            ("set s o a\u{7}b\nend", "control character"),
            ("set s o ${HOME}\nend", "has a \"${\""),
            (&format!("set s o {}\nend", "v".repeat(MAX_VALUE + 1)), "longer than 1000"),
            (&format!("set s {} v\nend", "v".repeat(MAX_NAME + 1)), "longer than"),
            (&format!("{}end", "set s o v\n".repeat(MAX_COMMANDS + 1)), "more than 100 commands"),
        ] {
            wrong(text, clause);
        }
        let many = read(&format!("{}end", "what\n".repeat(1000))).unwrap_err();
        assert_eq!(many.len(), MAX_ERRORS);
        assert!(read(&"x".repeat(1 << 18)).is_err());
    }
}
