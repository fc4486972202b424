//! Counters of a gateway, per procedure, and their Prometheus text. Owns the names of all metrics; they
//! stand here and nowhere else. Counting takes no lock, for every request of every client does it.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::procedures::{PROGRAMS, Program};

/// How many latencies are told apart: each bucket ends at twice the time of the one before, and the
/// last has no end.
const BUCKETS: usize = 21;
/// Where the first bucket ends, in microseconds.
const FIRST_US: u64 = 16;

/// Counters that only grow, and a few that say how it is.
#[derive(Debug)]
pub struct Metrics {
    programs: [ProgramCounters; PROGRAMS.len()],
    /// Calls of programs, versions and procedures that there are not, and calls that were not
    /// understood.
    pub refused_calls: AtomicU64,
    /// Calls that were answered from the reply cache, or dropped since their answer was on the way.
    pub repeated_calls: AtomicU64,
    /// Mounts that the exports do not admit.
    pub refused_mounts: AtomicU64,
    /// Connections that were closed at once, since there were too many.
    pub refused_connections: AtomicU64,
    /// Connections open now.
    pub connections: AtomicU64,
    /// Calls that were taken and have no answer yet.
    pub in_flight: AtomicU64,
}

#[derive(Debug)]
struct ProgramCounters {
    program: &'static Program,
    procedures: Vec<Counters>,
}

/// On cache lines of their own: what one thread counts must not slow down another that counts
/// something else.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    calls: AtomicU64,
    errors: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    latency_us: AtomicU64,
    latencies: [AtomicU64; BUCKETS],
}

/// One call, when its answer is ready to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The answer says that it failed.
    pub is_error: bool,
    /// The length of the call.
    pub bytes_in: u64,
    /// The length of the answer.
    pub bytes_out: u64,
    /// From the call's last byte to the answer's first.
    pub latency: Duration,
}

/// What has been counted of one procedure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcedureCounts {
    /// The program's short name.
    pub program: String,
    /// The procedure, as its RFC calls it.
    pub procedure: String,
    /// Calls answered.
    pub calls: u64,
    /// Of these, with an error.
    pub errors: u64,
    /// Bytes of calls.
    pub bytes_in: u64,
    /// Bytes of answers.
    pub bytes_out: u64,
    /// All latencies together, in microseconds.
    pub latency_us: u64,
    /// Latencies by bucket, for [`ProcedureCounts::latency_quantile`].
    pub latencies: Vec<u64>,
}

/// What has been counted until a moment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Procedures that were called.
    pub procedures: Vec<ProcedureCounts>,
    /// [`Metrics::refused_calls`].
    pub refused_calls: u64,
    /// [`Metrics::repeated_calls`].
    pub repeated_calls: u64,
    /// [`Metrics::refused_mounts`].
    pub refused_mounts: u64,
    /// [`Metrics::refused_connections`].
    pub refused_connections: u64,
    /// [`Metrics::connections`].
    pub connections: u64,
    /// [`Metrics::in_flight`].
    pub in_flight: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        let programs = PROGRAMS.map(|program| ProgramCounters {
            program,
            procedures: program.procedures.iter().map(|_| Counters::default()).collect(),
        });
        Self {
            programs,
            refused_calls: AtomicU64::new(0),
            repeated_calls: AtomicU64::new(0),
            refused_mounts: AtomicU64::new(0),
            refused_connections: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// Counts an answered call. One of a program or procedure that there is not counts as refused.
    pub fn count(&self, program: u32, procedure: u32, answered: Answered) {
        let counters = self
            .programs
            .iter()
            .find(|counted| counted.program.number == program)
            .and_then(|counted| counted.procedures.get(procedure as usize));
        let Some(counters) = counters else {
            add(&self.refused_calls, 1);
            return;
        };
        let latency_us = answered.latency.as_micros() as u64;
        add(&counters.calls, 1);
        if answered.is_error {
            add(&counters.errors, 1);
        }
        add(&counters.bytes_in, answered.bytes_in);
        add(&counters.bytes_out, answered.bytes_out);
        add(&counters.latency_us, latency_us);
        add(&counters.latencies[bucket(latency_us)], 1);
    }

    /// How it stands. Counters of calls that end meanwhile may disagree by these calls.
    pub fn snapshot(&self) -> Snapshot {
        let mut procedures = Vec::new();
        for ProgramCounters { program, procedures: counted } in &self.programs {
            for (name, counters) in program.procedures.iter().zip(counted) {
                if load(&counters.calls) > 0 {
                    procedures.push(counters.read(program.name, name));
                }
            }
        }
        Snapshot {
            procedures,
            refused_calls: load(&self.refused_calls),
            repeated_calls: load(&self.repeated_calls),
            refused_mounts: load(&self.refused_mounts),
            refused_connections: load(&self.refused_connections),
            connections: load(&self.connections),
            in_flight: load(&self.in_flight),
        }
    }
}

impl Counters {
    fn read(&self, program: &str, procedure: &str) -> ProcedureCounts {
        ProcedureCounts {
            program: program.to_owned(),
            procedure: procedure.to_owned(),
            calls: load(&self.calls),
            errors: load(&self.errors),
            bytes_in: load(&self.bytes_in),
            bytes_out: load(&self.bytes_out),
            latency_us: load(&self.latency_us),
            latencies: self.latencies.iter().map(load).collect(),
        }
    }
}

impl ProcedureCounts {
    /// The latency that this share of the calls (0 to 1) did not exceed, to a factor of two; `None` if
    /// there were none, or it took longer than is told apart.
    pub fn latency_quantile(&self, share: f64) -> Option<Duration> {
        let calls: u64 = self.latencies.iter().sum();
        let wanted = (calls as f64 * share).ceil().max(1.0) as u64;
        let mut below = 0;
        let reached = self.latencies.iter().position(|count| {
            below += count;
            below >= wanted
        });
        reached.and_then(end_us).map(Duration::from_micros)
    }
}

impl Snapshot {
    /// All calls of all procedures.
    pub fn calls(&self) -> u64 {
        self.procedures.iter().map(|counted| counted.calls).sum()
    }

    /// The Prometheus text format, version 0.0.4.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let alone = [
            ("refused_calls_total", "Calls that were not understood.", self.refused_calls),
            ("repeated_calls_total", "Calls that had been here before.", self.repeated_calls),
            ("refused_mounts_total", "Mounts that were not admitted.", self.refused_mounts),
            (
                "refused_connections_total",
                "Connections closed at once, being too many.",
                self.refused_connections,
            ),
            ("connections", "Connections open.", self.connections),
            ("in_flight", "Calls without an answer yet.", self.in_flight),
        ];
        for (name, help, value) in alone {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let name = head(&mut text, name, help, kind);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {value}");
        }
        self.render_procedures(&mut text);
        self.render_latencies(&mut text);
        text
    }

    fn render_procedures(&self, text: &mut String) {
        type Value = fn(&ProcedureCounts) -> u64;
        let families: [(&str, &str, Value); 4] = [
            ("calls_total", "Calls answered.", |counted| counted.calls),
            ("errors_total", "Calls answered with an error.", |counted| counted.errors),
            ("received_bytes_total", "Bytes of calls.", |counted| counted.bytes_in),
            ("sent_bytes_total", "Bytes of answers.", |counted| counted.bytes_out),
        ];
        for (name, help, value) in families {
            let name = head(text, name, help, "counter");
            for counted in &self.procedures {
                let _ = writeln!(text, "{name}{{{}}} {}", counted.labels(), value(counted));
            }
        }
    }

    fn render_latencies(&self, text: &mut String) {
        let name = head(text, "latency_seconds", "From call to answer.", "histogram");
        for counted in &self.procedures {
            let labels = counted.labels();
            let mut below = 0;
            for (bucket, count) in counted.latencies.iter().enumerate() {
                below += count;
                let end = end_us(bucket).map_or("+Inf".to_owned(), seconds);
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{end}\"}} {below}");
            }
            let _ = writeln!(text, "{name}_sum{{{labels}}} {}", seconds(counted.latency_us));
            let _ = writeln!(text, "{name}_count{{{labels}}} {below}");
        }
    }
}

impl ProcedureCounts {
    fn labels(&self) -> String {
        format!("program=\"{}\",procedure=\"{}\"", self.program, self.procedure)
    }
}

/// Begins a family of metrics, and gives its whole name.
fn head(text: &mut String, name: &str, help: &str, kind: &str) -> String {
    let name = format!("azekura_nfs_{name}");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    name
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The bucket of a latency: the first that does not end below it.
fn bucket(latency_us: u64) -> usize {
    let doublings = latency_us.div_ceil(FIRST_US).max(1).next_power_of_two().trailing_zeros();
    (doublings as usize).min(BUCKETS - 1)
}

/// Where a bucket ends, itself included; the last does not.
fn end_us(bucket: usize) -> Option<u64> {
    (bucket < BUCKETS - 1).then(|| FIRST_US << bucket)
}

fn seconds(us: u64) -> String {
    format!("{}", us as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedures::{MOUNT, NFS};

    fn answered(us: u64) -> Answered {
        let latency = Duration::from_micros(us);
        Answered { is_error: us == 0, bytes_in: 100, bytes_out: 20, latency }
    }

    #[test]
    fn calls_are_counted_by_procedure() {
        let metrics = Metrics::default();
        metrics.count(NFS.number, 1, answered(0));
        metrics.count(NFS.number, 1, answered(30));
        metrics.count(MOUNT.number, 5, answered(5));
        let snapshot = metrics.snapshot();
        assert_eq!((snapshot.calls(), snapshot.procedures.len()), (3, 2));
        let getattr = &snapshot.procedures[0];
        assert_eq!((&*getattr.program, &*getattr.procedure), ("nfs", "GETATTR"));
        assert_eq!((getattr.calls, getattr.errors), (2, 1));
        assert_eq!((getattr.bytes_in, getattr.bytes_out, getattr.latency_us), (200, 40, 30));
        assert_eq!(snapshot.procedures[1].procedure, "EXPORT");
    }

    #[test]
    fn what_there_is_not_counts_as_refused() {
        let metrics = Metrics::default();
        metrics.count(NFS.number, 22, answered(1));
        metrics.count(1, 0, answered(1));
        assert_eq!((metrics.snapshot().calls(), metrics.snapshot().refused_calls), (0, 2));
    }

    #[test]
    fn every_latency_has_the_bucket_that_holds_it() {
        for us in (0..10_000).chain([16 << 19, (16 << 19) + 1, u64::MAX / 32, u64::MAX >> 1]) {
            let at = bucket(us);
            assert!(end_us(at).is_none_or(|end| us <= end), "{us}");
            assert!(at == 0 || end_us(at - 1).unwrap() < us, "{us}");
        }
        assert_eq!(bucket(u64::MAX >> 1), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_right_to_a_factor_of_two() {
        let metrics = Metrics::default();
        for us in 1..=1000 {
            metrics.count(NFS.number, 6, answered(us));
        }
        let read = metrics.snapshot().procedures.remove(0);
        for (share, exact) in [(0.1, 100), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let told = read.latency_quantile(share).unwrap().as_micros();
            assert!((exact..2 * exact).contains(&told), "{share}: {told}");
        }
        let none = ProcedureCounts { latencies: vec![0; BUCKETS], ..read };
        assert_eq!(none.latency_quantile(0.5), None);
    }

    #[test]
    fn the_text_has_a_type_for_each_metric_and_buckets_that_only_grow() {
        let metrics = Metrics::default();
        for us in [5, 20, 2_000, 100_000_000] {
            metrics.count(NFS.number, 7, answered(us));
        }
        metrics.connections.store(3, Ordering::Relaxed);
        let text = metrics.snapshot().render();
        let labels = "program=\"nfs\",procedure=\"WRITE\"";
        for line in [
            "# TYPE azekura_nfs_latency_seconds histogram".to_owned(),
            "azekura_nfs_connections 3".to_owned(),
            format!("azekura_nfs_calls_total{{{labels}}} 4"),
            format!("azekura_nfs_received_bytes_total{{{labels}}} 400"),
            format!("azekura_nfs_latency_seconds_bucket{{{labels},le=\"0.000016\"}} 1"),
            format!("azekura_nfs_latency_seconds_bucket{{{labels},le=\"8.388608\"}} 3"),
            format!("azekura_nfs_latency_seconds_bucket{{{labels},le=\"+Inf\"}} 4"),
            format!("azekura_nfs_latency_seconds_sum{{{labels}}} 100.002025"),
            format!("azekura_nfs_latency_seconds_count{{{labels}}} 4"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("azekura_nfs_") && value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
