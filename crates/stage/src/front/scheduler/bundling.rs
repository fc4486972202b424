//! Small files that are read to travel together: one after the other, or several at once where their home is far.
//! Owns when one of them is left behind: if it stalls, what has been read goes, and what comes after it is read
//! by other threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::message::Place;
use crate::stock::{Bundle, Stock};

/// What takes longer to be opened or read stalls: a disk or a link hangs.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// The same for homes that are far: a connection has to be made, and lost packets to be sent again.
const FAR_PATIENCE: Duration = Duration::from_secs(3);
/// Files of one bundle that are asked for at once where home is far.
const FAR_AT_ONCE: usize = 8;

/// Small files that are being read by other threads.
pub(super) struct Bundling {
    at_once: usize,
    patience: Duration,
    state: Mutex<BundlingState>,
}

#[derive(Default)]
struct BundlingState {
    left: VecDeque<Place>,
    read: Bundle,
    /// Since when what is being read is.
    at: Vec<Instant>,
    /// The others have gone on without a file that is being read.
    is_split: bool,
}

impl Bundling {
    pub(super) fn new(places: Vec<Place>, is_far: bool) -> Arc<Self> {
        let (at_once, patience) = if is_far { (FAR_AT_ONCE, FAR_PATIENCE) } else { (1, PATIENCE) };
        let at_once = at_once.min(places.len());
        let state = BundlingState { left: places.into(), ..BundlingState::default() };
        Arc::new(Self { at_once, patience, state: Mutex::new(state) })
    }

    /// Reads all that is left.
    pub(super) fn read(&self, stock: &Stock) -> Bundle {
        std::thread::scope(|scope| {
            for _ in 1..self.at_once {
                let builder = Builder::new().name("source".to_owned());
                if let Err(error) = builder.spawn_scoped(scope, || self.read_each(stock)) {
                    // This thread reads them all.
                    tracing::warn!("cannot start a thread to read files: {error}");
                    break;
                }
            }
            self.read_each(stock);
        });
        std::mem::take(&mut self.state.lock().read)
    }

    fn read_each(&self, stock: &Stock) {
        while let Some((place, since)) = self.next() {
            let read = stock.read_small(&place);
            let mut state = self.state.lock();
            if let Some(mine) = state.at.iter().position(|at| *at == since) {
                state.at.swap_remove(mine);
            }
            state.read.put(place, read);
        }
    }

    fn next(&self) -> Option<(Place, Instant)> {
        let mut state = self.state.lock();
        let (next, now) = (state.left.pop_front()?, Instant::now());
        state.at.push(now);
        Some((next, now))
    }

    pub(super) fn is_split(&self) -> bool {
        self.state.lock().is_split
    }

    /// If a file stalls: those that have been read beside it, and those that are still to be.
    pub(super) fn split(&self) -> Option<(Bundle, VecDeque<Place>)> {
        let mut state = self.state.lock();
        let stalls = state.at.iter().any(|since| since.elapsed() > self.patience);
        // Of several that were being read some may have come since the others were left.
        if !stalls || state.is_split && state.read.is_empty() {
            return None;
        }
        state.is_split = true;
        Some((std::mem::take(&mut state.read), std::mem::take(&mut state.left)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn several_are_asked_for_at_once_and_each_once() {
        let place = |number: usize| Place { map: 0, path: number.to_string().into_bytes() };
        let bundling = Bundling::new((0..100).map(place).collect(), true);
        let (together, taken) = (Barrier::new(FAR_AT_ONCE), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..FAR_AT_ONCE {
                scope.spawn(|| {
                    bundling.next().unwrap();
                    together.wait();
                    while bundling.next().is_some() {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner() + FAR_AT_ONCE, 100);
        assert!(bundling.split().is_none(), "none of them has taken long");
    }
}
