//! A directory whose entries a call changes, as it was before and after. Owns what may be said of that:
//! the attributes are asked for in the round trip of the change, beside it, and nobody says which of both
//! an engine does first. But every change of a directory stamps it with its own time, which the answer to
//! the change has. So attributes with an earlier time are from before it, and what it has made of them
//! follows without another look.

use azekura_client::{Batch, BatchReplies, Call, ClientError, Ticket};
use azekura_proto::attr::ChangeMark;
use azekura_proto::message::TypedRequest;
use azekura_proto::message::typed::GetAttr;
use azekura_proto::{Attr, Oid, Timestamp};

use crate::cache::touched;
use crate::errno::of_client;
use crate::{Errno, FileSystem};

/// A directory in which a call changes something, and what came along with that.
#[derive(Clone, Debug)]
pub struct ChangedDir {
    oid: Oid,
    was_asked: bool,
    seen: Option<Attr>,
    before: Option<ChangeMark>,
    after: Option<Attr>,
}

/// What a change has made of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Nothing at all.
    None,
    /// So many subdirectories more, at that time, if it is known.
    Stamped(Option<Timestamp>, i8),
    /// That is for the directory's engines to say; it was changed at that time, if it is known.
    Unclear(Option<Timestamp>),
}

impl Effect {
    /// Of a request that has failed.
    pub(super) fn of_failure(error: &ClientError) -> Self {
        match of_client(error) {
            Errno::IO => Self::Unclear(None),
            _ => Self::None,
        }
    }
}

impl ChangedDir {
    /// A directory in which something is about to change.
    pub fn new(oid: Oid) -> Self {
        Self { oid, was_asked: false, seen: None, before: None, after: None }
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

    /// Adds the question for the attributes.
    pub(super) fn ask(&mut self, batch: &mut Batch<'_>) -> Ticket<GetAttr> {
        self.was_asked = true;
        batch.add(Call::new(self.oid.home(), GetAttr { oid: self.oid }))
    }

    /// Takes in the answer to it.
    pub(super) fn take(&mut self, replies: &mut BatchReplies<'_>, ticket: Ticket<GetAttr>) {
        // Whoever wants to know more asks again.
        self.seen = replies.take(ticket).ok().map(|attr| *attr);
    }

    /// What follows for the directory.
    pub(super) fn conclude(&mut self, effect: Effect) {
        let Some(seen) = self.seen.take() else { return };
        let mark = ChangeMark::of(&seen);
        let is_before = |stamp: Option<Timestamp>| stamp.is_some_and(|stamp| seen.ctime < stamp);
        match effect {
            Effect::None => (self.before, self.after) = (Some(mark), Some(seen)),
            Effect::Unclear(stamp) => self.before = is_before(stamp).then_some(mark),
            Effect::Stamped(stamp, subdirs) => {
                let is_certain = is_before(stamp);
                self.before = is_certain.then_some(mark);
                if let Some(stamp) = stamp
                    && (is_certain || subdirs == 0)
                {
                    let mut attr = touched(&seen, stamp);
                    attr.nlink = attr.nlink.saturating_add_signed(subdirs.into());
                    self.after = Some(attr);
                }
            }
        }
    }
}

impl FileSystem {
    /// A change of an entry, with the attributes of its directory where somebody wants them. `effect`
    /// says what an answer means for the directory.
    pub(super) fn change_entry<'a, R: TypedRequest<'a>>(
        &self,
        (dir, name): (Oid, &[u8]),
        request: R,
        watched: Option<&mut ChangedDir>,
        effect: impl FnOnce(&R::Reply) -> Effect,
    ) -> std::result::Result<R::Reply, ClientError> {
        let target = self.entry_target(dir, name);
        let Some(watched) = watched else { return self.pool().call(target, request) };
        let mut batch = Batch::with_capacity(2);
        let seen = watched.ask(&mut batch);
        let change = batch.add(Call::new(target, request));
        let mut replies = self.pool().call_batch(batch);
        watched.take(&mut replies, seen);
        let done = replies.take(change);
        watched.conclude(match &done {
            Ok(reply) => effect(reply),
            Err(error) => Effect::of_failure(error),
        });
        done
    }
}
