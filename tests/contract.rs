//! That a stage concludes its message exactly once is checked by the compiler (requirement A2): each snippet here is a
//! stage, compiled against the real `context.rs`. Only the row's types, which live beside the SQL, and the settings are stood in for; the
//! snippet that has to compile shows that they still fit.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What stands around a stage; its body comes in the place of `BODY`.
const CRATE: &str = r##"
#![allow(dead_code)]
mod mail {
    #[path = "SRC/mail/encoded.rs"]
    mod encoded;
    #[path = "SRC/mail/header.rs"]
    pub mod header;
}
mod sql {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Error {
        Lost(String), Overloaded(String), Conflict(String), Refused(String), Setup(String), Schema(String),
    }
    impl std::fmt::Display for Error {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{self:?}") }
    }
    pub mod fan {
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Fan { pub groups: Vec<()>, pub sides: Vec<()> }
        impl Fan {
            pub fn is_empty(&self) -> bool { self.groups.is_empty() && self.sides.is_empty() }
        }
    }
    pub mod row {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Load { Metadata, Headers, Full }
        #[derive(Clone, Debug, PartialEq)]
        pub struct Row {
            pub id: i64,
            pub state: serde_json::Value,
            pub mail_from: String,
            pub rcpt_to: Vec<String>,
            pub header_from: Option<String>,
            pub subject: Option<String>,
            pub received_at_us: i64,
            pub now_us: i64,
            pub size: i64,
            pub headers: Option<Vec<u8>>,
            pub body: Option<Vec<u8>>,
            pub settings: Option<serde_json::Value>,
        }
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Content {
            pub mail_from: Option<String>,
            pub rcpt_to: Option<Vec<String>>,
            pub header_from: Option<Option<String>>,
            pub subject: Option<Option<String>>,
            pub headers: Option<Vec<u8>>,
            pub body: Option<Option<Vec<u8>>>,
            pub stage: Option<String>,
        }
        #[derive(Clone, Debug, PartialEq)]
        pub enum Move { Advance { stage: String }, Pause { pause_us: u64 }, Fail, Finish, Stay }
    }
}
mod worker {
    #[path = "SRC/worker/context.rs"]
    pub mod context;
    #[path = "SRC/worker/error.rs"]
    pub mod error;
    pub mod settings {
        #[derive(Debug)]
        pub struct Settings;
        impl Settings {
            pub fn read(_found: &serde_json::Value, _message: &super::context::Context) -> Settings { Settings }
        }
    }
    pub mod stage {
        use super::context::{Context, Done};
        use super::error::StageError;
        pub fn run(mut message: Context) -> Result<Done, StageError> {
            message.set_state("seen", true.into());
            BODY
        }
    }
}
"##;

struct Compiler {
    /// Where cargo put the libraries that this test itself was built with.
    libraries: PathBuf,
    serde_json: PathBuf,
    folder: PathBuf,
}

impl Compiler {
    /// The newest serde_json that a correct stage compiles with: several may lie there from earlier builds.
    fn find() -> Compiler {
        let libraries = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("contract-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut candidates: Vec<PathBuf> = std::fs::read_dir(&libraries)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with("libserde_json-") && name.ends_with(".rlib")
            })
            .collect();
        candidates.sort_by_key(|path| path.metadata().unwrap().modified().unwrap());
        let mut last = String::from("no libserde_json beside this test");
        while let Some(serde_json) = candidates.pop() {
            let compiler = Compiler { libraries: libraries.clone(), serde_json, folder: folder.clone() };
            let output = compiler.compile("one", "message.advance()");
            if output.status.success() {
                return compiler;
            }
            last = String::from_utf8_lossy(&output.stderr).into_owned();
        }
        panic!("a stage with one terminal does not compile: {last}");
    }

    fn compile(&self, name: &str, body: &str) -> Output {
        let src = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let file = self.folder.join(format!("{name}.rs"));
        std::fs::write(&file, CRATE.replace("SRC", src).replace("BODY", body)).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        Command::new(rustc)
            .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--out-dir"])
            .arg(&self.folder)
            .arg("-L")
            .arg(format!("dependency={}", self.libraries.display()))
            .arg("--extern")
            .arg(format!("serde_json={}", self.serde_json.display()))
            .arg(&file)
            .output()
            .unwrap()
    }

    /// The error codes of a body that has to be refused.
    fn refusal(&self, name: &str, body: &str) -> Vec<String> {
        let output = self.compile(name, body);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{name} compiles");
        let codes = text.lines().filter_map(|line| line.strip_prefix("error[")?.split(']').next());
        let codes: Vec<String> = codes.map(str::to_owned).collect();
        assert!(!codes.is_empty(), "{text}");
        codes
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

// Req: A2
#[test]
fn two_terminals_or_none_do_not_compile() {
    let compiler = Compiler::find();
    // A moved value is used again.
    for (name, body) in [
        ("two", "let _first = message.advance_to(\"a\"); Ok(message.finish())"),
        ("two_ways", "let done = message.finish(); if true { return Ok(message.finish()); } Ok(done)"),
        ("late_setter", "let done = message.finish(); message.set_state(\"a\", 1.into()); Ok(done)"),
    ] {
        assert_eq!(compiler.refusal(name, body), ["E0382"], "{name}");
    }
    // Nothing is returned, or something else.
    for (name, body) in [
        ("none", "drop(message);"),
        ("dropped", "let _ = message.finish();"),
        ("unit", "drop(message); Ok(())"),
        ("one_way", "if true { message.advance() } else {}"),
    ] {
        assert_eq!(compiler.refusal(name, body), ["E0308"], "{name}");
    }
    // It cannot be made by hand, either, nor the message copied.
    assert_eq!(compiler.refusal("forged", "Ok(Done(message.advance()?.into_outcome()))"), ["E0423"]);
    assert_eq!(compiler.refusal("copied", "message.clone().advance()"), ["E0599"]);
}
