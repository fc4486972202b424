//! Reading back what is in flight. While this process has the write lease of a short file that lies in one shard,
//! nobody else reads or changes it: what was read under the lease, with all that was written since, is the file.
//! Owns when that is so; never outlives the lease.

use azekura_client::Call;
use azekura_proto::message::ShardRef;
use azekura_proto::message::typed::Read;
use azekura_proto::{Attr, Oid, TargetId};

use super::links::Links;
use crate::changes::ChangeCounts;
use crate::contents::{CONTENTS_BYTES_MAX, Contents};

/// The contents of a file under the lease of this epoch.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) epoch: u64,
    contents: Contents,
    /// The attributes, as far as they do not follow from the contents, where somebody has asked for them; and the count of
    /// own changes of them when that was.
    attr: Option<(Attr, u64)>,
    /// The count of the file's changes while the next one is under way: any other means that it was changed in
    /// another way.
    changes: u64,
}

/// So much of a file is asked for with its lease; a longer one is not kept.
const ASKED_BYTES: u32 = 64 << 10;
const _: () = assert!(ASKED_BYTES as u64 <= CONTENTS_BYTES_MAX);

/// The bytes of a file that are asked for with the lease.
#[derive(Debug)]
pub(super) struct Asked {
    data: ShardRef,
    buffer: Vec<u8>,
}

impl Asked {
    pub(super) fn new(data: ShardRef) -> Self {
        Self { data, buffer: vec![0; ASKED_BYTES as usize] }
    }

    /// The request, to be carried out after that for the lease.
    pub(super) fn call(&mut self, target: TargetId) -> Call<'_, Read> {
        let request = Read { data: self.data, offset: 0, bytes: ASKED_BYTES };
        Call::fetching(target, request, &mut self.buffer)
    }

    /// What has come, if it is all there is, for a change that is under way.
    pub(super) fn taken(self, bytes: u32, epoch: u64, links: &Links) -> Option<Own> {
        let mut contents = Contents::of_empty(&links.own_budget);
        let is_whole = bytes < ASKED_BYTES
            && links.changes.are_counted()
            && contents.write(0, self.buffer.get(..bytes as usize)?);
        let changes = links.changes.now_of(self.data.oid);
        is_whole.then_some(Own { epoch, contents, attr: None, changes })
    }
}

impl Own {
    /// Of a file that has just been made, if it was not changed since these counts.
    pub(super) fn of_new(
        oid: Oid,
        epoch: u64,
        links: &Links,
        since: &ChangeCounts,
    ) -> Option<Self> {
        let contents = Contents::of_empty(&links.own_budget);
        // Where nothing is counted there is none.
        let changes = links.changes.count_if_unchanged(oid, since)?.wrapping_add(1);
        Some(Self { epoch, contents, attr: None, changes })
    }

    /// Takes in what has been sent, by a change that is under way. False if that does not go.
    pub(super) fn write(&mut self, links: &Links, oid: Oid, offset: u64, bytes: &[u8]) -> bool {
        let is_only_change = self.changes == links.changes.now_of(oid);
        // One for its end, and one for the next one's beginning.
        self.changes = self.changes.wrapping_add(2);
        is_only_change && self.contents.write(offset, bytes)
    }

    /// What was written has arrived, which is told the readers as one more change; it is none of the contents.
    pub(super) fn note_arrived(&mut self, links: &Links, oid: Oid, note: impl FnOnce()) {
        let before = links.changes.now_of(oid);
        note();
        // One, if nobody else has changed it in between: then it does not fit any more.
        if links.changes.now_of(oid) == before.wrapping_add(1) {
            self.changes = self.changes.wrapping_add(1);
        }
    }

    /// Reads at an offset, if the file was not changed in another way; fewer bytes only at its end.
    pub(super) fn read(
        &self,
        links: &Links,
        oid: Oid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<usize> {
        self.is_current(links, oid).then(|| self.contents.read(offset, buffer))
    }

    /// The attributes with the length that the file has now; the times are those of an earlier moment.
    pub(super) fn attr(&self, links: &Links, oid: Oid) -> Option<Attr> {
        let (attr, _) = self.attr.clone().filter(|_| self.is_current(links, oid))?;
        Some(Attr { size: self.contents.bytes(), ..attr })
    }

    /// All attributes as they were told, if nothing was changed since: others wait for the lease to change any.
    pub(super) fn attr_as_told(&self, links: &Links, oid: Oid) -> Option<Attr> {
        let (attr, changes) = self.attr.as_ref()?;
        let is_so =
            self.is_current(links, oid) && links.changes.count_of(oid).of_attributes() == *changes;
        is_so.then(|| attr.clone())
    }

    /// Keeps attributes that an engine has told, of the file as it is now. `changes`: the count of own changes of them before
    /// they were asked for.
    pub(super) fn keep_attr(&mut self, links: &Links, attr: &Attr, changes: u64) {
        let is_so = self.is_current(links, attr.oid) && attr.size == self.contents.bytes();
        self.attr = is_so.then(|| (attr.clone(), changes));
    }

    fn is_current(&self, links: &Links, oid: Oid) -> bool {
        self.changes == links.changes.now_of(oid).wrapping_add(1)
    }
}
