//! COMMAND: the program and its arguments, as a template that is filled in for each message. Pure: no file is looked at.
//!
//! Words are separated by blanks. Between two `'`, or two `"`, everything is as it stands; there are no escapes. Then
//! `${sender}`, `${recipient}`, `${user}`, `${domain}` and `${id}` are put in, within quotes too. So a value never makes a word
//! more or less, and is never read again. What would make an argument begin with `-` is refused, since programs take that for an
//! option, unless a word `--` stands before it.

use crate::mail::address;

/// The names that a template knows.
pub const VARIABLES: [&str; 5] = ["sender", "recipient", "user", "domain", "id"];

/// The kernel takes 128 KiB for one argument or one variable of the environment, with its name.
pub const MAX_VALUE: usize = 120_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Sender,
    Recipient,
    /// The recipient's local part, as it is written.
    User,
    /// The recipient's domain in lower case, empty where there is none.
    Domain,
    Id,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Variable),
}

/// A checked template.
#[derive(Debug)]
pub struct Command {
    pub program: String,
    arguments: Vec<Vec<Piece>>,
}

/// What a message puts in.
pub struct Values<'a> {
    pub id: i64,
    pub sender: &'a str,
    /// The first one, and the only one where the template names it.
    pub recipient: &'a str,
}

impl Command {
    /// The error is a clause about the template.
    pub fn parse(text: &str) -> Result<Command, String> {
        let mut words = words(text)?.into_iter();
        match words.next() {
            None => Err("names no program".into()),
            Some(first) => match first.as_slice() {
                [Piece::Text(program)] => {
                    Ok(Command { program: program.clone(), arguments: words.collect() })
                }
                [] => Err("names no program".into()),
                _ => Err("lets a message choose the program".into()),
            },
        }
    }

    /// Whether it is made for one recipient.
    pub fn names_recipient(&self) -> bool {
        let is_one = |piece: &Piece| match piece {
            Piece::Value(variable) => match variable {
                Variable::Recipient | Variable::User | Variable::Domain => true,
                Variable::Sender | Variable::Id => false,
            },
            Piece::Text(_) => false,
        };
        self.arguments.iter().flatten().any(is_one)
    }

    /// The program's name and its arguments. The error is a clause about the message.
    pub fn fill(&self, values: &Values<'_>) -> Result<Vec<String>, String> {
        let mut filled = vec![self.program.clone()];
        let mut has_dashes = false;
        for pieces in &self.arguments {
            let mut word = String::new();
            for piece in pieces {
                match piece {
                    Piece::Text(text) => word.push_str(text),
                    Piece::Value(variable) => word.push_str(&values.get(*variable)?),
                }
            }
            let is_free = matches!(pieces.first(), Some(Piece::Value(_)));
            if is_free && word.starts_with('-') && !has_dashes {
                return Err("an address of it begins with '-', which programs take for an option".into());
            }
            has_dashes |= word == "--" && !is_free;
            check(&word)?;
            filled.push(word);
        }
        Ok(filled)
    }
}

/// Whether the kernel takes `value`; the error is a clause about the message.
pub fn check(value: &str) -> Result<(), String> {
    if value.contains('\0') {
        return Err("an address of it holds a NUL".into());
    }
    if value.len() > MAX_VALUE {
        return Err(format!("its addresses come to more than {MAX_VALUE} octets"));
    }
    Ok(())
}

impl Values<'_> {
    fn get(&self, variable: Variable) -> Result<String, String> {
        let address = || address::parse(self.recipient).map_err(|error| format!("its recipient {}", error.0));
        Ok(match variable {
            Variable::Sender => self.sender.to_owned(),
            Variable::Recipient => self.recipient.to_owned(),
            Variable::User => address()?.local,
            Variable::Domain => address()?.domain_lower(),
            Variable::Id => self.id.to_string(),
        })
    }
}

/// The words of a template, each as its pieces: no two texts side by side, and none that is empty.
fn words(text: &str) -> Result<Vec<Vec<Piece>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<Piece>> = None;
    let mut quote = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("${") {
            let Some((name, behind)) = behind.split_once('}') else {
                return Err("has a '${' without its '}'".into());
            };
            let variable = Variable::parse(name).ok_or_else(|| {
                format!("has the variable '{name}'; there are ${{{}}}", VARIABLES.join("}, ${"))
            })?;
            word.get_or_insert_default().push(Piece::Value(variable));
            rest = behind;
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match (quote, c) {
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                // A word, even if nothing is between the two.
                word.get_or_insert_default();
            }
            (Some(open), _) if open == c => quote = None,
            (_, _) => push(word.get_or_insert_default(), c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("has a {open} without its other half"));
    }
    words.extend(word);
    Ok(words)
}

fn push(word: &mut Vec<Piece>, c: char) {
    match word.last_mut() {
        Some(Piece::Text(text)) => text.push(c),
        Some(Piece::Value(_)) | None => word.push(Piece::Text(c.into())),
    }
}

impl Variable {
    fn parse(name: &str) -> Option<Variable> {
        Some(match name {
            "sender" => Variable::Sender,
            "recipient" => Variable::Recipient,
            "user" => Variable::User,
            "domain" => Variable::Domain,
            "id" => Variable::Id,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str, sender: &str, recipient: &str) -> Result<Vec<String>, String> {
        Command::parse(template)?.fill(&Values { id: 17, sender, recipient })
    }

    #[test]
    fn words_are_split_at_blanks_and_quotes_keep_them_together() {
        for (template, words) in [
            ("cat", &["cat"][..]),
            ("  /bin/x\t-a   b ", &["/bin/x", "-a", "b"]),
            ("'/opt/my prog' \"it's\" 'a \"b\"'", &["/opt/my prog", "it's", "a \"b\""]),
            ("x '' \"\" a'b c'd", &["x", "", "", "ab cd"]),
            ("x \\ $HOME `id` $(id) *;|& ~", &["x", "\\", "$HOME", "`id`", "$(id)", "*;|&", "~"]),
            (
                "x -f ${sender} --to=${recipient}.x '${user} at ${domain}' ${id}",
                &["x", "-f", "s@a", "--to=R@B.x", "R at b", "17"],
            ),
        ] {
            assert_eq!(fill(template, "s@a", "R@B").unwrap(), words, "{template}");
        }
    }

    #[test]
    fn a_value_is_one_argument_whatever_it_holds() {
        for hostile in [
            "a b",
            "'",
            "\"x y\"@z",
            "${recipient}",
            "$(id)",
            "`id`",
            ";x",
            "..",
            "",
            "a\nb",
            "*",
            "\u{202e}",
        ] {
            let words = fill("x ${sender} 'a ${sender}' ${recipient}", hostile, "r").unwrap();
            assert_eq!(words, ["x", hostile, &format!("a {hostile}"), "r"]);
        }
        assert!(fill("x ${sender}", "a\0b", "r").unwrap_err().contains("NUL"));
        assert!(fill("x ${sender}", &"a".repeat(MAX_VALUE + 1), "r").unwrap_err().contains("octets"));
        assert!(fill("x ${sender}", &"a".repeat(MAX_VALUE), "r").is_ok());
    }

    #[test]
    fn no_value_becomes_an_option() {
        for template in
            ["x ${sender}", "x '${sender}'", "x -- ${domain}${sender}", "x ${domain}-a", "x ${sender}${id}"]
        {
            let words = fill(template, "-rf", "r");
            assert_eq!(words.is_err(), !template.contains("--"), "{template}: {words:?}");
        }
        assert_eq!(fill("x -f ${sender} -a -${sender}", "s", "r").unwrap(), ["x", "-f", "s", "-a", "-s"]);
        assert_eq!(fill("x -f${sender}", "-s", "r").unwrap(), ["x", "-f-s"]);
        // Two dashes of a message's do not count.
        assert!(fill("x ${sender} ${user}", "--", "-r@d").is_err());
    }

    #[test]
    fn the_parts_of_a_recipient_need_an_address() {
        assert_eq!(fill("x ${user} ${domain}", "", "bare").unwrap(), ["x", "bare", ""]);
        assert_eq!(fill("x ${user}", "", "\"a@b\"@c").unwrap(), ["x", "\"a@b\""]);
        for odd in ["", "@", "a@b@c", "a\nb@c", "<a@b"] {
            assert!(fill("x ${user}", "", odd).unwrap_err().contains("recipient"), "{odd:?}");
            assert_eq!(fill("x ${recipient}", "", odd).unwrap(), ["x", odd]);
        }
        for (template, names) in [
            ("x ${sender} ${id}", false),
            ("x ${user}", true),
            ("x a${domain}", true),
            ("x ${recipient}", true),
        ] {
            assert_eq!(Command::parse(template).unwrap().names_recipient(), names, "{template}");
        }
    }

    // Req: S4
    #[test]
    fn bad_templates_are_refused() {
        for (template, word) in [
            ("", "no program"),
            (" \t", "no program"),
            ("''", "no program"),
            ("${user}", "choose"),
            ("/bin/${user}", "choose"),
            ("x 'a", "'"),
            ("x \"a'", "\""),
            ("x ${user", "}"),
            ("x ${nobody}", "nobody"),
            ("x ${}", "there are"),
        ] {
            let error = Command::parse(template).unwrap_err();
            assert!(error.contains(word), "{template}: {error}");
        }
    }
}
