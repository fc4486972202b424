//! The adaptive request size: one request at a time, its size following how much of the last ones
//! was used. Owns the size, the map of used blocks of one buffer and a short history; must never
//! ask for more than one range at a time. The buffer is the bytes of the last request; a client
//! keeps just those.
//!
//! Utilisation is counted in blocks of a bandwidth-delay product: a hole smaller than that is
//! cheaper to read than to leave out, and so counts as used.
//!
//! The method is that of Ohtsuji and Tatebe, "Optimization of Remote File Access Considering
//! Access Pattern and Network Delay". What it leaves open is settled here: the number of blocks is
//! size / bandwidth-delay product, rounded to the nearest; "right after a growth" is the first m
//! requests of the new size, and utilisation "falls" when their mean is no longer above `U_high`;
//! a change down forgets the history, since that was of another size.

use crate::link::LinkEstimate;
use crate::range::ByteRange;

/// Blocks in the map of used blocks at most: 512 bytes of bitmap.
pub(crate) const BLOCKS_MAX: u64 = 4096;

/// Utilisations remembered at most: `m_normal` and `m_small` may not be larger.
pub(crate) const HISTORY_MAX: usize = 8;

/// The parameters of the method, under the names of its authors.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveParameters {
    /// Smallest request in bytes.
    pub min_bufsize_bytes: u64,
    /// `MAX_BUFSIZE`: largest request in bytes. More brings nothing on a link of 1 Gbit/s.
    pub max_bufsize_bytes: u64,
    /// The first request in bytes. Not given by the authors; from here the largest size is reached
    /// within 1 GB.
    pub initial_bufsize_bytes: u64,
    /// `LARGE_BUFSIZE` in bytes: what the link moves in a second. Above it a wrong size costs so
    /// much that the mean is taken over `m_small` requests only.
    pub large_bufsize_bytes: u64,
    /// `M_small`: requests in the mean above `large_bufsize_bytes`.
    pub m_small: usize,
    /// `M_normal`: requests in the mean up to `large_bufsize_bytes`.
    pub m_normal: usize,
    /// `U_high`: the size grows when the mean utilisation (0 to 1) is above it.
    pub u_high: f64,
    /// `U_low`: the size shrinks when the mean utilisation (0 to 1) is below it.
    pub u_low: f64,
    /// By what the size is multiplied when it grows.
    pub growth: u64,
    /// Requests for which the size may not grow, after a growth that made utilisation fall.
    pub p: u32,
}

impl Default for AdaptiveParameters {
    fn default() -> Self {
        Self {
            min_bufsize_bytes: 64 << 10,
            max_bufsize_bytes: 512 << 20,
            initial_bufsize_bytes: 512 << 10,
            large_bufsize_bytes: 128 << 20,
            m_small: 1,
            m_normal: 4,
            u_high: 0.95,
            u_low: 0.5,
            growth: 2,
            p: 16,
        }
    }
}

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

/// Which blocks of the buffer were used.
#[derive(Clone, Debug)]
struct UsedBlocks {
    bits: [u64; (BLOCKS_MAX / 64) as usize],
    count: u64,
    used: u64,
}

impl UsedBlocks {
    fn clear(&mut self, count: u64) {
        self.bits = [0; (BLOCKS_MAX / 64) as usize];
        self.count = count.clamp(1, BLOCKS_MAX);
        self.used = 0;
    }

    /// Marks the blocks of a buffer of `bytes` bytes that `part` (from its start on) touches.
    fn mark(&mut self, bytes: u64, part: ByteRange) {
        if part.is_empty() || bytes == 0 {
            return;
        }
        let block_of = |at: u64| {
            let block = u128::from(at) * u128::from(self.count) / u128::from(bytes);
            (block as u64).min(self.count - 1)
        };
        for block in block_of(part.offset)..=block_of(part.end() - 1) {
            let bit = 1u64 << (block % 64);
            let Some(word) = self.bits.get_mut((block / 64) as usize) else { continue };
            self.used += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }

    fn utilisation(&self) -> f64 {
        self.used as f64 / self.count as f64
    }
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
    history: [f64; HISTORY_MAX],
    history_len: usize,
    /// Requests left for which the size may not grow.
    hold: u32,
    /// Requests left that count as right after a growth.
    watch: usize,
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
        let bits = [0; (BLOCKS_MAX / 64) as usize];
        Self {
            parameters,
            adapts,
            size_bytes,
            buffer: ByteRange::default(),
            blocks: UsedBlocks { bits, count: 1, used: 0 },
            history: [0.0; HISTORY_MAX],
            history_len: 0,
            hold: 0,
            watch: 0,
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
        let block_bytes = link.hoped_product_bytes().max(1);
        self.buffer = range;
        self.blocks.clear((range.bytes + block_bytes / 2) / block_bytes);
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

    fn window(&self) -> usize {
        if self.size_bytes > self.parameters.large_bufsize_bytes {
            self.parameters.m_small
        } else {
            self.parameters.m_normal
        }
    }

    fn adapt(&mut self, utilisation: f64) -> (Decision, Option<f64>) {
        self.history.rotate_right(1);
        self.history[0] = utilisation;
        self.history_len = (self.history_len + 1).min(HISTORY_MAX);
        let taken = self.window().min(self.history_len);
        let mean = self.history[..taken].iter().sum::<f64>() / taken as f64;
        (self.decide(mean), Some(mean))
    }

    fn decide(&mut self, mean: f64) -> Decision {
        let high = mean > self.parameters.u_high;
        if self.watch > 0 {
            self.watch -= 1;
            if !high {
                // The size before may itself be untried: it is watched as a grown one is.
                self.size_bytes = (self.size_bytes / self.parameters.growth)
                    .max(self.parameters.min_bufsize_bytes);
                self.hold = self.parameters.p;
                self.watch = self.parameters.m_normal;
                self.history_len = 0;
                return Decision::GoBack;
            }
        }
        let held = self.hold > 1;
        self.hold = self.hold.saturating_sub(1);
        if high && self.size_bytes < self.parameters.max_bufsize_bytes {
            if held {
                return Decision::Hold;
            }
            self.size_bytes = self
                .size_bytes
                .saturating_mul(self.parameters.growth)
                .min(self.parameters.max_bufsize_bytes);
            self.watch = self.parameters.m_normal;
            return Decision::Grow;
        }
        if mean < self.parameters.u_low && self.size_bytes > self.parameters.min_bufsize_bytes {
            let divisor = if mean <= 0.125 {
                8
            } else if mean <= 0.25 {
                4
            } else {
                2
            };
            self.size_bytes = (self.size_bytes / divisor).max(self.parameters.min_bufsize_bytes);
            self.history_len = 0;
            return Decision::Shrink;
        }
        Decision::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::{AdaptiveParameters, Decision, Plan, SyncAdaptive};
    use crate::link::LinkEstimate;
    use crate::range::ByteRange;

    const LINK: LinkEstimate = LinkEstimate::of(117_700_000, 200);

    /// Reads `used` bytes of each of `count` requests, then jumps; gives the decisions.
    fn requests(
        policy: &mut SyncAdaptive,
        count: usize,
        used: impl Fn(u64) -> u64,
    ) -> Vec<Decision> {
        let mut at = policy.buffer.end();
        let mut decisions = Vec::new();
        for _ in 0..count {
            let Plan::Fetch(range) = policy.plan(0, at, 1, 1 << 60, LINK) else { panic!("a hit") };
            policy.fetched(range, LINK);
            policy.touched(range.offset, used(range.bytes));
            decisions.push(policy.last_decision().unwrap().decision);
            at = range.end();
        }
        decisions
    }

    #[test]
    fn doubles_to_its_bound_while_everything_is_used() {
        let mut policy = SyncAdaptive::new(AdaptiveParameters::default());
        requests(&mut policy, 30, |bytes| bytes);
        assert_eq!(policy.size_bytes(), 512 << 20);
    }

    #[test]
    fn goes_back_and_does_not_grow_for_p_requests() {
        let mut policy = SyncAdaptive::new(AdaptiveParameters::default());
        let decisions = requests(&mut policy, 60, |bytes| bytes.min(4 << 20));
        let mut since_go_back = None;
        for decision in &decisions {
            match decision {
                Decision::GoBack => since_go_back = Some(0),
                Decision::Grow => {
                    assert!(since_go_back.is_none_or(|requests| requests >= 15), "{decisions:?}");
                }
                _ => since_go_back = since_go_back.map(|requests| requests + 1),
            }
        }
        assert!(since_go_back.is_some());
        assert!(policy.size_bytes() == 4 << 20 || policy.size_bytes() == 8 << 20);
    }

    #[test]
    fn shrinks_by_the_power_of_two_that_fits() {
        for (percent, divisor) in [(45, 2), (20, 4), (5, 8)] {
            let start = 64 << 20;
            let parameters = AdaptiveParameters {
                initial_bufsize_bytes: start,
                ..AdaptiveParameters::default()
            };
            let mut policy = SyncAdaptive::new(parameters);
            requests(&mut policy, 2, |bytes| bytes * percent / 100);
            assert_eq!(policy.size_bytes(), start / divisor);
        }
    }

    #[test]
    fn never_leaves_its_bounds() {
        let mut policy = SyncAdaptive::new(AdaptiveParameters::default());
        requests(&mut policy, 50, |_| 1);
        assert_eq!(policy.size_bytes(), 64 << 10);
        assert_eq!(policy.blocks.used, 1);
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
        assert_eq!(range.bytes, 512 << 10);
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
