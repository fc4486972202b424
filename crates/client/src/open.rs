//! Requests after which this session has something open or locked. Owns the pairing of each with
//! the session's own record of it.

use std::sync::Arc;

use azekura_proto::attr::{DirectoryGuard, FileKind, NewInode};
use azekura_proto::limits::RELEASES_MAX;
use azekura_proto::message::typed::{
    Claim, Create, CreateGuarded, CreateToWrite, CreateUnlinked, Creation, LeaseRead, Leased,
    LockAcquire, LockRelease, Open, OpenEntry, OpenedEntry, Ping,
};
use azekura_proto::message::{Lock, LockKind, ShardRef, TypedRequest};
use azekura_proto::transaction::Entry;
use azekura_proto::{Attr, ContainerId, Oid, Status, TargetId};
use azekura_rpc::Failure;

use crate::batch::Batch;
use crate::error::{ClientError, Result};
use crate::fan_out::Call;
use crate::pool::Pool;

/// Releases wait for the next request to the engine, but never more than so many.
const RELEASES_WAITING: usize = RELEASES_MAX / 4;

/// An object held open. Dropping it queues the release, which travels with a later request.
#[derive(Debug)]
pub struct OpenReference {
    pool: Arc<Pool>,
    oid: Oid,
}

impl OpenReference {
    /// The object.
    pub fn oid(&self) -> Oid {
        self.oid
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for OpenReference {
    fn drop(&mut self) {
        let Ok(link) = self.pool.link(self.oid.home()) else { return };
        if link.open_references.close(self.oid) >= RELEASES_WAITING {
            // Carries them along. A failure has been logged, and they are kept for later.
            let _ = self.pool.call(self.oid.home(), Ping);
        }
    }
}

/// An object that was opened: its attributes then, and what keeps it open.
pub type Opened = (Box<Attr>, OpenReference);

/// How a create ended.
#[derive(Debug)]
pub enum Created {
    /// The object is new.
    New(Box<Attr>, OpenReference),
    /// The name was there already; a regular file may have been opened by the same request.
    Existing(Entry, Option<Opened>),
}

/// What opening a name has led to.
#[derive(Debug)]
pub struct OpenedName {
    /// The entry.
    pub entry: Entry,
    /// Attributes, if the object's home is at hand.
    pub attr: Option<Box<Attr>>,
    /// A regular file or directory whose home is at hand is held open.
    pub reference: Option<OpenReference>,
    /// A read lease of a file's shard at home, under which the attributes were looked at; of 0 ms if there
    /// is none.
    pub lease: Leased,
    /// The versions of the file's other shards, if they are leased as long.
    pub others: Vec<u64>,
    /// How long the names of the directory stay that were there, in ms from the question on, if that was asked for;
    /// else 0.
    pub names_ms: u32,
    /// How many of the file's last bytes have come under the lease, fewer than there was room for where a hole
    /// follows; `None` if they were not brought.
    pub brought_bytes: Option<usize>,
}

impl Pool {
    /// Opens what a name leads to, with a read lease of a regular file if `lease`, and then with as many of its
    /// last bytes as `bring` has room for, or all that there are: [`Pool::open`] without looking the name up
    /// first. `None` if it has to be done in these two steps just now.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn open_name(
        self: &Arc<Self>,
        dir: Oid,
        name: &[u8],
        lease: bool,
        bring: &mut [u8],
    ) -> Result<Option<OpenedName>> {
        self.open_name_and_keep(dir, name, (lease, None), bring)
    }

    /// As [`Pool::open_name`] with a lease, and in the same exchange a read lease of the directory's names among which
    /// this one is, if there is one: then the name stays as it was found.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn open_name_leased(
        self: &Arc<Self>,
        dir: Oid,
        name: &[u8],
        bring: &mut [u8],
    ) -> Result<Option<OpenedName>> {
        let placement = self.placement();
        let shard = placement.shard_on_target(dir, placement.entry_target(dir, name));
        let names = shard.map(|shard| ShardRef { oid: dir, shard, is_file: false });
        self.open_name_and_keep(dir, name, (true, names), bring)
    }

    fn open_name_and_keep(
        self: &Arc<Self>,
        dir: Oid,
        name: &[u8],
        (lease, names): (bool, Option<ShardRef>),
        bring: &mut [u8],
    ) -> Result<Option<OpenedName>> {
        let target = self.placement().entry_target(dir, name);
        let link = self.link(target)?;
        let claims = link.claim_count();
        let Some(opening) = link.open_references.begin_open_by_name() else { return Ok(None) };
        let request = OpenEntry { dir, name, lease, bring_bytes: bring.len() as u32 };
        let (names_ms, reply) = match names {
            None => (0, self.fetch(target, request, bring)),
            Some(data) => {
                let mut batch = Batch::with_capacity(2);
                // What is told after the lease was given is what stays.
                let names = batch.add(Call::new(target, LeaseRead { data }));
                let opened = batch.add(Call::fetching(target, request, bring));
                let mut replies = self.call_batch(batch);
                let is_in_order = replies.are_in_order();
                let leased = replies.take(names).ok().filter(|_| is_in_order);
                (leased.map_or(0, |leased| leased.lease_ms), replies.take(opened))
            }
        };
        let is_held = |kind| matches!(kind, FileKind::Regular | FileKind::Directory);
        let held = reply.as_ref().ok().filter(|opened| opened.attr.is_some());
        let held = held.map(|opened| opened.entry).filter(|entry| is_held(entry.kind));
        let oid = held.map(|entry| entry.oid);
        let mut is_certain = link.open_references.end_open_by_name(opening, oid);
        // The engine that has opened it may have ended, and the next one have heard what was open before.
        is_certain &= link.claim_count() == claims;
        let OpenedEntry { entry, mut attr, mut lease, others, mut brought_bytes } = reply?;
        let reference = oid.map(|oid| OpenReference { pool: Arc::clone(self), oid });
        if let Some(oid) = oid.filter(|_| !is_certain) {
            attr = Some(self.call(oid.home(), Open { oid })?);
            lease.lease_ms = 0;
            brought_bytes = None;
        }
        let brought_bytes = brought_bytes.map(|bytes| bytes as usize);
        Ok(Some(OpenedName { entry, attr, reference, lease, others, names_ms, brought_bytes }))
    }

    /// Opens an object: it is kept until the reference is dropped, even if its last name goes.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub fn open(self: &Arc<Self>, oid: Oid) -> Result<Opened> {
        let reference = self.count_open(oid)?;
        Ok((self.call(oid.home(), Open { oid })?, reference))
    }

    /// Counts an open that is about to be asked for, be it among other requests. From here on the
    /// reference's drop undoes that, also after an error.
    ///
    /// # Errors
    /// If no engine is known that has the object.
    pub fn count_open(self: &Arc<Self>, oid: Oid) -> Result<OpenReference> {
        self.link(oid.home())?.open_references.open(oid, &**self.platform());
        Ok(OpenReference { pool: Arc::clone(self), oid })
    }

    /// What has come of an [`OpenEntry`] of a name that was expected to lead to an object whose open was
    /// counted before: the reference, if that is open now. If another one is, it is given up.
    pub fn opened_as_expected(
        &self,
        reference: OpenReference,
        opened: &OpenedEntry,
    ) -> Option<OpenReference> {
        let oid = opened.entry.oid;
        if oid == reference.oid() {
            return opened.attr.is_some().then_some(reference);
        }
        if opened.attr.is_some()
            && let Ok(link) = self.link(oid.home())
        {
            link.open_references.forget_stray(oid);
        }
        None
    }

    /// Opens several objects, and asks for something else behind that, all at once.
    pub fn open_and<'a, R: TypedRequest<'a>>(
        self: &Arc<Self>,
        oids: &[Oid],
        then: &mut [Call<'a, R>],
    ) -> (Vec<Result<Opened>>, Vec<Result<R::Reply>>) {
        let references: Vec<_> = oids.iter().map(|oid| self.count_open(*oid)).collect();
        let mut opens: Vec<_> =
            oids.iter().map(|&oid| Call::new(oid.home(), Open { oid })).collect();
        let (attrs, replies) = self.call_mixed(&mut opens, then);
        let opened = attrs.into_iter().zip(references);
        (opened.map(|(attr, reference)| Ok((attr?, reference?))).collect(), replies)
    }

    /// Makes an object and its entry, and opens it; or with `or_open` a regular file that is there, if that
    /// can be done with the same request.
    ///
    /// # Errors
    /// As [`Pool::call`]. A name that exists is no error but [`Created::Existing`].
    pub fn create(
        self: &Arc<Self>,
        dir: Oid,
        name: &[u8],
        inode: NewInode,
        or_open: bool,
    ) -> Result<Created> {
        let target = self.placement().entry_target(dir, name);
        let request = Create { dir, name, inode, open: true };
        self.create_by(target, request, or_open, |created| (created, ())).map(|made| made.0)
    }

    /// As [`Pool::create`], if what the creation was judged by still holds of the directory.
    ///
    /// # Errors
    /// As [`Pool::create`]; status `ConditionFailed` if it does not, and nothing was made.
    pub fn create_guarded(
        self: &Arc<Self>,
        dir: Oid,
        name: &[u8],
        inode: NewInode,
        guard: DirectoryGuard,
        or_open: bool,
    ) -> Result<Created> {
        let target = self.placement().entry_target(dir, name);
        let request = CreateGuarded { dir, name, inode, open: true, guard };
        self.create_by(target, request, or_open, |created| (created, ())).map(|made| made.0)
    }

    /// As [`Pool::create`] of a regular file, or with a guard as [`Pool::create_guarded`], with a write lease of the shard
    /// at home of a new one, under which it has been empty from the start; of 0 ms if there is none.
    ///
    /// # Errors
    /// As those.
    pub fn create_to_write(
        self: &Arc<Self>,
        dir: Oid,
        name: &[u8],
        inode: NewInode,
        guard: Option<DirectoryGuard>,
        or_open: bool,
    ) -> Result<(Created, Leased)> {
        let target = self.placement().entry_target(dir, name);
        self.create_by(target, CreateToWrite { dir, name, inode, guard }, or_open, |made| made)
    }

    /// Makes an object by a request; `read` tells what that has led to, and what has come along.
    fn create_by<'a, R: TypedRequest<'a>, T>(
        self: &Arc<Self>,
        target: TargetId,
        request: R,
        or_open: bool,
        read: impl FnOnce(R::Reply) -> (Creation, T),
    ) -> Result<(Created, T)> {
        let link = self.link(target)?;
        let claims = link.claim_count();
        let opening = or_open.then(|| link.open_references.begin_open_by_name()).flatten();
        let is_opening = opening.is_some();
        let done = self.call_opening(target, request, read, |(creation, _)| match creation {
            Creation::New(attr) => Some(attr.oid),
            Creation::Existing(..) => None,
        });
        // The engine has opened a regular file whose attributes it gives.
        let found = match &done {
            Ok(((Creation::Existing(entry, Some(_)), _), _)) if entry.kind == FileKind::Regular => {
                Some(entry.oid)
            }
            _ => None,
        };
        let mut is_certain = true;
        if let Some(opening) = opening {
            is_certain = link.open_references.end_open_by_name(opening, found);
            is_certain &= link.claim_count() == claims;
        }
        let ((creation, along), reference) = done?;
        let created = match creation {
            Creation::New(attr) => {
                let other_reply = || self.broken_protocol(target, Failure::OTHER_REPLY);
                Created::New(attr, reference.ok_or_else(other_reply)?)
            }
            Creation::Existing(entry, Some(attr)) if is_opening && found.is_some() => {
                let reference = OpenReference { pool: Arc::clone(self), oid: entry.oid };
                let opened = is_certain.then_some((attr, reference));
                Created::Existing(entry, opened)
            }
            Creation::Existing(entry, attr) => {
                if attr.is_some() {
                    // The engine holds it now; whoever wants it open asks by itself.
                    self.link(entry.oid.home())?.open_references.forget_stray(entry.oid);
                }
                Created::Existing(entry, None)
            }
        };
        Ok((created, along))
    }

    /// A request that may make an object on its target and holds it open then.
    fn call_opening<'a, R: TypedRequest<'a>, V>(
        self: &Arc<Self>,
        target: TargetId,
        request: R,
        read: impl FnOnce(R::Reply) -> V,
        made: impl FnOnce(&V) -> Option<Oid>,
    ) -> Result<(V, Option<OpenReference>)> {
        let link = self.link(target)?;
        let turn = link.open_references.begin_create();
        let reply = self.call(target, request).map(read);
        let made = reply.as_ref().ok().and_then(made);
        link.open_references.end_create(turn, made);
        Ok((reply?, made.map(|oid| OpenReference { pool: Arc::clone(self), oid })))
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
    ) -> Result<(Box<Attr>, OpenReference)> {
        let request = CreateUnlinked { container, inode };
        let made = self.call_opening(home, request, |attr| attr, |attr| Some(attr.oid));
        let (attr, reference) = made?;
        let reference =
            reference.ok_or_else(|| self.broken_protocol(home, Failure::OTHER_REPLY))?;
        Ok((attr, reference))
    }

    /// Whether this session has the object open.
    pub fn is_open(&self, oid: Oid) -> bool {
        self.link(oid.home()).is_ok_and(|link| link.open_references.is_open(oid))
    }

    /// Takes a lock. With `wait` the engine waits for up to
    /// [`azekura_proto::limits::LOCK_WAIT_SLICE_MS`] before it answers `Locked`.
    ///
    /// # Errors
    /// As [`Pool::call`]; `Locked` if another owner has it, `SessionExpired` if the owner has lost one in
    /// the range, until it gives that back.
    pub fn lock(&self, oid: Oid, lock: Lock, wait: bool) -> Result<()> {
        let link = self.link(oid.home())?;
        if link.open_references.has_lost(oid, lock) {
            return Err(Status::SessionExpired.into());
        }
        let claims = link.claim_count();
        self.call(oid.home(), LockAcquire { oid, lock, wait })?;
        link.open_references.lock(oid, lock);
        if link.claim_count() != claims {
            // The engine that has granted it may have ended, and the next one have heard what was held
            // before.
            match self.call(oid.home(), Claim { open: Vec::new(), locks: vec![(oid, lock)] }) {
                Ok(()) => {}
                Err(ClientError::Status(Status::Locked)) => {
                    link.open_references.unlock(oid, lock);
                    return Err(Status::Locked.into());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives back what the lock's owner has in its range.
    ///
    /// # Errors
    /// As [`Pool::call`]; `SessionExpired` if some of it was lost, which is over with that.
    pub fn unlock(&self, oid: Oid, lock: Lock) -> Result<()> {
        let link = self.link(oid.home())?;
        let was_lost = link.open_references.has_lost(oid, lock);
        link.open_references.forget_lost(oid, lock);
        let claims = link.claim_count();
        self.call(oid.home(), LockRelease { oid, lock })?;
        link.open_references.unlock(oid, lock);
        if link.claim_count() != claims {
            // What was still held here may have been claimed since.
            self.call(oid.home(), LockRelease { oid, lock })?;
        }
        if was_lost { Err(Status::SessionExpired.into()) } else { Ok(()) }
    }

    /// Whether anybody here relies on a lock that is lost, for some of these bytes of an object.
    pub fn relies_on_lost_lock(&self, oid: Oid, offset: u64, bytes: u64) -> bool {
        let end = offset.saturating_add(bytes.max(1) - 1);
        self.link(oid.home())
            .is_ok_and(|link| link.open_references.relies_on_lost(oid, offset, end))
    }

    /// Whether the owner has anything locked on the object, as far as this session knows.
    pub fn has_locks(&self, oid: Oid, kind: LockKind, owner: u64) -> bool {
        self.link(oid.home()).is_ok_and(|link| link.open_references.has_locks(oid, kind, owner))
    }
}
