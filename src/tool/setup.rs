//! `pepsi-setup`: installs and upgrades the schema in the database of `[pepsi-postgres] CONFIG`, and says what is there.
//!
//! Results go to standard output, everything else to the log. It changes nothing but the schema `pepsi`, and makes the
//! database itself only when asked to.

use super::{Failure, configuration, exit_code};
use crate::sql::schema::{self, Installed, State};
use crate::sql::{Db, Purpose};
use crate::{Invocation, Level, exit};
use lexopt::prelude::*;
use serde_json::json;

const PROGRAM: &str = "pepsi-setup";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Schema { create_database: bool },
    Status { json: bool },
}

pub fn main(call: &Invocation) -> u8 {
    exit_code(run(call))
}

fn run(call: &Invocation) -> Result<u8, Failure> {
    let command = parse(call).map_err(|text| Failure::usage(call, &text))?;
    let (_, url) = configuration(call)?;
    match command {
        Command::Schema { create_database } => install(&url, create_database),
        Command::Status { json } => status(&url, json),
    }
}

fn parse(call: &Invocation) -> Result<Command, String> {
    let mut parser = lexopt::Parser::from_args(call.args.iter().cloned());
    let mut command = None;
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match (argument, &mut command) {
            (Value(name), None) if name == "schema" => {
                command = Some(Command::Schema { create_database: false })
            }
            (Value(name), None) if name == "status" => command = Some(Command::Status { json: false }),
            (Long("create-database"), Some(Command::Schema { create_database })) => *create_database = true,
            (Long("json"), Some(Command::Status { json })) => *json = true,
            (other, _) => return Err(other.unexpected().to_string()),
        }
    }
    command.ok_or_else(|| "say `schema` or `status`".to_owned())
}

fn install(url: &str, create_database: bool) -> Result<u8, Failure> {
    if create_database && schema::create_database(url, PROGRAM)? {
        crate::log(Level::Info, "", "database created", &[]);
    }
    let mut db = Db::connect(url, PROGRAM, Purpose::Tool)?;
    let changed = db.install_schema()?;
    if changed.is_empty() {
        crate::log(Level::Info, "", "the schema is up to date", &[]);
    }
    for name in changed {
        crate::log(Level::Info, "", "installed", &[("file", &name)]);
    }
    Ok(exit::OK)
}

/// Ends with 78 where a program of this release would not run on what is installed.
fn status(url: &str, as_json: bool) -> Result<u8, Failure> {
    let mut db = Db::connect(url, PROGRAM, Purpose::Tool)?;
    let files = db.schema_files()?;
    let code = crate::print(&if as_json { json_lines(&files) } else { table(&files) });
    if code != exit::OK {
        return Ok(code);
    }
    db.check_schema()?;
    Ok(exit::OK)
}

fn json_lines(files: &[Installed]) -> String {
    let line = |file: &Installed| {
        let optional = |text: &str| if text.is_empty() { serde_json::Value::Null } else { text.into() };
        json!({
            "patch": file.name,
            "state": file.state.name(),
            "checksum": optional(&file.checksum),
            "installed_at": optional(&file.installed_at),
        })
        .to_string()
    };
    files.iter().map(|file| line(file) + "\n").collect()
}

fn table(files: &[Installed]) -> String {
    let meaning = |state: State| match state {
        State::Same => "as in this release",
        State::Changed => "from another file than this release's",
        State::Missing => "not installed",
        State::Foreign => "not of this release",
    };
    let mut text = format!("{:<12} {:<20}  {:<12}  STATE\n", "PATCH", "INSTALLED", "SHA-256");
    for file in files {
        let checksum = file.checksum.get(..12).unwrap_or(&file.checksum);
        let line =
            format!("{:<12} {:<20}  {checksum:<12}  {}\n", file.name, file.installed_at, meaning(file.state));
        text.push_str(&line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Command, String> {
        let args = args.iter().map(Into::into).collect();
        parse(&Invocation { program: PROGRAM, config: None, args })
    }

    // Req: CLI5
    #[test]
    fn a_wrong_command_line_is_named() {
        assert_eq!(parsed(&["schema"]), Ok(Command::Schema { create_database: false }));
        assert_eq!(parsed(&["schema", "--create-database"]), Ok(Command::Schema { create_database: true }));
        assert_eq!(parsed(&["status", "--json"]), Ok(Command::Status { json: true }));
        for bad in
            [&[][..], &["--json"], &["schema", "--json"], &["status", "schema"], &["x"], &["status", "-x"]]
        {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
        assert!(parsed(&["schema", "--json"]).unwrap_err().contains("--json"));
    }
}
