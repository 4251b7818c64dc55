//! docs/row-states.md names every statement that writes the queue.

use super::rules::Source;

const PAGE: &str = "docs/row-states.md";

/// Whether some line of the statement writes the table of messages.
fn writes(text: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    let verbs = ["INSERT INTO pepsi.workqueue", "UPDATE pepsi.workqueue", "DELETE FROM pepsi.workqueue"];
    // `pepsi.workqueue_body` and the functions are other names.
    let is_table = |rest: &str| !rest.starts_with('_');
    code.into_iter().any(|line| {
        verbs.iter().any(|verb| line.match_indices(verb).any(|(at, _)| is_table(&line[at + verb.len()..])))
    })
}

fn unnamed(sources: &[Source]) -> Vec<String> {
    let page = sources.iter().find(|source| source.path == PAGE).map_or("", |page| page.text.as_str());
    let statements = sources.iter().filter(|source| source.path.ends_with(".sql") && writes(&source.text));
    let names = statements.map(|source| source.path.trim_start_matches("src/sql/"));
    names
        .filter(|name| !page.contains(&format!("`{name}`")))
        .map(|name| format!("{PAGE}: no {name}"))
        .collect()
}

#[test]
fn the_page_of_row_states_names_every_statement_that_writes_the_queue() {
    let wrong = unnamed(&super::sources());
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    let page = || Source::new(PAGE, "| `a.sql` |".into());
    let statement = |name: &str, text: &str| Source::new(&format!("src/sql/{name}"), text.into());
    let write = "-- x\nUPDATE pepsi.workqueue\nSET";
    assert!(unnamed(&[page(), statement("a.sql", write)]).is_empty());
    assert_eq!(unnamed(&[page(), statement("b.sql", write)]).len(), 1);
    assert_eq!(unnamed(&[page(), statement("schema/b.sql", "    UPDATE pepsi.workqueue AS w")]).len(), 1);
    let others = "-- UPDATE pepsi.workqueue\nDELETE FROM pepsi.workqueue_body\nSELECT FROM pepsi.workqueue";
    assert!(unnamed(&[page(), statement("b.sql", others)]).is_empty());
}
