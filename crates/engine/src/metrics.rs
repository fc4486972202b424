//! Counters of an engine, and their Prometheus text. Owns the names of all metrics; they
//! stand here and nowhere else.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

/// Counters that only grow, and what they grew by per second lately.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: RwLock<HashMap<&'static str, Arc<AtomicU64>>>,
    pub(crate) request_count: AtomicU64,
    pub(crate) failed_count: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) refused_count: AtomicU64,
    pub(crate) descriptors: AtomicU64,
    last: Mutex<Sample>,
    rates: Mutex<Rates>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    requests: u64,
    read_bytes: u64,
    written_bytes: u64,
}

/// What happened per second since the sample before.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_field_names)] // The unit stands last in every name.
pub(crate) struct Rates {
    pub(crate) requests_per_s: u64,
    pub(crate) read_bytes_per_s: u64,
    pub(crate) written_bytes_per_s: u64,
}

/// What is measured when asked for, beside the counters.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) sessions: u64,
    pub(crate) reclaim_backlog: u64,
    pub(crate) objects: u64,
    pub(crate) set_aside: u64,
}

impl Metrics {
    pub(crate) fn new(now: Instant) -> Self {
        let last = Sample { at: now, requests: 0, read_bytes: 0, written_bytes: 0 };
        Self {
            requests: RwLock::default(),
            request_count: AtomicU64::new(0),
            failed_count: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            refused_count: AtomicU64::new(0),
            descriptors: AtomicU64::new(0),
            last: Mutex::new(last),
            rates: Mutex::default(),
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self, name: &'static str) {
        self.request_count.fetch_add(1, Ordering::Relaxed);
        if let Some(counter) = self.requests.read().get(name) {
            counter.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.requests.write().entry(name).or_default().fetch_add(1, Ordering::Relaxed);
    }

    /// Computes the rates anew; called about once a second.
    pub(crate) fn sample(&self, now: Instant) {
        let now = Sample {
            at: now,
            requests: self.request_count.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        };
        let before = std::mem::replace(&mut *self.last.lock(), now);
        let elapsed_ms = (now.at - before.at).as_millis().max(1) as u64;
        let per_s = |new: u64, old: u64| (new - old).saturating_mul(1000) / elapsed_ms;
        *self.rates.lock() = Rates {
            requests_per_s: per_s(now.requests, before.requests),
            read_bytes_per_s: per_s(now.read_bytes, before.read_bytes),
            written_bytes_per_s: per_s(now.written_bytes, before.written_bytes),
        };
    }

    pub(crate) fn rates(&self) -> Rates {
        *self.rates.lock()
    }

    /// The Prometheus text format, version 0.0.4.
    pub(crate) fn render(&self, gauges: &Gauges) -> String {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let families = [
            ("failed_requests_total", "Requests answered with an error.", load(&self.failed_count)),
            ("read_bytes_total", "Bytes read by clients.", load(&self.read_bytes)),
            ("written_bytes_total", "Bytes written by clients.", load(&self.written_bytes)),
            (
                "refused_connections_total",
                "Connections that did not get past the handshake.",
                load(&self.refused_count),
            ),
            (
                "passed_descriptors_total",
                "Files that clients of this host got to read by themselves.",
                load(&self.descriptors),
            ),
            ("connections", "Connections open.", load(&self.connections)),
            ("sessions", "Sessions known.", gauges.sessions),
            ("objects", "Inodes stored.", gauges.objects),
            ("reclaim_backlog", "Removed objects that wait for reclaim.", gauges.reclaim_backlog),
            ("set_aside", "Records that cannot be dealt with.", gauges.set_aside),
        ];
        let mut text = String::new();
        for (name, help, value) in families {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let name = format!("azekura_engine_{name}");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        let name = "azekura_engine_requests_total";
        let _ = writeln!(text, "# HELP {name} Requests, by kind.\n# TYPE {name} counter");
        let mut kinds: Vec<(&str, u64)> =
            self.requests.read().iter().map(|(kind, count)| (*kind, load(count))).collect();
        kinds.sort_unstable();
        for (kind, count) in kinds {
            let _ = writeln!(text, "{name}{{kind=\"{kind}\"}} {count}");
        }
        text
    }
}
