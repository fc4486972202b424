//! `-` in the place of a file: the standard streams. What comes in is put under its name when it has
//! come to its end, not before.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use azekura_posix::{FileKind, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::content;
use super::draft::Draft;
use super::opened::OpenedOnce;
use super::tree::{Meta, Tree};
use crate::host::interrupt::Interrupt;
use crate::host::process;
use crate::names::Location;
use crate::outcome::Verdict;
use crate::reading::ReadArgs;

const PIECE_BYTES: usize = 4 << 20;

/// What stands for a standard stream.
pub(super) const STREAM: &str = "-";

/// Copies standard input to a place.
pub(super) fn put(to: &Location, reading: &ReadArgs) -> Result<Verdict> {
    let interrupt = Interrupt::watch()?;
    let cannot = || format!("cannot write {to}");
    let tree = Tree::Pool(OpenedOnce::reading(reading).of(to)?);
    let draft = Draft::begin(&tree, to.path.as_bytes(), false).with_context(cannot)?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let bytes = fill(&mut buffer, &interrupt).context("cannot read standard input")?;
        if let Some(code) = interrupt.exit_code() {
            return Ok(Verdict::Ended(code));
        }
        draft.file()?.write_all_at(&buffer[..bytes], offset).with_context(cannot)?;
        offset += bytes as u64;
        if bytes < buffer.len() {
            break;
        }
    }
    let meta = newborn();
    draft.complete(|path, oid| tree.finish(path, oid, &meta, 0)).with_context(cannot)?;
    Ok(Verdict::Good)
}

/// Prints files on standard output, one after the other.
pub(super) fn get(from: &[Location], reading: &ReadArgs) -> Result<()> {
    content::print(from, reading)
}

/// A file that was made now, by this user.
fn newborn() -> Meta {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = i64::try_from(since.as_secs()).unwrap_or_default();
    let now = Timestamp { secs, nanos: since.subsec_nanos() };
    Meta {
        kind: FileKind::Regular,
        mode: 0o666 & !process::umask(),
        size: 0,
        blocks_512: 0,
        atime: now,
        mtime: now,
        rdev: 0,
        uid: 0,
        gid: 0,
    }
}

/// Fills the buffer from standard input as far as that goes. A signal ends it early.
fn fill(buffer: &mut [u8], interrupt: &Interrupt) -> io::Result<usize> {
    let step = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let mut filled = 0;
    while filled < buffer.len() && !interrupt.came() {
        let input = rustix::stdio::stdin();
        // Reading itself would go on waiting after a signal.
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&step)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(input, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}
