//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// Takes or changes a lock. With `wait`, waits until it is free or `interrupted` says true
    /// (asked about twice a second), which gives `EINTR`; else `EAGAIN` if another owner has it.
    pub fn lock(
        &self,
        oid: Oid,
        lock: Lock,
        wait: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        todo!()
    }
    /// Gives back a range; pid and mode do not count.
    pub fn unlock(&self, oid: Oid, lock: Lock) -> Result<()> {
        todo!()
    }
    /// Which lock is in the way of this one.
    pub fn test_lock(&self, oid: Oid, lock: Lock) -> Result<Option<Lock>> {
        todo!()
    }
    /// Gives back everything that the owner has locked on the object; no request if that is
    /// nothing (`close` for `fcntl` locks, last close for `flock`).
    pub fn unlock_owner(&self, oid: Oid, kind: LockKind, owner: u64) -> Result<()> {
        todo!()
    }
}
