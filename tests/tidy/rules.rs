//! The rules themselves. A rule sees sources and returns one line for each thing that is wrong; it reads nothing else.

use super::lexer::{Lexed, lex};
use std::collections::BTreeMap;

/// One file of the project.
pub struct Source {
    /// From the root of the project, with `/`.
    pub path: String,
    pub text: String,
    /// For `.rs` files what `lex` made of it, else nothing.
    lexed: Lexed,
}

impl Source {
    pub fn new(path: &str, text: String) -> Source {
        let lexed = if path.ends_with(".rs") { lex(&text) } else { lex("") };
        Source { path: path.into(), text, lexed }
    }

    fn is_rust_in(&self, folder: &str) -> bool {
        self.path.ends_with(".rs") && self.path.starts_with(folder)
    }

    /// Each place in code (not in a comment, a string or a unit test) where `token` stands, as a complaint.
    fn complaints(&self, token: &str, why: &str) -> Vec<String> {
        self.complaints_above(self.tests_begin(), token, why)
    }

    fn complaints_above(&self, end: usize, token: &str, why: &str) -> Vec<String> {
        let lines = self.lexed.code.lines().take(end).enumerate();
        let found = lines.filter(|(_, line)| contains_token(line, token));
        found.map(|(number, _)| format!("{}:{}: {token} {why}", self.path, number + 1)).collect()
    }

    /// The code above the unit tests.
    fn production(&self) -> String {
        self.lexed.code.lines().take(self.tests_begin()).map(|line| format!("{line}\n")).collect()
    }

    /// The line where the unit tests begin: by convention they are the end of the file, or a file of their own.
    fn tests_begin(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        if self.path.ends_with("/tests.rs") || self.path.ends_with("_tests.rs") {
            return 0;
        }
        let is_start = |pair: &[&str]| pair[0].trim() == "#[cfg(test)]" && pair[1].trim().starts_with("mod ");
        lines.windows(2).position(is_start).unwrap_or(lines.len())
    }
}

/// Whether `token` stands in `line` with no letter or digit directly around it where it itself has one at that end.
fn contains_token(line: &str, token: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(token).any(|(at, _)| {
        let before = is_word(line[..at].chars().next_back()) && is_word(token.chars().next());
        let behind = is_word(line[at + token.len()..].chars().next()) && is_word(token.chars().next_back());
        !before && !behind
    })
}

const OUTSIDE: &[&str] = &[
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::env",
    "std::process",
    "std::thread",
    "std::os",
    "std::io",
    "Instant",
    "SystemTime",
];

/// `proto` and `mail` see std's pure part and serde_json; the machine sees std's pure part, and nothing whose order or
/// value differs from run to run.
pub fn pure_imports(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        let is_machine = source.is_rust_in("src/dispatch/machine");
        if !is_machine && !source.is_rust_in("src/proto/") && !source.is_rust_in("src/mail/") {
            continue;
        }
        let foreign = ["crate::", "postgres::", "libc::", "lexopt::", "fallible_iterator::", "RandomState"];
        for token in foreign.iter().chain(OUTSIDE) {
            wrong.extend(source.complaints(token, "in a pure room"));
        }
        if is_machine {
            for token in ["serde_json::", "HashMap", "HashSet"] {
                wrong.extend(source.complaints(token, "in the machine"));
            }
        }
    }
    wrong
}

/// Folder or file, and the rooms of this crate that it may not name.
const CLOSED: &[(&str, &[&str])] = &[
    ("src/dispatch/", &["worker", "mail", "ingress", "tool"]),
    ("src/worker/", &["dispatch", "ingress", "tool"]),
    ("src/worker/stage/", &["sql", "sys"]),
    ("src/sql/", &["dispatch", "worker", "ingress", "tool"]),
    ("src/ingress/", &["dispatch", "worker", "tool"]),
    ("src/tool/", &["dispatch", "ingress"]),
    ("src/host.rs", &["dispatch", "worker", "ingress", "tool", "sql"]),
    ("src/sys.rs", &["dispatch", "worker", "ingress", "tool", "sql", "host", "proto", "mail"]),
];

/// Rooms keep to themselves, the driver to `sql`, the C library to `sys.rs`.
pub fn room_imports(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust_in("src/")) {
        if !source.path.starts_with("src/sql/") {
            for token in ["postgres::", "fallible_iterator::"] {
                wrong.extend(source.complaints(token, "outside src/sql"));
            }
        }
        if source.path != "src/sys.rs" {
            wrong.extend(source.complaints("libc::", "outside src/sys.rs"));
        }
        let rooms = crate_rooms(&source.production());
        for (folder, closed) in CLOSED.iter().filter(|(folder, _)| source.path.starts_with(folder)) {
            // The registry says how much of a row a stage needs, in the words of the statement that loads it.
            let is_registry = |room: &str| source.path == "src/worker/stage/mod.rs" && room == "sql";
            for room in closed.iter().filter(|room| rooms.contains(&room.to_string()) && !is_registry(room)) {
                wrong.push(format!("{}: crate::{room} may not be named in {folder}", source.path));
            }
        }
    }
    wrong
}

/// The names directly behind `crate::`, also of a group such as `crate::{a, b::{c}}`.
fn crate_rooms(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut rooms = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        let rest = &code[at + found.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            rooms.push(word(rest));
            continue;
        };
        let (mut depth, mut start) = (1, 0);
        for (end, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 || (depth == 1 && c == ',') {
                rooms.push(word(group[start..end].trim_start()));
                start = end + 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    rooms
}

/// Files that may write to standard output: the one place for results, and the worker's side of the line protocol.
const WRITERS: &[&str] = &["src/main.rs", "src/worker/runtime.rs"];

/// The printing macros panic on a closed output, and a stage must not write into the protocol.
pub fn printing(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust_in("src/")) {
        for token in ["println!", "print!", "eprintln!", "eprint!", "dbg!"] {
            wrong.extend(source.complaints(token, "may panic: use crate::print or crate::log"));
        }
        if !WRITERS.contains(&source.path.as_str()) {
            wrong.extend(source.complaints("stdout()", "outside the files that may write to it"));
        }
    }
    wrong
}

/// How far above an unsafe block its reason may begin.
const REASON_LINES: usize = 6;

/// Unsafe code is in `src/sys.rs`, each with its reason above it.
pub fn unsafe_code(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        if source.path != "src/sys.rs" {
            for token in ["unsafe", "allow(unsafe_code)"] {
                wrong.extend(source.complaints_above(usize::MAX, token, "outside src/sys.rs"));
            }
            continue;
        }
        let text: Vec<&str> = source.text.lines().collect();
        for (number, _) in
            source.lexed.code.lines().enumerate().filter(|(_, line)| contains_token(line, "unsafe"))
        {
            let above = &text[number.saturating_sub(REASON_LINES)..number];
            if !above.iter().any(|line| line.contains("SAFETY:")) {
                wrong.push(format!(
                    "{}:{}: unsafe without a SAFETY comment above it",
                    source.path,
                    number + 1
                ));
            }
        }
    }
    wrong
}

/// The files that may read a clock.
const CLOCK_READERS: &[&str] =
    &["src/dispatch/shell.rs", "src/host.rs", "src/worker/helper.rs", "src/worker/runtime.rs"];

/// Time is an argument everywhere else.
pub fn clocks(sources: &[Source]) -> Vec<String> {
    let is_checked =
        |source: &&Source| source.is_rust_in("src/") && !CLOCK_READERS.contains(&source.path.as_str());
    let tokens = ["Instant::now", "SystemTime::now", ".elapsed("];
    let checked = sources.iter().filter(is_checked);
    checked
        .flat_map(|source| tokens.iter().flat_map(|token| source.complaints(token, "reads a clock")))
        .collect()
}

/// A clock that somebody sets must not move a deadline: the rooms that have any do not know the time of day.
pub fn wall_clock(sources: &[Source]) -> Vec<String> {
    let has_deadlines = |source: &&Source| {
        source.is_rust_in("src/dispatch/")
            || ["src/worker/runtime.rs", "src/worker/helper.rs", "src/sys.rs"].contains(&&*source.path)
    };
    let tokens = ["SystemTime", "wall_clock_us", "CLOCK_REALTIME"];
    let found = |source| {
        tokens.iter().flat_map(move |token| Source::complaints(source, token, "is a clock that may be set"))
    };
    sources.iter().filter(has_deadlines).flat_map(found).collect()
}

/// The poll loop: `run` and all that it calls of its own, to the end of `impl Shell`.
const LOOP_LINES: usize = 150;

pub fn poll_loop(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.path == "src/dispatch/shell.rs") {
        let lines = source.text.lines().skip_while(|line| !line.starts_with("    pub fn run("));
        let count = lines.take_while(|line| *line != "}").count();
        if !(1..LOOP_LINES).contains(&count) {
            wrong.push(format!("{}: a loop of {count} lines, not under {LOOP_LINES}", source.path));
        }
    }
    wrong
}

/// Every statement is a file that one place includes, and says at its head what it is for.
pub fn sql_files(sources: &[Source]) -> Vec<String> {
    let is_sql = |source: &&Source| source.path.starts_with("src/") && source.path.ends_with(".sql");
    let mut uses: BTreeMap<String, usize> =
        sources.iter().filter(is_sql).map(|file| (file.path.clone(), 0)).collect();
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust_in("src/")) {
        for (line, name) in source.lexed.strings.iter().filter(|(_, name)| name.ends_with(".sql")) {
            if !source.text.lines().nth(line - 1).unwrap_or_default().contains("include_str!") {
                continue;
            }
            let path = resolve(&source.path, name);
            match uses.get_mut(&path) {
                Some(count) => *count += 1,
                None => wrong.push(format!("{}:{line}: there is no file {path}", source.path)),
            }
        }
    }
    let unused = uses.iter().filter(|(_, count)| **count != 1);
    wrong.extend(unused.map(|(path, count)| format!("{path}: used {count} times, not once")));
    let bare = sources.iter().filter(is_sql).filter(|file| !file.text.starts_with("--"));
    wrong.extend(bare.map(|file| format!("{}: no comment at its head", file.path)));
    wrong
}

/// `name` as seen from the folder of `file`.
fn resolve(file: &str, name: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

const VERBS: &[&str] = &[
    "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "TRUNCATE", "LISTEN", "NOTIFY",
    "BEGIN", "COMMIT",
];

/// SQL is written in `src/sql` alone.
pub fn sql_text(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_checked = |source: &&Source| source.is_rust_in("src/") && !source.path.starts_with("src/sql/");
    for source in sources.iter().filter(is_checked) {
        let end = source.tests_begin();
        for (line, text) in source.lexed.strings.iter().filter(|(line, _)| *line <= end) {
            let upper = VERBS.iter().copied().find(|verb| contains_token(text, verb));
            let lower = ["select * ", "insert into ", "delete from ", "listen "]
                .into_iter()
                .find(|verb| text.starts_with(verb));
            if let Some(verb) = upper.or(lower) {
                wrong.push(format!("{}:{line}: {verb} in a string outside src/sql", source.path));
            }
        }
    }
    wrong
}

/// What a reader can hold in mind.
const MAX_LINES: usize = 500;

/// Each file begins by saying what it is, and is short enough to be read at once.
pub fn headers_and_sizes(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        let mut lines = source.text.lines();
        let first = lines.next().unwrap_or_default();
        let is_script = source.path.starts_with("scripts/") || source.path.starts_with(".ci/");
        if source.path.ends_with(".rs") && !first.starts_with("//! ") {
            wrong.push(format!("{}: no //! header", source.path));
        }
        if is_script && !(first.starts_with("#!") && lines.next().unwrap_or_default().starts_with("# ")) {
            wrong.push(format!("{}: no #! line with a comment below it", source.path));
        }
        let count = source.text.lines().count();
        if count > MAX_LINES && (is_script || source.path.ends_with(".rs")) {
            wrong.push(format!("{}: {count} lines, more than {MAX_LINES}", source.path));
        }
    }
    wrong
}

/// No notes to self, no stubs, and outside of tests no way to die of what came from outside.
pub fn open_ends(sources: &[Source]) -> Vec<String> {
    let notes = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("unimple", "mented!"),
        concat!("to", "do!"),
    ];
    let mut wrong = Vec::new();
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            let found = notes.iter().filter(|note| contains_token(line, note));
            wrong.extend(found.map(|note| format!("{}:{}: {note}", source.path, number + 1)));
        }
        if source.is_rust_in("src/") {
            let code = source.lexed.code.lines().take(source.tests_begin()).enumerate();
            let found = code.filter(|(_, line)| line.contains(".unwrap()"));
            wrong.extend(found.map(|(number, _)| format!("{}:{}: unwrap()", source.path, number + 1)));
        }
    }
    wrong
}

const ALLOWED: &[&str] = &["fallible-iterator", "hmac", "lexopt", "libc", "postgres", "serde_json", "sha2"];

/// Five direct dependencies plus sha2 and hmac, which these already bring; none for tests or builds, no build script.
pub fn dependencies(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        if source.path == "build.rs" {
            wrong.push("build.rs: code that runs at build time".into());
        }
        if source.path != "Cargo.toml" {
            continue;
        }
        let mut section = "";
        for line in
            source.text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            if line.starts_with('[') {
                section = line.trim_matches(|c| c == '[' || c == ']');
                if section.contains("dependencies") && section != "dependencies" {
                    wrong.push(format!("Cargo.toml: a section [{section}]"));
                }
                continue;
            }
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            if section == "dependencies" && !ALLOWED.contains(&name) {
                wrong.push(format!("Cargo.toml: a dependency {name}"));
            }
        }
    }
    wrong
}

pub const MARK: &str = concat!("// Re", "q:");

/// Each mark names ids of tests/requirements.txt and stands right above a test function.
pub fn requirement_marks(sources: &[Source]) -> Vec<String> {
    let list = sources.iter().find(|source| source.path == "tests/requirements.txt");
    let known: Vec<&str> = list
        .map(|list| list.text.lines().filter_map(|line| line.split(' ').next()).collect())
        .unwrap_or_default();
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
        for (number, ids) in
            lines.iter().enumerate().filter_map(|(n, line)| Some((n, line.strip_prefix(MARK)?)))
        {
            let place = format!("{}:{}", source.path, number + 1);
            let ids: Vec<&str> = ids.split([',', ' ']).filter(|id| !id.is_empty()).collect();
            if ids.is_empty() {
                wrong.push(format!("{place}: a mark with no id"));
            }
            let unknown = ids.iter().filter(|id| !known.contains(id));
            wrong.extend(unknown.map(|id| format!("{place}: no requirement {id}")));
            let below = lines[number + 1..].iter().find(|line| !line.starts_with("//"));
            if below != Some(&"#[test]") {
                wrong.push(format!("{place}: a mark that is not above a test function"));
            }
        }
    }
    wrong
}

/// Each line that holds one of `names`.
pub fn names_of(sources: &[Source], names: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        for (number, line) in source.text.lines().enumerate() {
            if let Some(name) = names.iter().find(|name| line.contains(*name)) {
                wrong.push(format!("{}:{}: {name}", source.path, number + 1));
            }
        }
    }
    wrong
}
