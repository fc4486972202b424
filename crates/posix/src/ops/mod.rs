//! The operations, one module per family. Each is a set of methods of [`crate::FileSystem`].

pub(crate) mod access;
pub(crate) mod allocate;
pub(crate) mod attr;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod io;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod lookup;
pub(crate) mod open;
pub(crate) mod readdir;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod seek;
pub(crate) mod statfs;
pub(crate) mod sync;
pub(crate) mod xattr;
