//! `mkdir`, `mv` and `rm`: changing names.

use anyhow::{Context as _, Result, bail};
use azekura_posix::{Errno, FileKind, RenameMode};
use clap::Args;

use super::opened::{Opened, OpenedOnce};
use super::paths::{join, split_last};
use crate::host::process;
use crate::names::Location;
use crate::reading::ReadArgs;
use crate::report::{self, Progress};

/// `azekura fs mkdir`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura fs mkdir -p default:/results/2026/may")]
pub(crate) struct MkdirArgs {
    /// Places: POOL:/path
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<Location>,
    /// Make those above too; one that is there is fine
    #[arg(short, long)]
    parents: bool,
}

/// `azekura fs mv`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs mv default:/a default:/b\n  \
    azekura fs mv default:/a default:/b default:/dir")]
pub(crate) struct MvArgs {
    /// What to move, then where to: POOL:/path of one container
    #[arg(value_name = "PLACE", num_args = 2.., required = true)]
    places: Vec<Location>,
    /// Replace nothing
    #[arg(short, long)]
    no_clobber: bool,
}

/// `azekura fs rm`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura fs rm -r default:/old")]
pub(crate) struct RmArgs {
    /// Places: POOL:/path
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<Location>,
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// What is not there is no failure
    #[arg(short, long)]
    force: bool,
}

/// Runs `azekura fs mkdir`.
pub(super) fn mkdir(args: &MkdirArgs) -> Result<()> {
    let mut opened = OpenedOnce::default();
    let mode = 0o777 & !process::umask();
    for place in &args.places {
        let names = opened.of(place)?.names;
        let result = if args.parents {
            names.create_dir_all(&place.path, mode)
        } else {
            names.create_dir(&place.path, mode)
        };
        result.with_context(|| format!("cannot make the directory {place}"))?;
    }
    Ok(())
}

/// Runs `azekura fs mv`.
pub(super) fn mv(args: &MvArgs) -> Result<()> {
    let Some((to, sources)) = args.places.split_last() else { bail!("nothing to move") };
    let container = Opened::open(&to.container, &ReadArgs::default())?;
    let into_dir =
        container.names.metadata(&to.path).is_ok_and(|attr| attr.kind == FileKind::Directory);
    if sources.len() > 1 && !into_dir {
        bail!("{to} is not a directory: several things can only be moved into one");
    }
    let mode = if args.no_clobber { RenameMode::NoReplace } else { RenameMode::Replace };
    for from in sources {
        if from.container != to.container {
            bail!(
                "{from} and {to} are in different containers: copy with 'azekura fs cp -r', then \
                 remove with 'azekura fs rm -r'"
            );
        }
        let target = match split_last(&from.path) {
            Some((_, name)) if into_dir => join(to.path.as_bytes(), name.as_bytes()),
            Some(_) => to.path.as_bytes().to_vec(),
            None => bail!("{from} is the root and cannot be moved"),
        };
        container
            .names
            .rename(&from.path, &target, mode)
            .with_context(|| format!("cannot move {from} to {to}"))?;
    }
    Ok(())
}

/// Runs `azekura fs rm`.
pub(super) fn rm(args: &RmArgs) -> Result<()> {
    let mut opened = OpenedOnce::default();
    let mut progress = Progress::count("removing", 0);
    for place in &args.places {
        let container = opened.of(place)?;
        let cannot = || format!("cannot remove {place}");
        let attr = match container.names.symlink_metadata(&place.path) {
            Ok(attr) => attr,
            Err(Errno::NOENT) if args.force => continue,
            Err(error) => return Err(error).with_context(cannot),
        };
        if attr.kind != FileKind::Directory {
            container.names.remove_file(&place.path).with_context(cannot)?;
            progress.advance(1);
            continue;
        }
        if !args.recursive {
            bail!("{place} is a directory: add -r to remove it with all that is in it");
        }
        remove_tree(&container, place, &mut progress)?;
    }
    Ok(())
}

/// Removes what is below a place, then the place; of the root only what is below.
fn remove_tree(container: &Opened, place: &Location, progress: &mut Progress) -> Result<()> {
    let root = place.path.trim_end_matches('/').as_bytes().to_vec();
    // Directories on the way down; each is removed when it is met the second time.
    let mut waiting = vec![(root.clone(), false)];
    while let Some((path, emptied)) = waiting.pop() {
        let shown = String::from_utf8_lossy(&path).into_owned();
        let cannot = || format!("cannot remove {}:{shown}", container.name);
        if emptied {
            if !path.is_empty() {
                gone(container.names.remove_dir(&path)).with_context(cannot)?;
                progress.advance(1);
            }
            continue;
        }
        let list: &[u8] = if path.is_empty() { b"/" } else { &path };
        // Read to the end first: removing while listing is allowed, but costs the same.
        let entries = container
            .names
            .read_dir(list)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(cannot)?;
        waiting.push((path.clone(), true));
        for entry in entries {
            let below = join(list, &entry.name);
            if entry.kind == FileKind::Directory {
                waiting.push((below, false));
            } else {
                gone(container.names.remove_file(&below)).with_context(cannot)?;
                progress.advance(1);
            }
        }
    }
    if root.is_empty() {
        report::note(format_args!("azekura: {place} is the root: it is empty now, and stays"));
    }
    Ok(())
}

/// What somebody else has removed meanwhile is gone too.
fn gone(result: azekura_posix::Result<()>) -> azekura_posix::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
