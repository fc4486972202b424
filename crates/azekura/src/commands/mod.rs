//! The commands that start, stop, join and show things, one module each.

pub(crate) mod container;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod lab;
pub(crate) mod logs;
pub(crate) mod mount;
pub(crate) mod nfs;
pub(crate) mod own_engine;
pub(crate) mod own_gateway;
pub(crate) mod own_mount;
pub(crate) mod own_services;
pub(crate) mod pool;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod umount;
pub(crate) mod up;
pub(crate) mod with_engine;
