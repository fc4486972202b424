//! The contract between the plan of what is read ahead and a client that holds the contents:
//! whatever is read, comes, fails or changes in whatever order, every byte that is read is
//! somewhere, nothing is held twice, and memory stays within the budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use azekura_policy::{Actions, Budget, ByteRange, LinkEstimate, PredictiveParameters, ReadAhead};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Read { offset: u64, bytes: u64 },
    Onward { bytes: u64, times: u64 },
    Arrive { share: u64 },
    Fail,
    Invalidate,
    Overwrite { offset: u64, bytes: u64 },
    Eof { bytes: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let place = 0u64..64;
    prop_oneof![
        4 => (place.clone(), 0u64..200_000)
            .prop_map(|(place, bytes)| Event::Read { offset: place * 100_000, bytes }),
        6 => (1u64..300_000, 1u64..30).prop_map(|(bytes, times)| Event::Onward { bytes, times }),
        6 => (1u64..=4).prop_map(|share| Event::Arrive { share }),
        1 => Just(Event::Fail),
        1 => Just(Event::Invalidate),
        1 => (place, 0u64..500_000)
            .prop_map(|(place, bytes)| Event::Overwrite { offset: place * 100_000, bytes }),
        1 => (0u64..10_000_000).prop_map(|bytes| Event::Eof { bytes }),
    ]
}

/// The client's cache: ranges by offset, with the bytes of each that have come.
struct Client {
    plan: ReadAhead,
    actions: Actions,
    cache: BTreeMap<u64, (ByteRange, u64)>,
    file_bytes: u64,
    head: u64,
    now_us: u64,
}

impl Client {
    fn drop_ranges(&mut self) {
        for range in &self.actions.drop {
            let entry = self.cache.remove(&range.offset);
            assert_eq!(entry.map(|entry| entry.0), Some(*range), "a drop of what is not there");
        }
    }

    fn enter(&mut self, range: ByteRange) {
        for (held, _) in self.cache.values() {
            assert!(!held.overlaps(range), "{range:?} asked for again, {held:?} is held");
        }
        self.cache.insert(range.offset, (range, 0));
    }

    fn read(&mut self, offset: u64, bytes: u64, link: LinkEstimate) {
        self.now_us += 1000;
        self.plan.on_read(self.now_us, offset, bytes, link, &mut self.actions);
        self.drop_ranges();
        for range in self.actions.ahead.clone() {
            assert!(range.end() <= self.file_bytes, "{range:?} is past the end");
            assert!(!range.is_empty());
            for demand in &self.actions.demand {
                assert!(!demand.overlaps(range), "{range:?} is on demand too");
            }
            self.enter(range);
        }
        if self.actions.keep_demand {
            for range in self.actions.demand.clone() {
                self.enter(range);
            }
        }
        let read = ByteRange::new(offset, bytes);
        let straight = if self.actions.keep_demand { &[][..] } else { &self.actions.demand };
        let held = self.cache.values().map(|entry| entry.0.intersection(read).bytes);
        let there: u64 = held.sum::<u64>() + straight.iter().map(|range| range.bytes).sum::<u64>();
        assert_eq!(there, bytes, "a byte of {read:?} is nowhere");
        self.head = read.end();
    }

    fn apply(&mut self, event: &Event, link: LinkEstimate) {
        match *event {
            Event::Read { offset, bytes } => self.read(offset, bytes, link),
            Event::Onward { bytes, times } => {
                for _ in 0..times {
                    self.read(self.head, bytes, link);
                }
            }
            Event::Arrive { share } => {
                for (range, come) in self.cache.values_mut() {
                    let part = (range.bytes - *come).div_ceil(share);
                    self.plan.on_arrival(ByteRange::new(range.offset + *come, part));
                    *come += part;
                }
            }
            Event::Fail => {
                let missing = self.cache.values().find(|(range, come)| *come < range.bytes);
                if let Some((range, _)) = missing.copied() {
                    self.plan.on_failure(range);
                    self.cache.remove(&range.offset);
                }
            }
            Event::Invalidate => {
                self.plan.on_invalidate(&mut self.actions);
                self.drop_ranges();
                assert!(self.cache.is_empty(), "old contents after a change");
            }
            Event::Overwrite { offset, bytes } => {
                let range = ByteRange::new(offset, bytes);
                self.plan.on_overwrite(range, &mut self.actions);
                self.drop_ranges();
                assert!(self.cache.values().all(|(held, _)| !held.overlaps(range)));
            }
            Event::Eof { bytes } => {
                self.file_bytes = bytes;
                self.plan.on_eof(bytes, &mut self.actions);
                self.drop_ranges();
                assert!(self.cache.values().all(|(held, _)| held.end() <= bytes));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn holds_whatever_happens(
        events in prop::collection::vec(event(), 1..80),
        rate in prop_oneof![Just(0u64), Just(1_000_000), Just(117_700_000)],
        round_trip_us in prop_oneof![Just(0u64), Just(1000), Just(50_000)],
        budget_bytes in 0u64..20_000_000,
    ) {
        let budget = Arc::new(Budget::new(budget_bytes));
        let link = LinkEstimate::of(rate, round_trip_us);
        let mut client = Client {
            plan: ReadAhead::new(PredictiveParameters::default(), Arc::clone(&budget)),
            actions: Actions::default(),
            cache: BTreeMap::new(),
            file_bytes: u64::MAX,
            head: 0,
            now_us: 0,
        };
        for event in &events {
            client.apply(event, link);
            let held: u64 = client.cache.values().map(|entry| entry.0.bytes).sum();
            prop_assert_eq!(client.plan.held_bytes(), held);
            prop_assert_eq!(budget.taken_bytes(), held);
            prop_assert!(held <= budget_bytes);
        }
        drop(client);
        prop_assert_eq!(budget.taken_bytes(), 0);
    }
}

#[test]
fn reads_of_nothing_and_past_the_end_ask_for_nothing_ahead() {
    let budget = Arc::new(Budget::new(1 << 30));
    let mut plan = ReadAhead::new(PredictiveParameters::default(), budget);
    let mut actions = Actions::default();
    let link = LinkEstimate::of(117_700_000, 50_000);
    plan.on_eof(1 << 20, &mut actions);
    plan.on_read(0, 0, 0, link, &mut actions);
    assert_eq!(actions, Actions::default());
    for index in 0..10 {
        plan.on_read(index, (1 << 20) + index * 4096, 4096, link, &mut actions);
        assert_eq!(actions.ahead, []);
        assert_eq!(actions.demand, [ByteRange::new((1 << 20) + index * 4096, 4096)]);
    }
    plan.on_read(20, u64::MAX, u64::MAX, link, &mut actions);
    assert_eq!(actions.ahead, []);
}

#[test]
fn what_is_expected_is_asked_for_before_the_first_read_and_read_on_from_there() {
    let mut plan = ReadAhead::new(PredictiveParameters::default(), Arc::new(Budget::new(1 << 30)));
    let (mut actions, link) = (Actions::default(), LinkEstimate::of(117_700_000, 50_000));
    let (expected, file_bytes) = (8 << 20, 64 << 20);
    plan.on_eof(file_bytes, &mut actions);
    plan.on_expected(0, expected, link, &mut actions);
    assert_eq!(actions.demand, []);
    let mut asked_bytes = actions.ahead.iter().map(|range| range.bytes).sum::<u64>();
    assert!(asked_bytes > expected / 2 && asked_bytes <= expected, "{asked_bytes}");
    // What has come when the file is opened leaves the link to what follows.
    for range in actions.ahead.clone() {
        plan.on_arrival(range);
    }
    plan.on_expected(0, 2 * expected, link, &mut actions);
    assert!(actions.ahead.iter().all(|range| range.offset >= asked_bytes));
    asked_bytes += actions.ahead.iter().map(|range| range.bytes).sum::<u64>();
    assert!(asked_bytes > expected + expected / 2 && asked_bytes <= 2 * expected, "{asked_bytes}");
    let read_bytes = 128 << 10;
    for number in 0..8 {
        plan.on_read(number, number * read_bytes, read_bytes, link, &mut actions);
        assert_eq!((actions.demand.len(), actions.drop.len()), (0, 0), "read {number}");
    }
    // A file that is not read so after all.
    plan.on_read(9, file_bytes / 2, read_bytes, link, &mut actions);
    assert!(actions.ahead.iter().map(|range| range.bytes).sum::<u64>() < expected);
}

#[test]
fn two_files_share_a_budget() {
    let budget = Arc::new(Budget::new(8 << 20));
    let link = LinkEstimate::of(117_700_000, 100_000);
    let mut actions = Actions::default();
    let mut plans: Vec<_> = (0..4)
        .map(|_| ReadAhead::new(PredictiveParameters::default(), Arc::clone(&budget)))
        .collect();
    for round in 0..200 {
        for plan in &mut plans {
            plan.on_read(round, round << 16, 1 << 16, link, &mut actions);
            for range in &actions.ahead {
                plan.on_arrival(*range);
            }
        }
    }
    assert!(plans.iter().all(|plan| plan.held_bytes() > 0));
    assert!(plans.iter().all(|plan| plan.counts().hit_bytes > 0));
    drop(plans);
    assert_eq!(budget.taken_bytes(), 0);
}
