//! The mounts of this machine that are Azekura's. Reads `/proc/self/mounts` and never walks into a
//! mount, since a dead one would answer nothing but errors.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::host::process;

/// What stands before the container's name in the source column.
pub(crate) const SOURCE_PREFIX: &str = "azekura:";

/// A mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The pool's name.
    pub(crate) pool: String,
    /// The container's name.
    pub(crate) container: Option<String>,
    /// The directory.
    pub(crate) dir: PathBuf,
}

/// The mounts of Azekura, oldest first.
pub(crate) fn list() -> Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    Ok(parse(&table))
}

fn parse(table: &[u8]) -> Vec<MountEntry> {
    let entry = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let source = String::from_utf8(unescape(fields.next()?)).ok()?;
        let dir = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
        fields.next()?.starts_with(b"fuse").then_some(())?;
        let (pool, container) = match source.strip_prefix(SOURCE_PREFIX)?.split_once('/') {
            Some((pool, container)) => (pool.to_owned(), Some(container.to_owned())),
            None => (source.strip_prefix(SOURCE_PREFIX)?.to_owned(), None),
        };
        Some(MountEntry { pool, container, dir })
    };
    table.split(|byte| *byte == b'\n').filter_map(entry).collect()
}

/// Blanks and backslashes stand as three octal digits in the table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                out.push(value);
                rest = &after[3..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

/// The topmost mount of Azekura at `dir`.
pub(crate) fn at(dir: &Path) -> Result<Option<MountEntry>> {
    Ok(list()?.into_iter().rev().find(|entry| entry.dir == dir))
}

/// The path of a mount point as the mount table has it. Only what is above it is looked at, since
/// a dead mount cannot be.
pub(crate) fn canonical_mount_point(dir: &Path) -> Result<PathBuf> {
    match std::fs::canonicalize(dir) {
        Ok(path) => Ok(path),
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            let path = super::places::absolute(dir)?;
            match (path.parent(), path.file_name()) {
                (Some(above), Some(name)) => Ok(std::fs::canonicalize(above)?.join(name)),
                _ => Ok(path),
            }
        }
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", dir.display())),
    }
}

/// Whether a mount's process is gone, so that only errors come from it.
pub(crate) fn is_dead(dir: &Path) -> bool {
    matches!(rustix::fs::statfs(dir), Err(Errno::NOTCONN))
}

/// Takes the mount at `dir` away.
///
/// # Errors
/// If it is in use (and `lazy` is not set) or another user's.
pub(crate) fn detach(dir: &Path, lazy: bool) -> Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(dir, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(Errno::BUSY) => return busy(dir),
        Err(Errno::INVAL) => bail!("nothing is mounted at {}", dir.display()),
        Err(Errno::PERM | Errno::ACCESS) => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot unmount {}", dir.display()));
        }
    }
    let mut helper = Command::new("fusermount3");
    helper.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(dir);
    let output = helper.output().context(
        "cannot run fusermount3, which unmounts for ordinary users: install the package fuse3",
    )?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.to_ascii_lowercase().contains("busy") {
        return busy(dir);
    }
    bail!("cannot unmount {}: {message}", dir.display())
}

fn busy(dir: &Path) -> Result<()> {
    let users = process::users_of(dir);
    let users = if users.is_empty() { String::new() } else { format!(" by {}", users.join(", ")) };
    bail!(
        "{} is in use{users}: end that first, or run 'azekura umount --lazy {}'",
        dir.display(),
        dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_with_their_escaped_names() {
        let table = b"proc /proc proc rw 0 0\n\
            azekura:default /mnt/with\\040blank fuse.azekura rw 0 0\n\
            azekura:p/c /m\\134n fuse rw 0 0\n\
            azekura:no /x ext4 rw 0 0\n";
        let entries = parse(table);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].dir, PathBuf::from("/mnt/with blank"));
        assert_eq!((entries[0].pool.as_str(), &entries[0].container), ("default", &None));
        assert_eq!(entries[1].dir, PathBuf::from("/m\\n"));
        assert_eq!(entries[1].container.as_deref(), Some("c"));
    }
}
