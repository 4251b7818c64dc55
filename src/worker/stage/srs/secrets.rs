//! The secrets of a section: SECRET, or SECRET_FILE with one a line, the newest first.
//!
//! Invariant: no error shows any of one.

use crate::host;
use crate::proto::conf::{ConfError, Section};
use std::path::Path;

/// In octets: shorter ones can be guessed from one address that was made with them.
const SHORTEST: usize = 16;

/// Every one is tried on an address that none of them made.
const MOST: usize = 16;

/// The option that holds them, and the secrets.
pub fn read(section: &Section<'_>) -> Result<(&'static str, Vec<String>), ConfError> {
    let (secret, file) = (section.get("SECRET")?, section.get("SECRET_FILE")?);
    let (option, secrets) = match (secret, file) {
        (Some(secret), None) => ("SECRET", vec![secret]),
        (None, Some(file)) => ("SECRET_FILE", read_file(section, &file)?),
        (Some(_), Some(_)) => return Err(section.error("SECRET", "is one too many: SECRET_FILE is set too")),
        (None, None) => return Err(section.error("SECRET_FILE", "is missing, and there is no SECRET either")),
    };
    if secrets.is_empty() || secrets.len() > MOST {
        return Err(section.error(option, &format!("holds {} secrets, not 1 to {MOST}", secrets.len())));
    }
    if let Some(at) = secrets.iter().position(|secret| secret.len() < SHORTEST) {
        return Err(section.error(option, &format!("secret {} is shorter than {SHORTEST} octets", at + 1)));
    }
    Ok((option, secrets))
}

/// One a line, without outer blanks; empty lines and those that begin with `#` do not count.
fn read_file(section: &Section<'_>, file: &str) -> Result<Vec<String>, ConfError> {
    if !file.starts_with('/') {
        return Err(section.error("SECRET_FILE", "is no absolute path"));
    }
    let text = host::read_secrets(Path::new(file))
        .map_err(|why| section.error("SECRET_FILE", &format!("cannot read {file}: {why}")))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
