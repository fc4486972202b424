//! A mount from its beginning to its end. Owns the order of both: what was begun is undone when a
//! later step fails, and a mount is gone before its threads are.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_posix::FileSystem;

use crate::cache::CacheMode;
use crate::kernel::{self, MountOptions, SessionError, Transport};
use crate::serve::{ServeConfig, Server, TRANSFER_BYTES, serve};
use crate::view::View;

/// How to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "mount options are independent switches")]
pub struct MountConfig {
    /// The directory to mount on.
    pub mountpoint: PathBuf,
    /// What the kernel may keep.
    pub cache: CacheMode,
    /// Users other than the one who mounts may use it, as far as permissions let them.
    pub allow_other: bool,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// Set-user and set-group bits, and capabilities, of programs in it count. Root only.
    pub allow_suid: bool,
    /// Device nodes in it can be opened. Root only.
    pub allow_devices: bool,
    /// Most threads that serve requests; see [`ServeConfig::threads`].
    pub threads: Option<usize>,
    /// Which way requests take.
    pub transport: Transport,
    /// See [`ServeConfig::passthrough`].
    pub passthrough: bool,
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
    server: Server,
    unmounter: Unmounter,
}

/// Ends a mount, from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mountpoint: Arc<Path>,
    /// Its number in the mount table; `None` if that could not be read.
    device: Option<Arc<str>>,
    gone: Arc<AtomicBool>,
}

impl Unmounter {
    /// The directory, as an absolute path.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts; [`Mount::wait`] returns then. With `lazy` the mount disappears at once and ends
    /// when the last file in it is closed. A mount that is gone already is no error, and what somebody has
    /// mounted at its place meanwhile is left alone.
    ///
    /// # Errors
    /// If it is in use, for example.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        if self.gone.load(Ordering::Acquire) {
            return Ok(());
        }
        let is_other = |device| kernel::mounted_device(&self.mountpoint).as_deref() != Some(device);
        if self.device.as_deref().is_some_and(is_other) {
            return Ok(());
        }
        unmount(&self.mountpoint, lazy)
    }
}

/// Mounts a file system. It is ready for use when this returns.
///
/// # Errors
/// If the kernel or the helper program refuses; the message says what to do.
pub fn mount(fs: Arc<FileSystem>, config: MountConfig) -> Result<Mount, MountError> {
    let options = MountOptions {
        allow_suid: config.allow_suid,
        allow_devices: config.allow_devices,
        ..options(config.fsname, config.allow_other, config.read_only)
    };
    let MountConfig { mountpoint, cache, threads, transport, passthrough, .. } = config;
    if fs.config().check_permissions {
        tracing::warn!("the file system checks permissions a second time, without the groups");
    }
    // Absolute, so that it can be unmounted from another working directory. What is wrong with it
    // is found when mounting.
    let mountpoint = std::fs::canonicalize(&mountpoint).unwrap_or(mountpoint);
    let device = kernel::mount(&mountpoint, &options)?;
    let serving = ServeConfig { cache, threads, transport, passthrough, view: View::Everybody };
    match serve(device, fs, serving) {
        Ok(server) => {
            raise_readahead(&mountpoint, cache);
            let device = kernel::mounted_device(&mountpoint).map(Arc::from);
            let mountpoint = Arc::from(mountpoint);
            let unmounter = Unmounter { mountpoint, device, gone: server.over() };
            Ok(Mount { server, unmounter })
        }
        Err(source) => {
            if let Err(error) = unmount(&mountpoint, true) {
                tracing::warn!("the mount that could not be served is still there: {error}");
            }
            Err(MountError::Session { mountpoint, source })
        }
    }
}

fn options(fsname: String, allow_other: bool, read_only: bool) -> MountOptions {
    MountOptions {
        fsname,
        subtype: "azekura".to_owned(),
        allow_other,
        default_permissions: true,
        read_only,
        allow_suid: false,
        allow_devices: false,
        max_read_bytes: TRANSFER_BYTES,
    }
}

/// Lets the kernel read ahead as much as one request can ask for, where it keeps data at all. Only
/// root may; for everybody else this changes nothing. The mount has to be served already.
pub fn raise_readahead(mountpoint: &Path, cache: CacheMode) {
    if cache == CacheMode::Auto {
        kernel::raise_readahead(mountpoint, TRANSFER_BYTES);
    }
}

/// What a mount is that another process serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachConfig {
    /// The directory to mount on.
    pub mountpoint: PathBuf,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// Shown as the source in the mount table: `azekura:NAME`.
    pub fsname: String,
    /// The kernel checks permissions. It has to be left to the server where the kernel knows one
    /// user only: see [`View`].
    pub kernel_checks: bool,
}

/// Mounts in this process's mount namespace, which has to be its own, and returns the device that
/// [`serve`] takes, here or in another process. Everybody in the namespace may use the mount, as
/// far as permissions let them. It answers nothing before it is served; when nobody holds the
/// device any more, everything in it fails.
///
/// # Errors
/// If the kernel refuses; the message says what to do.
pub fn attach(config: &AttachConfig) -> Result<OwnedFd, MountError> {
    let is_root = rustix::process::geteuid().is_root();
    let options = MountOptions {
        default_permissions: config.kernel_checks,
        // Whoever started the command can make it see anything; to others it is not there.
        allow_suid: is_root,
        allow_devices: is_root,
        ..options(config.fsname.clone(), true, config.read_only)
    };
    Ok(kernel::attach(&config.mountpoint, &options)?)
}

impl Mount {
    /// Waits until the mount is gone.
    pub fn wait(&self) {
        if let Err(errno) = self.server.wait() {
            tracing::error!("not all that was written has arrived: {errno}");
        }
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
