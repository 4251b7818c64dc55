//! The house rules, checked: who may import whom, where unsafe, clocks and SQL may stand, sizes, headers, dependencies.
//!
//! Each check takes sources and returns what is wrong, one line each; each is shown to fail on a small bad sample.

#[path = "tidy/conformance.rs"]
mod conformance;
#[path = "tidy/lexer.rs"]
mod lexer;
#[path = "tidy/reference.rs"]
mod reference;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/states.rs"]
mod states;

use rules::Source;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// All text of the project but the lock file, by path within it.
fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for name in ["src", "tests", "benches", "scripts", "docs", "systemd", ".ci"] {
        collect(&Path::new(ROOT).join(name), &mut found);
    }
    for name in ["Cargo.toml", "README.md", "AUDIT.md", "LICENSE", "build.rs"] {
        let path = Path::new(ROOT).join(name);
        if path.exists() {
            found.push(path);
        }
    }
    found.sort();
    let read = |path: &PathBuf| {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Source::new(path.strip_prefix(ROOT).expect("below the root").to_str().expect("a plain name"), text)
    };
    found.iter().map(read).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() { collect(&path, found) } else { found.push(path) }
    }
}

fn check(rule: fn(&[Source]) -> Vec<String>) {
    let sources = sources();
    assert!(sources.iter().any(|source| source.path == "src/main.rs"), "the sources were not found");
    let wrong = rule(&sources);
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The rule objects to `text` as `path` with a line that holds `part`, and not to `good`.
fn catches(rule: fn(&[Source]) -> Vec<String>, path: &str, bad: &str, part: &str, good: &str) {
    let found = rule(&[Source::new(path, bad.into())]);
    assert!(found.iter().any(|line| line.contains(part)), "{path}: {bad:?} gave {found:?}");
    let fine = rule(&[Source::new(path, good.into())]);
    assert!(fine.is_empty(), "{path}: {good:?} gave {fine:?}");
}

#[test]
fn pure_rooms_import_only_what_they_may() {
    check(rules::pure_imports);
    let catches = |path, bad, part, good| catches(rules::pure_imports, path, bad, part, good);
    catches("src/proto/a.rs", "use crate::mail;", "crate::", "use super::text;");
    catches("src/mail/a.rs", "use std::fs::File;", "std::fs", "use std::fmt;");
    catches("src/mail/a.rs", "let x = std::env::var(\"A\");", "std::env", "// std::env");
    catches("src/proto/a.rs", "libc::getpid()", "libc::", "serde_json::json!(1)");
    catches(
        "src/dispatch/machine/a.rs",
        "use serde_json::Value;",
        "serde_json::",
        "use std::collections::BTreeMap;",
    );
    catches("src/dispatch/machine/a.rs", "use std::collections::HashMap;", "HashMap", "use super::pool;");
    catches("src/dispatch/machine/a.rs", "use std::time::Instant;", "Instant", "use std::time::Duration;");
}

#[test]
fn rooms_do_not_reach_into_each_other() {
    check(rules::room_imports);
    let catches = |path, bad, part, good| catches(rules::room_imports, path, bad, part, good);
    catches("src/tool/a.rs", "fn f(e: postgres::Error) {}", "postgres::", "use crate::sql::Db;");
    catches(
        "src/dispatch/a.rs",
        "use crate::{sql, worker};",
        "worker",
        "use crate::{sql, proto::{line, conf}};",
    );
    catches("src/dispatch/a.rs", "crate::mail::split::split(x)", "mail", "crate::proto::line::parse_id(x)");
    catches("src/worker/stage/a.rs", "use crate::sql::Db;", "sql", "use crate::mail::header;");
    catches("src/worker/a.rs", "use crate::dispatch;", "dispatch", "use crate::sql;");
    catches("src/worker/a.rs", "libc::getpid()", "libc::", "std::process::id()");
    catches("src/sql/a.rs", "use crate::worker::context;", "worker", "use crate::{host, sys};");
}

#[test]
fn standard_output_is_written_in_one_place() {
    check(rules::printing);
    let catches = |path, bad, part, good| catches(rules::printing, path, bad, part, good);
    catches("src/tool/a.rs", "println!(\"x\");", "println!", "crate::print(\"println!\");");
    catches("src/worker/stage/a.rs", "eprint!(\"x\");", "eprint!", "crate::log(level, \"\", \"x\", &[]);");
    catches("src/worker/stage/a.rs", "io::stdout().write_all(b)", "stdout()", "file.write_all(b)");
}

#[test]
fn unsafe_code_stands_in_one_file_and_says_why() {
    check(rules::unsafe_code);
    let catches = |path, bad, part, good| catches(rules::unsafe_code, path, bad, part, good);
    catches("src/host.rs", "let x = unsafe { f() };", "unsafe", "let x = \"unsafe { f() }\"; // unsafe");
    catches(
        "src/sys.rs",
        "fn a() {\n unsafe { f() };\n}",
        "SAFETY",
        "fn a() {\n // SAFETY: f takes nothing.\n unsafe { f() };\n}",
    );
    catches("tests/a.rs", "#![allow(unsafe_code)]", "allow(unsafe_code)", "#![allow(dead_code)]");
}

#[test]
fn clocks_are_read_where_they_may_be() {
    check(rules::clocks);
    let catches = |path, bad, part, good| catches(rules::clocks, path, bad, part, good);
    catches(
        "src/tool/a.rs",
        "let a = Instant::now();",
        "Instant::now",
        "let a = crate::host::wall_clock_us();",
    );
    catches("src/mail/a.rs", "std::time::SystemTime::now()", "SystemTime::now", "/// SystemTime::now");
    let test = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { Instant::now(); }\n}\n";
    catches("src/tool/a.rs", "Instant::now()", "a.rs:1", test);
    catches("src/tool/a.rs", "started.elapsed()", ".elapsed(", "struct Elapsed;");
}

#[test]
fn no_deadline_hangs_on_a_clock_that_may_be_set() {
    check(rules::wall_clock);
    let catches = |path, bad, part, good| catches(rules::wall_clock, path, bad, part, good);
    catches("src/dispatch/shell.rs", "SystemTime::now()", "SystemTime", "Instant::now()");
    catches("src/worker/runtime.rs", "host::wall_clock_us()", "wall_clock_us", "host::user_name(1)");
    catches("src/sys.rs", "libc::CLOCK_REALTIME", "CLOCK_REALTIME", "libc::CLOCK_MONOTONIC");
}

#[test]
fn the_poll_loop_is_small() {
    check(rules::poll_loop);
    let with = |lines| {
        format!("impl Shell {{\n    pub fn run(x) {{\n{}}}\nfn other() {{}}\n", "    x\n".repeat(lines))
    };
    catches(rules::poll_loop, "src/dispatch/shell.rs", &with(149), "150", &with(148));
    catches(rules::poll_loop, "src/dispatch/shell.rs", "impl Shell {\n}\n", "0 lines", &with(1));
}

#[test]
fn each_sql_file_is_used_exactly_once() {
    check(rules::sql_files);
    let file = |path: &str, text: &str| Source::new(path, text.into());
    let claim = || file("src/sql/claim.sql", "-- Claims.\nSELECT 1\n");
    let once = || file("src/sql/queue.rs", "const A: &str = include_str!(\"claim.sql\");");
    let twice = file("src/sql/row.rs", "const A: &str = include_str!(\"claim.sql\");");
    let patch = || file("src/sql/schema/0001.sql", "-- First.\n");
    assert!(rules::sql_files(&[claim(), once()]).is_empty());
    assert!(rules::sql_files(&[claim()])[0].contains("used 0 times"));
    assert!(rules::sql_files(&[claim(), once(), twice])[0].contains("used 2 times"));
    assert!(rules::sql_files(&[once()])[0].contains("claim.sql"));
    assert!(rules::sql_files(&[patch()])[0].contains("schema/0001.sql"));
    let setup = file("src/sql/install/setup.rs", "include_str!(\"../schema/0001.sql\")");
    assert!(rules::sql_files(&[patch(), setup]).is_empty());
    assert!(rules::sql_files(&[file("src/sql/claim.sql", "SELECT 1"), once()])[0].contains("comment"));
    assert!(rules::sql_files(&[file("src/tool/a.rs", "include_str!(\"../x.sql\")")])[0].contains("x.sql"));
}

#[test]
fn sql_text_stands_in_its_room() {
    check(rules::sql_text);
    let catches = |path, bad, part, good| catches(rules::sql_text, path, bad, part, good);
    catches("src/tool/a.rs", "q(\"SELECT id FROM t\")", "SELECT", "q(\"select one of them\") // SELECT");
    catches("src/dispatch/a.rs", "q(\"LISTEN workqueue\")", "LISTEN", "q(\"cannot listen\")");
    catches("src/worker/a.rs", "q(\"delete from pepsi.workqueue\")", "delete from", "q(\"deleted\")");
}

#[test]
fn each_file_says_what_it_holds_and_stays_small() {
    check(rules::headers_and_sizes);
    let catches = |path, bad: &str, part, good| catches(rules::headers_and_sizes, path, bad, part, good);
    catches("src/a.rs", "use std::fmt;\n", "//!", "//! A.\n");
    catches("scripts/a", "set -e\n", "#!", "#!/bin/sh\n# Does a.\n");
    catches("tests/a.rs", &format!("//! A.\n{}", "\n".repeat(500)), "501 lines", "//! A.\n");
}

#[test]
fn nothing_is_left_open() {
    check(rules::open_ends);
    let catches = |path, bad: &str, part, good| catches(rules::open_ends, path, bad, part, good);
    catches("src/a.rs", concat!("// TO", "DO later\n"), concat!("TO", "DO"), "// later\n");
    catches("scripts/a", concat!("# FIX", "ME\n"), concat!("FIX", "ME"), "# fixed\n");
    catches("src/a.rs", concat!("unimple", "mented!()"), "mented", "implemented()");
    catches("src/a.rs", "x.unwrap();\n", "unwrap", "x?;\n#[cfg(test)]\nmod tests {\n x.unwrap();\n}\n");
}

#[test]
fn direct_dependencies_are_the_five_with_sha2_and_hmac() {
    check(rules::dependencies);
    let catches = |bad, part| {
        catches(
            rules::dependencies,
            "Cargo.toml",
            bad,
            part,
            "[package]\nx = 1\n\n[dependencies]\nlibc = \"0.2\"\n",
        );
    };
    catches("[dependencies]\nregex = \"1\"\n", "regex");
    catches("[dependencies]\nlibc = \"0.2\"\n[dev-dependencies]\nlibc = \"0.2\"\n", "dev-dependencies");
    catches("[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n", "target");
    assert!(!rules::dependencies(&[Source::new("build.rs", String::new())]).is_empty());
}

#[test]
fn requirement_marks_name_known_ids_and_stand_above_tests() {
    check(rules::requirement_marks);
    let list = || Source::new("tests/requirements.txt", "A1\nB2\n".into());
    let marks = |text: &str| rules::requirement_marks(&[list(), Source::new("tests/a.rs", text.into())]);
    let mark = |ids: &str, below: &str| format!("{} {ids}\n{below}", concat!("// Re", "q:"));
    assert!(marks(&mark("A1, B2", "#[test]\nfn a() {}\n")).is_empty());
    assert!(marks(&mark("A1", "/// More.\n#[test]\nfn a() {}\n")).is_empty());
    assert!(marks(&mark("C3", "#[test]\nfn a() {}\n"))[0].contains("C3"));
    assert!(marks(&mark("A1", "fn a() {}\n"))[0].contains("test function"));
    assert!(marks(&mark("", "#[test]\nfn a() {}\n"))[0].contains("no id"));
}

#[test]
fn conformance_is_current_and_claims_nothing_untested() {
    let (text, wrong) = conformance::table(&sources());
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    let file = Path::new(ROOT).join("docs/conformance.md");
    if std::env::var_os("PEPSI_WRITE").is_some() {
        std::fs::write(&file, &text).expect("docs/conformance.md can be written");
    }
    assert!(
        std::fs::read_to_string(&file).is_ok_and(|there| there == text),
        "docs/conformance.md is not current"
    );

    let made = |list: &str, code: String| {
        conformance::table(&[
            Source::new("tests/requirements.txt", list.into()),
            Source::new("tests/a.rs", code),
        ])
    };
    let test = |id: &str| format!("{} {id}\n#[test]\nfn shows_it() {{}}\n", concat!("// Re", "q:"));
    let (text, wrong) = made("A1 done\nB2 open\n", test("A1"));
    assert!(wrong.is_empty() && text.ends_with("| A1 | done | `shows_it` |\n| B2 | open |  |\n"), "{text}");
    for (list, part) in [("A1 done\nB2 done\n", "B2"), ("A1 open\n", "A1"), ("A1\n", "neither")] {
        assert!(made(list, test("A1")).1.iter().any(|line| line.contains(part)), "{list}");
    }
}

#[test]
fn every_known_option_stands_in_the_reference() {
    check(reference::undocumented);
    let lists: String = ["COMMON_OPTIONS", "DISPATCH", "POSTGRES", "COMMON", "KNOWN_OPTIONS"]
        .map(|name| format!("const {name}: &[&str] = &[\"{name}_A\",\n    \"SECOND\"];\n"))
        .join("");
    let kind = "pub const KIND: Kind = Kind {\n    options: &[\"OWN\"],\n};\n";
    let code = || Source::new("src/a.rs", format!("{lists}{kind}"));
    let all = "`COMMON_OPTIONS_A` `DISPATCH_A` `POSTGRES_A` `COMMON_A` `KNOWN_OPTIONS_A` `SECOND` `OWN`";
    let undocumented = |code: Source, text: &str| {
        reference::undocumented(&[code, Source::new("docs/configuration.md", text.into())])
    };
    assert!(undocumented(code(), all).is_empty(), "{:?}", undocumented(code(), all));
    for name in ["COMMON_OPTIONS_A", "DISPATCH_A", "POSTGRES_A", "COMMON_A", "KNOWN_OPTIONS_A", "OWN"] {
        let found = undocumented(code(), &all.replace(&format!("`{name}`"), name));
        assert!(found.len() == 1 && found[0].contains(name), "{name}: {found:?}");
    }
    assert_eq!(undocumented(code(), &all.replace("`SECOND`", "")).len(), 5);
    let renamed = undocumented(Source::new("src/a.rs", kind.into()), all);
    assert!(renamed.len() == 5 && renamed.iter().all(|line| line.contains("no list")), "{renamed:?}");
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    // What this checkout and this user are called here; a one-letter home such as / would match everything.
    let home = std::env::var("HOME").unwrap_or_default();
    let names: Vec<String> =
        [ROOT.to_owned(), format!("{home}/")].into_iter().filter(|name| name.len() > 2).collect();
    let wrong = rules::names_of(&sources(), &names);
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    let bad = Source::new("docs/a.md", "see /somewhere/checkout/src".into());
    assert_eq!(rules::names_of(&[bad], &["/somewhere/checkout".into()]).len(), 1);
}
