//! What fails around the dispatcher, done to real processes under load: each scenario ends in an audit by message. What
//! the dispatcher decides in such cases is shown in `tests/sim.rs`; here it is shown that it does it.

mod harness;
#[path = "failure/load.rs"]
mod load;
#[path = "dispatch/proxy.rs"]
#[allow(dead_code)]
mod proxy;

use harness::{PATIENCE, Stop, process, wait_until};
use load::{Load, ends};
use proxy::Proxy;
use std::time::{Duration, Instant};

/// Enough that the load is not over before the fault.
const MANY: usize = 400;
const GIVEN_UP: &str = "given up after 15 s";

// Req: L2
#[test]
fn a_restarted_server_costs_no_message() {
    let mut load = Load::new(MANY, &[]);
    let config = load.direct(&[]).write();
    let dispatcher = load.dispatcher(&config);
    for how in [Stop::Fast, Stop::Immediate] {
        load.until_under_way();
        load.server.restart(how);
        load.reconnect();
        load.audit();
        load.add(MANY);
    }
    load.finish(&dispatcher);
    assert_eq!(ends(dispatcher, "after restarts of the server"), 0);
}

// Req: L2
#[test]
fn a_killed_server_costs_no_message() {
    let mut load = Load::new(MANY, &[]);
    let config = load.direct(&[]).write();
    let dispatcher = load.dispatcher(&config);
    load.until_under_way();
    // One of its processes: the server ends all others and recovers by itself.
    let backend = load.database.number(
        "SELECT pid::bigint FROM pg_stat_activity WHERE application_name LIKE 'pepsi-stage-%' LIMIT 1",
    );
    assert!(process::signal("KILL", &backend.to_string()));
    // It lets others in until it has seen that.
    wait_until("the server has ended its sessions", PATIENCE, || {
        load.database.client.batch_execute("SELECT").is_err()
    });
    load.reconnect();
    load.audit();
    load.add(MANY);
    load.until_under_way();
    load.server.kill();
    load.server.start_again();
    load.reconnect();
    load.finish(&dispatcher);
    assert_eq!(ends(dispatcher, "after the server was killed"), 0);
}

// Req: W3
#[test]
fn a_locked_queue_is_waited_for() {
    let mut load = Load::new(MANY, &[]);
    let config = load.direct(&[]).write();
    let dispatcher = load.dispatcher(&config);
    load.until_under_way();
    let mut other = load.database.connect();
    let mut lock = other.transaction().unwrap();
    lock.batch_execute("LOCK TABLE pepsi.workqueue IN ACCESS EXCLUSIVE MODE").unwrap();
    let since = Instant::now();
    wait_until("five seconds", PATIENCE, || since.elapsed() > Duration::from_secs(5));
    lock.rollback().unwrap();
    load.add(MANY);
    load.until_under_way();
    let mut lock = other.transaction().unwrap();
    lock.batch_execute("LOCK TABLE pepsi.workqueue IN ACCESS EXCLUSIVE MODE").unwrap();
    assert_eq!(ends(dispatcher, "while the queue is locked"), 0);
    lock.rollback().unwrap();
    let dispatcher = load.dispatcher(&config);
    load.finish(&dispatcher);
}

// Req: L2, D3
#[test]
fn a_stopped_server_is_given_up_and_found_again() {
    let mut load = Load::new(MANY, &[]);
    let config = load.direct(&[]).write();
    let dispatcher = load.dispatcher(&config);
    load.until_under_way();
    load.server.freeze();
    // First the statement under way, then a connection that the kernel makes and nobody answers on.
    wait_until("both are given up", PATIENCE, || dispatcher.log().matches(GIVEN_UP).count() >= 2);
    load.server.thaw();
    dispatcher.wait_for_log("connected to the database again", PATIENCE);
    load.audit();
    load.add(MANY);
    load.until_under_way();
    load.server.freeze();
    assert_eq!(ends(dispatcher, "while the server is stopped"), 0);
    load.server.thaw();
    let dispatcher = load.dispatcher(&config);
    load.finish(&dispatcher);
}

/// The dispatcher goes through the proxy, its workers do not.
fn behind_a_proxy(load: &mut Load) -> (Proxy, harness::Process) {
    let folder = load.database.folder().to_owned();
    let proxy = Proxy::start(&folder, folder.with_file_name(".s.PGSQL.5432"));
    let direct = load.direct(&[]).write();
    let url = format!("postgres://postgres@/{}?host={}", load.database.name, folder.display());
    let config = load.config(&url, "proxied.conf", &[]);
    let config = config.set("pepsi-dispatch", "CONFIG_FILE", &direct.display().to_string()).write();
    let dispatcher = load.dispatcher(&config);
    (proxy, dispatcher)
}

// Req: L2, D6, D7
#[test]
fn a_connection_that_is_dropped_without_a_word_is_given_up() {
    let mut load = Load::new(MANY, &[]);
    let (proxy, dispatcher) = behind_a_proxy(&mut load);
    load.until_under_way();
    proxy.forget();
    dispatcher.wait_for_log(GIVEN_UP, PATIENCE);
    dispatcher.wait_for_log("connected to the database again", PATIENCE);
    load.finish(&dispatcher);
    proxy.forget();
    wait_until("it waits for the next heartbeat's answer", PATIENCE, || proxy.holds_something());
    assert_eq!(ends(dispatcher, "while its statement is dropped"), 0);
}

// Req: L2, D3
#[test]
fn a_server_that_accepts_and_stays_mute_is_given_up() {
    let mut load = Load::new(MANY, &[]);
    let (proxy, dispatcher) = behind_a_proxy(&mut load);
    load.until_under_way();
    proxy.fall_silent();
    proxy.cut();
    dispatcher.wait_for_log(GIVEN_UP, PATIENCE);
    proxy.speak_again();
    dispatcher.wait_for_log("connected to the database again", PATIENCE);
    load.audit();
    load.add(MANY);
    load.until_under_way();
    let failures = dispatcher.log().matches(GIVEN_UP).count();
    proxy.fall_silent();
    proxy.cut();
    wait_until("it is mute again", PATIENCE, || dispatcher.log().matches(GIVEN_UP).count() > failures);
    assert_eq!(ends(dispatcher, "while a connection is not answered"), 0);
    // Or its session, and with it the lock, would stay for as long as the server believes in the connection.
    proxy.refuse(true);
    let config = load.direct(&[]).write();
    let dispatcher = load.dispatcher(&config);
    load.finish(&dispatcher);
}

// Req: D6, D4
#[test]
fn a_lock_that_went_to_another_dispatcher_costs_no_message() {
    let mut load = Load::new(MANY, &[]);
    let (proxy, mut first) = behind_a_proxy(&mut load);
    load.until_under_way();
    let config = load.direct(&[]).write();
    let second = load.dispatcher(&config);
    second.wait_for_log("another dispatcher", PATIENCE);
    proxy.refuse(true);
    second.wait_for_log("ready", PATIENCE);
    load.audit();
    proxy.refuse(false);
    assert_eq!(first.wait(PATIENCE), 1);
    load.finish(&second);
    assert_eq!(ends(second, "after it took the lock over"), 0);
}

// Req: O1
#[test]
fn too_few_connections_cost_no_message() {
    // Of these the server keeps three for itself, the dispatcher has one, the test two.
    let mut load = Load::new(MANY, &[("max_connections", "9")]);
    let config = load.direct(&[("PARALLELISM", "8"), ("QUEUE_LIMIT", "1")]).write();
    let dispatcher = load.dispatcher(&config);
    dispatcher.wait_for_log("53300", PATIENCE);
    load.finish(&dispatcher);
    assert_eq!(ends(dispatcher, "short of connections"), 0);
}
