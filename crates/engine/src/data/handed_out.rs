//! Of which shards descriptors were handed out in this run of the engine, and what for. Owns nothing but this memory:
//! whether any is still open only the kernel knows.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::data::leases::Key;

/// What a descriptor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Reading,
    Writing,
}

/// The files of which this run has handed out descriptors, and what for.
#[derive(Debug, Default)]
pub(crate) struct HandedOut {
    uses: Mutex<HashMap<Key, Use>>,
}

impl HandedOut {
    /// A descriptor is about to be handed out. `has_others`: somebody has one already.
    pub(crate) fn note(&self, key: Key, purpose: Use, has_others: bool) {
        let mut uses = self.uses.lock();
        let before = uses.get(&key).copied();
        // Those of an earlier run may be for anything.
        let is_written = has_others && before.is_none_or(|before| before == Use::Writing);
        uses.insert(key, if is_written { Use::Writing } else { purpose });
    }

    pub(crate) fn is_for_reading(&self, key: Key) -> bool {
        self.uses.lock().get(&key) == Some(&Use::Reading)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(Key, Use)> {
        self.uses.lock().iter().map(|(key, used)| (*key, *used)).collect()
    }

    /// Forgets a file if nobody has it any more. One that is handed out just then would count as one of an
    /// earlier run.
    pub(crate) fn forget_unless(&self, key: Key, may_be_out: impl FnOnce() -> bool) {
        let mut uses = self.uses.lock();
        if !may_be_out() {
            uses.remove(&key);
        }
    }
}
