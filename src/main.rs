//! The program table: which program `argv[0]` names, global options, exit codes, the log sink. Nothing else.
//!
//! Everything a program prints about its own state goes through `log`; standard output belongs to results (and, in a
//! worker, to the line protocol). No input makes this file panic, and a panic elsewhere ends in one line and code 70.

mod config;
mod dispatch;
mod host;
mod ingress;
mod mail;
mod proto;
mod sql;
mod sys;
mod tool;
mod worker;

use proto::text;
use std::ffi::{OsStr, OsString};
use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Exit codes as in sysexits.h; what each program uses them for is in its manual page.
pub mod exit {
    pub const OK: u8 = 0;
    pub const FAILURE: u8 = 1;
    pub const USAGE: u8 = 64;
    pub const DATA: u8 = 65;
    pub const UNAVAILABLE: u8 = 69;
    pub const SOFTWARE: u8 = 70;
    pub const CANNOT_CREATE: u8 = 73;
    pub const IO: u8 = 74;
    pub const TEMPORARY: u8 = 75;
    pub const CONFIG: u8 = 78;
}

/// One call of one program: what came before the subcommand, and the rest untouched.
pub struct Invocation {
    /// The program's own name, `pepsi-dispatch`.
    pub program: &'static str,
    /// `-c FILE`, if it was given.
    pub config: Option<PathBuf>,
    /// The subcommand and all behind it.
    pub args: Vec<OsString>,
}

/// Who parses a program's options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Options {
    /// The global ones, here, before the subcommand (CLI2).
    Global,
    /// The program itself, all of them: it keeps another program's command line.
    Own,
}

struct Program {
    name: &'static str,
    about: &'static str,
    /// The forms of its command line, as its help shows them.
    usage: &'static str,
    options: Options,
    entry: fn(&Invocation) -> u8,
}

const fn program(
    name: &'static str,
    about: &'static str,
    usage: &'static str,
    entry: fn(&Invocation) -> u8,
) -> Program {
    Program { name, about, usage, options: Options::Global, entry }
}

const PROGRAMS: &[Program] = &[
    program(
        "pepsi-dispatch",
        "claim waiting messages and hand them to the workers of their stages",
        "serve     run until SIGTERM or SIGINT",
        dispatch::main,
    ),
    program("pepsi-setup", "install or upgrade the schema in the database", SETUP_USAGE, tool::setup::main),
    Program {
        name: "pepsi-sendmail",
        about: "take one message on standard input into the queue, as sendmail does",
        usage: ingress::sendmail::USAGE,
        options: Options::Own,
        entry: ingress::sendmail::main,
    },
    program("pepsi-queue", "look at the messages in the queue", QUEUE_USAGE, tool::queue::main),
    program(
        "pepsi-settings",
        "what the owners of addresses have set for single stages",
        SETTINGS_USAGE,
        tool::settings::main,
    ),
    program(
        "pepsi-whitelist",
        "whose mail an address takes without questions",
        WHITELIST_USAGE,
        tool::whitelist::main,
    ),
    program("pepsi-stage-if", "stage: one way or the other by a condition", STAGE_USAGE, worker::main),
    program("pepsi-stage-discard", "stage: end a message undelivered", STAGE_USAGE, worker::main),
    program("pepsi-stage-route", "stage: the next one by the recipient's domain", STAGE_USAGE, worker::main),
    program(
        "pepsi-stage-aliases",
        "stage: replace recipients that stand for others",
        STAGE_USAGE,
        worker::main,
    ),
    program(
        "pepsi-stage-edit-settings",
        "stage: change the settings of an address by its owner's mail",
        STAGE_USAGE,
        worker::main,
    ),
    program("pepsi-stage-pipe", "stage: run any program for each message", STAGE_USAGE, worker::main),
    program("pepsi-stage-relay-to-maildir", "stage: deliver into Maildirs", STAGE_USAGE, worker::main),
    program("pepsi-stage-auto-whitelist", "stage: enter whom our users write to", STAGE_USAGE, worker::main),
    program("pepsi-stage-check-whitelist", "stage: one way for listed senders", STAGE_USAGE, worker::main),
    program(
        "pepsi-stage-srs",
        "stage: rewrite senders of forwarded mail, and undo it",
        STAGE_USAGE,
        worker::main,
    ),
];

const STAGE_USAGE: &str = "worker    read ids on standard input until it ends, answer one status a line";
const SETUP_USAGE: &str = "schema [--create-database]
            install what is missing; run again, it changes nothing
  status    say what is installed";
const QUEUE_USAGE: &str =
    "list [--json] [--stage S] [--status S] [--sender ADDRESS] [--rcpt ADDRESS] [--limit N]
  show [--json] ID";

const SETTINGS_USAGE: &str = "list [--address ADDRESS] [--stage STAGE] [--limit N] [--json]
  get ADDRESS STAGE OPTION
  set ADDRESS STAGE OPTION VALUE
            what the stage leaves to owners, to a value that it takes
  unset ADDRESS STAGE [OPTION]";
const WHITELIST_USAGE: &str = "list [--json] [--address ADDRESS] [--correspondent CORRESPONDENT] [--limit N]
  add ADDRESS CORRESPONDENT ...
  remove ADDRESS CORRESPONDENT ... | ADDRESS --all
  import [FILE]
            lines of ADDRESS CORRESPONDENT, from standard input without a FILE
  A CORRESPONDENT is an address or @DOMAIN";

const GLOBAL_HELP: &str = "
Options, before the subcommand:
  -c, --config FILE   configuration (else $PEPSI_CONFIG, ~/.config/pepsi.conf, /etc/pepsi/pepsi.conf)
  -L, --log LEVEL     error, warning, info (the default) or debug; $PEPSI_LOG sets the default
  -v, --verbose       the same as --log debug
  -h, --help          this text
  -V, --version       the version
";

const PEPSI_HELP: &str = "pepsi: a mail pipeline on PostgreSQL

Usage: pepsi PROGRAM [OPTIONS] SUBCOMMAND ...
       pepsi install-links DIR   make a link to this binary in DIR for each program
       pepsi --list              name the programs
       pepsi --version | --help

Programs (each with its own --help):
";

/// Log levels, most severe first; the journal's numbers are 3, 4, 6 and 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

impl Level {
    const ALL: [Level; 4] = [Level::Error, Level::Warning, Level::Info, Level::Debug];

    /// As `-L` and `$PEPSI_LOG` spell it, and as it stands in a log line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    fn journal(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warning => 4,
            Level::Info => 6,
            Level::Debug => 7,
        }
    }

    fn parse(name: &OsStr) -> Option<Level> {
        Level::ALL.into_iter().find(|level| name.eq_ignore_ascii_case(level.name()))
    }
}

/// A message and a stage's name are cut there, values by `log_value`: a line stays bounded whatever comes from outside.
const MAX_MESSAGE: usize = 2048;
const MAX_STAGE: usize = 128;

static THRESHOLD: AtomicU8 = AtomicU8::new(Level::Info as u8);
static PROGRAM: OnceLock<&'static str> = OnceLock::new();
static JOURNAL: OnceLock<bool> = OnceLock::new();

/// Writes one event as one line on standard error. `stage` is empty where no stage is meant.
pub fn log(level: Level, stage: &str, message: &str, pairs: &[(&str, &dyn Display)]) {
    if level as u8 > THRESHOLD.load(Ordering::Relaxed) {
        return;
    }
    let mut line = String::new();
    if *JOURNAL.get_or_init(|| std::env::var_os("JOURNAL_STREAM").is_some_and(|v| !v.is_empty())) {
        let _ = write!(line, "<{}>", level.journal());
    }
    let _ = write!(line, "{} {}", level.name(), PROGRAM.get().unwrap_or(&"pepsi"));
    if !stage.is_empty() {
        let _ = write!(line, " [{}]", text::escape(stage, MAX_STAGE));
    }
    let _ = write!(line, " {}", text::escape(message, MAX_MESSAGE));
    for (key, value) in pairs {
        let _ = write!(line, " {key}={}", text::log_value(&value.to_string()));
    }
    line.push('\n');
    // Standard error is not buffered: one write(2). Where it cannot be written, nothing can be said about it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// For a program that parses its own options.
pub fn set_log_level(level: Level) {
    THRESHOLD.store(level as u8, Ordering::Relaxed);
}

/// The level in force, for a worker that is to log as much as its dispatcher.
pub fn log_level() -> Level {
    let number = THRESHOLD.load(Ordering::Relaxed);
    Level::ALL.into_iter().find(|level| *level as u8 == number).unwrap_or(Level::Info)
}

/// Whether `name` is a program of this binary (requirement P6).
pub fn is_builtin(name: &str) -> bool {
    find(OsStr::new(name)).is_some()
}

/// Writes a program's result on standard output; the exit code. A reader that went away is not worth a line.
pub fn print(text: &str) -> u8 {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => exit::OK,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit::IO,
        Err(error) => fail(exit::IO, &format!("cannot write to standard output: {error}")),
    }
}

/// Logs why, and hands the code back.
pub fn fail(code: u8, message: &str) -> u8 {
    log(Level::Error, "", message, &[]);
    code
}

fn find(name: &OsStr) -> Option<&'static Program> {
    let name = if name == "sendmail" { OsStr::new("pepsi-sendmail") } else { name };
    PROGRAMS.iter().find(|program| name == program.name)
}

fn main() -> ExitCode {
    set_hook(Box::new(log_panic));
    if let Some(level) = std::env::var_os("PEPSI_LOG").as_deref().and_then(Level::parse) {
        set_log_level(level);
    }
    let mut args = std::env::args_os();
    let called = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    let code = match Path::new(&called).file_name().and_then(find) {
        Some(program) => run(program, rest),
        None => choose(rest),
    };
    ExitCode::from(code)
}

/// `pepsi PROGRAM …`, `pepsi install-links DIR`, `pepsi --list`.
fn choose(mut args: Vec<OsString>) -> u8 {
    if args.is_empty() {
        return fail(exit::USAGE, "no program named; see pepsi --help");
    }
    let first = args.remove(0);
    if let Some(program) = find(&first) {
        return run(program, args);
    }
    let extra = if first == "install-links" { 1 } else { 0 };
    let is_ours =
        ["--list", "-h", "--help", "-V", "--version", "install-links"].iter().any(|word| first == *word);
    if is_ours && args.len() > extra {
        return fail(
            exit::USAGE,
            &format!("unexpected argument '{}'; see pepsi --help", args[extra].display()),
        );
    }
    match (first.to_str(), args.first()) {
        (Some("--list"), _) => print(&PROGRAMS.iter().map(|p| format!("{}\n", p.name)).collect::<String>()),
        (Some("-h" | "--help"), _) => {
            let list: String = PROGRAMS.iter().map(|p| format!("  {:<30}{}\n", p.name, p.about)).collect();
            print(&format!("{PEPSI_HELP}{list}"))
        }
        (Some("-V" | "--version"), _) => print(concat!("pepsi ", env!("CARGO_PKG_VERSION"), "\n")),
        (Some("install-links"), Some(folder)) => {
            let names = PROGRAMS.iter().map(|program| program.name);
            tool::links::install(Path::new(folder), names.chain(["pepsi"]))
        }
        (Some("install-links"), None) => fail(exit::USAGE, "install-links needs a folder; see pepsi --help"),
        (Some(word), _) if word.starts_with('-') => {
            fail(exit::USAGE, &format!("unknown option '{word}' before a program's name; see pepsi --help"))
        }
        _ => {
            let name = first.to_string_lossy();
            let hint = format!("pepsi-{name}");
            let hint =
                if is_builtin(&hint) { format!("did you mean {hint}?") } else { "see pepsi --list".into() };
            fail(exit::USAGE, &format!("there is no program '{name}'; {hint}"))
        }
    }
}

/// Runs one program in this process; a panic has been logged by the hook when it arrives here.
fn run(program: &'static Program, args: Vec<OsString>) -> u8 {
    // Set once, before anything is logged about the program; a second call would be our own bug.
    assert!(PROGRAM.set(program.name).is_ok());
    // A worker is run from /proc/self/exe, and ps and top would call it `exe`. The kernel keeps 15 bytes of the name.
    let _ = std::fs::write("/proc/self/comm", program.name);
    let call = match parse(program, args) {
        Ok(Parsed::Run(call)) => call,
        Ok(Parsed::Print(text)) => return print(&text),
        Err(message) => return fail(exit::USAGE, &format!("{message}; see {} --help", program.name)),
    };
    catch_unwind(AssertUnwindSafe(|| (program.entry)(&call))).unwrap_or(exit::SOFTWARE)
}

enum Parsed {
    Run(Invocation),
    Print(String),
}

fn parse(program: &'static Program, args: Vec<OsString>) -> Result<Parsed, lexopt::Error> {
    use lexopt::Arg::{Long, Short, Value};
    if program.options == Options::Own {
        // As the only argument these mean what they mean everywhere; sendmail's own -h and -V take a value.
        return Ok(match args.as_slice() {
            [only] if only == "-h" => Parsed::Print(help(program)),
            [first, ..] if first == "--help" => Parsed::Print(help(program)),
            [only] if only == "-V" || only == "--version" => Parsed::Print(version(program)),
            _ => Parsed::Run(Invocation { program: program.name, config: None, args }),
        });
    }
    let mut config = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Short('c') | Long("config") => config = Some(PathBuf::from(parser.value()?)),
            Short('L') | Long("log") => {
                let value = parser.value()?;
                let level = Level::parse(&value).ok_or_else(|| {
                    format!("no log level '{}': error, warning, info or debug", value.display())
                })?;
                set_log_level(level);
            }
            Short('v') | Long("verbose") => set_log_level(Level::Debug),
            Short('h') | Long("help") => return Ok(Parsed::Print(help(program))),
            Short('V') | Long("version") => return Ok(Parsed::Print(version(program))),
            Value(subcommand) => {
                let mut args = vec![subcommand];
                args.extend(parser.raw_args()?);
                return behind_subcommand(program, Invocation { program: program.name, config, args });
            }
            Short(_) | Long(_) => return Err(arg.unexpected()),
        }
    }
    Err("no subcommand".into())
}

/// A global option behind the subcommand is an error that says so (CLI2); help is given wherever it is asked for.
fn behind_subcommand(program: &Program, call: Invocation) -> Result<Parsed, lexopt::Error> {
    for arg in call.args.iter().skip(1).map(|arg| arg.to_string_lossy()).take_while(|arg| arg != "--") {
        let name = arg.split('=').next().unwrap_or(&arg);
        let is_short = !name.starts_with("--") && (name.starts_with("-c") || name.starts_with("-L"));
        if is_short || ["--config", "--log", "-v", "--verbose", "-V", "--version"].contains(&name) {
            let option = if is_short { &name[..2] } else { name };
            let subcommand = call.args[0].to_string_lossy();
            return Err(format!(
                "'{option}' is a global option and goes before the subcommand '{subcommand}'"
            )
            .into());
        }
        if name == "-h" || name == "--help" {
            return Ok(Parsed::Print(help(program)));
        }
    }
    Ok(Parsed::Run(call))
}

fn help(program: &Program) -> String {
    let (options, globals) = match program.options {
        Options::Global => ("[OPTIONS] SUBCOMMAND ...", GLOBAL_HELP),
        Options::Own => ("[OPTIONS] [RECIPIENT ...]", ""),
    };
    format!(
        "{0}: {1}\n\nUsage: {0} {options}\n\n  {2}\n{globals}",
        program.name, program.about, program.usage
    )
}

fn version(program: &Program) -> String {
    format!("{} (pepsi) {}\n", program.name, env!("CARGO_PKG_VERSION"))
}

/// Our own bug: where and what, on one line, through the same sink as everything else.
fn log_panic(info: &PanicHookInfo<'_>) {
    let what = info.payload();
    let what =
        what.downcast_ref::<&str>().copied().or_else(|| what.downcast_ref::<String>().map(String::as_str));
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let what = format!("internal error: {}", what.unwrap_or("panic"));
    log(Level::Error, "", &what, &[("at", &place)]);
}
