//! What is in memory of contents that are read through because the node has no room for them: some pieces around
//! where programs read. Owns its bounds, of each content and of all of them, whose turn it is if there are more
//! than that serves, and where pieces are asked for next; never touches a socket or a disk.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::message::{ContentId, PIECE_BYTES_MAX};
use crate::piece::Buffer;

/// Bytes of pieces in memory, at most, for each content.
const BYTES_MAX: usize = 8 << 20;
/// For all of them together.
const ALL_BYTES_MAX: usize = 64 << 20;
/// Contents that have pieces in memory at once; others wait for their turn.
const WINDOWS_MAX: usize = 16;
/// So many pieces are asked for ahead of a reader.
const AHEAD: u32 = 12;
/// Room is taken from the one that has most, so each of them has what is asked for ahead.
const _: () = assert!(AHEAD as usize * PIECE_BYTES_MAX as usize <= ALL_BYTES_MAX / WINDOWS_MAX);
/// So many pieces one reader gets before another, elsewhere in the file, has its turn.
const TURN: u32 = 4;
/// A supplier that is lost so often between two pieces is not asked again.
const LOSSES_MAX: u32 = 5;
/// A reader that waits comes back this often at least; one that does not is gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// A window from which nobody has read for so long may be another's.
const IDLE: Duration = Duration::from_millis(50);

/// The windows of all contents of a node.
#[derive(Default)]
pub(crate) struct Windows(Mutex<Table>);

#[derive(Default)]
struct Table {
    windows: HashMap<ContentId, Window>,
    bytes: usize,
    /// Contents that wait for a window, and when somebody last asked; the first has the next one that is free.
    queue: VecDeque<(ContentId, Instant)>,
}

/// What there is of a piece for a reader.
pub(crate) enum Glance {
    Here(Arc<Buffer>),
    /// It comes, or will be asked for when it is this content's turn.
    Wait,
    /// Pieces are to be asked for now from this one on; whether the one that was wanted is here.
    Ask(u32, Option<Arc<Buffer>>),
}

impl Windows {
    /// A reader is at this piece, of so many.
    pub(crate) fn read(&self, id: ContentId, index: u32, pieces: u32) -> Glance {
        let (mut table, now) = (self.0.lock(), Instant::now());
        let had_its_turn = table.windows.get(&id).is_some_and(|window| window.is_behind(index));
        if had_its_turn && !table.queue.is_empty() {
            table.drop_window(id);
        }
        if !table.admit(id, now) {
            return Glance::Wait;
        }
        let others_wait = !table.queue.is_empty();
        let window = table.windows.entry(id).or_insert_with(|| Window::new(now));
        let piece = window.get(index);
        (window.used, window.is_waited_for) = (now, piece.is_none());
        match (window.want(index, pieces, others_wait), piece) {
            (Some(next), piece) => Glance::Ask(next, piece),
            (None, Some(piece)) => Glance::Here(piece),
            (None, None) => Glance::Wait,
        }
    }

    /// Whether this is the piece that comes next.
    pub(crate) fn expects(&self, id: ContentId, index: u32) -> bool {
        self.0.lock().windows.get(&id).is_some_and(|window| window.expects(index))
    }

    /// Takes the piece that comes next; whether no more are wanted.
    pub(crate) fn take(&self, id: ContentId, index: u32, bytes: Buffer) -> bool {
        let table = &mut *self.0.lock();
        let Some(window) = table.windows.get_mut(&id) else { return true };
        let before = window.bytes;
        let is_over = window.take(index, bytes);
        table.bytes = table.bytes + window.bytes - before;
        table.shrink();
        is_over
    }

    /// What was on its way does not come: the piece to ask for again; `None` if that is of no use any more.
    pub(crate) fn lost(&self, id: ContentId) -> Result<Option<u32>, ()> {
        self.0.lock().windows.get_mut(&id).map_or(Ok(None), Window::lost)
    }

    /// A content is read no more.
    pub(crate) fn forget(&self, id: ContentId) {
        let mut table = self.0.lock();
        table.queue.retain(|(waiting, _)| *waiting != id);
        table.drop_window(id);
    }
}

impl Table {
    /// Whether a content has a window, or gets one now.
    fn admit(&mut self, id: ContentId, now: Instant) -> bool {
        if self.windows.contains_key(&id) {
            return true;
        }
        self.queue.retain(|(waiting, asked)| {
            *waiting == id || now.saturating_duration_since(*asked) < PATIENCE
        });
        match self.queue.iter_mut().find(|(waiting, _)| *waiting == id) {
            Some((_, asked)) => *asked = now,
            None => self.queue.push_back((id, now)),
        }
        if self.queue.front().is_none_or(|(first, _)| *first != id) {
            return false;
        }
        if self.windows.len() >= WINDOWS_MAX {
            let idle = self.windows.iter().find(|(_, window)| window.is_idle(now));
            let Some(idle) = idle.map(|(id, _)| *id) else { return false };
            self.drop_window(idle);
        }
        self.queue.pop_front();
        true
    }

    fn drop_window(&mut self, id: ContentId) {
        self.bytes -= self.windows.remove(&id).map_or(0, |window| window.bytes);
    }

    /// Keeps the bound of all. What has come last stays: the one that has most has more than that.
    fn shrink(&mut self) {
        while self.bytes > ALL_BYTES_MAX {
            let largest = self.windows.values_mut().max_by_key(|window| window.bytes);
            let Some(freed) = largest.and_then(Window::drop_oldest) else { return };
            self.bytes -= freed;
        }
    }
}

/// Some pieces of one content.
struct Window {
    pieces: BTreeMap<u32, Arc<Buffer>>,
    /// Those in memory, the oldest first.
    order: VecDeque<u32>,
    bytes: usize,
    stream: Option<Stream>,
    losses: u32,
    /// When a reader last looked.
    used: Instant,
    /// It did not find what it wanted, and comes again.
    is_waited_for: bool,
}

/// Pieces on their way.
struct Stream {
    next: u32,
    /// The one before which it ends, unless a reader comes near.
    until: u32,
    given: u32,
}

impl Window {
    fn new(now: Instant) -> Self {
        Self {
            pieces: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            stream: None,
            losses: 0,
            used: now,
            is_waited_for: false,
        }
    }

    fn get(&self, index: u32) -> Option<Arc<Buffer>> {
        self.pieces.get(&index).cloned()
    }

    /// Whether nothing comes and nobody reads what has come.
    fn is_idle(&self, now: Instant) -> bool {
        let limit = if self.is_waited_for { PATIENCE } else { IDLE };
        self.stream.is_none() && now.saturating_duration_since(self.used) >= limit
    }

    /// Whether nothing comes for a reader that is at this piece.
    fn is_behind(&self, index: u32) -> bool {
        self.stream.is_none() && !self.pieces.contains_key(&index)
    }

    /// A reader is at this piece, of so many: the piece from which on pieces are to be asked for now, if any. If
    /// others wait for a window, no more comes than what was asked for.
    fn want(&mut self, index: u32, pieces: u32, others_wait: bool) -> Option<u32> {
        let ahead = index.saturating_add(AHEAD).min(pieces);
        let missing = (index..ahead).find(|piece| !self.pieces.contains_key(piece))?;
        if let Some(stream) = &mut self.stream {
            let comes = stream.next <= missing && missing - stream.next < AHEAD;
            if comes {
                let end = if others_wait { (index + 1).min(ahead) } else { ahead };
                stream.until = stream.until.max(end);
                return None;
            }
            // What is ahead can wait, and so can another reader for its turn.
            if missing != index
                || stream.given < TURN.min(stream.until - stream.next + stream.given)
            {
                return None;
            }
        } else if missing > index && (others_wait || missing - index > AHEAD / 2) {
            return None;
        }
        self.stream = Some(Stream { next: missing, until: ahead, given: 0 });
        Some(missing)
    }

    fn expects(&self, index: u32) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.next == index)
    }

    fn take(&mut self, index: u32, bytes: Buffer) -> bool {
        self.losses = 0;
        let length = bytes.len();
        match self.pieces.insert(index, Arc::new(bytes)) {
            None => self.order.push_back(index),
            Some(before) => self.bytes -= before.len(),
        }
        self.bytes += length;
        while self.bytes > BYTES_MAX && self.drop_oldest().is_some() {}
        let Some(stream) = &mut self.stream else { return true };
        stream.next += 1;
        stream.given += 1;
        let is_over = stream.next >= stream.until;
        if is_over {
            self.stream = None;
        }
        is_over
    }

    /// How many bytes that was; none if there is nothing.
    fn drop_oldest(&mut self) -> Option<usize> {
        let oldest = self.order.pop_front()?;
        let bytes = self.pieces.remove(&oldest).map_or(0, |piece| piece.len());
        self.bytes -= bytes;
        Some(bytes)
    }

    fn lost(&mut self) -> Result<Option<u32>, ()> {
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
    const PIECE_BYTES: usize = PIECE_BYTES_MAX as usize;

    fn piece() -> Buffer {
        Buffers::default().take(PIECE_BYTES)
    }

    fn give(window: &mut Window, index: u32) -> bool {
        assert!(window.expects(index), "{index}");
        window.take(index, piece())
    }

    #[test]
    fn one_reader_has_its_pieces_asked_for_once_and_memory_is_bounded() {
        let mut window = Window::new(Instant::now());
        let mut asked = Vec::new();
        let mut coming = 0;
        for index in 0..PIECES {
            while window.get(index).is_none() {
                if let Some(from) = window.want(index, PIECES, false) {
                    asked.push(from);
                    coming = from;
                }
                give(&mut window, coming);
                coming += 1;
            }
            window.want(index, PIECES, false);
            assert!(window.bytes <= BYTES_MAX);
        }
        assert_eq!(asked, [0], "a reader that goes on is never behind what comes");
        assert_eq!(window.pieces.len(), BYTES_MAX / PIECE_BYTES);
    }

    #[test]
    fn two_readers_take_turns() {
        let mut window = Window::new(Instant::now());
        assert_eq!(window.want(0, PIECES, false), Some(0));
        assert_eq!(window.want(500, PIECES, false), None, "the first has not had its turn");
        for index in 0..TURN {
            give(&mut window, index);
        }
        assert_eq!(window.want(500, PIECES, false), Some(500));
        assert_eq!(window.want(TURN, PIECES, false), None);
        assert!(!window.expects(TURN));
    }

    #[test]
    fn a_reader_that_stops_is_not_read_ahead_for_without_end() {
        let mut window = Window::new(Instant::now());
        window.want(0, PIECES, false);
        let given = (0..PIECES).take_while(|index| !give(&mut window, *index)).count() as u32 + 1;
        assert_eq!(given, AHEAD);
        assert_eq!(window.want(1, PIECES, false), None, "enough is there");
        assert_eq!(window.want(AHEAD / 2, PIECES, false), Some(AHEAD));
    }

    #[test]
    fn a_supplier_that_gives_nothing_is_left() {
        let mut window = Window::new(Instant::now());
        assert_eq!(window.lost(), Ok(None));
        window.want(3, PIECES, false);
        for _ in 0..LOSSES_MAX {
            assert_eq!(window.lost(), Ok(Some(3)));
        }
        assert_eq!(window.lost(), Err(()));
    }

    /// Readers of as many contents, one piece after the other, and a supplier that sends a piece of each in turn.
    #[test]
    fn however_many_are_read_through_memory_is_bounded_and_all_get_on() {
        const READERS: u64 = 60;
        const LENGTH: u32 = 30;
        let buffers = Buffers::default();
        let windows = Windows::default();
        let mut at = [0; READERS as usize];
        let mut streams: BTreeMap<u64, u32> = BTreeMap::new();
        let mut most = 0;
        for round in 0.. {
            assert!(round < 20_000, "somebody waits for ever: {at:?}");
            for reader in 0..READERS {
                let place = &mut at[reader as usize];
                if *place == LENGTH {
                    continue;
                }
                let is_here = match windows.read(ContentId(reader), *place, LENGTH) {
                    Glance::Here(_) => true,
                    Glance::Wait => false,
                    Glance::Ask(from, piece) => {
                        streams.insert(reader, from);
                        piece.is_some()
                    }
                };
                *place += u32::from(is_here);
                if *place == LENGTH {
                    windows.forget(ContentId(reader));
                    streams.remove(&reader);
                }
            }
            streams.retain(|reader, next| {
                let id = ContentId(*reader);
                assert!(windows.expects(id, *next));
                let is_over = windows.take(id, *next, buffers.take(PIECE_BYTES));
                *next += 1;
                !is_over
            });
            let table = windows.0.lock();
            let held: usize = table.windows.values().map(|window| window.bytes).sum();
            assert_eq!(held, table.bytes);
            most = most.max(held);
            assert!(table.windows.len() <= WINDOWS_MAX);
            if at.iter().all(|place| *place == LENGTH) {
                assert!(table.windows.is_empty() && table.queue.is_empty() && table.bytes == 0);
                break;
            }
        }
        assert!(most <= ALL_BYTES_MAX, "{most}");
        assert!(most > ALL_BYTES_MAX / 4, "what is allowed is used: {most}");
    }

    #[test]
    fn room_for_all_is_taken_from_those_that_have_most() {
        const FILLED: u64 = 12;
        let windows = Windows::default();
        for id in (0..FILLED).map(ContentId) {
            for index in 0..(BYTES_MAX / PIECE_BYTES) as u32 {
                windows.read(id, index, PIECES);
                if windows.expects(id, index) {
                    windows.take(id, index, piece());
                }
                assert!(windows.0.lock().bytes <= ALL_BYTES_MAX);
            }
        }
        let table = windows.0.lock();
        assert_eq!(table.windows.len() as u64, FILLED);
        let fair = ALL_BYTES_MAX / FILLED as usize - 2 * PIECE_BYTES;
        assert!(table.windows.values().all(|window| window.bytes >= fair));
    }

    #[test]
    fn who_waits_for_a_window_and_is_gone_holds_up_nobody() {
        let mut table = Table::default();
        let now = Instant::now();
        for id in 0..WINDOWS_MAX as u64 {
            assert!(table.admit(ContentId(id), now));
            let is_waited_for = true;
            table.windows.insert(ContentId(id), Window { is_waited_for, ..Window::new(now) });
        }
        let (gone, waits) = (ContentId(1000), ContentId(1001));
        assert!(!table.admit(gone, now) && !table.admit(waits, now));
        let later = now + PATIENCE / 2;
        assert!(!table.admit(waits, later), "somebody may still wait for each");
        assert_eq!(table.queue.len(), 2);
        assert!(table.admit(waits, now + PATIENCE), "{:?}", table.queue);
        assert_eq!(table.windows.len(), WINDOWS_MAX - 1);
    }
}
