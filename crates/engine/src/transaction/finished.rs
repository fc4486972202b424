//! Transactions that a target has brought to an end. Owns that a part which arrives once more, out of
//! the connection of a peer that has long given up on it, is not taken for a new one. Kept in memory
//! only: connections end with the engine, and what still lay in them.

use std::collections::{HashSet, VecDeque};

use azekura_proto::transaction::TransactionId;

/// As many as are remembered. What lies in a connection is read within moments of its arrival, since
/// each connection has a thread.
const REMEMBERED: usize = 8192;

/// The last that ended.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    ids: HashSet<TransactionId>,
    oldest_first: VecDeque<TransactionId>,
}

impl Finished {
    pub(crate) fn insert(&mut self, id: TransactionId) {
        if !self.ids.insert(id) {
            return;
        }
        self.oldest_first.push_back(id);
        if self.oldest_first.len() > REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.ids.remove(&oldest);
        }
        assert!(self.ids.len() == self.oldest_first.len(), "each is remembered once");
    }

    pub(crate) fn contains(&self, id: TransactionId) -> bool {
        self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::TargetId;

    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let id = |number| TransactionId { coordinator: TargetId(1), number };
        let mut finished = Finished::default();
        for number in (0..REMEMBERED as u64 + 10).chain([REMEMBERED as u64]) {
            finished.insert(id(number));
        }
        assert!(!finished.contains(id(9)) && finished.contains(id(10)));
        assert_eq!(finished.ids.len(), REMEMBERED);
    }
}
