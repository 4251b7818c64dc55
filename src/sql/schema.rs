//! The schema: which files make it, installing and upgrading them, and whether what is installed is this release's.
//!
//! A patch is never changed once it was released and is applied once; files of functions are installed anew by every run.
//! All of it is one transaction: a failure leaves what was there before.

use super::connect::Target;
use super::{Db, Error, Purpose, Statement, error};

/// One file of the schema.
struct File {
    name: &'static str,
    text: &'static str,
    /// SHA-256 in hexadecimal. Written down, so that each worker that starts sends a few bytes and not the files; the
    /// installer has the server compute it from the text and refuses another value.
    checksum: &'static str,
}

/// In the order in which they are applied; the name is the number.
const PATCHES: &[File] = &[File {
    name: "0001",
    text: include_str!("schema/0001.sql"),
    checksum: "447c12d8eebab20fbae3572d17bba903c69a0fbf8e4ebd17c2a986de0a853fb3",
}];

/// In the order in which they are installed, after all patches.
const FUNCTIONS: &[File] = &[
    File {
        name: "procedures",
        text: include_str!("procedures.sql"),
        checksum: "9d730062675718f7c8fef2bb89963635bd3a2e4fd43fb65b20db60435f9b6229",
    },
    File {
        name: "fair",
        text: include_str!("schema/fair.sql"),
        checksum: "63b5927c6a11bc058010e26bfc59fe3531f75bde5ce99fb8598007ac438f7eaa",
    },
];

const CHECK: Statement = Statement { purpose: "check the schema", text: include_str!("schema_check.sql") };
const LOCK: Statement = Statement { purpose: "lock the schema", text: include_str!("schema_lock.sql") };
const RECORD: Statement =
    Statement { purpose: "record what was installed", text: include_str!("schema_record.sql") };
const CREATE_DATABASE: Statement =
    Statement { purpose: "create the database", text: include_str!("create_database.sql") };

/// Where a database is made from: one that every server has.
const MAINTENANCE_DATABASE: &str = "postgres";

/// How a file of this release and what is installed compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Same,
    /// Installed from another file of that name.
    Changed,
    Missing,
    /// Installed, and none of this release's files.
    Foreign,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Same => "same",
            State::Changed => "changed",
            State::Missing => "missing",
            State::Foreign => "foreign",
        }
    }
}

/// One file, as `pepsi-setup status` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    pub name: String,
    pub state: State,
    /// SHA-256 of the installed file in hexadecimal; empty when it is missing.
    pub checksum: String,
    /// RFC 3339, UTC; empty when it is missing.
    pub installed_at: String,
}

impl Installed {
    fn is_patch(&self) -> bool {
        !self.name.is_empty() && self.name.bytes().all(|byte| byte.is_ascii_digit())
    }
}

impl Db {
    /// Whether the installed schema is this release's, in one statement; the error says what it is instead.
    pub fn check_schema(&mut self) -> Result<(), Error> {
        verdict(&self.schema_files()?)
    }

    /// Every file of this release and every installed one, by name.
    pub fn schema_files(&mut self) -> Result<Vec<Installed>, Error> {
        self.query(&CHECK, &[]).map(|rows| compare(rows.iter().map(installed).collect()))
    }

    /// Installs what is missing, and the functions anew; returns the names of the files that were missing or changed.
    pub fn install_schema(&mut self) -> Result<Vec<String>, Error> {
        let mut work =
            Work { transaction: self.client.transaction().map_err(|error| refused("begin", &error))? };
        let before = work.look()?;
        for file in &before {
            refuse_upgrade(file)?;
        }
        let is_new = |name: &str| before.iter().all(|file| file.name != name || file.state != State::Same);
        for file in PATCHES.iter().filter(|file| is_new(file.name)) {
            work.apply(file)?;
            work.record(file)?;
        }
        for file in FUNCTIONS {
            work.apply(file)?;
            if is_new(file.name) {
                work.record(file)?;
            }
        }
        work.transaction.commit().map_err(|error| refused("commit the schema", &error))?;
        let all = PATCHES.iter().chain(FUNCTIONS);
        Ok(all.filter(|file| is_new(file.name)).map(|file| file.name.to_owned()).collect())
    }
}

/// Makes the database that the URL names; false when it is there already.
pub fn create_database(url: &str, program: &str) -> Result<bool, Error> {
    let target = Target::from_environment(url)?;
    let name = target.database.clone();
    let mut db = target.with_database(MAINTENANCE_DATABASE).open(program, Purpose::Tool)?;
    let rows = db.query(&CREATE_DATABASE, &[&name])?;
    let Some(row) = rows.first() else { return Ok(false) };
    let statement: String = row.get(0);
    db.client
        .batch_execute(&statement)
        .map_err(|error| error::of_statement(&format!("create the database {name:?}"), &error, false))?;
    Ok(true)
}

/// An installation under way.
struct Work<'a> {
    transaction: postgres::Transaction<'a>,
}

impl Work<'_> {
    /// Takes the installer's lock, then compares; nothing when there is no schema yet.
    fn look(&mut self) -> Result<Vec<Installed>, Error> {
        let row =
            self.transaction.query_one(LOCK.text, &[]).map_err(|error| refused(LOCK.purpose, &error))?;
        if !row.get::<_, bool>(0) {
            return Ok(Vec::new());
        }
        let rows = self.transaction.query(CHECK.text, &[]).map_err(|error| refused(CHECK.purpose, &error))?;
        Ok(compare(rows.iter().map(installed).collect()))
    }

    fn apply(&mut self, file: &File) -> Result<(), Error> {
        let purpose = format!("install {}", file.name);
        self.transaction.batch_execute(file.text).map_err(|error| refused(&purpose, &error))
    }

    fn record(&mut self, file: &File) -> Result<(), Error> {
        let recorded = self.transaction.query_one(RECORD.text, &[&file.name, &file.text]);
        let checksum: String = recorded.map_err(|error| refused(RECORD.purpose, &error))?.get(0);
        if checksum != file.checksum {
            let text = format!(
                "this program's record of the file {} is wrong, its SHA-256 is {checksum}",
                file.name
            );
            return Err(Error::Refused(text));
        }
        Ok(())
    }
}

/// A dropped transaction is rolled back, so a failure of any step leaves nothing behind.
fn refused(purpose: &str, error: &postgres::Error) -> Error {
    match error::of_statement(purpose, error, error.is_closed()) {
        // Installing is what the hint of this class asks for; here it is a defect of the files.
        Error::Schema(text) => Error::Refused(text),
        other => other,
    }
}

fn installed(row: &postgres::Row) -> Installed {
    Installed {
        name: row.get("patch"),
        state: State::Foreign,
        checksum: row.get("checksum"),
        installed_at: row.get("installed_at"),
    }
}

/// The installed files with their states, and this release's that are missing, by name.
fn compare(mut files: Vec<Installed>) -> Vec<Installed> {
    for ours in PATCHES.iter().chain(FUNCTIONS) {
        match files.iter_mut().find(|file| file.name == ours.name) {
            Some(file) if file.checksum == ours.checksum => file.state = State::Same,
            Some(file) => file.state = State::Changed,
            None => files.push(Installed {
                name: ours.name.to_owned(),
                state: State::Missing,
                checksum: String::new(),
                installed_at: String::new(),
            }),
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// What an upgrade cannot mend.
fn refuse_upgrade(file: &Installed) -> Result<(), Error> {
    match file.state {
        State::Changed if file.is_patch() => Err(changed(file)),
        State::Foreign if file.is_patch() => Err(newer(file)),
        // Functions are replaced; those of a file that this release no longer has do no harm.
        State::Changed | State::Foreign | State::Same | State::Missing => Ok(()),
    }
}

/// Whether a program of this release may run on it.
fn verdict(files: &[Installed]) -> Result<(), Error> {
    for file in files {
        refuse_upgrade(file)?;
    }
    let old = files.iter().find(|file| file.is_patch() && file.state == State::Missing);
    if let Some(file) = old {
        let text = format!("the schema is older than this release, patch {} is missing", file.name);
        return Err(Error::Schema(format!("{text}; `pepsi-setup schema` upgrades it")));
    }
    let other = files.iter().find(|file| matches!(file.state, State::Changed | State::Missing));
    if let Some(file) = other {
        let text = format!("the schema's functions ({}) are of another release", file.name);
        return Err(Error::Schema(format!("{text}; `pepsi-setup schema` installs this release's")));
    }
    Ok(())
}

fn changed(file: &Installed) -> Error {
    let text = format!(
        "patch {} of the schema was installed from another file (SHA-256 {})",
        file.name, file.checksum
    );
    Error::Schema(format!("{text}; run the release that installed it, or set up an empty database"))
}

fn newer(file: &Installed) -> Error {
    let text = format!("the schema is newer than this release, which does not know patch {}", file.name);
    Error::Schema(format!("{text}; run the newer release"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, state: State) -> Installed {
        Installed { name: name.into(), state, checksum: "c".into(), installed_at: String::new() }
    }

    // Req: CLI3
    #[test]
    fn the_verdict_says_older_newer_or_other_files() {
        let says = |files: &[Installed]| match verdict(files) {
            Ok(()) => String::new(),
            Err(Error::Schema(text)) => text,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(says(&[file("0001", State::Same), file("procedures", State::Same)]), "");
        assert_eq!(says(&[file("0001", State::Same), file("retired", State::Foreign)]), "");
        assert!(says(&[file("0001", State::Same), file("0002", State::Missing)]).contains("older"));
        assert!(says(&[file("0001", State::Same), file("0002", State::Foreign)]).contains("newer"));
        assert!(says(&[file("0001", State::Changed)]).contains("another file"));
        assert!(
            says(&[file("0001", State::Same), file("procedures", State::Changed)])
                .contains("another release")
        );
        assert!(
            says(&[file("0001", State::Same), file("procedures", State::Missing)])
                .contains("another release")
        );
    }

    #[test]
    fn patches_are_numbered_in_order() {
        for (index, patch) in PATCHES.iter().enumerate() {
            assert_eq!(patch.name, format!("{:04}", index + 1));
        }
        assert!(FUNCTIONS.iter().all(|file| !installed_name(file).is_patch()));
    }

    fn installed_name(of: &File) -> Installed {
        file(of.name, State::Same)
    }
}
