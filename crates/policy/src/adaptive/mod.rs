//! The adaptive request size: one request at a time, its size following how much of the last ones
//! was used. Owns the size, the map of used blocks of one buffer and a short history; must never
//! ask for more than one range at a time. The buffer is the bytes of the last request; a client
//! keeps just those.
//!
//! Utilisation is counted in blocks of a bandwidth-delay product: a hole smaller than that is
//! cheaper to read than to leave out, and so counts as used.
//!
//! The method is that of Ohtsuji and Tatebe, "Optimization of Remote File Access Considering
//! Access Pattern and Network Delay" (sections in brackets): a block is as large as the
//! bandwidth-delay product [4.1]; the size shrinks by the mean of the last m requests, and grows by it
//! once all of them were of that size; after a growth that made utilisation fall it is what it was before and does not grow for p
//! requests, while it is judged by `U_high` and `U_low` as ever [4.2, 4.3]. What the paper leaves open
//! is an [`Interpretation`].

mod blocks;
mod parameters;

pub use parameters::{AdaptiveParameters, Fall, Interpretation, Rounding, ShrinkMean, Trial};

use crate::link::LinkEstimate;
use crate::range::ByteRange;
use blocks::UsedBlocks;

/// Utilisations remembered at most: `m_normal` and `m_small` may not be larger.
pub(crate) const HISTORY_MAX: usize = 8;

/// What to do for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The first byte is in the buffer; this many bytes from it on are there.
    Hit {
        /// Bytes, at most those asked for.
        bytes: u64,
    },
    /// Ask for this range, throw the buffer away, call [`SyncAdaptive::fetched`], plan again.
    Fetch(ByteRange),
    /// The read begins at or after the end of the file, or is of no bytes.
    Nothing,
}

/// What was decided about the size, before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The first request of the file.
    First,
    /// The size stays.
    Keep,
    /// The size would have grown, but a growth has failed within the last `p` requests.
    Hold,
    /// The size grows.
    Grow,
    /// Utilisation fell right after a growth: back to the size before.
    GoBack,
    /// The size shrinks to a half, a quarter or an eighth.
    Shrink,
}

/// One request in the history of decisions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecisionRecord {
    /// When it was decided, in microseconds of the caller's clock.
    pub now_us: u64,
    /// The range asked for.
    pub range: ByteRange,
    /// The size in bytes after the decision.
    pub size_bytes: u64,
    /// Utilisation of the request before (0 to 1), if there was one.
    pub utilisation: Option<f64>,
    /// Mean utilisation on which it was decided, if there was one.
    pub mean_utilisation: Option<f64>,
    /// What was decided.
    pub decision: Decision,
    /// The link as it was known.
    pub link: LinkEstimate,
}

/// The method itself, for one open file. With [`SyncAdaptive::fixed`] it is the baseline: the same
/// without any change of size.
#[derive(Clone, Debug)]
pub struct SyncAdaptive {
    parameters: AdaptiveParameters,
    adapts: bool,
    size_bytes: u64,
    buffer: ByteRange,
    blocks: UsedBlocks,
    history: History,
    /// Requests left for which the size may not grow.
    hold: u32,
    /// The mean that led to the growth which is on trial, if one is.
    on_trial: Option<f64>,
    started: bool,
    last: Option<DecisionRecord>,
}

impl SyncAdaptive {
    /// The method with `parameters`; values out of bounds are brought into them.
    pub fn new(mut parameters: AdaptiveParameters) -> Self {
        let p = &mut parameters;
        p.min_bufsize_bytes = p.min_bufsize_bytes.max(1);
        p.max_bufsize_bytes = p.max_bufsize_bytes.max(p.min_bufsize_bytes);
        p.m_small = p.m_small.clamp(1, HISTORY_MAX);
        p.m_normal = p.m_normal.clamp(1, HISTORY_MAX);
        p.growth = p.growth.max(1);
        let size_bytes = p.initial_bufsize_bytes.clamp(p.min_bufsize_bytes, p.max_bufsize_bytes);
        Self::build(parameters, size_bytes, true)
    }

    /// The baseline: requests of `bytes` bytes (at least 1), whatever happens.
    pub fn fixed(bytes: u64) -> Self {
        Self::build(AdaptiveParameters::default(), bytes.max(1), false)
    }

    fn build(parameters: AdaptiveParameters, size_bytes: u64, adapts: bool) -> Self {
        Self {
            parameters,
            adapts,
            size_bytes,
            buffer: ByteRange::default(),
            blocks: UsedBlocks::new(),
            history: History::default(),
            hold: 0,
            on_trial: None,
            started: false,
            last: None,
        }
    }

    /// The size of the next request in bytes, as it stands now.
    pub(crate) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The last request with its decision, for a trace. A caller that keeps a trace takes it after
    /// each [`Plan::Fetch`].
    pub const fn last_decision(&self) -> Option<&DecisionRecord> {
        self.last.as_ref()
    }

    /// Decides a read of `bytes` bytes at `offset` of a file of `file_size` bytes.
    pub fn plan(
        &mut self,
        now_us: u64,
        offset: u64,
        bytes: u64,
        file_size: u64,
        link: LinkEstimate,
    ) -> Plan {
        let wanted = ByteRange::between(offset, ByteRange::new(offset, bytes).end().min(file_size));
        if wanted.is_empty() {
            return Plan::Nothing;
        }
        if self.buffer.offset <= offset && offset < self.buffer.end() {
            return Plan::Hit { bytes: wanted.bytes.min(self.buffer.end() - offset) };
        }
        let utilisation = self.started.then(|| self.blocks.utilisation());
        let (decision, mean_utilisation) = match utilisation {
            Some(utilisation) if self.adapts => self.adapt(utilisation),
            Some(_) => (Decision::Keep, None),
            None => (Decision::First, None),
        };
        let size_bytes = self.size_bytes;
        let range =
            ByteRange::between(offset, ByteRange::new(offset, size_bytes).end().min(file_size));
        self.started = false;
        self.buffer = ByteRange::default();
        self.last = Some(DecisionRecord {
            now_us,
            range,
            size_bytes,
            utilisation,
            mean_utilisation,
            decision,
            link,
        });
        Plan::Fetch(range)
    }

    /// The range asked for has come, in as many bytes as `range` says (fewer at the end of a file
    /// that was cut off meanwhile). `link` gives the size of a block.
    pub fn fetched(&mut self, range: ByteRange, link: LinkEstimate) {
        let block_bytes = link.bandwidth_delay_product_bytes();
        self.buffer = range;
        self.blocks.clear(self.parameters.interpretation.rounding.blocks(range.bytes, block_bytes));
        self.started = !range.is_empty();
    }

    /// The application has read this range; what of it is in the buffer counts as used.
    pub fn touched(&mut self, offset: u64, bytes: u64) {
        let part = self.buffer.intersection(ByteRange::new(offset, bytes));
        if !part.is_empty() {
            let from_start = ByteRange::new(part.offset - self.buffer.offset, part.bytes);
            self.blocks.mark(self.buffer.bytes, from_start);
        }
    }

    /// The file has changed under the reader: the buffer is worth nothing. What was learned about
    /// the pattern stays.
    pub fn invalidate(&mut self) {
        self.buffer = ByteRange::default();
        self.started = false;
    }

    /// The m of the size as it is.
    fn m(&self) -> usize {
        if self.size_bytes > self.parameters.large_bufsize_bytes {
            self.parameters.m_small
        } else {
            self.parameters.m_normal
        }
    }

    fn adapt(&mut self, utilisation: f64) -> (Decision, Option<f64>) {
        self.history.add(utilisation);
        let mean = self.history.mean(self.m());
        (self.decide(mean), Some(mean))
    }

    fn decide(&mut self, mean: f64) -> Decision {
        let is_held = self.hold > 1;
        self.hold = self.hold.saturating_sub(1);
        let is_full = self.history.of_this_size >= self.m();
        if let Some(before) = self.on_trial {
            let trial = self.parameters.interpretation.trial;
            if is_full || trial == Trial::FirstRequest {
                self.on_trial = None;
            }
            let is_judged = is_full || trial != Trial::MeanOfAll;
            if is_judged && self.has_fallen(mean, before) {
                return self.go_back();
            }
        }
        if is_full && mean > self.parameters.u_high {
            return self.grow(mean, is_held);
        }
        self.shrink(is_full, is_held)
    }

    fn has_fallen(&self, mean: f64, before: f64) -> bool {
        match self.parameters.interpretation.fall {
            Fall::NotHigh => mean <= self.parameters.u_high,
            Fall::Low => mean <= self.parameters.u_low,
            Fall::Below => mean < before,
        }
    }

    fn go_back(&mut self) -> Decision {
        self.set_size(self.size_bytes / self.parameters.growth);
        self.hold = self.parameters.p;
        self.on_trial = None;
        Decision::GoBack
    }

    fn grow(&mut self, mean: f64, is_held: bool) -> Decision {
        if self.size_bytes >= self.parameters.max_bufsize_bytes {
            return Decision::Keep;
        }
        if is_held {
            return Decision::Hold;
        }
        self.set_size(self.size_bytes.saturating_mul(self.parameters.growth));
        self.on_trial = Some(mean);
        Decision::Grow
    }

    fn shrink(&mut self, is_full: bool, is_held: bool) -> Decision {
        let Interpretation { shrink, shrinks_in_hold, .. } = self.parameters.interpretation;
        let mean = match shrink {
            ShrinkMean::Full if !is_full => return Decision::Keep,
            ShrinkMean::Across if self.history.count < self.m() => return Decision::Keep,
            ShrinkMean::Full | ShrinkMean::SoFar => self.history.mean(self.m()),
            ShrinkMean::Across => self.history.mean_across(self.m()),
        };
        let is_low = mean <= self.parameters.u_low;
        let may_shrink = shrinks_in_hold || !is_held;
        if !is_low || !may_shrink || self.size_bytes <= self.parameters.min_bufsize_bytes {
            return Decision::Keep;
        }
        let divisor = match mean {
            mean if mean <= 0.125 => 8,
            mean if mean <= 0.25 => 4,
            _ => 2,
        };
        self.set_size(self.size_bytes / divisor);
        self.on_trial = None;
        Decision::Shrink
    }

    /// What was seen so far was of another size.
    fn set_size(&mut self, bytes: u64) {
        let AdaptiveParameters { min_bufsize_bytes, max_bufsize_bytes, .. } = self.parameters;
        self.size_bytes = bytes.clamp(min_bufsize_bytes, max_bufsize_bytes);
        self.history.of_this_size = 0;
    }
}

/// The utilisations of the last requests, the latest first.
#[derive(Clone, Debug, Default)]
struct History {
    last: [f64; HISTORY_MAX],
    count: usize,
    /// How many of them were of the size as it is.
    of_this_size: usize,
}

impl History {
    fn add(&mut self, utilisation: f64) {
        self.last.rotate_right(1);
        self.last[0] = utilisation;
        self.count = (self.count + 1).min(HISTORY_MAX);
        self.of_this_size = (self.of_this_size + 1).min(HISTORY_MAX);
    }

    /// The mean of the last `m` of this size, or of as many as there are; one at least.
    fn mean(&self, m: usize) -> f64 {
        self.mean_of(m.min(self.of_this_size))
    }

    /// The mean of the last `m` of whatever size, of which there are so many.
    fn mean_across(&self, m: usize) -> f64 {
        self.mean_of(m)
    }

    fn mean_of(&self, taken: usize) -> f64 {
        let taken = taken.clamp(1, HISTORY_MAX);
        self.last[..taken].iter().sum::<f64>() / taken as f64
    }
}

#[cfg(test)]
mod tests {
    use super::{AdaptiveParameters, Decision, Plan, SyncAdaptive};
    use crate::link::LinkEstimate;
    use crate::range::ByteRange;

    const M: u64 = 1 << 20;
    const LINK: LinkEstimate = LinkEstimate::of(117_700_000, 200);

    /// Reads `used` bytes of each of `count` requests, then jumps; gives the decisions.
    fn requests(
        policy: &mut SyncAdaptive,
        count: usize,
        used: impl Fn(u64) -> u64,
    ) -> Vec<Decision> {
        requests_over(policy, count, used, LINK)
    }

    fn requests_over(
        policy: &mut SyncAdaptive,
        count: usize,
        used: impl Fn(u64) -> u64,
        link: LinkEstimate,
    ) -> Vec<Decision> {
        let mut at = policy.buffer.end();
        let mut decisions = Vec::new();
        for _ in 0..count {
            let Plan::Fetch(range) = policy.plan(0, at, 1, 1 << 60, link) else { panic!("a hit") };
            policy.fetched(range, link);
            policy.touched(range.offset, used(range.bytes));
            decisions.push(policy.last_decision().unwrap().decision);
            at = range.end();
        }
        decisions
    }

    /// The sizes asked for, each with the number of requests in a row.
    fn runs(policy: &mut SyncAdaptive, count: usize, used: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for _ in 0..count {
            requests(policy, 1, &used);
            let bytes = policy.last_decision().unwrap().size_bytes;
            match runs.last_mut().filter(|run| run.0 == bytes) {
                Some(run) => run.1 += 1,
                None => runs.push((bytes, 1)),
            }
        }
        runs
    }

    fn from_size(bytes: u64) -> SyncAdaptive {
        SyncAdaptive::new(AdaptiveParameters {
            initial_bufsize_bytes: bytes,
            ..AdaptiveParameters::default()
        })
    }

    #[test]
    fn grows_by_the_mean_over_a_full_m_at_each_size() {
        let small = (0..8).map(|power| (M << power, 4));
        let expected: Vec<_> = small.chain([(256 * M, 1), (512 * M, 7)]).collect();
        assert_eq!(runs(&mut from_size(M), 40, |bytes| bytes), expected);
    }

    #[test]
    fn a_growth_that_did_no_good_is_taken_back_for_p_requests() {
        let expected = [(2 * M, 4), (4 * M, 4), (8 * M, 1), (4 * M, 16), (8 * M, 1), (4 * M, 4)];
        assert_eq!(runs(&mut from_size(2 * M), 30, |bytes| bytes.min(4 * M)), expected);
        let mut policy = from_size(4 * M);
        let decisions = requests(&mut policy, 22, |bytes| bytes.min(4 * M));
        assert_eq!(decisions[4..6], [Decision::Grow, Decision::GoBack]);
        assert!(decisions[6..9].iter().all(|decision| *decision == Decision::Keep));
        assert!(decisions[9..21].iter().all(|decision| *decision == Decision::Hold));
        assert_eq!(decisions[21], Decision::Grow);
    }

    #[test]
    fn a_growth_is_on_trial_for_the_m_of_its_size() {
        for (start, m) in [(8 * M, 4), (128 * M, 1)] {
            for late in 0..m {
                let mut policy = from_size(start);
                requests(&mut policy, 5, |bytes| bytes);
                assert_eq!(policy.size_bytes(), 2 * start);
                requests(&mut policy, late, |bytes| bytes);
                assert_eq!(policy.size_bytes(), 2 * start, "{start} after {late}");
                // Three quarters are neither high nor low: only on trial they are a fall.
                let decisions = requests(&mut policy, 2, |bytes| bytes / 4 * 3);
                let decision = *decisions.last().unwrap();
                assert_eq!(decision, Decision::GoBack, "{start} after {late}");
            }
        }
        let mut policy = from_size(512 * M);
        requests(&mut policy, 5, |bytes| bytes / 4 * 3);
        assert_eq!(policy.size_bytes(), 512 * M, "nothing is on trial");
    }

    #[test]
    fn shrinks_by_the_power_of_two_that_fits() {
        // A block of 1 MiB, so that the shares are exact.
        let link = LinkEstimate::of(M, 1_000_000);
        let start = 64 * M;
        for (blocks, divisor) in [(33, 1), (32, 2), (17, 2), (16, 4), (9, 4), (8, 8), (1, 8)] {
            let mut policy = from_size(start);
            let used = |_| blocks * M;
            requests_over(&mut policy, 4, used, link);
            assert_eq!(policy.size_bytes(), start, "not before m requests");
            requests_over(&mut policy, 1, used, link);
            assert_eq!(policy.size_bytes(), start / divisor, "{blocks} of 64");
        }
    }

    #[test]
    fn a_size_that_may_not_grow_may_still_shrink() {
        let mut policy = from_size(256 * M);
        requests(&mut policy, 1, |bytes| bytes);
        let wanted = [Decision::Grow, Decision::GoBack, Decision::Shrink];
        assert_eq!(requests(&mut policy, 3, |_| M), wanted);
        assert_eq!(policy.size_bytes(), 32 * M, "an eighth");
        let decisions = requests(&mut policy, 20, |bytes| bytes);
        let held = decisions.iter().take_while(|decision| **decision != Decision::Grow).count();
        assert_eq!(held, 14, "p requests since the step back: {decisions:?}");
    }

    #[test]
    fn a_hole_counts_as_used_where_it_is_cheaper_to_read_than_to_leave_out() {
        for bytes_per_second in [12_500_000, 117_700_000, 312_500_000] {
            for round_trip_us in [500, 10_000, 100_000] {
                // A link that was never kept full, too: nothing is hoped of it.
                let known = LinkEstimate::of(bytes_per_second, round_trip_us);
                let link = LinkEstimate { untried: true, ..known };
                let product = link.bandwidth_delay_product_bytes();
                let utilisation = |hole: u64| {
                    let mut policy = SyncAdaptive::fixed(64 * product);
                    let range = ByteRange::new(0, 64 * product);
                    policy.fetched(range, link);
                    for at in (0..range.bytes).step_by(hole as usize + 1) {
                        policy.touched(at, 1);
                    }
                    policy.blocks.utilisation()
                };
                assert!((utilisation(product / 2) - 1.0).abs() < 1e-9, "{link:?}");
                assert!((utilisation(4 * product) - 0.25).abs() < 0.02, "{link:?}");
            }
        }
    }

    #[test]
    fn never_leaves_its_bounds() {
        let mut policy = SyncAdaptive::new(AdaptiveParameters::default());
        requests(&mut policy, 50, |_| 1);
        assert_eq!(policy.size_bytes(), 64 << 10);
    }

    #[test]
    fn a_read_of_nothing_or_past_the_end_asks_for_nothing() {
        let mut policy = SyncAdaptive::new(AdaptiveParameters::default());
        assert_eq!(policy.plan(0, 10, 0, 100, LINK), Plan::Nothing);
        assert_eq!(policy.plan(0, 100, 10, 100, LINK), Plan::Nothing);
        assert_eq!(policy.plan(0, u64::MAX, u64::MAX, 100, LINK), Plan::Nothing);
        let plan = policy.plan(0, 90, 1000, 100, LINK);
        assert_eq!(plan, Plan::Fetch(ByteRange::new(90, 10)));
    }

    #[test]
    fn a_file_cut_off_under_the_reader_gives_what_is_there() {
        let mut policy = SyncAdaptive::new(AdaptiveParameters::default());
        let Plan::Fetch(range) = policy.plan(0, 0, 1000, 1 << 20, LINK) else { panic!() };
        assert_eq!(range.bytes, 1 << 20);
        policy.fetched(ByteRange::new(0, 100), LINK);
        assert_eq!(policy.plan(0, 50, 100, 1 << 20, LINK), Plan::Hit { bytes: 50 });
        policy.touched(50, 50);
        policy.invalidate();
        assert!(matches!(policy.plan(0, 50, 10, 1 << 20, LINK), Plan::Fetch(_)));
    }

    #[test]
    fn fixed_stays_fixed() {
        let mut policy = SyncAdaptive::fixed(1 << 20);
        requests(&mut policy, 10, |bytes| bytes);
        requests(&mut policy, 10, |_| 1);
        assert_eq!(policy.size_bytes(), 1 << 20);
    }
}
