//! The host around a program: the configuration file and where it is searched, the host's names, wall-clock time,
//! the user's name. The one place that reads the environment for them.
//!
//! Everything is read from files (`/proc`, `/etc`), never through the C library's resolver or NSS: no thread, no
//! socket, no plug-in is loaded for it. What cannot be found has a plain default, so that only the configuration fails.

use crate::proto::conf::{Conf, Sources};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A configuration file, and each file it pulls in, ends here: a wrong path such as /dev/zero must not fill memory.
const MAX_CONFIG: u64 = 4 << 20;
/// The same for /etc/passwd, which is long on some hosts.
const MAX_PASSWD: u64 = 16 << 20;
const MAX_SMALL: u64 = 64 << 10;

/// A configuration that was read, and the absolute path it came from.
pub struct Loaded {
    pub conf: Conf,
    pub path: PathBuf,
}

/// Reads `explicit`, or else $PEPSI_CONFIG where it is set, or else the first that exists of ~/.config/pepsi.conf and
/// /etc/pepsi/pepsi.conf. The error is one line that names file and line, or the places that were searched.
pub fn load_config(explicit: Option<&Path>) -> Result<Loaded, String> {
    let given = explicit.map(Path::to_path_buf).or_else(|| variable_path("PEPSI_CONFIG"));
    let path = match given {
        Some(path) => path,
        None => search(&places(variable_path("HOME").as_deref()))?,
    };
    if path.as_os_str().is_empty() {
        return Err("the name of the configuration file is empty".into());
    }
    let path = std::path::absolute(&path).map_err(|error| cannot_read(&path, &error))?;
    let text = read_text(&path, MAX_CONFIG)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let sources = Sources {
        variable: &|name| std::env::var(name).ok(),
        inline: &|name| read_text(&folder.join(name), MAX_CONFIG),
    };
    let conf = Conf::parse(&path.to_string_lossy(), &text, &sources).map_err(|error| error.to_string())?;
    Ok(Loaded { conf, path })
}

fn places(home: Option<&Path>) -> Vec<PathBuf> {
    let home = home.filter(|home| home.is_absolute()).map(|home| home.join(".config/pepsi.conf"));
    home.into_iter().chain([PathBuf::from("/etc/pepsi/pepsi.conf")]).collect()
}

/// The first place that has a configuration. One that is there but cannot be read is used, and fails, by name.
fn search(places: &[PathBuf]) -> Result<PathBuf, String> {
    if let Some(found) = places.iter().find(|place| !is_absent(place)) {
        return Ok(found.clone());
    }
    let names: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(format!("no configuration: name one with -c or $PEPSI_CONFIG, or write {}", names.join(" or ")))
}

fn is_absent(place: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    std::fs::metadata(place).is_err_and(|error| matches!(error.kind(), NotFound | NotADirectory))
}

fn variable_path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn cannot_read(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot read the configuration file {}: {error}", path.display())
}

/// A whole file as text, at most `max` bytes of it; the error names the file.
fn read_text(path: &Path, max: u64) -> Result<String, String> {
    let bytes = read_bytes(path, max).map_err(|error| cannot_read(path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let bad = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..bad].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{}:{line}: not UTF-8", path.display())
    })
}

fn read_bytes(path: &Path, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(std::io::Error::other(format!("longer than {max} bytes")));
    }
    Ok(bytes)
}

/// The kernel's host name, `localhost` where there is none.
pub fn hostname() -> String {
    first_name("/proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".into())
}

/// The domain of local addresses: /etc/mailname, else the host's name.
pub fn mail_name() -> String {
    first_name("/etc/mailname").unwrap_or_else(hostname)
}

/// The first line of a file when it is a plain host name: it goes into header fields and addresses as it is.
fn first_name(path: &str) -> Option<String> {
    let bytes = read_bytes(Path::new(path), MAX_SMALL).ok()?;
    host_name(bytes.split(|byte| *byte == b'\n').next().unwrap_or_default())
}

fn host_name(line: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(line).ok()?.trim().trim_end_matches('.');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_name =
        !name.is_empty() && name.len() <= 253 && name.chars().all(is_plain) && !name.starts_with('.');
    is_name.then(|| name.to_owned())
}

/// The user who started this process, also where the binary is set-id: the real uid.
pub fn real_uid() -> Option<u32> {
    status_uid(&read_bytes(Path::new("/proc/self/status"), MAX_SMALL).ok()?, 0)
}

/// The user whose rights this process has.
pub fn effective_uid() -> Option<u32> {
    status_uid(&read_bytes(Path::new("/proc/self/status"), MAX_SMALL).ok()?, 1)
}

/// The `column`th number of the `Uid:` line: real, effective, saved, file system.
fn status_uid(status: &[u8], column: usize) -> Option<u32> {
    let text = std::str::from_utf8(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(column)?.parse().ok()
}

/// The login name of `uid` in /etc/passwd; `None` where it has no entry there.
pub fn user_name(uid: u32) -> Option<String> {
    passwd_name(&read_bytes(Path::new("/etc/passwd"), MAX_PASSWD).ok()?, uid)
}

fn passwd_name(passwd: &[u8], uid: u32) -> Option<String> {
    let wanted = uid.to_string();
    let line = passwd
        .split(|byte| *byte == b'\n')
        .find(|line| line.split(|byte| *byte == b':').nth(2) == Some(wanted.as_bytes()))?;
    let name = std::str::from_utf8(line.split(|byte| *byte == b':').next()?).ok()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '$');
    (!name.is_empty() && name.chars().all(is_plain)).then(|| name.to_owned())
}

/// Microseconds since 1970 by the wall clock; 0 while it stands before that.
pub fn wall_clock_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_plain_or_none() {
        assert_eq!(host_name(b" mail.example.org. "), Some("mail.example.org".into()));
        for bad in [&b""[..], b".", b"a b", b"a\x01b", b"caf\xc3\xa9", b"\xff", b".example", b"a@b"] {
            assert_eq!(host_name(bad), None, "{bad:?}");
        }
        assert_eq!(host_name(&[b'a'; 254]), None);
    }

    #[test]
    fn a_user_name_is_found_by_its_uid_alone() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nbad:x:10\nann:x:1000:0::/home/ann:/bin/sh\na\x01b:x:7:7:::\n:x:8:8:::\n";
        assert_eq!(passwd_name(passwd, 0), Some("root".into()));
        assert_eq!(passwd_name(passwd, 1000), Some("ann".into()));
        for uid in [1, 7, 8, 100] {
            assert_eq!(passwd_name(passwd, uid), None, "{uid}");
        }
    }

    #[test]
    fn the_uid_line_is_read_by_column() {
        let status = b"Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n";
        assert_eq!((status_uid(status, 0), status_uid(status, 1)), (Some(1000), Some(0)));
        assert_eq!(status_uid(b"Name:\tx\n", 0), None);
    }

    // Req: CLI5
    #[test]
    fn a_search_that_finds_nothing_names_the_places() {
        let both = places(Some(Path::new("/home/ann")));
        assert_eq!(both, [Path::new("/home/ann/.config/pepsi.conf"), Path::new("/etc/pepsi/pepsi.conf")]);
        assert_eq!(places(None), both[1..]);
        assert_eq!(places(Some(Path::new("relative"))), both[1..]);
        let nowhere = [PathBuf::from("/nonexistent/a"), PathBuf::from("/dev/null/b")];
        let error = search(&nowhere).unwrap_err();
        assert!(error.ends_with("write /nonexistent/a or /dev/null/b"), "{error}");
        assert_eq!(search(&[nowhere[0].clone(), PathBuf::from("/dev/null")]), Ok(PathBuf::from("/dev/null")));
    }

    // Req: CLI5
    #[test]
    fn an_unreadable_file_is_named() {
        let missing = load_config(Some(Path::new("/nonexistent/x.conf"))).err().unwrap();
        assert!(missing.contains("/nonexistent/x.conf"), "{missing}");
        let folder = load_config(Some(Path::new("/"))).err().unwrap();
        assert!(folder.contains("directory"), "{folder}");
        assert!(load_config(Some(Path::new("/dev/zero"))).err().unwrap().contains("longer than"));
        assert!(load_config(Some(Path::new(""))).err().unwrap().contains("empty"));
    }
}
