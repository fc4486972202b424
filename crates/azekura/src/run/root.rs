//! Makes the directory to mount at exist, in this mount namespace only. Where the host has none,
//! the deepest directory above it is laid over with an empty file system into which everything that
//! was there is bound again; if that is the root, the process gets a new one. Writes nothing to the
//! host.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{Access, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// Where the old root stands while the new one is furnished.
const OLD_ROOT: &str = "/.azekura-old-root";
/// Directories of which one is on every machine. It is only mounted on for a moment.
const STAGES: [&str; 5] = ["/tmp", "/run", "/var", "/etc", "/usr"];

/// Sees to it that there is a directory `prefix`, an absolute path without `..`.
///
/// # Errors
/// If it is something else, or cannot be made; the message says what to do.
pub(super) fn provide(prefix: &Path) -> Result<()> {
    match rustix::fs::stat(prefix) {
        // A dead mount is recognised by whoever mounts on it.
        Err(Errno::NOTCONN) => return Ok(()),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => return Ok(()),
        Ok(_) => bail!("it is there, but not a directory"),
        Err(Errno::NOENT) => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot look at {}", prefix.display()));
        }
    }
    let above = deepest_directory_above(prefix)?;
    let result = if above == Path::new("/") { new_root(prefix) } else { lay_over(&above, prefix) };
    result.map_err(|error| {
        error.context(format!(
            "it is not there, and no place can be made for it ('mkdir -p {}' makes one)",
            prefix.display()
        ))
    })
}

fn deepest_directory_above(prefix: &Path) -> Result<PathBuf> {
    for above in prefix.ancestors().skip(1) {
        match rustix::fs::stat(above) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => {
                return std::fs::canonicalize(above)
                    .with_context(|| format!("cannot look at {}", above.display()));
            }
            Ok(_) => bail!("{} is not a directory", above.display()),
            Err(Errno::NOENT) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot look at {}", above.display()));
            }
        }
    }
    Err(anyhow!("{} is not an absolute path", prefix.display()))
}

/// Gives the process a new root with everything of the old one and `prefix` in it.
fn new_root(prefix: &Path) -> Result<()> {
    let stage = STAGES.into_iter().find(|stage| Path::new(stage).is_dir());
    let stage = stage.context("none of the usual directories is there")?;
    mount_empty(Path::new(stage))?;
    let old_below_stage = format!("{stage}{OLD_ROOT}");
    make_dir(Path::new(&old_below_stage))?;
    rustix::process::pivot_root(stage, old_below_stage.as_str())
        .context("cannot change the root directory here")?;
    rustix::process::chdir("/").context("cannot enter the new root")?;
    bind_entries(Path::new(OLD_ROOT), Path::new("/"), OsStr::new(&OLD_ROOT[1..]))?;
    rustix::mount::unmount(OLD_ROOT, UnmountFlags::DETACH).context("cannot leave the old root")?;
    std::fs::remove_dir(OLD_ROOT).context("cannot leave the old root")?;
    std::fs::create_dir_all(prefix).with_context(|| format!("cannot make {}", prefix.display()))?;
    make_read_only(Path::new("/"))
}

/// Lays an empty file system over the directory `dir`, with all its entries and `prefix` in it.
fn lay_over(dir: &Path, prefix: &Path) -> Result<()> {
    if rustix::fs::access(dir, Access::WRITE_OK).is_ok() {
        // Nothing new could be made in it from inside, and the user is used to do that.
        bail!("{} would have to be read-only in the meantime", dir.display());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let before = rustix::fs::open(dir, flags, Mode::empty())
        .with_context(|| format!("cannot look at {}", dir.display()))?;
    mount_empty(dir)?;
    let before_path = PathBuf::from(format!("/proc/self/fd/{}", before.as_raw_fd()));
    bind_entries(&before_path, dir, OsStr::new(""))?;
    std::fs::create_dir_all(prefix).with_context(|| format!("cannot make {}", prefix.display()))?;
    make_read_only(dir)
}

fn mount_empty(dir: &Path) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("azekura-run", dir, "tmpfs", flags, c"mode=755,size=4m")
        .with_context(|| format!("cannot mount an empty file system on {}", dir.display()))
}

fn make_read_only(dir: &Path) -> Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount_remount(dir, flags, c"")
        .with_context(|| format!("cannot make {} read-only", dir.display()))
}

fn make_dir(path: &Path) -> Result<()> {
    std::fs::create_dir(path).with_context(|| format!("cannot make {}", path.display()))
}

/// Lets every entry of the directory `from`, except `but`, appear in the empty directory `to`.
fn bind_entries(from: &Path, to: &Path, but: &OsStr) -> Result<()> {
    let unreadable = || format!("cannot list what is beside {}", to.display());
    for entry in std::fs::read_dir(from).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        let name: OsString = entry.file_name();
        if name == but {
            continue;
        }
        let (source, target) = (from.join(&name), to.join(&name));
        let kind = entry.file_type().with_context(unreadable)?;
        let result = if kind.is_symlink() {
            std::fs::read_link(&source).and_then(|text| std::os::unix::fs::symlink(text, &target))
        } else {
            let made = if kind.is_dir() {
                std::fs::create_dir(&target)
            } else {
                std::fs::File::create(&target).map(drop)
            };
            made.and_then(|()| Ok(rustix::mount::mount_bind_recursive(&source, &target)?))
        };
        if let Err(error) = result {
            // A dead mount or the like; an empty entry stands in its place.
            tracing::warn!("{} is not there for the command: {error}", target.display());
        }
    }
    Ok(())
}
