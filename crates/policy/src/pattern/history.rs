//! The jumps of a reader in the order in which they came, and what they foretell. Owns the groups, and the
//! place in the past that the present repeats; must never know of runs that are gone on with, nor decide
//! how much is read ahead.
//!
//! Where the present repeats the past it is followed from jump to jump: what came next then is expected to
//! come next now. A jump that nothing in the past is like, in the midst of what was foretold, is a *break*:
//! what was repeated until then is expected to begin anew after it, and to end with such a jump again. So
//! the rows of a slice are known at the beginning of the next slice, and where that ends as well.

use std::collections::VecDeque;

use super::run::Jump;
use crate::range::ByteRange;

/// Groups of jumps remembered, at most.
pub(super) const GROUPS_MAX: usize = 1024;
/// A single earlier jump of a run this long is believed to come back after it; in bytes.
const TELLING_RUN_BYTES: u64 = 1 << 20;
/// Runs foreseen at a time, at most.
const FORESEEN_MAX: usize = 512;
/// So often in a row something may be expected in vain before it is expected no more.
const TRIALS: u32 = 2;
/// Where the last jump alone is like an earlier one, it is followed if there are no more groups than this: among more
/// it may be so by chance. And then so many runs are foretold: the current one, and the next.
const FEW_GROUPS: usize = 8;
const RUNS_BY_ONE: u64 = 2;
/// Breaks after which it is tried again whether what was repeated begins anew.
const BREAKS_WITHOUT_TRIAL: u32 = 16;

/// Equal jumps in a row.
#[derive(Clone, Copy, Debug)]
struct Group {
    jump: Jump,
    count: u64,
    /// Nothing was like it when it came, and something else was expected.
    is_break: bool,
}

impl Group {
    fn is_like(self, other: Self) -> bool {
        self.jump == other.jump && self.count == other.count
    }
}

/// Where in the past the present is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The group that the last one repeats, as far as it has come.
    matched: Option<usize>,
    /// Only the last jump says so: of random ones every now and then one is like an earlier one.
    by_one: bool,
    /// Where that began which is repeated now; nothing when it is forgotten.
    begun: Option<usize>,
    /// Right after a break: the group with which what was repeated begins anew.
    anew: Option<usize>,
    /// Breaks in a row after which it did not.
    false_starts: u32,
    /// Breaks in a row that were expected again in vain.
    false_breaks: u32,
}

impl Place {
    /// The oldest group is forgotten.
    fn shift(&mut self) {
        for index in [&mut self.matched, &mut self.begun, &mut self.anew] {
            *index = index.and_then(|index| index.checked_sub(1));
        }
    }
}

/// The jumps of a reader.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    groups: VecDeque<Group>,
    place: Place,
    /// The place before the last jump.
    place_before: Place,
    /// Jumps that did not lead where the only jump before had led, less those that did.
    trial_failures: u32,
}

/// What a jump was expected to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// Where the next run begins.
    pub(super) start: u64,
    /// Whether only one jump before speaks for it.
    on_trial: bool,
}

impl History {
    /// How many groups there are.
    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Notes a jump.
    pub(super) fn push(&mut self, jump: Jump) {
        if self.groups.len() == GROUPS_MAX {
            self.groups.pop_front();
            self.place.shift();
        }
        self.place_before = self.place;
        let expected = self.expected_group();
        let was_foretold = self.place.matched.is_some() && !self.place.by_one
            || self.groups.back().is_some_and(|last| last.count >= 2);
        match self.groups.back_mut() {
            Some(group) if group.jump == jump => group.count += 1,
            _ => self.groups.push_back(Group { jump, count: 1, is_break: false }),
        }
        match expected.filter(|index| self.groups[*index].jump == jump) {
            Some(index) => self.go_on(index),
            None => self.go_astray(expected, was_foretold),
        }
    }

    /// Takes back the last jump.
    pub(super) fn pop(&mut self) {
        if let Some(group) = self.groups.back_mut() {
            group.count -= 1;
            if group.count == 0 {
                self.groups.pop_back();
            }
        }
        self.place = self.place_before;
    }

    /// The group to which the next jump belongs if the past is repeated.
    fn expected_group(&self) -> Option<usize> {
        if self.place.anew.is_some() {
            return self.place.anew;
        }
        let (matched, last) = (self.place.matched?, self.groups.back()?);
        Some(if last.count < self.groups[matched].count { matched } else { matched + 1 })
    }

    /// The last jump was the expected one.
    fn go_on(&mut self, index: usize) {
        if self.groups[index].is_break {
            self.place.false_breaks = 0;
        }
        if self.place.anew.take().is_some() {
            self.place.begun = Some(index);
            self.place.false_starts = 0;
        }
        self.place.matched = Some(index);
        self.place.by_one = false;
    }

    /// The last jump was not the expected one, or none was expected.
    fn go_astray(&mut self, expected: Option<usize>, was_foretold: bool) {
        let last = self.groups.len() - 1;
        if expected.is_some_and(|index| self.groups[index].is_break) {
            self.place.false_breaks = self.place.false_breaks.saturating_add(1);
        }
        if self.place.anew.take().is_some() {
            self.place.false_starts = self.place.false_starts.saturating_add(1);
        }
        let Place { matched: matched_before, begun: begun_before, .. } = self.place;
        let found = self.find_match();
        self.place.matched = found.map(|(index, _)| index);
        self.place.by_one = self.groups[last].count == 1 && matches!(found, Some((_, 0)));
        self.place.begun = found.map(|(index, alike)| index - alike);
        if found.is_some() || self.groups[last].count > 1 || !was_foretold || last == 0 {
            return;
        }
        self.groups[last].is_break = true;
        if self.place.false_starts < TRIALS {
            self.place.anew = Some(begin_anew(last - 1, matched_before, begun_before));
        } else {
            // Tried again a while later.
            self.place.false_starts = (self.place.false_starts + 1) % BREAKS_WITHOUT_TRIAL;
        }
    }

    /// The earlier group that is most like the last one, by what came before it, and in how many groups
    /// before it the two are alike.
    fn find_match(&self) -> Option<(usize, usize)> {
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
                .take_while(|back| self.groups[index - back].is_like(self.groups[last - back]))
                .count();
            if (alike > 0 || telling) && best.is_none_or(|(_, most)| alike > most) {
                best = Some((index, alike));
            }
        }
        best
    }

    /// Where the run after `run` is expected to begin.
    pub(super) fn expected(&self, run: ByteRange, link_bytes: u64) -> Option<Expected> {
        let last = self.groups.back()?;
        let jump = self.walk(run.bytes, link_bytes).next()?;
        let end = run.offset.checked_add(jump.run_bytes)?;
        let on_trial =
            self.believed_match().is_none() && self.place.anew.is_none() && last.count == 1;
        Some(Expected { start: end.checked_add_signed(jump.gap_bytes)?, on_trial })
    }

    /// The group that the last one repeats, if that may be relied on.
    fn believed_match(&self) -> Option<usize> {
        let is_believed = !self.place.by_one || self.groups.len() <= FEW_GROUPS;
        self.place.matched.filter(|_| is_believed)
    }

    /// A jump led to `start`: takes in what that says of an expectation from before it. Tells whether
    /// that was right.
    pub(super) fn judge(&mut self, expected: Option<Expected>, start: u64) -> bool {
        let Some(expected) = expected else { return false };
        match (expected.start == start, expected.on_trial) {
            (true, _) => self.trial_failures = 0,
            (false, true) => self.trial_failures = self.trial_failures.saturating_add(1),
            (false, false) => {}
        }
        expected.start == start
    }

    /// Gives out what is expected to be read after `run`, the current one as far as it was read, as long
    /// as `accept` returns true. False if no jump is expected.
    pub(super) fn foresee(
        &self,
        run: ByteRange,
        link_bytes: u64,
        accept: &mut impl FnMut(ByteRange) -> bool,
    ) -> bool {
        let mut walk = self.walk(run.bytes, link_bytes);
        let Some(mut jump) = walk.next() else { return false };
        let mut whole = ByteRange::new(run.offset, jump.run_bytes);
        let mut ahead = ByteRange::between(run.end(), whole.end());
        for _ in 0..FORESEEN_MAX {
            if !ahead.is_empty() && !accept(ahead) {
                break;
            }
            let Some(start) = whole.end().checked_add_signed(jump.gap_bytes) else { break };
            let Some(next) = walk.next() else { break };
            jump = next;
            whole = ByteRange::new(start, jump.run_bytes);
            ahead = whole;
        }
        true
    }

    /// The jumps to come, the first being the one that ends the current run, of which `so_far_bytes` were
    /// read.
    fn walk(&self, so_far_bytes: u64, link_bytes: u64) -> Walk<'_> {
        let passes_breaks = self.place.false_breaks < TRIALS;
        let runs_left = if self.place.by_one { RUNS_BY_ONE } else { u64::MAX };
        let nothing = Walk {
            groups: &self.groups,
            period: None,
            index: 0,
            left: 0,
            runs_left,
            passes_breaks,
        };
        let Some(last) = self.groups.back() else { return nothing };
        let end = self.groups.len();
        let walk = match (self.place.anew, self.believed_match()) {
            (Some(anew), _) => {
                let left = self.groups[anew].count;
                Walk { period: Some((anew, end)), index: anew, left, ..nothing }
            }
            // The last group is the matched one come again, as far as it has come.
            (None, Some(matched)) => {
                let left = self.groups[matched].count.saturating_sub(last.count);
                Walk { period: Some((matched, end - 1)), index: matched, left, ..nothing }
            }
            _ if last.count >= 2 => {
                Walk { index: end - 1, left: 4 * (last.count - 1) + 1, ..nothing }
            }
            _ if self.trial_failures < TRIALS && is_cheap(last.jump.run_bytes, link_bytes) => {
                Walk { index: end - 1, left: 2, ..nothing }
            }
            _ => nothing,
        };
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

/// With which group that begins anew which ended with the group `last`, repeating `matched` there, when a
/// break took the place of what was expected; `begun`: where it had begun, if that is known.
fn begin_anew(last: usize, matched: Option<usize>, begun: Option<usize>) -> usize {
    match (begun, matched) {
        (Some(begun), _) => begun,
        // It began before all that is remembered: the break stood for the group after the matched one.
        (None, Some(matched)) => (matched + 2) % (last - matched),
        (None, None) => last,
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
    /// Jumps that are given out at most.
    runs_left: u64,
    /// Whether breaks are expected again where they came before.
    passes_breaks: bool,
}

impl Iterator for Walk<'_> {
    type Item = Jump;

    fn next(&mut self) -> Option<Jump> {
        self.runs_left = self.runs_left.checked_sub(1)?;
        if self.left == 0 {
            let (first, end) = self.period?;
            self.index += 1;
            if self.index >= end {
                self.index = first;
            }
            let group = self.groups.get(self.index)?;
            self.left = group.count;
            if group.is_break && !self.passes_breaks {
                // The run before it is known, and where it leads is not.
                self.period = None;
                self.left = 1;
            }
        }
        self.left -= 1;
        self.groups.get(self.index).map(|group| group.jump)
    }
}
