//! The trace of far reads: one line of JSON per request or plan, appended to a file that several
//! processes may share. Owns the form of the lines, for those who write and those who read them; must
//! never hold up or fail a read.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_client::this_process;
use azekura_policy::predict::PlanRecord;
use azekura_policy::{Actions, ByteRange, Decision, DecisionRecord, Knowledge, ReadAhead};
use azekura_proto::Oid;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// A file that takes the lines.
#[derive(Debug)]
pub struct Trace {
    file: OwnedFd,
    failed: AtomicBool,
}

/// A line: one request of a window, or one plan with its requests. The fields bear the names that
/// stand in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// The process that reads.
    pub pid: u32,
    /// When, in microseconds of that process's clock.
    pub us: u64,
    /// The id of the file's object, in hexadecimal digits.
    pub object: String,
    /// Who decided.
    pub policy: TracePolicy,
    /// Offset of the read that led to it.
    pub read_offset: u64,
    /// Length of that read.
    pub read_bytes: u64,
    /// Where what was asked for begins.
    pub offset: u64,
    /// How much was asked for.
    pub bytes: u64,
    /// In how many ranges.
    pub ranges: u64,
    /// The share that was used (0 to 1): of the request before, or, of a plan, of all so far.
    pub utilisation: Option<f64>,
    /// Why so much.
    pub decision: TraceDecision,
    /// The link's round trip as it was known.
    pub round_trip_us: u64,
    /// The link's rate as it was known.
    pub bytes_per_second: u64,
    /// Size of the window.
    pub window_bytes: u64,
    /// What is held in memory.
    pub held_bytes: u64,
    /// What was read out of memory so far.
    pub hit_bytes: u64,
    /// What was fetched in vain so far.
    pub wasted_bytes: u64,
}

/// Who decided what to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TracePolicy {
    /// A plan after a pattern.
    Predictive,
    /// One window, whose size adapts.
    SyncAdaptive,
    /// One window of one size.
    Fixed,
}

/// Why a window or a plan is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceDecision {
    /// The first request of the file.
    First,
    /// The size stays.
    Keep,
    /// The size would have grown, but a growth has failed a short while ago.
    Hold,
    /// The size grows.
    Grow,
    /// Back to the size before a growth.
    GoBack,
    /// The size shrinks.
    Shrink,
    /// Gaps that cannot be predicted are read through.
    Through,
    /// Nothing tells what comes.
    Nothing,
    /// The current run goes on.
    Run,
    /// The current run ends with what was asked for.
    RunToEnd,
    /// Runs to come are known.
    Runs,
}

impl From<Decision> for TraceDecision {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::First => Self::First,
            Decision::Keep => Self::Keep,
            Decision::Hold => Self::Hold,
            Decision::Grow => Self::Grow,
            Decision::GoBack => Self::GoBack,
            Decision::Shrink => Self::Shrink,
        }
    }
}

impl From<&PlanRecord> for TraceDecision {
    fn from(record: &PlanRecord) -> Self {
        match (record.through, record.knowledge) {
            (true, _) => Self::Through,
            (false, Knowledge::Nothing) => Self::Nothing,
            (false, Knowledge::Run { .. }) => Self::Run,
            (false, Knowledge::RunToEnd) => Self::RunToEnd,
            (false, Knowledge::Runs) => Self::Runs,
        }
    }
}

impl fmt::Display for TracePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for TraceDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for TraceRecord {
    type Err = serde_json::Error;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(line)
    }
}

impl TraceRecord {
    /// All lines of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or a line of it is none of a trace; with its path and number.
    pub fn load(path: &Path) -> io::Result<Vec<Self>> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let told = format!("cannot read the trace {}: {error}", path.display());
            io::Error::new(error.kind(), told)
        })?;
        let lines = text.lines().zip(1_u64..).filter(|(line, _)| !line.is_empty());
        let parse = |(line, number): (&str, u64)| {
            line.parse().map_err(|_| {
                let told = format!("{}:{number}: not a line of a trace", path.display());
                io::Error::new(io::ErrorKind::InvalidData, told)
            })
        };
        lines.map(parse).collect()
    }
}

/// As exact as a line needs it.
fn to_four_digits(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}

fn hexadecimal(oid: Oid) -> String {
    format!("{:032x}", u128::from_be_bytes(oid.to_bytes()))
}

impl Trace {
    /// Appends to a file, which is made if it is not there. `relocate` puts the descriptor where
    /// it is in nobody's way, if that matters.
    ///
    /// # Errors
    /// If the file cannot be opened for writing.
    pub fn append_to(
        path: &Path,
        relocate: Option<fn(OwnedFd) -> OwnedFd>,
    ) -> io::Result<Arc<Self>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        })?;
        let file = match relocate {
            Some(relocate) => relocate(file),
            None => file,
        };
        Ok(Arc::new(Self { file, failed: AtomicBool::new(false) }))
    }

    fn write(&self, record: &TraceRecord) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        // Numbers and words always have a form in JSON.
        let Ok(mut text) = serde_json::to_string(record) else { return };
        text.push('\n');
        // One call, so that lines of several processes do not mix.
        if let Err(error) = rustix::io::write(&self.file, text.as_bytes()) {
            self.failed.store(true, Ordering::Relaxed);
            tracing::warn!("the trace of reads ends here: {error}");
        }
    }

    /// A plan that has asked for something, and what the read itself asks for.
    pub(super) fn plan(&self, oid: Oid, plan: &ReadAhead, record: &PlanRecord, actions: &Actions) {
        let asked = || actions.demand.iter().chain(&actions.ahead);
        let ranges = asked().count();
        if ranges == 0 {
            return;
        }
        let counts = plan.counts();
        let all = counts.demand_bytes + counts.ahead_bytes + counts.through_bytes;
        let used = counts.demand_bytes + counts.hit_bytes;
        self.write(&TraceRecord {
            pid: this_process(),
            us: record.now_us,
            object: hexadecimal(oid),
            policy: TracePolicy::Predictive,
            read_offset: record.read.offset,
            read_bytes: record.read.bytes,
            offset: asked().map(|range| range.offset).min().unwrap_or(0),
            bytes: asked().map(|range| range.bytes).sum(),
            ranges: ranges as u64,
            utilisation: (all > 0).then(|| to_four_digits((used as f64 / all as f64).min(1.0))),
            decision: record.into(),
            round_trip_us: record.link.round_trip_us,
            bytes_per_second: record.link.bytes_per_second,
            window_bytes: record.window_bytes,
            held_bytes: plan.held_bytes(),
            hit_bytes: counts.hit_bytes,
            wasted_bytes: counts.wasted_bytes,
        });
    }

    /// A request of a window that holds one at a time.
    pub(super) fn request(
        &self,
        oid: Oid,
        read: ByteRange,
        fixed: bool,
        record: &DecisionRecord,
        hit_bytes: u64,
    ) {
        self.write(&TraceRecord {
            pid: this_process(),
            us: record.now_us,
            object: hexadecimal(oid),
            policy: if fixed { TracePolicy::Fixed } else { TracePolicy::SyncAdaptive },
            read_offset: read.offset,
            read_bytes: read.bytes,
            offset: record.range.offset,
            bytes: record.range.bytes,
            ranges: 1,
            utilisation: record.utilisation.map(to_four_digits),
            decision: record.decision.into(),
            round_trip_us: record.link.round_trip_us,
            bytes_per_second: record.link.bytes_per_second,
            window_bytes: record.size_bytes,
            held_bytes: record.range.bytes,
            hit_bytes,
            wasted_bytes: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As files have it that were written before.
    const LINE: &str = r#"{"pid":7,"us":100,"object":"0000000100000000010000000000000a","policy":"sync-adaptive","read_offset":1,"read_bytes":4096,"offset":2,"bytes":65536,"ranges":1,"utilisation":0.1235,"decision":"go-back","round_trip_us":50000,"bytes_per_second":1000000,"window_bytes":65535,"held_bytes":65534,"hit_bytes":3,"wasted_bytes":4}"#;

    #[test]
    fn lines_are_written_as_they_are_read() {
        let record: TraceRecord = LINE.parse().unwrap();
        assert_eq!(record.policy, TracePolicy::SyncAdaptive);
        assert_eq!((record.decision, record.hit_bytes), (TraceDecision::GoBack, 3));
        assert_eq!(record.decision.to_string(), "go-back");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let trace = Trace::append_to(&path, None).unwrap();
        trace
            .write(&TraceRecord { utilisation: Some(to_four_digits(0.123_456)), ..record.clone() });
        trace.write(&TraceRecord { utilisation: None, ..record });
        let none = LINE.replace("0.1235", "null");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{LINE}\n{none}\n"));
        assert_eq!(TraceRecord::load(&path).unwrap().len(), 2);
        std::fs::write(&path, format!("{LINE}\n\n{}\n", LINE.replace("go-back", "go-away")))
            .unwrap();
        assert!(TraceRecord::load(&path).unwrap_err().to_string().contains("trace:3: not a line"));
    }
}
