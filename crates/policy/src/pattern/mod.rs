//! The pattern of the reads of one open file. Owns the streams seen lately and what is known of the
//! reads to come; must never decide how much is read ahead, and keeps a bounded state whatever is read.
//!
//! A *run* is a stretch of a file read without a gap. Where one run ends and another begins there
//! is a *jump*: the length of the run, and the gap to the next. Jumps that are equal in a row are
//! one *group*. A stride is one group that goes on; a nested stride, two strides interleaved
//! through one descriptor, or any other repetition is a sequence of groups seen before. A reader
//! that comes back to where an older run ended goes on with that run: so interleaved sequential
//! readers, and reads that arrive out of order, are no jumps. If they come in turns that can be foretold,
//! as those of neighbouring slices of the same rows do, then the turns count.

mod history;
mod in_order;
mod run;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::range::ByteRange;
use history::History;
use in_order::InOrder;
use run::{Jump, continues};

/// Runs that can be gone on with, at most.
pub(crate) const STREAMS_MAX: usize = 64;
/// Jumps looked at for the drift of a random walk.
const JUMPS_MAX: usize = 16;
/// Reads within which a run that came before its beginning is joined to it.
const OUT_OF_ORDER_READS: u64 = 16;
/// Runs of which the shortest tells what the next will have at least.
const RUN_LENGTHS: usize = 4;
/// Of eight reads elsewhere so many go on with older runs where several readers take turns.
const RETURNS_IN_TURN: u32 = 4;

/// A run that may be gone on with.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: u64,
    head: u64,
    reads: u64,
    /// When it was last read, counted in reads.
    last_read: u64,
    /// Whether it is one of several that are read in turn.
    resumed: bool,
    /// Where what tells of it begins, and how many reads of it were before that.
    told_from: (u64, u64),
    /// Head of the run from which a jump led here, while that jump is the last of the history.
    came_from: Option<u64>,
}

impl Stream {
    /// What was read of it.
    const fn run(&self) -> ByteRange {
        ByteRange::between(self.start, self.head)
    }

    /// What of that tells how it goes on: one of many random reads that comes right behind an earlier one by chance
    /// does not make one long run of both.
    const fn told(&self) -> ByteRange {
        ByteRange::between(self.told_from.0, self.head)
    }
}

/// What a read was, in view of those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It goes on with the current run.
    Onward,
    /// It goes on with an older run.
    Resumed,
    /// It begins a run.
    Jumped {
        /// Whether the run began where it was predicted.
        predicted: bool,
    },
    /// It reads again what lies right behind, or nothing.
    Again,
}

/// Drift of runs whose jumps can't be predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    /// Mean length of a run in bytes.
    pub run_bytes: u64,
    /// Mean way from the beginning of a run to that of the next, in bytes.
    pub advance_bytes: u64,
    /// Longest gap forward in bytes.
    pub forward_bytes: u64,
    /// Longest gap backward in bytes.
    pub backward_bytes: u64,
    /// Where the farthest of the last runs ended.
    pub high: u64,
}

/// How well the future is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing tells what comes.
    Nothing,
    /// The current run goes on, to an end that is not known.
    Run {
        /// Bytes of the run read so far.
        so_far_bytes: u64,
        /// Whether there was any jump in the file yet.
        jumps_seen: bool,
    },
    /// The current run ends with the ranges given out, the next begins who knows where.
    RunToEnd,
    /// Runs to come are known.
    Runs,
}

/// The detector for one open file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pattern {
    streams: Vec<Stream>,
    current: usize,
    history: History,
    /// All reads in their order, from when a reader first came back to an older run.
    in_order: Option<Box<InOrder>>,
    jumps: VecDeque<(Jump, u64)>,
    reads: u64,
    /// Of the last reads that did not go on with the current run, which went on with an older one: a bit each.
    returns: u8,
}

impl Pattern {
    /// A detector that has seen nothing.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Notes a read. `link_bytes` is the bandwidth-delay product of the link, as in
    /// [`Pattern::foresee`].
    pub(crate) fn observe(&mut self, offset: u64, bytes: u64, link_bytes: u64) -> Step {
        let read = ByteRange::new(offset, bytes);
        if read.is_empty() {
            return Step::Again;
        }
        self.reads += 1;
        let reads = self.reads;
        if let Some(in_order) = &mut self.in_order {
            in_order.observe(read, link_bytes);
        }
        let Some(stream) = self.streams.get_mut(self.current) else {
            self.begin(read, None);
            return Step::Jumped { predicted: false };
        };
        let (run, told) = (stream.run(), stream.told());
        if continues(run, offset) {
            stream.last_read = reads;
            if read.end() <= stream.head {
                return Step::Again;
            }
            stream.head = read.end();
            stream.reads += 1;
            self.join_from(self.current);
            return Step::Onward;
        }
        if let Some(index) = self.streams.iter().position(|stream| stream.head == offset) {
            if self.in_order.is_none() {
                let mut in_order = InOrder::new(run, self.history.clone());
                in_order.observe(read, link_bytes);
                self.in_order = Some(Box::new(in_order));
            }
            self.resume(index, read);
            return Step::Resumed;
        }
        let expected = self.history.expected(told, link_bytes);
        self.jump(read);
        Step::Jumped { predicted: self.history.judge(expected, offset) }
    }

    /// Whether anything was read yet.
    pub(crate) fn has_begun(&self) -> bool {
        !self.streams.is_empty()
    }

    /// End of the current run: where the last read ended.
    pub(crate) fn head(&self) -> u64 {
        self.streams.get(self.current).map_or(0, |stream| stream.head)
    }

    /// Runs read in turn by several readers: how many were read lately, at least 1. Where it is known
    /// which turn comes when, they are one reader.
    pub(crate) fn active_streams(&self) -> u64 {
        if self.known_turns().is_some() { 1 } else { self.streams_lately() }
    }

    fn streams_lately(&self) -> u64 {
        let lately = self.reads.saturating_sub(4 * STREAMS_MAX as u64);
        let active = |stream: &&Stream| stream.resumed && stream.last_read > lately;
        (self.streams.iter().filter(active).count() as u64).max(1)
    }

    /// All reads in their order, where that says more than the runs that each of them goes on with.
    fn known_turns(&self) -> Option<&InOrder> {
        let in_order = self.in_order.as_deref().filter(|in_order| in_order.is_regular())?;
        (self.streams_lately() > 1).then_some(in_order)
    }

    /// Gives out, in the order in which they will be read, the ranges that are expected after the
    /// last read, as long as `accept` returns true. `link_bytes` is the bandwidth-delay product:
    /// beside a run much longer than that, a jump predicted in vain costs little.
    pub(crate) fn foresee(
        &self,
        link_bytes: u64,
        mut accept: impl FnMut(ByteRange) -> bool,
    ) -> Knowledge {
        let Some(stream) = self.streams.get(self.current) else { return Knowledge::Nothing };
        if let Some(turns) = self.known_turns()
            && turns.foresee(link_bytes, &mut accept)
        {
            return Knowledge::Runs;
        }
        let told = stream.told();
        if self.history.foresee(told, link_bytes, &mut accept) {
            return Knowledge::Runs;
        }
        let so_far_bytes = told.bytes;
        let (shortest, longest) = self.run_bounds(link_bytes);
        if so_far_bytes < shortest {
            accept(ByteRange::between(stream.head, ByteRange::new(told.offset, shortest).end()));
            return Knowledge::RunToEnd;
        }
        if so_far_bytes == longest && shortest == longest {
            return Knowledge::RunToEnd;
        }
        let (_, reads_before) = stream.told_from;
        if stream.reads - reads_before >= 2 || stream.start == 0 && self.jumps.is_empty() {
            return Knowledge::Run { so_far_bytes, jumps_seen: !self.jumps.is_empty() };
        }
        Knowledge::Nothing
    }

    /// The drift of the last runs, if there were enough and they move forward.
    pub(crate) fn drift(&self) -> Option<Drift> {
        if self.jumps.len() < JUMPS_MAX / 2 {
            return None;
        }
        let count = self.jumps.len() as i128;
        let mut drift = Drift {
            run_bytes: 0,
            advance_bytes: 0,
            forward_bytes: 0,
            backward_bytes: 0,
            high: self.head(),
        };
        let (mut run_sum, mut advance_sum) = (0i128, 0i128);
        for (jump, end) in &self.jumps {
            run_sum += i128::from(jump.run_bytes);
            advance_sum += i128::from(jump.run_bytes) + i128::from(jump.gap_bytes);
            if jump.gap_bytes > 0 {
                drift.forward_bytes = drift.forward_bytes.max(jump.gap_bytes.unsigned_abs());
            } else {
                drift.backward_bytes = drift.backward_bytes.max(jump.gap_bytes.unsigned_abs());
            }
            drift.high = drift.high.max(*end);
        }
        drift.run_bytes = u64::try_from(run_sum / count).unwrap_or(u64::MAX);
        drift.advance_bytes = u64::try_from(advance_sum / count).ok().filter(|bytes| *bytes > 0)?;
        Some(drift)
    }

    /// The shortest and the longest that the current run is expected to be. One odd run among equal ones is passed over.
    fn run_bounds(&self, link_bytes: u64) -> (u64, u64) {
        if self.jumps.len() < 2 {
            // One run tells little, but what the link moves in half a round trip may be tried.
            let cheap = |(jump, _): &(Jump, u64)| jump.run_bytes.min(link_bytes / 2);
            return (self.jumps.front().map_or(0, cheap), u64::MAX);
        }
        let shortest = self.last_lengths().min().unwrap_or(0);
        let longest = self.last_lengths().max().unwrap_or(0);
        self.usual_length().map_or((shortest, longest), |length| (length, length))
    }

    fn last_lengths(&self) -> impl Iterator<Item = u64> {
        self.jumps.iter().rev().take(RUN_LENGTHS).map(|(jump, _)| jump.run_bytes)
    }

    /// The length of all of the last runs but one, if they are of one length.
    fn usual_length(&self) -> Option<u64> {
        let is_usual = |length: &u64| {
            self.last_lengths().filter(|other| other == length).count() + 1 >= RUN_LENGTHS
        };
        self.last_lengths().find(is_usual)
    }

    fn begin(&mut self, read: ByteRange, came_from: Option<u64>) {
        if self.streams.len() == STREAMS_MAX {
            let oldest = (0..STREAMS_MAX).min_by_key(|index| self.streams[*index].last_read);
            self.streams.swap_remove(oldest.unwrap_or(0));
        }
        self.current = self.streams.len();
        self.streams.push(Stream {
            start: read.offset,
            head: read.end(),
            reads: 1,
            last_read: self.reads,
            resumed: false,
            told_from: (read.offset, 0),
            came_from,
        });
    }

    fn jump(&mut self, read: ByteRange) {
        let stream = self.streams[self.current];
        let jump = Jump::between(stream.told(), read.offset);
        if let Some(current) = self.streams.get_mut(self.current) {
            current.came_from = None;
        }
        if self.jumps.len() == JUMPS_MAX {
            self.jumps.pop_front();
        }
        self.jumps.push_back((jump, stream.head));
        self.history.push(jump);
        self.returns <<= 1;
        self.begin(read, Some(stream.head));
    }

    fn resume(&mut self, index: usize, read: ByteRange) {
        let usual_length = self.usual_length();
        // The jump to the current run was none: the reader of the older run has come back.
        // Nor was it one when that run began right where this read ends: they came out of order.
        let current = &mut self.streams[self.current];
        let reached = current.start == read.end();
        if current.came_from.take().is_some_and(|head| head == read.offset || reached) {
            self.jumps.pop_back();
            self.history.pop();
        }
        self.returns = self.returns << 1 | 1;
        let stream = &mut self.streams[index];
        // A single read behind one of many runs of its length may be there by chance.
        let is_usual = usual_length == Some(stream.told().bytes);
        let in_turn = reached || !is_usual || self.returns.count_ones() >= RETURNS_IN_TURN;
        stream.told_from = if in_turn { (stream.start, 0) } else { (read.offset, stream.reads) };
        stream.head = read.end();
        stream.reads += 1;
        stream.last_read = self.reads;
        stream.resumed |= in_turn;
        let left = std::mem::replace(&mut self.current, index);
        if in_turn {
            self.streams[left].resumed = true;
            self.join_from(index);
        }
    }

    /// When the run at `index` has reached the beginning of another, the two are one.
    fn join_from(&mut self, index: usize) {
        let run = self.streams[index];
        // An older run that happens to begin there is another reader's, long gone.
        let lately = self.reads.saturating_sub(OUT_OF_ORDER_READS);
        let joined = self.streams.iter().position(|other| {
            other.start == run.head && other.head > other.start && other.last_read >= lately
        });
        let Some(other_index) = joined.filter(|other| *other != index) else { return };
        let other = self.streams[other_index];
        let one = &mut self.streams[index];
        one.head = other.head;
        one.reads += other.reads;
        self.streams.swap_remove(other_index);
        self.current = if index == self.streams.len() { other_index } else { index };
    }
}
