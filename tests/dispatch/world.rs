//! One database, one configuration, scripted workers, and dispatchers as processes.

use crate::harness::{self, Config, Database, PATIENCE, Process, wait_until};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of a stage section.
pub type Options<'a> = &'a [(&'a str, &'a str)];

/// Waits for a condition.
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    wait_until(what, PATIENCE, condition);
}

/// Whether there is such a process and it is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub struct Row {
    pub status: String,
    pub claims: i64,
    pub state: Value,
    /// Seconds until a paused row is due.
    pub due_in: Option<f64>,
}

impl Row {
    pub fn has_strikes(&self) -> bool {
        self.state.get("strikes").is_some()
    }
}

pub struct World {
    database: RefCell<Database>,
    config: RefCell<Config>,
    started: Cell<u32>,
}

impl World {
    /// A database with the schema, and a configuration without stages.
    pub fn new() -> World {
        World::on(harness::database())
    }

    pub fn on(database: Database) -> World {
        let config = RefCell::new(database.config());
        World { database: RefCell::new(database), config, started: Cell::new(0) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.database.borrow().folder().join(name)
    }

    pub fn config_path(&self) -> PathBuf {
        self.path("pepsi.conf")
    }

    pub fn script_path(&self, stage: &str) -> PathBuf {
        self.path(&format!("{stage}.sh"))
    }

    pub fn configure(&self, section: &str, option: &str, value: &str) {
        self.config.replace_with(|config| config.clone().set(section, option, value));
    }

    /// A stage whose worker is the shell script; `$LOG` names a file of its own.
    pub fn stage(&self, name: &str, script: &str, options: Options<'_>) {
        let path = self.script_path(name);
        let log = self.path(&format!("{name}.log"));
        fs::write(&path, format!("#!/bin/sh\nLOG={}\n{script}\n", log.display())).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        self.stage_of(name, &path.display().to_string(), options);
    }

    pub fn stage_of(&self, name: &str, program: &str, options: Options<'_>) {
        self.config.replace_with(|config| config.clone().stage(name, program, options));
    }

    pub fn remove_stage(&self, name: &str) {
        self.config.replace_with(|config| config.clone().without(&format!("stage-{name}")));
    }

    /// Writes the file as it is now, under a running dispatcher.
    pub fn write_config(&self) {
        self.config.borrow().write();
    }

    /// What the scripts of a stage wrote to `$LOG`.
    pub fn log(&self, stage: &str) -> Vec<String> {
        self.lines(&format!("{stage}.log"))
    }

    /// What they wrote to `$LOG.suffix`.
    pub fn side_log(&self, stage: &str, suffix: &str) -> Vec<String> {
        self.lines(&format!("{stage}.log.{suffix}"))
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The process ids that the scripts of a stage logged, one each.
    pub fn workers(&self, stage: &str) -> Vec<u32> {
        self.log(stage).iter().map(|line| line.parse().unwrap()).collect()
    }

    /// Adds messages silently, in one transaction; their ids in order.
    pub fn add(&self, stage: &str, count: i32) -> Vec<i64> {
        self.add_from(stage, "a@example.org", count)
    }

    pub fn add_from(&self, stage: &str, sender: &str, count: i32) -> Vec<i64> {
        let sql = "SELECT pepsi.workqueue_add($3, '{b@example.net}', 'Subject: x', 'text', '{}', $1)
                   FROM generate_series(1, $2)";
        let rows = self.database.borrow_mut().client.query(sql, &[&stage, &count, &sender]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Adds one message and notifies; its id.
    pub fn inject(&self, stage: &str) -> i64 {
        let sql = "SELECT pepsi.workqueue_inject('a@example.org', '{b@example.net}', 'Subject: x', 'text', '{}', $1)";
        self.database.borrow_mut().client.query_one(sql, &[&stage]).unwrap().get(0)
    }

    pub fn run(&self, sql: &str) {
        self.database.borrow_mut().run(sql);
    }

    /// A session of its own.
    pub fn connect(&self) -> postgres::Client {
        self.database.borrow().connect()
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.database.borrow_mut().number(sql)
    }

    pub fn set_strikes(&self, stage: &str, strikes: i32) {
        let sql = "UPDATE pepsi.workqueue SET state = state || jsonb_build_object('strikes', $2::int4) WHERE stage = $1";
        self.database.borrow_mut().client.execute(sql, &[&stage, &strikes]).unwrap();
    }

    pub fn override_option(&self, section: &str, option: &str, value: &str) {
        let sql =
            "INSERT INTO pepsi.config_override (scope, section, option, value) VALUES ('global', $1, $2, $3)";
        self.database.borrow_mut().client.execute(sql, &[&section, &option, &value]).unwrap();
    }

    pub fn set_override(&self, section: &str, option: &str, value: &str) {
        let sql = "UPDATE pepsi.config_override SET value = $3 WHERE section = $1 AND option = $2";
        assert_eq!(self.database.borrow_mut().client.execute(sql, &[&section, &option, &value]).unwrap(), 1);
    }

    pub fn forget_overrides(&self) {
        self.execute("DELETE FROM pepsi.config_override");
    }

    pub fn notify(&self, channel: &str) {
        self.execute(&format!("NOTIFY {channel}"));
    }

    pub fn execute(&self, statement: &str) {
        self.database.borrow_mut().client.batch_execute(statement).unwrap();
    }

    pub fn row(&self, id: i64) -> Row {
        self.select("workqueue_id = $1", &id).remove(0)
    }

    pub fn rows(&self, stage: &str) -> Vec<Row> {
        self.select("stage = $1", &stage)
    }

    fn select(&self, condition: &str, value: &(dyn postgres::types::ToSql + Sync)) -> Vec<Row> {
        let sql = format!(
            "SELECT status::text, claims, state, extract(epoch FROM timeout - now())::float8
             FROM pepsi.workqueue WHERE {condition} ORDER BY workqueue_id"
        );
        let rows = self.database.borrow_mut().client.query(&sql, &[value]).unwrap();
        let row = |row: &postgres::Row| Row {
            status: row.get(0),
            claims: row.get(1),
            state: row.get(2),
            due_in: row.get(3),
        };
        rows.iter().map(row).collect()
    }

    /// Waits until there are rows at this stage and all have this status.
    #[track_caller]
    pub fn until_all(&self, stage: &str, status: &str) {
        until(&format!("all of {stage} {status}"), || {
            let rows = self.rows(stage);
            !rows.is_empty() && rows.iter().all(|row| row.status == status)
        });
    }

    /// Waits until a dispatcher has the lock; it listens before it takes it.
    #[track_caller]
    pub fn until_serving(&self) {
        let sql = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
                   WHERE locktype = 'advisory' AND granted AND datname = current_database()";
        until("a dispatcher serves", || self.database.borrow_mut().number(sql) > 0);
    }

    /// The server processes of this database's dispatchers.
    pub fn dispatcher_backends(&self) -> Vec<i32> {
        self.of_dispatchers("pid")
    }

    pub fn terminate_dispatcher_backends(&self) -> usize {
        self.of_dispatchers::<bool>("pg_terminate_backend(pid)").len()
    }

    /// When the dispatchers' sessions last did something, as text.
    pub fn last_statements(&self) -> Vec<String> {
        self.of_dispatchers("state_change::text")
    }

    fn of_dispatchers<T: for<'a> postgres::types::FromSql<'a>>(&self, what: &str) -> Vec<T> {
        let sql = format!(
            "SELECT {what} FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'pepsi-dispatch' ORDER BY pid"
        );
        let rows = self.database.borrow_mut().client.query(&sql, &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The same database, at a server whose socket is in `folder`.
    pub fn url_at(&self, folder: &Path) -> String {
        format!("postgres://postgres@/{}?host={}", self.database.borrow().name, folder.display())
    }

    pub fn server_socket(&self) -> PathBuf {
        self.database.borrow().folder().with_file_name(".s.PGSQL.5432")
    }

    /// A dispatcher with the configuration as it is now.
    pub fn serve(&self) -> Process {
        self.config.borrow().write();
        self.dispatch(&["serve"])
    }

    /// The same, started by a shell that does something before.
    pub fn serve_after(&self, before: &str) -> Process {
        self.config.borrow().write();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("{before}; exec \"$0\" pepsi-dispatch -c \"$1\" serve")]);
        shell.arg(env!("CARGO_BIN_EXE_pepsi")).arg(self.config_path()).env_remove("JOURNAL_STREAM");
        self.start(shell)
    }

    /// `pepsi-dispatch` with the file as it is.
    pub fn dispatch(&self, arguments: &[&str]) -> Process {
        let mut command = harness::pepsi("pepsi-dispatch", &self.config_path());
        command.args(arguments);
        self.start(command)
    }

    fn start(&self, command: Command) -> Process {
        self.started.set(self.started.get() + 1);
        Process::start_quiet(command, self.path(&format!("dispatch-{}.log", self.started.get())))
    }
}

/// SIGTERM, and its exit code.
#[track_caller]
pub fn stop(mut dispatcher: Process) -> i32 {
    dispatcher.signal("TERM");
    dispatcher.wait(PATIENCE)
}

/// How often a process slept or was interrupted.
pub fn switches(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let numbers = status.lines().filter(|line| line.contains("ctxt_switches"));
    numbers.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}
