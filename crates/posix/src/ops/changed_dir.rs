//! A directory whose entries a call changes, as it was before and after. Owns what may be said of that:
//! `before` is from before the change and nothing else. Where one engine has both, the directory's
//! attributes are asked for in the round trip of the change, in front of it; else in one of their own.
//! What is after the change follows from them without another look: the answer to it has the time with
//! which it has stamped the directory.

use azekura_client::{Batch, Call, ClientError};
use azekura_proto::attr::ChangeMark;
use azekura_proto::message::TypedRequest;
use azekura_proto::message::typed::GetAttr;
use azekura_proto::{Attr, Oid, TargetId, Timestamp};

use crate::cache::touched;
use crate::errno::of_client;
use crate::{Errno, FileSystem};

/// A directory in which a call changes something, and what came along with that.
#[derive(Clone, Debug)]
pub struct ChangedDir {
    oid: Oid,
    was_asked: bool,
    before: Option<ChangeMark>,
    after: Option<Attr>,
}

/// What a change has made of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Nothing at all.
    None,
    /// So many subdirectories more, at that time.
    Stamped(Timestamp, i8),
    /// That is for the directory's engines to say.
    Unclear,
}

impl Effect {
    /// Of a change whose answer may have its time.
    pub(super) fn of_stamp(stamp: Option<Timestamp>, subdirs: i8) -> Self {
        stamp.map_or(Self::Unclear, |stamp| Self::Stamped(stamp, subdirs))
    }

    /// Of a request that has failed.
    fn of_failure(error: &ClientError) -> Self {
        match of_client(error) {
            Errno::IO => Self::Unclear,
            _ => Self::None,
        }
    }
}

impl ChangedDir {
    /// A directory in which something is about to change.
    pub fn new(oid: Oid) -> Self {
        Self { oid, was_asked: false, before: None, after: None }
    }

    /// The directory.
    pub fn oid(&self) -> Oid {
        self.oid
    }

    /// Whether anything was sent: else the directory is as it was.
    pub fn was_asked(&self) -> bool {
        self.was_asked
    }

    /// The directory before the change; only if it is certain to be from before.
    pub fn before(&self) -> Option<ChangeMark> {
        self.before
    }

    /// The directory after the change, if that is known without asking for it.
    pub fn after(&self) -> Option<&Attr> {
        self.after.as_ref()
    }

    /// Both attributes were asked for by themselves.
    pub(super) fn note(&mut self, before: Option<&Attr>, after: Option<&Attr>) {
        self.was_asked = true;
        self.before = before.map(ChangeMark::of);
        self.after = after.cloned();
    }

    /// What follows from the attributes before the change.
    fn conclude(&mut self, seen: Attr, effect: Effect) {
        self.before = Some(ChangeMark::of(&seen));
        self.after = match effect {
            Effect::None => Some(seen),
            Effect::Unclear => None,
            Effect::Stamped(stamp, subdirs) => {
                let mut attr = touched(&seen, stamp);
                attr.nlink = attr.nlink.saturating_add_signed(subdirs.into());
                Some(attr)
            }
        };
    }
}

impl FileSystem {
    /// A change of an entry, with the attributes of its directory where somebody wants them. `effect`
    /// says what an answer means for the directory. The caller has told the listings of it.
    pub(super) fn change_entry<'a, R: TypedRequest<'a>>(
        &self,
        (dir, name): (Oid, &[u8]),
        request: R,
        watched: Option<&mut ChangedDir>,
        effect: impl FnOnce(&R::Reply) -> Effect,
    ) -> Result<R::Reply, ClientError> {
        let target = self.entry_target(dir, name);
        let Some(watched) = watched else { return self.pool().call(target, request) };
        let (seen, done) = self.look_and_change(dir, target, request);
        (watched.was_asked, watched.before, watched.after) = (true, None, None);
        if let Some(seen) = seen {
            watched.conclude(seen, done.as_ref().map_or_else(Effect::of_failure, effect));
        }
        done
    }

    /// The attributes of a directory before a change, as far as they can be had, and what came of the
    /// change.
    fn look_and_change<'a, R: TypedRequest<'a>>(
        &self,
        dir: Oid,
        target: TargetId,
        request: R,
    ) -> (Option<Attr>, Result<R::Reply, ClientError>) {
        let (map, look) = (self.pool().map(), GetAttr { oid: dir });
        if map.engine_of(dir.home()) != map.engine_of(target) {
            // Nobody could say which of both came first.
            let seen = self.pool().call(dir.home(), look).ok();
            return (seen.map(|attr| *attr), self.pool().call(target, request));
        }
        let mut batch = Batch::with_capacity(2);
        let look = batch.add(Call::new(dir.home(), look));
        let change = batch.add(Call::new(target, request));
        let mut replies = self.pool().call_batch(batch);
        let seen = replies.take(look).ok().filter(|_| replies.are_in_order());
        (seen.map(|attr| *attr), replies.take(change))
    }
}
