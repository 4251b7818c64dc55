//! Which requirement is done, and which tests show it: docs/conformance.md, made from tests/requirements.txt and the marks
//! above the tests.

use super::rules::{MARK, Source};
use std::collections::BTreeMap;

const HEAD: &str = "# Conformance

Which requirements hold, and the tests that show it. An id names an entry of a checklist of behaviours, which is not part of
this repository: what an entry asks for is what its tests check. Made from `tests/requirements.txt` and the marks above the tests:
`PEPSI_WRITE=1 cargo test --test tidy conformance` writes it anew, and without the variable that test fails while it is not
current, or while a requirement that is called done has no test. `part` means that some of it holds and is tested.

| requirement | state | tests |
| --- | --- | --- |
";

/// The document, and what is wrong with the list it is made from.
pub fn table(sources: &[Source]) -> (String, Vec<String>) {
    let tests = marked_tests(sources);
    let (mut text, mut wrong) = (HEAD.to_owned(), Vec::new());
    let list = sources.iter().find(|source| source.path == "tests/requirements.txt");
    for line in list.map(|list| list.text.lines()).into_iter().flatten() {
        let (id, state) = line.split_once(' ').unwrap_or((line, ""));
        let named = tests.get(id).map_or(&[][..], Vec::as_slice);
        match (state, named.is_empty()) {
            ("done" | "part", true) => wrong.push(format!("{id} is called {state} and has no test")),
            ("open", false) => wrong.push(format!("{id} is called open and has a test: {}", named[0])),
            ("done" | "part", false) | ("open", true) => {}
            _ => wrong.push(format!("{id}: neither done nor part nor open: {state:?}")),
        }
        let names: Vec<String> = named.iter().map(|name| format!("`{name}`")).collect();
        text.push_str(&format!("| {id} | {state} | {} |\n", names.join(" ")));
    }
    (text, wrong)
}

/// The tests of each requirement, by name and in the order of files.
fn marked_tests(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        let mut ids: Vec<&str> = Vec::new();
        for line in source.text.lines().map(str::trim) {
            if let Some(marked) = line.strip_prefix(MARK) {
                ids.extend(marked.split([',', ' ']).filter(|id| !id.is_empty()));
            } else if let Some(rest) = line.strip_prefix("fn ") {
                let name = rest.split('(').next().unwrap_or_default();
                for id in ids.drain(..) {
                    tests.entry(id.to_owned()).or_default().push(name.to_owned());
                }
            }
        }
    }
    tests
}
