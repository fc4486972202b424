//! All reads of one open file in the order in which they come, every gap between them a jump. Owns how well
//! that has foretold them so far; must never know of readers that come in turns, as the streams do.

use super::history::History;
use super::run::{Jump, continues};
use crate::range::ByteRange;

/// Jumps in a row that must have been foretold before any are believed.
const REGULAR_JUMPS: u32 = 2;

/// The reads in their order.
#[derive(Clone, Debug)]
pub(super) struct InOrder {
    /// The current run, as far as it was read.
    run: ByteRange,
    history: History,
    /// Jumps in a row that led where they were expected to.
    foretold: u32,
}

impl InOrder {
    /// From the current run and what came before it, in which no reader has come back to an older run.
    pub(super) fn new(run: ByteRange, history: History) -> Self {
        Self { run, history, foretold: 0 }
    }

    /// Notes a read, which is not empty.
    pub(super) fn observe(&mut self, read: ByteRange, link_bytes: u64) {
        if continues(self.run, read.offset) {
            let end = self.run.end().max(read.end());
            self.run = ByteRange::between(self.run.offset, end);
            return;
        }
        let expected = self.history.expected(self.run, link_bytes);
        self.history.push(Jump::between(self.run, read.offset));
        let is_right = self.history.judge(expected, read.offset);
        self.foretold = if is_right { self.foretold.saturating_add(1) } else { 0 };
        self.run = read;
    }

    /// Whether the last jumps were all foretold.
    pub(super) const fn is_regular(&self) -> bool {
        self.foretold >= REGULAR_JUMPS
    }

    /// As [`History::foresee`].
    pub(super) fn foresee(
        &self,
        link_bytes: u64,
        accept: &mut impl FnMut(ByteRange) -> bool,
    ) -> bool {
        self.history.foresee(self.run, link_bytes, accept)
    }
}
