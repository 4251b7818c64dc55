//! sendmail's command line: what mail(1), cron, mutt, PHP and git send-email call it with.
//!
//! Three kinds of options: those that are obeyed; those that mean nothing here and are taken in silence, because
//! callers pass them out of habit; and those that ask for another program's work, which are refused by name. An option
//! in neither list is refused too: a letter that was not understood may have taken an address with it.

use super::{Refused, refuse};
use crate::exit;
use lexopt::Arg::{Long, Short, Value};
use std::ffi::OsString;
use std::path::PathBuf;

/// What its help says of the options.
pub const USAGE: &str = "-t          recipients from To, Cc and Bcc; Bcc is removed
  -i          a line with a single dot does not end the message
  -f SENDER   envelope sender; '<>' for none
  -F NAME     full name for a From field that has to be made
  -C FILE     configuration file
  The other options of sendmail are taken where they mean nothing here, and refused where they would.";

/// An envelope id goes into every report about the message: RFC 3461 section 4.4.
const MAX_ENVID: usize = 100;

#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Send(Options),
    /// `-q` without a value: a cron job's habit.
    RunQueue,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// As given; None: the caller's own address.
    pub sender: Option<String>,
    pub full_name: Option<String>,
    pub header_recipients: bool,
    /// A line with a single dot ends the message: without `-i`.
    pub dot_ends: bool,
    /// `NEVER`, or `SUCCESS`, `FAILURE`, `DELAY` joined by commas.
    pub notify: Option<String>,
    /// `FULL` or `HDRS`.
    pub ret: Option<&'static str>,
    pub envid: Option<String>,
    pub config: Option<PathBuf>,
    pub verbose: bool,
    pub recipients: Vec<String>,
}

/// Parses all arguments behind the program's name.
pub fn parse(args: Vec<OsString>) -> Result<Command, Refused> {
    let mut options = Options { dot_ends: true, ..Options::default() };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(usage)? {
        match arg {
            Short('t') => options.header_recipients = true,
            Short('i') => options.dot_ends = false,
            Short('v') => options.verbose = true,
            Short('f' | 'r') => options.sender = Some(text(&mut parser, "sender")?),
            Short('F') => options.full_name = Some(text(&mut parser, "full name")?),
            Short('C') => options.config = Some(PathBuf::from(parser.value().map_err(usage)?)),
            Short('N') => options.notify = Some(notify(&text(&mut parser, "-N")?)?),
            Short('R') => options.ret = Some(ret(&text(&mut parser, "-R")?)?),
            Short('V') => options.envid = Some(envid(text(&mut parser, "-V")?)?),
            Short('b') => mode(&text(&mut parser, "-b")?)?,
            Short('o') => {
                // Of the old one-letter settings only this one has a meaning left.
                if text(&mut parser, "-o")? == "i" {
                    options.dot_ends = false;
                }
            }
            Short('q') => {
                return match parser.optional_value() {
                    None => Ok(Command::RunQueue),
                    Some(_) => refuse(
                        exit::USAGE,
                        "-q with a value is not done here; pepsi-dispatch serve works on the queue",
                    ),
                };
            }
            Short('A' | 'B' | 'e' | 'h' | 'L' | 'O' | 'p' | 'X') => drop(parser.value().map_err(usage)?),
            Short('d') => drop(parser.optional_value()),
            Short('G' | 'm' | 'n' | 'U') => {}
            Value(first) => {
                let rest: Vec<OsString> = parser.raw_args().map_err(usage)?.collect();
                for recipient in std::iter::once(first).chain(rest) {
                    options.recipients.push(recipient_text(recipient)?);
                }
                break;
            }
            Short(_) | Long(_) => return Err(usage(arg.unexpected())),
        }
    }
    Ok(Command::Send(options))
}

fn usage(error: lexopt::Error) -> Refused {
    Refused { code: exit::USAGE, message: format!("{error}; see pepsi-sendmail --help") }
}

fn text(parser: &mut lexopt::Parser, what: &str) -> Result<String, Refused> {
    let value = parser.value().map_err(usage)?;
    value
        .into_string()
        .or_else(|value| refuse(exit::DATA, format!("{what} '{}' is not UTF-8", value.display())))
}

/// Options stand before the recipients, so that an address from outside can never become one.
fn recipient_text(arg: OsString) -> Result<String, Refused> {
    let text = arg
        .into_string()
        .or_else(|arg| refuse(exit::DATA, format!("recipient '{}' is not UTF-8", arg.display())))?;
    if text.starts_with('-') {
        return refuse(
            exit::USAGE,
            format!("recipient '{text}' begins with '-'; options stand before recipients"),
        );
    }
    Ok(text)
}

/// `-b`: only the default mode, a message on standard input, is this program's.
fn mode(mode: &str) -> Result<(), Refused> {
    let instead = match mode {
        "m" => return Ok(()),
        "p" => "; pepsi-queue list shows the queue",
        "i" | "I" => "; there is no alias file to build",
        "d" | "D" => "; pepsi-dispatch serve is the daemon",
        _ => "; a message on standard input is all that is taken",
    };
    refuse(exit::USAGE, format!("-b{mode} is not done here{instead}"))
}

fn notify(value: &str) -> Result<String, Refused> {
    let value = value.to_uppercase();
    let is_known = |word| ["SUCCESS", "FAILURE", "DELAY"].contains(&word);
    if value == "NEVER" || value.split(',').all(is_known) {
        return Ok(value);
    }
    refuse(
        exit::USAGE,
        format!("-N '{value}': never, or some of success, failure and delay joined by commas"),
    )
}

fn ret(value: &str) -> Result<&'static str, Refused> {
    match value.to_lowercase().as_str() {
        "full" => Ok("FULL"),
        "hdrs" => Ok("HDRS"),
        _ => refuse(exit::USAGE, format!("-R '{value}': full or hdrs")),
    }
}

fn envid(value: String) -> Result<String, Refused> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_graphic());
    if value.is_empty() || value.len() > MAX_ENVID || !is_plain {
        return refuse(exit::USAGE, format!("-V '{value}': 1 to {MAX_ENVID} printable ASCII characters"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn options(line: &[&str]) -> Options {
        match parse(line.iter().map(OsString::from).collect()) {
            Ok(Command::Send(options)) => options,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn refused(line: &[&str]) -> Refused {
        parse(line.iter().map(OsString::from).collect()).expect_err(&format!("{line:?}"))
    }

    #[test]
    fn what_callers_use_is_taken() {
        let cron = options(&["-i", "-FCronDaemon", "-B8BITMIME", "-oem", "ann"]);
        assert_eq!(cron.full_name.as_deref(), Some("CronDaemon"));
        assert_eq!((cron.dot_ends, cron.recipients), (false, vec!["ann".to_owned()]));
        let php = options(&["-t", "-i", "-fweb@example.org"]);
        assert!(php.header_recipients && php.recipients.is_empty());
        assert_eq!(php.sender.as_deref(), Some("web@example.org"));
        let mutt = options(&[
            "-oem",
            "-oi",
            "-f",
            "a@b.example",
            "-N",
            "failure,delay",
            "-R",
            "hdrs",
            "--",
            "c@d.example",
        ]);
        assert_eq!((mutt.notify.as_deref(), mutt.ret), (Some("FAILURE,DELAY"), Some("HDRS")));
        assert_eq!((mutt.dot_ends, mutt.sender.as_deref()), (false, Some("a@b.example")));
        let git = options(&["-ti", "-r", "x@y.example"]);
        assert!(git.header_recipients && !git.dot_ends);
        let rest = options(&[
            "-bm",
            "-G",
            "-n",
            "-U",
            "-Ac",
            "-em",
            "-O",
            "DeliveryMode=b",
            "-X/tmp/log",
            "-o7",
            "-o8",
            "-om",
            "a",
            "b",
        ]);
        assert!(rest.dot_ends);
        assert_eq!(rest.recipients, ["a", "b"]);
    }

    #[test]
    fn the_null_sender_is_kept_apart_from_none() {
        assert_eq!(options(&["-f", "", "a"]).sender.as_deref(), Some(""));
        assert_eq!(options(&["-f", "<>", "a"]).sender.as_deref(), Some("<>"));
        assert_eq!(options(&["a"]).sender, None);
    }

    // Req: CLI5
    #[test]
    fn what_is_not_done_here_is_refused_by_name() {
        for (line, part) in [
            (&["-bp"][..], "pepsi-queue list"),
            (&["-bi"], "alias"),
            (&["-bs"], "-bs"),
            (&["-bd"], "pepsi-dispatch"),
            (&["-q30m"], "-q"),
            (&["-Z"], "-Z"),
            (&["--frobnicate"], "--frobnicate"),
            (&["-f"], "-f"),
            (&["-N", "always", "a"], "-N"),
            (&["-N", "never,delay", "a"], "-N"),
            (&["-R", "some", "a"], "-R"),
            (&["-V", "a b", "a"], "-V"),
            (&["a", "-f", "b"], "begins with '-'"),
            (&["--", "-t"], "begins with '-'"),
        ] {
            let refused = refused(line);
            assert_eq!(refused.code, exit::USAGE, "{line:?}");
            assert!(refused.message.contains(part), "{line:?}: {}", refused.message);
        }
        assert_eq!(parse(vec!["-q".into()]), Ok(Command::RunQueue));
    }

    #[test]
    fn addresses_are_utf_8() {
        let bad = || OsString::from_vec(vec![b'a', 0xff]);
        for line in [vec![bad()], vec!["-f".into(), bad()], vec!["a".into(), bad()]] {
            assert_eq!(parse(line).expect_err("bytes").code, exit::DATA);
        }
    }
}
