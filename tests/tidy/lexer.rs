//! Just enough of Rust's lexical grammar to tell code from comments and string literals. Not a parser: it never fails,
//! and on text that is no Rust it merely classifies oddly.

/// A source text taken apart; the parts keep the line numbers of the original.
pub struct Lexed {
    /// The text with comments and the insides of string and character literals blanked, line for line.
    pub code: String,
    /// Each string literal with its line (1 is the first): what stands between its quotes.
    pub strings: Vec<(usize, String)>,
}

#[derive(Clone, Copy)]
enum Mode {
    Code,
    LineComment,
    /// Nested that deep.
    BlockComment(usize),
    /// A string that ends with `"` and that many `#`; raw ones know no escapes.
    Text {
        hashes: usize,
        raw: bool,
    },
}

/// Takes a source text apart.
pub fn lex(text: &str) -> Lexed {
    let chars: Vec<char> = text.chars().collect();
    let mut lexed = Lexed { code: String::new(), strings: Vec::new() };
    let (mut mode, mut at, mut line) = (Mode::Code, 0, 1);
    while at < chars.len() {
        let rest = &chars[at..];
        let mut length = 1;
        match mode {
            Mode::Code => {
                length = token(rest, chars[..at].last().copied(), line, &mut mode, &mut lexed);
            }
            Mode::LineComment if rest[0] == '\n' => mode = Mode::Code,
            Mode::LineComment => {}
            Mode::BlockComment(depth) if rest.starts_with(&['*', '/']) => {
                length = 2;
                mode = if depth == 1 { Mode::Code } else { Mode::BlockComment(depth - 1) };
            }
            Mode::BlockComment(depth) if rest.starts_with(&['/', '*']) => {
                length = 2;
                mode = Mode::BlockComment(depth + 1);
            }
            Mode::BlockComment(_) => {}
            Mode::Text { hashes, .. } if closes(rest, hashes) => {
                length = 1 + hashes;
                mode = Mode::Code;
            }
            Mode::Text { raw, .. } => {
                length = if !raw && rest[0] == '\\' { 2.min(rest.len()) } else { 1 };
                if let Some((_, string)) = lexed.strings.last_mut() {
                    string.extend(&rest[..length]);
                }
            }
        }
        line += rest[..length].iter().filter(|c| **c == '\n').count();
        if !matches!(mode, Mode::Code) || length > 1 || rest[0] == '\n' {
            lexed.code.extend(rest[..length].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        }
        at += length;
    }
    lexed
}

/// One step in code: a plain character is kept (length 1), everything else is blanked by the caller.
fn token(rest: &[char], before: Option<char>, line: usize, mode: &mut Mode, lexed: &mut Lexed) -> usize {
    if rest.starts_with(&['/', '/']) {
        *mode = Mode::LineComment;
        return 2;
    }
    if rest.starts_with(&['/', '*']) {
        *mode = Mode::BlockComment(1);
        return 2;
    }
    if let Some((length, hashes, raw)) = opening(rest, before) {
        *mode = Mode::Text { hashes, raw };
        lexed.strings.push((line, String::new()));
        return length;
    }
    if let Some(length) = character(rest) {
        return length;
    }
    if rest[0] != '\n' {
        lexed.code.push(rest[0]);
    }
    1
}

/// The opening of a string literal: its length, the number of `#`, and whether it is raw.
fn opening(rest: &[char], before: Option<char>) -> Option<(usize, usize, bool)> {
    let is_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let prefix = if is_word { 0 } else { rest.iter().take(2).take_while(|c| "bcr".contains(**c)).count() };
    let raw = rest[..prefix].contains(&'r');
    let hashes = if raw { rest[prefix..].iter().take_while(|c| **c == '#').count() } else { 0 };
    (rest.get(prefix + hashes) == Some(&'"')).then_some((prefix + hashes + 1, hashes, raw))
}

fn closes(rest: &[char], hashes: usize) -> bool {
    rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|c| *c == '#')
}

/// The length of a character literal; None for a lifetime.
fn character(rest: &[char]) -> Option<usize> {
    match rest {
        ['\'', '\\', _, tail @ ..] => tail.iter().take(10).position(|c| *c == '\'').map(|end| end + 4),
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_told_from_code() {
        let text = "let a = \"one // \\\" two\"; // three\nlet b = r#\"four \" \"#; /* five /* six */\n */ c('\"', 'x', '\\'');\nfn d<'a>(e: &'a str) {}\nbr\"s\";";
        let lexed = lex(text);
        let strings: Vec<_> = lexed.strings.iter().map(|(line, text)| (*line, text.as_str())).collect();
        assert_eq!(strings, [(1, "one // \\\" two"), (2, "four \" "), (5, "s")]);
        assert_eq!(lexed.code.lines().count(), text.lines().count());
        for word in ["one", "three", "four", "five", "six"] {
            assert!(!lexed.code.contains(word), "{word}: {}", lexed.code);
        }
        for word in ["let a =", "let b =", "c(", "fn d<'a>(e: &'a str) {}"] {
            assert!(lexed.code.contains(word), "{word}: {}", lexed.code);
        }
    }

    #[test]
    fn an_identifier_before_a_quote_is_no_prefix() {
        assert_eq!(lex("for r in x { bar\"s\" }").strings, [(1, "s".to_owned())]);
        assert!(lex("let bar = r;").code.contains("let bar = r;"));
    }

    #[test]
    fn any_text_is_taken() {
        for text in ["", "\"", "'", "r#", "r#\"", "/*", "'\\", "\"\\", "b'", "b\"\\"] {
            assert_eq!(lex(text).code.len(), text.len(), "{text:?}");
        }
    }
}
