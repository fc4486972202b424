//! The pattern of the reads of one open file. Owns the streams seen lately and the history of
//! jumps; must never decide how much is read ahead, and keeps a bounded state whatever is read.
//!
//! A *run* is a stretch of a file read without a gap. Where one run ends and another begins there
//! is a *jump*: the length of the run, and the gap to the next. Jumps that are equal in a row are
//! one *group*. A stride is one group that goes on; a nested stride, two strides interleaved
//! through one descriptor, or any other repetition is a sequence of groups seen before. A reader
//! that comes back to where an older run ended goes on with that run: so interleaved sequential
//! readers, and reads that arrive out of order, are no jumps.

use std::collections::VecDeque;

use crate::range::ByteRange;

/// Runs that can be gone on with, at most.
pub(crate) const STREAMS_MAX: usize = 64;
/// Groups of jumps remembered, at most.
pub(crate) const GROUPS_MAX: usize = 64;
/// Jumps looked at for the drift of a random walk.
const JUMPS_MAX: usize = 16;
/// A single earlier jump of a run this long is believed to come back after it; in bytes.
const TELLING_RUN_BYTES: u64 = 1 << 20;
/// A read that begins this little before the end of a run belongs to it; in bytes.
const OVERLAP_BYTES: u64 = 1 << 20;
/// Reads within which a run that came before its beginning is joined to it.
const OUT_OF_ORDER_READS: u64 = 16;
/// Runs foreseen at a time, at most.
const FORESEEN_MAX: usize = 512;
/// Jumps in a row that may be expected in vain after a single one before.
const TRIALS: u32 = 2;
/// Runs of which the shortest tells what the next will have at least.
const RUN_LENGTHS: usize = 4;

/// The end of a run: its length, and from its end to the beginning of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump {
    /// Length of the run in bytes.
    pub run_bytes: u64,
    /// From the end of the run to the beginning of the next, in bytes.
    pub gap_bytes: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    jump: Jump,
    count: u64,
}

/// A run that may be gone on with.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: u64,
    head: u64,
    reads: u64,
    /// When it was last read, counted in reads.
    last_read: u64,
    /// Whether a reader came back to it.
    resumed: bool,
    /// Head of the run from which a jump led here, while that jump is the last of the history.
    came_from: Option<u64>,
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
    groups: VecDeque<Group>,
    /// The group in the history whose successors are expected to come again.
    matched: Option<usize>,
    jumps: VecDeque<(Jump, u64)>,
    reads: u64,
    /// Jumps that did not lead where the only jump before had led, less those that did.
    trial_failures: u32,
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
        let Some(stream) = self.streams.get_mut(self.current) else {
            self.begin(read, None);
            return Step::Jumped { predicted: false };
        };
        let overlap_from = stream.head.saturating_sub(OVERLAP_BYTES).max(stream.start);
        if (overlap_from..=stream.head).contains(&offset) {
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
            self.resume(index, read);
            return Step::Resumed;
        }
        let predicted = self.predicted_start(link_bytes);
        self.jump(read);
        if let Some((start, on_trial)) = predicted {
            match (start == offset, on_trial) {
                (true, _) => self.trial_failures = 0,
                (false, true) => self.trial_failures = self.trial_failures.saturating_add(1),
                (false, false) => {}
            }
        }
        Step::Jumped { predicted: predicted.is_some_and(|(start, _)| start == offset) }
    }

    /// End of the current run: where the last read ended.
    pub(crate) fn head(&self) -> u64 {
        self.streams.get(self.current).map_or(0, |stream| stream.head)
    }

    /// Runs read in turn by several readers: how many were read lately, at least 1.
    pub(crate) fn active_streams(&self) -> u64 {
        let lately = self.reads.saturating_sub(4 * STREAMS_MAX as u64);
        let active = |stream: &&Stream| stream.resumed && stream.last_read > lately;
        (self.streams.iter().filter(active).count() as u64).max(1)
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
        let so_far_bytes = stream.head - stream.start;
        let mut walk = self.walk(link_bytes);
        if let Some(first) = walk.next() {
            let mut run = ByteRange::new(stream.start, first.run_bytes);
            let mut jump = first;
            let mut ahead = ByteRange::between(stream.head, run.end());
            for _ in 0..FORESEEN_MAX {
                if !ahead.is_empty() && !accept(ahead) {
                    break;
                }
                let Some(start) = run.end().checked_add_signed(jump.gap_bytes) else { break };
                let Some(next) = walk.next() else { break };
                jump = next;
                run = ByteRange::new(start, jump.run_bytes);
                ahead = run;
            }
            return Knowledge::Runs;
        }
        let (shortest, longest) = self.run_bounds(link_bytes);
        if so_far_bytes < shortest {
            accept(ByteRange::between(stream.head, ByteRange::new(stream.start, shortest).end()));
            return Knowledge::RunToEnd;
        }
        if so_far_bytes == longest && shortest == longest {
            return Knowledge::RunToEnd;
        }
        if stream.reads >= 2 || stream.start == 0 && self.jumps.is_empty() {
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
        let lengths = || self.jumps.iter().rev().take(RUN_LENGTHS).map(|(jump, _)| jump.run_bytes);
        let usual = lengths()
            .find(|length| lengths().filter(|other| other == length).count() + 1 >= RUN_LENGTHS);
        let shortest = lengths().min().unwrap_or(0);
        let longest = lengths().max().unwrap_or(0);
        usual.map_or((shortest, longest), |length| (length, length))
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
            came_from,
        });
    }

    fn jump(&mut self, read: ByteRange) {
        let stream = self.streams[self.current];
        let gap_bytes =
            i64::try_from(i128::from(read.offset) - i128::from(stream.head)).unwrap_or(i64::MAX);
        let jump = Jump { run_bytes: stream.head - stream.start, gap_bytes };
        if let Some(current) = self.streams.get_mut(self.current) {
            current.came_from = None;
        }
        self.push(jump, stream.head);
        self.begin(read, Some(stream.head));
    }

    fn resume(&mut self, index: usize, read: ByteRange) {
        // The jump to the current run was none: the reader of the older run has come back.
        // Nor was it one when that run began right where this read ends: they came out of order.
        let current = &mut self.streams[self.current];
        let reached = current.start == read.end();
        if current.came_from.take().is_some_and(|head| head == read.offset || reached) {
            self.pop();
        }
        self.streams[self.current].resumed = true;
        let stream = &mut self.streams[index];
        stream.head = read.end();
        stream.reads += 1;
        stream.last_read = self.reads;
        stream.resumed = true;
        self.current = index;
        self.join_from(index);
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

    fn push(&mut self, jump: Jump, end: u64) {
        if self.jumps.len() == JUMPS_MAX {
            self.jumps.pop_front();
        }
        self.jumps.push_back((jump, end));
        match self.groups.back_mut() {
            Some(group) if group.jump == jump => group.count += 1,
            _ => {
                if self.groups.len() == GROUPS_MAX {
                    self.groups.pop_front();
                }
                self.groups.push_back(Group { jump, count: 1 });
            }
        }
        self.matched = self.find_match();
    }

    /// Takes back the last jump.
    fn pop(&mut self) {
        self.jumps.pop_back();
        if let Some(group) = self.groups.back_mut() {
            group.count -= 1;
            if group.count == 0 {
                self.groups.pop_back();
            }
        }
        self.matched = self.find_match();
    }

    /// The earlier group that is most like the last one, by what came before it.
    fn find_match(&self) -> Option<usize> {
        let last = self.groups.len().checked_sub(1)?;
        let group = self.groups[last];
        let telling = group.count >= 2 || group.jump.run_bytes >= TELLING_RUN_BYTES;
        let mut best: Option<(usize, usize)> = None;
        for index in (0..last).rev() {
            let earlier = self.groups[index];
            if earlier.jump != group.jump || earlier.count < group.count {
                continue;
            }
            let alike = (1..=index.min(3))
                .take_while(|back| self.groups[index - back] == self.groups[last - back])
                .count();
            if (alike > 0 || telling) && best.is_none_or(|(_, most)| alike > most) {
                best = Some((index, alike));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Where the next run is expected to begin, and whether that is a first trial.
    fn predicted_start(&self, link_bytes: u64) -> Option<(u64, bool)> {
        let stream = self.streams.get(self.current)?;
        let jump = self.walk(link_bytes).next()?;
        let start = stream.start.checked_add(jump.run_bytes)?.checked_add_signed(jump.gap_bytes)?;
        let on_trial = self.matched.is_none() && self.groups.back()?.count == 1;
        Some((start, on_trial))
    }

    /// The jumps to come, the first being the one that ends the current run.
    fn walk(&self, link_bytes: u64) -> Walk<'_> {
        let nothing = Walk { groups: &self.groups, period: None, index: 0, left: 0 };
        let Some(last) = self.groups.back() else { return nothing };
        let Some(stream) = self.streams.get(self.current) else { return nothing };
        let end = self.groups.len();
        let walk = match self.matched {
            // The last group is the matched one come again, as far as it has come.
            Some(matched) => {
                let left = self.groups[matched].count.saturating_sub(last.count);
                Walk { period: Some((matched, end - 1)), index: matched, left, ..nothing }
            }
            None if last.count >= 2 => {
                Walk { index: end - 1, left: 4 * (last.count - 1) + 1, ..nothing }
            }
            None if self.trial_failures < TRIALS && is_cheap(last.jump.run_bytes, link_bytes) => {
                Walk { index: end - 1, left: 2, ..nothing }
            }
            None => nothing,
        };
        let so_far_bytes = stream.head - stream.start;
        match walk.clone().next() {
            Some(jump) if jump.run_bytes < so_far_bytes => {}
            _ => return walk,
        }
        // The run has become longer than expected: perhaps it is one of the long ones before.
        let enough = so_far_bytes.max(TELLING_RUN_BYTES);
        match self.groups.iter().rposition(|group| group.jump.run_bytes >= enough) {
            Some(index) => Walk { period: Some((index, end)), index, left: 1, ..walk },
            None => Walk { period: None, left: 0, ..walk },
        }
    }
}

/// Whether to look one run of this length ahead in vain costs little: beside the run itself, or
/// beside the round trip that it may save.
const fn is_cheap(run_bytes: u64, link_bytes: u64) -> bool {
    link_bytes > 0 && (run_bytes / 4 >= link_bytes || run_bytes <= link_bytes / 2)
}

/// Goes through the jumps that are expected.
#[derive(Clone)]
struct Walk<'a> {
    groups: &'a VecDeque<Group>,
    /// The groups that come again and again: from the first up to, not including, the second.
    period: Option<(usize, usize)>,
    index: usize,
    left: u64,
}

impl Iterator for Walk<'_> {
    type Item = Jump;

    fn next(&mut self) -> Option<Jump> {
        if self.left == 0 {
            let (first, end) = self.period?;
            self.index += 1;
            if self.index >= end {
                self.index = first;
            }
            self.left = self.groups.get(self.index)?.count;
        }
        self.left -= 1;
        self.groups.get(self.index).map(|group| group.jump)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GROUPS_MAX, Knowledge, Pattern, STREAMS_MAX, Step};
    use crate::range::ByteRange;

    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;

    fn next_ranges(pattern: &Pattern, count: usize) -> (Vec<ByteRange>, Knowledge) {
        let mut ranges = Vec::new();
        let knowledge = pattern.foresee(u64::MAX / 8, |range| {
            ranges.push(range);
            ranges.len() < count
        });
        (ranges, knowledge)
    }

    fn read_run(pattern: &mut Pattern, start: u64, bytes: u64, piece: u64) {
        let mut at = start;
        while at < start + bytes {
            pattern.observe(at, piece.min(start + bytes - at), u64::MAX / 8);
            at += piece;
        }
    }

    #[test]
    fn a_stride_is_known_after_three_runs() {
        for gap in [3 << 20, -5i64 << 20] {
            let mut pattern = Pattern::new();
            let mut at = 1000 * M;
            for _ in 0..3 {
                read_run(&mut pattern, at, M, 256 * K);
                at = (at + M).checked_add_signed(gap).unwrap();
            }
            let (ranges, knowledge) = next_ranges(&pattern, 2);
            assert_eq!(knowledge, Knowledge::Runs);
            let second = (at + M).checked_add_signed(gap).unwrap();
            assert_eq!(ranges, [ByteRange::new(at, M), ByteRange::new(second, M)]);
        }
    }

    #[test]
    fn a_nested_stride_is_known_in_its_second_round() {
        let mut pattern = Pattern::new();
        let mut at = 0;
        for round in 0..3 {
            read_run(&mut pattern, at, 50 * M, M);
            if round > 0 {
                pattern.observe(at + 50 * M, M, u64::MAX / 8);
                assert_eq!(pattern.head(), at + 51 * M);
                let (ranges, _) = next_ranges(&pattern, 30);
                assert_eq!(ranges.len(), 30, "round {round}");
                assert_eq!(ranges[0], ByteRange::new(at + 51 * M, M));
                assert_eq!(ranges[24], ByteRange::new(at + 50 * M + 24 * 6 * M, 2 * M));
                assert_eq!(ranges[25], ByteRange::new(at + 200 * M, 52 * M));
            }
            at += 50 * M;
            for _ in 0..25 {
                read_run(&mut pattern, at, 2 * M, M);
                at += 6 * M;
            }
        }
    }

    #[test]
    fn interleaved_readers_are_no_jumps() {
        let mut pattern = Pattern::new();
        let starts = [0, 1000 * M, 500 * M];
        for round in 0..20 {
            for start in starts {
                let step = pattern.observe(start + round * M, M, u64::MAX / 8);
                assert!(round == 0 || step == Step::Resumed, "{round} {step:?}");
            }
        }
        assert_eq!(pattern.active_streams(), 3);
        let (_, knowledge) = next_ranges(&pattern, 1);
        assert!(matches!(knowledge, Knowledge::Run { so_far_bytes, .. } if so_far_bytes == 20 * M));
    }

    #[test]
    fn interleaved_strides_are_known() {
        let mut pattern = Pattern::new();
        for round in 0..6 {
            read_run(&mut pattern, round * 8 * M, M, M);
            read_run(&mut pattern, 1000 * M + round * 4 * M, M, M);
        }
        // The two jumps differ from round to round, since the strides do: each reader alone
        // is what can be known, and nothing wrong is said.
        let (ranges, _) = next_ranges(&pattern, 4);
        assert!(ranges.len() <= 1);
        let mut pattern = Pattern::new();
        for round in 0..6 {
            read_run(&mut pattern, round * 8 * M, M, M);
            read_run(&mut pattern, 1000 * M + round * 8 * M, M, M);
        }
        let (ranges, _) = next_ranges(&pattern, 2);
        assert_eq!(ranges, [ByteRange::new(48 * M, M), ByteRange::new(1048 * M, M)]);
    }

    #[test]
    fn reads_out_of_order_are_one_run() {
        let mut pattern = Pattern::new();
        for group in 0..8 {
            for piece in [1, 0, 3, 2] {
                pattern.observe((group * 4 + piece) * 128 * K, 128 * K, u64::MAX / 8);
            }
        }
        let (_, knowledge) = next_ranges(&pattern, 1);
        assert!(
            matches!(knowledge, Knowledge::Run { so_far_bytes, .. } if so_far_bytes >= 3 * M),
            "{knowledge:?} {pattern:?}"
        );
    }

    #[test]
    fn random_reads_of_equal_length_foretell_the_length() {
        let mut pattern = Pattern::new();
        for start in [100 * M, 900 * M, 20 * M, 400 * M] {
            read_run(&mut pattern, start, 8 * M, 256 * K);
        }
        pattern.observe(3000 * M, 256 * K, u64::MAX / 8);
        let (ranges, knowledge) = next_ranges(&pattern, 3);
        assert_eq!(knowledge, Knowledge::RunToEnd);
        assert_eq!(ranges, [ByteRange::between(3000 * M + 256 * K, 3008 * M)]);
    }

    #[test]
    fn single_random_reads_foretell_nothing() {
        let mut pattern = Pattern::new();
        let mut at = 12345u64;
        let mut trials = 0;
        for _ in 0..1000 {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            pattern.observe(at % (1 << 32) / 4096 * 4096 + 4096, 4096, 10 * M);
            trials += next_ranges(&pattern, 1).0.len();
        }
        assert!(trials <= 2, "{trials} ranges foreseen");
    }

    proptest! {
        #[test]
        fn any_reads_keep_it_bounded(reads in prop::collection::vec((0u64..64, 0u64..4, any::<bool>()), 0..400)) {
            let mut pattern = Pattern::new();
            for (place, length, far) in reads {
                let offset = if far { u64::MAX - place } else { place * 1000 };
                pattern.observe(offset, length * 1000, 1000);
                prop_assert!(pattern.streams.len() <= STREAMS_MAX);
                prop_assert!(pattern.groups.len() <= GROUPS_MAX);
                let mut given = 0;
                pattern.foresee(1000, |range| { given += 1; !range.is_empty() && given < 100 });
                pattern.drift();
            }
        }
    }
}
