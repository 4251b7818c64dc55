//! Command lines, and the lines of an import. The program itself is run in `tests/stages.rs`.

use super::*;

fn request(words: &[&str]) -> Result<String, String> {
    let args: Vec<OsString> = words.iter().map(OsString::from).collect();
    parse(&args).map(|request| format!("{request:?}")).map_err(|error| error.to_string())
}

#[test]
fn addresses_are_taken_as_they_are_compared() {
    let same = |words: &[&str], expected: Request| assert_eq!(request(words), Ok(format!("{expected:?}")));
    let (bob, ann) = ("bob@x".to_owned(), "ann@example.org".to_owned());
    let all = Request::List { address: None, correspondent: None, limit: 1000, json: false };
    same(&["list"], all);
    same(
        &["list", "--address", "BOB@x.", "--correspondent=@X.Example", "--limit", "3", "--json"],
        Request::List {
            address: Some(bob.clone()),
            correspondent: Some("@x.example".into()),
            limit: 3,
            json: true,
        },
    );
    same(
        &["add", "Bob@x", "\"Ann\"@Example.ORG", "@Y"],
        Request::Add { address: bob.clone(), correspondents: vec![ann.clone(), "@y".into()] },
    );
    same(&["remove", "bob@x", "--all"], Request::Remove { address: bob.clone(), correspondents: None });
    same(
        &["remove", "bob@x", "ann@example.org"],
        Request::Remove { address: bob, correspondents: Some(vec![ann]) },
    );
    same(&["import"], Request::Import { file: None });
    same(&["import", "-"], Request::Import { file: None });
    same(&["import", "a b"], Request::Import { file: Some("a b".into()) });
}

// Req: CLI5
#[test]
fn a_command_line_says_what_is_wrong_with_it() {
    for (words, part) in [
        (&[][..], "no subcommand"),
        (&["lst"], "no subcommand 'lst'"),
        (&["list", "bob@x"], "unexpected argument"),
        (&["list", "--all"], "--all"),
        (&["list", "--limit", "0"], "--limit '0' is not a number"),
        (&["list", "--address", "bob"], "'bob' has no domain"),
        (&["add"], "add needs an address"),
        (&["add", "bob@x"], "add needs a correspondent"),
        (&["add", "@x", "ann@y"], "nothing before its"),
        (&["add", "bob@x", "@"], "has no domain behind"),
        (&["add", "bob@x", "ann"], "'ann' has no domain"),
        (&["add", "bob@x", "ann@y", "--all"], "--all"),
        (&["remove", "bob@x"], "remove needs a correspondent"),
        (&["remove", "bob@x", "--all", "ann@y"], "--all stands instead"),
        (&["remove", "--all"], "remove needs an address"),
        (&["import", "a", "b"], "unexpected argument"),
    ] {
        let error = request(words).unwrap_err();
        assert!(error.contains(part), "{words:?}: {error}");
    }
}

#[test]
fn a_line_is_a_pair_or_says_why_not() {
    let same = |line: &str, owner: &str, other: &str| {
        assert_eq!(pair(line.as_bytes()), Ok(Some((owner.to_owned(), other.to_owned()))), "{line:?}");
    };
    same("bob@x ann@y", "bob@x", "ann@y");
    same(" \tBob@X.\t @Y.Example \r\n", "bob@x", "@y.example");
    same("\"b b\"@x \"a\\\" a\"@y", "\"b b\"@x", "\"a\\\" a\"@y");
    same("bób@x ann@bücher.example", "bób@x", "ann@bücher.example");
    for line in ["", "\n", "  \r\n", "# bob@x ann@y", "  #"] {
        assert_eq!(pair(line.as_bytes()), Ok(None), "{line:?}");
    }
    let long = "x".repeat(MAX_LINE + 1);
    for (line, part) in [
        (&b"bob@x"[..], "is not one ADDRESS and one CORRESPONDENT"),
        (b"bob@x ann@y carl@z", "is not one ADDRESS"),
        (b"bob@x \"ann@y", "ann@y\" has a quote that is not closed"),
        (b"bob ann@y", "\"bob\" has no domain"),
        (b"@x ann@y", "nothing before"),
        (b"bob@x ann@y@z", "second \"@\""),
        (b"bob@x ann@\xff", "is not UTF-8"),
        (b"bob@x a\0nn@y", "control character"),
        (b"bob@x @", "has no domain"),
        (long.as_bytes(), "is longer than 4096 bytes"),
    ] {
        let error = pair(line).unwrap_err();
        assert!(error.contains(part) && !error.contains(char::is_control), "{error}");
    }
}

#[test]
fn lines_are_read_one_by_one_however_long_they_are() {
    let long = "x".repeat(3 * MAX_LINE + 7);
    let full = format!("{}\n", "y".repeat(MAX_LINE - 1));
    let text = format!("a b\n{long}\n\n{full}{long}\nlast");
    let mut input = text.as_bytes();
    let mut lines = Vec::new();
    let mut line = Vec::new();
    while read_line(&mut input, &mut line).unwrap() {
        lines.push(String::from_utf8(line.clone()).unwrap());
    }
    assert_eq!(line, b"last");
    assert!([1, 4].iter().all(|at| lines[*at].len() == MAX_LINE + 1));
    assert_eq!((lines[0].as_str(), lines[2].as_str(), lines[3].as_str()), ("a b\n", "\n", full.as_str()));
    assert_eq!(lines.len(), 5);
    let mut endless = long.as_bytes();
    assert!(!read_line(&mut endless, &mut line).unwrap() && pair(&line).is_err());
    assert!(!read_line(&mut &b""[..], &mut line).unwrap() && line.is_empty());
}
