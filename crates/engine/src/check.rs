//! Raw records for `fs check`, and the repairs that it asks for. Owns nothing of what is right or
//! wrong: the checker decides, this module shows and mends single records.

use azekura_proto::limits::PAGE_BYTES_MAX;
use azekura_proto::message::{Answer, DirShardStat, Repair, Reply, ScanItem, ScanKind};
use azekura_proto::transaction::Entry;
use azekura_proto::{ContainerId, Oid, Status};
use azekura_store::{Space, Store};

use crate::data::scrub::scrub;
use crate::namespace::dir_shards::{self, StoredShard};
use crate::node::Node;
use crate::records::record::{
    Bucket, Inode, Slot, decode, entry_key, parse_bucket_key, parse_transaction_key,
};
use crate::records::stored::{load, store_status};
use crate::records::update::Update;
use crate::target::Target;
use crate::transaction::action::{Actor, remove_inode};

const RECORDS: usize = 512;

/// Answer to `Scan`.
pub(crate) fn scan(
    target: &Target,
    kind: ScanKind,
    container: ContainerId,
    after: Option<&[u8]>,
) -> Answer {
    let prefix = container.0.to_be_bytes();
    if kind == ScanKind::DirShards && after.is_none() {
        let _state = target.lock();
        target.dir_shards.write_back(&target.store, None)?;
    }
    match kind {
        ScanKind::Entries => scan_space(target, Space::Entry, &prefix, after, |key, value| {
            let (dir, _) = parse_bucket_key(key).ok_or(Status::Damaged)?;
            let bucket: Bucket = decode(value)?;
            let item = |slot: Slot| ScanItem::Entry { dir, name: slot.name, entry: slot.entry };
            Ok(bucket.slots.into_iter().map(item).collect())
        }),
        ScanKind::Inodes => scan_space(target, Space::Inode, &prefix, after, |key, value| {
            let oid = Oid::from_bytes(key).ok_or(Status::Damaged)?;
            let inode: Inode = decode(value)?;
            let mut attr = inode.attr(oid);
            // The raw count: a directory has one entry that leads to it.
            attr.nlink = inode.nlink;
            Ok(vec![ScanItem::Inode { attr, orphan: inode.nlink == 0 }])
        }),
        ScanKind::DirShards => scan_space(target, Space::DirShard, &prefix, after, |key, value| {
            let dir = Oid::from_bytes(key).ok_or(Status::Damaged)?;
            let stored: StoredShard = decode(value)?;
            Ok(vec![ScanItem::DirShard { dir, stat: stored.stat }])
        }),
        ScanKind::Transactions => scan_space(target, Space::Transaction, &[], after, |key, _| {
            let id = parse_transaction_key(key).ok_or(Status::Damaged)?;
            Ok(vec![ScanItem::Transaction { id, decided: key.first() == Some(&b'c') }])
        }),
        ScanKind::DataShards => scan_files(target, container, after),
        ScanKind::LostData => scan_lost(target, container, after),
        ScanKind::ReadData => scrub(target, container, after),
    }
}

fn scan_space(
    target: &Target,
    space: Space,
    prefix: &[u8],
    after: Option<&[u8]>,
    items_of: impl Fn(&[u8], &[u8]) -> Result<Vec<ScanItem>, Status>,
) -> Answer {
    let page = target.store.scan(space, prefix, after, RECORDS).map_err(store_status)?;
    let mut items = Vec::with_capacity(page.len());
    for (key, value) in &page {
        items.extend(items_of(key, value)?);
    }
    let next = if page.len() < RECORDS { None } else { page.last().map(|(key, _)| key.clone()) };
    Ok(Reply::Scanned { items, next })
}

/// Goes through the directories of files, several small ones to a page. `after` holds the number of
/// the last directory and, where that was too large for one page, the last file in it.
fn scan_files(target: &Target, container: ContainerId, after: Option<&[u8]>) -> Answer {
    const FILES: usize = PAGE_BYTES_MAX as usize / 32;
    let (mut part, mut last) = match after {
        None => (0, None),
        Some(key) => {
            let (part, last) = key.split_at_checked(2).ok_or(Status::Invalid)?;
            (usize::from(u16::from_be_bytes([part[0], part[1]])), Some(last.to_vec()))
        }
    };
    let mut items = Vec::new();
    while part < Store::SHARD_PARTS {
        let mut files: Vec<(Oid, u16, u64)> = Vec::new();
        let mut visit = |oid: Oid, shard: u16, stat: azekura_store::FileStat| {
            let is_new = last.as_ref().is_none_or(|last| file_key(oid, shard) > *last);
            if oid.container() == container && is_new {
                files.push((oid, shard, stat.bytes));
            }
        };
        target.store.shard_list_part(part, &mut visit).map_err(store_status)?;
        files.sort_unstable();
        let mut sent: Option<Vec<u8>> = None;
        for (oid, shard, bytes) in files {
            if items.len() == FILES {
                let mut next = (part as u16).to_be_bytes().to_vec();
                next.extend(sent.unwrap_or_default());
                return Ok(Reply::Scanned { items, next: Some(next) });
            }
            items.push(ScanItem::DataShard { oid, shard, bytes });
            sent = Some(file_key(oid, shard));
        }
        last = None;
        part += 1;
    }
    Ok(Reply::Scanned { items, next: None })
}

fn scan_lost(target: &Target, container: ContainerId, after: Option<&[u8]>) -> Answer {
    let after = after.map(|key| parse_file_key(key).ok_or(Status::Invalid)).transpose()?;
    let mut items = Vec::new();
    let mut visit = |(oid, shard), noted, found| {
        items.push(ScanItem::LostData { oid, shard, noted, found });
    };
    let prefix = container.0.to_be_bytes();
    let next = target.store.shard_find_lost(&prefix, after, RECORDS, &mut visit);
    let next = next.map_err(store_status)?.map(|(oid, shard)| file_key(oid, shard));
    Ok(Reply::Scanned { items, next })
}

fn parse_file_key(key: &[u8]) -> Option<(Oid, u16)> {
    let (oid, shard) = key.split_at_checked(16)?;
    Some((Oid::from_bytes(oid)?, u16::from_be_bytes(shard.try_into().ok()?)))
}

fn file_key(oid: Oid, shard: u16) -> Vec<u8> {
    let mut key = oid.to_bytes().to_vec();
    key.extend_from_slice(&shard.to_be_bytes());
    key
}

/// Answer to `Repair`.
pub(crate) fn repair(node: &Node, target: &Target, repair: &Repair) -> Answer {
    let _state = target.lock();
    let mut update = Update::new(target);
    let actor = Actor::new(target, &node.sessions);
    match repair {
        Repair::RemoveEntry { dir, name } => {
            if let Some(entry) = entry_of(&update, *dir, name)? {
                actor.remove_entry(&mut update, *dir, name, entry)?;
            }
        }
        Repair::InsertEntry { dir, name, entry } => {
            actor.insert_entry(&mut update, *dir, name, *entry, None)?;
        }
        Repair::SetLinks { oid, links } => {
            change(&mut update, *oid, |inode| inode.nlink = *links)?;
        }
        Repair::SetParent { dir, parent } => {
            change(&mut update, *dir, |inode| inode.parent = Some(*parent))?;
        }
        Repair::RecountShard { dir } => recount(target, &mut update, *dir)?,
        Repair::RemoveObject { oid } => {
            let inode: Inode =
                load(&target.store, Space::Inode, &oid.to_bytes())?.ok_or(Status::NotFound)?;
            remove_inode(target, &mut update, *oid, &inode)?;
            update.delete(Space::Orphan, &oid.to_bytes());
        }
        Repair::RemoveData { oid, shard } => {
            target.store.shard_remove(*oid, *shard).map_err(store_status)?;
        }
    }
    target.removed(&update.commit()?);
    Ok(Reply::Done)
}

fn entry_of(update: &Update<'_>, dir: Oid, name: &[u8]) -> Result<Option<Entry>, Status> {
    let bucket: Option<Bucket> = update.get(Space::Entry, &entry_key(dir, name))?;
    Ok(bucket.and_then(|bucket| bucket.find(name).map(|slot| slot.entry)))
}

fn change(
    update: &mut Update<'_>,
    oid: Oid,
    change: impl FnOnce(&mut Inode),
) -> Result<(), Status> {
    let key = oid.to_bytes();
    let mut inode: Inode = update.get(Space::Inode, &key)?.ok_or(Status::NotFound)?;
    change(&mut inode);
    update.put(Space::Inode, &key, &inode);
    Ok(())
}

fn recount(target: &Target, update: &mut Update<'_>, dir: Oid) -> Result<(), Status> {
    let changed = update.dir_shard(dir)?.unwrap_or_default().changed;
    let stat = dir_shards::count(&target.store, dir)?;
    // A shard without entries may belong to a directory that is gone; one that is alive gets it
    // again with its next entry.
    let kept = (stat.entries > 0).then_some(DirShardStat { changed, ..stat });
    update.set_dir_shard(dir, kept);
    Ok(())
}
