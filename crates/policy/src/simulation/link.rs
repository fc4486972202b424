//! The simulated link to one engine: requests go out, replies come back in order at the rate of
//! the link. Owns when each byte arrives; must never know why it was asked for.

/// The link from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPhase {
    /// When it begins, in microseconds.
    pub from_us: u64,
    /// Rate in bytes per second.
    pub bytes_per_second: u64,
    /// Round trip in microseconds, half of it each way.
    pub round_trip_us: u64,
}

/// When the bytes of one reply arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// When the first byte arrives, in microseconds.
    pub first_us: f64,
    /// When the last byte arrives, in microseconds.
    pub last_us: f64,
    /// Bytes of contents.
    pub bytes: u64,
}

impl Transfer {
    /// When the first `bytes` bytes are there, in microseconds.
    pub(crate) fn time_of(&self, bytes: u64) -> f64 {
        let share = bytes.min(self.bytes) as f64 / self.bytes.max(1) as f64;
        self.first_us + (self.last_us - self.first_us) * share
    }

    /// Bytes that are there at `now_us`.
    pub(crate) fn bytes_at(&self, now_us: f64) -> u64 {
        if now_us >= self.last_us {
            return self.bytes;
        }
        let share = (now_us - self.first_us) / (self.last_us - self.first_us);
        (self.bytes as f64 * share.max(0.0)) as u64
    }
}

/// The link. Time must not go backward from one `send` to the next.
#[derive(Clone, Debug)]
pub struct SimulatedLink {
    phases: Vec<LinkPhase>,
    /// Time that a request takes at the engine, in microseconds.
    pub request_cost_us: u64,
    /// Bytes of a reply beside its contents.
    pub request_cost_bytes: u64,
    /// Lost packets per million; each stalls the replies for a round trip.
    pub loss_per_million: u32,
    engine_free_us: f64,
    link_free_us: f64,
    arrived_us: f64,
    random: u64,
    sent_bytes: u64,
}

/// Bytes of contents in a packet.
const PACKET_BYTES: u64 = 1448;

impl SimulatedLink {
    /// A link that stays as it is.
    pub fn new(bytes_per_second: u64, round_trip_us: u64) -> Self {
        Self::changing(vec![LinkPhase { from_us: 0, bytes_per_second, round_trip_us }])
    }

    /// A link that changes; `phases` in the order of time, the first from 0 on.
    pub fn changing(phases: Vec<LinkPhase>) -> Self {
        Self {
            phases,
            request_cost_us: 160,
            request_cost_bytes: 576,
            loss_per_million: 0,
            engine_free_us: 0.0,
            link_free_us: 0.0,
            arrived_us: 0.0,
            random: 0x9e37_79b9_7f4a_7c15,
            sent_bytes: 0,
        }
    }

    /// Bytes of contents sent so far.
    pub(crate) const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn phase_at(&self, us: f64) -> LinkPhase {
        let begun = self.phases.iter().rev().find(|phase| phase.from_us as f64 <= us);
        begun.or(self.phases.first()).copied().unwrap_or(LinkPhase {
            from_us: 0,
            bytes_per_second: 1,
            round_trip_us: 0,
        })
    }

    /// When the bytes pass, one phase after the other.
    fn sending_ends(&self, start_us: f64, bytes: u64) -> f64 {
        let (mut at_us, mut left) = (start_us, bytes as f64);
        loop {
            let rate = self.phase_at(at_us).bytes_per_second as f64 / 1e6;
            let change =
                self.phases.iter().map(|phase| phase.from_us as f64).find(|us| *us > at_us);
            let end_us = at_us + left / rate;
            match change {
                Some(change_us) if change_us < end_us => {
                    left -= (change_us - at_us) * rate;
                    at_us = change_us;
                }
                _ => return end_us,
            }
        }
    }

    fn losses(&mut self, bytes: u64) -> u64 {
        if self.loss_per_million == 0 {
            return 0;
        }
        let lost = |random: &mut u64| {
            *random ^= *random << 13;
            *random ^= *random >> 7;
            *random ^= *random << 17;
            *random % 1_000_000 < u64::from(self.loss_per_million)
        };
        let mut random = self.random;
        let count = (0..bytes.div_ceil(PACKET_BYTES)).filter(|_| lost(&mut random)).count();
        self.random = random;
        count as u64
    }

    /// Sends a request for `bytes` bytes at `now_us`.
    pub(crate) fn send(&mut self, now_us: f64, bytes: u64) -> Transfer {
        let round_trip_us = self.phase_at(now_us).round_trip_us as f64;
        let half_us = round_trip_us / 2.0;
        self.engine_free_us =
            (now_us + half_us).max(self.engine_free_us) + self.request_cost_us as f64;
        let start_us = self.engine_free_us.max(self.link_free_us);
        let stall_us = self.losses(bytes) as f64 * round_trip_us;
        self.link_free_us = self.sending_ends(start_us, bytes + self.request_cost_bytes) + stall_us;
        self.sent_bytes += bytes;
        let back_us = self.phase_at(start_us).round_trip_us as f64 / 2.0;
        // Replies come in order, also when the way has become shorter.
        let first_us = (start_us + back_us).max(self.arrived_us);
        let last_us = (self.link_free_us + back_us).max(first_us);
        self.arrived_us = last_us;
        Transfer { first_us, last_us, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkPhase, SimulatedLink};

    #[test]
    fn one_request_takes_a_round_trip_and_its_bytes() {
        let mut link = SimulatedLink::new(100_000_000, 10_000);
        let transfer = link.send(0.0, 1_000_000 - 576);
        assert!((transfer.last_us - 20_160.0).abs() < 0.01, "{transfer:?}");
        assert!((transfer.first_us - 10_160.0).abs() < 0.01);
    }

    #[test]
    fn requests_in_flight_share_the_round_trip() {
        let mut link = SimulatedLink::new(100_000_000, 10_000);
        for _ in 0..9 {
            link.send(0.0, 1_000_000 - 576);
        }
        let transfer = link.send(0.0, 1_000_000 - 576);
        assert!((transfer.last_us - 110_160.0).abs() < 0.01, "{transfer:?}");
    }

    #[test]
    fn a_change_in_mid_reply_counts_from_then_on() {
        let mut link = SimulatedLink::changing(vec![
            LinkPhase { from_us: 0, bytes_per_second: 100_000_000, round_trip_us: 0 },
            LinkPhase { from_us: 10_160, bytes_per_second: 10_000_000, round_trip_us: 0 },
        ]);
        let transfer = link.send(0.0, 2_000_000 - 576);
        assert!((transfer.last_us - 110_160.0).abs() < 0.01, "{transfer:?}");
    }
}
