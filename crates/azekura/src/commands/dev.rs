//! `azekura dev`: what programs are built with. Owns how a prefix for programs of the DAOS interface is
//! laid out; the headers come along in this program, the library lies beside it.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};

use crate::report;

/// The library that holds everything; its links have one state with it, since handles of one part are
/// used in the others.
const LIBRARY: &str = "libdaos.so";
const LINKS: [&str; 5] =
    ["libcart.so", "libdaos_common.so", "libdfs.so", "libduns.so", "libgurt.so"];
/// Where the library may lie, as seen from this program's directory.
const PLACES: [&str; 3] = [".", "../lib", "../lib/azekura"];
/// Where build systems look for libraries in a prefix.
const LIBRARY_DIR: &str = "lib64";
const OTHER_LIBRARY_DIR: &str = "lib";

macro_rules! header {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../daos/include/", $name)))
    };
}

const HEADERS: [(&str, &str); 18] = [
    header!("daos.h"),
    header!("daos_api.h"),
    header!("daos_array.h"),
    header!("daos_cont.h"),
    header!("daos_errno.h"),
    header!("daos_event.h"),
    header!("daos_fs.h"),
    header!("daos_fs_sys.h"),
    header!("daos_kv.h"),
    header!("daos_obj.h"),
    header!("daos_obj_class.h"),
    header!("daos_prop.h"),
    header!("daos_types.h"),
    header!("daos_uns.h"),
    header!("gurt/common.h"),
    header!("gurt/hash.h"),
    header!("gurt/list.h"),
    header!("gurt/types.h"),
];

/// `azekura dev`.
#[derive(Debug, Subcommand)]
pub(crate) enum DevCommand {
    /// Lay out headers and libraries for programs of the DAOS interface
    #[command(after_long_help = "Example:\n  \
        azekura dev daos-prefix ~/azekura-daos\n  \
        ./configure --with-daos=$HOME/azekura-daos      of IOR, for 'ior -a DFS'\n\n\
        The directory then has include/ and lib64/ (and lib/). To lay it out anew, with the library\n\
        of a newer release, run the command again.")]
    DaosPrefix(DaosPrefixArgs),
    /// Write the manual pages of all commands
    #[command(hide = true, after_long_help = "Example:\n  azekura dev man ~/.local/share/man/man1")]
    Man {
        /// The directory; made if it is not there
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// `azekura dev daos-prefix`.
#[derive(Debug, Args)]
pub(crate) struct DaosPrefixArgs {
    /// The directory; made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// If the library is not there, or the directory cannot be written.
pub(crate) fn run(command: &DevCommand, program: clap::Command) -> Result<()> {
    match command {
        DevCommand::Man { dir } => {
            make_dir(dir)?;
            clap_mangen::generate_to(program, dir)
                .with_context(|| format!("cannot write to {}", dir.display()))
        }
        DevCommand::DaosPrefix(args) => {
            let dir = lay_out(&args.dir, &library()?)?;
            report::say(format_args!(
                "DAOS interface laid out in {0}; use it: ./configure --with-daos={0}",
                dir.display()
            ));
            Ok(())
        }
    }
}

/// The library of this release.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let here = program.parent().unwrap_or(Path::new("/"));
    let found =
        PLACES.iter().map(|place| here.join(place).join(LIBRARY)).find(|path| path.exists());
    match found {
        Some(path) => Ok(path),
        None => bail!(
            "{LIBRARY} is neither in {} nor in its ../lib: 'cargo build --release -p azekura-daos' \
             makes it",
            here.display()
        ),
    }
}

/// Lays a prefix out, and gives its absolute path.
fn lay_out(dir: &Path, library: &Path) -> Result<PathBuf> {
    for (name, text) in HEADERS {
        let path = dir.join("include").join(name);
        make_dir(path.parent().unwrap_or(dir))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let libraries = dir.join(LIBRARY_DIR);
    make_dir(&libraries)?;
    replace(&libraries.join(LIBRARY), |draft| std::fs::copy(library, draft).map(drop))?;
    for link in LINKS {
        replace(&libraries.join(link), |draft| symlink(LIBRARY, draft))?;
    }
    let others = dir.join(OTHER_LIBRARY_DIR);
    make_dir(&others)?;
    let same = others.canonicalize().ok() == libraries.canonicalize().ok();
    for name in LINKS.into_iter().chain([LIBRARY]).filter(|_| !same) {
        let target = format!("../{LIBRARY_DIR}/{name}");
        replace(&others.join(name), |draft| symlink(&target, draft))?;
    }
    Ok(dir)
}

fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

/// Makes a file under another name and moves it to its place, so that programs that have the old one
/// loaded go on with it.
fn replace(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    let draft = path.with_extension(format!("so.{}.new", std::process::id()));
    let gone = match std::fs::remove_file(&draft) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    };
    gone.and_then(|()| make(&draft))
        .and_then(|()| std::fs::rename(&draft, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_laid_out_and_laid_out_again() {
        let place = tempfile::tempdir().unwrap();
        let library = place.path().join("built.so");
        let dir = place.path().join("a/prefix");
        for text in ["one", "two"] {
            std::fs::write(&library, text).unwrap();
            assert!(lay_out(&dir, &library).unwrap().is_absolute());
            for name in LINKS.into_iter().chain([LIBRARY]) {
                for libraries in [LIBRARY_DIR, OTHER_LIBRARY_DIR] {
                    let path = dir.join(libraries).join(name);
                    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{}", path.display());
                }
            }
        }
        let header = std::fs::read_to_string(dir.join("include/gurt/hash.h")).unwrap();
        assert!(header.contains("d_hash_table_create"));
        let mut names: Vec<_> = std::fs::read_dir(dir.join(LIBRARY_DIR))
            .unwrap()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        let mut wanted: Vec<_> = LINKS.into_iter().chain([LIBRARY]).collect();
        wanted.sort_unstable();
        assert_eq!(names, wanted);
    }

    #[test]
    fn one_directory_under_both_names_is_left_whole() {
        let place = tempfile::tempdir().unwrap();
        let library = place.path().join("built.so");
        std::fs::write(&library, "text").unwrap();
        std::fs::create_dir(place.path().join(LIBRARY_DIR)).unwrap();
        symlink(LIBRARY_DIR, place.path().join(OTHER_LIBRARY_DIR)).unwrap();
        lay_out(place.path(), &library).unwrap();
        let path = place.path().join(LIBRARY_DIR).join(LIBRARY);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "text");
    }
}
