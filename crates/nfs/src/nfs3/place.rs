//! The object that a call is about. Owns the way from a handle to it: the handle is genuine, its export
//! is still there, this client may use it, and the caller is who the export makes of them.

use azekura_posix::{Attr, ChangeMark, ChangedDir, Credentials, Errno, FileKind, FileSystem, Oid};

use super::status::Status;
use super::types;
use crate::exports::{Export, Flavour};
use crate::gateway::Request;
use crate::handle::{FileHandle, HANDLE_BYTES};
use crate::rpc::Auth;
use crate::xdr::Writer;

/// An object that the caller may ask about.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    request: &'a Request<'a>,
    export: &'a Export,
    pub(crate) caller: Credentials,
    pub(crate) oid: Oid,
}

impl<'a> Place<'a> {
    /// What a handle leads to.
    pub(crate) fn of(request: &'a Request<'a>, handle: &[u8]) -> Result<Self, Status> {
        let FileHandle { export, oid } =
            request.gateway.key.open(handle).map_err(|_| Status::BadHandle)?;
        let export = request.exports.by_id(export).ok_or(Status::Stale)?;
        if !export.admits(request.peer) {
            return Err(Status::Access);
        }
        let (flavour, caller) = match request.auth {
            Auth::None => (Flavour::None, export.anonymous()),
            Auth::Sys(user) => {
                let owner = export.asks_for_owners().then(|| request.owner.uid()).flatten();
                let caller = export.credentials_of(owner, user.uid, user.gid, &user.groups);
                (Flavour::Sys, caller)
            }
        };
        if !export.admits_flavour(flavour) {
            return Err(Status::Access);
        }
        Ok(Self { request, export, caller, oid })
    }

    /// As [`Place::of`], for a call that changes something.
    pub(crate) fn of_change(request: &'a Request<'a>, handle: &[u8]) -> Result<Self, Status> {
        let place = Self::of(request, handle)?;
        if place.export.is_read_only() { Err(Status::ReadOnly) } else { Ok(place) }
    }

    /// Another object of the same export.
    pub(crate) fn handle_of(&self, oid: Oid) -> [u8; HANDLE_BYTES] {
        self.request.gateway.key.seal(FileHandle { export: self.export.id(), oid })
    }

    pub(crate) fn export(&self) -> &Export {
        self.export
    }

    pub(crate) fn fs(&self) -> &FileSystem {
        &self.request.gateway.fs
    }

    pub(crate) fn request(&self) -> &'a Request<'a> {
        self.request
    }

    pub(crate) fn fsid(&self) -> u64 {
        self.request.gateway.fsid(self.export.id())
    }

    /// The attributes, with what this gateway has gathered.
    pub(crate) fn attr(&self) -> Result<Attr, Status> {
        self.attr_of(self.oid)
    }

    /// The attributes of another object.
    pub(crate) fn attr_of(&self, oid: Oid) -> Result<Attr, Status> {
        self.request.gateway.gather.flush_before_look(oid);
        Ok(self.fs().getattr(oid)?)
    }

    /// The attributes of another object, if any of its data may be gathered: a listing has them without.
    pub(crate) fn gathered_attr_of(&self, oid: Oid) -> Option<Attr> {
        let was_gathered = self.request.gateway.gather.flush_before_look(oid);
        was_gathered.then(|| self.fs().getattr(oid).ok()).flatten()
    }

    /// The directory above a directory, for who may search that as this user may; nothing is above that
    /// in which the export begins.
    pub(crate) fn above(&self, user: &Credentials) -> Result<Attr, Status> {
        let root = self.request.gateway.root_of(self.export);
        let name: &[u8] = if root == Ok(self.oid) { b"." } else { b".." };
        Ok(self.fs().lookup(user, self.oid, name)?)
    }

    /// Why no name is found in what should be a directory.
    pub(crate) fn why_nothing_is_found(&self) -> Status {
        match self.fs().getattr_for(self.oid) {
            Ok((attr, _)) if attr.kind == FileKind::Directory => Status::NoEntry,
            Ok(_) => Status::NotDirectory,
            Err(errno) => errno.into(),
        }
    }
}

/// Weak cache consistency data of an object that a call changes, put together as it goes on.
#[derive(Debug, Default)]
pub(super) struct Changing {
    fsid: u64,
    before: Option<ChangeMark>,
    after: Option<Attr>,
}

impl Changing {
    /// Before the change.
    pub(super) fn begin(&mut self, place: &Place<'_>) -> Result<&Attr, Status> {
        self.fsid = place.fsid();
        let attr = self.after.insert(place.attr()?);
        self.before = Some(ChangeMark::of(attr));
        Ok(attr)
    }

    /// A change that is made already.
    pub(super) fn set(&mut self, fsid: u64, before: Option<ChangeMark>, after: Option<Attr>) {
        *self = Self { fsid, before, after };
    }

    /// After it, whether it was made or not.
    pub(super) fn end(&mut self, place: &Place<'_>) {
        self.after = place.attr().ok();
    }

    /// After it, where the attributes came with the answer.
    pub(super) fn end_with(&mut self, attr: Attr) {
        self.after = Some(attr);
    }

    /// After a change of a directory's entries, as far as that has not brought the attributes along.
    ///
    /// # Errors
    /// What is wrong with the directory itself.
    pub(super) fn end_directory(
        &mut self,
        place: &Place<'_>,
        dir: &ChangedDir,
    ) -> Result<(), Status> {
        self.fsid = place.fsid();
        self.before = dir.before();
        let attr = match dir.after() {
            Some(attr) => attr.clone(),
            None => place.attr()?,
        };
        if !dir.was_asked() {
            self.before = Some(ChangeMark::of(&attr));
        }
        match self.after.insert(attr).kind {
            FileKind::Directory => Ok(()),
            _ => Err(Status::NotDirectory),
        }
    }

    pub(super) fn write(&self, reply: &mut Writer) {
        types::consistency(reply, self.fsid, self.before, self.after.as_ref());
    }
}

/// What a change of entries is answered with: if it has failed, first of all what is wrong with the
/// directory.
pub(super) fn outcome<T>(
    done: Result<T, Status>,
    directories: impl IntoIterator<Item = Result<(), Status>>,
) -> Result<T, Status> {
    done.or_else(|status| directories.into_iter().collect::<Result<(), _>>().and(Err(status)))
}

/// Writes the handle of a new object and its attributes (`post_op_fh3`, `post_op_attr`).
pub(super) fn write_new(reply: &mut Writer, place: &Place<'_>, attr: &Attr) {
    reply.bool(true);
    reply.opaque(&place.handle_of(attr.oid));
    types::attributes_after(reply, place.fsid(), Some(attr));
}

/// An engine that does not answer now may do so later, and asking again does no harm: then the client
/// waits instead of telling its program.
pub(super) fn patient(errno: Errno) -> Status {
    use azekura_posix::ClientError;
    match (errno, azekura_posix::errno::take_cause()) {
        (Errno::IO, Some(ClientError::Unreachable { .. })) => Status::Jukebox,
        _ => errno.into(),
    }
}
