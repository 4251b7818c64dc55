//! `scripts/audit` itself: it must accept a true claim and fail on each way in which one can be false.

use std::path::PathBuf;
use std::process::Command;

struct Claims(PathBuf);

impl Claims {
    /// A file whose one block holds `claims`.
    fn new(name: &str, claims: &str) -> Claims {
        let path = std::env::temp_dir().join(format!("pepsi-audit-{}-{name}", std::process::id()));
        std::fs::write(&path, format!("# Title\n\n```sh\nfalse\n```\n\n```console\n{claims}"))
            .expect("a file");
        Claims(path)
    }

    /// The exit code and what was printed.
    fn run(&self) -> (Option<i32>, String) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/audit");
        let output = Command::new(script).arg(&self.0).output().expect("bash runs");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn true_claims_pass() {
    let claims = "$ echo a; echo b >&2\na\nb\n$ true\n$ printf '1\\n\\n2\\n'\n1\n\n2\n$ exit 3\n(exit code 3)\n$ ls Cargo.toml\nCargo.toml\n```\nText.\n";
    let (code, printed) = Claims::new("true", claims).run();
    assert_eq!((code, printed.as_str()), (Some(0), "5 claims, 0 of them wrong\n"));
}

#[test]
fn each_way_to_be_false_fails() {
    for (name, claims, part) in [
        ("other", "$ echo a\nb\n```\n", "+a"),
        ("more", "$ printf '1\\n2\\n'\n1\n```\n", "+2"),
        ("less", "$ echo 1\n1\n2\n```\n", "-2"),
        ("failed", "$ false\n```\n", "+(exit code 1)"),
        ("second", "$ true\n$ echo x\n$ true\n```\n", "1 of them wrong"),
        ("open", "$ true\n", "is not closed"),
        ("none", "```\n", "holds no claims"),
    ] {
        let (code, printed) = Claims::new(name, claims).run();
        assert!(code != Some(0) && printed.contains(part), "{name}: {code:?}: {printed}");
    }
}
