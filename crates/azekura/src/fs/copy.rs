//! `cp`, `put` and `get`: copying trees. One thread walks the tree and makes directories; a few
//! others copy files. Directories get their modes and times last, since both would suffer.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail};
use azekura_posix::FileKind;
use clap::Args;

use super::opened::OpenedOnce;
use super::paths::join;
use super::tree::{Meta, Tree, bytes_of};
use crate::host::places;
use crate::names::Location;
use crate::outcome::usage;
use crate::reading::{ReadArgs, WriteArgs};
use crate::report::Progress;

/// Threads that copy files.
const COPIERS: usize = 4;
/// Files found but not copied yet.
const QUEUE_FILES: usize = 1_024;
/// One read and one write; spreads over the targets of a striped file.
const PIECE_BYTES: usize = 4 << 20;
/// Failures that are shown one by one.
const FAILURES_SHOWN: usize = 20;

/// `azekura fs cp`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs cp -r ./src default:/backup\n  \
    azekura fs cp default:/a default:/b ./here\n  \
    azekura fs cp -r default:/data other/archive:/data\n\n\
    Modes without set-id bits, times and symlinks are kept; hard links become files of their own. The \
    root of a container has no name: what is in it goes straight to the destination.")]
pub(crate) struct CpArgs {
    /// What to copy, then where to: local paths and POOL:/path
    #[arg(value_name = "PLACE", num_args = 2.., required = true)]
    places: Vec<String>,
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
}

/// `azekura fs put`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura fs put a.bin b.bin default:/data")]
pub(crate) struct PutArgs {
    /// Files of this machine
    #[arg(value_name = "FILE", required = true)]
    from: Vec<PathBuf>,
    /// Where to: POOL:/path
    #[arg(value_name = "PLACE")]
    to: Location,
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    write: WriteArgs,
}

/// `azekura fs get`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura fs get default:/data/a.bin .")]
pub(crate) struct GetArgs {
    /// Places: POOL:/path
    #[arg(value_name = "PLACE", required = true)]
    from: Vec<Location>,
    /// Where to, on this machine
    #[arg(value_name = "FILE")]
    to: PathBuf,
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    reading: ReadArgs,
}

/// One end of a copy.
enum End {
    Local(PathBuf),
    Pool(Location),
}

/// A tree and a path in it.
struct Spot {
    tree: Tree,
    path: Vec<u8>,
}

impl Spot {
    fn open(end: &End, opened: &mut OpenedOnce) -> Result<Self> {
        Ok(match end {
            End::Local(path) => {
                Self { tree: Tree::Local, path: bytes_of(&places::absolute(path)?) }
            }
            End::Pool(place) => {
                Self { tree: Tree::Pool(opened.of(place)?), path: place.path.clone().into_bytes() }
            }
        })
    }

    fn show(&self) -> String {
        self.tree.show(&self.path)
    }

    /// The last name; `None` for a root and for dots.
    fn name(&self) -> Option<&[u8]> {
        let name = trim(&self.path).rsplit(|byte| *byte == b'/').next()?;
        (!name.is_empty() && name != b"." && name != b"..").then_some(name)
    }
}

/// A path without slashes at its end.
fn trim(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

/// Runs `azekura fs cp`.
pub(super) fn cp(args: &CpArgs) -> Result<()> {
    let mut ends = Vec::new();
    for text in &args.places {
        ends.push(match Location::recognise(text).map_err(usage)? {
            Some(place) => End::Pool(place),
            None => End::Local(PathBuf::from(text)),
        });
    }
    if ends.iter().all(|end| matches!(end, End::Local(_))) {
        return Err(usage("all of these are on this machine: one must be POOL:/path"));
    }
    let Some(to) = ends.pop() else { bail!("nothing to copy") };
    copy(&ends, &to, args.recursive, &args.reading.writing(&args.write))
}

/// Runs `azekura fs put`.
pub(super) fn put(args: PutArgs) -> Result<()> {
    let from: Vec<End> = args.from.into_iter().map(End::Local).collect();
    copy(&from, &End::Pool(args.to), args.recursive, &ReadArgs::default().writing(&args.write))
}

/// Runs `azekura fs get`.
pub(super) fn get(args: GetArgs) -> Result<()> {
    let from: Vec<End> = args.from.into_iter().map(End::Pool).collect();
    copy(&from, &End::Local(args.to), args.recursive, &args.reading)
}

fn copy(from: &[End], to: &End, recursive: bool, reading: &ReadArgs) -> Result<()> {
    let mut opened = OpenedOnce::reading(reading);
    let to = Spot::open(to, &mut opened)?;
    let into_dir = match to.tree.meta(&to.path, true) {
        Ok(meta) => meta.kind == FileKind::Directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", to.show())),
    };
    if !into_dir && (from.len() > 1 || to.path.len() > 1 && to.path.ends_with(b"/")) {
        bail!("{} is not a directory: make it first, or name one thing to copy", to.show());
    }
    let mut totals = Totals::default();
    for end in from {
        let from = Spot::open(end, &mut opened)?;
        let target = match from.name() {
            Some(name) if into_dir => join(&to.path, name),
            _ => trim(&to.path).to_vec(),
        };
        let target = if target.is_empty() { b"/".to_vec() } else { target };
        refuse_loop(&from, &to.tree, &target)?;
        totals.add(&copy_tree(&from, &to.tree, &target, recursive)?);
    }
    match totals.failures {
        0 => Ok(()),
        failures => Err(anyhow!("{failures} of {} could not be copied", totals.seen)),
    }
}

/// A tree copied into itself would never end.
fn refuse_loop(from: &Spot, to: &Tree, target: &[u8]) -> Result<()> {
    let source = trim(&from.path);
    let below =
        target.strip_prefix(source).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    if from.tree.is_same_as(to) && below {
        bail!("{} lies in {}: it cannot be copied there", to.show(target), from.show());
    }
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Totals {
    seen: u64,
    failures: u64,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        self.failures += other.failures;
    }
}

/// A file to copy.
struct FileCopy {
    from: Vec<u8>,
    to: Vec<u8>,
    meta: Meta,
}

/// What the threads of one copy share.
struct Shared<'a> {
    from: &'a Tree,
    to: &'a Tree,
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
        let mut state = self.state();
        state.totals.failures += 1;
        if state.totals.failures <= FAILURES_SHOWN as u64 {
            let shown = self.from.show(path);
            state.progress.note(&format!("azekura: cannot copy {shown}: {error}"));
        }
    }

    fn moved(&self, bytes: u64) {
        self.state().progress.advance(bytes);
    }
}

fn copy_tree(from: &Spot, to: &Tree, target: &[u8], recursive: bool) -> Result<Totals> {
    let meta =
        from.tree.meta(&from.path, true).with_context(|| format!("cannot copy {}", from.show()))?;
    if meta.kind == FileKind::Directory && !recursive {
        bail!("{} is a directory: add -r to copy it with all that is in it", from.show());
    }
    let state = State { progress: Progress::bytes("copying"), totals: Totals::default() };
    let shared = Shared { from: &from.tree, to, state: Mutex::new(state) };
    let (copies, queue) = sync_channel::<FileCopy>(QUEUE_FILES);
    let queue = Mutex::new(queue);
    let dirs = std::thread::scope(|scope| {
        for _ in 0..COPIERS {
            scope.spawn(|| copy_files(&shared, &queue));
        }
        let first = FileCopy { from: from.path.clone(), to: target.to_vec(), meta };
        // Dropping the sender, at the end of the walk, lets the copiers end.
        walk(&shared, first, move |copy| {
            // The copiers take copies as long as there are any.
            let _ = copies.send(copy);
        })
    });
    // The deepest first: finishing a directory may take away the right to change what is in it.
    for dir in dirs.iter().rev() {
        if let Err(error) = to.finish(&dir.to, &dir.meta) {
            shared.failed(&dir.from, &error);
        }
    }
    let totals = shared.state().totals;
    Ok(totals)
}

/// Makes directories and finds files; gives back the directories, those above first.
fn walk(shared: &Shared<'_>, first: FileCopy, send: impl Fn(FileCopy)) -> Vec<FileCopy> {
    let mut dirs = Vec::new();
    let mut waiting = vec![first];
    while let Some(copy) = waiting.pop() {
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
            .and_then(|()| shared.from.list(&copy.from));
        match names {
            Ok(names) => {
                for name in names {
                    let (from, to) = (join(&copy.from, &name), join(&copy.to, &name));
                    match shared.from.meta(&from, false) {
                        Ok(meta) => waiting.push(FileCopy { from, to, meta }),
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
        if let Err(error) = copy_one(shared, &copy, &mut buffer) {
            shared.failed(&copy.from, &error);
        }
    }
}

fn copy_one(shared: &Shared<'_>, copy: &FileCopy, buffer: &mut [u8]) -> io::Result<()> {
    match copy.meta.kind {
        FileKind::Regular => copy_contents(shared, copy, buffer)?,
        FileKind::Symlink => {
            shared.to.make_symlink(&shared.from.read_link(&copy.from)?, &copy.to)?;
        }
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            shared.to.make_node(&copy.to, &copy.meta)?;
        }
        // The walk makes these.
        FileKind::Directory => return Ok(()),
    }
    shared.to.finish(&copy.to, &copy.meta)
}

fn copy_contents(shared: &Shared<'_>, copy: &FileCopy, buffer: &mut [u8]) -> io::Result<()> {
    let to = shared.to.create(&copy.to)?;
    if copy.meta.size == 0 {
        return Ok(());
    }
    let from = shared.from.open(&copy.from)?;
    let has_holes = copy.meta.blocks_512 * 512 < copy.meta.size;
    let mut offset = 0;
    let mut written_end = 0;
    loop {
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
    to.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_of_a_spot() {
        let spot = |path: &str| Spot { tree: Tree::Local, path: path.as_bytes().to_vec() };
        assert_eq!(spot("/a/b/").name(), Some(&b"b"[..]));
        assert_eq!(spot("/").name(), None);
        assert_eq!(spot("/a/.").name(), None);
    }

    #[test]
    fn a_tree_is_not_copied_into_itself() {
        let from = Spot { tree: Tree::Local, path: b"/a/b".to_vec() };
        assert!(refuse_loop(&from, &Tree::Local, b"/a/b/c").is_err());
        assert!(refuse_loop(&from, &Tree::Local, b"/a/b").is_err());
        assert!(refuse_loop(&from, &Tree::Local, b"/a/bc").is_ok());
    }

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
        let spot = Spot { tree: Tree::Local, path: bytes_of(&from) };
        let totals = copy_tree(&spot, &Tree::Local, &bytes_of(&to), true).unwrap();
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
        assert!(copy_tree(&spot, &Tree::Local, &bytes_of(&to), false).is_err());
    }
}
