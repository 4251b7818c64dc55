//! Tests of the stage graph: defaults, ranges, all errors at once, warnings.

use super::super::conf::Sources;
use super::*;

fn conf(text: &str) -> Conf {
    let inline = |_: &str| Err(String::from("not here"));
    Conf::parse("p.conf", text, &Sources { variable: &|_| None, inline: &inline }).unwrap()
}

fn warnings_of(text: &str) -> Vec<String> {
    Graph::parse(&conf(text)).unwrap().warnings.iter().map(ToString::to_string).collect()
}

fn errors_of(text: &str) -> Vec<String> {
    Graph::parse(&conf(text)).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn a_stage_has_the_documented_defaults() {
    let graph = Graph::parse(&conf("[other]\nX=1\n[Stage-Init]\nPROGRAM = pepsi-stage-if\n")).unwrap();
    let expected = Stage {
        name: String::from("init"),
        program: String::from("pepsi-stage-if"),
        next: None,
        bounce: None,
        parallelism: 4,
        queue_limit: 4,
        max_messages: 1000,
        max_runtime: Duration::from_secs(300),
        max_lifetime: Duration::from_secs(432_000),
        fusion: None,
    };
    assert_eq!(graph.stages.len(), 1);
    assert_eq!(graph.stage("init"), Some(&expected));
    assert_eq!(graph.stage("Init"), None);
    assert!(graph.warnings.is_empty());
}

#[test]
fn every_option_is_read() {
    let graph = Graph::parse(&conf(
        "[stage-init]\nprogram = /bin/x\nnext_stage = Out\nbounce_stage = B\nparallelism = 1000\nqueue_limit = 1\n\
         max_messages = 1000000000\nmax_runtime = 1 ms\nmax_lifetime = forever\nfusion = NO\n\
         [stage-b]\nPROGRAM = y\nFUSION = yes\nNEXT_STAGE =\n[stage-out]\nPROGRAM = z\n",
    ))
    .unwrap();
    assert_eq!(
        graph.stages.iter().map(|stage| stage.name.as_str()).collect::<Vec<_>>(),
        ["b", "init", "out"]
    );
    let init = graph.stage("init").unwrap();
    assert_eq!((init.next.as_deref(), init.bounce.as_deref()), (Some("out"), Some("b")));
    assert_eq!((init.parallelism, init.queue_limit, init.max_messages), (1000, 1, 1_000_000_000));
    assert_eq!((init.max_runtime, init.max_lifetime), (Duration::from_millis(1), Duration::MAX));
    assert_eq!((init.fusion, graph.stage("b").unwrap().fusion), (Some(false), Some(true)));
    assert_eq!(graph.stage("b").unwrap().next, None);
    assert!(graph.warnings.is_empty(), "{:?}", graph.warnings);
}

// Req: CLI3
#[test]
fn all_errors_are_reported_at_once() {
    let errors = errors_of(
        "[stage-a]\nPARALLELISM = 0\nQUEUE_LIMIT = 1001\nMAX_MESSAGES = x\nMAX_RUNTIME = 0 s\nMAX_LIFETIME = 5\n\
         FUSION = maybe\nNEXT_STAGE = a b\nBOUNCE_STAGE = ${NOPE}\n[stage-]\nPROGRAM = x\n[stage-b]\nPROGRAM =\n\
         [stage-sp ace]\nPROGRAM = x\n[stage-c]\nPROGRAM = x\nPARALLELISM = 1001\n",
    );
    let expected = [
        "p.conf:2: [stage-a] PARALLELISM: \"0\" is not a whole number from 1 to 1000",
        "p.conf:3: [stage-a] QUEUE_LIMIT: \"1001\" is not",
        "p.conf:4: [stage-a] MAX_MESSAGES: \"x\" is not",
        "p.conf:1: [stage-a] PROGRAM: is missing",
        "p.conf:8: [stage-a] NEXT_STAGE: \"a b\" cannot be the name of a stage",
        "p.conf:9: [stage-a] BOUNCE_STAGE: needs the variable NOPE",
        "p.conf:5: [stage-a] MAX_RUNTIME: must be more than nothing",
        "p.conf:6: [stage-a] MAX_LIFETIME: \"5\" has a number without a unit",
        "p.conf:7: [stage-a] FUSION: \"maybe\" is neither yes nor no",
        "p.conf:10: [stage-]: \"\" is no stage name",
        "p.conf:13: [stage-b] PROGRAM: is empty",
        "p.conf:14: [stage-sp ace]: \"sp ace\" is no stage name",
        "p.conf:18: [stage-c] PARALLELISM: \"1001\" is not",
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.starts_with(expected), "{error} / {expected}");
    }
}

// Req: CLI3
// Req: C5
#[test]
fn odd_graphs_only_warn() {
    let stage = |name: &str, rest: &str| format!("[stage-{name}]\nPROGRAM = p\n{rest}");
    let nowhere = stage("init", "NEXT_STAGE = x\nBOUNCE_STAGE = y\nTHEN_STAGE = z\n");
    assert_eq!(
        warnings_of(&nowhere),
        [
            "p.conf:3: [stage-init] NEXT_STAGE: there is no section [stage-x]",
            "p.conf:4: [stage-init] BOUNCE_STAGE: there is no section [stage-y]",
            "p.conf:5: [stage-init] THEN_STAGE: there is no section [stage-z]",
        ]
    );
    let circle =
        stage("init", "NEXT_STAGE = b\n") + &stage("b", "NEXT_STAGE = c\n") + &stage("c", "NEXT_STAGE = b\n");
    assert_eq!(warnings_of(&circle), ["p.conf:6: [stage-b] NEXT_STAGE: goes in a circle: b -> c -> b"]);
    let own = stage("init", "NEXT_STAGE = init\n");
    assert_eq!(warnings_of(&own), ["p.conf:3: [stage-init] NEXT_STAGE: goes in a circle: init -> init"]);
    let lonely =
        stage("init", "") + &stage("b", "BOUNCE_STAGE = b\n") + &stage("c", "") + "[listener]\nSTAGE = C\n";
    assert_eq!(warnings_of(&lonely), ["p.conf:3: [stage-b]: nothing leads to this stage"]);
    let rootless = stage("a", "NEXT_STAGE = b\n") + &stage("b", "");
    assert_eq!(
        warnings_of(&rootless),
        [
            "p.conf:1: [stage-a]: nothing leads to this stage",
            "p.conf:1: [stage-a]: there is no section [stage-init], where new messages start",
        ]
    );
    let merged =
        stage("init", "NEXT_STAGE = c\nTHEN_STAGE = b\n") + &stage("b", "NEXT_STAGE = c\n") + &stage("c", "");
    assert!(warnings_of(&merged).is_empty());
    let coded = stage("init", "EXIT_STAGES = 1:B  2:x c 3:\n") + &stage("b", "") + &stage("c", "");
    assert_eq!(
        warnings_of(&coded),
        [
            "p.conf:3: [stage-init] EXIT_STAGES: there is no section [stage-x]",
            "p.conf:6: [stage-c]: nothing leads to this stage",
        ]
    );
    assert!(warnings_of("[pepsi]\n").is_empty());
}

#[test]
fn the_overlay_edits_adds_and_takes_away() {
    let mut conf = conf("[stage-init]\nPROGRAM = p\nNEXT_STAGE = gone\n");
    conf.overlay("stage-init", "next_stage", "");
    conf.overlay("stage-init", "parallelism", "9999");
    let errors = Graph::parse(&conf).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().starts_with("config_override:0: [stage-init] PARALLELISM: "));
    conf.overlay("stage-init", "PARALLELISM", "7");
    conf.overlay("stage-new", "PROGRAM", "q");
    let graph = Graph::parse(&conf).unwrap();
    assert_eq!(graph.stage("init").unwrap().parallelism, 7);
    assert_eq!(graph.stage("init").unwrap().next, None);
    assert_eq!(graph.stage("new").unwrap().program, "q");
}

#[test]
fn stage_names_are_plain_words() {
    let longest = "a".repeat(MAX_STAGE_NAME);
    for good in ["a", "0", "init", "relay-to-maildir", "a.b_c-d", &longest] {
        assert!(is_stage_name(good), "{good}");
    }
    let too_long = "a".repeat(MAX_STAGE_NAME + 1);
    for bad in ["", "A", "-a", ".a", "_a", "a b", "a/b", "a\"", "a\0", "ü", "a,b", "a{", "..", &too_long] {
        assert!(!is_stage_name(bad), "{bad}");
    }
}

#[test]
fn a_long_chain_is_walked_in_linear_time() {
    let mut text = String::new();
    for number in 0..10_000 {
        text.push_str(&format!("[stage-{number}]\nPROGRAM=p\nNEXT_STAGE={}\n", (number + 1) % 10_000));
    }
    let graph = Graph::parse(&conf(&text)).unwrap();
    assert_eq!(graph.stages.len(), 10_000);
    let circles = graph.warnings.iter().filter(|warning| warning.message.contains("circle")).count();
    assert_eq!(circles, 1);
}

#[test]
fn a_table_of_routes_leads_to_its_stages() {
    let stages = "[stage-a]\nPROGRAM = x\n[stage-b]\nPROGRAM = x\n";
    let init = "[stage-init]\nPROGRAM = pepsi-stage-route\n";
    let warnings = warnings_of(&format!("{init}ROUTES = x.example:A [IPv6:::1]:c odd\n{stages}"));
    let expected = [
        "p.conf:3: [stage-init] ROUTES: there is no section [stage-c]",
        "p.conf:6: [stage-b]: nothing leads to this stage",
    ];
    assert_eq!(warnings, expected);
    // What stands in a file is not known.
    assert!(warnings_of(&format!("{init}ROUTES_FILE = /etc/routes\n{stages}")).is_empty());
}
