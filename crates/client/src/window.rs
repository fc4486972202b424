//! How much one connection carries. Owns what is believed of the system's buffers.

use std::ops::RangeInclusive;

/// What one connection surely carries per round trip, and the most that is believed of one.
const WINDOW_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 20;

/// What one connection carries per round trip, as the system's bounds for the buffers of a socket have
/// it. The other side's are not known; hosts of one site tend to be set alike.
pub(crate) fn connection_window_bytes() -> u64 {
    let bound = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    let bounds = ["tcp_rmem", "tcp_wmem"].map(bound);
    let smaller = bounds.into_iter().flatten().min().unwrap_or(0);
    // About half of a buffer is taken by what the system notes about the data.
    (smaller / 2).clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end())
}
