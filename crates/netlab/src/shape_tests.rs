//! The rules of a link under a clock that the test moves.

use super::*;

const MS: u64 = 1_000_000;

fn shaper(settings: &[(&str, &str)]) -> Shaper {
    let mut shape = Shape::default();
    for (key, value) in settings {
        shape.set(key, value).unwrap();
    }
    Shaper::new(shape, 7)
}

fn offer(shaper: &mut Shaper, now_ns: u64, burst: &Burst) -> Vec<Piece> {
    let mut pieces = Vec::new();
    shaper.offer(now_ns, burst, &mut pieces);
    pieces
}

#[test]
fn a_bare_link_passes_bursts_whole_and_at_once() {
    let burst = Burst::segmented(52, 1448, 60_000);
    let pieces = offer(&mut shaper(&[]), 5, &burst);
    assert_eq!(pieces, [Piece { first: 0, segments: burst.segments, finish_ns: 5, due_ns: 5 }]);
}

#[test]
fn delay_is_added_to_every_packet() {
    let mut link = shaper(&[("delay", "50ms")]);
    for now in [0, 3, 80 * MS] {
        assert_eq!(offer(&mut link, now, &Burst::single(100))[0].due_ns, now + 50 * MS);
    }
}

#[test]
fn a_gigabit_has_the_goodput_of_gigabit_ethernet() {
    let mut link = shaper(&[("rate", "1gbit"), ("queue", "1GB")]);
    let burst = Burst::segmented(52, 1448, 1448 * 45);
    let mut last = 0;
    for _ in 0..1000 {
        last = offer(&mut link, 0, &burst).last().unwrap().due_ns;
    }
    let goodput = 1448.0 * 45.0 * 1000.0 / (last as f64 / 1e9);
    assert!((goodput / 117.7e6 - 1.0).abs() < 0.001, "{goodput}");
}

#[test]
fn the_rate_has_no_rounding_error() {
    let mut link = shaper(&[("rate", "7mbit"), ("queue", "1GB")]);
    let mut last = 0;
    for _ in 0..7000 {
        last = offer(&mut link, 0, &Burst::single(962))[0].due_ns;
    }
    assert_eq!(last, 8_000_000_000);
}

#[test]
fn short_packets_are_padded_as_on_ethernet() {
    let mut link = shaper(&[("rate", "8kbit")]);
    assert_eq!(offer(&mut link, 0, &Burst::single(30))[0].due_ns, 84_000_000);
}

#[test]
fn a_burst_arrives_in_pieces_of_bounded_length() {
    let mut link = shaper(&[("rate", "100mbit")]);
    let burst = Burst::segmented(52, 1448, 1448 * 45);
    let pieces = offer(&mut link, 0, &burst);
    assert!(pieces.len() >= 22, "{}", pieces.len());
    assert_eq!(pieces.iter().map(|p| p.segments).sum::<u32>(), 45);
    let mut next = 0;
    for piece in &pieces {
        assert_eq!(piece.first, next);
        next += piece.segments;
    }
    assert!(pieces.is_sorted_by_key(|p| p.due_ns));
    // Eight segments take 984 us.
    let mut coarse = shaper(&[("rate", "100mbit"), ("lump", "1ms")]);
    let pieces = offer(&mut coarse, 0, &burst);
    assert_eq!(pieces.iter().map(|p| p.segments).collect::<Vec<_>>(), [8, 8, 8, 8, 8, 5]);
}

#[test]
fn a_full_queue_drops_the_tail() {
    let mut link = shaper(&[("rate", "8mbit"), ("queue", "10")]);
    let burst = Burst::segmented(40, 1000, 16_000);
    let kept: u32 = offer(&mut link, 0, &burst).iter().map(|p| p.segments).sum();
    assert_eq!((kept, link.counters.queue_drops), (10, 6));
    // When the first packets are through there is room again.
    let later = offer(&mut link, 3 * 1_078_000, &burst);
    assert_eq!(later.iter().map(|p| p.segments).sum::<u32>(), 3);
    assert!(link.waiting_bytes(3 * 1_078_000) <= 10 * 1078);
}

#[test]
fn a_queue_in_bytes_holds_that_many() {
    let mut link = shaper(&[("rate", "8mbit"), ("queue", "5000B")]);
    let kept: u32 =
        offer(&mut link, 0, &Burst::segmented(40, 1000, 16_000)).iter().map(|p| p.segments).sum();
    assert_eq!(kept, 4);
}

#[test]
fn the_automatic_queue_grows_with_the_round_trip() {
    let mut link = shaper(&[("rate", "1gbit"), ("delay", "200ms")]);
    let burst = Burst::segmented(52, 1448, 1448 * 45);
    for _ in 0..2000 {
        offer(&mut link, 0, &burst);
    }
    let bytes = link.waiting_bytes(0);
    assert!((49_900_000..=50_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn losses_hit_single_segments() {
    let mut link = shaper(&[("loss", "1%")]);
    let burst = Burst::segmented(52, 1448, 1448 * 40);
    let mut kept = 0;
    for _ in 0..2500 {
        kept += u64::from(offer(&mut link, 0, &burst).iter().map(|p| p.segments).sum::<u32>());
    }
    assert_eq!(kept + link.counters.lost, 100_000);
    assert!((850..1150).contains(&link.counters.lost), "{}", link.counters.lost);
}

#[test]
fn jitter_varies_the_delay_but_keeps_the_order() {
    let mut link = shaper(&[("delay", "10ms"), ("jitter", "2ms")]);
    let mut dues = Vec::new();
    for index in 0..1000 {
        dues.push(offer(&mut link, index * 10_000, &Burst::single(100))[0].due_ns);
    }
    assert!(dues.is_sorted());
    for (index, due) in dues.iter().enumerate() {
        let late = due - index as u64 * 10_000;
        assert!((8 * MS..=12 * MS + 1).contains(&late), "{late}");
    }
}

#[test]
fn reordered_segments_come_after_their_neighbours() {
    let mut link = shaper(&[("delay", "10ms"), ("reorder", "5%")]);
    let pieces = offer(&mut link, 0, &Burst::segmented(52, 100, 40_000));
    let late = pieces.iter().filter(|piece| piece.due_ns > 10 * MS).count() as u64;
    assert!(late > 0);
    assert_eq!(late, link.counters.reordered);
    assert_eq!(pieces.iter().map(|p| p.segments).sum::<u32>(), 400);
}

#[test]
fn what_waits_goes_at_a_new_rate() {
    let mut link = shaper(&[("rate", "8mbit")]);
    let burst = Burst::segmented(40, 1000, 16_000);
    let last = offer(&mut link, 0, &burst).last().unwrap().finish_ns;
    let mut faster = link.shape().clone();
    faster.set("rate", "80mbit").unwrap();
    let rescale = link.change(0, faster.clone());
    assert_eq!(rescale.apply(last), last / 10);
    faster.rate_bits_per_s = None;
    assert_eq!(link.change(0, faster).apply(last / 10), 0);
    assert_eq!(offer(&mut link, 0, &burst)[0].due_ns, 0);
}

#[test]
fn a_shorter_path_lets_new_packets_overtake() {
    let mut link = shaper(&[("delay", "100ms")]);
    assert_eq!(offer(&mut link, 0, &Burst::single(100))[0].due_ns, 100 * MS);
    let mut shorter = link.shape().clone();
    shorter.delay_ns = MS;
    link.change(MS, shorter);
    assert_eq!(offer(&mut link, MS, &Burst::single(100))[0].due_ns, 2 * MS);
}

#[test]
fn unknown_properties_are_named() {
    let error = Shape::default().set("latency", "1ms").unwrap_err();
    assert!(error.contains("latency") && error.contains("delay"), "{error}");
}
