//! What the commits of a target rely on in the journals of other targets. Owns what of that no commit
//! carries yet, and what is known to be durable; and the form in which a commit carries the rest. It
//! never asks anybody: [`Witnesses`] do.

use azekura_proto::{Dependence, Dependences, TargetId};
use parking_lot::Mutex;

/// Whoever can make commits of other targets durable.
pub trait Witnesses: Send + Sync {
    /// Returns when all these commits are durable at their targets. It asks targets only, and waits
    /// for no lock that a commit may be made under.
    ///
    /// # Errors
    /// Why they are not.
    fn make_durable(&self, wanted: &Dependences) -> Result<(), Unsettled>;
}

/// Why commits of other targets are not known to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsettled {
    /// The target lost the commit with its power, or what the commit relied on.
    Lost(Dependence),
    /// The target does not answer.
    Silent(TargetId),
}

/// Key of the change by which a commit carries what it relies on, in `Space::Reliance`.
pub(crate) const RELIANCE_KEY: &[u8] = b"";
const ENTRY_BYTES: usize = 2 + 8 + 8;

/// The stored form of dependences: target, epoch and number of each, little endian.
pub(crate) fn encode(dependences: &Dependences) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Dependence { target, epoch, seq } in dependences.iter() {
        bytes.extend_from_slice(&target.0.to_le_bytes());
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend_from_slice(&seq.to_le_bytes());
    }
    bytes
}

/// `None` if these bytes are none.
pub(crate) fn decode(bytes: &[u8]) -> Option<Dependences> {
    let (entries, []) = bytes.as_chunks::<ENTRY_BYTES>() else { return None };
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let all = entries.iter().map(|entry| Dependence {
        target: TargetId(u16::from_le_bytes([entry[0], entry[1]])),
        epoch: number(&entry[2..]),
        seq: number(&entry[10..]),
    });
    Some(all.collect())
}

#[derive(Default)]
struct State {
    /// Everything that commits rely on, or the next one will, and that is not known to be durable.
    unsettled: Dependences,
    /// What of that no commit carries yet.
    uncarried: Dependences,
    /// What is known to be durable, of the newest history of each target.
    settled: Dependences,
}

/// What a target relies on.
#[derive(Default)]
pub(crate) struct Reliance {
    state: Mutex<State>,
}

impl Reliance {
    /// What commits rely on that were there before the target was opened.
    pub(crate) fn carried(before: Dependences) -> Self {
        let state = State { unsettled: before, ..State::default() };
        Self { state: Mutex::new(state) }
    }

    /// From now on commits rely on these.
    pub(crate) fn observe(&self, heard: impl Iterator<Item = Dependence>) {
        let mut state = self.state.lock();
        for each in heard {
            if !is_in(&state.settled, &each) && state.unsettled.add(each) {
                state.uncarried.add(each);
            }
        }
    }

    /// What the next commit has to carry. It is carried from now on.
    pub(crate) fn take_uncarried(&self) -> Dependences {
        std::mem::take(&mut self.state.lock().uncarried)
    }

    /// The commit was not made.
    pub(crate) fn give_back(&self, uncarried: &Dependences) {
        self.state.lock().uncarried.add_all(uncarried);
    }

    /// Everything that is not known to be durable.
    pub(crate) fn unsettled(&self) -> Dependences {
        self.state.lock().unsettled.clone()
    }

    /// Whether everything that is relied on is known to be durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.lock().unsettled.is_empty()
    }

    /// Whether all of these, which commits carry, are known to be durable.
    pub(crate) fn has_settled(&self, wanted: &Dependences) -> bool {
        wanted.is_empty() || {
            let state = self.state.lock();
            // Only the newest history of each target is remembered as settled.
            wanted.iter().all(|each| {
                is_in(&state.settled, each)
                    || state.unsettled.seq_of(each.target, each.epoch).is_none()
            })
        }
    }

    /// These are durable. They have to be everything that was unsettled at some moment: a commit is
    /// only certain together with all that it relied on.
    pub(crate) fn settle(&self, durable: &Dependences) {
        let state = &mut *self.state.lock();
        for each in durable.iter() {
            let is_older =
                |known: &Dependence| known.target == each.target && known.epoch != each.epoch;
            state.settled.retain(|known| !is_older(known));
            state.settled.add(*each);
        }
        let settled = &state.settled;
        state.unsettled.retain(|each| !is_in(settled, each) && !is_in(durable, each));
        state.uncarried.retain(|each| !is_in(settled, each) && !is_in(durable, each));
    }
}

fn is_in(all: &Dependences, one: &Dependence) -> bool {
    all.seq_of(one.target, one.epoch).is_some_and(|seq| seq >= one.seq)
}
