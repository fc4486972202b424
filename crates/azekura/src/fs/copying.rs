//! Copying one tree. One thread walks it and makes directories; a few others copy files, each of which
//! gets its name when it is complete. Directories get their modes and times last, since both would
//! suffer. Told to end, all of them do after the piece that they are at.

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};
use azekura_posix::{FileKind, Oid};

use super::archive::{self, LeftBehind};
use super::draft::Draft;
use super::paths::join;
use super::tree::{Meta, OpenFile, Tree};
use crate::host::interrupt::Interrupt;
use crate::outcome;
use crate::report::Progress;

/// Threads that copy files.
const COPIERS: usize = 4;
/// Files found but not copied yet.
const QUEUE_FILES: usize = 1_024;
/// One read and one write; spreads over the targets of a striped file.
const PIECE_BYTES: usize = 4 << 20;
/// Failures that are shown one by one.
const FAILURES_SHOWN: usize = 20;

/// What is copied, and how.
pub(super) struct Job<'a> {
    pub(super) from: &'a Tree,
    pub(super) path: &'a [u8],
    pub(super) to: &'a Tree,
    pub(super) recursive: bool,
    pub(super) archive: bool,
    pub(super) interrupt: &'a Interrupt,
}

/// What it came to.
#[derive(Clone, Default)]
pub(super) struct Totals {
    pub(super) seen: u64,
    pub(super) failures: u64,
    pub(super) left_behind: LeftBehind,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.failures += other.failures;
        self.left_behind.add(&other.left_behind);
    }
}

/// A file to copy.
struct FileCopy {
    from: Vec<u8>,
    to: Vec<u8>,
    meta: Meta,
    /// It goes to a directory that was just made for it, where nothing else is.
    fresh: bool,
}

/// What the threads of one copy share.
struct Shared<'a> {
    from: &'a Tree,
    to: &'a Tree,
    archive: bool,
    interrupt: &'a Interrupt,
    state: Mutex<State>,
}

struct State {
    progress: Progress,
    totals: Totals,
}

impl Shared<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, path: &[u8], error: &io::Error) {
        if self.interrupt.came() {
            // Said once, at the end.
            return;
        }
        let mut state = self.state();
        state.totals.failures += 1;
        if state.totals.failures <= FAILURES_SHOWN as u64 {
            let shown = self.from.show(path);
            let cause = outcome::cause_of(error).map(|cause| format!(": {cause}"));
            let cause = cause.unwrap_or_default();
            state.progress.note(&format!("azekura: cannot copy {shown}: {error}{cause}"));
        }
    }

    fn moved(&self, bytes: u64) {
        self.state().progress.advance(bytes);
    }
}

/// Copies a tree, or a file.
pub(super) fn copy_tree(job: &Job<'_>, target: &[u8]) -> Result<Totals> {
    let shown = || job.from.show(job.path);
    let meta = job.from.meta(job.path, true).with_context(|| format!("cannot copy {}", shown()))?;
    if meta.kind == FileKind::Directory && !job.recursive {
        bail!("{} is a directory: add -r to copy it with all that is in it", shown());
    }
    let state = State { progress: Progress::bytes("copying"), totals: Totals::default() };
    let shared = Shared {
        from: job.from,
        to: job.to,
        archive: job.archive,
        interrupt: job.interrupt,
        state: Mutex::new(state),
    };
    let (copies, queue) = sync_channel::<FileCopy>(QUEUE_FILES);
    let queue = Mutex::new(queue);
    let dirs = std::thread::scope(|scope| {
        for _ in 0..COPIERS {
            scope.spawn(|| copy_files(&shared, &queue));
        }
        let first = FileCopy { from: job.path.to_vec(), to: target.to_vec(), meta, fresh: false };
        // Dropping the sender, at the end of the walk, lets the copiers end.
        walk(&shared, first, move |copy| {
            // The copiers take copies as long as there are any.
            let _ = copies.send(copy);
        })
    });
    // The deepest first: finishing a directory may take away the right to change what is in it.
    for dir in dirs.iter().rev() {
        if let Err(error) = finish(&shared, dir, &dir.to, None) {
            shared.failed(&dir.from, &error);
        }
    }
    let totals = shared.state().totals.clone();
    Ok(totals)
}

/// Makes directories and finds files; gives back the directories, those above first.
fn walk(shared: &Shared<'_>, first: FileCopy, send: impl Fn(FileCopy)) -> Vec<FileCopy> {
    let mut dirs = Vec::new();
    let mut waiting = vec![first];
    while let Some(copy) = waiting.pop().filter(|_| !shared.interrupt.came()) {
        {
            let mut state = shared.state();
            state.totals.seen += 1;
            if copy.meta.kind == FileKind::Regular {
                state.progress.extend(copy.meta.size);
            }
        }
        if copy.meta.kind != FileKind::Directory {
            send(copy);
            continue;
        }
        let names = shared
            .to
            .make_dir(&copy.to, copy.meta.mode)
            .and_then(|fresh| Ok((fresh, shared.from.list(&copy.from)?)));
        match names {
            Ok((fresh, names)) => {
                for name in names {
                    let (from, to) = (join(&copy.from, &name), join(&copy.to, &name));
                    match shared.from.meta(&from, false) {
                        Ok(meta) => waiting.push(FileCopy { from, to, meta, fresh }),
                        Err(error) => shared.failed(&from, &error),
                    }
                }
                dirs.push(copy);
            }
            Err(error) => shared.failed(&copy.from, &error),
        }
    }
    dirs
}

fn copy_files(shared: &Shared<'_>, queue: &Mutex<Receiver<FileCopy>>) {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(copy) = next else { return };
        if shared.interrupt.came() {
            // The walk must not wait for room in the queue.
            continue;
        }
        if let Err(error) = copy_one(shared, &copy, &mut buffer) {
            shared.failed(&copy.from, &error);
        }
    }
}

fn copy_one(shared: &Shared<'_>, copy: &FileCopy, buffer: &mut [u8]) -> io::Result<()> {
    match copy.meta.kind {
        FileKind::Regular => {
            let draft = Draft::begin(shared.to, &copy.to, copy.fresh)?;
            if copy.meta.size > 0 {
                copy_contents(shared, copy, draft.file()?, buffer)?;
            }
            return draft.complete(|path, oid| finish(shared, copy, path, oid));
        }
        FileKind::Symlink => {
            shared.to.make_symlink(&shared.from.read_link(&copy.from)?, &copy.to)?;
        }
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            shared.to.make_node(&copy.to, &copy.meta)?;
        }
        // The walk makes these.
        FileKind::Directory => return Ok(()),
    }
    finish(shared, copy, &copy.to, None)
}

/// Gives a copy what its original has besides the contents. Without `-a` set-id bits stay behind: the
/// copy is the caller's, and would lend the caller's rights to whoever runs it.
fn finish(shared: &Shared<'_>, copy: &FileCopy, path: &[u8], oid: Option<Oid>) -> io::Result<()> {
    let mut set_id = 0;
    if shared.archive {
        let mut left = LeftBehind::default();
        let (from, to) = ((shared.from, &copy.from[..]), (shared.to, path, oid));
        let kept = archive::keep(from, to, &copy.meta, &mut left);
        shared.state().totals.left_behind.add(&left);
        set_id = kept?;
    }
    shared.to.finish(path, oid, &copy.meta, set_id)
}

fn copy_contents(
    shared: &Shared<'_>,
    copy: &FileCopy,
    to: &OpenFile,
    buffer: &mut [u8],
) -> io::Result<()> {
    let from = shared.from.open(&copy.from)?;
    let has_holes = copy.meta.blocks_512 * 512 < copy.meta.size;
    let mut offset = 0;
    let mut written_end = 0;
    loop {
        if shared.interrupt.came() {
            return Err(io::Error::other("interrupted"));
        }
        // A small file's end is known, so one read is enough for it.
        let wanted = copy.meta.size.saturating_sub(offset).clamp(1, PIECE_BYTES as u64) as usize;
        let bytes = match from.read_at(&mut buffer[..wanted], offset) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let piece = &buffer[..bytes];
        if !(has_holes && piece.iter().all(|byte| *byte == 0)) {
            to.write_all_at(piece, offset)?;
            written_end = offset + bytes as u64;
        }
        offset += bytes as u64;
        shared.moved(bytes as u64);
        if offset == copy.meta.size {
            break;
        }
    }
    if written_end < offset {
        to.set_len(offset)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::tree::bytes_of;

    #[test]
    fn a_local_tree_arrives_with_modes_times_links_and_holes() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let base = tempfile::tempdir().unwrap();
        let (from, to) = (base.path().join("from"), base.path().join("to"));
        std::fs::create_dir_all(from.join("dir/empty")).unwrap();
        std::fs::write(from.join("dir/file"), b"contents").unwrap();
        for (name, mode) in [("dir/file", 0o640), ("dir/empty", 0o2750), ("dir/tool", 0o6755)] {
            let path = from.join(name);
            if name == "dir/tool" {
                std::fs::write(&path, b"lends its owner's rights").unwrap();
            }
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("dir/file", from.join("link")).unwrap();
        let sparse = std::fs::File::create(from.join("sparse")).unwrap();
        sparse.set_len(9 << 20).unwrap();
        drop(sparse);
        let (path, interrupt) = (bytes_of(&from), Interrupt::default());
        let (tree, to_path) = (Tree::Local, bytes_of(&to));
        let job = |recursive| Job {
            from: &tree,
            path: &path,
            to: &tree,
            recursive,
            archive: false,
            interrupt: &interrupt,
        };
        let totals = copy_tree(&job(true), &to_path).unwrap();
        assert_eq!((totals.seen, totals.failures), (7, 0));
        let mode = |name: &str| std::fs::metadata(to.join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("dir/empty"), mode("dir/tool")), (0o750, 0o755));
        assert_eq!(std::fs::read(to.join("dir/file")).unwrap(), b"contents");
        assert_eq!(std::fs::read_link(to.join("link")).unwrap().to_str(), Some("dir/file"));
        let (old, new) = (from.join("dir/file"), to.join("dir/file"));
        let (old, new) = (std::fs::metadata(old).unwrap(), std::fs::metadata(new).unwrap());
        assert_eq!((old.mode(), old.mtime_nsec()), (new.mode(), new.mtime_nsec()));
        let sparse = std::fs::metadata(to.join("sparse")).unwrap();
        assert_eq!((sparse.len(), sparse.blocks()), (9 << 20, 0));
        assert!(copy_tree(&job(false), &to_path).is_err());
    }
}
