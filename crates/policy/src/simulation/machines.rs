//! The machines of a cluster that exists only as arithmetic: a full-duplex link each, and when
//! every piece reaches whom. Owns the times of pieces between two changes of the tree; must never
//! know why the tree is as it is.
//!
//! There are no events for pieces. Between two changes of the tree a machine's arrivals follow from
//! its supplier's: the supplier, when its uplink is free, sends to the receiver that has waited
//! longest for a piece that is there. So machines are gone through from the suppliers down, each
//! with all its pieces at once.

use crate::spread::Link;

/// One machine.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Its link.
    pub(super) link: Link,
    /// When a supplier has its request, in microseconds.
    pub(super) asked_us: f64,
    /// Whether it is gone.
    pub(super) is_dead: bool,
    /// Bytes that it has sent.
    pub(super) sent_bytes: u64,
    /// When its last piece came or comes, in microseconds.
    pub(super) last_us: f64,
    /// Pieces that it has since before the last change of the tree.
    settled: usize,
    /// When the pieces after these came or come, in microseconds.
    arrivals_us: Vec<f64>,
    uplink_free_us: f64,
    downlink_free_us: f64,
}

impl Machine {
    /// A machine with so many pieces.
    pub(super) fn new(link: Link, pieces: usize) -> Self {
        Self {
            link,
            asked_us: 0.0,
            is_dead: false,
            sent_bytes: 0,
            last_us: 0.0,
            settled: pieces,
            arrivals_us: Vec::new(),
            uplink_free_us: 0.0,
            downlink_free_us: 0.0,
        }
    }

    /// Pieces that it has or that are on their way to it.
    pub(super) fn pieces(&self) -> usize {
        self.settled + self.arrivals_us.len()
    }

    fn has_since_us(&self, piece: usize) -> Option<f64> {
        match piece.checked_sub(self.settled) {
            None => Some(0.0),
            Some(recent) => self.arrivals_us.get(recent).copied(),
        }
    }

    fn settle(&mut self, now_us: f64) {
        let settled = self.arrivals_us.partition_point(|arrival_us| *arrival_us <= now_us);
        self.arrivals_us.drain(..settled);
        self.settled += settled;
    }

    /// Its supplier has died: what had not left there is lost.
    pub(super) fn lose_supplier(&mut self, now_us: f64, delay_us: f64) {
        let sent = self.arrivals_us.partition_point(|arrival_us| arrival_us - delay_us <= now_us);
        self.arrivals_us.truncate(sent);
        self.downlink_free_us = self.downlink_free_us.min(now_us);
    }
}

/// All of them, and the content.
#[derive(Clone, Debug)]
pub(super) struct Machines {
    /// By place, the source first.
    pub(super) all: Vec<Machine>,
    /// Bytes of the content.
    pub(super) bytes: u64,
    /// Bytes of a piece.
    pub(super) piece_bytes: u64,
    /// Pieces of the content.
    pub(super) pieces: usize,
}

impl Machines {
    /// When this receiver could take its next piece from the supplier.
    fn wants_us(&self, supplier: &Machine, receiver: usize) -> Option<f64> {
        let receiver = &self.all[receiver];
        let next = receiver.pieces();
        if receiver.is_dead || next >= self.pieces {
            return None;
        }
        let has_us = supplier.has_since_us(next)?;
        Some(has_us.max(receiver.asked_us).max(receiver.downlink_free_us))
    }

    /// Everything that `supplier` begins to send before `until_us`. Gives those to `done` that have
    /// all pieces then, or on their way.
    pub(super) fn serve(
        &mut self,
        supplier: usize,
        receivers: &[usize],
        until_us: f64,
        mut done: impl FnMut(usize),
    ) {
        if self.all[supplier].is_dead {
            return;
        }
        let idle = Machine::new(self.all[supplier].link, 0);
        let mut sender = std::mem::replace(&mut self.all[supplier], idle);
        let mut wants_us: Vec<Option<f64>> =
            receivers.iter().map(|receiver| self.wants_us(&sender, *receiver)).collect();
        loop {
            let waiting = wants_us.iter().enumerate().filter_map(|(at, us)| Some((at, (*us)?)));
            let Some((at, wants)) = waiting.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
            let start_us = sender.uplink_free_us.max(wants);
            if start_us >= until_us {
                break;
            }
            self.send(&mut sender, receivers[at], start_us);
            if self.all[receivers[at]].pieces() == self.pieces {
                done(receivers[at]);
            }
            wants_us[at] = self.wants_us(&sender, receivers[at]);
        }
        sender.settle(until_us);
        self.all[supplier] = sender;
    }

    fn send(&mut self, sender: &mut Machine, receiver: usize, start_us: f64) {
        let receiver = &mut self.all[receiver];
        let sent_bytes = receiver.pieces() as u64 * self.piece_bytes;
        let bytes = self.piece_bytes.min(self.bytes - sent_bytes);
        sender.uplink_free_us = start_us + sender.link.service_us(bytes, 1);
        sender.sent_bytes += bytes;
        // A receiver with a slower link takes longer than its supplier is busy with it.
        let received_us = start_us + receiver.link.service_us(bytes, 0);
        receiver.downlink_free_us = sender.uplink_free_us.max(received_us);
        receiver.last_us = receiver.downlink_free_us + sender.link.delay_us as f64;
        receiver.arrivals_us.push(receiver.last_us);
    }
}
