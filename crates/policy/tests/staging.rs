//! A content on its way to clusters of up to ten thousand nodes, over simulated links: how close the
//! planned tree comes to what the links allow, and what slow, dying and late nodes cost.

use azekura_policy::simulation::{Staging, StagingOutcome};
use azekura_policy::spread::{Link, Links, Shape};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// 100 Mbit/s, 0.2 ms.
const FAST_ETHERNET: Link = Link { bytes_per_second: 12_500_000, delay_us: 200, message_us: 20 };

fn staging(bytes: u64, nodes: u32) -> Staging {
    Staging::new(bytes, nodes, FAST_ETHERNET)
}

fn chain() -> Shape {
    let shape = Shape::choose(0, 0, 0, Links::default());
    assert!(shape.is_chain());
    shape
}

/// Times what is possible.
fn over_limit(staging: &Staging, outcome: &StagingOutcome) -> f64 {
    assert_eq!(outcome.without, 0, "{outcome:?}");
    outcome.last_byte_us / staging.physical_limit_us()
}

#[test]
fn a_chain_fills_every_link() {
    for nodes in [2, 4, 8, 16] {
        let staging = staging(64 * MIB, nodes);
        let outcome = staging.run();
        let aggregate = f64::from(nodes) * staging.bytes as f64 * 1e6 / outcome.last_byte_us;
        let share = aggregate / (f64::from(nodes) * 12_500_000.0);
        assert!(share >= 0.95, "{nodes} nodes: {share:.3} of their links");
        assert_eq!(outcome.source_sent_bytes, staging.bytes, "the source sends it once");
        assert!(over_limit(&staging, &outcome) >= 1.0, "{outcome:?}");
    }
}

#[test]
fn a_tree_beats_the_chain_with_a_small_content_and_the_chain_a_tree_with_a_large_one() {
    let small = staging(8 * KIB, 1000);
    let (tree, chained) = (small.run(), small.run_with(chain()));
    assert!(tree.last_byte_us * 50.0 < chained.last_byte_us, "{tree:?} {chained:?}");
    let large = staging(64 * MIB, 16);
    let tree = large.run_with(Shape { fan_out: 2, source_fan_out: 2, ..chain() });
    assert!(large.run().last_byte_us * 1.8 < tree.last_byte_us, "{tree:?}");
}

#[test]
fn what_the_planner_estimates_comes_true() {
    for bytes in [1, 8 * KIB, 300 * KIB, 4 * MIB, 64 * MIB] {
        for nodes in [1, 2, 16, 100, 1000] {
            let staging = staging(bytes, nodes);
            let shape = Shape::choose(bytes, nodes as usize, 0, staging.links);
            let ratio = staging.run().last_byte_us / shape.estimated_us as f64;
            assert!((0.85..=1.01).contains(&ratio), "{bytes} to {nodes}: {ratio:.3}, {shape:?}");
        }
    }
}

#[test]
fn the_planner_is_not_beaten_by_any_other_shape_by_much() {
    for (bytes, nodes) in [(8 * KIB, 200), (MIB, 200), (16 * MIB, 500), (64 * MIB, 100)] {
        let staging = staging(bytes, nodes);
        let chosen_us = staging.run().last_byte_us;
        for fan_out in [1, 2, 3, 4, 8, 16] {
            for source_fan_out in [1, fan_out] {
                let tried = Shape { fan_out, source_fan_out, ..chain() };
                let tried_us = staging.run_with(tried).last_byte_us;
                assert!(chosen_us <= tried_us * 1.1, "{bytes} to {nodes}: {tried:?}");
            }
        }
    }
}

#[test]
fn ten_thousand_nodes_come_within_twice_of_what_is_possible() {
    let staging = staging(64 * MIB, 10_000);
    let outcome = staging.run();
    let over = over_limit(&staging, &outcome);
    assert!(over < 2.1, "{over:.2} times the limit: {outcome:?}");
}

#[test]
fn deaths_cost_a_bounded_time() {
    for (bytes, nodes) in [(64 * MIB, 16), (64 * MIB, 1000), (8 * KIB, 1000)] {
        let quiet = staging(bytes, nodes);
        // One of sixteen, one of a hundred.
        let dying_per_mille = if nodes == 16 { 63 } else { 10 };
        for seed in 1..4 {
            let dying = Staging { dying_per_mille, seed, ..quiet };
            let outcome = dying.run();
            assert!(outcome.dead >= 1 && outcome.without == 0, "{outcome:?}");
            let cost_us = outcome.last_byte_us - quiet.run().last_byte_us;
            let bound_us = 2.0 * dying.notice_us as f64;
            assert!(cost_us <= bound_us, "{bytes} to {nodes}: {cost_us} us, {outcome:?}");
        }
    }
}

#[test]
fn slow_nodes_hold_up_themselves_only() {
    for nodes in [16, 1000] {
        let quiet = staging(64 * MIB, nodes);
        let slow_per_mille = if nodes == 16 { 63 } else { 20 };
        for seed in 1..4 {
            let slow = Staging { slow_per_mille, seed, ..quiet };
            let (outcome, quiet_us) = (slow.run(), quiet.run().last_byte_us);
            assert_eq!(outcome.without, 0);
            assert!(outcome.last_byte_us <= quiet_us * 1.6, "{quiet_us} us, {outcome:?}");
            let alone_us = 4.0 * slow.physical_limit_us();
            assert!(outcome.slow_last_byte_us < alone_us * 2.0, "{alone_us} us, {outcome:?}");
        }
    }
}

#[test]
fn late_nodes_do_not_load_the_source() {
    for nodes in [16, 1000] {
        let staging = Staging { late_per_mille: 250, ..staging(64 * MIB, nodes) };
        let outcome = staging.run();
        assert_eq!(outcome.late_at_source, 0, "{outcome:?}");
        let shape = Shape::choose(staging.bytes, nodes as usize * 3 / 4, 0, staging.links);
        let sent_bytes = u64::from(shape.source_fan_out) * staging.bytes;
        assert_eq!(outcome.source_sent_bytes, sent_bytes, "{outcome:?}");
        assert!(outcome.late_longest_us < 3.0 * shape.estimated_us as f64, "{outcome:?}");
    }
}

#[test]
fn everything_at_once_leaves_nobody_without() {
    for seed in 0..8 {
        for bytes in [8 * KIB, 16 * MIB] {
            let staging = Staging {
                seed,
                slow_per_mille: 100,
                dying_per_mille: 200,
                late_per_mille: 200,
                ..staging(bytes, 200)
            };
            let outcome = staging.run();
            assert_eq!((outcome.without, outcome.dead), (0, 40), "{outcome:?}");
        }
    }
}
