//! Programs of every kind of bad manners.

use super::*;
use std::fs;
use std::path::PathBuf;

const SHELL: &str = "/bin/sh";
const LONG: Duration = Duration::from_secs(60);
/// What no test takes that goes well: those that wait for a limit have one far below.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Runs a script with an input, wanting at most that much output.
fn shell(script: &str, input: &[u8], output: Option<usize>, time_limit: Duration) -> Report {
    shell_with_grace(script, input, output, time_limit, Duration::from_millis(200))
}

fn shell_with_grace(
    script: &str,
    input: &[u8],
    output: Option<usize>,
    time_limit: Duration,
    grace: Duration,
) -> Report {
    let arguments = ["sh", "-c", script].map(str::to_owned);
    let environment = [("PATH", "/usr/bin:/bin".to_owned()), ("WORD", "a\nb".to_owned())];
    let (file, arguments, environment) = (Path::new(SHELL), &arguments, &environment);
    let helper = Helper { file, arguments, environment, input, output, time_limit, grace };
    let began = Instant::now();
    let report = helper.run();
    assert!(began.elapsed() < AT_ONCE, "{script}: {:?}", began.elapsed());
    report
}

fn run(script: &str) -> Report {
    shell(script, b"some input", None, LONG)
}

fn said(report: &Report) -> (String, String) {
    (report.said.first_line(100), report.said.last_line(100))
}

/// A file that a script can write its number into.
fn pid_file(name: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("pepsi-helper-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&file);
    file
}

fn is_alive(file: &Path) -> bool {
    let pid = fs::read_to_string(file).unwrap();
    // A dead one that nobody has reaped is a Z; who reaps it is not our business.
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < AT_ONCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn a_helper_gets_its_input_and_its_end_is_told() {
    for code in [0, 1, 75, 255] {
        assert_eq!(run(&format!("exit {code}")).end, End::Code(code));
    }
    assert_eq!(run("kill -KILL $$").end, End::Signal(9));
    let report = shell("cat", b"octets \0\xff\r\n", Some(100), LONG);
    assert_eq!((report.end, &report.output[..]), (End::Code(0), &b"octets \0\xff\r\n"[..]));
    assert_eq!(shell("cat; echo x", b"", Some(100), LONG).output, b"x\n");
    let report = run("echo; echo ' one '; echo two >&2; printf three >&2");
    assert_eq!((report.output.len(), said(&report)), (0, ("one".into(), "three".into())));
    assert_eq!(said(&run(":")), (String::new(), String::new()));
    assert_eq!(said(&run("printf 'a\\033[2Jb\\377\\r\\n'")).0, "a\\x1b[2Jb\\xff");
}

#[test]
fn a_helper_gets_three_descriptors_its_environment_and_nothing_else() {
    let report = shell("ls /proc/self/fd; pwd; env | sort", b"", Some(4096), LONG);
    let output = String::from_utf8(report.output).unwrap();
    // `ls` itself holds the folder open.
    assert!(output.starts_with("0\n1\n2\n3\n/\n"), "{output}");
    let names: Vec<&str> =
        output.lines().filter_map(|line| line.split_once('=')).map(|pair| pair.0).collect();
    // The shell adds the first.
    assert_eq!(names, ["PATH", "PWD", "WORD"], "{output}");
    assert!(output.contains("WORD=a\nb\n"), "{output}");
}

#[test]
fn a_helper_that_does_not_read_is_judged_by_its_code() {
    let input = vec![b'x'; 5 << 20];
    for (script, code) in [("exit 0", 0), ("exec <&-; exit 3", 3), ("head -c 10 >/dev/null; exit 75", 75)] {
        assert_eq!(shell(script, &input, None, LONG).end, End::Code(code), "{script}");
    }
    // It closes all three and goes on for a while.
    assert_eq!(shell("exec <&- >&- 2>&-; sleep 0.3; exit 4", &input, Some(10), LONG).end, End::Code(4));
}

#[test]
fn a_helper_that_writes_before_it_reads_does_not_deadlock() {
    let input = vec![b'x'; 3 << 20];
    let script = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; cat";
    let report = shell(script, &input, Some(10 << 20), LONG);
    assert_eq!(report.end, End::Code(0));
    assert_eq!((report.output.len(), &report.output[3_000_000..]), (3_000_000 + input.len(), &input[..]));
}

#[test]
fn what_a_helper_says_is_bounded() {
    let script = "echo first; head -c 50000000 /dev/zero; echo; echo last; exit 1";
    for report in [run(script), shell(&format!("({script}) >&2"), b"", Some(10), LONG)] {
        assert_eq!(
            (said(&report), report.said.first.len(), report.said.last.len()),
            (("first".into(), "last".into()), SAID, SAID)
        );
    }
    let report = shell("yes", b"", Some(100_000), LONG);
    assert!(
        matches!(&report.end, End::Failed(clause) if clause.contains("OUTPUT_LIMIT")),
        "{:?}",
        report.end
    );
    assert!(report.output.len() <= 100_000 + GO);
}

/// Runs a script that takes too long, with a limit within which it has made the file FILE.
fn too_long(name: &str, script: &str, grace: Duration) -> (Report, PathBuf) {
    let file = pid_file(name);
    let script = script.replace("FILE", &file.display().to_string());
    for limit in [300, 1000, 5000].map(Duration::from_millis) {
        let report = shell_with_grace(&script, b"", None, limit, grace);
        let End::Failed(clause) = &report.end else { panic!("{name}: {:?}", report.end) };
        assert_eq!(clause, &format!("took longer than {limit:?}"), "{name}");
        if file.exists() {
            return (report, file);
        }
    }
    panic!("{name}: no file in five seconds");
}

#[test]
fn a_helper_that_takes_too_long_is_ended_with_its_group() {
    for (name, script) in [
        ("sleeps", "sleep 1000 & echo $! > FILE; wait"),
        ("ignores", "trap '' TERM; sleep 1000 & echo $! > FILE; while :; do sleep 1000; done"),
        ("stops", "sleep 1000 & echo $! > FILE; kill -STOP $$"),
        ("floods", "yes & echo $! > FILE; exec yes >&2"),
        ("closes", "exec <&- >&- 2>&-; sleep 1000 & echo $! > FILE; wait"),
    ] {
        let (report, file) = too_long(name, &format!("echo here >&2; {script}"), Duration::from_millis(200));
        assert_eq!(said(&report).0, "here", "{name}");
        until(name, || !is_alive(&file));
        fs::remove_file(file).unwrap();
    }
    // It may clean up.
    let (_, file) = too_long("cleans", "trap 'echo clean > FILE; exit' TERM; sleep 1000 & wait", LONG);
    assert_eq!(fs::read_to_string(&file).unwrap(), "clean\n");
    fs::remove_file(file).unwrap();
}

#[test]
fn what_a_helper_leaves_behind_delays_nothing() {
    let file = pid_file("left");
    let script = format!("sleep 1000 & echo $! > {}; echo done >&2; exit 3", file.display());
    let report = shell(&script, b"", None, LONG);
    assert_eq!((&report.end, said(&report).1), (&End::Code(3), "done".into()));
    // It was begun on purpose, for all that is known here.
    assert!(is_alive(&file));
    let pid: u32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    sys::kill_group(pid).unwrap();
    assert_eq!(run("yes >&2 & exit 3").end, End::Code(3));
    // But an output that is not at its end is no message; and what holds it open is ended.
    let report = shell(&script, b"", Some(100), LONG);
    assert!(matches!(&report.end, End::Failed(clause) if clause.contains("left behind")), "{:?}", report.end);
    until("it is gone", || !is_alive(&file));
    fs::remove_file(file).unwrap();
    // What lets go in time is waited for.
    let report = shell("(sleep 0.1; echo late) & echo early", b"", Some(100), LONG);
    assert_eq!((report.end, &report.output[..]), (End::Code(0), &b"early\nlate\n"[..]));
}

#[test]
fn a_program_that_cannot_be_started_is_a_failure() {
    let arguments = ["x".to_owned()];
    let missing = |file: &str, environment: &[(&str, String)]| {
        let file = Path::new(file);
        let (input, output, time_limit, grace) = (&b""[..], None, LONG, LONG);
        Helper { file, arguments: &arguments, environment, input, output, time_limit, grace }.run().end
    };
    for (file, environment) in [
        ("/nonexistent/x", "v"),
        ("/etc/passwd", "v"),
        ("/bin/true", "a\0b"),
        ("/bin/true", &"x".repeat(200_000)),
    ] {
        let end = missing(file, &[("V", environment.to_owned())]);
        assert!(
            matches!(&end, End::Failed(clause) if clause.contains("cannot be started")),
            "{file}: {end:?}"
        );
    }
    assert_eq!(missing("/bin/true", &[]), End::Code(0));
}
