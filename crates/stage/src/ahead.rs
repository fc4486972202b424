//! What of a file has been read before it is fetched. Reads are made by another thread than those that send, so
//! that a home which stalls on one file holds up nothing else, and a piece is there when it is asked for. Owns
//! what is read next: as it was asked for, and no further ahead than a few pieces.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::piece::Buffer;
use crate::supply::{Bell, Offer};

/// Pieces that are read beyond the one that is asked for.
const AHEAD: u32 = 4;
/// Pieces that are kept for those who fetch the same file a little later.
const KEPT_MAX: usize = 32;

/// A place behind a piece of a file, or behind its end.
#[derive(Clone)]
pub(crate) enum Ready {
    Piece { checksum: u64, bytes: Arc<Buffer> },
    End { digest: u64 },
}

impl From<Ready> for Offer {
    fn from(ready: Ready) -> Self {
        match ready {
            Ready::Piece { checksum, bytes } => Self::Piece { checksum, bytes },
            Ready::End { digest } => Self::End { digest },
        }
    }
}

/// One file.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<State>);

#[derive(Default)]
struct State {
    ready: VecDeque<(u32, Ready)>,
    /// What is to be read, in the order in which it was asked for.
    wanted: VecDeque<u32>,
    /// What is being read, and since when.
    reading: Option<(u32, Instant)>,
    has_reader: bool,
    bells: Vec<Arc<Bell>>,
}

impl Ahead {
    /// The piece, if it has been read; else the bell rings when it has. And whether a reader is to be started,
    /// which takes what to read from [`Ahead::next`]. The end of the file counts as the last piece.
    pub(crate) fn ask(&self, index: u32, last: u32, bell: &Arc<Bell>) -> (Option<Ready>, bool) {
        let mut state = self.0.lock();
        let found = state.ready.iter().find(|(ready, _)| *ready == index);
        let found = found.map(|(_, ready)| ready.clone());
        for next in index..=last.min(index.saturating_add(AHEAD)) {
            if !state.knows(next) {
                state.wanted.push_back(next);
            }
        }
        if found.is_none() && !state.bells.iter().any(|other| Arc::ptr_eq(other, bell)) {
            state.bells.push(Arc::clone(bell));
        }
        let starts = !state.has_reader && !state.wanted.is_empty();
        state.has_reader |= starts;
        (found, starts)
    }

    /// What the reader is to read next; if there is nothing it ends.
    pub(crate) fn next(&self) -> Option<u32> {
        let mut state = self.0.lock();
        let next = state.wanted.pop_front();
        state.reading = next.map(|next| (next, Instant::now()));
        state.has_reader = next.is_some();
        next
    }

    /// The reader has read a piece.
    pub(crate) fn put(&self, index: u32, ready: Ready) {
        let mut state = self.0.lock();
        state.reading = None;
        if state.ready.len() >= KEPT_MAX {
            state.ready.pop_front();
        }
        state.ready.push_back((index, ready));
        state.ring();
    }

    /// The reader has found nothing that is of use to anybody yet.
    pub(crate) fn skip(&self) {
        self.0.lock().reading = None;
    }

    /// There is nothing more to read: those who wait find that out.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        state.wanted.clear();
        state.reading = None;
        state.has_reader = false;
        state.ring();
    }

    /// Nothing needs to be kept for now.
    pub(crate) fn empty(&self) {
        self.0.lock().ready.clear();
    }

    /// A piece is not to be kept any longer.
    pub(crate) fn discard(&self, index: u32) {
        self.0.lock().ready.retain(|(ready, _)| *ready != index);
    }

    /// Whether one read has taken longer than this.
    pub(crate) fn stalls(&self, limit: Duration) -> bool {
        self.0.lock().reading.is_some_and(|(_, since)| since.elapsed() > limit)
    }
}

impl State {
    fn knows(&self, index: u32) -> bool {
        self.reading.is_some_and(|(reading, _)| reading == index)
            || self.wanted.contains(&index)
            || self.ready.iter().any(|(ready, _)| *ready == index)
    }

    fn ring(&mut self) {
        for bell in self.bells.drain(..) {
            bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_in_order_and_once_for_those_who_are_close() {
        let (ahead, bell) = (Ahead::default(), Arc::new(Bell::default()));
        assert!(matches!(ahead.ask(0, 6, &bell), (None, true)));
        assert!(matches!(ahead.ask(0, 6, &bell), (None, false)), "one reader is enough");
        let mut read = Vec::new();
        while let Some(index) = ahead.next() {
            read.push(index);
            ahead.put(index, Ready::End { digest: u64::from(index) });
        }
        assert_eq!(read, [0, 1, 2, 3, 4]);
        let (found, starts) = ahead.ask(1, 6, &bell);
        assert!(matches!(found, Some(Ready::End { digest: 1 })) && starts);
        assert!(matches!(ahead.ask(3, 6, &bell), (Some(_), false)));
        assert_eq!([ahead.next(), ahead.next(), ahead.next()], [Some(5), Some(6), None]);
    }

    #[test]
    fn a_read_that_does_not_end_is_noticed() {
        let (ahead, bell) = (Ahead::default(), Arc::new(Bell::default()));
        ahead.ask(0, 6, &bell);
        assert!(!ahead.stalls(Duration::ZERO), "nobody reads yet");
        ahead.next();
        std::thread::sleep(Duration::from_millis(2));
        assert!(ahead.stalls(Duration::from_millis(1)) && !ahead.stalls(Duration::from_secs(60)));
        ahead.put(0, Ready::End { digest: 0 });
        assert!(!ahead.stalls(Duration::ZERO));
    }
}
