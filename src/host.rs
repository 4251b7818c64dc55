//! The host around a program: the configuration file and where it is searched, the host's names, wall-clock time,
//! the user's name. The one place that reads the environment for them.
//!
//! Everything is read from files (`/proc`, `/etc`), never through the C library's resolver or NSS: no thread, no
//! socket, no plug-in is loaded for it. What cannot be found has a plain default, so that only the configuration fails.

use crate::proto::conf::{self, Conf, ConfError, Sources};
use crate::sys;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A configuration file, and each file it pulls in, ends here: a wrong path must not fill memory.
const MAX_CONFIG: u64 = 4 << 20;
/// A table of a stage; each of its workers holds a copy.
const MAX_TABLE: u64 = 16 << 20;
/// The same for /etc/passwd, which is long on some hosts.
const MAX_PASSWD: u64 = 16 << 20;
const MAX_SMALL: u64 = 64 << 10;

/// A configuration that was read, and the absolute path it came from.
pub struct Loaded {
    pub conf: Conf,
    pub path: PathBuf,
}

/// Why a configuration file is of no use.
pub enum Unusable {
    /// It is not there, or may not be read: nothing is known of what it says.
    Unreadable(String),
    /// What it says does not parse.
    Malformed(String),
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
    match read_config(&path) {
        Ok(conf) => Ok(Loaded { conf, path }),
        Err(Unusable::Unreadable(error) | Unusable::Malformed(error)) => Err(error),
    }
}

/// Reads that file. The error is one line.
pub fn read_config(path: &Path) -> Result<Conf, Unusable> {
    let malformed = |error: ConfError| Unusable::Malformed(error.to_string());
    let name = path.to_string_lossy();
    let bytes = read_bytes(path, MAX_CONFIG);
    let bytes = bytes.map_err(|error| Unusable::Unreadable(cannot_read(path, &error)))?;
    let text = conf::decode(&name, bytes).map_err(malformed)?;
    let sources = Sources {
        variable: &|name| std::env::var(name).ok(),
        inline: &|name| {
            let bytes = read_bytes(Path::new(name), MAX_CONFIG).map_err(|error| error.to_string())?;
            conf::decode(name, bytes).map_err(|error| error.to_string())
        },
    };
    Conf::parse(&name, &text, &sources).map_err(malformed)
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
    Err(format!(
        "no configuration: name one with -c (pepsi-sendmail: -C) or $PEPSI_CONFIG, or write {}",
        names.join(" or ")
    ))
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

/// Reads a file of secrets; the error is a clause. One that everybody may read or change is refused: its secrets are none.
pub fn read_secrets(path: &Path) -> Result<String, String> {
    let read = || {
        let file = open_regular(path)?;
        let mode = file.metadata()?.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            let text = format!("its mode {mode:04o} lets everybody use it; take that away: chmod o= FILE");
            return Err(std::io::Error::other(text));
        }
        read_open(file, MAX_SMALL)
    };
    let bytes = read().map_err(|error: std::io::Error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// A table that an option names, such as one of aliases. The error is at the line that is wrong, or at line 0.
pub fn read_table(path: &str) -> Result<String, ConfError> {
    let wrong = |message: String| ConfError { file: path.to_owned(), line: 0, message };
    let bytes = read_bytes(Path::new(path), MAX_TABLE);
    conf::decode(path, bytes.map_err(|error| wrong(format!("cannot read it: {error}")))?)
}

fn read_bytes(path: &Path, max: u64) -> std::io::Result<Vec<u8>> {
    read_open(open_regular(path)?, max)
}

/// Regular files alone: a FIFO or a device may keep its reader waiting for ever, at its opening already.
fn open_regular(path: &Path) -> std::io::Result<File> {
    let file = File::options().read(true).custom_flags(sys::DO_NOT_WAIT).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "is a directory" } else { "is no regular file" };
        return Err(std::io::Error::other(what));
    }
    Ok(file)
}

fn read_open(file: File, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(std::io::Error::other(format!("longer than {max} bytes")));
    }
    Ok(bytes)
}

/// The kernel's host name, `localhost` where it is none that fits into a header field.
pub fn hostname() -> String {
    sys::hostname().ok().and_then(|name| host_name(name.as_bytes())).unwrap_or_else(|| "localhost".into())
}

/// The domain of local addresses: /etc/mailname, else the host's name.
pub fn mail_name() -> String {
    let file = read_bytes(Path::new("/etc/mailname"), MAX_SMALL).unwrap_or_default();
    host_name(file.split(|byte| *byte == b'\n').next().unwrap_or_default()).unwrap_or_else(hostname)
}

/// A plain host name, or nothing: it goes into header fields and addresses as it is.
fn host_name(line: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(line).ok()?.trim().trim_end_matches('.');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_name =
        !name.is_empty() && name.len() <= 253 && name.chars().all(is_plain) && !name.starts_with('.');
    is_name.then(|| name.to_owned())
}

/// Whether this process has another user's or group's rights than the one who started it, by a set-id bit.
pub fn is_set_id() -> bool {
    is_set_id_status(&read_bytes(Path::new("/proc/self/status"), MAX_SMALL).unwrap_or_default())
}

/// The `Uid:` and `Gid:` lines hold the real and then the effective number.
fn is_set_id_status(status: &[u8]) -> bool {
    String::from_utf8_lossy(status).lines().any(|line| {
        let numbers = line.strip_prefix("Uid:").or_else(|| line.strip_prefix("Gid:")).unwrap_or_default();
        let mut numbers = numbers.split_ascii_whitespace();
        numbers.next() != numbers.next()
    })
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

/// This binary as it is running, also after an upgrade has replaced the file.
pub const OURSELVES: &str = "/proc/self/exe";

/// The file that PROGRAM starts (requirement P6). A folder of PATH that is not absolute is skipped: it would depend on where we
/// were started.
pub fn find_program(program: &str, path: &OsStr) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program));
    }
    let found = std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|file| is_executable(file));
    found.or_else(|| crate::is_builtin(program).then(|| PathBuf::from(OURSELVES)))
}

/// Whether `program` is there and may be executed, as far as its file tells.
pub fn is_program(program: &str, path: &OsStr) -> bool {
    find_program(program, path).is_some_and(|file| is_executable(&file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests;
