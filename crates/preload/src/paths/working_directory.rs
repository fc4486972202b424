//! The working directory, while it lies in the container. Owns that fact only; the kernel's working
//! directory stays where it was.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use azekura_posix::{Errno, FileKind, Oid, Result};
use azekura_proto::HandedDirectory;
use parking_lot::RwLock;

use crate::guard::Guard;
use crate::{service, settings};

/// A working directory in the container.
#[derive(Debug)]
pub(crate) struct WorkingDirectory {
    oid: OnceLock<Oid>,
    /// Its absolute path below the container's root, without symlinks; empty for the root.
    pub(crate) path: Vec<u8>,
}

impl WorkingDirectory {
    /// A directory that has been found.
    pub(crate) fn found(oid: Oid, path: Vec<u8>) -> Self {
        Self { oid: OnceLock::from(oid), path }
    }

    /// The directory with its path, if the pool has told it.
    pub(crate) fn known(&self) -> Option<(Oid, Vec<u8>)> {
        Some((*self.oid.get()?, self.path.clone()))
    }

    /// The directory; one that was handed on by its path is looked for again until the pool has told it.
    pub(crate) fn oid(&self) -> Result<Oid> {
        if let Some(oid) = self.oid.get() {
            return Ok(*oid);
        }
        let asked: &[u8] = if self.path.is_empty() { b"/" } else { &self.path };
        let attr = service::root()?.metadata(asked)?;
        if attr.kind != FileKind::Directory {
            return Err(Errno::NOENT);
        }
        Ok(*self.oid.get_or_init(|| attr.oid))
    }
}

static OURS: AtomicBool = AtomicBool::new(false);
static CURRENT: RwLock<Option<Arc<WorkingDirectory>>> = RwLock::new(None);

/// Whether the working directory lies in the container.
pub(crate) fn is_ours() -> bool {
    OURS.load(Ordering::Relaxed)
}

/// The working directory, if it lies in the container.
pub(crate) fn get() -> Option<Arc<WorkingDirectory>> {
    let _guard = Guard::enter();
    CURRENT.read().clone()
}

/// Sets it; `None` if the kernel's counts again.
pub(crate) fn set(place: Option<WorkingDirectory>) {
    let _guard = Guard::enter();
    let mut now = CURRENT.write();
    OURS.store(place.is_some(), Ordering::Relaxed);
    *now = place.map(Arc::new);
}

/// The variable that hands the working directory on to a program started from here: the path below
/// the container's root.
pub(crate) const VARIABLE: &CStr = c"AZEKURA_CWD";

/// Takes over the working directory of the program that started this one.
pub(crate) fn adopt() {
    let Some(path) = settings::variable(VARIABLE) else { return };
    // SAFETY: the process has one thread yet.
    unsafe { libc::unsetenv(VARIABLE.as_ptr()) };
    let place = match service::received_directory() {
        Some(HandedDirectory { oid, path: of, .. }) if of == path => {
            WorkingDirectory::found(oid, path)
        }
        _ => WorkingDirectory { oid: OnceLock::new(), path },
    };
    // If it is not found the working directory is in the container all the same: names that count
    // from it fail, and never mean files of the host.
    let _ = place.oid();
    set(Some(place));
}
