//! `pepsi-setup` against real databases: installing, upgrading, refusing; and what a connection says that cannot be used.

mod harness;

use harness::{Config, Database, Options, Postgres, shared};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Runs `pepsi-setup`; exit code, standard output, standard error.
fn setup(config: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = harness::pepsi("pepsi-setup", config).args(arguments).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn config_in(db: &Database, url: &str) -> PathBuf {
    Config::new(url, db.folder().join("other.conf")).write()
}

/// One line on standard error that has all `parts`, and the code.
#[track_caller]
fn refuses(config: &Path, arguments: &[&str], code: i32, parts: &[&str]) {
    let (found, _, log) = setup(config, arguments);
    assert_eq!(found, code, "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    for part in parts {
        assert!(log.contains(part), "{part:?} is not in {log}");
    }
}

#[test]
fn it_installs_once_and_says_what_is_there() {
    let mut db = shared().empty_database();
    let config = db.config().write();
    refuses(&config, &["status"], 78, &["pepsi.schema_version", "pepsi-setup schema"]);
    let (code, _, log) = setup(&config, &["schema"]);
    assert!(code == 0 && log.contains("0001") && log.contains("procedures"), "{code} {log}");
    db.run("SELECT pepsi.workqueue_add('', '{a@b}', '', NULL)");
    let before = db.text("SELECT string_agg(v::text, ' ' ORDER BY patch) FROM pepsi.schema_version v");
    let (code, _, log) = setup(&config, &["schema"]);
    assert!(code == 0 && log.contains("up to date"), "{code} {log}");
    assert_eq!(db.text("SELECT string_agg(v::text, ' ' ORDER BY patch) FROM pepsi.schema_version v"), before);
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 1);

    let (code, table, _) = setup(&config, &["status"]);
    assert!(code == 0 && table.lines().count() == 1 + 3 && table.contains("as in this release"), "{table}");
    let (code, lines, _) = setup(&config, &["status", "--json"]);
    assert_eq!(code, 0);
    for line in lines.lines() {
        let file: Value = serde_json::from_str(line).expect("an object a line");
        let recorded = format!(
            "SELECT checksum FROM pepsi.schema_version WHERE patch = '{}'",
            file["patch"].as_str().unwrap()
        );
        assert_eq!(
            (file["state"].as_str(), file["checksum"].as_str()),
            (Some("same"), Some(db.text(&recorded).as_str()))
        );
    }
    let patch = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql/schema/0001.sql"))
        .expect("the patch");
    let hash: String =
        db.client.query_one("SELECT encode(sha256($1), 'hex')", &[&patch]).expect("a hash").get(0);
    assert_eq!(db.text("SELECT checksum FROM pepsi.schema_version WHERE patch = '0001'"), hash);
}

// Req: CLI3
#[test]
fn a_schema_of_another_release_is_refused_by_name() {
    let mut db = harness::database();
    let config = db.config().write();
    db.run("UPDATE pepsi.schema_version SET checksum = 'x' WHERE patch = 'procedures'");
    refuses(&config, &["status"], 78, &["functions", "procedures", "another release"]);
    assert_eq!(setup(&config, &["schema"]).0, 0, "functions are replaced");
    assert_eq!(setup(&config, &["status"]).0, 0);
    db.run("INSERT INTO pepsi.schema_version VALUES ('0999', 'x')");
    refuses(&config, &["status"], 78, &["newer", "0999"]);
    refuses(&config, &["schema"], 78, &["newer", "0999"]);
    db.run("DELETE FROM pepsi.schema_version WHERE patch = '0999'");
    db.run("UPDATE pepsi.schema_version SET checksum = 'x' WHERE patch = '0001'");
    refuses(&config, &["status"], 78, &["0001", "another file"]);
    refuses(&config, &["schema"], 78, &["0001", "another file"]);
    db.run("DELETE FROM pepsi.schema_version WHERE patch = '0001'");
    refuses(&config, &["status"], 78, &["older", "0001"]);
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let mut db = shared().empty_database();
    db.run("CREATE SCHEMA pepsi; CREATE TABLE pepsi.settings (mine text)");
    let config = db.config().write();
    refuses(&config, &["schema"], 69, &["install 0001", "already exists", "42P06"]);
    assert_eq!(
        db.number(
            "SELECT count(*) FROM pg_class WHERE relnamespace = 'pepsi'::regnamespace AND relkind = 'r'"
        ),
        1
    );
}

#[test]
fn two_installers_at_once_install_once() {
    let mut db = shared().empty_database();
    let config = db.config().write();
    let start = || {
        let mut command = harness::pepsi("pepsi-setup", &config);
        command.arg("schema").stderr(std::process::Stdio::null()).spawn().expect("the binary runs")
    };
    for mut child in [start(), start(), start()] {
        assert!(child.wait().expect("a child").success());
    }
    assert_eq!(db.number("SELECT count(*) FROM pepsi.schema_version"), 3);
}

#[test]
fn the_database_is_made_only_when_asked() {
    let db = shared().empty_database();
    let name = "made \"here\"";
    let config = config_in(&db, &shared().url("made%20%22here%22"));
    refuses(&config, &["schema"], 78, &["does not exist", "--create-database"]);
    let (code, _, log) = setup(&config, &["schema", "--create-database"]);
    assert!(code == 0 && log.contains("database created"), "{code} {log}");
    assert_eq!(setup(&config, &["schema", "--create-database"]).0, 0, "it is there already");
    let mut client = harness::connect(&shared().url("made%20%22here%22"));
    let found =
        client.query_one("SELECT current_database()::text, getdatabaseencoding()::text", &[]).expect("a row");
    assert_eq!((found.get::<_, &str>(0), found.get::<_, &str>(1)), (name, "UTF8"));
}

// Req: CLI5
#[test]
fn what_cannot_be_connected_to_is_named_with_the_way_out() {
    let db = shared().empty_database();
    let with = |url: &str| config_in(&db, url);
    refuses(
        &with("postgres://postgres@/x?host=/nonexistent"),
        &["status"],
        69,
        &["/nonexistent:5432", "\"x\"", "CONFIG"],
    );
    refuses(&with("postgres://u:hidden@127.0.0.1:1/x"), &["status"], 69, &["127.0.0.1:1", "refused"]);
    refuses(&with("postgres://u@h/x?sslmode=require"), &["status"], 78, &["TLS", "Unix socket"]);
    refuses(&with("mailto:x"), &["status"], 78, &["[pepsi-postgres] CONFIG", "postgres:///pepsi"]);
    let nobody = shared().url("postgres").replace("postgres@", "no_such_role@");
    refuses(&with(&nobody), &["status"], 78, &["no_such_role", "pg_hba.conf"]);
    let (_, _, log) = setup(&with("postgres://u:hidden@127.0.0.1:1/x"), &["status"]);
    assert!(!log.contains("hidden"), "{log}");
    refuses(Path::new("/nonexistent.conf"), &["status"], 78, &["/nonexistent.conf"]);
    refuses(&with(&db.url), &[], 64, &["subcommand"]);
    refuses(&with(&db.url), &["schema", "--json"], 64, &["--json"]);
}

// Req: CLI5
#[test]
fn a_session_that_cannot_write_or_read_all_text_is_refused_at_once() {
    let mut db = harness::database();
    let config = db.config().write();
    db.run(&format!("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'", db.name));
    assert_eq!(setup(&config, &["status"]).0, 0, "the isolation level is our own");
    db.run(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", db.name));
    refuses(&config, &["status"], 78, &["read-only", "default_transaction_read_only"]);
    shared().admin("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0");
    refuses(&config_in(&db, &shared().url("ascii")), &["schema"], 78, &["SQL_ASCII", "UTF8"]);
    shared().admin("CREATE ROLE reader LOGIN");
    let reader = db.url.replace("postgres@", "reader@");
    db.run(&format!("SET default_transaction_read_only = off; ALTER DATABASE {} RESET ALL", db.name));
    refuses(&config_in(&db, &reader), &["status"], 78, &["permission denied", "42501"]);
}

// Req: O1
// Req: L1
#[test]
fn a_full_server_and_a_stopped_one_are_told_apart() {
    let settings = [("max_connections", "4"), ("superuser_reserved_connections", "0")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = Postgres::start(Options { settings, ..Options::default() });
    let db = server.empty_database();
    let config = db.config().write();
    let others: Vec<_> = (0..3).map(|_| db.connect()).collect();
    refuses(&config, &["schema"], 69, &["53300"]);
    drop(others);
    server.stop(harness::Stop::Fast);
    refuses(&config, &["schema"], 69, &["is PostgreSQL running there?"]);
    server.start_again();
    harness::wait_until("the schema is installed", harness::PATIENCE, || setup(&config, &["schema"]).0 == 0);
}
