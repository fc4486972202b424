//! What is known of the reads to come after different patterns.

use proptest::prelude::*;

use super::history::GROUPS_MAX;
use super::{Knowledge, Pattern, STREAMS_MAX, Step};
use crate::range::ByteRange;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

fn next_ranges(pattern: &Pattern, count: usize) -> (Vec<ByteRange>, Knowledge) {
    next_ranges_over(u64::MAX / 8, pattern, count)
}

fn next_ranges_over(
    link_bytes: u64,
    pattern: &Pattern,
    count: usize,
) -> (Vec<ByteRange>, Knowledge) {
    let mut ranges = Vec::new();
    let knowledge = pattern.foresee(link_bytes, |range| {
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
    let mut heads = [0, 1000 * M, 500 * M];
    let mut chance = 12345u64;
    for round in 0..60 {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let reader = if round < 3 { round } else { (chance >> 33) as usize % 3 };
        let step = pattern.observe(heads[reader], M, u64::MAX / 8);
        heads[reader] += M;
        assert!(round < 3 || !matches!(step, Step::Jumped { .. }), "{round} {step:?}");
    }
    assert_eq!(pattern.active_streams(), 3);
    let (_, knowledge) = next_ranges(&pattern, 1);
    assert!(matches!(knowledge, Knowledge::Run { so_far_bytes, .. } if so_far_bytes >= 10 * M));
}

#[test]
fn readers_that_take_turns_are_foretold_in_their_order() {
    let mut pattern = Pattern::new();
    let starts = [0, 1000 * M, 500 * M];
    for round in 0..6 {
        for start in starts {
            let step = pattern.observe(start + round * M, M, u64::MAX / 8);
            assert!(round == 0 || step == Step::Resumed, "{round} {step:?}");
        }
    }
    let (ranges, knowledge) = next_ranges(&pattern, 4);
    assert_eq!(knowledge, Knowledge::Runs);
    let expected = [6 * M, 1006 * M, 506 * M, 7 * M].map(|start| ByteRange::new(start, M));
    assert_eq!(ranges, expected);
    assert_eq!(pattern.active_streams(), 1);
}

/// Reads slices of a table: so many rows, of each of them so many runs.
fn read_slice(pattern: &mut Pattern, start: u64, rows: u64, runs: u64) {
    for row in 0..rows {
        for run in 0..runs {
            read_run(pattern, start + row * 64 * M + run * M, 128 * K, 64 * K);
        }
    }
}

#[test]
fn a_slice_goes_on_after_a_jump_to_the_next_and_ends_like_the_first() {
    for (rows, runs) in [(100, 1), (40, 1), (100, 4), (6, 4)] {
        let mut pattern = Pattern::new();
        read_slice(&mut pattern, 0, rows, runs);
        // The beginning of the second: nothing told that it would be here.
        pattern.observe(16 * M, 64 * K, u64::MAX / 8);
        let (ranges, _) = next_ranges(&pattern, 2 * runs as usize);
        let row = |row: u64, run: u64| ByteRange::new(row * 64 * M + run * M, 128 * K);
        let at = |slice: u64, number: u64| {
            let range = row(number / runs % rows, number % runs);
            ByteRange::new(range.offset + slice * 16 * M, range.bytes)
        };
        assert_eq!(ranges[0], ByteRange::new(16 * M + 64 * K, 64 * K));
        for number in 1..ranges.len() as u64 {
            assert_eq!(ranges[number as usize], at(1, number), "{rows} rows of {runs}");
        }
        // Near its end the third is foreseen.
        let mut pattern = Pattern::new();
        read_slice(&mut pattern, 0, rows, runs);
        read_slice(&mut pattern, 16 * M, rows, runs);
        pattern.observe(32 * M, 64 * K, u64::MAX / 8);
        let last = (rows * runs) as usize;
        let (ranges, _) = next_ranges(&pattern, last + 2);
        assert_eq!(ranges[last - 1], at(2, rows * runs - 1), "{rows} rows of {runs}");
        assert_eq!(ranges[last], at(3, 0), "{rows} rows of {runs}");
        assert_eq!(ranges[last + 1], at(3, 1), "{rows} rows of {runs}");
    }
}

#[test]
fn slices_at_unforeseeable_places_are_read_to_their_end_and_no_further() {
    let mut pattern = Pattern::new();
    for slice in [0, 7, 3, 31, 11] {
        read_slice(&mut pattern, slice * M, 100, 1);
    }
    pattern.observe(23 * M, 64 * K, u64::MAX / 8);
    let (ranges, _) = next_ranges(&pattern, 200);
    assert_eq!(ranges.len(), 100);
    assert_eq!(ranges[99], ByteRange::new(23 * M + 99 * 64 * M, 128 * K));
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

/// Long regions at random places of a file: some jump like an earlier one, and some come right behind an earlier one.
#[test]
fn chance_among_random_regions_is_no_pattern() {
    let (region, link_bytes) = (8 * M, 6 * M);
    let mut foreseen = 0;
    for seed in 0..25 {
        let (mut pattern, mut chance) = (Pattern::new(), 12345u64 + seed);
        for _ in 0..64 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            pattern.observe((chance >> 33) % 512 * region, region, link_bytes);
            let (ranges, knowledge) = next_ranges_over(link_bytes, &pattern, 5);
            foreseen += ranges.iter().map(|range| range.bytes).sum::<u64>();
            if matches!(knowledge, Knowledge::Run { .. }) {
                foreseen += 5 * region;
            }
        }
    }
    let read = 25 * 64 * region;
    assert!(foreseen <= read / 16, "{} of {} regions", foreseen / region, read / region);
}

#[test]
fn a_jump_that_is_like_one_before_is_followed_for_one_run_until_it_has_been_right() {
    let mut pattern = Pattern::new();
    let place = |number: u64| [0, 1000 * M, 500 * M][number as usize % 3] + number / 3 * 8 * M;
    for number in 0..6 {
        read_run(&mut pattern, place(number), 2 * M, M);
        // Over a link on which no jump is tried that was seen but once.
        let (ranges, _) = next_ranges_over(3 * M, &pattern, 6);
        let known = match number {
            0..4 => 0,
            4 => 1,
            _ => 6,
        };
        let expected: Vec<_> =
            (0..known).map(|next| ByteRange::new(place(number + 1 + next), 2 * M)).collect();
        assert_eq!(ranges, expected, "after run {number}");
    }
}

#[test]
fn readers_are_known_to_take_turns_when_they_have_come_back_often_enough() {
    let mut pattern = Pattern::new();
    let starts = [100, 300, 50, 900, 700];
    for round in 0..2 {
        for (number, start) in starts.into_iter().enumerate() {
            pattern.observe((start + round * 8) * M, 8 * M, 6 * M);
            let (_, knowledge) = next_ranges_over(6 * M, &pattern, 1);
            let is_known = matches!(knowledge, Knowledge::Run { .. } | Knowledge::Runs);
            let expected = round == 1 && number >= 3;
            assert_eq!(is_known, expected, "round {round}, reader {number}: {knowledge:?}");
        }
    }
    assert!(pattern.streams_lately() > 1);
}

proptest! {
    #[test]
    fn any_reads_keep_it_bounded(reads in prop::collection::vec((0u64..64, 0u64..4, any::<bool>()), 0..400)) {
        let mut pattern = Pattern::new();
        for (place, length, far) in reads {
            let offset = if far { u64::MAX - place } else { place * 1000 };
            pattern.observe(offset, length * 1000, 1000);
            prop_assert!(pattern.streams.len() <= STREAMS_MAX);
            prop_assert!(pattern.history.groups() <= GROUPS_MAX);
            let mut given = 0;
            pattern.foresee(1000, |range| { given += 1; !range.is_empty() && given < 100 });
            pattern.drift();
        }
    }
}
