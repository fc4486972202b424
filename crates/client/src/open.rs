//! Requests after which this session has something open or locked. Owns the pairing of each with
//! the session's own record of it.

use std::sync::Arc;

use azekura_proto::attr::NewInode;
use azekura_proto::limits::RELEASES_MAX;
use azekura_proto::message::{Lock, LockKind, Reply, Request};
use azekura_proto::transaction::Entry;
use azekura_proto::{Attr, ContainerId, EngineId, Oid, TargetId, placement};

use crate::error::{ClientError, Result};
use crate::pool::Pool;

/// Releases wait for the next request to the engine, but never more than so many.
const RELEASES_WAITING: usize = RELEASES_MAX / 4;

/// An object held open. Dropping it queues the release, which travels with a later request.
#[derive(Debug)]
pub struct Hold {
    pool: Arc<Pool>,
    oid: Oid,
}

impl Hold {
    /// The object.
    pub fn oid(&self) -> Oid {
        self.oid
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Ok(link) = self.pool.link(self.oid.home()) else { return };
        if link.holds.close(self.oid) >= RELEASES_WAITING {
            // Carries them along. A failure has been logged, and they are kept for later.
            let _ = self.pool.call(self.oid.home(), &Request::Ping);
        }
    }
}

/// How a create ended.
#[derive(Debug)]
pub enum Created {
    /// The object is new.
    New(Box<Attr>, Option<Hold>),
    /// The name was there already. Attributes come along if the object's home is at hand.
    Existing(Entry, Option<Box<Attr>>),
}

fn unexpected(pool: &Pool, target: TargetId) -> ClientError {
    let engine = pool.map().engine_of(target).unwrap_or(EngineId(0));
    ClientError::Protocol { engine, what: "a reply that belongs to another request" }
}

impl Pool {
    /// Opens an object: it is kept until the hold is dropped, even if its last name goes.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn open(self: &Arc<Self>, oid: Oid) -> Result<(Box<Attr>, Hold)> {
        self.link(oid.home())?.holds.open(oid);
        // From here on the hold's drop undoes the count, also after an error.
        let hold = Hold { pool: Arc::clone(self), oid };
        match self.call(oid.home(), &Request::Open { oid })? {
            Reply::Attr(attr) => Ok((attr, hold)),
            _ => Err(unexpected(self, oid.home())),
        }
    }

    /// Makes an object and its entry, and holds it open if `hold`.
    ///
    /// # Errors
    /// As [`Pool::call`]. A name that exists is no error but [`Created::Existing`].
    pub fn create(
        self: &Arc<Self>,
        dir: Oid,
        name: &[u8],
        inode: NewInode,
        hold: bool,
    ) -> Result<Created> {
        let target = placement::entry_target(dir, name, self.target_count());
        let request = Request::Create { dir, name, inode, hold };
        let (reply, guard) = if hold {
            self.call_holding(target, &request)
        } else {
            (self.call(target, &request), None)
        };
        match reply? {
            Reply::Created(attr) => Ok(Created::New(attr, guard)),
            Reply::Entry { entry, attr } => {
                if hold && attr.is_some() {
                    // The engine holds it now; whoever wants it open asks by itself.
                    self.link(entry.oid.home())?.holds.forget_stray(entry.oid);
                }
                Ok(Created::Existing(entry, attr))
            }
            _ => Err(unexpected(self, target)),
        }
    }

    /// A request that makes an object on its target and holds it open.
    fn call_holding(
        self: &Arc<Self>,
        target: TargetId,
        request: &Request<'_>,
    ) -> (Result<Reply>, Option<Hold>) {
        let link = match self.link(target) {
            Ok(link) => link,
            Err(error) => return (Err(error), None),
        };
        let turn = link.holds.begin_create();
        let reply = self.call(target, request);
        let made = match &reply {
            Ok(Reply::Created(attr)) => Some(attr.oid),
            _ => None,
        };
        link.holds.end_create(turn, made);
        (reply, made.map(|oid| Hold { pool: Arc::clone(self), oid }))
    }

    /// Makes an object without a name and holds it open (`O_TMPFILE`).
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn create_unlinked(
        self: &Arc<Self>,
        container: ContainerId,
        home: TargetId,
        inode: NewInode,
    ) -> Result<(Box<Attr>, Hold)> {
        match self.call_holding(home, &Request::CreateUnlinked { container, inode }) {
            (Ok(Reply::Created(attr)), Some(hold)) => Ok((attr, hold)),
            (Ok(_), _) => Err(unexpected(self, home)),
            (Err(error), _) => Err(error),
        }
    }

    /// Whether this session has the object open.
    pub fn is_open(&self, oid: Oid) -> bool {
        self.link(oid.home()).is_ok_and(|link| link.holds.is_open(oid))
    }

    /// Takes a lock. With `wait` the engine waits for up to
    /// [`azekura_proto::limits::LOCK_WAIT_SLICE_MS`] before it answers `Locked`.
    ///
    /// # Errors
    /// As [`Pool::call`]; `Locked` if another owner has it.
    pub fn lock(&self, oid: Oid, lock: Lock, wait: bool) -> Result<()> {
        self.call(oid.home(), &Request::LockAcquire { oid, lock, wait })?;
        self.link(oid.home())?.holds.lock(oid, lock);
        Ok(())
    }

    /// Gives back what the lock's owner has in its range.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn unlock(&self, oid: Oid, lock: Lock) -> Result<()> {
        self.call(oid.home(), &Request::LockRelease { oid, lock })?;
        self.link(oid.home())?.holds.unlock(oid, lock);
        Ok(())
    }

    /// Whether the owner has anything locked on the object, as far as this session knows.
    pub fn has_locks(&self, oid: Oid, kind: LockKind, owner: u64) -> bool {
        self.link(oid.home()).is_ok_and(|link| link.holds.has_locks(oid, kind, owner))
    }
}
