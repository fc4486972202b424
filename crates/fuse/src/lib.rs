//! The FUSE front end: a container as a mounted file system.
//!
//! [`mount`] puts an [`azekura_posix::FileSystem`] on a directory. Where one process mounts and
//! another serves, the first calls [`attach`], and the second [`serve`] with what that gave. The modules here
//! translate what the kernel asks into calls of that file system, and hold nothing but what the
//! FUSE protocol itself demands: open handles, what the page cache may keep, and who waits for a
//! lock. Permissions are checked by the kernel (`default_permissions`), so the file system has to
//! be made with `check_permissions: false`; only where the kernel knows a single user, because the
//! mount is in that user's own user namespace, the file system checks them.

mod answer;
mod background;
mod cache;
mod convert;
mod dir_handle;
mod directories;
mod dispatch;
mod file_handle;
mod front_end;
mod handles;
mod mount;
mod ops;
mod passthrough;
mod serve;
mod view;
mod waiters;

pub use azekura_fuse_kernel as kernel;
pub use cache::CacheMode;
pub use kernel::MountError as KernelMountError;
pub use kernel::SessionError;
pub use kernel::{Transport, passthrough_refusal, uring_refusal};
pub use mount::{
    AttachConfig, Mount, MountConfig, MountError, Unmounter, attach, mount, raise_readahead,
    unmount,
};
pub use serve::{ServeConfig, Server, serve};
pub use view::View;
