//! What tests against the real thing share: a private PostgreSQL, databases with the schema, configuration files, processes.
//!
//! Nothing here waits by sleeping for a guessed time: `wait_until` polls a condition with a deadline. Nothing outlives the
//! test binary, even one that is killed.
#![allow(dead_code, unused_imports)]

pub mod config;
pub mod process;
pub mod server;

pub use config::Config;
pub use process::{Process, pepsi};
pub use server::{Options, Postgres, Stop};

use postgres::{Client, NoTls};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine: a test that passes does not wait for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls `condition` until it holds; false when it did not within `patience`.
pub fn holds_within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Polls `condition` until it holds; panics with `what` when it did not within `patience`.
#[track_caller]
pub fn wait_until(what: &str, patience: Duration, condition: impl FnMut() -> bool) {
    assert!(holds_within(patience, condition), "not within {patience:?}: {what}");
}

/// The server that all tests of one binary share.
pub fn shared() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(|| Postgres::start(Options::default()))
}

/// A fresh database with the schema, on the shared server.
pub fn database() -> Database {
    shared().database()
}

/// One database of a test, a connection to it, and a folder for the test's files. The folder goes with it.
pub struct Database {
    pub url: String,
    pub name: String,
    pub client: Client,
    folder: PathBuf,
}

impl Database {
    /// One more connection.
    pub fn connect(&self) -> Client {
        connect(&self.url)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A configuration of this database.
    pub fn config(&self) -> Config {
        Config::new(&self.url, self.folder.join("pepsi.conf"))
    }

    /// The first column of the first row as a number.
    #[track_caller]
    pub fn number(&mut self, query: &str) -> i64 {
        let row = self.client.query_one(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        row.try_get::<_, i64>(0).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// The first column of the first row as text.
    #[track_caller]
    pub fn text(&mut self, query: &str) -> String {
        let row = self.client.query_one(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        row.try_get::<_, String>(0).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// Several statements.
    #[track_caller]
    pub fn run(&mut self, statements: &str) {
        self.client.batch_execute(statements).unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A folder that stays is found again in the server's, which its supervisor removes.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[track_caller]
pub fn connect(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap_or_else(|error| panic!("{url}: {error:?}"))
}

/// A number that no other call in this process gets.
pub fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
