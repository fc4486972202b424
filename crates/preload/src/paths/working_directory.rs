//! The working directory, while it lies in the container. Owns that fact only; the kernel's working
//! directory stays where it was.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_posix::{FileKind, Oid};
use parking_lot::RwLock;

/// A working directory in the container.
#[derive(Debug)]
pub(crate) struct WorkingDirectory {
    /// The directory.
    pub(crate) oid: Oid,
    /// Its absolute path below the container's root, without symlinks; empty for the root.
    pub(crate) path: Vec<u8>,
}

static OURS: AtomicBool = AtomicBool::new(false);
static PLACE: RwLock<Option<Arc<WorkingDirectory>>> = RwLock::new(None);

/// Whether the working directory lies in the container.
pub(crate) fn is_ours() -> bool {
    OURS.load(Ordering::Relaxed)
}

/// The working directory, if it lies in the container.
pub(crate) fn get() -> Option<Arc<WorkingDirectory>> {
    PLACE.read().clone()
}

/// Sets it; `None` if the kernel's counts again.
pub(crate) fn set(place: Option<WorkingDirectory>) {
    let mut now = PLACE.write();
    OURS.store(place.is_some(), Ordering::Relaxed);
    *now = place.map(Arc::new);
}

/// The variable that hands the working directory on to a program started from here: the path below
/// the container's root.
pub(crate) const VARIABLE: &CStr = c"AZEKURA_CWD";

/// Takes over the working directory of the program that started this one.
pub(crate) fn adopt() {
    // SAFETY: a C string; the value is copied at once.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: values of the environment are C strings.
    let path = unsafe { CStr::from_ptr(value) }.to_bytes().to_vec();
    // SAFETY: the process has one thread yet.
    unsafe { libc::unsetenv(VARIABLE.as_ptr()) };
    let Ok(root) = crate::service::root() else { return };
    let asked: &[u8] = if path.is_empty() { b"/" } else { &path };
    if let Ok(attr) = root.metadata(asked)
        && attr.kind == FileKind::Directory
    {
        set(Some(WorkingDirectory { oid: attr.oid, path }));
    }
}
