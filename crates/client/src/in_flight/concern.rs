//! What the changes in flight are about. Owns the count of them for each object, which can be looked at while
//! somebody waits for them: what is asked about another object need not come after them.

use std::collections::HashMap;
use std::sync::Arc;

use azekura_proto::Oid;
use parking_lot::Mutex;

/// How many changes in flight there are of each object, and in each directory.
#[derive(Debug, Default)]
pub(super) struct Concerned(Mutex<HashMap<Oid, u32>>);

/// What one change is about, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Concern {
    of: Arc<Concerned>,
    objects: [Oid; 3],
}

impl Concerned {
    /// Whether a change of this object, or one that shows in this directory, is in flight.
    pub(super) fn has(&self, object: Oid) -> bool {
        self.0.lock().contains_key(&object)
    }

    /// A change of an object is about to be sent, which shows in these directories.
    pub(super) fn begin(self: &Arc<Self>, object: Oid, dirs: [Oid; 2]) -> Concern {
        let objects = [object, dirs[0], dirs[1]];
        let mut counts = self.0.lock();
        for object in objects {
            *counts.entry(object).or_insert(0) += 1;
        }
        drop(counts);
        Concern { of: Arc::clone(self), objects }
    }
}

impl Drop for Concern {
    fn drop(&mut self) {
        let mut counts = self.of.0.lock();
        for object in self.objects {
            if let Some(count) = counts.get_mut(&object) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&object);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    #[test]
    fn an_object_is_concerned_as_long_as_any_change_of_it_is_in_flight() {
        let object = |serial| Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial);
        let concerned = Arc::new(Concerned::default());
        let first = concerned.begin(object(1), [object(9); 2]);
        let second = concerned.begin(object(2), [object(9), object(8)]);
        assert!(concerned.has(object(1)) && concerned.has(object(2)) && concerned.has(object(9)));
        drop(first);
        assert!(!concerned.has(object(1)) && concerned.has(object(2)) && concerned.has(object(9)));
        assert!(concerned.has(object(8)));
        drop(second);
        assert!((1..10).all(|number| !concerned.has(object(number))));
    }
}
