//! The trace of far reads: one line of JSON per request or plan, appended to a file that several
//! processes may share. Owns the form of the lines; must never hold up or fail a read.

use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_policy::adaptive::{Decision, DecisionRecord};
use azekura_policy::pattern::Knowledge;
use azekura_policy::predict::PlanRecord;
use azekura_policy::{Actions, ByteRange, LinkEstimate, ReadAhead};
use azekura_proto::Oid;
use rustix::fs::{Mode, OFlags};

/// A file that takes the lines.
#[derive(Debug)]
pub struct Trace {
    file: OwnedFd,
    failed: AtomicBool,
}

/// What a line tells.
struct Line {
    now_us: u64,
    policy: &'static str,
    read: ByteRange,
    request: ByteRange,
    requests: usize,
    utilisation: Option<f64>,
    decision: &'static str,
    link: LinkEstimate,
    window_bytes: u64,
    held_bytes: u64,
    hit_bytes: u64,
    wasted_bytes: u64,
}

impl Trace {
    /// Appends to a file, which is made if it is not there. `settle` puts the descriptor where it
    /// is in nobody's way, if that matters.
    ///
    /// # Errors
    /// If the file cannot be opened for writing.
    pub fn append_to(path: &Path, settle: Option<fn(OwnedFd) -> OwnedFd>) -> io::Result<Arc<Self>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        })?;
        let file = match settle {
            Some(settle) => settle(file),
            None => file,
        };
        Ok(Arc::new(Self { file, failed: AtomicBool::new(false) }))
    }

    fn write(&self, oid: Oid, line: &Line) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        let mut text = String::with_capacity(400);
        let pid = rustix::process::getpid().as_raw_nonzero();
        let mut object = 0_u128;
        for byte in oid.to_bytes() {
            object = object << 8 | u128::from(byte);
        }
        let utilisation = line.utilisation.map_or("null".to_owned(), |u| format!("{u:.4}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{{\"pid\":{pid},\"us\":{},\"object\":\"{object:032x}\",\"policy\":\"{}\",\
             \"read_offset\":{},\"read_bytes\":{},\"offset\":{},\"bytes\":{},\"ranges\":{},\
             \"utilisation\":{utilisation},\"decision\":\"{}\",\"round_trip_us\":{},\
             \"bytes_per_second\":{},\"window_bytes\":{},\"held_bytes\":{},\"hit_bytes\":{},\
             \"wasted_bytes\":{}}}",
            line.now_us,
            line.policy,
            line.read.offset,
            line.read.bytes,
            line.request.offset,
            line.request.bytes,
            line.requests,
            line.decision,
            line.link.round_trip_us,
            line.link.bytes_per_second,
            line.window_bytes,
            line.held_bytes,
            line.hit_bytes,
            line.wasted_bytes,
        );
        // One call, so that lines of several processes do not mix.
        if let Err(error) = rustix::io::write(&self.file, text.as_bytes()) {
            self.failed.store(true, Ordering::Relaxed);
            tracing::warn!("the trace of reads ends here: {error}");
        }
    }

    /// A plan that has asked for something, and what the read itself asks for.
    pub(super) fn plan(&self, oid: Oid, plan: &ReadAhead, record: &PlanRecord, actions: &Actions) {
        let asked = || actions.demand.iter().chain(&actions.ahead);
        let requests = asked().count();
        if requests == 0 {
            return;
        }
        let counts = plan.counts();
        let all = counts.demand_bytes + counts.ahead_bytes + counts.through_bytes;
        let used = counts.demand_bytes + counts.hit_bytes;
        self.write(
            oid,
            &Line {
                now_us: record.now_us,
                policy: "predictive",
                read: record.read,
                request: ByteRange::new(
                    asked().map(|range| range.offset).min().unwrap_or(0),
                    asked().map(|range| range.bytes).sum(),
                ),
                requests,
                utilisation: (all > 0).then(|| (used as f64 / all as f64).min(1.0)),
                decision: match (record.through, record.knowledge) {
                    (true, _) => "through",
                    (false, Knowledge::Nothing) => "nothing",
                    (false, Knowledge::Run { .. }) => "run",
                    (false, Knowledge::RunToEnd) => "run-to-end",
                    (false, Knowledge::Runs) => "runs",
                },
                link: record.link,
                window_bytes: record.window_bytes,
                held_bytes: plan.held_bytes(),
                hit_bytes: counts.hit_bytes,
                wasted_bytes: counts.wasted_bytes,
            },
        );
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
        self.write(
            oid,
            &Line {
                now_us: record.now_us,
                policy: if fixed { "fixed" } else { "sync-adaptive" },
                read,
                request: record.range,
                requests: 1,
                utilisation: record.utilisation,
                decision: match record.decision {
                    Decision::First => "first",
                    Decision::Keep => "keep",
                    Decision::Hold => "hold",
                    Decision::Grow => "grow",
                    Decision::GoBack => "go-back",
                    Decision::Shrink => "shrink",
                },
                link: record.link,
                window_bytes: record.size_bytes,
                held_bytes: record.range.bytes,
                hit_bytes,
                wasted_bytes: 0,
            },
        );
    }
}
