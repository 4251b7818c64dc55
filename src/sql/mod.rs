//! The only room that holds SQL text or names the driver's errors: connecting, error classes, typed calls.
//!
//! Every statement is a file of its own (`*.sql`), runs as one transaction of its own, READ COMMITTED, and is prepared
//! once per connection. Statements name everything with its schema; the session's search_path holds pg_catalog alone.

pub mod batch;
pub mod claim;
mod clean;
mod connect;
mod error;
pub mod fan;
pub mod lists;
pub mod ops;
pub mod queue;
pub mod row;
pub mod schema;

pub use error::Error;

use postgres::types::ToSql;
use postgres::{Client, Row};
use std::collections::BTreeMap;

/// What a connection is for: decides timeouts, synchronous_commit and application_name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Dispatcher,
    Worker {
        synchronous_commit: bool,
    },
    /// synchronous_commit on: what was accepted is on disk.
    Admission,
    Tool,
}

/// How often a statement that met a serialization failure or a deadlock is run again at once. Neither is expected under
/// READ COMMITTED with one writer a row; this is the insurance.
const MAX_RETRIES: u32 = 2;

/// One `.sql` file.
struct Statement {
    /// Completes "cannot ..." in an error.
    purpose: &'static str,
    text: &'static str,
}

/// The longest pause, ten years: beyond it a sum with the time of day would leave the range of a timestamp some day.
const MAX_PAUSE_US: i64 = 3_652 * 86_400 * 1_000_000;

fn pause(pause_us: u64) -> i64 {
    i64::try_from(pause_us).unwrap_or(MAX_PAUSE_US).min(MAX_PAUSE_US)
}

type Parameters<'a> = [&'a (dyn ToSql + Sync)];

/// One open connection, READ COMMITTED, with its prepared statements.
pub struct Db {
    client: Client,
    /// By the statement's purpose.
    prepared: BTreeMap<&'static str, postgres::Statement>,
    retries: u32,
}

impl Db {
    /// Connects to `[pepsi-postgres] CONFIG`; `postgres:///name` means the socket folder and the OS user.
    pub fn connect(url: &str, program: &str, purpose: Purpose) -> Result<Db, Error> {
        connect::Target::from_environment(url)?.open(program, purpose)
    }

    fn query(&mut self, statement: &Statement, parameters: &Parameters<'_>) -> Result<Vec<Row>, Error> {
        self.run(statement, |client, prepared| client.query(prepared, parameters))
    }

    /// How many rows the statement changed.
    fn execute(&mut self, statement: &Statement, parameters: &Parameters<'_>) -> Result<u64, Error> {
        self.run(statement, |client, prepared| client.execute(prepared, parameters))
    }

    fn run<T>(
        &mut self,
        statement: &Statement,
        run: impl Fn(&mut Client, &postgres::Statement) -> Result<T, postgres::Error>,
    ) -> Result<T, Error> {
        let mut attempt = 0;
        loop {
            let failure = match self.prepare(statement).and_then(|ready| run(&mut self.client, &ready)) {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            if !error::is_transient(&failure) || attempt == self.retries {
                return Err(error::of_statement(statement.purpose, &failure, self.client.is_closed()));
            }
            attempt += 1;
        }
    }

    fn prepare(&mut self, statement: &Statement) -> Result<postgres::Statement, postgres::Error> {
        if let Some(ready) = self.prepared.get(statement.purpose) {
            return Ok(ready.clone());
        }
        let ready = self.client.prepare(statement.text)?;
        self.prepared.insert(statement.purpose, ready.clone());
        Ok(ready)
    }
}
