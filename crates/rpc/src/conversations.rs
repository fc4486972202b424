//! What the slots of a session at one engine have in common: how many conversations there are, and which
//! ones were given up while something was under way. Owns the list of those that the engine has not been
//! told of: until then what they still bring could undo what is asked next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// How long a slot that gives up waits for a lock that nobody keeps for long.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// The conversations of a session with one engine.
#[derive(Debug, Default)]
pub struct Conversations {
    open: AtomicUsize,
    /// Slots, each with the number of its last connection that was given up.
    given_up: Mutex<Vec<(u16, u32)>>,
    /// Length of `given_up`, to be read without the lock.
    given_up_count: AtomicUsize,
}

impl Conversations {
    /// How many there are.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn note_opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Something may still come over a connection of a slot.
    pub(crate) fn give_up(&self, slot: u16, connection: u32) {
        // In a forked child the lock may be held by a thread that is not there; its session is another.
        let Some(mut given_up) = self.given_up.try_lock_for(LOCK_PATIENCE) else { return };
        match given_up.iter_mut().find(|(other, _)| *other == slot) {
            Some((_, last)) => *last = connection.max(*last),
            None => given_up.push((slot, connection)),
        }
        self.given_up_count.store(given_up.len(), Ordering::Release);
    }

    /// Whether the engine has to be told before anything is changed there.
    pub fn has_given_up(&self) -> bool {
        self.given_up_count.load(Ordering::Acquire) > 0
    }

    /// What it has to be told.
    pub fn given_up(&self) -> Vec<(u16, u32)> {
        self.given_up.lock().clone()
    }

    /// It has been told: nothing comes over these any more.
    pub fn note_fenced(&self, fenced: &[(u16, u32)]) {
        let mut given_up = self.given_up.lock();
        given_up.retain(|&(slot, connection)| {
            !fenced.iter().any(|&(other, up_to)| other == slot && connection <= up_to)
        });
        self.given_up_count.store(given_up.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_told_once() {
        let conversations = Conversations::default();
        conversations.give_up(1, 4);
        conversations.give_up(2, 1);
        conversations.give_up(1, 5);
        let told = conversations.given_up();
        assert_eq!(told, [(1, 5), (2, 1)]);
        // Given up while the engine was being told.
        conversations.give_up(2, 2);
        conversations.note_fenced(&told);
        assert_eq!(conversations.given_up(), [(2, 2)]);
        conversations.note_fenced(&[(2, 2)]);
        assert!(!conversations.has_given_up());
    }
}
