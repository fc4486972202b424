//! Sizes and rates as people write and read them. Powers of 1024 carry an `i` (KiB, MiB, GiB).

const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Reads `4096`, `4k`, `256KiB`, `1MiB`, `1.5GiB`. Letters may be of either case, and all
/// multiples are of 1024.
///
/// # Errors
/// A sentence that says how to write a size.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let form = || format!("'{text}' is not a size: write 4096, 256KiB, 1MiB or 1GiB");
    let digits = text.trim();
    let unit_at = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, unit) = digits.split_at(unit_at);
    let power = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        _ => return Err(form()),
    };
    let scale = 1u64 << (10 * power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(form);
    }
    let value = number.parse::<f64>().map_err(|_| form())? * scale as f64;
    if value.is_finite() && value < u64::MAX as f64 { Ok(value as u64) } else { Err(form()) }
}

/// Reads a size that has to fit into 32 bits, such as a chunk size.
///
/// # Errors
/// A sentence that says how to write a size.
pub(crate) fn parse_size_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse_bytes(text)?).map_err(|_| format!("'{text}' is too large"))
}

/// A size with at most one decimal: `512 B`, `1 MiB`, `3.4 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut index = 0;
    while value >= 1024.0 && index + 1 < NAMES.len() {
        value /= 1024.0;
        index += 1;
    }
    if value.fract() < 0.05 || value >= 100.0 {
        format!("{value:.0} {}", NAMES[index])
    } else {
        format!("{value:.1} {}", NAMES[index])
    }
}

/// A number that spans orders of magnitude, to three or four digits.
pub fn format_rate(value: f64) -> String {
    if value >= 100.0 {
        let whole = format!("{value:.0}");
        let mut out = String::new();
        for (index, digit) in whole.chars().enumerate() {
            if index > 0 && (whole.len() - index).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        out
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Seconds as `12s`, `3m12s`, `5h03m`, `2d05h`.
pub fn format_duration_s(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_common_spelling() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("256KiB", 262_144),
            ("1 MiB", 1 << 20),
            ("1g", 1 << 30),
            ("1.5GiB", 3 << 29),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1XB", "-1", "99999999999P", "1.2.3k"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_rates_and_times_are_short() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(1 << 20), "1 MiB");
        assert_eq!(format_bytes(3_650_722_201), "3.4 GiB");
        assert_eq!(format_rate(123_456.7), "123,457");
        assert_eq!(format_rate(0.754), "0.75");
        assert_eq!(format_duration_s(59), "59s");
        assert_eq!(format_duration_s(3_905), "1h05m");
    }
}
