//! One message into one Maildir, at most once.
//!
//! The message is written to `tmp/`, synced, linked to `new/` under a name made from its own id, and `new/` is synced. So
//! `new/` never holds part of a message, a link never replaces a file, and a second try after a crash finds the first
//! copy in `new/` or `cur/` as long as its reader has kept it. The name in `tmp/` is this process's own: nobody else's
//! half-written file can be linked. Every error names the action, the path and the system's reason.

use super::place::Place;
use crate::worker::error::StageError;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
const BUFFER: usize = 64 * 1024;
/// How far the clocks of the database and of the file system may differ.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// What a delivery is called, and when its message arrived.
pub struct Delivery<'a> {
    pub name: &'a str,
    pub received: SystemTime,
}

impl Delivery<'_> {
    /// Delivers what `write` writes.
    pub fn make(
        &self,
        place: &Place,
        write: &dyn Fn(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), StageError> {
        let maildir = place.path();
        let (tmp, new, cur) = (maildir.join("tmp"), maildir.join("new"), maildir.join("cur"));
        make_folders(place)?;
        for folder in [&tmp, &new, &cur] {
            make_folder(folder, true)?;
        }
        let target = new.join(self.name);
        if self.is_there(&target, &cur)? {
            // The crash may have come before this sync.
            return sync_folder(&new);
        }
        self.clear_leftovers(&tmp)?;
        let draft = Draft { path: tmp.join(format!("{}_{}", self.name, std::process::id())) };
        draft.fill(write)?;
        match fs::hard_link(&draft.path, &target) {
            Ok(()) => {}
            // Somebody else has delivered this same message meanwhile.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StageError::io("link into place", &target, error)),
        }
        drop(draft);
        sync_folder(&new)
    }

    /// Whether an earlier try delivered. A reader moves the file to `cur/`, with flags behind a colon, so that folder is
    /// read, but only where it was changed since the message came.
    fn is_there(&self, target: &Path, cur: &Path) -> Result<bool, StageError> {
        match fs::symlink_metadata(target) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(StageError::io("look for", target, error)),
        }
        let changed = fs::metadata(cur).and_then(|found| found.modified());
        let changed = changed.map_err(|error| StageError::io("look at", cur, error))?;
        if changed + CLOCK_SKEW < self.received {
            return Ok(false);
        }
        let is_ours = |name: &str| {
            name.strip_prefix(self.name).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        Ok(!list(cur, is_ours)?.is_empty())
    }

    /// Removes what a killed process left of this message.
    fn clear_leftovers(&self, tmp: &Path) -> Result<(), StageError> {
        let is_ours = |name: &str| name.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('_'));
        for path in list(tmp, is_ours)? {
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(StageError::io("remove", &path, error)),
            }
        }
        Ok(())
    }
}

/// A file in `tmp/`, gone when this is dropped.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn fill(&self, write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> Result<(), StageError> {
        // With O_EXCL, which create_new sets, a link of that name is not followed.
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(FILE_MODE).open(&self.path);
        let file = file.map_err(|error| StageError::io("create", &self.path, error))?;
        let written = || -> io::Result<()> {
            // The mode given to open is cut by the umask.
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
            let mut out = BufWriter::with_capacity(BUFFER, &file);
            write(&mut out)?;
            out.flush()?;
            file.sync_all()
        };
        written().map_err(|error| StageError::io("write", &self.path, error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // What stays is removed by the next try, or by the Maildir's reader after 36 hours.
        let _ = fs::remove_file(&self.path);
    }
}

/// The folders from the base, which has to be there, down to the Maildir.
fn make_folders(place: &Place) -> Result<(), StageError> {
    let is_folder = fs::metadata(&place.base).map(|found| found.is_dir());
    match is_folder {
        Ok(true) => {}
        Ok(false) => return Err(not_a_folder(&place.base)),
        Err(error) => return Err(StageError::io("find the folder", &place.base, error)),
    }
    let mut path = place.base.clone();
    for folder in &place.folders {
        path.push(folder);
        make_folder(&path, false)?;
    }
    Ok(())
}

/// Makes one folder if it is not there. `is_own`: a link to a folder will not do.
fn make_folder(path: &Path, is_own: bool) -> Result<(), StageError> {
    let look = || if is_own { fs::symlink_metadata(path) } else { fs::metadata(path) };
    match look() {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(not_a_folder(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(StageError::io("look at", path, error)),
    }
    let made = DirBuilder::new().mode(FOLDER_MODE).create(path);
    match made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE))) {
        Ok(()) => sync_folder(path.parent().unwrap_or(Path::new("/"))),
        // Another worker was faster; what it made still has to be a folder.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match look() {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) | Err(_) => Err(not_a_folder(path)),
        },
        Err(error) => Err(StageError::io("make the folder", path, error)),
    }
}

fn not_a_folder(path: &Path) -> StageError {
    StageError::host(format!("{} is no folder", path.display()))
}

/// The paths of a folder's entries that are wanted. A name that is not UTF-8 is none of ours.
fn list(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, StageError> {
    let failed = |error| StageError::io("read the folder", folder, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name.to_str().is_some_and(&is_wanted) {
            found.push(folder.join(name));
        }
    }
    Ok(found)
}

/// Makes a folder's entries durable.
fn sync_folder(path: &Path) -> Result<(), StageError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| StageError::io("sync the folder", path, error))
}
