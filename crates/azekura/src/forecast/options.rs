//! Deadlines and numbers to try, as people write them.

use azekura_forecast::units::Seconds;
use azekura_forecast::{Calibration, Candidates, Job};

/// Numbers of one kind that are tried at most.
const NUMBERS_MAX: usize = 1024;

/// Numbers to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Of processes of each node.
    Processes(Vec<u32>),
    /// Of nodes.
    Nodes(Vec<u32>),
}

/// Reads `90s`, `15m`, `2h`, `1h30m`, and hours and minutes as `02:00`, seconds as well as `00:01:30`.
///
/// # Errors
/// A sentence that says how to write a time.
pub(super) fn parse_time(text: &str) -> Result<Seconds, String> {
    let form = || format!("'{text}' is not a time: write 90s, 15m, 2h, or 02:00 for two hours");
    let seconds = if text.contains(':') { by_colons(text) } else { by_units(text) };
    let seconds = seconds.filter(|seconds| seconds.is_finite()).ok_or_else(form)?;
    if seconds > 0.0 { Ok(Seconds(seconds)) } else { Err(format!("'{text}' is no time at all")) }
}

fn whole(digits: &str) -> Option<f64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

fn by_colons(text: &str) -> Option<f64> {
    let parts: Vec<f64> = text.split(':').map(whole).collect::<Option<_>>()?;
    match parts[..] {
        [hours, minutes] if minutes < 60.0 => Some(hours * 3600.0 + minutes * 60.0),
        [hours, minutes, seconds] if minutes < 60.0 && seconds < 60.0 => {
            Some(hours * 3600.0 + minutes * 60.0 + seconds)
        }
        _ => None,
    }
}

fn by_units(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut seconds = 0.0;
    let mut last = f64::INFINITY;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = match rest.as_bytes()[end] {
            b's' => 1.0,
            b'm' => 60.0,
            b'h' => 3600.0,
            b'd' => 86_400.0,
            _ => return None,
        };
        if unit >= last {
            return None;
        }
        last = unit;
        seconds += number * unit;
        rest = &rest[end + 1..];
    }
    (last.is_finite()).then_some(seconds)
}

/// Reads `1,2,4`, `1..16` and both mixed; `nodes=` or `processes=` before it says of what.
///
/// # Errors
/// A sentence that says how to write them.
pub(super) fn parse_numbers(text: &str) -> Result<Numbers, String> {
    let (kind, parts) = text.split_once('=').unwrap_or(("processes", text));
    let form = || format!("'{text}' are no numbers: write 1,2,4 or 1..16, or nodes=1,2");
    let mut numbers = Vec::new();
    for part in parts.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let first: u32 = first.trim().parse().map_err(|_| form())?;
        let last: u32 = last.trim().parse().map_err(|_| form())?;
        if first == 0 || last < first {
            return Err(form());
        }
        let room = NUMBERS_MAX.saturating_sub(numbers.len());
        if (last - first) as usize >= room {
            return Err(format!("'{text}' are more than {NUMBERS_MAX} numbers"));
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    match kind.trim() {
        "processes" => Ok(Numbers::Processes(numbers)),
        "nodes" => Ok(Numbers::Nodes(numbers)),
        _ => Err(form()),
    }
}

/// What is to be tried: what was said; of what was not, the job's own number where the other was said, and
/// otherwise what was calibrated.
pub(super) fn candidates(said: &[Numbers], calibration: &Calibration, job: &Job) -> Candidates {
    let mut found = Candidates { processes: Vec::new(), nodes: Vec::new() };
    for numbers in said {
        match numbers {
            Numbers::Processes(numbers) => found.processes.extend(numbers),
            Numbers::Nodes(numbers) => found.nodes.extend(numbers),
        }
    }
    if said.is_empty() {
        return Candidates::within(calibration);
    }
    for (numbers, own) in [(&mut found.processes, job.processes), (&mut found.nodes, job.nodes)] {
        if numbers.is_empty() {
            numbers.push(own);
        }
        numbers.sort_unstable();
        numbers.dedup();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("90s", 90.0),
            ("1.5m", 90.0),
            ("2h", 7200.0),
            ("1h30m", 5400.0),
            ("02:00", 7200.0),
            ("0:01:30", 90.0),
            ("36:00", 129_600.0),
        ] {
            assert_eq!(parse_time(text), Ok(Seconds(seconds)), "{text}");
        }
        for text in
            ["", "5", "h", "2x", "-1s", "1m2h", "1:60", "1:2:3:4", "0s", "00:00", "1s1s", "1:+5"]
        {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_lists_and_ranges() {
        let processes = |list: &[u32]| Ok(Numbers::Processes(list.to_vec()));
        assert_eq!(parse_numbers("4,1,2,2"), processes(&[1, 2, 4]));
        assert_eq!(parse_numbers("1..3,8"), processes(&[1, 2, 3, 8]));
        assert_eq!(parse_numbers("processes=7"), processes(&[7]));
        assert_eq!(parse_numbers("nodes=1..2"), Ok(Numbers::Nodes(vec![1, 2])));
        for text in ["", "0", "3..1", "a", "1..", "cores=2", "1..4000000000", "1,,2", "-1"] {
            assert!(parse_numbers(text).is_err(), "{text}");
        }
    }
}
