//! `fcntl` ranges and `flock`, kept at the object's home. Owns waiting: in slices, so that a
//! signalled program and a lost engine are noticed.

use azekura_client::ClientError;
use azekura_proto::message::typed::LockTest;
use azekura_proto::message::{Lock, LockKind, LockMode};
use azekura_proto::{Oid, Status};

use crate::errno::of_client;
use crate::writer::WriteLeases;
use crate::{Errno, FileSystem, Result};

impl FileSystem {
    /// Takes or changes a lock. With `wait`, waits until it is free or `interrupted` says true
    /// (asked about twice a second).
    ///
    /// # Errors
    /// `EAGAIN` if another owner has it and `wait` is not set, `EINTR`, `EDEADLK`, `ENOLCK`; `EIO` if the
    /// owner has lost one in the range to another client, until it unlocks that.
    pub fn lock(
        &self,
        oid: Oid,
        lock: Lock,
        wait: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        // Whoever has a lock sees what was written before.
        let _settled = self.writing.settle(oid, WriteLeases::Keep)?;
        loop {
            match self.pool().lock(oid, lock, wait) {
                Ok(()) => return Ok(()),
                Err(ClientError::Status(Status::Locked)) if wait => {
                    if interrupted() {
                        // Takes the owner off the engine's list of waiters: the unlock of nothing
                        // does no harm.
                        let none = Lock { start: u64::MAX, end: u64::MAX, ..lock };
                        self.pool().unlock(oid, none).map_err(|error| of_client(&error))?;
                        return Err(Errno::INTR);
                    }
                }
                Err(ClientError::Status(Status::LimitReached)) => return Err(Errno::NOLCK),
                Err(error) => return Err(of_client(&error)),
            }
        }
    }

    /// Gives back a range; pid and mode do not count.
    ///
    /// # Errors
    /// `EIO` if the engine does not answer.
    pub fn unlock(&self, oid: Oid, lock: Lock) -> Result<()> {
        // Whoever gets it next sees what was written under it.
        let settled = self.writing.settle(oid, WriteLeases::Release);
        self.pool().unlock(oid, lock).map_err(|error| of_client(&error))?;
        settled.map(drop)
    }

    /// Refuses to touch bytes that somebody here believes to have locked, where an engine has given the
    /// lock to another client meanwhile.
    pub(super) fn check_locks(&self, oid: Oid, offset: u64, bytes: usize) -> Result<()> {
        if self.pool().relies_on_lost_lock(oid, offset, bytes as u64) {
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// Which lock is in the way of this one.
    ///
    /// # Errors
    /// `EIO` if the engine does not answer.
    pub fn test_lock(&self, oid: Oid, lock: Lock) -> Result<Option<Lock>> {
        self.call(oid.home(), LockTest { oid, lock })
    }

    /// Gives back everything that the owner has locked on the object (`close` for `fcntl` locks,
    /// the last close for `flock`). No request if that is nothing.
    ///
    /// # Errors
    /// `EIO` if the engine does not answer.
    pub fn unlock_owner(&self, oid: Oid, kind: LockKind, owner: u64) -> Result<()> {
        if !self.pool().has_locks(oid, kind, owner) {
            return Ok(());
        }
        let mode = LockMode::Exclusive;
        self.unlock(oid, Lock { kind, owner, pid: 0, mode, start: 0, end: u64::MAX })
    }
}
