//! All records of a container, read page by page from every target. Inodes are read before
//! entries: an entry that is found then has its inode among those read, unless it is younger.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};
use azekura_client::Pool;
use azekura_proto::attr::FileKind;
use azekura_proto::message::typed::{Report, Scan, ScanPage};
use azekura_proto::message::{DirShardStat, ScanItem, ScanKind};
use azekura_proto::transaction::TransactionId;
use azekura_proto::{ContainerId, Oid, Placement, TargetId, Timestamp};

use super::finding::{EntryAt, Finding};
use crate::report::Progress;

/// An inode, as far as checking needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeRecord {
    pub(crate) target: TargetId,
    pub(crate) kind: FileKind,
    pub(crate) nlink: u32,
    pub(crate) orphan: bool,
    pub(crate) striped: bool,
    pub(crate) chunk_bytes: u32,
    pub(crate) parent: Option<Oid>,
    pub(crate) ctime: Timestamp,
}

/// A file with object data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataRecord {
    pub(crate) target: TargetId,
    pub(crate) oid: Oid,
    pub(crate) shard: u16,
    pub(crate) bytes: u64,
}

/// A shard of which data are lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostRecord {
    pub(crate) target: TargetId,
    pub(crate) oid: Oid,
    pub(crate) shard: u16,
    pub(crate) noted: u64,
    pub(crate) found: u64,
}

/// A transaction on record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionRecord {
    pub(crate) target: TargetId,
    pub(crate) id: TransactionId,
    pub(crate) decided: bool,
}

/// Everything that is on record about a container.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) root: Oid,
    /// Where objects lie in the pool.
    pub(crate) placement: Placement,
    pub(crate) inodes: HashMap<Oid, InodeRecord>,
    pub(crate) dir_shards: HashMap<(Oid, TargetId), DirShardStat>,
    pub(crate) data: Vec<DataRecord>,
    pub(crate) lost: Vec<LostRecord>,
    pub(crate) entries: Vec<EntryAt>,
    pub(crate) transactions: Vec<TransactionRecord>,
}

impl Snapshot {
    /// A snapshot of an empty container.
    pub(crate) fn empty(root: Oid, placement: Placement) -> Self {
        Self {
            root,
            placement,
            inodes: HashMap::new(),
            dir_shards: HashMap::new(),
            data: Vec::new(),
            lost: Vec::new(),
            entries: Vec::new(),
            transactions: Vec::new(),
        }
    }

    /// Reads a container.
    ///
    /// # Errors
    /// If a target does not answer.
    pub(crate) fn read(pool: &Pool, container: ContainerId, root: Oid) -> Result<Self> {
        let mut snapshot = Self::empty(root, pool.placement());
        let mut progress = Progress::count("reading records", 0);
        let kinds = [
            ScanKind::Transactions,
            ScanKind::Inodes,
            ScanKind::DirShards,
            ScanKind::DataShards,
            ScanKind::LostData,
            ScanKind::Entries,
        ];
        for kind in kinds {
            for (target, items) in scan(pool, kind, container)? {
                progress.advance(items.len() as u64);
                for item in items {
                    snapshot.add(target, item);
                }
            }
        }
        Ok(snapshot)
    }

    pub(crate) fn add(&mut self, target: TargetId, item: ScanItem) {
        match item {
            ScanItem::Entry { dir, name, entry } => {
                self.entries.push(EntryAt { target, dir, name, entry });
            }
            ScanItem::Inode { attr, orphan } => {
                let record = InodeRecord {
                    target,
                    kind: attr.kind,
                    nlink: attr.nlink,
                    orphan,
                    striped: attr.striped,
                    chunk_bytes: attr.chunk_bytes,
                    parent: attr.parent,
                    ctime: attr.ctime,
                };
                self.inodes.insert(attr.oid, record);
            }
            ScanItem::DirShard { dir, stat } => {
                self.dir_shards.insert((dir, target), stat);
            }
            ScanItem::DataShard { oid, shard, bytes } => {
                self.data.push(DataRecord { target, oid, shard, bytes });
            }
            ScanItem::LostData { oid, shard, noted, found } => {
                self.lost.push(LostRecord { target, oid, shard, noted, found });
            }
            // Not among the records of a snapshot.
            ScanItem::UnreadableData { .. } | ScanItem::ReadData { .. } => {}
            ScanItem::Transaction { id, decided } => {
                self.transactions.push(TransactionRecord { target, id, decided });
            }
        }
    }
}

type Scanned = Vec<(TargetId, Vec<ScanItem>)>;

/// Reads all records of a kind, from all targets at the same time.
fn scan(pool: &Pool, kind: ScanKind, container: ContainerId) -> Result<Scanned> {
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..pool.target_count())
            .map(|index| {
                let target = TargetId(index);
                scope.spawn(move || Ok((target, scan_target(pool, target, kind, container)?)))
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| match reader.join() {
                Ok(scanned) => scanned,
                Err(_) => bail!("a thread that reads records failed"),
            })
            .collect()
    })
}

fn scan_target(
    pool: &Pool,
    target: TargetId,
    kind: ScanKind,
    container: ContainerId,
) -> Result<Vec<ScanItem>> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = pool.call(target, Scan { kind, container, after });
        let ScanPage { items, next } = page.with_context(|| {
            format!("cannot read the records ({kind:?}) of target {}", target.0)
        })?;
        all.extend(items);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// Has all data of a container read; gives how many bytes that were, and what cannot be read.
///
/// # Errors
/// If an engine does not answer.
pub(crate) fn read_data(pool: &Pool, container: ContainerId) -> Result<(u64, Vec<Finding>)> {
    let _progress = Progress::waiting("reading all data");
    let (mut total, mut findings) = (0, Vec::new());
    for (target, items) in scan(pool, ScanKind::ReadData, container)? {
        for item in items {
            match item {
                ScanItem::ReadData { bytes } => total += bytes,
                ScanItem::UnreadableData { oid, shard, offset, cause } => {
                    findings.push(Finding::UnreadableData { oid, shard, target, offset, cause });
                }
                _ => {}
            }
        }
    }
    Ok((total, findings))
}

/// Records that background work has still to deal with: transactions, and removed objects.
///
/// # Errors
/// If an engine does not answer.
pub(crate) fn under_way(pool: &Pool, container: ContainerId) -> Result<u64> {
    let transactions: usize =
        scan(pool, ScanKind::Transactions, container)?.iter().map(|(_, items)| items.len()).sum();
    Ok(transactions as u64 + reclaim_backlog(pool)?)
}

/// Removed objects whose data have still to go.
///
/// # Errors
/// If an engine does not answer.
pub(crate) fn reclaim_backlog(pool: &Pool) -> Result<u64> {
    let mut backlog = 0;
    for index in 0..pool.map().engines.len() {
        let engine = azekura_proto::EngineId(index as u16);
        let report = pool.call_engine(engine, Report)?;
        backlog += report.targets.iter().map(|target| target.reclaim_backlog).sum::<u64>();
    }
    Ok(backlog)
}
