//! Command lines. The program itself is run in `tests/stages.rs`.

use super::*;

fn request(words: &[&str]) -> Result<Request, String> {
    parse(&words.iter().map(OsString::from).collect::<Vec<_>>()).map_err(|error| error.to_string())
}

#[test]
fn names_are_taken_as_they_are_compared() {
    let (address, stage, option): (String, String, String) =
        ("ann@x.example".into(), "in".into(), "LEARN".into());
    let value = Some("Yes ${HOME}".to_owned());
    let change = Change { stage: stage.clone(), option: option.clone(), value };
    for (words, expected) in [
        (&["list"][..], Request::List { address: None, stage: None, limit: 1000, json: false }),
        (
            &["list", "--address=Ann@X.Example", "--stage", "IN", "--limit", "3", "--json"],
            Request::List {
                address: Some(address.clone()),
                stage: Some(stage.clone()),
                limit: 3,
                json: true,
            },
        ),
        (
            &["get", "<Ann@x.EXAMPLE>", "in", "learn"],
            Request::Get { address: address.clone(), stage: stage.clone(), option: option.clone() },
        ),
        (
            &["set", "ann@x.example", "In", "Learn", "Yes ${HOME}"],
            Request::Set { address: address.clone(), change },
        ),
        (
            &["unset", "ann@x.example", "in"],
            Request::Unset { address: address.clone(), stage: stage.clone(), option: None },
        ),
        (&["unset", "ann@x.example", "in", "LEARN"], Request::Unset { address, stage, option: Some(option) }),
    ] {
        assert_eq!(request(words), Ok(expected), "{words:?}");
    }
}

// Req: CLI5
#[test]
fn a_command_line_says_what_is_wrong_with_it() {
    for (words, why) in [
        (&[][..], "no subcommand"),
        (&["show"], "there is no subcommand 'show'"),
        (&["get", "a@x", "in"], "get needs"),
        (&["set", "a@x", "in", "LEARN"], "set needs"),
        (&["set", "a@x", "in", "LEARN", "yes", "no"], "one argument each"),
        (&["unset", "a@x"], "unset needs"),
        (&["get", "ann", "in", "LEARN"], "'ann' has no domain"),
        (&["get", "a b@x", "in", "LEARN"], "'a b@x' "),
        (&["get", "a@x", "in/out", "LEARN"], "cannot be the name of a stage"),
        (&["list", "--limit", "0"], "not a number from 1"),
        (&["list", "ann@x"], "ann@x"),
        (&["set", "--json"], "json"),
    ] {
        let error = request(words).unwrap_err();
        assert!(error.contains(why), "{words:?}: {error}");
    }
}
