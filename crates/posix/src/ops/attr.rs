//! `stat`, `chmod`, `chown`, `truncate`, `utimens`. Owns who may change which attribute, and which
//! bits a change takes away; the engine applies the change in one step.

use std::sync::Arc;
use std::time::Duration;

use azekura_client::{Batch, Call, ClientError};
use azekura_proto::attr::{AttrChange, FileGuard, FileKind, SetTime};
use azekura_proto::limits::FILE_BYTES_MAX;
use azekura_proto::message::TypedRequest;
use azekura_proto::message::typed::{LeaseFile, SetAttr, SetAttrGuarded, SetAttrIf};
use azekura_proto::{Attr, Oid, Status, Timestamp};

use crate::errno::of_client;
use crate::permission::{self, SETGID};
use crate::writer::{Settled, WriteLeases};
use crate::{Access, CachePolicy, Credentials, Errno, FileSystem, OpenFile, Result};

/// A change of attributes; what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttrUpdate {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Set-user and set-group bits go, as they do with a write or a change of the owner.
    pub drop_set_id: bool,
}

impl AttrUpdate {
    /// Only a new length.
    pub fn size(bytes: u64) -> Self {
        Self { size: Some(bytes), ..Self::default() }
    }

    /// Whether the object gets another owner or group.
    fn gives_away(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    fn as_change(&self) -> AttrChange {
        AttrChange {
            mode: self.mode.map(|mode| (mode & 0o7777) as u16),
            uid: self.uid,
            gid: self.gid,
            atime: self.atime,
            mtime: self.mtime,
            size: self.size,
            ..AttrChange::default()
        }
    }
}

impl FileSystem {
    /// Attributes of an object, complete with what its shards know.
    ///
    /// # Errors
    /// `ESTALE` if it is gone.
    pub fn getattr(&self, oid: Oid) -> Result<Attr> {
        if let Some(attr) = self.newborn_attr(oid) {
            return Ok(attr);
        }
        let settled = self.writing.settle_to_ask(oid, WriteLeases::Keep)?;
        self.ask_attr(settled).map(|attr| *attr)
    }

    /// Asks for attributes. Those of an object that is newborn were changed just now: so they tell the engine's time.
    fn ask_attr(&self, settled: Settled) -> Result<Box<Attr>> {
        let oid = settled.oid();
        let is_newborn = self.newborn(oid).is_some();
        let attr = self.attr_of(settled)?;
        if is_newborn {
            self.newborns.note_change(attr.ctime, self.moment(oid.home()));
        }
        Ok(attr)
    }

    /// As [`FileSystem::getattr`], for an open file. While it is read under leases that cover its
    /// attributes nobody is asked, unless nothing is to be kept.
    ///
    /// # Errors
    /// As [`FileSystem::getattr`].
    pub fn getattr_open(&self, file: &OpenFile) -> Result<Attr> {
        if let Some(attr) = self.newborn_attr(file.oid()) {
            return Ok(attr);
        }
        let settled = self.writing.settle_to_ask(file.oid(), WriteLeases::Keep)?;
        if let Some(attr) = self.leased_attr(file) {
            return Ok(attr);
        }
        let is_kept = self.config().cache != CachePolicy::None;
        if let Some(attr) = self.writing.attr_as_told(file.oid()).filter(|_| is_kept) {
            return Ok(attr);
        }
        let changes = self.changes.count_of(file.oid()).of_attributes();
        let attr = self.ask_attr(settled)?;
        file.learn(&attr);
        self.writing.keep_own_attr(&attr, changes);
        Ok(*attr)
    }

    /// The attributes of an open file, if it is read under leases that cover them. Where these are over, they are asked for
    /// together with those of other files, if there are some that were opened a moment ago; else nobody is asked.
    pub fn leased_attr(&self, file: &OpenFile) -> Option<Attr> {
        let is_kept = self.config().cache != CachePolicy::None;
        if !is_kept || self.writing.has_unsettled(file.oid()) {
            return None;
        }
        file.reader.attr().or_else(|| self.lease_with_others(file).then(|| file.reader.attr())?)
    }

    /// Asks for new leases of a far file that was opened to be read, with its attributes, together with others that were
    /// opened a moment ago: for all at once whose are over. False if there are no others.
    pub(super) fn lease_with_others(&self, file: &OpenFile) -> bool {
        let due = self.read_lately.due_with(&file.reader, self.now());
        if due.is_empty() {
            return false;
        }
        let mut batch = Batch::with_capacity(due.len());
        let questions: Vec<_> = due
            .iter()
            .filter(|(oid, _)| !self.writing.has_unsettled(*oid))
            .filter_map(|(oid, reader)| {
                let asked = reader.ask_attr()?;
                let request = LeaseFile { oid: *oid };
                Some((reader, asked, batch.add(Call::new(oid.home(), request))))
            })
            .collect();
        if questions.len() < 2 {
            return false;
        }
        let mut replies = self.pool().call_batch(batch);
        for (reader, asked, ticket) in questions {
            if let Ok(leased) = replies.take(ticket) {
                reader.take_attr(asked, leased);
            }
        }
        true
    }

    /// Whether the caller may do this; checked here even where the kernel checks operations.
    ///
    /// # Errors
    /// `EACCES` if not.
    pub fn access(&self, caller: &Credentials, oid: Oid, wanted: Access) -> Result<()> {
        permission::check(caller, &self.getattr(oid)?, wanted)
    }

    /// As [`FileSystem::getattr`], and for how long the answer may be believed. A directory that
    /// only this client changes is asked for once a second, however many entries come and go.
    ///
    /// # Errors
    /// `ESTALE` if it is gone.
    pub fn getattr_for(&self, oid: Oid) -> Result<(Attr, Duration)> {
        let CachePolicy::Auto { ttl } = self.config().cache else {
            return Ok((self.getattr(oid)?, Duration::ZERO));
        };
        if let Some((attr, left)) = self.cache.dir_with_age(oid) {
            return Ok((Attr::clone(&attr), left));
        }
        let asked = self.cache.ask_dir(oid);
        let attr = match self.directory_and_along(oid) {
            Some(attr) => attr,
            None => self.getattr(oid)?,
        };
        if attr.kind == FileKind::Directory {
            self.cache.keep_dir(asked, oid, &Arc::new(attr.clone()));
        }
        Ok((attr, ttl))
    }

    /// Changes attributes and gives them as they are then. With a handle open for writing, a new
    /// length needs no permission.
    ///
    /// # Errors
    /// `EPERM` or `EACCES` if the caller may not; `EFBIG`, `EISDIR`, `EINVAL` for a length that
    /// the file cannot have.
    pub fn setattr(
        &self,
        caller: &Credentials,
        oid: Oid,
        handle: Option<&OpenFile>,
        update: &AttrUpdate,
    ) -> Result<Attr> {
        if let Some(attr) = self.change_newborn(caller, oid, handle, update)? {
            if let Some(handle) = handle {
                handle.learn(&attr);
            }
            return Ok(attr);
        }
        let settled = self.settle_for(oid, update)?;
        let guess = handle.map(|handle| (handle.kind(), handle.guess()));
        let attr = self.change_attr(caller, settled, (handle, guess), update)?;
        if let Some(handle) = handle {
            handle.learn(&attr);
        }
        Ok(attr)
    }

    /// As [`FileSystem::setattr`] without a handle, for an object that had these attributes a moment ago.
    /// If it still has the owner and mode, that saves asking for them.
    ///
    /// # Errors
    /// As [`FileSystem::setattr`].
    pub fn setattr_of(
        &self,
        caller: &Credentials,
        seen: &Attr,
        update: &AttrUpdate,
    ) -> Result<Attr> {
        if let Some(attr) = self.change_newborn(caller, seen.oid, None, update)? {
            return Ok(attr);
        }
        let settled = self.settle_for(seen.oid, update)?;
        let guess = Some((seen.kind, FileGuard::of(seen)));
        self.change_attr(caller, settled, (None, guess), update)
    }

    /// Changes a newborn object without waiting for it; `None` if that does not go.
    fn change_newborn(
        &self,
        caller: &Credentials,
        oid: Oid,
        handle: Option<&OpenFile>,
        update: &AttrUpdate,
    ) -> Result<Option<Attr>> {
        self.set_attr_in_flight(oid, update, |kind, guard| {
            let known = (kind, guard);
            let mut change = update.as_change();
            if !self.checks() {
                if loses_set_id(update) {
                    change.clear_mode_bits = set_id_bits(caller, known);
                }
                return Some(change);
            }
            allow(caller, known, handle, update).ok()?;
            adjust(caller, known, update, &mut change);
            Some(change)
        })
    }

    fn change_attr(
        &self,
        caller: &Credentials,
        settled: Settled,
        (handle, guess): (Option<&OpenFile>, Option<(FileKind, FileGuard)>),
        update: &AttrUpdate,
    ) -> Result<Attr> {
        let oid = settled.oid();
        if let Some(known) = guess
            && let Some(attr) = self.change_as_known(caller, oid, (known, handle), update)?
        {
            return Ok(attr);
        }
        let (change, _) = self.judge_change(caller, settled, handle, update)?;
        let attr = self.apply_change(oid, SetAttr { oid, change });
        attr.map(|attr| *attr).map_err(|error| of_client(&error))
    }

    /// Makes a change that is judged by what is known of the object, if that still holds. `None` if
    /// nothing was changed, and the object has to be looked at.
    fn change_as_known(
        &self,
        caller: &Credentials,
        oid: Oid,
        ((kind, guard), handle): ((FileKind, FileGuard), Option<&OpenFile>),
        update: &AttrUpdate,
    ) -> Result<Option<Attr>> {
        // Capabilities, which go with a new length or owner, take more than one request.
        let loses = update.gives_away() || update.size.is_some();
        let is_plain = !(guard.has_xattrs && loses);
        if !self.checks() || !is_plain || allow(caller, (kind, &guard), handle, update).is_err() {
            return Ok(None);
        }
        let mut change = update.as_change();
        adjust(caller, (kind, &guard), update, &mut change);
        match self.apply_change(oid, SetAttrGuarded { oid, change, guard }) {
            Ok(attr) => Ok(Some(*attr)),
            Err(ClientError::Status(Status::ConditionFailed)) => Ok(None),
            Err(error) => Err(of_client(&error)),
        }
    }

    /// As [`FileSystem::setattr`] without a handle, if the object has not changed since it had this time
    /// of last change (`ctime`), else `None`: then nothing was changed (RFC 1813, `sattrguard3`). Both in
    /// one step, but that data may be written between the look and the change of the length.
    ///
    /// # Errors
    /// As [`FileSystem::setattr`].
    pub fn setattr_if(
        &self,
        caller: &Credentials,
        oid: Oid,
        update: &AttrUpdate,
        ctime: Timestamp,
    ) -> Result<Option<Attr>> {
        let settled = self.settle_for(oid, update)?;
        if self.attr_of(settled)?.ctime != ctime {
            // Before anything is taken from it in preparation.
            return Ok(None);
        }
        let (change, capability_taken) = self.judge_change(caller, settled, None, update)?;
        // That was a change too, though an own one.
        let ctime = if capability_taken { self.attr_of(settled)?.ctime } else { ctime };
        match self.apply_change(oid, SetAttrIf { oid, change, ctime }) {
            Ok(attr) => Ok(Some(*attr)),
            Err(ClientError::Status(Status::ConditionFailed)) => Ok(None),
            Err(error) => Err(of_client(&error)),
        }
    }

    /// What this process has written comes before a change of attributes.
    fn settle_for(&self, oid: Oid, update: &AttrUpdate) -> Result<Settled> {
        if update.size.is_some_and(|bytes| bytes > FILE_BYTES_MAX) {
            return Err(Errno::FBIG);
        }
        let leases =
            if update.size.is_some() { WriteLeases::ReleaseFirst } else { WriteLeases::Keep };
        self.writing.settle(oid, leases)
    }

    /// The change that comes of an update, if the caller may make it. Takes capabilities that must not
    /// outlive it, and tells whether there were any.
    fn judge_change(
        &self,
        caller: &Credentials,
        settled: Settled,
        handle: Option<&OpenFile>,
        update: &AttrUpdate,
    ) -> Result<(AttrChange, bool)> {
        let mut change = update.as_change();
        let mut capability_taken = false;
        if self.checks() {
            let attr = self.attr_of(settled)?;
            let known = (attr.kind, &FileGuard::of(&attr));
            allow(caller, known, handle, update)?;
            adjust(caller, known, update, &mut change);
            if attr.has_xattrs && (update.gives_away() || update.size.is_some()) {
                capability_taken = self.take_capability(settled.oid())?;
            }
        } else if loses_set_id(update) {
            // The kernel takes capabilities by itself.
            let attr = self.attr_of(settled)?;
            change.clear_mode_bits = set_id_bits(caller, (attr.kind, &FileGuard::of(&attr)));
        }
        Ok((change, capability_taken))
    }

    /// Carries a change out; whatever comes of it, nothing is known of the object any more.
    fn apply_change<R: TypedRequest<'static, Reply = Box<Attr>>>(
        &self,
        oid: Oid,
        request: R,
    ) -> std::result::Result<Box<Attr>, ClientError> {
        // Names that are leased are given up only if that goes; else the engine is away for the change, too.
        let _naming = self.before_change_of(oid);
        let attr = {
            let _change = self.begin_change(oid);
            self.pool().call(oid.home(), request)
        };
        // Also after an error: it may have been done.
        self.files.forget(oid);
        if !attr.as_ref().is_ok_and(|attr| attr.kind != FileKind::Directory) {
            self.cache.forget_dir(oid);
        }
        attr
    }
}

/// What an object is and what of it changes are judged by.
type Known<'k> = (FileKind, &'k FileGuard);

/// Whether the caller may make this change.
fn allow(
    caller: &Credentials,
    (kind, guard): Known<'_>,
    handle: Option<&OpenFile>,
    update: &AttrUpdate,
) -> Result<()> {
    let owns = caller.is_root() || caller.uid == guard.uid;
    if update.mode.is_some() && !owns {
        return Err(Errno::PERM);
    }
    if update.gives_away() {
        let uid_stays = update.uid.is_none_or(|uid| uid == guard.uid);
        let gid_mine = update.gid.is_none_or(|gid| gid == guard.gid || caller.in_group(gid));
        let mine = caller.uid == guard.uid && uid_stays && gid_mine;
        if !(caller.is_root() || mine) {
            return Err(Errno::PERM);
        }
    }
    let writing = Access { write: true, ..Access::default() };
    let may_write = permission::may_use(caller, guard, writing);
    if update.size.is_some() {
        match (kind, handle) {
            (FileKind::Directory, None) => return Err(Errno::ISDIR),
            (FileKind::Regular, None) if may_write => {}
            (FileKind::Regular, None) => return Err(Errno::ACCESS),
            (FileKind::Regular, Some(handle)) if handle.is_writable() => {}
            _ => return Err(Errno::INVAL),
        }
    }
    match (update.atime, update.mtime) {
        (None, None) => Ok(()),
        _ if owns => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) if may_write => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) => Err(Errno::ACCESS),
        _ => Err(Errno::PERM),
    }
}

/// What else changes with it: setuid and setgid bits go where they would be a danger.
fn adjust(caller: &Credentials, known: Known<'_>, update: &AttrUpdate, change: &mut AttrChange) {
    if let Some(mode) = &mut change.mode {
        let group = update.gid.unwrap_or(known.1.gid);
        if !caller.is_root() && !caller.in_group(group) {
            *mode &= !SETGID;
        }
    }
    let cut = update.size.is_some() && !caller.is_root();
    if update.mode.is_none() && (update.gives_away() || update.drop_set_id || cut) {
        change.clear_mode_bits = set_id_bits(caller, known);
    }
}

/// Whether a change that a kernel has checked takes set-id bits from a file.
fn loses_set_id(update: &AttrUpdate) -> bool {
    update.mode.is_none() && (update.gives_away() || update.drop_set_id)
}

/// The bits that an object loses when it is written to or given away.
fn set_id_bits(caller: &Credentials, (kind, guard): Known<'_>) -> u16 {
    match kind {
        FileKind::Directory => 0,
        _ => permission::set_id_bits_lost(caller, guard.mode, guard.gid),
    }
}
