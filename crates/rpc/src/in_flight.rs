//! What has been sent on a channel and not answered yet, in order. Owns the windows: how much may be
//! under way so that neither side waits for the other to read.

use std::collections::VecDeque;

use azekura_proto::limits::FRAME_BULK_BYTES_MAX;

/// Requests under way at most: those without data fit into the socket's buffers as well as their answers,
/// and a directory of a hundred files is one exchange.
const WINDOW_REQUESTS: usize = 128;
/// Bulk bytes under way to an engine at most.
const WINDOW_BYTES: usize = FRAME_BULK_BYTES_MAX as usize;
/// Bytes that a reply without data counts for.
const SMALL_REPLY_BYTES: usize = 64;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) context: T,
    /// Bulk bytes that went out with it.
    pub(crate) bulk_bytes: usize,
    /// Most bulk bytes that may come back.
    pub(crate) reply_bytes_max: usize,
    /// Only one such may be under way on a slot.
    pub(crate) is_exact: bool,
    pub(crate) is_slow: bool,
}

impl<T> Entry<T> {
    fn reply_weight(&self) -> u64 {
        self.reply_bytes_max.max(SMALL_REPLY_BYTES) as u64
    }
}

/// Requests in flight, oldest first, each with what its sender wants to know when the answer comes.
#[derive(Debug)]
pub struct InFlight<T> {
    entries: VecDeque<Entry<T>>,
    bulk_bytes: usize,
    reply_bytes: u64,
    exact_count: usize,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bulk_bytes: 0, reply_bytes: 0, exact_count: 0 }
    }
}

impl<T> InFlight<T> {
    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether what each request was sent with is such.
    pub fn all(&self, mut is_such: impl FnMut(&T) -> bool) -> bool {
        self.entries.iter().all(|entry| is_such(&entry.context))
    }

    /// Bytes that the replies weigh at most.
    pub fn reply_bytes(&self) -> u64 {
        self.reply_bytes
    }

    /// What the oldest request was sent with.
    pub fn oldest(&mut self) -> Option<&mut T> {
        self.entries.front_mut().map(|entry| &mut entry.context)
    }

    /// Whether a further request may go before one of those under way has been answered.
    pub(crate) fn has_room(&self, bulk_bytes: usize, is_exact: bool) -> bool {
        self.entries.is_empty()
            || self.entries.len() < WINDOW_REQUESTS
                && self.bulk_bytes + bulk_bytes <= WINDOW_BYTES
                && !(is_exact && self.exact_count > 0)
    }

    pub(crate) fn push(&mut self, entry: Entry<T>) {
        self.bulk_bytes += entry.bulk_bytes;
        self.reply_bytes += entry.reply_weight();
        self.exact_count += usize::from(entry.is_exact);
        self.entries.push_back(entry);
    }

    pub(crate) fn front(&self) -> Option<&Entry<T>> {
        self.entries.front()
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        Some(self.gone(entry))
    }

    /// Takes the youngest back, which could not be sent.
    pub(crate) fn pop_youngest(&mut self) -> Option<T> {
        let entry = self.entries.pop_back()?;
        Some(self.gone(entry))
    }

    /// Takes everything: no answer will come any more.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        let all = std::mem::take(self);
        all.entries.into_iter().map(|entry| entry.context).collect()
    }

    fn gone(&mut self, entry: Entry<T>) -> T {
        self.bulk_bytes -= entry.bulk_bytes;
        self.reply_bytes -= entry.reply_weight();
        self.exact_count -= usize::from(entry.is_exact);
        entry.context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(context: u32, bulk_bytes: usize, is_exact: bool) -> Entry<u32> {
        Entry { context, bulk_bytes, reply_bytes_max: 100, is_exact, is_slow: false }
    }

    #[test]
    fn what_is_under_way_is_bounded_by_number_by_bytes_and_to_one_exact_request() {
        let mut in_flight = InFlight::default();
        assert!(in_flight.has_room(WINDOW_BYTES + 1, true), "one goes in any case");
        in_flight.push(entry(1, WINDOW_BYTES - 1, true));
        assert!(in_flight.has_room(1, false));
        assert!(!in_flight.has_room(2, false));
        assert!(!in_flight.has_room(0, true));
        for context in 2..=WINDOW_REQUESTS as u32 {
            assert!(in_flight.has_room(0, false));
            in_flight.push(entry(context, 0, false));
        }
        assert!(!in_flight.has_room(0, false));
        assert_eq!(in_flight.pop(), Some(1));
        assert!(in_flight.has_room(WINDOW_BYTES, true));
        assert_eq!(in_flight.pop_youngest(), Some(WINDOW_REQUESTS as u32));
        assert_eq!(in_flight.reply_bytes(), 100 * (WINDOW_REQUESTS as u64 - 2));
        assert_eq!(in_flight.take_all(), (2..WINDOW_REQUESTS as u32).collect::<Vec<_>>());
        assert!(in_flight.is_empty() && in_flight.reply_bytes() == 0);
    }
}
