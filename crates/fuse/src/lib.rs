//! The FUSE door: a container as a mounted file system.
//!
//! [`mount`] puts an [`azekura_posix::FileSystem`] on a directory. The modules beside [`kernel`]
//! translate what the kernel asks into calls of that file system, and hold nothing but what the
//! FUSE protocol itself demands: open handles, what the page cache may keep, and who waits for a
//! lock. Permissions are checked by the kernel (`default_permissions`), so the file system has to
//! be made with `check_permissions: false`.

mod background;
mod cache;
mod convert;
mod entries;
mod handler;
mod handles;
mod inodes;
mod io;
pub mod kernel;
mod listing;
mod locks;
mod mount;
mod node;
mod waiters;
mod xattrs;

pub use cache::CacheMode;
pub use kernel::MountError as KernelMountError;
pub use mount::{Mount, MountConfig, MountError, Unmounter, mount, unmount};
