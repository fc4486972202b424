//! The last bytes of an open file: those that have come with the answer to its opening, and what lies just before them
//! once somebody reads there, as who looks for the contents of an archive does. Owns their share of the memory for
//! reading ahead. Whether they may be used now is known to the file's leases.

use std::sync::Arc;

use azekura_policy::{Budget, ByteRange};

use super::far_file::Part;

/// Whoever reads so few bytes before those that are here gets all up to them at once.
const BEFORE_BYTES: u64 = 64 << 10;

/// The last bytes of an open file, or all of them.
#[derive(Debug)]
pub(super) struct Brought {
    /// What came with the opening.
    came: Part,
    before: Vec<Part>,
    range: ByteRange,
    taken_bytes: u64,
    budget: Arc<Budget>,
}

impl Brought {
    /// `None` if there is no room for them.
    pub(super) fn new(part: Part, budget: &Arc<Budget>) -> Option<Self> {
        let (range, taken_bytes) = (part.range, part.range.bytes);
        budget.take(taken_bytes).then(|| Self {
            came: part,
            before: Vec::new(),
            range,
            taken_bytes,
            budget: Arc::clone(budget),
        })
    }

    /// The parts that a read needs, if they are all that it does.
    pub(super) fn all_of(&self, read: ByteRange) -> Option<Vec<Part>> {
        let parts = || self.parts().filter(|part| part.range.overlaps(read)).cloned();
        (self.range.intersection(read) == read).then(|| parts().collect())
    }

    /// Whether all from an offset on is here.
    pub(super) fn begins_at_most_at(&self, offset: u64) -> bool {
        self.range.offset <= offset
    }

    /// What came with the opening.
    pub(super) fn came(&self) -> &Part {
        &self.came
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.before.iter().chain([&self.came])
    }

    /// What lacks of the bytes from a read's first one on, if that is worth being asked for at once.
    pub(super) fn lacking_before(&self, read: ByteRange) -> Option<ByteRange> {
        let lacking = ByteRange::between(read.offset, self.range.offset.max(read.offset));
        let is_near = (1..=BEFORE_BYTES).contains(&lacking.bytes) && read.end() <= self.range.end();
        is_near.then_some(lacking)
    }

    /// Whether there is room for it, which is taken.
    pub(super) fn take_room(&mut self, lacking: ByteRange) -> bool {
        let is_taken = self.budget.take(lacking.bytes);
        self.taken_bytes += if is_taken { lacking.bytes } else { 0 };
        is_taken
    }

    /// It is on its way.
    pub(super) fn put_before(&mut self, lacking: ByteRange, parts: impl Iterator<Item = Part>) {
        self.before.extend(parts);
        self.range = ByteRange::between(lacking.offset, self.range.end());
    }

    /// Whether something of it will not come.
    pub(super) fn has_failed(&self) -> bool {
        self.parts().any(|part| part.fetch.has_failed())
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        self.budget.give_back(self.taken_bytes);
    }
}
