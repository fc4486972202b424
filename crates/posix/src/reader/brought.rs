//! Bytes of a file that have come with the answer to its opening. Owns their share of the memory for reading
//! ahead. Whether they may be used now is known to the file's leases.

use std::sync::Arc;

use azekura_policy::{Budget, ByteRange};

use super::far_file::Part;

/// The last bytes of an open file, or all of them.
#[derive(Debug)]
pub(super) struct Brought {
    part: Part,
    taken_bytes: u64,
    budget: Arc<Budget>,
}

impl Brought {
    /// `None` if there is no room for them.
    pub(super) fn new(part: Part, budget: &Arc<Budget>) -> Option<Self> {
        let taken_bytes = part.range.bytes;
        budget.take(taken_bytes).then(|| Self { part, taken_bytes, budget: Arc::clone(budget) })
    }

    /// The bytes, if they are all that a read needs.
    pub(super) fn all_of(&self, read: ByteRange) -> Option<&Part> {
        (self.part.range.intersection(read) == read).then_some(&self.part)
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        self.budget.give_back(self.taken_bytes);
    }
}
