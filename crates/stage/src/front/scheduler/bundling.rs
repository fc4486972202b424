//! Small files that are read to travel together. Owns when one of them is left behind: if it stalls, what has been
//! read before it goes, and what comes after it is read by another thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::message::Place;
use crate::stock::{Bundle, Stock};

/// What takes longer to be opened or read stalls: a disk or a link hangs.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// Small files that are being read by another thread.
#[derive(Default)]
pub(super) struct Bundling(Mutex<BundlingState>);

#[derive(Default)]
struct BundlingState {
    left: VecDeque<Place>,
    read: Bundle,
    /// What is being read, since when.
    at: Option<Instant>,
    /// The others have gone on without the file that is being read.
    is_split: bool,
}

impl Bundling {
    pub(super) fn new(places: Vec<Place>) -> Arc<Self> {
        let state = BundlingState { left: places.into(), ..BundlingState::default() };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Reads all that is left.
    pub(super) fn read(&self, stock: &Stock) -> Bundle {
        while let Some(place) = self.next() {
            let read = stock.read_small(&place);
            let mut state = self.0.lock();
            state.at = None;
            state.read.put(place, read);
        }
        std::mem::take(&mut self.0.lock().read)
    }

    fn next(&self) -> Option<Place> {
        let mut state = self.0.lock();
        let next = state.left.pop_front();
        state.at = next.as_ref().map(|_| Instant::now());
        next
    }

    pub(super) fn is_split(&self) -> bool {
        self.0.lock().is_split
    }

    /// If a file stalls: those that have been read before it, and those that are still to be.
    pub(super) fn split(&self) -> Option<(Bundle, VecDeque<Place>)> {
        let mut state = self.0.lock();
        let stalls = state.at.is_some_and(|since| since.elapsed() > PATIENCE);
        if state.is_split || !stalls {
            return None;
        }
        state.is_split = true;
        Some((std::mem::take(&mut state.read), std::mem::take(&mut state.left)))
    }
}
