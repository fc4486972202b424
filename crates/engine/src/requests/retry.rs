//! Exact retries: the answer to a request that changes something is stored in the same batch as
//! the change, under the session's slot, so that the request can be sent again after a lost
//! connection or a crash and gets its first answer. One record a slot, so the space is bounded.

use azekura_proto::limits::SLOTS_MAX;
use azekura_proto::{Oid, SessionId, Status};
use azekura_store::{Space, Store};
use serde::{Deserialize, Serialize};

use crate::records::record::{Origin, decode};
use crate::records::stored::{for_each_page, load, store_status};
use crate::records::update::Update;
use crate::target::Target;

/// Who asks, and whether it may be for the second time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) session: SessionId,
    pub(crate) slot: u16,
    /// 0: the request needs no record.
    pub(crate) sequence: u64,
    pub(crate) resent: bool,
    /// What this run of the engine made for the request the first time.
    pub(crate) created: Option<Oid>,
}

/// As much of an answer as is needed to give it again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FirstAnswer {
    Done,
    Created(Oid),
    /// An append that was carried out: its place, and how often the file had been cut.
    Appended {
        oid: Oid,
        offset: u64,
        end: u64,
        truncations: u32,
    },
    /// An append that has its place; nobody knows how much of it was written.
    Placed {
        oid: Oid,
        offset: u64,
        end: u64,
        truncations: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct Stored {
    sequence: u64,
    answer: FirstAnswer,
}

fn key_of(session: SessionId, slot: u16) -> [u8; 18] {
    let mut key = [0; 18];
    key[..16].copy_from_slice(&session.0);
    key[16..].copy_from_slice(&slot.to_be_bytes());
    key
}

fn key(caller: &Caller) -> [u8; 18] {
    key_of(caller.session, caller.slot)
}

/// Records what a request has made, of which its inode alone tells so far: it is about to go, or to be found
/// elsewhere than where it was made.
pub(crate) fn keep_created(
    update: &mut Update<'_>,
    origin: &Origin,
    oid: Oid,
) -> Result<(), Status> {
    let key = key_of(origin.session, origin.slot);
    let known: Option<Stored> = update.get(Space::Reply, &key)?;
    if known.is_none_or(|known| known.sequence < origin.sequence) {
        let answer = FirstAnswer::Created(oid);
        update.put(Space::Reply, &key, &Stored { sequence: origin.sequence, answer });
    }
    Ok(())
}

impl Caller {
    /// The session of a client; `None` for another target and the engine itself.
    pub(crate) fn client(&self) -> Option<SessionId> {
        (self.session != SessionId([0; 16])).then_some(self.session)
    }

    /// A caller that never asks twice: another target, or the engine itself.
    pub(crate) const fn engine() -> Self {
        Self { session: SessionId([0; 16]), slot: 0, sequence: 0, resent: false, created: None }
    }

    /// The request, to be stored in the inode that it makes; `None` where nobody asks twice.
    pub(crate) fn origin(&self) -> Option<Origin> {
        (self.sequence > 0).then_some(Origin {
            session: self.session,
            slot: self.slot,
            sequence: self.sequence,
        })
    }

    /// Records the answer with the change that it belongs to.
    pub(crate) fn record(&self, update: &mut Update<'_>, answer: FirstAnswer) {
        if self.sequence > 0 {
            assert!(self.slot < SLOTS_MAX, "the slot was entered");
            let stored = Stored { sequence: self.sequence, answer };
            update.put(Space::Reply, &key(self), &stored);
        }
    }

    /// Takes back what was recorded of a request that has failed since.
    pub(crate) fn forget(&self, update: &mut Update<'_>) {
        if self.sequence > 0 {
            update.delete(Space::Reply, &key(self));
        }
    }

    /// The answer that this request got before, if it was carried out.
    pub(crate) fn first_answer(&self, store: &Store) -> Result<Option<FirstAnswer>, Status> {
        if !self.resent || self.sequence == 0 {
            return Ok(None);
        }
        match load::<Stored>(store, Space::Reply, &key(self))? {
            Some(stored) if stored.sequence == self.sequence => Ok(Some(stored.answer)),
            // A later request of the slot was carried out: nobody waits for this one any more.
            Some(stored) if stored.sequence > self.sequence => Err(Status::Invalid),
            _ => Ok(None),
        }
    }
}

/// An append on record.
pub(crate) struct RecordedAppend {
    pub(crate) oid: Oid,
    /// Where it ends in the file, in bytes.
    pub(crate) end: u64,
    pub(crate) truncations: u32,
}

/// All appends on record: after a crash the files must be at least that long.
pub(crate) fn recorded_appends(store: &Store) -> Result<Vec<RecordedAppend>, Status> {
    let mut appends = Vec::new();
    for_each_page(store, (Space::Reply, &[]), 1024, |page| {
        for (_, value) in page {
            let stored: Stored = decode(value)?;
            if let FirstAnswer::Appended { oid, end, truncations, .. }
            | FirstAnswer::Placed { oid, end, truncations, .. } = stored.answer
            {
                appends.push(RecordedAppend { oid, end, truncations });
            }
        }
        Ok(())
    })?;
    Ok(appends)
}

/// Forgets what was recorded for a session.
pub(crate) fn forget_session(target: &Target, session: SessionId) -> Result<(), Status> {
    let page = target
        .store
        .scan(Space::Reply, &session.0, None, usize::from(SLOTS_MAX))
        .map_err(store_status)?;
    let mut update = Update::new(target);
    for (key, _) in &page {
        update.delete(Space::Reply, key);
    }
    update.commit().map(drop)
}
