//! Which way requests of the kernel take: `/dev/fuse`, or an io_uring for each processor (Linux 6.14
//! and later). Owns the choice and the reason against it; the ways themselves are [`crate::session`]
//! and [`crate::queues`].

use std::ops::RangeInclusive;
use std::path::Path;

/// The kernel's switch.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// The machine's switch for all of io_uring.
const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

/// Which way requests take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// Over io_uring where the kernel offers it, else over the device.
    Auto,
    /// Over io_uring, or not at all.
    Uring,
    /// Over `/dev/fuse`.
    #[default]
    Device,
}

/// Why the kernel does not offer FUSE over io_uring, and what to do; `None` if it does.
pub fn uring_refusal() -> Option<String> {
    refusal(Path::new(SWITCH), Path::new(DISABLED))
}

fn refusal(switch: &Path, disabled: &Path) -> Option<String> {
    match std::fs::read_to_string(switch).as_deref().map(str::trim) {
        Ok("Y" | "1") => {}
        Ok(_) => return Some(format!("it is switched off: 'echo Y > {SWITCH}' as root")),
        Err(_) => {
            return Some("this kernel does not know it: Linux 6.14 or newer does".to_owned());
        }
    }
    match std::fs::read_to_string(disabled).as_deref().map(str::trim) {
        Ok("2") => Some(
            "the machine forbids io_uring: 'sysctl kernel.io_uring_disabled=0' as root".to_owned(),
        ),
        _ => None,
    }
}

/// Number of processors that this machine can have, each of which has a queue; `None` if the kernel
/// does not tell.
pub(crate) fn possible_processors() -> Option<u16> {
    count_listed(std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?.trim())
}

/// Whether programs can run on a processor now; if the kernel does not tell, they can.
pub(crate) fn is_online(processor: u16) -> bool {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = ranges(list.trim());
    ranges.is_none_or(|ranges| ranges.iter().any(|range| range.contains(&processor)))
}

fn count_listed(list: &str) -> Option<u16> {
    ranges(list)?
        .iter()
        .try_fold(0_u16, |count, range| count.checked_add(u16::try_from(range.len()).ok()?))
}

/// The ranges of a list such as `0-3,8`.
fn ranges(list: &str) -> Option<Vec<RangeInclusive<u16>>> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let range = from.parse().ok()?..=to.parse().ok()?;
        (!range.is_empty()).then_some(range)
    };
    list.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count_listed("0"), Some(1));
        assert_eq!(count_listed("0-1"), Some(2));
        assert_eq!(count_listed("0-3,8,10-11"), Some(7));
        for wrong in ["", "3-1", "a", "0-65535,1"] {
            assert_eq!(count_listed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_in_the_way_is_told_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let (switch, disabled) = (directory.path().join("switch"), directory.path().join("off"));
        assert!(refusal(&switch, &disabled).unwrap().contains("6.14"));
        std::fs::write(&switch, "N\n").unwrap();
        assert!(refusal(&switch, &disabled).unwrap().contains("echo Y > /sys/module/fuse"));
        std::fs::write(&switch, "Y\n").unwrap();
        assert_eq!(refusal(&switch, &disabled), None);
        std::fs::write(&disabled, "2\n").unwrap();
        assert!(refusal(&switch, &disabled).unwrap().contains("io_uring_disabled"));
    }
}
