//! `pepsi install-links`: a folder of links by which each program can be called under its own name.

use crate::{exit, fail};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Makes a link to this binary for each name. A link that is there is replaced; anything else of that name is left
/// alone, and the rest is not done. The exit code.
pub fn install(folder: &Path, names: impl Iterator<Item = &'static str>) -> u8 {
    let binary = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => {
            return fail(exit::CANNOT_CREATE, &format!("cannot find this binary's own path: {error}"));
        }
    };
    for name in names {
        let link = folder.join(name);
        if let Err(error) = point(&link, &binary) {
            return fail(exit::CANNOT_CREATE, &format!("cannot make the link {}: {error}", link.display()));
        }
    }
    exit::OK
}

fn point(link: &Path, binary: &Path) -> io::Result<()> {
    match link.symlink_metadata() {
        Ok(found) if found.is_symlink() => std::fs::remove_file(link)?,
        Ok(_) => return Err(io::Error::other("there is a file of that name, and it is no link")),
        Err(_) => {}
    }
    symlink(binary, link)
}
