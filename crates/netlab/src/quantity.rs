//! Delays, rates, shares and queue limits as people write them, and the way back. Pure text; knows
//! no links.

use serde::Serialize;

/// How much may wait in front of a link before packets are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueLimit {
    /// One round trip's worth of bytes at the link's rate, at least 1000 full packets.
    #[default]
    Auto,
    /// At most that many packets on the wire's size.
    Packets(u64),
    /// At most that many bytes.
    Bytes(u64),
}

fn split(text: &str) -> (&str, String) {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    (number, unit.trim().to_ascii_lowercase())
}

fn scaled(number: &str, scale: f64) -> Option<f64> {
    let value = number.parse::<f64>().ok()? * scale;
    (0.0..9e18).contains(&value).then_some(value)
}

/// Reads `50ms`, `200us`, `1.5s`, `0` as nanoseconds; at most an hour.
///
/// # Errors
/// A sentence that says how to write a delay.
pub fn parse_delay_ns(text: &str) -> Result<u64, String> {
    let form = || format!("'{text}' is not a delay: write 50ms, 200us or 1.5s");
    let (number, unit) = split(text);
    let scale = match unit.as_str() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if number.parse::<f64>() == Ok(0.0) => 1.0,
        _ => return Err(form()),
    };
    let value = scaled(number, scale).ok_or_else(form)?;
    if value > 3600e9 {
        return Err(format!("'{text}' is longer than an hour"));
    }
    Ok(value.round() as u64)
}

/// Reads `1gbit`, `100mbit`, `64kbit` (multiples of 1000) as bits per second; `unlimited` is none.
///
/// # Errors
/// A sentence that says how to write a rate.
pub fn parse_rate_bits_per_s(text: &str) -> Result<Option<u64>, String> {
    let form = || format!("'{text}' is not a rate: write 1gbit, 100mbit, 64kbit or unlimited");
    if text.trim() == "unlimited" {
        return Ok(None);
    }
    let (number, unit) = split(text);
    let scale = match unit.trim_end_matches("/s").trim_end_matches("ps") {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(form()),
    };
    let value = scaled(number, scale).ok_or_else(form)?.round();
    if !(1000.0..=1e12).contains(&value) {
        return Err(format!("'{text}' is out of range: a rate is from 1kbit to 1000gbit"));
    }
    Ok(Some(value as u64))
}

/// Reads `0.1%` as 0.001; `0` is none.
///
/// # Errors
/// A sentence that says how to write a share.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let form = || format!("'{text}' is not a share of packets: write 0.1%, at most 100%");
    let number = match text.trim() {
        "0" => return Ok(0.0),
        other => other.strip_suffix('%').ok_or_else(form)?.trim(),
    };
    let share = scaled(number, 0.01).ok_or_else(form)?;
    if share <= 1.0 { Ok(share) } else { Err(form()) }
}

/// Reads `1000` (packets), `2MB` or `512KiB` (bytes), `auto`.
///
/// # Errors
/// A sentence that says how to write a queue limit.
pub fn parse_queue(text: &str) -> Result<QueueLimit, String> {
    let form =
        || format!("'{text}' is not a queue limit: write 1000 (packets), 2MB, 512KiB or auto");
    if text.trim() == "auto" {
        return Ok(QueueLimit::Auto);
    }
    let (number, unit) = split(text);
    let scale = match unit.as_str() {
        "" => {
            let packets = number.parse::<u64>().map_err(|_| form())?;
            return if packets > 0 { Ok(QueueLimit::Packets(packets)) } else { Err(form()) };
        }
        "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        _ => return Err(form()),
    };
    let bytes = scaled(number, scale).ok_or_else(form)? as u64;
    if bytes > 0 { Ok(QueueLimit::Bytes(bytes)) } else { Err(form()) }
}

/// Reads a size in bytes such as `128MiB`.
///
/// # Errors
/// A sentence that says how to write a size.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    match parse_queue(text) {
        Ok(QueueLimit::Bytes(bytes) | QueueLimit::Packets(bytes)) => Ok(bytes),
        _ => Err(format!("'{text}' is not a size: write 128MiB, 4MB or 65536")),
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A delay as it is written: `50ms`, `200us`.
pub fn format_delay(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        1..1_000_000 => format!("{}us", short(ns as f64 / 1e3)),
        1_000_000..10_000_000_000 => format!("{}ms", short(ns as f64 / 1e6)),
        _ => format!("{}s", short(ns as f64 / 1e9)),
    }
}

/// A rate as it is written: `1gbit`, `unlimited`.
pub fn format_rate(bits_per_s: Option<u64>) -> String {
    match bits_per_s {
        None => "unlimited".to_owned(),
        Some(rate) if rate >= 1_000_000_000 => format!("{}gbit", short(rate as f64 / 1e9)),
        Some(rate) if rate >= 1_000_000 => format!("{}mbit", short(rate as f64 / 1e6)),
        Some(rate) => format!("{}kbit", short(rate as f64 / 1e3)),
    }
}

/// A share as it is written: `0.1%`.
pub fn format_share(share: f64) -> String {
    if share == 0.0 { "0".to_owned() } else { format!("{}%", short(share * 100.0)) }
}

/// A queue limit as it is written.
pub fn format_queue(limit: QueueLimit) -> String {
    match limit {
        QueueLimit::Auto => "auto".to_owned(),
        QueueLimit::Packets(packets) => packets.to_string(),
        QueueLimit::Bytes(bytes) => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_have_units() {
        assert_eq!(parse_delay_ns("50ms"), Ok(50_000_000));
        assert_eq!(parse_delay_ns("1.5 s"), Ok(1_500_000_000));
        assert_eq!(parse_delay_ns("200us"), Ok(200_000));
        assert_eq!(parse_delay_ns("0"), Ok(0));
        for text in ["50", "ms", "-1ms", "1m", "", "2000000s", "1.2.3ms"] {
            assert!(parse_delay_ns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_decimal() {
        assert_eq!(parse_rate_bits_per_s("1gbit"), Ok(Some(1_000_000_000)));
        assert_eq!(parse_rate_bits_per_s("2.5Mbit/s"), Ok(Some(2_500_000)));
        assert_eq!(parse_rate_bits_per_s("unlimited"), Ok(None));
        for text in ["1", "1gb", "0gbit", "1tbit", "gbit"] {
            assert!(parse_rate_bits_per_s(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_per_cent() {
        assert_eq!(parse_share("50%"), Ok(0.5));
        assert_eq!(parse_share("0"), Ok(0.0));
        for text in ["0.1", "101%", "%", "-1%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn queues_count_packets_or_bytes() {
        assert_eq!(parse_queue("1000"), Ok(QueueLimit::Packets(1000)));
        assert_eq!(parse_queue("2MB"), Ok(QueueLimit::Bytes(2_000_000)));
        assert_eq!(parse_queue("512KiB"), Ok(QueueLimit::Bytes(524_288)));
        assert_eq!(parse_queue("auto"), Ok(QueueLimit::Auto));
        for text in ["0", "0B", "x", "1.5", "10ms"] {
            assert!(parse_queue(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for ns in [0, 1_000, 250_000, 50_000_000, 12_000_000_000] {
            assert_eq!(parse_delay_ns(&format_delay(ns)), Ok(ns));
        }
        for rate in [None, Some(64_000), Some(2_500_000), Some(1_000_000_000)] {
            assert_eq!(parse_rate_bits_per_s(&format_rate(rate)), Ok(rate));
        }
        for queue in [QueueLimit::Auto, QueueLimit::Packets(7), QueueLimit::Bytes(4096)] {
            assert_eq!(parse_queue(&format_queue(queue)), Ok(queue));
        }
        assert_eq!(format_share(0.001), "0.1%");
    }
}
