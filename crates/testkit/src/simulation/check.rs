//! Whether what the engines have on record fits together, as `fs check` asks for it. Owns no repair, and
//! looks from within: nothing gets lost on the way.

use std::collections::BTreeMap;

use azekura_proto::message::{Reply, Request, RequestHead, ScanItem, ScanKind};
use azekura_proto::{ContainerId, FileKind, Oid, TargetId};

use super::pool::Pool;

impl Pool {
    /// Everything of one kind that is on record, of all targets.
    fn scan(&self, container: ContainerId, kind: ScanKind) -> Result<Vec<ScanItem>, String> {
        let mut all = Vec::new();
        for number in 0..self.map().targets.len() {
            let target = TargetId(number as u16);
            let engine = self.map().engine_of(target).ok_or("a target without an engine")?;
            let mut after = None;
            loop {
                let version = self.map().version;
                let head = RequestHead {
                    target,
                    map_version: version,
                    slot: 0,
                    sequence: 0,
                    resent: false,
                    connection: 0,
                };
                let request = Request::Scan { kind, container, after };
                let answer = self.enter(engine, |run| run.serve_peer(head, &request, &[]));
                match answer {
                    Some(Ok(Reply::Scanned { items, next })) => {
                        all.extend(items);
                        after = next;
                    }
                    other => return Err(format!("{kind:?} of target {number}: {other:?}")),
                }
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Objects that have lost data which they were seen to have.
    pub(crate) fn lost_data(&self, container: ContainerId) -> Result<Vec<String>, String> {
        let lost = self.scan(container, ScanKind::LostData)?;
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let inodes = self.inodes(container)?;
        let is_missed = |item: &ScanItem| matches!(item, ScanItem::LostData { oid, .. } if inodes.contains_key(oid));
        Ok(lost.into_iter().filter(is_missed).map(|item| format!("{item:?}")).collect())
    }

    /// Data that cannot be read, when all are.
    pub(crate) fn unreadable_data(&self, container: ContainerId) -> Result<Vec<String>, String> {
        let read = self.scan(container, ScanKind::ReadData)?;
        let is_bad = |item: &ScanItem| matches!(item, ScanItem::UnreadableData { .. });
        Ok(read.into_iter().filter(is_bad).map(|item| format!("{item:?}")).collect())
    }

    fn inodes(&self, container: ContainerId) -> Result<BTreeMap<Oid, (FileKind, u32)>, String> {
        let scanned = self.scan(container, ScanKind::Inodes)?;
        Ok(scanned
            .into_iter()
            .filter_map(|item| match item {
                ScanItem::Inode { attr, .. } => Some((attr.oid, (attr.kind, attr.nlink))),
                _ => None,
            })
            .collect())
    }

    /// Entries that lead nowhere, and files with another number of names than they say.
    pub(crate) fn misfits(&self, container: ContainerId) -> Result<Vec<String>, String> {
        let inodes = self.inodes(container)?;
        let mut links: BTreeMap<Oid, u32> = BTreeMap::new();
        let mut problems = Vec::new();
        for item in self.scan(container, ScanKind::Entries)? {
            let ScanItem::Entry { name, entry, .. } = item else { continue };
            *links.entry(entry.oid).or_default() += 1;
            let shown = String::from_utf8_lossy(&name).into_owned();
            match inodes.get(&entry.oid) {
                Some((kind, nlink)) if *kind == entry.kind && *nlink > 0 => {}
                found => problems.push(format!("{shown} leads to {entry:?}, which is {found:?}")),
            }
        }
        for (oid, (kind, nlink)) in inodes {
            let found = links.get(&oid).copied().unwrap_or_default();
            if kind == FileKind::Regular && nlink != found {
                problems.push(format!("{oid} has {found} names and says {nlink}"));
            }
        }
        Ok(problems)
    }
}
