//! `cp`, `put` and `get`: what is copied where. How trees are copied stands in `copying`.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use azekura_posix::FileKind;
use clap::Args;

use super::copying::{Job, Totals, copy_tree};
use super::opened::OpenedOnce;
use super::paths::join;
use super::streams::{self, STREAM};
use super::tree::{Tree, bytes_of};
use crate::host::interrupt::Interrupt;
use crate::host::places;
use crate::names::Location;
use crate::outcome::{Verdict, usage};
use crate::reading::{ReadArgs, WriteArgs};
use crate::report;

/// How files are copied.
#[derive(Clone, Copy, Debug, Args)]
struct HowArgs {
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Directories too, with owners (as numbers), extended attributes and set-id bits, as far as you
    /// may give them
    #[arg(short, long)]
    archive: bool,
}

/// `azekura fs cp`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs cp -r ./src default:/backup\n  \
    azekura fs cp default:/a default:/b ./here\n  \
    azekura fs cp -r default:/data other/archive:/data\n\n\
    Modes without set-id bits, times and symlinks are kept; hard links become files of their own. A \
    file gets its name when it is complete. The root of a container has no name: what is in it goes \
    straight to the destination.")]
pub(crate) struct CpArgs {
    /// What to copy, then where to: local paths and POOL:/path
    #[arg(value_name = "PLACE", num_args = 2.., required = true)]
    places: Vec<String>,
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
}

/// `azekura fs put`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs put a.bin b.bin default:/data\n  \
    azekura fs put -a /srv/www default:/      with owners, modes and extended attributes\n  \
    tar c dir | azekura fs put - default:/dir.tar")]
pub(crate) struct PutArgs {
    /// Files of this machine; - for standard input
    #[arg(value_name = "FILE", required = true)]
    from: Vec<PathBuf>,
    /// Where to: POOL:/path
    #[arg(value_name = "PLACE")]
    to: Location,
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    write: WriteArgs,
}

/// `azekura fs get`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs get default:/data/a.bin .\n  \
    azekura fs get default:/dir.tar - | tar x")]
pub(crate) struct GetArgs {
    /// Places: POOL:/path
    #[arg(value_name = "PLACE", required = true)]
    from: Vec<Location>,
    /// Where to, on this machine; - for standard output
    #[arg(value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    how: HowArgs,
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
pub(super) fn cp(args: &CpArgs) -> Result<Verdict> {
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
    copy(&ends, &to, args.how, &args.reading.writing(&args.write))
}

/// Runs `azekura fs put`.
pub(super) fn put(args: PutArgs) -> Result<Verdict> {
    let reading = ReadArgs::default().writing(&args.write);
    if args.from.iter().any(|path| path == Path::new(STREAM)) {
        if args.from.len() > 1 {
            return Err(usage("standard input ('-') is put alone: it gives one file"));
        }
        return streams::put(&args.to, &reading);
    }
    let from: Vec<End> = args.from.into_iter().map(End::Local).collect();
    copy(&from, &End::Pool(args.to), args.how, &reading)
}

/// Runs `azekura fs get`.
pub(super) fn get(args: GetArgs) -> Result<Verdict> {
    if args.to == Path::new(STREAM) {
        return streams::get(&args.from, &args.reading).map(|()| Verdict::Good);
    }
    let from: Vec<End> = args.from.into_iter().map(End::Pool).collect();
    copy(&from, &End::Local(args.to), args.how, &args.reading)
}

fn copy(from: &[End], to: &End, how: HowArgs, reading: &ReadArgs) -> Result<Verdict> {
    let interrupt = Interrupt::watch()?;
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
        let job = Job {
            from: &from.tree,
            path: &from.path,
            to: &to.tree,
            recursive: how.recursive || how.archive,
            archive: how.archive,
            interrupt: &interrupt,
        };
        totals.add(&copy_tree(&job, &target)?);
    }
    for line in totals.left_behind.lines() {
        report::note(format_args!("azekura: {line}"));
    }
    if let Some(code) = interrupt.exit_code() {
        report::note("azekura: interrupted: what was not complete is not there");
        return Ok(Verdict::Ended(code));
    }
    match totals.failures {
        0 => Ok(Verdict::Good),
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
}
