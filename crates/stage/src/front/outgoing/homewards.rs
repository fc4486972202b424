//! Changes at home: the few steps by which what comes gets there. Each is right when it finds itself done.

use std::io;

use azekura_proto::{FileKind, Timestamp};
use rustix::io::Errno;

use crate::source::{NewFile, Source};

/// Directories on the way to a file that nobody has told of have this mode.
const PARENT_MODE: u32 = 0o755;

/// Begins a file. The directories above it are made if somebody has removed them.
pub(crate) fn create(home: &dyn Source, path: &[u8]) -> io::Result<Box<dyn NewFile>> {
    match home.create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_parents(home, path)?;
            home.create(path)
        }
        created => created,
    }
}

/// Makes a symlink, and the directories above it.
pub(crate) fn make_link(home: &dyn Source, path: &[u8], text: &[u8]) -> io::Result<()> {
    match home.make_link(path, text) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_parents(home, path)?;
            home.make_link(path, text)
        }
        made => made,
    }
}

/// Gives a file that is at home a further name, in the place of what has it, and makes the directories above.
///
/// # Errors
/// If the home has no such thing, or the file is not there.
pub(crate) fn hard_link(home: &dyn Source, to: &[u8], path: &[u8]) -> io::Result<()> {
    match home.hard_link(to, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_parents(home, path)?;
            home.hard_link(to, path)
        }
        made => made,
    }
}

/// Gives a directory its mode and its time, what is in it being there.
pub(crate) fn settle_dir(
    home: &dyn Source,
    path: &[u8],
    mode: u32,
    mtime: Timestamp,
) -> io::Result<()> {
    let stands = match home.attributes(path) {
        // Somebody has removed it there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        stands => stands?,
    };
    if stands.mode != mode {
        home.set_mode(path, mode)?;
    }
    if stands.mtime != mtime {
        home.set_mtime(path, mtime)?;
    }
    Ok(())
}

fn make_parents(home: &dyn Source, path: &[u8]) -> io::Result<()> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    for (slash, _) in slashes {
        home.make_dir(&path[..slash], PARENT_MODE)?;
    }
    Ok(())
}

/// Removes a name; false if there was nothing.
pub(crate) fn remove(home: &dyn Source, path: &[u8]) -> io::Result<bool> {
    match home.remove(path) {
        Ok(()) => Ok(true),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Whether there is a directory.
pub(crate) fn has_dir(home: &dyn Source, path: &[u8]) -> bool {
    home.attributes(path).is_ok_and(|found| found.kind == FileKind::Directory)
}

/// Whether there is a symlink of this text.
pub(crate) fn has_link(home: &dyn Source, path: &[u8], text: &[u8]) -> bool {
    home.attributes(path).is_ok_and(|found| found.kind == FileKind::Symlink && found.link == text)
}
