//! What to read ahead of one open file. Owns the plan: which ranges are kept in flight, in which
//! pieces, and which are given up; must never hold contents or wait. The contents, and the
//! connections, are the client's.
//!
//! # The client's side
//!
//! Per open file the client has a [`ReadAhead`] and a cache of ranges (contents in flight or
//! come), under one lock. Per read of the application:
//!
//! 1. [`ReadAhead::on_read`] with the time, the range and the estimate of the link (of several
//!    engines: [`LinkEstimate::with`]). It fills [`Actions`].
//! 2. Drop `actions.drop` from the cache. A thread that still copies out of such a range keeps
//!    its own reference to it; a range still in flight is thrown away when it comes.
//! 3. Send `actions.demand`, then `actions.ahead`, in this order, without waiting in between. Each
//!    range of `ahead` goes into the cache as one entry in flight. With `actions.keep_demand` so
//!    does each range of `demand`; without it, the bytes go straight to the application.
//! 4. Wait until every byte of the read is there: a part of an entry that has come is usable at
//!    once, the rest of the entry may still be on the way. Copy.
//!
//! Whoever takes bytes of a range of the cache off a connection calls [`ReadAhead::on_arrival`]
//! with just these bytes, and [`ReadAhead::on_failure`] with the whole range when its request
//! fails: such a range is not asked for again before it is read. Demand that is not kept is
//! reported to nobody but the [`crate::LinkEstimator`].
//!
//! All of this can be done by the calling thread alone. With pipelined connections it reads
//! replies until its own bytes are there; what else is on the connection waits in the socket
//! buffers. A helper thread that empties the sockets meanwhile lets more than a socket buffer be
//! ahead of a reader that computes; it decides nothing.
//!
//! The end of the file as it is known goes to [`ReadAhead::on_eof`], at the opening and whenever
//! it is found to be another. After [`ReadAhead::on_invalidate`] (another client has written) and
//! [`ReadAhead::on_overwrite`] (this one has) nothing that was read ahead before is given out.

use std::sync::Arc;

use crate::budget::Budget;
use crate::link::{LinkEstimate, Probe};
use crate::misses::Misses;
use crate::pattern::{Drift, Knowledge, Pattern, Step};
use crate::pieces::{Piece, Pieces, Purpose};
use crate::range::ByteRange;

/// The parameters of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictiveParameters {
    /// Below this round trip, in microseconds, nothing is read ahead: a second copy of the data
    /// would cost more than waiting.
    pub round_trip_min_us: u64,
    /// Smallest piece asked for ahead, in bytes, where the pattern does not end it before.
    pub piece_min_bytes: u64,
    /// Largest piece asked for ahead, in bytes.
    pub piece_max_bytes: u64,
    /// Most that one file keeps in flight or unread, in bytes.
    pub window_max_bytes: u64,
    /// The same while the link is not known, in bytes.
    pub window_unknown_bytes: u64,
    /// What is kept in flight, as a share of the bandwidth-delay product.
    pub headroom: f64,
    /// The same while the rate of the link still rises.
    pub headroom_rising: f64,
    /// So many times as much where the file lies on several engines: it is read in order, and while
    /// what comes slowest is waited for, the links of the other engines must have work.
    pub several_links: u64,
    /// Bytes ahead per byte of a run read so far, in a file without jumps yet.
    pub ramp: u64,
    /// The same in a file with jumps.
    pub ramp_after_jumps: u64,
    /// The same as far as it costs next to nothing: up to an eighth of the bandwidth-delay
    /// product.
    pub ramp_cheap: u64,
    /// What a request costs beside its bytes, in microseconds: gaps that take less are read.
    pub request_cost_us: u64,
    /// Share of the bandwidth-delay product below which unpredictable gaps are read through.
    pub through_share: f64,
    /// Bytes kept after they were read, where reads come back to them.
    pub retained_bytes: u64,
    /// Bytes kept after they were read, elsewhere.
    pub behind_bytes: u64,
}

impl Default for PredictiveParameters {
    fn default() -> Self {
        Self {
            round_trip_min_us: 150,
            piece_min_bytes: 256 << 10,
            piece_max_bytes: 4 << 20,
            window_max_bytes: 128 << 20,
            window_unknown_bytes: 8 << 20,
            headroom: 1.25,
            headroom_rising: 1.6,
            several_links: 4,
            ramp: 8,
            ramp_after_jumps: 2,
            ramp_cheap: 16,
            request_cost_us: 160,
            through_share: 0.8,
            retained_bytes: 32 << 20,
            behind_bytes: 1 << 20,
        }
    }
}

/// What the client is to do for a read. Kept by the caller from read to read, so that nothing is
/// allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Parts of the read that are neither in the cache nor in flight: to be sent first.
    pub demand: Vec<ByteRange>,
    /// Whether `demand` goes into the cache too.
    pub keep_demand: bool,
    /// What to ask for ahead, in this order.
    pub ahead: Vec<ByteRange>,
    /// What to give up.
    pub drop: Vec<ByteRange>,
}

impl Actions {
    fn clear(&mut self) {
        self.demand.clear();
        self.keep_demand = false;
        self.ahead.clear();
        self.drop.clear();
    }
}

/// What came of reading ahead, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadCounts {
    /// Read by the application and asked for only then.
    pub demand_bytes: u64,
    /// Asked for in the expectation of a read.
    pub ahead_bytes: u64,
    /// Asked for because reading through was cheaper.
    pub through_bytes: u64,
    /// Read by the application out of what was there or in flight.
    pub hit_bytes: u64,
    /// Asked for in the expectation of a read, and dropped unread.
    pub wasted_bytes: u64,
}

/// The last plan, for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRecord {
    /// When, in microseconds of the caller's clock.
    pub now_us: u64,
    /// The read that led to it.
    pub read: ByteRange,
    /// What was known of the future.
    pub knowledge: Knowledge,
    /// Whether gaps that can't be predicted are read through.
    pub through: bool,
    /// Most that was to be in flight or unread, in bytes.
    pub window_bytes: u64,
    /// What was asked for by it, in bytes.
    pub asked_bytes: u64,
    /// The link as it was known.
    pub link: LinkEstimate,
}

/// The plan for one open file.
#[derive(Debug)]
pub struct ReadAhead {
    parameters: PredictiveParameters,
    budget: Arc<Budget>,
    pattern: Pattern,
    misses: Misses,
    pieces: Pieces,
    file_bytes: u64,
    /// As far as the file is expected to be read from its start on, though nothing of it was read yet.
    expected_bytes: u64,
    /// Number of the current plan.
    plan: u64,
    /// Bytes read since the last plan.
    unplanned_bytes: u64,
    /// Bytes read after which to plan anew.
    replan_bytes: u64,
    /// Speculation and waste of late; both are halved from time to time.
    recent_ahead_bytes: u64,
    recent_wasted_bytes: u64,
    counts: ReadAheadCounts,
    last: Option<PlanRecord>,
    /// Whether the last plan read gaps through that can't be predicted.
    through: bool,
    /// Kept from plan to plan, so that nothing is allocated.
    scratch: Vec<ByteRange>,
    ages: Vec<(u64, u64)>,
}

impl ReadAhead {
    /// A plan that takes its memory from `budget`.
    pub fn new(parameters: PredictiveParameters, budget: Arc<Budget>) -> Self {
        Self {
            parameters,
            budget,
            pattern: Pattern::new(),
            misses: Misses::default(),
            pieces: Pieces::default(),
            file_bytes: u64::MAX,
            expected_bytes: 0,
            plan: 0,
            unplanned_bytes: 0,
            replan_bytes: 0,
            recent_ahead_bytes: 0,
            recent_wasted_bytes: 0,
            counts: ReadAheadCounts::default(),
            last: None,
            through: false,
            scratch: Vec::new(),
            ages: Vec::new(),
        }
    }

    /// What came of it so far.
    pub const fn counts(&self) -> ReadAheadCounts {
        self.counts
    }

    /// The last plan, for a trace.
    pub const fn last_plan(&self) -> Option<&PlanRecord> {
        self.last.as_ref()
    }

    /// Bytes in flight or in the cache.
    pub const fn held_bytes(&self) -> u64 {
        self.pieces.total_bytes()
    }

    /// Whether every byte of `range` is in the cache or in flight.
    pub fn has_all_of(&self, range: ByteRange) -> bool {
        let mut has_all = true;
        self.pieces.uncovered(range, |_| has_all = false);
        has_all
    }

    /// The application reads `bytes` bytes at `offset`; see the module for what follows.
    pub fn on_read(
        &mut self,
        now_us: u64,
        offset: u64,
        bytes: u64,
        link: LinkEstimate,
        actions: &mut Actions,
    ) {
        actions.clear();
        let read = ByteRange::new(offset, bytes);
        if read.is_empty() {
            return;
        }
        let step = self.pattern.observe(offset, bytes, link.bandwidth_delay_product_bytes());
        self.take_from_pieces(read, actions);
        if matches!(step, Step::Jumped { .. }) && !actions.demand.is_empty() {
            self.misses.note(now_us);
        }
        self.unplanned_bytes = self.unplanned_bytes.saturating_add(bytes);
        let due = match step {
            Step::Jumped { .. } | Step::Resumed => true,
            Step::Onward | Step::Again => {
                self.unplanned_bytes >= self.replan_bytes || !actions.demand.is_empty()
            }
        };
        let local = link.is_nearer_than(self.parameters.round_trip_min_us);
        // While the round trip is looked for, the link may be left to run empty.
        if due && !local && link.probe != Probe::Empty {
            self.make_plan(now_us, read, (self.window_bytes(link), link), actions);
        }
    }

    /// The file, of which nothing was read yet, is expected to be read from its start on, so far at least: others
    /// before it were. Fills `ahead` with what is worth being asked for now; what has come by then is not waited for,
    /// and leaves the link to what lies behind.
    pub fn on_expected(
        &mut self,
        now_us: u64,
        bytes: u64,
        link: LinkEstimate,
        actions: &mut Actions,
    ) {
        actions.clear();
        self.expected_bytes = bytes;
        let come_bytes: u64 = self.pieces.iter().map(|piece| piece.arrived_bytes).sum();
        let window_bytes = self.window_bytes(link) + come_bytes;
        self.make_plan(now_us, ByteRange::new(0, 0), (window_bytes, link), actions);
    }

    /// `range` of what was asked for ahead, or kept of the demand, has come.
    pub fn on_arrival(&mut self, range: ByteRange) {
        self.pieces.visit(range, |piece| {
            let part = piece.range.intersection(range).bytes;
            piece.arrived_bytes = (piece.arrived_bytes + part).min(piece.range.bytes);
        });
    }

    /// The request for `range` has failed: it is not there any more.
    pub fn on_failure(&mut self, range: ByteRange) {
        let mut freed_bytes = 0;
        self.pieces.remove_if(
            |piece| piece.range.overlaps(range) && !piece.has_arrived(),
            |piece| freed_bytes += piece.range.bytes,
        );
        self.budget.give_back(freed_bytes);
    }

    /// The file ends at `file_bytes`. What lies behind is given up, by `drop` of the actions.
    pub fn on_eof(&mut self, file_bytes: u64, actions: &mut Actions) {
        self.file_bytes = file_bytes;
        actions.clear();
        self.give_up(actions, |piece| piece.range.end() > file_bytes);
    }

    /// The file may have changed: all that was read ahead is given up. The pattern stays.
    pub fn on_invalidate(&mut self, actions: &mut Actions) {
        actions.clear();
        self.give_up(actions, |_| true);
    }

    /// This client has written `range`: what was read ahead of it is given up.
    pub fn on_overwrite(&mut self, range: ByteRange, actions: &mut Actions) {
        actions.clear();
        self.give_up(actions, |piece| piece.range.overlaps(range));
    }

    fn give_up(&mut self, actions: &mut Actions, leaves: impl FnMut(&Piece) -> bool) {
        let mut freed_bytes = 0;
        self.pieces.remove_if(leaves, |piece| {
            freed_bytes += piece.range.bytes;
            actions.drop.push(piece.range);
        });
        self.budget.give_back(freed_bytes);
        self.replan_bytes = 0;
    }

    /// Marks what of the read is there, and asks for the rest.
    fn take_from_pieces(&mut self, read: ByteRange, actions: &mut Actions) {
        let plan = self.plan;
        let mut hit_bytes = 0;
        self.pieces.visit(read, |piece| {
            let part = piece.range.intersection(read).bytes;
            piece.read_bytes = (piece.read_bytes + part).min(piece.range.bytes);
            piece.wanted = plan + 1;
            hit_bytes += part;
        });
        self.pieces.uncovered(read, |gap| actions.demand.push(gap));
        self.counts.hit_bytes += hit_bytes;
        self.counts.demand_bytes += read.bytes - hit_bytes;
    }

    /// Whether runs whose jumps can't be predicted are best read with all that lies between.
    /// What lies between costs the time in which it comes; without it, each jump costs as much as the last ones did.
    fn reads_through(
        &self,
        now_us: u64,
        drift: Option<Drift>,
        link: LinkEstimate,
    ) -> Option<Drift> {
        let product = link.hoped_product_bytes();
        let every_us = self.misses.every_us(now_us, link.round_trip_us);
        let of_round_trip = every_us as f64 / link.round_trip_us.max(1) as f64;
        let bound = (product as f64 * self.parameters.through_share * of_round_trip) as u64;
        drift.filter(|drift| {
            drift.advance_bytes.saturating_sub(drift.run_bytes) < bound
                && drift.forward_bytes.max(drift.backward_bytes) <= product.saturating_mul(4)
        })
    }

    /// What keeps the link full, in bytes.
    fn full_window_bytes(&self, link: LinkEstimate) -> u64 {
        let parameters = &self.parameters;
        // A link that was never kept full gets enough to do to show what it can. What young connections
        // bring comes out of order, and waits for what lies before it.
        let headroom_hoped =
            if link.untried { parameters.headroom_rising } else { parameters.headroom };
        let hoped = (link.hoped_product_bytes() as f64 * headroom_hoped) as u64;
        let full = if link.is_known() {
            let headroom =
                if link.rising { parameters.headroom_rising } else { parameters.headroom };
            let product = link.bandwidth_delay_product_bytes() as f64;
            hoped.max((product * headroom) as u64) + 2 * parameters.piece_min_bytes
        } else {
            hoped.max(parameters.window_unknown_bytes)
        };
        let several = if link.links > 1 { parameters.several_links } else { 1 };
        full.saturating_mul(several).min(parameters.window_max_bytes)
    }

    /// Most to be in flight or unread now, in bytes.
    fn window_bytes(&self, link: LinkEstimate) -> u64 {
        // Speculation that is not read shrinks what follows.
        let share = match self.recent_ahead_bytes.checked_div(self.recent_wasted_bytes) {
            Some(0..=1) => 4,
            Some(2..=3) => 2,
            Some(_) | None => 1,
        };
        self.full_window_bytes(link) / share / self.pattern.active_streams()
    }

    fn make_plan(
        &mut self,
        now_us: u64,
        read: ByteRange,
        (window_bytes, link): (u64, LinkEstimate),
        actions: &mut Actions,
    ) {
        self.plan += 1;
        self.unplanned_bytes = 0;
        let (mut draft, knowledge, walk) = self.draft(now_us, window_bytes, link);
        let comes_back = walk.is_some_and(|drift| {
            drift.backward_bytes.max(drift.forward_bytes) <= self.parameters.retained_bytes
        });
        let retained_bytes = if comes_back {
            self.keep_demand(actions);
            self.parameters.retained_bytes
        } else {
            self.parameters.behind_bytes
        };
        self.replan_bytes = (draft.piece_bytes / 2).min(draft.planned_bytes / 8);
        for range in &draft.ranges {
            self.pieces.visit(*range, |piece| piece.wanted = self.plan);
        }
        self.evict(read, retained_bytes, actions);
        if link.probe == Probe::Thin {
            // What is there, or was asked for, stays wanted.
            draft.cut_to(link.thin_bytes() / self.pattern.active_streams());
        }
        let asked_bytes = self.ask(&draft, actions);
        self.last = Some(PlanRecord {
            now_us,
            read,
            knowledge,
            through: draft.purpose == Purpose::Through,
            window_bytes,
            asked_bytes,
            link,
        });
        self.scratch = draft.ranges;
    }

    /// Puts together what is to be in flight or unread.
    fn draft(
        &mut self,
        now_us: u64,
        window_bytes: u64,
        link: LinkEstimate,
    ) -> (Draft, Knowledge, Option<Drift>) {
        let (piece_min, piece_max) =
            (self.parameters.piece_min_bytes.max(1), self.parameters.piece_max_bytes.max(1));
        let rounded = 1 << (window_bytes / 8).max(1).ilog2();
        let mut draft = Draft {
            ranges: std::mem::take(&mut self.scratch),
            purpose: Purpose::Ahead,
            planned_bytes: 0,
            window_bytes,
            piece_bytes: rounded.clamp(piece_min, piece_max),
            merge_bytes: link.bytes_in(self.parameters.request_cost_us),
            file_bytes: self.file_bytes,
        };
        draft.ranges.clear();
        let product = link.bandwidth_delay_product_bytes();
        let knowledge = if self.pattern.has_begun() {
            self.pattern.foresee(product, |range| draft.add(range))
        } else {
            Knowledge::Run { so_far_bytes: 0, jumps_seen: false }
        };
        let head = self.pattern.head();
        let walk = match knowledge {
            Knowledge::Run { so_far_bytes, jumps_seen } => {
                let parameters = &self.parameters;
                let ramp = if jumps_seen { parameters.ramp_after_jumps } else { parameters.ramp };
                // What the link moves in a moment costs nearly nothing.
                let cheap = (link.hoped_product_bytes() / 8)
                    .min(so_far_bytes.saturating_mul(parameters.ramp_cheap));
                let mut ahead = so_far_bytes.saturating_mul(ramp).max(cheap);
                if !jumps_seen {
                    ahead = ahead.max(self.expected_bytes.saturating_sub(head));
                }
                draft.add_open(ByteRange::new(head, ahead));
                // One run that is longer than those before is no reason to give up what lies around it.
                let goes_on = self.through && so_far_bytes < self.parameters.retained_bytes;
                if goes_on { self.pattern.drift() } else { None }
            }
            Knowledge::Runs => None,
            Knowledge::Nothing | Knowledge::RunToEnd => self.pattern.drift(),
        };
        let through = self.reads_through(now_us, walk, link);
        self.through = through.is_some();
        if let Some(drift) = through {
            // No speculation: all of it is read or passed by.
            let ahead = drift.forward_bytes.saturating_add(self.full_window_bytes(link));
            let end = drift.high.saturating_add(ahead);
            draft.ranges.clear();
            draft.planned_bytes = 0;
            draft.window_bytes = u64::MAX;
            draft.purpose = Purpose::Through;
            draft.add_open(ByteRange::between(head, end));
        }
        (draft, knowledge, walk)
    }

    /// Keeps what was just asked for, since it may be read again.
    fn keep_demand(&mut self, actions: &mut Actions) {
        let bytes: u64 = actions.demand.iter().map(|range| range.bytes).sum();
        if bytes == 0
            || !self.pieces.has_room()
            || actions.demand.len() > 1
            || bytes > self.parameters.piece_max_bytes
            || !self.budget.take(bytes)
        {
            return;
        }
        actions.keep_demand = true;
        for range in &actions.demand {
            self.pieces.insert(Piece {
                range: *range,
                arrived_bytes: 0,
                read_bytes: range.bytes,
                wanted: self.plan,
                purpose: Purpose::Demand,
            });
        }
    }

    /// Gives up what was read and lies behind, and what no plan wants any more.
    fn evict(&mut self, read: ByteRange, retained_bytes: u64, actions: &mut Actions) {
        let plan = self.plan;
        let patience = 8 + 4 * self.pattern.active_streams();
        let idle = |piece: &Piece| {
            piece.wanted < plan && piece.has_arrived() && !piece.range.overlaps(read)
        };
        let behind =
            |piece: &Piece| idle(piece) && (piece.is_read() || piece.purpose != Purpose::Ahead);
        let mut excess_bytes = self
            .pieces
            .iter()
            .filter(|piece| behind(piece))
            .map(|piece| piece.range.bytes)
            .sum::<u64>()
            .saturating_sub(retained_bytes);
        let mut oldest = u64::MAX;
        if excess_bytes > 0 {
            // The oldest go first: all up to the plan before which just enough is freed.
            self.ages.clear();
            let candidates = self.pieces.iter().filter(|piece| behind(piece));
            self.ages.extend(candidates.map(|piece| (piece.wanted, piece.range.bytes)));
            self.ages.sort_unstable();
            for &(wanted, bytes) in &self.ages {
                oldest = wanted;
                excess_bytes = excess_bytes.saturating_sub(bytes);
                if excess_bytes == 0 {
                    break;
                }
            }
        } else {
            oldest = 0;
        }
        let (mut freed_bytes, mut wasted_bytes) = (0, 0);
        self.pieces.remove_if(
            |piece| {
                if behind(piece) {
                    piece.wanted <= oldest && oldest > 0
                } else {
                    idle(piece) && piece.wanted + patience < plan
                }
            },
            |piece| {
                freed_bytes += piece.range.bytes;
                if piece.purpose == Purpose::Ahead {
                    wasted_bytes += piece.range.bytes - piece.read_bytes;
                }
                actions.drop.push(piece.range);
            },
        );
        self.budget.give_back(freed_bytes);
        self.counts.wasted_bytes += wasted_bytes;
        self.recent_wasted_bytes += wasted_bytes;
    }

    /// Asks for what the draft wants and nobody has asked for, as far as memory goes.
    fn ask(&mut self, draft: &Draft, actions: &mut Actions) -> u64 {
        let allowance_bytes = self.budget.allowance_bytes(self.pieces.total_bytes());
        let mut asked_bytes = 0;
        'ranges: for range in &draft.ranges {
            let first = actions.ahead.len();
            let (demand, ahead) = (&actions.demand, &mut actions.ahead);
            self.pieces.uncovered(*range, |gap| {
                // The demand is in flight too, kept or not.
                let mut at = gap.offset;
                for asked in demand.iter().filter(|asked| asked.overlaps(gap)) {
                    let before = ByteRange::between(at, asked.offset);
                    split(before, draft.piece_bytes, |piece| ahead.push(piece));
                    at = at.max(asked.end());
                }
                let rest = ByteRange::between(at, gap.end());
                split(rest, draft.piece_bytes, |piece| ahead.push(piece));
            });
            for index in first..actions.ahead.len() {
                let range = actions.ahead[index];
                if !self.pieces.has_room()
                    || self.pieces.total_bytes() + range.bytes > allowance_bytes
                    || !self.budget.take(range.bytes)
                {
                    actions.ahead.truncate(index);
                    break 'ranges;
                }
                self.pieces.insert(Piece {
                    range,
                    arrived_bytes: 0,
                    read_bytes: 0,
                    wanted: self.plan,
                    purpose: draft.purpose,
                });
                asked_bytes += range.bytes;
            }
        }
        match draft.purpose {
            Purpose::Ahead => {
                self.counts.ahead_bytes += asked_bytes;
                self.recent_ahead_bytes += asked_bytes;
                if self.recent_ahead_bytes > 256 << 20 {
                    self.recent_ahead_bytes /= 2;
                    self.recent_wasted_bytes /= 2;
                }
            }
            Purpose::Through | Purpose::Demand => self.counts.through_bytes += asked_bytes,
        }
        asked_bytes
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.budget.give_back(self.pieces.total_bytes());
    }
}

/// Cuts `range` at multiples of `piece_bytes`.
fn split(range: ByteRange, piece_bytes: u64, mut piece: impl FnMut(ByteRange)) {
    let mut at = range.offset;
    while at < range.end() {
        let cut = (at / piece_bytes + 1).saturating_mul(piece_bytes).min(range.end());
        piece(ByteRange::between(at, cut));
        at = cut;
    }
}

/// The ranges that a plan wants, in order, as they are put together.
#[derive(Debug)]
struct Draft {
    ranges: Vec<ByteRange>,
    purpose: Purpose,
    /// Bytes wanted so far.
    planned_bytes: u64,
    window_bytes: u64,
    piece_bytes: u64,
    merge_bytes: u64,
    file_bytes: u64,
}

/// Ranges in one draft at most.
const DRAFT_RANGES_MAX: usize = 512;

impl Draft {
    /// Leaves the first `bytes` bytes.
    fn cut_to(&mut self, mut bytes: u64) {
        self.ranges.retain_mut(|range| {
            range.bytes = range.bytes.min(bytes);
            bytes -= range.bytes;
            !range.is_empty()
        });
    }

    /// Adds a range with a known end; tells whether more may follow.
    fn add(&mut self, range: ByteRange) -> bool {
        let range = ByteRange::between(range.offset, range.end().min(self.file_bytes));
        let room = self.window_bytes.saturating_sub(self.planned_bytes);
        let fits = range.bytes <= room;
        let taken = if fits { range } else { self.cut(range, room) };
        if !taken.is_empty() {
            self.planned_bytes += taken.bytes;
            match self.ranges.last_mut() {
                Some(last)
                    if taken.offset >= last.end()
                        && taken.offset - last.end() <= self.merge_bytes =>
                {
                    if taken.offset > last.end() {
                        self.purpose = Purpose::Through;
                    }
                    *last = ByteRange::between(last.offset, taken.end());
                }
                _ => self.ranges.push(taken),
            }
        }
        fits && !taken.is_empty()
            && self.planned_bytes < self.window_bytes
            && self.ranges.len() < DRAFT_RANGES_MAX
    }

    /// Adds a range whose end is not that of what will be read.
    fn add_open(&mut self, range: ByteRange) {
        let range = ByteRange::between(range.offset, range.end().min(self.file_bytes));
        let room = self.window_bytes.saturating_sub(self.planned_bytes).min(range.bytes);
        let taken = if range.end() == self.file_bytes && room == range.bytes {
            range
        } else {
            self.cut(range, room)
        };
        if !taken.is_empty() {
            self.planned_bytes += taken.bytes;
            self.ranges.push(taken);
        }
    }

    /// The first `room` bytes of `range`, fewer so that they end with a whole piece.
    fn cut(&self, range: ByteRange, room: u64) -> ByteRange {
        let end = range.offset.saturating_add(room);
        let whole = end / self.piece_bytes * self.piece_bytes;
        ByteRange::between(range.offset, if whole > range.offset { whole } else { end })
    }
}
