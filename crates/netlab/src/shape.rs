//! What one direction of a link does to packets: queue, serialisation at a rate, delay, jitter,
//! loss, reordering. Pure: the time comes in, a plan comes out. Never sees a byte of a packet.
//!
//! The kernel hands over bursts: one header and up to 64 KB of payload, which a network card would
//! cut into segments. Every rule here holds per segment, as it does on a wire; segments with the
//! same fate travel on together as a piece.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::quantity::{self, QueueLimit};
use crate::random::Chances;

/// Ethernet around an IP packet: header 14, check sequence 4, preamble 8, gap 12. Counted in the
/// rate, so that TCP over a 1 Gbit/s link has the goodput of Gigabit Ethernet, 117.7 MB/s.
pub(crate) const FRAMING_BYTES: u64 = 38;
/// Ethernet pads shorter IP packets to this.
const PADDED_BYTES: u64 = 46;
/// A piece takes no longer than this on the wire if nothing else is said, so that bytes arrive about
/// as smoothly as they would; it is what one burst may lump together.
const LUMP_NS: u64 = 250_000;
/// A segment picked for reordering comes that much later than its neighbours.
const REORDER_LATE_NS: u64 = 1_000_000;
/// What the automatic queue limit holds at least: 1000 full packets.
const AUTO_QUEUE_BYTES_MIN: u64 = 1000 * (1500 + FRAMING_BYTES);
/// The round trip that the automatic queue limit assumes at least.
const AUTO_QUEUE_NS_MIN: u64 = 12_500_000;

/// How one direction of a link behaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// One-way delay.
    pub delay_ns: u64,
    /// The delay varies evenly by up to this, to both sides.
    pub jitter_ns: u64,
    /// Bits per second on the wire, Ethernet framing included; none: no limit.
    pub rate_bits_per_s: Option<u64>,
    /// Share of segments that get lost, each by itself.
    pub loss: f64,
    /// Share of segments that are overtaken by later ones.
    pub reorder: f64,
    /// How much may wait.
    pub queue: QueueLimit,
    /// How long on the wire what arrives together may take; none: as is usual. More of it costs less.
    pub lump_ns: Option<u64>,
}

impl Shape {
    /// Names of what can be set.
    pub const KEYS: [&'static str; 7] =
        ["delay", "jitter", "rate", "loss", "reorder", "queue", "lump"];

    /// Sets one property from text.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the name or the value.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "delay" => self.delay_ns = quantity::parse_delay_ns(value)?,
            "jitter" => self.jitter_ns = quantity::parse_delay_ns(value)?,
            "rate" => self.rate_bits_per_s = quantity::parse_rate_bits_per_s(value)?,
            "loss" => self.loss = quantity::parse_share(value)?,
            "reorder" => self.reorder = quantity::parse_share(value)?,
            "queue" => self.queue = quantity::parse_queue(value)?,
            "lump" => self.lump_ns = Some(quantity::parse_delay_ns(value)?),
            _ => {
                return Err(format!("a link has no '{key}'; it has {}", Self::KEYS.join(", ")));
            }
        }
        Ok(())
    }

    fn queue_bytes_auto(&self) -> u64 {
        let Some(rate) = self.rate_bits_per_s else { return u64::MAX };
        let round_trip_ns = (2 * self.delay_ns).max(AUTO_QUEUE_NS_MIN);
        let bytes = u128::from(rate) * u128::from(round_trip_ns) / 8_000_000_000;
        (bytes as u64).max(AUTO_QUEUE_BYTES_MIN)
    }
}

/// The measures of what the kernel handed over at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// IP and TCP headers, which every segment carries.
    pub(crate) header_bytes: u32,
    /// Payload of every segment but the last.
    pub(crate) segment_bytes: u32,
    /// Payload of all.
    pub(crate) payload_bytes: u32,
    /// How many segments there are, at least one.
    pub(crate) segments: u32,
}

impl Burst {
    /// A single packet of that length.
    pub(crate) fn single(ip_bytes: u32) -> Self {
        Self { header_bytes: ip_bytes, segment_bytes: 0, payload_bytes: 0, segments: 1 }
    }

    /// A burst of segments.
    pub(crate) fn segmented(header_bytes: u32, segment_bytes: u32, payload_bytes: u32) -> Self {
        let segments = payload_bytes.div_ceil(segment_bytes.max(1)).max(1);
        Self { header_bytes, segment_bytes, payload_bytes, segments }
    }

    fn wire_bytes(&self, segment: u32) -> u64 {
        let left = self.payload_bytes.saturating_sub(segment * self.segment_bytes);
        let payload = left.min(self.segment_bytes);
        u64::from(self.header_bytes + payload).max(PADDED_BYTES) + FRAMING_BYTES
    }
}

/// Neighbouring segments of a burst that arrive together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Index of the first.
    pub(crate) first: u32,
    /// How many.
    pub(crate) segments: u32,
    /// When the last of them has left the queue.
    pub(crate) finish_ns: u64,
    /// When they arrive.
    pub(crate) due_ns: u64,
}

/// What happened to segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Segments that came in.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub queue_drops: u64,
    /// Overtaken by later ones.
    pub reordered: u64,
    /// Dropped because the link was down or a host cut off.
    pub down_drops: u64,
    /// Dropped because too much memory was in flight.
    pub memory_drops: u64,
}

/// How the times of queued pieces move when the rate changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rescale {
    now_ns: u64,
    numerator: u64,
    denominator: u64,
}

impl Rescale {
    /// Where `finish_ns` moves to.
    pub(crate) fn apply(&self, finish_ns: u64) -> u64 {
        let Some(left) = finish_ns.checked_sub(self.now_ns) else { return finish_ns };
        let moved = u128::from(left) * u128::from(self.numerator) / u128::from(self.denominator);
        self.now_ns.saturating_add(u64::try_from(moved).unwrap_or(u64::MAX / 4))
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    finish_ns: u64,
    wire_bytes: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Shaper {
    shape: Shape,
    chances: Chances,
    /// What has come in.
    pub(crate) counters: Counters,
    busy_until_ns: u64,
    /// What the division by the rate left over, in bits x 1e9.
    carry: u64,
    last_due_ns: u64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    limit: QueueLimit,
}

impl Shaper {
    /// A direction at rest.
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        let limit = limit_of(&shape);
        Self {
            shape,
            chances: Chances::new(seed),
            counters: Counters::default(),
            busy_until_ns: 0,
            carry: 0,
            last_due_ns: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            limit,
        }
    }

    /// How it behaves now.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes that wait at that time.
    pub(crate) fn waiting_bytes(&mut self, now_ns: u64) -> u64 {
        self.retire(now_ns);
        self.waiting_bytes
    }

    /// Behaves differently from now on. What is on its way keeps its delay; what still waits goes
    /// at the new rate, as the result says.
    pub(crate) fn change(&mut self, now_ns: u64, shape: Shape) -> Rescale {
        self.retire(now_ns);
        let (numerator, denominator) = match (self.shape.rate_bits_per_s, shape.rate_bits_per_s) {
            (Some(old), Some(new)) => (old, new),
            (_, None) => (0, 1),
            (None, Some(_)) => (1, 1),
        };
        let rescale = Rescale { now_ns, numerator, denominator };
        self.busy_until_ns = rescale.apply(self.busy_until_ns);
        for waiting in &mut self.waiting {
            waiting.finish_ns = rescale.apply(waiting.finish_ns);
        }
        // A path that has become shorter lets new packets overtake old ones, as it does outside.
        self.last_due_ns = 0;
        self.carry = 0;
        self.limit = limit_of(&shape);
        self.shape = shape;
        rescale
    }

    /// Everything that waits is gone.
    pub(crate) fn flush(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.busy_until_ns = 0;
        self.last_due_ns = 0;
    }

    /// Takes a burst in at `now_ns` and adds to `pieces` what will arrive when.
    pub(crate) fn offer(&mut self, now_ns: u64, burst: &Burst, pieces: &mut Vec<Piece>) {
        self.retire(now_ns);
        let lump_ns = self.shape.lump_ns.unwrap_or(LUMP_NS);
        let mut run: Option<(Piece, u64)> = None;
        for segment in 0..burst.segments {
            let wire_bytes = burst.wire_bytes(segment);
            self.counters.packets += 1;
            self.counters.wire_bytes += wire_bytes;
            if self.is_full(wire_bytes) {
                self.counters.queue_drops += 1;
                self.end_run(&mut run, pieces);
                continue;
            }
            let start_ns = self.busy_until_ns.max(now_ns);
            let finish_ns = self.serialise(start_ns, wire_bytes);
            // What gets lost has used its time on the wire.
            if self.chances.happens(self.shape.loss) {
                self.counters.lost += 1;
                self.end_run(&mut run, pieces);
                continue;
            }
            if self.chances.happens(self.shape.reorder) {
                self.counters.reordered += 1;
                self.end_run(&mut run, pieces);
                let due_ns = finish_ns + self.delay_ns() + REORDER_LATE_NS;
                pieces.push(Piece { first: segment, segments: 1, finish_ns, due_ns });
                continue;
            }
            match &mut run {
                Some((piece, since_ns)) if finish_ns - *since_ns <= lump_ns => {
                    piece.segments += 1;
                    piece.finish_ns = finish_ns;
                }
                _ => {
                    self.end_run(&mut run, pieces);
                    let piece = Piece { first: segment, segments: 1, finish_ns, due_ns: 0 };
                    run = Some((piece, start_ns));
                }
            }
        }
        self.end_run(&mut run, pieces);
    }

    fn end_run(&mut self, run: &mut Option<(Piece, u64)>, pieces: &mut Vec<Piece>) {
        if let Some((mut piece, _)) = run.take() {
            // Jitter spreads packets, it does not mix them up.
            piece.due_ns = (piece.finish_ns + self.delay_ns()).max(self.last_due_ns);
            self.last_due_ns = piece.due_ns;
            pieces.push(piece);
        }
    }

    fn delay_ns(&mut self) -> u64 {
        let Shape { delay_ns, jitter_ns, .. } = self.shape;
        if jitter_ns == 0 {
            return delay_ns;
        }
        let offset = (2.0 * jitter_ns as f64 * self.chances.unit()) as u64;
        (delay_ns + offset).saturating_sub(jitter_ns)
    }

    fn serialise(&mut self, start_ns: u64, wire_bytes: u64) -> u64 {
        let Some(rate) = self.shape.rate_bits_per_s else { return start_ns };
        if start_ns != self.busy_until_ns {
            self.carry = 0;
        }
        let work = wire_bytes * 8 * 1_000_000_000 + self.carry;
        self.carry = work % rate;
        self.busy_until_ns = start_ns + work / rate;
        self.waiting.push_back(Waiting { finish_ns: self.busy_until_ns, wire_bytes });
        self.waiting_bytes += wire_bytes;
        self.busy_until_ns
    }

    fn retire(&mut self, now_ns: u64) {
        while let Some(first) = self.waiting.front()
            && first.finish_ns <= now_ns
        {
            self.waiting_bytes -= first.wire_bytes;
            self.waiting.pop_front();
        }
    }

    /// A queue that is empty takes any packet.
    fn is_full(&self, wire_bytes: u64) -> bool {
        !self.waiting.is_empty()
            && match self.limit {
                QueueLimit::Auto => false,
                QueueLimit::Packets(packets) => self.waiting.len() as u64 >= packets,
                QueueLimit::Bytes(bytes) => self.waiting_bytes + wire_bytes > bytes,
            }
    }
}

fn limit_of(shape: &Shape) -> QueueLimit {
    match shape.queue {
        QueueLimit::Auto => QueueLimit::Bytes(shape.queue_bytes_auto()),
        other => other,
    }
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
