//! What the dispatcher tells its supervisor (D8): sd_notify(3) and the watchdog, as datagrams to `$NOTIFY_SOCKET`.
//!
//! Invariants: nothing here waits; without a supervisor nothing is sent; a message that cannot be sent is lost and
//! the dispatcher goes on, since the supervisor notices by itself.

use crate::{Level, log};
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Whoever started us, as far as it wants to hear.
#[derive(Debug, Default)]
pub struct Supervisor {
    line: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// `variable` looks an environment variable up.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>) -> Supervisor {
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Supervisor::default();
        };
        let line = match open(name.as_bytes()) {
            Ok(line) => line,
            Err(error) => {
                let name = name.to_string_lossy();
                log(Level::Warning, "", "cannot use $NOTIFY_SOCKET", &[("name", &name), ("error", &error)]);
                return Supervisor::default();
            }
        };
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&usec| usec > 0 && is_for_us);
        Supervisor { line: Some(line), watchdog: watchdog.map(Duration::from_micros) }
    }

    /// How often to say WATCHDOG=1: twice in the time after which the supervisor gives us up.
    pub fn ping_every(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// Sends one assignment, such as `READY=1`.
    pub fn say(&self, assignment: &str) {
        let Some((socket, address)) = &self.line else { return };
        if let Err(error) = socket.send_to_addr(assignment.as_bytes(), address) {
            log(Level::Debug, "", "cannot tell the supervisor", &[("what", &assignment), ("error", &error)]);
        }
    }
}

/// A path, or a name of the abstract namespace behind an `@`.
fn open(name: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor(variables: &[(&str, &str)]) -> Supervisor {
        Supervisor::find(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 100];
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let count = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    // Req: D8
    #[test]
    fn speaks_to_a_path_and_to_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("pepsi-notify-{}", std::process::id()));
        let socket = UnixDatagram::bind(&path).unwrap();
        supervisor(&[("NOTIFY_SOCKET", path.to_str().unwrap())]).say("READY=1");
        assert_eq!(heard(&socket), "READY=1");
        std::fs::remove_file(&path).unwrap();

        let name = format!("pepsi-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let supervisor = supervisor(&[("NOTIFY_SOCKET", &format!("@{name}"))]);
        supervisor.say("STOPPING=1");
        assert_eq!(heard(&socket), "STOPPING=1");
        drop(socket);
        supervisor.say("nobody listens any more");
    }

    // Req: D8
    #[test]
    fn pings_only_when_the_watchdog_is_ours() {
        let us = std::process::id().to_string();
        let with = |pid: &str, usec: &str| {
            let variables = [("NOTIFY_SOCKET", "@x"), ("WATCHDOG_PID", pid), ("WATCHDOG_USEC", usec)];
            supervisor(&variables).ping_every()
        };
        assert_eq!(with(&us, "3000000"), Some(Duration::from_millis(1500)));
        assert_eq!(with("1", "3000000"), None);
        assert_eq!(with(&us, "0"), None);
        assert_eq!(with(&us, "often"), None);
        let without_pid = supervisor(&[("NOTIFY_SOCKET", "@x"), ("WATCHDOG_USEC", "1000")]);
        assert_eq!(without_pid.ping_every(), Some(Duration::from_micros(500)));
        assert_eq!(supervisor(&[("WATCHDOG_USEC", "1000")]).ping_every(), None);
    }

    #[test]
    fn a_bad_name_is_no_supervisor() {
        for name in ["", &"x".repeat(200), &format!("@{}", "x".repeat(200))] {
            let supervisor = supervisor(&[("NOTIFY_SOCKET", name)]);
            assert!(supervisor.line.is_none());
            supervisor.say("READY=1");
        }
    }
}
