//! The slots of a session at one engine that nobody uses just now. Owns their bound, and that none of
//! it waits for a lock which a thread of the parent may have held at a fork.

use std::sync::Arc;
use std::time::Duration;

use azekura_platform::{Platform, Signal};
use azekura_proto::limits::SLOTS_MAX;
use azekura_rpc::{Conversations, Releases, Slot};
use parking_lot::Mutex;

/// How long a slot that is given back waits for a lock that nobody keeps for long.
const RETURN_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    #[expect(
        clippy::vec_box,
        reason = "a slot moves in and out with each call; a pointer is cheap"
    )]
    idle: Vec<Box<Slot>>,
    made: u16,
}

/// The slots of a session at one engine.
#[derive(Debug)]
pub(crate) struct Slots {
    state: Mutex<State>,
    returned: Signal,
    conversations: Arc<Conversations>,
    releases: Arc<dyn Releases>,
}

impl Slots {
    pub(crate) fn new(releases: Arc<dyn Releases>) -> Self {
        Self {
            state: Mutex::default(),
            returned: Signal::new(),
            conversations: Arc::default(),
            releases,
        }
    }

    /// Takes the slot that was used last, one with a connection if there is one; makes one, or waits for
    /// one until `limit` is over.
    pub(crate) fn take(&self, platform: &dyn Platform, limit: Duration) -> Option<Box<Slot>> {
        let mut state = self.state.lock();
        loop {
            let connected = state.idle.iter().rposition(|slot| slot.is_connected());
            if let Some(at) = connected.or(state.idle.len().checked_sub(1)) {
                return Some(state.idle.remove(at));
            }
            if let Some(slot) = self.make(&mut state) {
                return Some(slot);
            }
            if self.returned.wait_for(platform, &mut state, limit) {
                return None;
            }
        }
    }

    fn make(&self, state: &mut State) -> Option<Box<Slot>> {
        let number = (state.made < SLOTS_MAX).then_some(state.made)?;
        state.made += 1;
        let releases = Some(Arc::clone(&self.releases));
        Some(Box::new(Slot::new(number, Arc::clone(&self.conversations), releases)))
    }

    /// Takes a slot for somebody for whom nobody waits, so that another one with a connection stays for who comes next;
    /// `None` if there is none to spare.
    pub(crate) fn take_spare(&self) -> Option<Box<Slot>> {
        let mut state = self.state.lock();
        let connected = state.idle.iter().filter(|slot| slot.is_connected()).count();
        let is_spare = |slot: &Slot| slot.is_connected() == (connected > 1);
        match state.idle.iter().position(|slot| is_spare(slot)) {
            Some(at) => Some(state.idle.remove(at)),
            None => self.make(&mut state),
        }
    }

    /// Whether a slot with a connection is idle.
    pub(crate) fn has_idle_connection(&self) -> bool {
        self.state.lock().idle.iter().any(|slot| slot.is_connected())
    }

    pub(crate) fn put(&self, slot: Box<Slot>) {
        // In a forked child the lock may be held by a thread that is not there; the slot is lost then.
        if let Some(mut state) = self.state.try_lock_for(RETURN_PATIENCE) {
            state.idle.push(slot);
            drop(state);
            self.returned.notify_one();
        }
    }

    /// Takes every slot that nobody uses just now.
    #[expect(clippy::vec_box, reason = "as they are kept")]
    pub(crate) fn take_idle(&self) -> Vec<Box<Slot>> {
        // In a forked child the lock may be held by a thread that is not there.
        self.state.try_lock().map(|mut state| std::mem::take(&mut state.idle)).unwrap_or_default()
    }

    /// Gives back what [`Slots::take_idle`] took.
    #[expect(clippy::vec_box, reason = "as they are kept")]
    pub(crate) fn put_idle(&self, mut slots: Vec<Box<Slot>>) {
        self.state.lock().idle.append(&mut slots);
        self.returned.notify_all();
    }

    /// The conversations that they have, and have given up.
    pub(crate) fn conversations(&self) -> &Conversations {
        &self.conversations
    }
}
