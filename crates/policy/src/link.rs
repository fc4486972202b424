//! What is known of the link to one engine: its smallest round trip and its rate of delivery,
//! measured from the requests themselves. Owns the filters; must never send anything to measure,
//! and keeps a bounded state whatever comes.
//!
//! The *rate* is the largest of the last rounds (a round: from sending a request to its last
//! byte). Two kinds of samples feed it: what was delivered between the sending of a request and
//! its end, and a *train*: bytes that came in a row while the reader was waiting for them, over the
//! time that took. The first is low when there was too little to do, and so counts only when it is
//! above what is known or when the link was kept full; so does a train, unless all of it was asked
//! for at once, before any of it came: then it tells the rate from one request.
//!
//! The *round trip* is the smallest time to a first byte of the last seconds. A request behind
//! others waits for these, so only a request on an empty link tells it. Where the link is never
//! empty, the estimator asks by [`LinkEstimate::probe`] from time to time for a little less on its way than fills the
//! link: nothing stands in a queue then, and a request that is as fast as ever shows that the round trip is what it was.
//! If none is, and at once when replies come much later than the queue explains, nothing is to be read ahead until the
//! link has run empty and a request has told the round trip.

/// Microseconds after which a smallest round trip is forgotten, at most twice this.
const ROUND_TRIP_BUCKET_US: u64 = 5_000_000;
/// Rounds after which a largest rate is forgotten, at most twice this.
const RATE_BUCKET_ROUNDS: u64 = 5;
/// Clean samples, all far above the known round trip, after which the path has changed.
const PATH_CHANGE_SAMPLES: u32 = 8;
/// Microseconds without a request on an empty link after which the round trip is asked for; twice as many after
/// each probe that has found nothing new, since that costs a part of a round trip, and an empty link some of them.
const PROBE_AFTER_US: u64 = 10_000_000;
/// Requests on a link without a queue of which none was as fast as ever, after which it is to run empty.
const THIN_SAMPLES: u32 = 8;
/// Microseconds between two probes for which late replies were the reason; twice as many after each
/// probe that has found nothing new.
const PROBE_APART_US: u64 = 2_000_000;
/// Microseconds after which a probe is given up, at least.
const PROBE_MAX_US: u64 = 1_000_000;
/// Most microseconds between two such probes.
const PROBE_APART_MAX_US: u64 = 64_000_000;
/// A train must be this long to tell the rate.
const TRAIN_BYTES_MIN: u64 = 128 << 10;
/// A train must take this long to tell the rate, in microseconds.
const TRAIN_US_MIN: u64 = 100;
/// A train is judged when it is this long, and the next begins.
const TRAIN_BYTES_MAX: u64 = 64 << 20;
/// Microseconds without a look at the connections after which bytes may have piled up.
const TRAIN_GAP_US: u64 = 2_000;
/// Answers to requests on a full link after which its rate is believed.
const FILLED_ROUNDS: u32 = 16;
/// What a link is hoped to carry that was never kept full, in bytes per second.
const HOPED_BYTES_PER_SECOND: u64 = 100_000_000;
/// Rates in bytes per second beyond which a sample is an error of measurement.
const RATE_MAX: u64 = 1 << 37;

/// What is to be on its way so that the round trip can be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// As much as keeps the link full: nothing is measured.
    #[default]
    No,
    /// Less than that: [`LinkEstimate::thin_bytes`].
    Thin,
    /// Nothing.
    Empty,
}

/// A link as it is known at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkEstimate {
    /// Rate of delivery in bytes per second; 0 while unknown.
    pub bytes_per_second: u64,
    /// Smallest round trip in microseconds; 0 while unknown.
    pub round_trip_us: u64,
    /// Whether the rate was still rising in the last rounds.
    pub rising: bool,
    /// What is to be on its way now.
    pub probe: Probe,
    /// Whether the link was never kept full, so that its rate may be far higher.
    pub untried: bool,
    /// How many engines' links it is together; 0 where nothing is known of any.
    pub links: u32,
    /// To how many of these engines the round trip is known; to the others it may be longer.
    pub met: u32,
}

impl LinkEstimate {
    /// A known link.
    pub const fn of(bytes_per_second: u64, round_trip_us: u64) -> Self {
        Self {
            bytes_per_second,
            round_trip_us,
            rising: false,
            probe: Probe::No,
            untried: false,
            links: 1,
            met: 1,
        }
    }

    /// Whether both rate and round trip are known.
    pub(crate) const fn is_known(self) -> bool {
        self.bytes_per_second > 0 && self.round_trip_us > 0
    }

    /// Whether every engine is known to be nearer than this, in microseconds of round trip.
    pub const fn is_nearer_than(self, round_trip_us: u64) -> bool {
        self.met == self.links && self.round_trip_us > 0 && self.round_trip_us < round_trip_us
    }

    /// Rate times round trip in bytes: what is on the way on a full link.
    pub fn bandwidth_delay_product_bytes(self) -> u64 {
        let product = u128::from(self.bytes_per_second) * u128::from(self.round_trip_us);
        u64::try_from(product / 1_000_000).unwrap_or(u64::MAX)
    }

    /// What is on the way in bytes where nothing stands in a queue, also if the rate is a little less than it is known.
    pub fn thin_bytes(self) -> u64 {
        self.bandwidth_delay_product_bytes() / 4 * 3
    }

    /// The same for a link that was never kept full, if it is as good as may be hoped. One that is
    /// read in small pieces never shows what it can do; trying it costs little, and tells.
    pub fn hoped_product_bytes(self) -> u64 {
        let hoped = if self.untried { HOPED_BYTES_PER_SECOND } else { 0 };
        let rate = self.bytes_per_second.max(hoped);
        Self { bytes_per_second: rate, ..self }.bandwidth_delay_product_bytes()
    }

    /// Bytes that the link moves in `us` microseconds.
    pub(crate) fn bytes_in(self, us: u64) -> u64 {
        let product = u128::from(self.bytes_per_second) * u128::from(us);
        u64::try_from(product / 1_000_000).unwrap_or(u64::MAX)
    }

    /// Both links together, for a file that lies on several engines: rates add up, the longer
    /// round trip counts.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            bytes_per_second: self.bytes_per_second.saturating_add(other.bytes_per_second),
            round_trip_us: self.round_trip_us.max(other.round_trip_us),
            rising: self.rising || other.rising,
            probe: self.probe.max(other.probe),
            untried: self.untried || other.untried,
            links: self.links + other.links,
            met: self.met + other.met,
        }
    }
}

/// What the estimator must be told again about a request; the client keeps it with the request.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest {
    sent_us: u64,
    /// Bytes that were asked for before it and had not come.
    queue_bytes: u64,
    asked_bytes: u64,
    received_bytes: u64,
    delivered_before: u64,
    delivered_us: u64,
    /// When the request was sent that was the last to be answered before.
    answered_sent_us: u64,
    has_begun: bool,
    filled_link: bool,
    /// Whether it was sent while less was on its way than makes a queue.
    is_thin: bool,
    round: u64,
}

impl SentRequest {
    /// Bytes of the reply that have not come yet.
    pub(crate) const fn missing_bytes(&self) -> u64 {
        self.asked_bytes.saturating_sub(self.received_bytes)
    }
}

/// The extreme of the last one to two buckets of samples.
#[derive(Clone, Copy, Debug, Default)]
struct TwoBuckets {
    current: Option<u64>,
    before: Option<u64>,
    opened: u64,
}

impl TwoBuckets {
    /// Enters `value` at place `at` of a running count; a bucket lasts `length` of it.
    fn enter(&mut self, at: u64, length: u64, value: u64, better: fn(u64, u64) -> u64) {
        if at.saturating_sub(self.opened) >= length {
            self.before = self.current.take();
            self.opened = at;
        }
        self.current = Some(self.current.map_or(value, |current| better(current, value)));
    }

    fn value(&self, better: fn(u64, u64) -> u64) -> Option<u64> {
        match (self.current, self.before) {
            (Some(current), Some(before)) => Some(better(current, before)),
            (one, other) => one.or(other),
        }
    }

    fn restart(&mut self, at: u64, value: u64) {
        *self = Self { current: Some(value), before: None, opened: at };
    }
}

/// What has happened on a link since it was idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SinceIdle {
    /// Something was asked for.
    #[default]
    Asked,
    /// Some of it has come.
    Delivered,
    /// More was asked for after that.
    AskedAgain,
}

/// Bytes that came in a row.
#[derive(Clone, Copy, Debug)]
struct Train {
    begun_us: u64,
    last_us: u64,
    bytes: u64,
}

/// The estimator of the link to one engine.
#[derive(Clone, Debug, Default)]
pub struct LinkEstimator {
    round_trip: TwoBuckets,
    /// Whether the round trip is only what the making of a connection took.
    supposed: bool,
    rate: TwoBuckets,
    in_flight_bytes: u64,
    delivered_bytes: u64,
    delivered_us: u64,
    round: u64,
    answered_sent_us: u64,
    since_idle: SinceIdle,
    train: Option<Train>,
    /// Rate of the train before.
    train_before: Option<u64>,
    high_samples: u32,
    high_smallest_us: u64,
    /// Replies in a row that came later than the queue explains.
    late_replies: u32,
    probe: Probe,
    /// Requests without a queue of this probe that took longer than the round trip.
    slow_thin_samples: u32,
    /// Requests on a full link that were answered.
    filled_rounds: u32,
    /// When a reply last brought less than was asked for.
    fell_short_us: Option<u64>,
    probed_us: u64,
    /// Probes in a row that have found nothing new.
    idle_probes: u32,
    told_us: u64,
    /// Rate at the last rise by a quarter or more, and the round of it.
    risen_to: u64,
    risen_in_round: u64,
}

impl LinkEstimator {
    /// An estimator that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The link as it is known now.
    pub fn estimate(&self) -> LinkEstimate {
        let round_trip_us = self.round_trip.value(u64::min);
        LinkEstimate {
            bytes_per_second: self.rate.value(u64::max).unwrap_or(0),
            round_trip_us: round_trip_us.unwrap_or(0),
            rising: self.round < self.risen_in_round + 3,
            probe: self.probe,
            untried: self.filled_rounds < FILLED_ROUNDS,
            links: 1,
            met: u32::from(round_trip_us.is_some()),
        }
    }

    /// The round trip is about this long, as the making of a connection has shown. Of no effect once
    /// a request has told it.
    pub fn suppose_round_trip(&mut self, now_us: u64, round_trip_us: u64) {
        if self.round_trip.value(u64::min).is_none() {
            self.supposed = true;
            self.round_trip.enter(now_us, ROUND_TRIP_BUCKET_US, round_trip_us.max(1), u64::min);
        }
    }

    /// The rate was about this, in bytes per second, when somebody last knew. Of no effect once a request has told
    /// it, and forgotten after some rounds like any sample.
    pub fn suppose_rate(&mut self, bytes_per_second: u64) {
        if self.rate.value(u64::max).is_none() && (1..RATE_MAX).contains(&bytes_per_second) {
            self.rate.enter(self.round, RATE_BUCKET_ROUNDS, bytes_per_second, u64::max);
            self.risen_to = bytes_per_second;
        }
    }

    /// What the link has turned out to carry, in bytes per second, if it was kept full for a while.
    pub fn proven_rate(&self) -> Option<u64> {
        let is_proven = self.filled_rounds >= FILLED_ROUNDS && !self.supposed;
        self.rate.value(u64::max).filter(|_| is_proven)
    }

    /// Other requests to the engine have shown that it has moved away: a round trip is about this long now.
    /// Of an engine that was near nothing is asked here by which that could be seen.
    pub fn has_moved_away(&mut self, now_us: u64, round_trip_us: u64) {
        self.supposed = true;
        self.round_trip.restart(now_us, round_trip_us.max(1));
        self.high_samples = 0;
    }

    /// Rate times round trip in bytes; 0 while unknown.
    pub(crate) fn bandwidth_delay_product_bytes(&self) -> u64 {
        self.estimate().bandwidth_delay_product_bytes()
    }

    /// A request for `bytes` bytes was sent.
    pub fn sent(&mut self, now_us: u64, bytes: u64) -> SentRequest {
        let round_trip_us = self.round_trip.value(u64::min).unwrap_or(0);
        let probe_us = PROBE_MAX_US.max(round_trip_us.saturating_mul(8));
        if self.probe != Probe::No && now_us.saturating_sub(self.probed_us) > probe_us {
            // Several read at once, and the link never runs empty.
            self.judge_probe(false);
            self.told(now_us);
        }
        if self.in_flight_bytes == 0 {
            // Right after idle: the time without work is no time of delivery.
            self.delivered_us = now_us;
            self.answered_sent_us = now_us;
            self.since_idle = SinceIdle::Asked;
            self.train = None;
        }
        if self.since_idle == SinceIdle::Delivered {
            self.since_idle = SinceIdle::AskedAgain;
        }
        let queue_bytes = self.in_flight_bytes;
        self.in_flight_bytes = self.in_flight_bytes.saturating_add(bytes);
        SentRequest {
            sent_us: now_us,
            queue_bytes,
            asked_bytes: bytes,
            received_bytes: 0,
            delivered_before: self.delivered_bytes,
            delivered_us: self.delivered_us,
            answered_sent_us: self.answered_sent_us,
            has_begun: false,
            filled_link: self.since_idle != SinceIdle::Asked
                && queue_bytes > self.bandwidth_delay_product_bytes(),
            is_thin: self.probe == Probe::Thin && queue_bytes <= self.estimate().thin_bytes(),
            round: self.round,
        }
    }

    /// `bytes` more bytes of the reply have come. `waited` tells whether the reader was waiting
    /// for them; bytes that had lain in a socket buffer say nothing about the link.
    pub fn received(&mut self, request: &mut SentRequest, now_us: u64, bytes: u64, waited: bool) {
        if !request.has_begun {
            request.has_begun = true;
            self.round_trip_sample(request, now_us, waited);
        }
        let counted = bytes.min(request.missing_bytes());
        request.received_bytes += counted;
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(counted);
        self.delivered_bytes = self.delivered_bytes.saturating_add(bytes);
        self.delivered_us = self.delivered_us.max(now_us);
        if self.since_idle == SinceIdle::Asked {
            self.since_idle = SinceIdle::Delivered;
        }
        self.follow_train(now_us, bytes, waited);
    }

    fn follow_train(&mut self, now_us: u64, bytes: u64, waited: bool) {
        let begin = || waited.then_some(Train { begun_us: now_us, last_us: now_us, bytes: 0 });
        let Some(train) = &mut self.train else {
            // What comes first may have been on its way for any time.
            self.train = begin();
            return;
        };
        if !waited && now_us.saturating_sub(train.last_us) > TRAIN_GAP_US {
            self.train = None;
            return;
        }
        train.bytes = train.bytes.saturating_add(bytes);
        train.last_us = now_us;
        if self.in_flight_bytes > 0 && train.bytes < TRAIN_BYTES_MAX {
            return;
        }
        let train = *train;
        self.train = begin();
        let elapsed_us = train.last_us.saturating_sub(train.begun_us);
        if train.bytes < TRAIN_BYTES_MIN || elapsed_us < TRAIN_US_MIN {
            return;
        }
        let Some(rate) = rate_of(train.bytes, elapsed_us) else { return };
        // One train may come in a burst; two hardly do.
        let before = self.train_before.replace(rate);
        let sure = before.map_or(rate, |before| before.min(rate));
        if self.since_idle != SinceIdle::AskedAgain
            || self.rate.value(u64::max).is_none_or(|known| sure > known)
        {
            self.rate_sample(sure);
        }
        let round_trip_us = self.round_trip.value(u64::min).unwrap_or(0);
        // A young connection carries twice as much each round trip, whatever the link does.
        let has_settled = before.is_some_and(|before| rate <= before.saturating_add(before / 4));
        let product_bytes = LinkEstimate::of(rate, round_trip_us).bandwidth_delay_product_bytes();
        if has_settled && product_bytes <= train.bytes / 2 {
            // More than the sender could have kept on its way: the link itself set the pace.
            self.filled_rounds = FILLED_ROUNDS;
        }
    }

    /// The reply is complete.
    pub fn finished(&mut self, mut request: SentRequest, now_us: u64) {
        if !request.has_begun {
            self.received(&mut request, now_us, 0, true);
        }
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(request.missing_bytes());
        if request.missing_bytes() > 0 {
            // A hole: what was asked for was not on its way, and what came was no train.
            self.fell_short_us = Some(now_us);
            self.train = None;
        }
        let filled_link =
            request.filled_link && self.fell_short_us.is_none_or(|us| us < request.sent_us);
        if request.round == self.round {
            self.round += 1;
        }
        let delivered = self.delivered_bytes.saturating_sub(request.delivered_before);
        // What piled up somewhere and then came at once was not sent faster than this.
        let sent_in_us = request.sent_us.saturating_sub(request.answered_sent_us);
        let elapsed_us = now_us.saturating_sub(request.delivered_us).max(sent_in_us);
        self.answered_sent_us = self.answered_sent_us.max(request.sent_us);
        if let Some(rate) = rate_of(delivered, elapsed_us) {
            // A rate that the link did not limit is a lower bound only.
            if filled_link && delivered >= TRAIN_BYTES_MIN {
                self.filled_rounds = self.filled_rounds.saturating_add(1);
            }
            if filled_link || self.rate.value(u64::max).is_none_or(|known| rate > known) {
                self.rate_sample(rate);
            }
        }
    }

    /// The request failed, or its connection did: what was missing will not come.
    pub fn failed(&mut self, request: SentRequest) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(request.missing_bytes());
    }

    fn rate_sample(&mut self, rate: u64) {
        self.rate.enter(self.round, RATE_BUCKET_ROUNDS, rate, u64::max);
        if rate >= self.risen_to.saturating_add(self.risen_to / 4) {
            self.risen_to = rate;
            self.risen_in_round = self.round;
            self.filled_rounds = 0;
        } else if let Some(known) = self.rate.value(u64::max) {
            self.risen_to = self.risen_to.min(known);
        }
    }

    fn round_trip_sample(&mut self, request: &SentRequest, now_us: u64, waited: bool) {
        let sample_us = now_us.saturating_sub(request.sent_us).max(1);
        if self.supposed && waited && request.queue_bytes == 0 {
            self.supposed = false;
            self.round_trip.restart(now_us, sample_us);
        }
        let known_us = self.round_trip.value(u64::min);
        if !waited && known_us.is_some_and(|known_us| sample_us > known_us) {
            // It lay there while the reader did something else: that is no time of the link.
            return;
        }
        let rate = self.rate.value(u64::max).unwrap_or(0);
        let queue_us = match u128::from(request.queue_bytes) * 1_000_000 {
            0 => 0,
            _ if rate == 0 => u64::MAX,
            queue => u64::try_from(queue / u128::from(rate)).unwrap_or(u64::MAX),
        };
        let Some(known_us) = known_us.filter(|known_us| sample_us > *known_us) else {
            self.round_trip.enter(now_us, ROUND_TRIP_BUCKET_US, sample_us, u64::min);
            self.high_samples = 0;
            if self.probe != Probe::No {
                self.judge_probe(false);
            }
            self.told(now_us);
            return;
        };
        if request.is_thin && self.probe == Probe::Thin {
            if sample_us <= known_us.saturating_add(known_us / 8) {
                self.round_trip.enter(now_us, ROUND_TRIP_BUCKET_US, sample_us, u64::min);
                self.judge_probe(false);
                self.told(now_us);
            } else {
                // A longer round trip is believed of an empty link alone: what stands in a queue would make the
                // next one longer still.
                self.slow_thin_samples += 1;
                if self.slow_thin_samples >= THIN_SAMPLES {
                    self.begin_probe(Probe::Empty, now_us);
                }
            }
            return;
        }
        if request.queue_bytes > 0 {
            let explained_us = known_us.saturating_add(queue_us);
            let late = sample_us > explained_us.saturating_add(explained_us / 2);
            self.late_replies = if late { self.late_replies + 1 } else { 0 };
            let often = self.late_replies >= PATH_CHANGE_SAMPLES
                && now_us.saturating_sub(self.probed_us) >= PROBE_APART_US << self.idle_probes;
            let is_old =
                || now_us.saturating_sub(self.told_us) >= PROBE_AFTER_US << self.idle_probes;
            if often {
                self.begin_probe(Probe::Empty, now_us);
            } else if self.probe == Probe::No && is_old() {
                self.begin_probe(Probe::Thin, now_us);
            }
            return;
        }
        if self.probe == Probe::No {
            self.round_trip.enter(now_us, ROUND_TRIP_BUCKET_US, sample_us, u64::min);
        } else {
            self.judge_probe(sample_us > known_us.saturating_add(known_us / 2));
            self.round_trip.restart(now_us, sample_us);
        }
        // A path that has become longer is believed after some samples, not only when the old
        // smallest one is forgotten.
        if sample_us > known_us.saturating_add(known_us / 2) && self.probe == Probe::No {
            let smallest = if self.high_samples == 0 { u64::MAX } else { self.high_smallest_us };
            self.high_smallest_us = smallest.min(sample_us);
            self.high_samples += 1;
            if self.high_samples >= PATH_CHANGE_SAMPLES {
                self.round_trip.restart(now_us, self.high_smallest_us);
                self.high_samples = 0;
            }
        } else {
            self.high_samples = 0;
        }
        self.told(now_us);
    }

    /// Late replies that were not the path's doing (a lost packet, a slow connection, a busy engine)
    /// are no reason to look again soon.
    fn judge_probe(&mut self, path_changed: bool) {
        let longer = PROBE_APART_US << (self.idle_probes + 1);
        self.idle_probes = match path_changed {
            true => 0,
            false if longer <= PROBE_APART_MAX_US => self.idle_probes + 1,
            false => self.idle_probes,
        };
    }

    fn begin_probe(&mut self, probe: Probe, now_us: u64) {
        self.probe = probe;
        self.probed_us = now_us;
        self.late_replies = 0;
        self.slow_thin_samples = 0;
    }

    /// A request on an empty link, or one as fast, has told the round trip.
    fn told(&mut self, now_us: u64) {
        self.probe = Probe::No;
        self.late_replies = 0;
        self.told_us = now_us;
    }
}

/// Bytes per second of `bytes` in `us`; none when that says nothing.
fn rate_of(bytes: u64, us: u64) -> Option<u64> {
    if bytes == 0 || us == 0 {
        return None;
    }
    let rate = u128::from(bytes) * 1_000_000 / u128::from(us);
    u64::try_from(rate).ok().filter(|rate| (1..=RATE_MAX).contains(rate))
}

#[cfg(test)]
mod tests {
    use super::{LinkEstimate, LinkEstimator};

    /// One request alone on a link of 100 MB/s with the given round trip; gives the time after.
    fn alone(estimator: &mut LinkEstimator, now_us: u64, round_trip_us: u64, bytes: u64) -> u64 {
        let mut request = estimator.sent(now_us, bytes);
        let first_us = now_us + round_trip_us;
        let last_us = first_us + bytes / 100;
        estimator.received(&mut request, first_us, 0, true);
        estimator.received(&mut request, last_us, bytes, true);
        estimator.finished(request, last_us);
        last_us
    }

    #[test]
    fn one_large_reply_tells_rate_and_round_trip() {
        let mut estimator = LinkEstimator::new();
        alone(&mut estimator, 0, 10_000, 1_000_000);
        let estimate = estimator.estimate();
        assert_eq!(estimate.bytes_per_second, 100_000_000);
        assert_eq!(estimate.round_trip_us, 10_000);
        assert_eq!(estimate.bandwidth_delay_product_bytes(), 1_000_000);
    }

    #[test]
    fn small_replies_and_idle_time_do_not_lower_the_rate() {
        let mut estimator = LinkEstimator::new();
        let mut now_us = alone(&mut estimator, 0, 10_000, 1_000_000);
        for _ in 0..100 {
            now_us = alone(&mut estimator, now_us + 3_000_000, 10_000, 4096);
        }
        assert_eq!(estimator.estimate().bytes_per_second, 100_000_000);
    }

    #[test]
    fn a_longer_path_is_believed_after_some_requests() {
        let mut estimator = LinkEstimator::new();
        let mut now_us = alone(&mut estimator, 0, 10_000, 1_000_000);
        for _ in 0..8 {
            now_us = alone(&mut estimator, now_us, 50_000, 1_000_000);
        }
        assert_eq!(estimator.estimate().round_trip_us, 50_000);
        alone(&mut estimator, now_us, 5_000, 1_000_000);
        assert_eq!(estimator.estimate().round_trip_us, 5_000);
    }

    #[test]
    fn one_late_reply_changes_nothing() {
        let mut estimator = LinkEstimator::new();
        let now_us = alone(&mut estimator, 0, 10_000, 1_000_000);
        let now_us = alone(&mut estimator, now_us, 300_000, 1_000_000);
        alone(&mut estimator, now_us, 10_000, 1_000_000);
        assert_eq!(estimator.estimate().round_trip_us, 10_000);
    }

    #[test]
    fn a_reply_that_lay_in_a_buffer_does_not_raise_the_rate() {
        let mut estimator = LinkEstimator::new();
        let now_us = alone(&mut estimator, 0, 10_000, 1_000_000);
        let mut request = estimator.sent(now_us, 1_000_000);
        estimator.received(&mut request, now_us + 50_000, 500_000, false);
        estimator.received(&mut request, now_us + 50_200, 500_000, false);
        estimator.finished(request, now_us + 50_200);
        assert_eq!(estimator.estimate().bytes_per_second, 100_000_000);
    }

    /// A request in parts, all asked for at once, whose bytes come in a row; gives the time after.
    fn in_parts(estimator: &mut LinkEstimator, now_us: u64, parts: u64, us_each: u64) -> u64 {
        const PART_BYTES: u64 = 64 << 10;
        let sent: Vec<_> = (0..parts).map(|_| estimator.sent(now_us, PART_BYTES)).collect();
        let mut at_us = now_us + 50_000;
        for mut request in sent {
            estimator.received(&mut request, at_us, 0, true);
            at_us += us_each;
            estimator.received(&mut request, at_us, PART_BYTES, true);
            estimator.finished(request, at_us);
        }
        at_us
    }

    #[test]
    fn the_wait_for_the_first_byte_does_not_count_where_all_was_asked_for_at_once() {
        let mut estimator = LinkEstimator::new();
        let mut now_us = 0;
        for _ in 0..8 {
            now_us = in_parts(&mut estimator, now_us, 64, 655);
        }
        let rate = estimator.estimate().bytes_per_second;
        assert!((95_000_000..105_000_000).contains(&rate), "{rate}");
    }

    #[test]
    fn a_link_is_untried_until_it_has_carried_more_than_is_on_its_way() {
        let mut estimator = LinkEstimator::new();
        estimator.suppose_round_trip(0, 50_000);
        assert_eq!(estimator.estimate().hoped_product_bytes(), 5_000_000);
        let now_us = in_parts(&mut estimator, 0, 8, 6550);
        assert!(
            estimator.estimate().untried,
            "half a megabyte at 10 MB/s may be the sender's pace"
        );
        in_parts(&mut estimator, now_us, 64, 6550);
        assert!(!estimator.estimate().untried, "four megabytes are not");
        assert!(estimator.estimate().hoped_product_bytes() < 600_000);
    }

    #[test]
    fn several_engines_are_near_only_where_each_is_known_to_be() {
        let near = LinkEstimate::of(0, 100);
        assert!(near.is_nearer_than(500) && !near.is_nearer_than(100));
        assert!(near.with(near).is_nearer_than(500));
        assert!(!near.with(LinkEstimate::of(0, 50_000)).is_nearer_than(500));
        let unmet = LinkEstimator::new().estimate();
        assert!(!near.with(unmet).is_nearer_than(500) && !unmet.with(near).is_nearer_than(500));
        assert!(!LinkEstimate::default().is_nearer_than(500));
    }

    #[test]
    fn what_the_making_of_a_connection_took_is_no_more_than_a_first_guess() {
        let mut estimator = LinkEstimator::new();
        estimator.suppose_round_trip(0, 70_000);
        assert_eq!(estimator.estimate().round_trip_us, 70_000);
        alone(&mut estimator, 10, 50_000, 4096);
        estimator.suppose_round_trip(100_000, 90_000);
        assert_eq!(estimator.estimate().round_trip_us, 50_000);
    }

    #[test]
    fn what_was_known_before_is_a_first_guess_that_the_link_corrects() {
        let mut estimator = LinkEstimator::new();
        estimator.suppose_rate(1_000_000_000);
        let mut now_us = alone(&mut estimator, 0, 10_000, 1 << 20);
        assert_eq!(
            estimator.estimate().bytes_per_second,
            1_000_000_000,
            "nothing speaks against it"
        );
        assert_eq!(estimator.proven_rate(), None);
        // Once requests tell otherwise, it is forgotten within some rounds.
        for _ in 0..12 {
            now_us = alone(&mut estimator, now_us, 10_000, 4 << 20);
        }
        let known = estimator.estimate().bytes_per_second;
        assert!((50_000_000..=110_000_000).contains(&known), "{known}");
        estimator.suppose_rate(7);
        assert_eq!(estimator.estimate().bytes_per_second, known, "what is measured counts");
    }

    #[test]
    fn holes_between_the_data_do_not_lower_the_rate() {
        const PART_BYTES: u64 = 256 << 10;
        const ASKED: u64 = 64;
        let mut estimator = LinkEstimator::new();
        let mut now_us = in_parts(&mut estimator, 0, 64, 655);
        let known = estimator.estimate().bytes_per_second;
        assert!(known > 90_000_000, "{known}");
        // Always as much is asked for as a link of this rate carries; one part in eight is there.
        let mut in_flight: std::collections::VecDeque<_> =
            (0..ASKED).map(|_| estimator.sent(now_us, PART_BYTES)).collect();
        now_us += 50_000;
        for turn in 0..1000 {
            let mut request = in_flight.pop_front().unwrap();
            estimator.received(&mut request, now_us, 0, true);
            if turn % 8 == 0 {
                now_us += PART_BYTES / 100;
                estimator.received(&mut request, now_us, PART_BYTES, true);
            }
            // One round trip for all that is in flight.
            now_us += 50_000 / ASKED;
            estimator.finished(request, now_us);
            in_flight.push_back(estimator.sent(now_us, PART_BYTES));
        }
        let rate = estimator.estimate().bytes_per_second;
        assert!(rate >= known / 10 * 9, "{rate} after {known}");
    }

    #[test]
    fn failed_requests_leave_nothing_in_flight() {
        let mut estimator = LinkEstimator::new();
        let request = estimator.sent(0, 1000);
        let mut part = estimator.sent(0, 1000);
        estimator.received(&mut part, 10, 400, true);
        estimator.failed(part);
        estimator.failed(request);
        assert_eq!(estimator.in_flight_bytes, 0);
    }

    #[test]
    fn strange_times_and_sizes_do_no_harm() {
        let mut estimator = LinkEstimator::new();
        let mut request = estimator.sent(u64::MAX, u64::MAX);
        estimator.received(&mut request, 0, u64::MAX, true);
        estimator.received(&mut request, 5, u64::MAX, true);
        estimator.finished(request, u64::MAX);
        let _ = estimator.bandwidth_delay_product_bytes();
    }

    #[test]
    fn an_engine_that_has_moved_away_is_far_until_a_request_tells_how_far() {
        let mut estimator = LinkEstimator::new();
        let now_us = alone(&mut estimator, 0, 100, 4096);
        assert_eq!(estimator.estimate().round_trip_us, 100);
        estimator.has_moved_away(now_us, 60_000);
        estimator.suppose_round_trip(now_us, 70_000);
        assert_eq!(estimator.estimate().round_trip_us, 60_000);
        alone(&mut estimator, now_us + 1, 50_000, 4096);
        assert_eq!(estimator.estimate().round_trip_us, 50_000);
    }
}
