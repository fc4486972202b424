//! What is in memory of a content that is read through because the node has no room for it: some pieces around
//! where programs read. Owns its bound and where pieces are asked for next; never touches a socket or a disk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::piece::Buffer;

/// Bytes of pieces in memory, at most, for each content.
const BYTES_MAX: usize = 8 << 20;
/// So many pieces are asked for ahead of a reader.
const AHEAD: u32 = 12;
/// So many pieces one reader gets before another, elsewhere in the file, has its turn.
const TURN: u32 = 4;
/// A supplier that is lost so often between two pieces is not asked again.
const LOSSES_MAX: u32 = 5;

/// Some pieces.
#[derive(Default)]
pub(crate) struct Window {
    pieces: BTreeMap<u32, Arc<Buffer>>,
    /// Those in memory, the oldest first.
    order: VecDeque<u32>,
    bytes: usize,
    stream: Option<Stream>,
    losses: u32,
}

/// Pieces on their way.
struct Stream {
    next: u32,
    /// The one before which it ends, unless a reader comes near.
    until: u32,
    given: u32,
}

impl Window {
    pub(crate) fn get(&self, index: u32) -> Option<Arc<Buffer>> {
        self.pieces.get(&index).cloned()
    }

    /// A reader is at this piece, of so many: the piece from which on pieces are to be asked for now, if any.
    pub(crate) fn want(&mut self, index: u32, pieces: u32) -> Option<u32> {
        let ahead = index.saturating_add(AHEAD).min(pieces);
        let missing = (index..ahead).find(|piece| !self.pieces.contains_key(piece))?;
        if let Some(stream) = &mut self.stream {
            let comes = stream.next <= missing && missing - stream.next < AHEAD;
            if comes {
                stream.until = stream.until.max(ahead);
                return None;
            }
            // What is ahead can wait, and so can another reader for its turn.
            if missing != index
                || stream.given < TURN.min(stream.until - stream.next + stream.given)
            {
                return None;
            }
        } else if missing > index && missing - index > AHEAD / 2 {
            return None;
        }
        self.stream = Some(Stream { next: missing, until: ahead, given: 0 });
        Some(missing)
    }

    /// Whether this is the piece that comes next.
    pub(crate) fn expects(&self, index: u32) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.next == index)
    }

    /// Takes the piece that comes next; whether no more are wanted.
    pub(crate) fn take(&mut self, index: u32, bytes: Buffer) -> bool {
        self.losses = 0;
        self.bytes += bytes.len();
        if self.pieces.insert(index, Arc::new(bytes)).is_none() {
            self.order.push_back(index);
        }
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.pieces.remove(&oldest).map_or(0, |piece| piece.len());
        }
        let Some(stream) = &mut self.stream else { return true };
        stream.next += 1;
        stream.given += 1;
        let is_over = stream.next >= stream.until;
        if is_over {
            self.stream = None;
        }
        is_over
    }

    /// What was on its way does not come: the piece to ask for again; `None` if that is of no use any more.
    pub(crate) fn lost(&mut self) -> Result<Option<u32>, ()> {
        let Some(stream) = &self.stream else { return Ok(None) };
        self.losses += 1;
        if self.losses > LOSSES_MAX { Err(()) } else { Ok(Some(stream.next)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::piece::Buffers;

    const PIECES: u32 = 1000;
    const PIECE_BYTES: usize = 256 * 1024;

    fn give(window: &mut Window, index: u32) -> bool {
        assert!(window.expects(index), "{index}");
        window.take(index, Buffers::default().take(PIECE_BYTES))
    }

    #[test]
    fn one_reader_has_its_pieces_asked_for_once_and_memory_is_bounded() {
        let mut window = Window::default();
        let mut asked = Vec::new();
        let mut coming = 0;
        for index in 0..PIECES {
            while window.get(index).is_none() {
                if let Some(from) = window.want(index, PIECES) {
                    asked.push(from);
                    coming = from;
                }
                give(&mut window, coming);
                coming += 1;
            }
            window.want(index, PIECES);
            assert!(window.bytes <= BYTES_MAX);
        }
        assert_eq!(asked, [0], "a reader that goes on is never behind what comes");
        assert_eq!(window.pieces.len(), BYTES_MAX / PIECE_BYTES);
    }

    #[test]
    fn two_readers_take_turns() {
        let mut window = Window::default();
        assert_eq!(window.want(0, PIECES), Some(0));
        assert_eq!(window.want(500, PIECES), None, "the first has not had its turn");
        for index in 0..TURN {
            give(&mut window, index);
        }
        assert_eq!(window.want(500, PIECES), Some(500));
        assert_eq!(window.want(TURN, PIECES), None);
        assert!(!window.expects(TURN));
    }

    #[test]
    fn a_reader_that_stops_is_not_read_ahead_for_without_end() {
        let mut window = Window::default();
        window.want(0, PIECES);
        let given = (0..PIECES).take_while(|index| !give(&mut window, *index)).count() as u32 + 1;
        assert_eq!(given, AHEAD);
        assert_eq!(window.want(1, PIECES), None, "enough is there");
        assert_eq!(window.want(AHEAD / 2, PIECES), Some(AHEAD));
    }

    #[test]
    fn a_supplier_that_gives_nothing_is_left() {
        let mut window = Window::default();
        assert_eq!(window.lost(), Ok(None));
        window.want(3, PIECES);
        for _ in 0..LOSSES_MAX {
            assert_eq!(window.lost(), Ok(Some(3)));
        }
        assert_eq!(window.lost(), Err(()));
    }
}
