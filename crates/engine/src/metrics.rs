//! Counters of an engine, and their Prometheus text over HTTP. Owns the names of all metrics; they
//! stand here and nowhere else.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let last = Sample { at: Instant::now(), requests: 0, read_bytes: 0, written_bytes: 0 };
        Self {
            requests: RwLock::default(),
            request_count: AtomicU64::new(0),
            failed_count: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            refused_count: AtomicU64::new(0),
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
    pub(crate) fn sample(&self) {
        let now = Sample {
            at: Instant::now(),
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
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, value: u64| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        family(
            "azekura_engine_failed_requests_total",
            "counter",
            "Requests answered with an error.",
            load(&self.failed_count),
        );
        family(
            "azekura_engine_read_bytes_total",
            "counter",
            "Bytes read by clients.",
            load(&self.read_bytes),
        );
        family(
            "azekura_engine_written_bytes_total",
            "counter",
            "Bytes written by clients.",
            load(&self.written_bytes),
        );
        family(
            "azekura_engine_refused_connections_total",
            "counter",
            "Connections that did not get past the handshake.",
            load(&self.refused_count),
        );
        family("azekura_engine_connections", "gauge", "Connections open.", load(&self.connections));
        family("azekura_engine_sessions", "gauge", "Sessions known.", gauges.sessions);
        family("azekura_engine_objects", "gauge", "Inodes stored.", gauges.objects);
        family(
            "azekura_engine_reclaim_backlog",
            "gauge",
            "Removed objects that wait for reclaim.",
            gauges.reclaim_backlog,
        );
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

/// Serves `GET /metrics` until told to stop.
pub(crate) fn serve(
    server: &tiny_http::Server,
    metrics: &Metrics,
    stopping: &AtomicBool,
    gauges: impl Fn() -> Gauges,
) {
    while !stopping.load(Ordering::Relaxed) {
        let Ok(Some(request)) = server.recv_timeout(Duration::from_millis(500)) else { continue };
        let response = if request.url() == "/metrics" {
            tiny_http::Response::from_string(metrics.render(&gauges()))
        } else {
            tiny_http::Response::from_string("see /metrics\n").with_status_code(404)
        };
        // A reader that has gone away needs no answer.
        let _ = request.respond(response);
    }
}
