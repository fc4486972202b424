//! The FUSE door: a container as a mounted file system.

pub mod kernel;
