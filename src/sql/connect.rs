//! Connecting: the URL of `[pepsi-postgres] CONFIG`, what a session is set to, and what can be wrong before the first
//! statement. No TLS in this build. A password never gets into an error text.

use super::error::{self, Error};
use super::{Db, Purpose};
use crate::{host, sys};
use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Covers the socket's connect alone: a server that accepts and then says nothing is not caught by it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that vanished without a word is noticed after about 25 s while idle, 15 s while data is under way, by both
/// sides. They do nothing on a Unix socket, where the kernel itself tells of a dead peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);
/// We never keep a transaction open on purpose; a stopped process must not hold back vacuum for ever.
const IDLE_IN_TRANSACTION_MS: u32 = 60_000;

/// The dispatcher's loop stands still during a statement. A claim that waits for one row's lock is given up soon and
/// repeated with SKIP LOCKED (requirement W3).
const DISPATCHER_STATEMENT_MS: u32 = 10_000;
const DISPATCHER_LOCK_MS: u32 = 1_000;
/// A worker may have to move a message of tens of megabytes on a slow disk.
const WORKER_STATEMENT_MS: u32 = 60_000;
const WORKER_LOCK_MS: u32 = 10_000;
/// Tools and schema upgrades may run long, but do not queue behind a lock for ever.
const TOOL_STATEMENT_MS: u32 = 0;
const TOOL_LOCK_MS: u32 = 10_000;

const OLDEST_SERVER: u32 = 150_000;
const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const DEFAULT_PORT: u16 = 5432;
const WAY_OUT: &str = "see [pepsi-postgres] CONFIG";

/// Where a URL leads, with all defaults filled in.
pub(super) struct Target {
    config: Config,
    pub database: String,
    user: String,
    host: String,
}

impl Target {
    pub(super) fn from_environment(url: &str) -> Result<Target, Error> {
        Target::parse(url, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// As libpq does, what the URL leaves out comes from PGHOST, PGPORT, PGUSER, PGPASSWORD, then the socket folder and
    /// the OS user.
    fn parse(url: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Target, Error> {
        let mut config = parse_url(url)?;
        if config.get_ports().is_empty() {
            let port = match variable("PGPORT") {
                Some(text) => text.parse().map_err(|_| setup(format!("PGPORT is no port number: {text}")))?,
                None => DEFAULT_PORT,
            };
            config.port(port);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
            let names = variable("PGHOST").unwrap_or_else(|| socket_folder(port).to_owned());
            for name in names.split(',') {
                // The driver takes a name that begins with a slash for a socket folder.
                config.host(name.trim());
            }
        }
        let user = config.get_user().map(str::to_owned).or_else(|| variable("PGUSER")).or_else(os_user);
        let user = user.ok_or_else(|| {
            setup(format!("no user name: PGUSER is not set and the OS user has none; {WAY_OUT}"))
        })?;
        config.user(&user);
        if config.get_password().is_none()
            && let Some(password) = variable("PGPASSWORD")
        {
            config.password(password);
        }
        let database = config.get_dbname().unwrap_or(&user).to_owned();
        config.dbname(&database);
        let host = describe_hosts(&config);
        Ok(Target { config, database, user, host })
    }

    /// The same server and user, another database.
    pub(super) fn with_database(mut self, name: &str) -> Target {
        self.config.dbname(name);
        self.database = name.to_owned();
        self
    }

    fn place(&self) -> String {
        format!("database {:?} at {} as {:?}", self.database, self.host, self.user)
    }

    /// Opens the connection and checks that it can be worked with.
    pub(super) fn open(mut self, program: &str, purpose: Purpose) -> Result<Db, Error> {
        let options = match self.config.get_options() {
            Some(own) => format!("{own} {}", session_options(purpose)),
            None => session_options(purpose),
        };
        self.config
            .options(&options)
            .application_name(program)
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(TCP_USER_TIMEOUT);
        let client = self.config.connect(NoTls).map_err(|error| self.connect_error(&error))?;
        let retries = match purpose {
            // It counts serialization failures itself (K3).
            Purpose::Dispatcher => 0,
            Purpose::Worker { .. } | Purpose::Admission | Purpose::Tool => super::MAX_RETRIES,
        };
        let mut db = Db { client, prepared: BTreeMap::new(), retries };
        self.check(&mut db.client)?;
        Ok(db)
    }

    /// Refuses a session in which Pepsi's writes would fail or go wrong one by one.
    fn check(&self, client: &mut Client) -> Result<(), Error> {
        let answer = client
            .simple_query(include_str!("session.sql"))
            .map_err(|error| error::of_statement("look at the session", &error, client.is_closed()))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let value = |name: &str| row.and_then(|row| row.get(name)).unwrap_or_default();
        let place = self.place();
        if value("in_recovery") == "true" {
            return Err(setup(format!(
                "{place}: the server is a standby in recovery; name the primary in [pepsi-postgres] CONFIG"
            )));
        }
        if value("read_only") == "on" {
            let way_out = "unset default_transaction_read_only for this role and database";
            return Err(setup(format!("{place}: the session is read-only; {way_out}")));
        }
        if value("version").parse::<u32>().unwrap_or(0) < OLDEST_SERVER {
            return Err(setup(format!(
                "{place}: PostgreSQL 15 or later is needed, this is {}",
                value("version")
            )));
        }
        if value("encoding") != "UTF8" {
            let way_out = "create it with ENCODING 'UTF8' TEMPLATE template0";
            return Err(setup(format!(
                "{place}: its encoding is {}, UTF8 is needed; {way_out}",
                value("encoding")
            )));
        }
        Ok(())
    }

    fn connect_error(&self, error: &postgres::Error) -> Error {
        let place = self.place();
        let Some(db) = error.as_db_error() else {
            let text = format!("cannot connect to {place}: {}", error::chain(error));
            return match error::io_cause(error).map(std::io::Error::kind) {
                // No connection in time, or a full backlog of the socket: pressure (requirement O1).
                Some(std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock) => {
                    Error::Overloaded(text)
                }
                Some(_) => Error::Lost(format!("{text}; is PostgreSQL running there? {WAY_OUT}")),
                None if error.is_closed() => Error::Lost(text),
                // Authentication that we cannot do, such as a password that was not given.
                None => setup(format!("{text}; {WAY_OUT}")),
            };
        };
        let text = format!("cannot connect to {place}: {}", error::server_text(db));
        match db.code().code() {
            "3D000" => {
                let name = &self.database;
                let hint = format!("`createdb {name}` or `pepsi-setup schema --create-database` makes it");
                setup(format!("{text}; {hint}"))
            }
            "28P01" | "28000" => {
                let hint = format!("the role, its password and pg_hba.conf decide; {WAY_OUT}");
                setup(format!("{text}; {hint}"))
            }
            "42501" => setup(format!("{text}; GRANT CONNECT is missing")),
            _ => error::of_statement(&format!("connect to {place}"), error, true),
        }
    }
}

fn setup(text: String) -> Error {
    Error::Setup(text)
}

fn parse_url(url: &str) -> Result<Config, Error> {
    // The driver's text quotes no part of the URL, which may hold a password.
    let config: Config = url.parse().map_err(|error: postgres::Error| {
        setup(format!(
            "[pepsi-postgres] CONFIG is no PostgreSQL URL such as postgres:///pepsi: {}",
            error::chain(&error)
        ))
    })?;
    match config.get_ssl_mode() {
        SslMode::Disable | SslMode::Prefer => Ok(config),
        _ => Err(setup(
            "[pepsi-postgres] CONFIG asks for TLS, which this build has not: use a Unix socket, or a tunnel to it".into(),
        )),
    }
}

fn os_user() -> Option<String> {
    host::user_name(sys::uid())
}

/// The first usual folder with this port's socket in it; the first of all when no server runs.
fn socket_folder(port: u16) -> &'static str {
    let has_socket = |folder: &&&str| Path::new(*folder).join(format!(".s.PGSQL.{port}")).exists();
    SOCKET_FOLDERS.iter().find(has_socket).unwrap_or(&SOCKET_FOLDERS[0])
}

fn describe_hosts(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
    let addresses = config.get_hostaddrs().iter().map(ToString::to_string);
    let names = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let all: Vec<String> = if config.get_hosts().is_empty() { addresses.collect() } else { names.collect() };
    let all = all.iter().enumerate().map(|(index, host)| format!("{host}:{}", port(index)));
    all.collect::<Vec<_>>().join(",")
}

/// Start-up options: they cost no round trip, and hold before the first statement.
fn session_options(purpose: Purpose) -> String {
    let (statement_ms, lock_ms) = match purpose {
        Purpose::Dispatcher => (DISPATCHER_STATEMENT_MS, DISPATCHER_LOCK_MS),
        Purpose::Worker { .. } | Purpose::Admission => (WORKER_STATEMENT_MS, WORKER_LOCK_MS),
        Purpose::Tool => (TOOL_STATEMENT_MS, TOOL_LOCK_MS),
    };
    // Admission answers for what it took. What the dispatcher wrote last a crash of the server may forget, as if the
    // dispatcher had died just before: reconcile.sql sees to it that no claim number is given out twice for that (D4).
    let synchronous_commit = match purpose {
        Purpose::Dispatcher | Purpose::Worker { synchronous_commit: false } => "off",
        Purpose::Worker { synchronous_commit: true } | Purpose::Admission | Purpose::Tool => "on",
    };
    let mut options = format!(
        "-c default_transaction_isolation=read\\ committed -c search_path=pg_catalog -c TimeZone=UTC \
         -c client_min_messages=warning -c statement_timeout={statement_ms} -c lock_timeout={lock_ms} \
         -c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_MS} -c synchronous_commit={synchronous_commit}"
    );
    // The server's own view of the connection: else the session of a machine that is gone keeps its locks for hours.
    options.push_str(&format!(
        " -c tcp_keepalives_idle={} -c tcp_keepalives_interval={} -c tcp_keepalives_count={KEEPALIVE_RETRIES} \
         -c tcp_user_timeout={}",
        KEEPALIVE_IDLE.as_secs(),
        KEEPALIVE_INTERVAL.as_secs(),
        TCP_USER_TIMEOUT.as_millis()
    ));
    match purpose {
        // Their statements touch a few rows by an index, whatever the statistics say; a plan made while the table was
        // empty must not be a scan that is still in use when a burst has filled it.
        Purpose::Dispatcher | Purpose::Worker { .. } | Purpose::Admission => {
            for setting in
                ["jit", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"]
            {
                options.push_str(&format!(" -c {setting}=off"));
            }
            options.push_str(" -c plan_cache_mode=force_generic_plan");
        }
        Purpose::Tool => {}
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str, variables: &[(&str, &str)]) -> Result<Target, Error> {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Target::parse(url, &variable)
    }

    #[test]
    fn a_url_without_a_host_means_the_socket_folder_and_the_os_user() {
        let target = parse("postgres:///pepsi", &[]).unwrap();
        assert_eq!(target.database, "pepsi");
        assert!(
            SOCKET_FOLDERS.iter().any(|folder| target.host == format!("{folder}:5432")),
            "{}",
            target.host
        );
        assert_eq!(Some(target.user), os_user());
        let target =
            parse("postgres:///pepsi", &[("PGHOST", "/run/pg"), ("PGPORT", "6000"), ("PGUSER", "ann")]);
        assert_eq!(target.unwrap().place(), r#"database "pepsi" at /run/pg:6000 as "ann""#);
        let target = parse("postgres://bob@[::1]:6001,db2/mail?application_name=x", &[("PGHOST", "/run/pg")]);
        assert_eq!(target.unwrap().place(), r#"database "mail" at ::1:6001,db2:5432 as "bob""#);
        let target = parse("host=/tmp/x user=bob", &[]).unwrap();
        assert_eq!(target.place(), r#"database "bob" at /tmp/x:5432 as "bob""#);
    }

    // Req: CLI5
    #[test]
    fn a_bad_url_is_a_setup_error_without_the_password() {
        let bad = [
            "",
            "pepsi",
            "mysql://x/y",
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?sslmode=require",
            "postgres://u:secret@h/d?sslmode=verify-full",
            "postgres://u:secret@h/d?connect_timeout=secret",
            "\0",
        ];
        for url in bad {
            match parse(url, &[("PGUSER", "ann")]) {
                Ok(target) => assert!(url.is_empty(), "{url} gave {}", target.place()),
                Err(Error::Setup(text)) => {
                    assert!(text.contains("[pepsi-postgres] CONFIG") && !text.contains("secret"), "{text}");
                    assert!(!text.contains('\n'), "{text}");
                }
                Err(other) => panic!("{url}: {other:?}"),
            }
        }
        assert!(parse("postgres:///p", &[("PGPORT", "x")]).is_err());
    }

    #[test]
    fn only_what_may_be_lost_is_committed_asynchronously() {
        for (purpose, expected) in [
            (Purpose::Dispatcher, "off"),
            (Purpose::Admission, "on"),
            (Purpose::Tool, "on"),
            (Purpose::Worker { synchronous_commit: true }, "on"),
            (Purpose::Worker { synchronous_commit: false }, "off"),
        ] {
            let options = session_options(purpose);
            assert!(options.contains(&format!("-c synchronous_commit={expected}")));
            assert!(
                options.contains("-c tcp_keepalives_idle=10 ")
                    && options.contains("-c tcp_user_timeout=15000")
            );
        }
    }
}
