//! The reference of the configuration is complete: every option that the code knows stands in docs/configuration.md.

use super::rules::Source;

const REFERENCE: &str = "docs/configuration.md";

/// How a list of known options begins: the constants of the sections, and the field of a stage's `Kind`.
const LISTS: [&str; 6] = [
    "const COMMON_OPTIONS: &[&str] = &[",
    "const DISPATCH: &[&str] = &[",
    "const POSTGRES: &[&str] = &[",
    "const COMMON: &[&str] = &[",
    "const KNOWN_OPTIONS: &[&str] = &[",
    "    options: &[",
];

/// One line for each option whose name does not stand in backquotes in the reference, and for each list that is nowhere:
/// renamed, it would no longer be checked.
pub fn undocumented(sources: &[Source]) -> Vec<String> {
    let reference = sources.iter().find(|source| source.path == REFERENCE);
    let reference = reference.map(|source| source.text.as_str()).unwrap_or_default();
    let mut wrong = Vec::new();
    for list in LISTS {
        let mut is_there = false;
        for source in sources.iter().filter(|source| source.path.starts_with("src/")) {
            for rest in source.text.split(list).skip(1) {
                is_there = true;
                // The list's end, then what stands between its quotes.
                let names = rest.split(']').next().unwrap_or_default().split('"').skip(1).step_by(2);
                let missing = names.filter(|name| !reference.contains(&format!("`{name}`")));
                wrong.extend(missing.map(|name| format!("{}: {name} is not in {REFERENCE}", source.path)));
            }
        }
        if !is_there {
            wrong.push(format!("there is no list '{}'", list.trim()));
        }
    }
    wrong
}
