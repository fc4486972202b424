//! A mount from its beginning to its end. Owns the order of both: what was begun is undone when a
//! later step fails, and a mount is gone before its threads are.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_posix::FileSystem;

use crate::background::{self, Ticker};
use crate::cache::CacheMode;
use crate::handler::Door;
use crate::kernel::{self, MountOptions, Session, SessionConfig, SessionError};

/// Largest read and write request, and most that is read ahead, in bytes.
const TRANSFER_BYTES: u32 = 1024 * 1024;

/// How to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountConfig {
    /// The directory to mount on.
    pub mountpoint: PathBuf,
    /// What the kernel may keep.
    pub cache: CacheMode,
    /// Users other than the one who mounts may use it, as far as permissions let them.
    pub allow_other: bool,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// Most threads that serve requests; by default two for each core, and at least four.
    pub threads: Option<usize>,
    /// Shown as the source in the mount table: `azekura:NAME`.
    pub fsname: String,
}

/// Why a mount did not come about, or did not go.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel or the helper refused; the message says what to do.
    #[error(transparent)]
    Kernel(#[from] kernel::MountError),
    /// It was mounted, but could not be served.
    #[error("cannot serve the mount on {}: {source}", mountpoint.display())]
    Session {
        /// The directory.
        mountpoint: PathBuf,
        /// Why.
        source: SessionError,
    },
}

/// A mount. It lasts until it is unmounted, by whomever; dropping it unmounts it.
#[derive(Debug)]
pub struct Mount {
    session: Session,
    door: Arc<Door>,
    ticker: Ticker,
    unmounter: Unmounter,
}

/// Ends a mount, from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mountpoint: Arc<Path>,
    gone: Arc<AtomicBool>,
}

impl Unmounter {
    /// The directory, as an absolute path.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts; [`Mount::wait`] returns then. With `lazy` the mount disappears at once and ends
    /// when the last file in it is closed. A mount that is gone already is no error.
    ///
    /// # Errors
    /// If it is in use, for example.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        if self.gone.load(Ordering::Acquire) {
            return Ok(());
        }
        unmount(&self.mountpoint, lazy)
    }
}

/// Mounts a file system. It is ready for use when this returns.
///
/// As root, set-user programs and device nodes in it count; for everybody else they do not.
///
/// # Errors
/// If the kernel or the helper program refuses; the message says what to do.
pub fn mount(fs: Arc<FileSystem>, config: MountConfig) -> Result<Mount, MountError> {
    let MountConfig { mountpoint, cache, allow_other, read_only, threads, fsname } = config;
    if fs.config().check_permissions {
        tracing::warn!("the file system checks permissions a second time, without the groups");
    }
    // Absolute, so that it can be unmounted from another working directory. What is wrong with it
    // is found when mounting.
    let mountpoint = std::fs::canonicalize(&mountpoint).unwrap_or(mountpoint);
    let is_root = rustix::process::geteuid().is_root();
    let options = MountOptions {
        fsname,
        subtype: "azekura".to_owned(),
        allow_other,
        default_permissions: true,
        read_only,
        allow_suid: is_root,
        allow_devices: is_root,
        max_read_bytes: TRANSFER_BYTES,
    };
    let device = kernel::mount(&mountpoint, &options)?;
    serve(device, fs, cache, threads, &mountpoint).map_err(|source| {
        if let Err(error) = unmount(&mountpoint, true) {
            tracing::warn!("the mount that could not be served is still there: {error}");
        }
        MountError::Session { mountpoint, source }
    })
}

fn serve(
    device: std::os::fd::OwnedFd,
    fs: Arc<FileSystem>,
    cache: CacheMode,
    threads: Option<usize>,
    mountpoint: &Path,
) -> Result<Mount, SessionError> {
    let caches = cache == CacheMode::Auto;
    let defaults = SessionConfig::default();
    let session_config = SessionConfig {
        threads: threads.unwrap_or(defaults.threads),
        max_write_bytes: TRANSFER_BYTES,
        max_readahead_bytes: TRANSFER_BYTES,
        cache_symlinks: caches,
        auto_invalidate_data: caches,
        readdir_plus: caches,
        ..defaults
    };
    let (drops, dropped) = background::drops();
    let door = Arc::new(Door::new(Arc::clone(&fs), cache, drops));
    let session = Session::start(device, &session_config, Arc::clone(&door))?;
    background::start_dropping(session.notifier(), dropped).map_err(SessionError::Thread)?;
    let ticker = Ticker::start(fs).map_err(SessionError::Thread)?;
    if caches {
        kernel::raise_readahead(mountpoint, TRANSFER_BYTES);
    }
    let unmounter = Unmounter { mountpoint: Arc::from(mountpoint), gone: session.over() };
    Ok(Mount { session, door, ticker, unmounter })
}

impl Mount {
    /// Waits until the mount is gone.
    pub fn wait(&self) {
        self.session.wait();
        self.door.waiters.close();
        self.ticker.stop();
    }

    /// What ends the mount, to be given to another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmounter.unmount(true) {
            tracing::warn!("{error}");
            // Waiting would have no end.
            return;
        }
        self.wait();
    }
}

/// Unmounts whatever is mounted on `path`. With `lazy` it disappears at once and ends when the last
/// file in it is closed.
///
/// # Errors
/// If nothing is mounted there, or it is in use; the message says what to do.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), MountError> {
    Ok(kernel::unmount(path, lazy)?)
}
