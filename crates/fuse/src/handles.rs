//! Open handles by the number that the kernel knows them under. Sharded, so that requests on
//! different handles do not meet; looking one up takes a shard's read lock for a moment and no
//! allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use azekura_posix::Errno;
use parking_lot::RwLock;

/// A power of two.
const SHARDS: usize = 16;

#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

/// A table of handles.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    shards: [RwLock<Slots<T>>; SHARDS],
    turn: AtomicUsize,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { shards: Default::default(), turn: AtomicUsize::new(0) }
    }
}

impl<T> Handles<T> {
    /// Puts a handle in; gives its number.
    pub(crate) fn insert(&self, handle: T) -> u64 {
        let shard = self.turn.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let handle = Some(Arc::new(handle));
        let mut slots = self.shards[shard].write();
        let index = if let Some(index) = slots.free.pop() {
            slots.slots[index] = handle;
            index
        } else {
            slots.slots.push(handle);
            slots.slots.len() - 1
        };
        (index * SHARDS + shard) as u64
    }

    /// The handle; `EBADF` for a number that is not in use.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<T>, Errno> {
        let (shard, index) = Self::place(number);
        let slots = self.shards[shard].read();
        slots.slots.get(index).and_then(Option::clone).ok_or(Errno::BADF)
    }

    /// Takes a handle out.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        let (shard, index) = Self::place(number);
        let mut slots = self.shards[shard].write();
        let handle = slots.slots.get_mut(index)?.take()?;
        slots.free.push(index);
        Some(handle)
    }

    /// Calls `each` for every handle that is open.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&T)) {
        for shard in &self.shards {
            shard.read().slots.iter().flatten().for_each(|handle| each(handle));
        }
    }

    /// A handle of which `is_it` holds.
    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.shards.iter().find_map(|shard| {
            let slots = shard.read();
            let mut handles = slots.slots.iter().flatten();
            handles.find(|handle| is_it(handle)).map(Arc::clone)
        })
    }

    fn place(number: u64) -> (usize, usize) {
        let number = number as usize;
        (number % SHARDS, number / SHARDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_to_its_handle_until_it_is_removed() {
        let handles = Handles::default();
        let numbers: Vec<u64> = (0..100).map(|value| handles.insert(value)).collect();
        for (value, &number) in numbers.iter().enumerate() {
            assert_eq!(handles.get(number).as_deref(), Ok(&value));
        }
        assert_eq!(handles.remove(numbers[7]).as_deref(), Some(&7));
        assert_eq!(handles.get(numbers[7]), Err(Errno::BADF));
        assert_eq!(handles.remove(numbers[7]), None);
        assert_eq!(handles.get(u64::MAX), Err(Errno::BADF));
        assert_eq!(handles.find(|value| *value == 8).as_deref(), Some(&8));
        assert_eq!(handles.find(|value| *value == 7), None);
        let mut sum = 0;
        handles.for_each(|value| sum += value);
        assert_eq!(sum, 4950 - 7);
    }

    #[test]
    fn places_are_used_again() {
        let handles = Handles::default();
        for round in 0..10_000 {
            let number = handles.insert(round);
            assert!(number < SHARDS as u64 * 2);
            handles.remove(number);
        }
    }
}
