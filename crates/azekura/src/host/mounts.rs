//! The mounts of this machine that are Azekura's. Owns what their source in the mount table says: the
//! container by the names that its user knows, and the pool by its id, since another user's pool may
//! have the same name. Reads `/proc/self/mounts` and never walks into a mount, since a dead one would
//! answer nothing but errors, and one of a pool that does not answer nothing at all for a while.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura_client::PoolFile;
use azekura_proto::pool_map::PoolMap;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Pid;

use crate::host::process;
use crate::host::records::{self, LocalMount};
use crate::names::DEFAULT_CONTAINER;

/// What stands before the container's name in the source column.
const SOURCE_PREFIX: &str = "azekura:";
/// What stands before the pool's id there.
const ID_MARK: char = '@';
/// So many digits of the id: enough for the pools that one machine has mounted.
const ID_DIGITS: usize = 8;

/// How long a mount of another user may take to say that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// A mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The pool's name.
    pub(crate) pool: String,
    /// The first digits of the pool's id.
    pool_id: Option<String>,
    /// The container's name.
    pub(crate) container: Option<String>,
    /// The directory.
    pub(crate) dir: PathBuf,
}

impl MountEntry {
    /// Whether it is a mount of this pool.
    fn is_of(&self, map: &PoolMap) -> bool {
        match &self.pool_id {
            Some(id) => *id == id_digits(map),
            None => self.pool == map.name,
        }
    }
}

fn id_digits(map: &PoolMap) -> String {
    map.pool.to_string().chars().take(ID_DIGITS).collect()
}

/// The source of a mount in the mount table.
pub(crate) fn source(map: &PoolMap, container: &str) -> String {
    let container = match container {
        DEFAULT_CONTAINER => String::new(),
        other => format!("/{other}"),
    };
    format!("{SOURCE_PREFIX}{}{container}{ID_MARK}{}", map.name, id_digits(map))
}

/// The mounts of a pool.
///
/// # Errors
/// If the mount table cannot be read.
pub(crate) fn of(map: &PoolMap) -> Result<Vec<MountEntry>> {
    Ok(list()?.into_iter().filter(|mount| mount.is_of(map)).collect())
}

/// The mounts of the pool that this user knows by that name.
///
/// # Errors
/// If the mount table cannot be read.
pub(crate) fn of_named(pool: &str) -> Result<Vec<MountEntry>> {
    match PoolFile::load(&PoolFile::path_of(pool)) {
        Ok(file) => of(&file.map),
        // What is left of a pool has no id to go by.
        Err(_) => Ok(list()?.into_iter().filter(|mount| mount.pool == pool).collect()),
    }
}

/// The mounts of Azekura, oldest first.
pub(crate) fn list() -> Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    Ok(parse(&table))
}

/// Type and options of the file system that a directory is on, as the mount table has them.
pub(crate) fn kind_of(dir: &Path) -> Option<(String, String)> {
    let dir = dir.canonicalize().ok()?;
    kind_in(&std::fs::read("/proc/self/mounts").ok()?, &dir)
}

/// The deepest mount above a directory; of several at one place the last is seen.
fn kind_in(table: &[u8], dir: &Path) -> Option<(String, String)> {
    let entry = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(1);
        let at = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
        let mut text = || Some(String::from_utf8_lossy(fields.next()?).into_owned());
        let (kind, options) = (text()?, text()?);
        dir.starts_with(&at).then(|| (at.components().count(), kind, options))
    };
    let entries = table.split(|byte| *byte == b'\n').filter_map(entry);
    entries.max_by_key(|(depth, ..)| *depth).map(|(_, kind, options)| (kind, options))
}

fn parse(table: &[u8]) -> Vec<MountEntry> {
    let entry = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let source = String::from_utf8(unescape(fields.next()?)).ok()?;
        let dir = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
        fields.next()?.starts_with(b"fuse").then_some(())?;
        let source = source.strip_prefix(SOURCE_PREFIX)?;
        let (names, pool_id) = match source.rsplit_once(ID_MARK) {
            Some((names, id)) => (names, Some(id.to_owned())),
            None => (source, None),
        };
        let (pool, container) = match names.split_once('/') {
            Some((pool, container)) => (pool.to_owned(), Some(container.to_owned())),
            None => (names.to_owned(), None),
        };
        Some(MountEntry { pool, pool_id, container, dir })
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

/// The mount of Azekura that a directory is in; `None` if it is in another file system.
///
/// # Errors
/// If the mount table cannot be read, or the directory cannot be looked at.
pub(crate) fn above(dir: &Path) -> Result<Option<MountEntry>> {
    let dir = dir.canonicalize().with_context(|| format!("cannot look at {}", dir.display()))?;
    let table = std::fs::read("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    Ok(above_in(&table, &dir))
}

fn above_in(table: &[u8], dir: &Path) -> Option<MountEntry> {
    let point = |line: &[u8]| {
        let at = line.split(|byte| *byte == b' ').nth(1)?;
        Some(PathBuf::from(OsString::from_vec(unescape(at)))).filter(|at| dir.starts_with(at))
    };
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| Some((point(line)?, line)));
    // Of several at one place the last is seen.
    let (_, line) = points.max_by_key(|(at, _)| at.components().count())?;
    parse(line).pop()
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

/// The process of a mount, if it still runs.
pub(crate) fn process_of(record: &LocalMount) -> Option<Pid> {
    let command = if record.by_engine { "serve" } else { "mount" };
    process::running(record.pid).filter(|_| process::is_ours(record.pid, command))
}

/// The engine's process that serves a mount itself; `None` for a mount with a process of its own, or none.
pub(crate) fn engine_of(dir: &Path) -> Option<Pid> {
    let record: LocalMount = records::load(&records::mount_key(dir)).ok().flatten()?;
    process_of(&record).filter(|_| record.by_engine)
}

/// Waits until the engine's process that serves a mount itself serves it no longer. `false` if it still does
/// after `timeout`.
pub(crate) fn wait_until_left(dir: &Path, timeout: Duration) -> bool {
    let begun = Instant::now();
    while engine_of(dir).is_some() {
        if begun.elapsed() > timeout {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// The process that serves the mount at a directory, if this user started it.
pub(crate) fn server_of(dir: &Path) -> Option<u32> {
    let record: LocalMount = records::load(&records::mount_key(dir)).ok().flatten()?;
    process_of(&record).map(|process| process.as_raw_pid().cast_unsigned())
}

/// Whether a mount's process is gone, so that only errors come from it. A mount that has a process is
/// not asked: it would ask its pool.
pub(crate) fn is_dead(dir: &Path) -> bool {
    let record: Option<LocalMount> = records::load(&records::mount_key(dir)).ok().flatten();
    if record.as_ref().and_then(process_of).is_some() {
        return false;
    }
    let (told, hear) = std::sync::mpsc::channel();
    let dir = dir.to_owned();
    std::thread::spawn(move || {
        let answer = rustix::fs::statfs(&dir).map(drop);
        // Whoever asked may have gone on.
        let _ = told.send(answer);
    });
    hear.recv_timeout(SIGN_OF_LIFE) == Ok(Err(Errno::NOTCONN))
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
    fn a_directory_is_on_the_deepest_mount_above_it() {
        let table = b"/dev/a / ext4 rw,relatime 0 0\ntmpfs /d\\040x tmpfs rw 0 0\n\
            p /d\\040x fuse.azekura rw,nosuid 0 0\n";
        let kind = |dir: &str| kind_in(table, Path::new(dir)).unwrap();
        assert_eq!(kind("/home"), ("ext4".to_owned(), "rw,relatime".to_owned()));
        assert_eq!(kind("/d x/y"), ("fuse.azekura".to_owned(), "rw,nosuid".to_owned()));
        assert_eq!(kind("/dx").0, "ext4");
    }

    #[test]
    fn a_directory_is_in_the_mount_that_is_seen_there() {
        let table = b"/dev/a / ext4 rw 0 0\nazekura:p /m fuse.azekura rw 0 0\n\
            tmpfs /m/over tmpfs rw 0 0\nazekura:under /t fuse rw 0 0\ntmpfs /t tmpfs rw 0 0\n";
        let pool = |dir: &str| above_in(table, Path::new(dir)).map(|mount| mount.pool);
        assert_eq!(pool("/m/dir"), Some("p".to_owned()));
        for dir in ["/home", "/m/over/dir", "/t", "/mm"] {
            assert_eq!(pool(dir), None, "{dir}");
        }
    }

    #[test]
    fn mounts_are_found_with_their_escaped_names() {
        let table = b"proc /proc proc rw 0 0\n\
            azekura:default /mnt/with\\040blank fuse.azekura rw 0 0\n\
            azekura:p/c@12345678 /m\\134n fuse rw 0 0\n\
            azekura:no /x ext4 rw 0 0\n";
        let entries = parse(table);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].dir, PathBuf::from("/mnt/with blank"));
        assert_eq!((entries[0].pool.as_str(), &entries[0].container), ("default", &None));
        assert_eq!(entries[1].dir, PathBuf::from("/m\\n"));
        assert_eq!(entries[1].container.as_deref(), Some("c"));
        assert_eq!(entries[1].pool_id.as_deref(), Some("12345678"));
    }

    #[test]
    fn a_mount_belongs_to_the_pool_with_its_id_whatever_the_name() {
        let pool = |id: u8| {
            let id = azekura_proto::PoolId([id; 16]);
            PoolMap::deal(id, "default".to_owned(), Vec::new(), &[])
        };
        for container in [DEFAULT_CONTAINER, "scratch"] {
            let line = format!("{} /m fuse.azekura rw 0 0\n", source(&pool(1), container));
            let entry = parse(line.as_bytes()).pop().unwrap();
            assert_eq!(entry.pool, "default");
            assert_eq!(entry.container.as_deref().unwrap_or(DEFAULT_CONTAINER), container);
            assert!(entry.is_of(&pool(1)) && !entry.is_of(&pool(2)));
        }
    }
}
