//! What an engine says of itself to `status`. Reads counters and disks; changes nothing.

use std::sync::atomic::Ordering;

use azekura_proto::message::{Answer, EngineReport, Reply, SpaceStat, TargetReport};
use azekura_store::Space;

use crate::node::Node;
use crate::records::stored::store_status;
use crate::target::Target;

/// Answer to `Report`.
pub(crate) fn report(node: &Node) -> EngineReport {
    let rates = node.metrics.rates();
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    EngineReport {
        engine: node.engine,
        pid: std::process::id(),
        uptime_s: node.platform.elapsed(node.started).as_secs(),
        stopping: node.is_stopping(),
        targets: node.local_targets().map(|target| target_report(target)).collect(),
        sessions: node.sessions.len() as u64,
        connections: load(&node.metrics.connections),
        requests: load(&node.metrics.request_count),
        read_bytes: load(&node.metrics.read_bytes),
        written_bytes: load(&node.metrics.written_bytes),
        requests_per_s: rates.requests_per_s,
        read_bytes_per_s: rates.read_bytes_per_s,
        written_bytes_per_s: rates.written_bytes_per_s,
        resident_bytes: resident_bytes(),
    }
}

fn target_report(target: &Target) -> TargetReport {
    let transactions = target.store.scan(Space::Transaction, &[], None, 4096);
    TargetReport {
        target: target.id,
        path: target.dir.display().to_string(),
        // A disk that cannot be asked is shown as one without space.
        space: space_stat(target).unwrap_or_default(),
        reclaim_backlog: target.reclaim_backlog.load(Ordering::Relaxed),
        transactions: transactions.map_or(0, |records| records.len() as u64),
        set_aside: target.set_aside.count(),
    }
}

fn space_stat(target: &Target) -> Result<SpaceStat, azekura_proto::Status> {
    let space = target.store.space().map_err(store_status)?;
    Ok(SpaceStat {
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        device: target.device,
        objects: target.objects.total(),
    })
}

/// Answer to `Space`.
pub(crate) fn space(target: &Target) -> Answer {
    space_stat(target).map(Reply::Space)
}

/// Resident memory of this process in bytes; 0 where the system does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
