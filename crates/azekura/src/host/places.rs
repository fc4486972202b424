//! Where things belong, after the XDG base directory specification. Makes directories that are
//! this program's own, private to their user; never touches anything else.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Longest path of a UNIX socket: `sun_path` without its final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// An absolute path from the environment; the specification says to ignore relative ones.
fn from_environment(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn below_home(variable: &str, usual: &str) -> Result<PathBuf> {
    if let Some(path) = from_environment(variable) {
        return Ok(path.join("azekura"));
    }
    let home = std::env::home_dir().filter(|path| path.is_absolute()).with_context(|| {
        format!("there is no home directory: set HOME or {variable} to a directory of yours")
    })?;
    Ok(home.join(usual).join("azekura"))
}

fn user_id() -> u32 {
    rustix::process::getuid().as_raw()
}

/// `$XDG_CONFIG_HOME/azekura`: pool files and the site's secret.
pub(crate) fn config_dir() -> Result<PathBuf> {
    below_home("XDG_CONFIG_HOME", ".config")
}

/// `$XDG_STATE_HOME/azekura`: logs, and what runs where.
pub(crate) fn state_dir() -> Result<PathBuf> {
    below_home("XDG_STATE_HOME", ".local/state")
}

/// `$XDG_DATA_HOME/azekura`: pools in directories.
pub(crate) fn data_dir() -> Result<PathBuf> {
    below_home("XDG_DATA_HOME", ".local/share")
}

/// The log file of a background program.
pub fn log_file(name: &str) -> Result<PathBuf> {
    let dir = state_dir()?.join("log");
    make_private_dir(&dir)?;
    Ok(dir.join(format!("{name}.log")))
}

/// The log file of the mount at a directory: one of its own, with a name that people recognise.
pub(crate) fn mount_log(dir: &Path) -> Result<PathBuf> {
    let last = dir.file_name().unwrap_or_default().to_string_lossy();
    let hash = azekura_proto::placement::name_hash(dir.as_os_str().as_encoded_bytes());
    log_file(&format!("mount-{last}-{:08x}", hash >> 32))
}

/// The log file of a gateway in the background.
pub(crate) fn gateway_log(pool: &str, address: &str) -> Result<PathBuf> {
    let hash = azekura_proto::placement::name_hash(address.as_bytes());
    log_file(&format!("nfs-{pool}-{:08x}", hash >> 32))
}

/// Where memory-backed pools of this user live.
pub(crate) fn memory_dir() -> Result<PathBuf> {
    let shared = Path::new("/dev/shm");
    if !shared.is_dir() {
        bail!("/dev/shm is not there: memory-backed pools need it; use --dir instead");
    }
    own_dir_in_shared_place(&shared.join(format!("azekura-{}", user_id())))
}

/// Where the UNIX sockets of this user's pools live.
pub fn socket_dir() -> Result<PathBuf> {
    match from_environment("XDG_RUNTIME_DIR").filter(|path| path.is_dir()) {
        Some(path) => {
            let dir = path.join("azekura");
            make_private_dir(&dir)?;
            Ok(dir)
        }
        None => own_dir_in_shared_place(&PathBuf::from(format!("/tmp/azekura-{}", user_id()))),
    }
}

/// The socket of the pool `name`.
///
/// # Errors
/// If the path is longer than a UNIX socket may have.
pub(crate) fn socket_path(name: &str) -> Result<PathBuf> {
    let path = socket_dir()?.join(format!("{name}.sock"));
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        bail!(
            "the socket path {} has {bytes} bytes, and a UNIX socket's may have \
             {SOCKET_PATH_BYTES_MAX}: choose a shorter pool name or set XDG_RUNTIME_DIR to a \
             shorter directory",
            path.display()
        );
    }
    Ok(path)
}

/// Whether a UNIX socket can be bound at a path: it is short enough, and its file system has sockets.
pub(crate) fn takes_socket(path: &Path) -> bool {
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return false;
    }
    // What an engine that was killed has left is removed by the next one too.
    let _ = std::fs::remove_file(path);
    let bound = std::os::unix::net::UnixListener::bind(path).is_ok();
    let _ = std::fs::remove_file(path);
    bound
}

/// Makes a directory and those above it, private to the user.
pub(crate) fn make_private_dir(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make the directory {}", dir.display()))
}

/// Others can make entries in `/tmp` and `/dev/shm`, so whose directory it is has to be looked at.
fn own_dir_in_shared_place(dir: &Path) -> Result<PathBuf> {
    make_private_dir(dir)?;
    let metadata = std::fs::symlink_metadata(dir)
        .with_context(|| format!("cannot look at {}", dir.display()))?;
    if !metadata.is_dir() || metadata.uid() != user_id() || metadata.mode() & 0o077 != 0 {
        bail!(
            "{} is not a directory that only you can use: remove it or make it so with \
             'chmod 700 {}'",
            dir.display(),
            dir.display()
        );
    }
    Ok(dir.to_owned())
}

/// A path that stays true after a change of directory; the path need not exist.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))
}
