//! The reading side of a connection: takes replies off it as they come, in parts, and never waits. A
//! reader that waited for the rest of one reply would let the other connections fill up, and their
//! senders slow down for a long time.

use azekura_proto::message::Reply;

use super::fetch::{Fetch, State};
use crate::link::Borrowed;

/// A reply of which not all has come.
#[derive(Debug)]
struct Partial {
    data: Vec<u8>,
    filled: usize,
}

/// The reading side of a connection.
#[derive(Debug)]
pub(super) struct Reader {
    borrowed: Borrowed,
    partial: Option<Partial>,
}

/// What a look at a connection has brought.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) come: Come,
    /// When the reply's head has come, in microseconds of the pipeline's clock, if it was now.
    pub(super) head_us: Option<u64>,
    /// Bytes of data.
    pub(super) bytes: u64,
    /// Whether somebody waited for it, so that it did not lie in a buffer before.
    pub(super) waited: bool,
}

/// What became of the reply.
#[derive(Debug)]
pub(super) enum Come {
    /// More is to come.
    Part,
    /// It is complete.
    Reply(State),
    /// The connection is of no further use.
    Broken,
}

impl Reader {
    pub(super) fn new(borrowed: Borrowed) -> Self {
        Self { borrowed, partial: None }
    }

    /// Whether bytes have been taken off the socket that are to be looked at.
    pub(super) fn has_buffered_input(&mut self) -> bool {
        self.borrowed.lane().has_buffered_input()
    }

    /// Replies that nobody waits for must never meet another user of the lane.
    pub(super) fn hang_up(&mut self) {
        let (link, lane) = self.borrowed.parts();
        link.disconnect(lane);
    }

    /// Takes what is there of the reply to `oldest`.
    pub(super) fn read(&mut self, oldest: &Fetch, waited: bool, now_us: impl Fn() -> u64) -> Got {
        let mut got = Got { come: Come::Part, head_us: None, bytes: 0, waited };
        if self.partial.is_none() {
            let (link, lane) = self.borrowed.parts();
            let bytes_max = oldest.asked_bytes() as usize;
            let (answer, bytes) = match lane.try_receive(&link.holds, link.engine, bytes_max) {
                Ok(None) => return got,
                Ok(Some(reply)) => reply,
                Err(_) => return Got { come: Come::Broken, ..got },
            };
            got.head_us = Some(now_us());
            match answer {
                Ok(Reply::Data { .. }) => {
                    self.partial = Some(Partial { data: vec![0; bytes], filled: 0 });
                }
                Ok(Reply::Leased { lease_ms, version }) => {
                    return Got { come: Come::Reply(State::Lease(lease_ms, version)), ..got };
                }
                // The connection is whole, and what was asked for cannot be had.
                Ok(_) | Err(_) => return Got { come: Come::Reply(State::Failed), ..got },
            }
        }
        got.come = self.read_data(&mut got.bytes);
        got
    }

    fn read_data(&mut self, bytes: &mut u64) -> Come {
        let lane = self.borrowed.lane();
        let Some(partial) = &mut self.partial else { return Come::Part };
        while partial.filled < partial.data.len() {
            match lane.try_receive_bulk(&mut partial.data[partial.filled..]) {
                Ok(0) => return Come::Part,
                Ok(count) => {
                    partial.filled += count;
                    *bytes += count as u64;
                }
                Err(_) => return Come::Broken,
            }
        }
        match self.partial.take() {
            Some(partial) => Come::Reply(State::Data(partial.data)),
            None => Come::Part,
        }
    }
}
