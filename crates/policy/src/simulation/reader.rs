//! An application that reads through a read policy over a simulated link, as fast as data comes.
//! Owns the clock of the simulation and the client's side of the policies; must never decide what
//! to ask for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::adaptive::{DecisionRecord, Plan, SyncAdaptive};
use crate::budget::Budget;
use crate::choice::ReadPolicy;
use crate::link::{LinkEstimator, SentRequest};
use crate::predict::{Actions, ReadAhead, ReadAheadCounts};
use crate::range::ByteRange;
use crate::simulation::link::{SimulatedLink, Transfer};

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Bytes that the application read.
    pub useful_bytes: u64,
    /// Bytes that were sent over the link.
    pub sent_bytes: u64,
    /// Time that passed, in microseconds.
    pub elapsed_us: u64,
    /// Requests sent.
    pub requests: u64,
    /// Most bytes held ahead at a time.
    pub held_max_bytes: u64,
    /// Requests of an adaptive or fixed size, by that size in bytes.
    pub sizes: BTreeMap<u64, u64>,
    /// Decisions on the adaptive size, one per request.
    pub decisions: Vec<DecisionRecord>,
    /// What a predictive policy counted.
    pub counts: ReadAheadCounts,
}

impl Outcome {
    /// Bytes read by the application per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.useful_bytes as f64 * 1e6 / self.elapsed_us.max(1) as f64
    }

    /// The adaptive size by which most bytes were asked for.
    pub fn chosen_size_bytes(&self) -> Option<u64> {
        self.sizes.iter().max_by_key(|(size, count)| **size * **count).map(|(size, _)| *size)
    }
}

/// A reader on a link.
#[derive(Debug)]
pub struct Reader {
    /// The link, as far as it has been used.
    pub link: SimulatedLink,
    /// What was learned of it.
    pub estimator: LinkEstimator,
    /// Memory that a predictive policy may take, in bytes.
    pub budget_bytes: u64,
    /// Threads that read, each its next read as soon as it has its last.
    pub threads: usize,
}

struct InFlight {
    range: ByteRange,
    transfer: Transfer,
    arrived_bytes: u64,
    request: SentRequest,
    ahead: bool,
}

impl Reader {
    /// A reader with one thread and 256 MiB for read-ahead.
    pub fn new(link: SimulatedLink) -> Self {
        Self { link, estimator: LinkEstimator::new(), budget_bytes: 256 << 20, threads: 1 }
    }

    /// Reads all of `reads` from a file of `file_bytes` by `policy`.
    ///
    /// # Panics
    ///
    /// When the policy breaks its contract: a byte that is read is nowhere, or a range is dropped
    /// that is not there.
    pub fn run(
        &mut self,
        policy: &ReadPolicy,
        file_bytes: u64,
        reads: impl Iterator<Item = ByteRange>,
    ) -> Outcome {
        match policy.unstriped() {
            ReadPolicy::SyncAdaptive(parameters) => {
                self.one_at_a_time(SyncAdaptive::new(parameters.clone()), file_bytes, reads)
            }
            ReadPolicy::Fixed(bytes) => {
                self.one_at_a_time(SyncAdaptive::fixed(*bytes), file_bytes, reads)
            }
            ReadPolicy::Predictive(parameters) => {
                let budget = Arc::new(Budget::new(self.budget_bytes));
                self.ahead(Some(ReadAhead::new(parameters.clone(), budget)), file_bytes, reads)
            }
            ReadPolicy::Off | ReadPolicy::Striped(_) => self.ahead(None, file_bytes, reads),
        }
    }

    fn one_at_a_time(
        &mut self,
        mut policy: SyncAdaptive,
        file_bytes: u64,
        reads: impl Iterator<Item = ByteRange>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let sent_before = self.link.sent_bytes();
        let mut now_us = 0.0;
        for read in reads {
            let mut at = read.offset;
            while at < read.end() {
                let link = self.estimator.estimate();
                match policy.plan(now_us as u64, at, read.end() - at, file_bytes, link) {
                    Plan::Nothing => break,
                    Plan::Hit { bytes } => {
                        policy.touched(at, bytes);
                        outcome.useful_bytes += bytes;
                        at += bytes;
                    }
                    Plan::Fetch(range) => {
                        *outcome.sizes.entry(policy.size_bytes()).or_default() += 1;
                        outcome.decisions.extend(policy.last_decision().copied());
                        outcome.requests += 1;
                        let mut request = self.estimator.sent(now_us as u64, range.bytes);
                        let transfer = self.link.send(now_us, range.bytes);
                        let (first_us, last_us) =
                            (transfer.first_us as u64, transfer.last_us as u64);
                        self.estimator.received(&mut request, first_us, 0, true);
                        self.estimator.received(&mut request, last_us, range.bytes, true);
                        self.estimator.finished(request, last_us);
                        now_us = transfer.last_us;
                        policy.fetched(range, self.estimator.estimate());
                        outcome.held_max_bytes = outcome.held_max_bytes.max(range.bytes);
                    }
                }
            }
        }
        outcome.elapsed_us = now_us as u64;
        outcome.sent_bytes = self.link.sent_bytes() - sent_before;
        outcome
    }

    fn ahead(
        &mut self,
        mut policy: Option<ReadAhead>,
        file_bytes: u64,
        reads: impl Iterator<Item = ByteRange>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let sent_before = self.link.sent_bytes();
        let mut actions = Actions::default();
        let mut cache: BTreeMap<u64, (ByteRange, Transfer)> = BTreeMap::new();
        let mut in_flight: VecDeque<InFlight> = VecDeque::new();
        let mut clocks = vec![0.0f64; self.threads.max(1)];
        if let Some(policy) = &mut policy {
            policy.on_eof(file_bytes, &mut actions);
        }
        for read in reads {
            let read = ByteRange::between(read.offset, read.end().min(file_bytes));
            let thread = (0..clocks.len()).min_by(|a, b| clocks[*a].total_cmp(&clocks[*b]));
            let clock = &mut clocks[thread.unwrap_or(0)];
            let now_us = *clock;
            self.take_arrivals(now_us, &mut in_flight, policy.as_mut());
            match &mut policy {
                Some(policy) => policy.on_read(
                    now_us as u64,
                    read.offset,
                    read.bytes,
                    self.estimator.estimate(),
                    &mut actions,
                ),
                None => actions.demand = vec![read],
            }
            for dropped in &actions.drop {
                assert_eq!(cache.remove(&dropped.offset).map(|entry| entry.0), Some(*dropped));
            }
            let mut there_us = now_us;
            let asked = actions.demand.iter().map(|range| (*range, false));
            for (range, ahead) in asked.chain(actions.ahead.iter().map(|range| (*range, true))) {
                let request = self.estimator.sent(now_us as u64, range.bytes);
                let transfer = self.link.send(now_us, range.bytes);
                let kept = ahead || actions.keep_demand;
                if !ahead {
                    there_us = there_us.max(transfer.last_us);
                }
                if kept {
                    cache.insert(range.offset, (range, transfer));
                }
                in_flight.push_back(InFlight {
                    range,
                    transfer,
                    arrived_bytes: 0,
                    request,
                    ahead: kept,
                });
                outcome.requests += 1;
            }
            let (there_in_cache_us, cached_bytes) = when_there(&cache, read);
            let straight_bytes = if actions.keep_demand { 0 } else { sum(&actions.demand) };
            assert_eq!(cached_bytes + straight_bytes, read.bytes, "a read without its bytes");
            *clock = there_us.max(there_in_cache_us);
            outcome.useful_bytes += read.bytes;
            if let Some(policy) = &policy {
                outcome.held_max_bytes = outcome.held_max_bytes.max(policy.held_bytes());
            }
        }
        outcome.elapsed_us = clocks.iter().copied().fold(0.0, f64::max) as u64;
        outcome.sent_bytes = self.link.sent_bytes() - sent_before;
        outcome.counts = policy.map(|policy| policy.counts()).unwrap_or_default();
        outcome
    }

    /// Tells the estimator and the policy what has come until `now_us`.
    fn take_arrivals(
        &mut self,
        now_us: f64,
        in_flight: &mut VecDeque<InFlight>,
        mut policy: Option<&mut ReadAhead>,
    ) {
        while let Some(entry) = in_flight.front_mut() {
            if entry.transfer.first_us > now_us {
                break;
            }
            if entry.arrived_bytes == 0 {
                let first_us = entry.transfer.first_us as u64;
                self.estimator.received(&mut entry.request, first_us, 0, true);
            }
            let come = entry.transfer.bytes_at(now_us) - entry.arrived_bytes;
            if come > 0 {
                let at_us = entry.transfer.last_us.min(now_us) as u64;
                self.estimator.received(&mut entry.request, at_us, come, true);
                if let Some(policy) = policy.as_deref_mut().filter(|_| entry.ahead) {
                    let offset = entry.range.offset + entry.arrived_bytes;
                    policy.on_arrival(ByteRange::new(offset, come));
                }
                entry.arrived_bytes += come;
            }
            if entry.arrived_bytes < entry.range.bytes {
                break;
            }
            if let Some(entry) = in_flight.pop_front() {
                self.estimator.finished(entry.request, entry.transfer.last_us as u64);
            }
        }
    }
}

fn sum(ranges: &[ByteRange]) -> u64 {
    ranges.iter().map(|range| range.bytes).sum()
}

/// When all of `read` that is in the cache is there, and how many bytes of it are in the cache.
fn when_there(cache: &BTreeMap<u64, (ByteRange, Transfer)>, read: ByteRange) -> (f64, u64) {
    let (mut there_us, mut bytes) = (0.0f64, 0);
    let before = cache.range(..=read.offset).next_back();
    let after = cache.range(read.offset + 1..read.end().max(read.offset + 1));
    for (_, (range, transfer)) in before.into_iter().chain(after) {
        let part = range.intersection(read);
        if !part.is_empty() {
            there_us = there_us.max(transfer.time_of(part.end() - range.offset));
            bytes += part.bytes;
        }
    }
    (there_us, bytes)
}
