//! The host around a program: the configuration file and where it is searched, the host name, wall-clock time,
//! the user's name. The one place that reads the environment for them.

use crate::proto::conf::Conf;
use std::path::{Path, PathBuf};

/// A configuration that was read, and the absolute path it came from.
pub struct Loaded {
    pub conf: Conf,
    pub path: PathBuf,
}

/// Reads `explicit`, or else the first that exists of $PEPSI_CONFIG, ~/.config/pepsi.conf, /etc/pepsi/pepsi.conf.
/// The error is one line that names file and line, or the places that were searched.
pub fn load_config(explicit: Option<&Path>) -> Result<Loaded, String> {
    let _ = explicit;
    unimplemented!()
}
