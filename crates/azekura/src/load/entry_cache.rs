//! The kernel's cache of names and attributes, which stands between a load and the file system.

use std::time::Duration;

/// Longer than a mount believes what it was told, with its default settings.
const CACHE_LIFE: Duration = Duration::from_millis(1_200);

/// Makes the kernel forget names and attributes, so that asking for them asks the file system. Says how.
pub fn drop_cached_entries() -> &'static str {
    if std::fs::write("/proc/sys/vm/drop_caches", b"2").is_ok() {
        return "dropped by the kernel (drop_caches)";
    }
    std::thread::sleep(CACHE_LIFE);
    "waited 1.2 s for them to expire (dropping them needs root)"
}
