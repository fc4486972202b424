//! Why a mount cannot be served.

use rustix::io::Errno;

/// Why a mount cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The device failed.
    #[error("reading /dev/fuse failed: {0}")]
    Device(Errno),
    /// Unmounted before it was ready.
    #[error("the file system was unmounted before it was ready")]
    UnmountedEarly,
    /// The kernel's first message was something else.
    #[error("the kernel did not begin with the FUSE handshake")]
    NoHandshake,
    /// The kernel's protocol is too old.
    #[error("the kernel speaks FUSE {major}.{minor}; 7.31 (Linux 5.4) or newer is needed")]
    KernelTooOld {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// Requests were to go over io_uring, and cannot.
    #[error("FUSE over io_uring cannot be used: {0}")]
    Uring(String),
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
