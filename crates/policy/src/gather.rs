//! Small writes gathered into pieces, and pieces kept in flight. Owns which ranges wait, which
//! are in flight, and the error that nobody has seen yet; must never hold contents, or let two
//! writes to the same bytes be in flight at once.
//!
//! # The client's side
//!
//! Per file open for writing the client has a [`WriteGather`] and a buffer for what waits, under
//! one lock. Per write of the application:
//!
//! 1. [`WriteGather::take_error`]; an error is the answer to this write, and nothing is written.
//! 2. Copy the bytes into the buffer, then [`WriteGather::on_write`].
//! 3. Per range of `actions.send`, in this order: wait while a range in flight overlaps it
//!    ([`WriteGather::is_in_flight`]), wait while more than `actions.in_flight_max_bytes` are in
//!    flight, [`WriteGather::sent`], send it. The bytes stay with the request until it is
//!    answered.
//! 4. [`WriteGather::answered`] or [`WriteGather::failed`] per answer, whoever takes it.
//!
//! Before a read, a truncation or anything else that must see the bytes:
//! [`WriteGather::before_access`], and the same steps 3; then wait until nothing of the range is
//! in flight. At fsync and close: [`WriteGather::flush`], steps 3, wait until nothing is in
//! flight, then [`WriteGather::take_error`], which is the answer. Whoever has a timer calls
//! [`WriteGather::on_tick`] at [`WriteGather::next_tick_us`].

use crate::link::LinkEstimate;
use crate::range::ByteRange;

/// The parameters of gathering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherParameters {
    /// A piece in bytes: what is sent ends at a multiple of it. The chunk size of the file.
    pub piece_bytes: u64,
    /// Least that may be in flight, in bytes.
    pub window_min_bytes: u64,
    /// Most that may be in flight, in bytes.
    pub window_max_bytes: u64,
    /// How long a range waits for more, in microseconds.
    pub linger_us: u64,
    /// Ranges that wait at once: one for each of so many writers through one descriptor.
    pub waiting_max: usize,
}

impl Default for GatherParameters {
    fn default() -> Self {
        Self {
            piece_bytes: 1 << 20,
            window_min_bytes: 4 << 20,
            window_max_bytes: 64 << 20,
            linger_us: 5_000,
            waiting_max: 4,
        }
    }
}

/// What the client is to do. Kept by the caller from call to call, so that nothing is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteActions {
    /// What to send, in this order.
    pub send: Vec<ByteRange>,
    /// Most that may be in flight before the next is sent, in bytes; 0: nothing.
    pub in_flight_max_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    range: ByteRange,
    since_us: u64,
}

/// The gathering of one open file; `E` is the client's error.
#[derive(Clone, Debug)]
pub struct WriteGather<E> {
    parameters: GatherParameters,
    /// Oldest first.
    waiting: Vec<Waiting>,
    in_flight: Vec<ByteRange>,
    in_flight_bytes: u64,
    error: Option<E>,
}

impl<E> WriteGather<E> {
    /// With nothing written yet.
    pub fn new(mut parameters: GatherParameters) -> Self {
        parameters.piece_bytes = parameters.piece_bytes.max(1);
        parameters.waiting_max = parameters.waiting_max.max(1);
        Self {
            parameters,
            waiting: Vec::new(),
            in_flight: Vec::new(),
            in_flight_bytes: 0,
            error: None,
        }
    }

    /// Bytes sent and not answered.
    pub const fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Bytes that wait to be sent.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.range.bytes).sum()
    }

    /// Whether a byte of `range` is in flight.
    pub fn is_in_flight(&self, range: ByteRange) -> bool {
        self.in_flight.iter().any(|other| other.overlaps(range))
    }

    /// The application has written `bytes` bytes at `offset`.
    pub fn on_write(
        &mut self,
        now_us: u64,
        offset: u64,
        bytes: u64,
        link: LinkEstimate,
        actions: &mut WriteActions,
    ) {
        self.begin(link, actions);
        let mut range = ByteRange::new(offset, bytes);
        if range.is_empty() {
            return;
        }
        // What touches the write becomes one with it; later bytes lie over earlier ones.
        let mut since_us = now_us;
        self.waiting.retain(|waiting| {
            let touches =
                waiting.range.offset <= range.end() && range.offset <= waiting.range.end();
            if touches {
                let end = range.end().max(waiting.range.end());
                range = ByteRange::between(range.offset.min(waiting.range.offset), end);
                since_us = since_us.min(waiting.since_us);
            }
            !touches
        });
        let piece_bytes = self.parameters.piece_bytes;
        let whole_end = range.end() / piece_bytes * piece_bytes;
        self.send(ByteRange::between(range.offset, whole_end), actions);
        let rest = ByteRange::between(range.offset.max(whole_end), range.end());
        if !rest.is_empty() {
            if self.waiting.len() == self.parameters.waiting_max {
                let oldest = self.waiting.remove(0);
                self.send(oldest.range, actions);
            }
            let since_us = if rest.offset == range.offset { since_us } else { now_us };
            let place = self.waiting.partition_point(|waiting| waiting.since_us <= since_us);
            self.waiting.insert(place, Waiting { range: rest, since_us });
        }
    }

    /// When [`WriteGather::on_tick`] has something to send, in microseconds.
    pub fn next_tick_us(&self) -> Option<u64> {
        let oldest = self.waiting.first()?;
        Some(oldest.since_us.saturating_add(self.parameters.linger_us))
    }

    /// Sends what has waited long enough.
    pub fn on_tick(&mut self, now_us: u64, link: LinkEstimate, actions: &mut WriteActions) {
        self.begin(link, actions);
        while self.next_tick_us().is_some_and(|due_us| due_us <= now_us) {
            let oldest = self.waiting.remove(0);
            self.send(oldest.range, actions);
        }
    }

    /// Sends what of `range` waits: something else is about to look at it.
    pub fn before_access(
        &mut self,
        range: ByteRange,
        link: LinkEstimate,
        actions: &mut WriteActions,
    ) {
        self.begin(link, actions);
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index).copied() {
            if waiting.range.overlaps(range) {
                self.waiting.remove(index);
                self.send(waiting.range, actions);
            } else {
                index += 1;
            }
        }
    }

    /// Sends everything: for fsync and close.
    pub fn flush(&mut self, link: LinkEstimate, actions: &mut WriteActions) {
        self.begin(link, actions);
        for index in 0..self.waiting.len() {
            self.send(self.waiting[index].range, actions);
        }
        self.waiting.clear();
    }

    /// `range` of `actions.send` is being sent.
    pub fn sent(&mut self, range: ByteRange) {
        debug_assert!(!self.is_in_flight(range), "two writes to the same bytes in flight");
        self.in_flight.push(range);
        self.in_flight_bytes += range.bytes;
    }

    /// `range` is written.
    pub fn answered(&mut self, range: ByteRange) {
        if let Some(index) = self.in_flight.iter().position(|other| *other == range) {
            self.in_flight.swap_remove(index);
            self.in_flight_bytes -= range.bytes;
        }
    }

    /// `range` could not be written. The first error is kept until somebody is told.
    pub fn failed(&mut self, range: ByteRange, error: E) {
        self.answered(range);
        self.error.get_or_insert(error);
    }

    /// The error that nobody was told yet; whoever takes it tells the application.
    pub fn take_error(&mut self) -> Option<E> {
        self.error.take()
    }

    fn begin(&self, link: LinkEstimate, actions: &mut WriteActions) {
        let window_bytes = link.bandwidth_delay_product_bytes().saturating_mul(2);
        actions.send.clear();
        actions.in_flight_max_bytes = window_bytes
            .max(self.parameters.window_min_bytes)
            .min(self.parameters.window_max_bytes);
    }

    /// Cuts `range` at the ends of pieces.
    fn send(&self, range: ByteRange, actions: &mut WriteActions) {
        let piece_bytes = self.parameters.piece_bytes;
        let mut at = range.offset;
        while at < range.end() {
            let cut = (at / piece_bytes + 1).saturating_mul(piece_bytes).min(range.end());
            actions.send.push(ByteRange::between(at, cut));
            at = cut;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GatherParameters, WriteActions, WriteGather};
    use crate::link::LinkEstimate;
    use crate::range::ByteRange;

    const LINK: LinkEstimate = LinkEstimate::of(117_700_000, 10_000);
    const K: u64 = 1 << 10;

    fn gather() -> (WriteGather<&'static str>, WriteActions) {
        (WriteGather::new(GatherParameters::default()), WriteActions::default())
    }

    #[test]
    fn small_writes_in_a_row_become_pieces() {
        let (mut gather, mut actions) = gather();
        let mut sent = Vec::new();
        for index in 0..1024 {
            gather.on_write(index, 100 + index * 4 * K, 4 * K, LINK, &mut actions);
            sent.extend_from_slice(&actions.send);
        }
        let pieces: Vec<_> = (0..4)
            .map(|index: u64| ByteRange::between((index << 20).max(100), (index + 1) << 20))
            .collect();
        assert_eq!(sent, pieces);
        gather.flush(LINK, &mut actions);
        assert_eq!(actions.send, [ByteRange::new(4 << 20, 100)]);
        assert_eq!(gather.waiting_bytes(), 0);
    }

    #[test]
    fn scattered_writes_are_sent_one_by_one() {
        let (mut gather, mut actions) = gather();
        for index in 0..10 {
            gather.on_write(index, index << 30, 4 * K, LINK, &mut actions);
            let expected = index.checked_sub(4).map(|old| ByteRange::new(old << 30, 4 * K));
            assert_eq!(actions.send, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_is_told_once() {
        let (mut gather, mut actions) = gather();
        gather.on_write(0, 0, 2 << 20, LINK, &mut actions);
        let ranges = actions.send.clone();
        for range in &ranges {
            gather.sent(*range);
        }
        assert!(gather.is_in_flight(ByteRange::new(5, 1)));
        gather.failed(ranges[0], "no space");
        gather.failed(ranges[1], "later");
        assert_eq!(gather.in_flight_bytes(), 0);
        assert_eq!(gather.take_error(), Some("no space"));
        assert_eq!(gather.take_error(), None);
    }

    #[test]
    fn what_lingers_is_sent() {
        let (mut gather, mut actions) = gather();
        gather.on_write(1000, 0, 10, LINK, &mut actions);
        gather.on_write(3000, 10, 10, LINK, &mut actions);
        assert_eq!(gather.next_tick_us(), Some(6000));
        gather.on_tick(5999, LINK, &mut actions);
        assert!(actions.send.is_empty());
        gather.on_tick(6000, LINK, &mut actions);
        assert_eq!(actions.send, [ByteRange::new(0, 20)]);
        assert_eq!(gather.next_tick_us(), None);
    }

    #[test]
    fn an_access_sees_what_was_written_there() {
        let (mut gather, mut actions) = gather();
        gather.on_write(0, 0, 10, LINK, &mut actions);
        gather.on_write(0, 1000, 10, LINK, &mut actions);
        gather.before_access(ByteRange::new(1005, 1), LINK, &mut actions);
        assert_eq!(actions.send, [ByteRange::new(1000, 10)]);
        assert_eq!(gather.waiting_bytes(), 10);
    }

    #[test]
    fn what_may_be_in_flight_follows_the_link_within_bounds() {
        let (mut gather, mut actions) = gather();
        for (link, bytes) in [
            (LinkEstimate::default(), 4 << 20),
            (LinkEstimate::of(100_000_000, 100_000), 20_000_000),
            (LinkEstimate::of(100_000_000, 10_000_000), 64 << 20),
        ] {
            gather.on_write(0, 0, 0, link, &mut actions);
            assert_eq!(actions.in_flight_max_bytes, bytes);
        }
    }

    proptest! {
        #[test]
        fn every_byte_written_is_sent_and_nothing_else(
            writes in prop::collection::vec((0u64..400, 0u64..60), 1..60),
        ) {
            let parameters =
                GatherParameters { piece_bytes: 32, waiting_max: 3, ..GatherParameters::default() };
            let mut gather = WriteGather::<()>::new(parameters);
            let mut actions = WriteActions::default();
            // The number of the write whose bytes are there: waiting, and written.
            let (mut buffer, mut file, mut wanted) = ([0; 500], [0; 500], [0; 500]);
            for (number, (offset, bytes)) in (1..).zip(writes) {
                for at in offset..offset + bytes {
                    buffer[at as usize] = number;
                    wanted[at as usize] = number;
                }
                gather.on_write(number, offset, bytes, LINK, &mut actions);
                for range in &actions.send {
                    prop_assert!(range.offset / 32 == (range.end() - 1) / 32);
                    for at in range.offset..range.end() {
                        file[at as usize] = buffer[at as usize];
                    }
                }
                prop_assert!(gather.waiting.len() <= 3);
                prop_assert!(gather.waiting_bytes() <= 3 * 32);
            }
            gather.flush(LINK, &mut actions);
            for range in &actions.send {
                for at in range.offset..range.end() {
                    file[at as usize] = buffer[at as usize];
                }
            }
            prop_assert_eq!(file, wanted);
        }
    }
}
