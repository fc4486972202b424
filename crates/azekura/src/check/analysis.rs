//! Finds what does not fit together in a snapshot. Pure: records in, findings out.

use std::collections::{HashMap, HashSet};

use azekura_proto::attr::FileKind;
use azekura_proto::message::DirShardStat;
use azekura_proto::{Oid, TargetId};

use super::finding::{EntryAt, Finding};
use super::snapshot::{InodeRecord, LostRecord, Snapshot};

/// Everything that does not fit, in an order that depends on the records alone.
pub(crate) fn analyse(snapshot: &Snapshot) -> Vec<Finding> {
    let mut analysis = Analysis { snapshot, findings: Vec::new(), links: HashMap::new() };
    analysis.check_root();
    analysis.check_entries();
    analysis.check_inodes();
    analysis.check_directory_tree();
    analysis.check_shards();
    analysis.check_data();
    analysis.check_lost_data();
    analysis.check_transactions();
    analysis.findings.sort_by_cached_key(|finding| {
        let name = finding.entry().map(|at| at.name.clone());
        (finding.kind(), finding.object(), name, finding.detail())
    });
    analysis.findings
}

/// Inodes without links: kept for those that have them open, or waiting to be reclaimed.
pub(crate) fn orphans(snapshot: &Snapshot) -> Vec<Oid> {
    let mut orphans: Vec<Oid> =
        snapshot.inodes.iter().filter(|(_, inode)| inode.orphan).map(|(oid, _)| *oid).collect();
    orphans.sort_unstable();
    orphans
}

struct Analysis<'a> {
    snapshot: &'a Snapshot,
    findings: Vec<Finding>,
    /// Good entries that lead to each object: how many, and for directories which.
    links: HashMap<Oid, Links<'a>>,
}

#[derive(Default)]
struct Links<'a> {
    count: u32,
    of_directory: Vec<&'a EntryAt>,
}

impl<'a> Analysis<'a> {
    fn inode(&self, oid: Oid) -> Option<&'a InodeRecord> {
        self.snapshot.inodes.get(&oid)
    }

    fn live(&self, oid: Oid) -> Option<&'a InodeRecord> {
        self.inode(oid).filter(|inode| !inode.orphan)
    }

    fn check_root(&mut self) {
        let root = self.snapshot.root;
        if self.live(root).is_none_or(|inode| inode.kind != FileKind::Directory) {
            self.findings.push(Finding::RootMissing { root });
        }
    }

    fn check_entries(&mut self) {
        for at in &self.snapshot.entries {
            let expected = self.snapshot.placement.entry_target(at.dir, &at.name);
            if at.target != expected {
                self.findings.push(Finding::MisplacedEntry { at: at.clone(), expected });
                continue;
            }
            if self.live(at.dir).is_none_or(|dir| dir.kind != FileKind::Directory) {
                self.findings.push(Finding::EntryWithoutDirectory(at.clone()));
                continue;
            }
            let Some(inode) = self.live(at.entry.oid) else {
                self.findings.push(Finding::EntryWithoutInode(at.clone()));
                continue;
            };
            if inode.kind != at.entry.kind {
                let found = inode.kind;
                self.findings.push(Finding::EntryOfWrongKind { at: at.clone(), found });
            }
            let links = self.links.entry(at.entry.oid).or_default();
            links.count += 1;
            if inode.kind == FileKind::Directory {
                links.of_directory.push(at);
            }
        }
    }

    fn check_inodes(&mut self) {
        for (&oid, inode) in &self.snapshot.inodes {
            if inode.target != oid.home() {
                self.findings.push(Finding::MisplacedInode { oid, target: inode.target });
            }
            if inode.orphan {
                continue;
            }
            let found = self.links.get(&oid).map_or(0, |links| links.count);
            if inode.kind == FileKind::Directory {
                self.check_directory(oid, inode);
            } else if found > 0 && found != inode.nlink {
                self.findings.push(Finding::WrongLinkCount {
                    oid,
                    recorded: inode.nlink,
                    found,
                    ctime: inode.ctime,
                });
            }
            if found == 0 && oid != self.snapshot.root {
                let (kind, ctime) = (inode.kind, inode.ctime);
                self.findings.push(Finding::LostInode { oid, kind, ctime });
            }
        }
    }

    fn check_directory(&mut self, oid: Oid, inode: &InodeRecord) {
        let names = self.links.get(&oid).map_or(&[][..], |links| &links.of_directory);
        let is_root = oid == self.snapshot.root;
        // The name that its parent pointer agrees with is the right one; the root has none.
        let right = names.iter().copied().find(|at| Some(at.dir) == inode.parent);
        let right = if is_root { None } else { right.or(names.first().copied()) };
        let surplus: Vec<EntryAt> = names
            .iter()
            .filter(|at| right.is_none_or(|right| !std::ptr::eq(right, **at)))
            .map(|at| (*at).clone())
            .collect();
        let ctime = inode.ctime;
        self.findings.extend(surplus.into_iter().map(|at| Finding::SurplusName { at, ctime }));
        let above = if is_root { Some(oid) } else { right.map(|at| at.dir) };
        if let Some(found) = above.filter(|found| inode.parent != Some(*found)) {
            self.findings.push(Finding::WrongParent {
                dir: oid,
                recorded: inode.parent,
                found,
                ctime,
            });
        }
    }

    /// Directories whose entries lead in a circle. Those that hang on a lost directory are in
    /// order as soon as it has been found a place.
    fn check_directory_tree(&mut self) {
        let mut settled: HashSet<Oid> = HashSet::from([self.snapshot.root]);
        let mut loops = Vec::new();
        for &start in self.links.keys() {
            let mut path: Vec<Oid> = Vec::new();
            let mut at = start;
            loop {
                if settled.contains(&at) {
                    break;
                }
                if let Some(place) = path.iter().position(|seen| *seen == at) {
                    // The smallest id stands for the loop, so that every look names the same.
                    loops.extend(path[place..].iter().min().copied());
                    break;
                }
                path.push(at);
                match self.links.get(&at).and_then(|links| links.of_directory.first()) {
                    Some(entry) => at = entry.dir,
                    None => break,
                }
            }
            settled.extend(path);
        }
        for dir in loops {
            let entry = self.links.get(&dir).and_then(|links| links.of_directory.first());
            if let (Some(at), Some(inode)) = (entry, self.inode(dir)) {
                let (at, ctime) = ((*at).clone(), inode.ctime);
                self.findings.push(Finding::Loop { at, ctime });
            }
        }
    }

    fn check_shards(&mut self) {
        let mut counted: HashMap<(Oid, TargetId), (u64, u32)> = HashMap::new();
        for at in &self.snapshot.entries {
            let (entries, subdirs) = counted.entry((at.dir, at.target)).or_default();
            *entries += 1;
            *subdirs += u32::from(at.entry.kind == FileKind::Directory);
        }
        for (&(dir, target), &recorded) in &self.snapshot.dir_shards {
            let (entries, subdirs) = counted.remove(&(dir, target)).unwrap_or_default();
            if self.inode(dir).is_none() && entries == 0 {
                self.findings.push(Finding::ShardWithoutDirectory { dir, target });
            } else if (recorded.entries, recorded.subdirs) != (entries, subdirs) {
                self.findings.push(Finding::WrongShardCount {
                    dir,
                    target,
                    recorded,
                    entries,
                    subdirs,
                });
            }
        }
        for ((dir, target), (entries, subdirs)) in counted {
            let recorded = DirShardStat::default();
            let finding = Finding::WrongShardCount { dir, target, recorded, entries, subdirs };
            self.findings.push(finding);
        }
    }

    fn check_data(&mut self) {
        let mut hidden = HashSet::new();
        for data in &self.snapshot.data {
            let (oid, shard, target) = (data.oid, data.shard, data.target);
            let of_files = Oid::from_inode_number(oid.container(), oid.inode_number());
            if of_files != Some(oid) {
                // A plain array of the object API has no inode.
                continue;
            }
            if self.snapshot.placement.shard_on_target(oid, target) != Some(shard) {
                self.findings.push(Finding::MisplacedData { oid, shard, target });
                continue;
            }
            match self.inode(oid) {
                Some(inode) if inode.kind == FileKind::Regular => {
                    let shards = self.snapshot.placement.shards(oid);
                    let beyond = data.bytes > 0
                        && shards > 1
                        && (shard > 0 || data.bytes > u64::from(inode.chunk_bytes));
                    if beyond && !inode.striped && hidden.insert(oid) {
                        self.findings.push(Finding::HiddenData { oid });
                    }
                }
                _ => {
                    let bytes = data.bytes;
                    self.findings.push(Finding::DataWithoutInode { oid, shard, target, bytes });
                }
            }
        }
    }

    fn check_lost_data(&mut self) {
        for lost in &self.snapshot.lost {
            let &LostRecord { target, oid, shard, noted, found } = lost;
            let of_files = Oid::from_inode_number(oid.container(), oid.inode_number());
            // What was removed is missed by nobody; a plain array of the object API has no inode.
            if of_files != Some(oid) || self.inode(oid).is_some() {
                self.findings.push(Finding::LostData { oid, shard, target, noted, found });
            }
        }
    }

    fn check_transactions(&mut self) {
        for record in &self.snapshot.transactions {
            self.findings.push(Finding::UnfinishedTransaction {
                id: record.id,
                target: record.target,
                decided: record.decided,
            });
        }
    }
}

/// Paths of objects, as far as entries lead from the root to them.
pub(crate) struct Paths<'a> {
    root: Oid,
    above: HashMap<Oid, &'a EntryAt>,
}

impl<'a> Paths<'a> {
    /// Paths of everything in a snapshot.
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let above = snapshot.entries.iter().map(|at| (at.entry.oid, at)).collect();
        Self { root: snapshot.root, above }
    }

    /// The path of an object; `None` if no entry leads to it.
    pub(crate) fn of_object(&self, oid: Oid) -> Option<String> {
        if oid == self.root {
            return Some("/".to_owned());
        }
        self.above.get(&oid).map(|at| self.of_entry(at))
    }

    /// The path of an entry; with `...` in front where it is cut off from the root.
    pub(crate) fn of_entry(&self, at: &EntryAt) -> String {
        let mut names = vec![String::from_utf8_lossy(&at.name).into_owned()];
        let mut dir = at.dir;
        while dir != self.root {
            match self.above.get(&dir) {
                // Longer than any path: it goes round in a circle.
                Some(above) if names.len() < 2_048 => {
                    names.push(String::from_utf8_lossy(&above.name).into_owned());
                    dir = above.dir;
                }
                _ => {
                    names.push("...".to_owned());
                    break;
                }
            }
        }
        names.push(String::new());
        names.reverse();
        names.join("/")
    }
}
