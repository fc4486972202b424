//! Which names a directory's shard may have, where all of them came while this engine ran. So that a name is not there is
//! known without asking the store, which has to look through everything for what it does not have: that was half of what
//! a creation cost. Owns how many are remembered, and forgets whole directories. It may have more names than there are, never
//! fewer: whoever commits an entry says so before, and whoever commits that one is gone says so afterwards.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use azekura_proto::{ContainerId, Oid};
use parking_lot::Mutex;

use crate::records::record::parse_bucket_key;

/// Buckets of one directory. A set that grows is moved as a whole, and that many take a few milliseconds.
const BUCKETS_EACH_MAX: usize = 1 << 18;
/// Buckets of all directories of a target, each about 20 bytes.
const BUCKETS_MAX: usize = 1 << 19;
/// What a directory counts besides.
const DIRECTORY_BUCKETS: usize = 8;

/// The directories of one target of which all names are known.
#[derive(Debug, Default)]
pub(crate) struct KnownNames(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The order bits of the names, which are what distinguishes their buckets.
    directories: HashMap<Oid, HashSet<u64>>,
    /// In the order in which they came; some are gone.
    order: VecDeque<Oid>,
    buckets: usize,
}

impl Known {
    fn forget(&mut self, dir: Oid) {
        if let Some(names) = self.directories.remove(&dir) {
            self.buckets -= names.len() + DIRECTORY_BUCKETS;
        }
    }

    fn keep_bounds(&mut self) {
        while self.buckets > BUCKETS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.forget(oldest);
        }
        if self.order.len() > 2 * self.directories.len() + 1024 {
            let directories = &self.directories;
            self.order.retain(|dir| directories.contains_key(dir));
        }
    }
}

impl KnownNames {
    /// A directory is about to have its first entry here.
    pub(crate) fn begin(&self, dir: Oid) {
        let known = &mut *self.0.lock();
        if let Entry::Vacant(place) = known.directories.entry(dir) {
            place.insert(HashSet::new());
            known.order.push_back(dir);
            known.buckets += DIRECTORY_BUCKETS;
            known.keep_bounds();
        }
    }

    /// There is about to be a bucket with this key.
    pub(crate) fn add(&self, key: &[u8]) {
        let Some((dir, bits)) = parse_bucket_key(key) else { return };
        let mut known = self.0.lock();
        let Some(names) = known.directories.get_mut(&dir) else { return };
        if !names.insert(bits) {
            return;
        }
        let is_large = names.len() > BUCKETS_EACH_MAX;
        known.buckets += 1;
        if is_large {
            known.forget(dir);
        }
        known.keep_bounds();
    }

    /// The bucket with this key is gone.
    pub(crate) fn remove(&self, key: &[u8]) {
        let Some((dir, bits)) = parse_bucket_key(key) else { return };
        let mut known = self.0.lock();
        if known.directories.get_mut(&dir).is_some_and(|names| names.remove(&bits)) {
            known.buckets -= 1;
        }
    }

    /// Whether there is no bucket with this key for sure.
    pub(crate) fn lacks(&self, key: &[u8]) -> bool {
        let Some((dir, bits)) = parse_bucket_key(key) else { return false };
        let known = self.0.lock();
        known.directories.get(&dir).is_some_and(|names| !names.contains(&bits))
    }

    /// A directory has nothing here any more.
    pub(crate) fn forget(&self, dir: Oid) {
        self.0.lock().forget(dir);
    }

    /// A container is gone.
    pub(crate) fn forget_container(&self, container: ContainerId) {
        let mut known = self.0.lock();
        let gone = known.directories.keys().filter(|dir| dir.container() == container);
        for dir in gone.copied().collect::<Vec<_>>() {
            known.forget(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ObjectClass, TargetId};

    use super::*;
    use crate::records::record::bucket_key;

    fn dir(serial: u64) -> Oid {
        Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial)
    }

    #[test]
    fn of_a_directory_that_began_here_it_is_known_what_is_not_there() {
        let known = KnownNames::default();
        let key = bucket_key(dir(1), 7);
        assert!(!known.lacks(&key), "it may have been there before");
        known.add(&key);
        assert!(!known.lacks(&bucket_key(dir(1), 8)));
        known.begin(dir(1));
        assert!(known.lacks(&key));
        known.add(&key);
        known.add(&key);
        known.begin(dir(1));
        assert!(!known.lacks(&key) && known.lacks(&bucket_key(dir(1), 8)));
        assert!(!known.lacks(&bucket_key(dir(2), 7)));
        known.remove(&key);
        assert!(known.lacks(&key));
        known.forget(dir(1));
        assert!(!known.lacks(&key));
        known.begin(dir(1));
        known.forget_container(ContainerId(1));
        assert!(!known.lacks(&key));
        assert_eq!(known.0.lock().buckets, 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = KnownNames::default();
        known.begin(dir(1));
        known.begin(dir(2));
        for bits in 0..=BUCKETS_EACH_MAX as u64 {
            known.add(&bucket_key(dir(2), bits));
        }
        let nothing = bucket_key(dir(2), u64::MAX >> 16);
        assert!(!known.lacks(&nothing), "a large directory is forgotten");
        assert!(known.lacks(&bucket_key(dir(1), 1)));
        for serial in 3..3 + (BUCKETS_MAX / DIRECTORY_BUCKETS) as u64 {
            known.begin(dir(serial));
        }
        assert!(!known.lacks(&bucket_key(dir(1), 1)), "the oldest goes first");
        for serial in 0..10_000 {
            known.begin(dir(1_000_000 + serial));
            known.forget(dir(1_000_000 + serial));
        }
        let known = known.0.lock();
        assert!(known.buckets <= BUCKETS_MAX);
        assert!(known.order.len() <= 2 * known.directories.len() + 1025);
    }
}
