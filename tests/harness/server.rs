//! A private PostgreSQL: its own folder, a Unix socket there, no TCP. As root it runs as an unprivileged user, since the
//! server refuses root.
//!
//! A shell that holds the other end of a pipe to us stops the server and removes the folder when the pipe closes: when the
//! `Postgres` is dropped, and also when the test process ends in whatever way.

use super::{Config, Database, connect, process, unique};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// What a server is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether what was committed survives a crash of the machine; a crash of the server alone it survives anyway.
    pub fsync: bool,
    /// More lines of postgresql.conf.
    pub settings: Vec<(String, String)>,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are terminated.
    Fast,
    /// As in a crash: the next start recovers from the log.
    Immediate,
}

pub struct Postgres {
    folder: PathBuf,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    supervisor: Child,
    /// Whether the template database is there; locked while it is copied, since a copy wants it unused.
    template: Mutex<bool>,
}

const TEMPLATE: &str = "pepsi_template";
const START_SECONDS: &str = "60";

/// Runs with the folder as $1; the read from standard input ends when the test does. SIGQUIT is the immediate stop.
const SUPERVISOR: &str = r#"
trap '' INT TERM HUP QUIT PIPE
cat > /dev/null
cd /
server=$(head -n 1 "$1/data/postmaster.pid")
if [ -n "$server" ]; then
    kill -s CONT "$server"
    kill -s QUIT "$server"
    tries=0
    while kill -s 0 "$server" && [ $tries -lt 1000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
fi
rm -rf "$1"
"#;

impl Postgres {
    /// A server of its own, for tests that stop or restart it.
    pub fn start(options: Options) -> Postgres {
        let programs = find_programs();
        let user = is_root().then(unprivileged_user);
        let name = format!("pepsi-test-{}-{}", std::process::id(), unique());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        // Files of single tests live here too, and are written by the test's own user.
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("our own folder");
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).expect("root may give a folder away");
        }
        let supervisor = supervise(&folder);
        let server = Postgres { folder, programs, user, supervisor, template: Mutex::new(false) };
        server.initialise(&options);
        server.start_again();
        server
    }

    fn initialise(&self, options: &Options) {
        let data = self.data();
        let mut initdb = self.command("initdb");
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]);
        run(&mut initdb);
        let folder = self.folder.display();
        let mut text = format!(
            "listen_addresses = ''\nunix_socket_directories = '{folder}'\nmax_connections = 100\n\
             fsync = {}\nfull_page_writes = {}\nshared_buffers = 64MB\nlogging_collector = off\n",
            options.fsync, options.fsync
        );
        for (name, value) in &options.settings {
            text.push_str(&format!("{name} = {value}\n"));
        }
        let path = data.join("postgresql.auto.conf");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Starts it after a `stop`.
    pub fn start_again(&self) {
        let log = self.folder.join("log");
        let mut start = self.command("pg_ctl");
        start.arg("-D").arg(self.data()).arg("-l").arg(&log).args(["-w", "-t", START_SECONDS, "start"]);
        run(&mut start);
    }

    pub fn stop(&self, how: Stop) {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        let mut stop = self.command("pg_ctl");
        run(stop.arg("-D").arg(self.data()).args(["-m", mode, "-w", "-t", START_SECONDS, "stop"]));
    }

    pub fn restart(&self, how: Stop) {
        self.stop(how);
        self.start_again();
    }

    /// SIGKILL to the server itself; the others of it end when they notice.
    pub fn kill(&self) {
        let others = children(self.pid());
        assert!(process::signal("KILL", &self.pid().to_string()), "the server is gone");
        let is_there = |id: &u32| Path::new(&format!("/proc/{id}")).exists();
        super::wait_until("all of the server end", super::PATIENCE, || !others.iter().any(is_there));
    }

    /// SIGSTOP to the server and all its backends: connections stay open and nothing answers.
    pub fn freeze(&self) {
        self.signal_all("STOP");
    }

    pub fn thaw(&self) {
        self.signal_all("CONT");
    }

    fn signal_all(&self, name: &str) {
        let server = self.pid();
        // The server itself first, so that it makes no new backend meanwhile.
        assert!(process::signal(name, &server.to_string()), "the server is gone");
        for child in children(server) {
            process::signal(name, &child.to_string());
        }
    }

    /// The process id of the server itself.
    pub fn pid(&self) -> u32 {
        let path = self.data().join("postmaster.pid");
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.lines().next().and_then(|line| line.trim().parse().ok()).expect("a process id")
    }

    /// The server's own log.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join("log")).unwrap_or_default()).into_owned()
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@/{database}?host={}", self.folder.display())
    }

    /// A fresh database with the schema, a copy of one that `pepsi-setup` has made.
    pub fn database(&self) -> Database {
        let mut has_template = self.template.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*has_template {
            self.make_template();
            *has_template = true;
        }
        self.make_database(&format!("TEMPLATE {TEMPLATE}"))
    }

    /// A fresh database without the schema.
    pub fn empty_database(&self) -> Database {
        self.make_database("TEMPLATE template0")
    }

    fn make_database(&self, how: &str) -> Database {
        let name = format!("test_{}", unique());
        let folder = self.folder.join(&name);
        std::fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        self.admin(&format!("CREATE DATABASE {name} {how}"));
        let url = self.url(&name);
        let client = connect(&url);
        Database { url, name, client, folder }
    }

    fn make_template(&self) {
        self.admin(&format!("CREATE DATABASE {TEMPLATE} TEMPLATE template0"));
        let config = Config::new(&self.url(TEMPLATE), self.folder.join("template.conf")).write();
        let output = process::pepsi("pepsi-setup", &config).arg("schema").output().expect("the binary runs");
        assert!(output.status.success(), "pepsi-setup: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// One statement in the maintenance database.
    #[track_caller]
    pub fn admin(&self, statement: &str) {
        let done = connect(&self.url("postgres")).batch_execute(statement);
        done.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A server program, as the server's user, in a folder which that user may enter.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(&self.folder).stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

fn supervise(folder: &Path) -> Child {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", SUPERVISOR, "pepsi-test-supervisor"]).arg(folder).process_group(0);
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().expect("/bin/sh runs")
}

/// Runs a program whose output matters only when it fails. Not by `output()`: the server would keep the pipe open.
fn run(command: &mut Command) {
    let log = std::env::temp_dir().join(format!("pepsi-test-{}-{}.out", std::process::id(), unique()));
    let file = std::fs::File::create(&log).expect("a file in the temporary folder");
    let status = command.stdout(file.try_clone().expect("a descriptor")).stderr(file).status();
    let mut text = String::new();
    let _ = std::fs::File::open(&log).and_then(|mut file| file.read_to_string(&mut text));
    let _ = std::fs::remove_file(&log);
    let status = status.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}\n{text}");
}

/// The newest server programs of the usual folders, else those on PATH.
fn find_programs() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, folder)| folder.join("initdb").exists())
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, folder)| folder);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || std::env::split_paths(&path).find(|folder| folder.join("initdb").exists());
    newest
        .or_else(on_path)
        .expect("PostgreSQL's server programs (initdb, pg_ctl): scripts/test installs them")
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The user `postgres`, else `nobody`.
fn unprivileged_user() -> (u32, u32) {
    let passwd = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let entry = |name: &str| {
        let fields: Vec<&str> =
            passwd.lines().find(|line| line.starts_with(&format!("{name}:")))?.split(':').collect();
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    };
    entry("postgres").or_else(|| entry("nobody")).expect("a user postgres or nobody")
}

fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

/// The second field after the name, which is in parentheses and may hold anything.
fn parent_of(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
