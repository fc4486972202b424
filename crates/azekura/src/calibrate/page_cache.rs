//! How much of what is written this machine's kernel takes into memory before it makes writers wait. Owns the
//! kernel's settings for that; how fast the storage is, is measured and not read anywhere.

use std::path::Path;

use crate::host::mounts;

const SETTINGS: &str = "/proc/sys/vm";
const MEMORY: &str = "/proc/meminfo";
/// File systems that are memory, or whose server says when a writer has to wait: the kernel's settings tell
/// nothing of them.
const OTHERS: [&str; 7] = ["tmpfs", "ramfs", "fuse", "nfs", "9p", "cifs", "ceph"];

/// MiB that may be written into a directory before its writers have to wait for the storage; `None` where
/// that does not follow from the kernel's settings.
pub(super) fn taken_in_mib(dir: &Path) -> Option<f64> {
    let (kind, _) = mounts::kind_of(dir)?;
    if OTHERS.iter().any(|other| kind.starts_with(other)) {
        return None;
    }
    let read = |name: &str| std::fs::read_to_string(format!("{SETTINGS}/{name}")).ok();
    let memory = std::fs::read_to_string(MEMORY).ok()?;
    limit_mib(available_mib(&memory)?, read)
}

fn available_mib(memory: &str) -> Option<f64> {
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Writers begin to wait half way between where writing back begins and the limit (the kernel's
/// `dirty_freerun_ceiling` in `mm/page-writeback.c`).
fn limit_mib(available_mib: f64, setting: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let number = |name: &str| setting(name)?.trim().parse::<f64>().ok();
    let of = |kind: &str| {
        // Bytes count where they are set; else a share of what is available.
        match number(&format!("{kind}_bytes")) {
            Some(bytes) if bytes > 0.0 => Some(bytes / f64::from(1 << 20)),
            _ => Some(number(&format!("{kind}_ratio"))? / 100.0 * available_mib),
        }
    };
    Some(f64::midpoint(of("dirty")?, of("dirty_background")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_wait_half_way_to_the_limit() {
        let shares = |name: &str| {
            let text = match name {
                "dirty_ratio" => "20\n",
                "dirty_background_ratio" => "10\n",
                _ => "0\n",
            };
            Some(text.to_owned())
        };
        assert_eq!(limit_mib(1000.0, shares), Some(150.0));
        let bytes = |name: &str| {
            (name == "dirty_bytes").then(|| "104857600\n".to_owned()).or_else(|| shares(name))
        };
        assert_eq!(limit_mib(1000.0, bytes), Some(100.0));
        assert_eq!(limit_mib(1000.0, |_| None), None);
        assert_eq!(available_mib("MemTotal: 5 kB\nMemAvailable:    2048 kB\n"), Some(2.0));
        assert_eq!(available_mib("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn memory_has_no_storage_behind_it() {
        assert_eq!(taken_in_mib(Path::new("/dev/shm")), None);
    }
}
