//! Pages of a directory's shard, in the order of cookies. Owns how a page resumes after a cookie
//! while others insert and remove: the cookie depends on the name alone.

use azekura_proto::attr::FileKind;
use azekura_proto::limits::PAGE_BYTES_MAX;
use azekura_proto::message::{Answer, DirCookie, DirEntry, Reply};
use azekura_proto::{Oid, SessionId, Status};
use azekura_store::Space;

use crate::namespace::attributes::{complete, is_at_hand, load_inode};
use crate::namespace::leased_names;
use crate::node::Node;
use crate::records::record::{
    Bucket, ENTRY_KEY_BYTES, Inode, bucket_key, decode, parse_bucket_key,
};
use crate::records::stored::store_status;
use crate::target::Target;

/// Bytes that an entry takes in a page besides its name, about.
const ENTRY_BYTES: usize = 40;
/// Bytes that attributes take in a page, about.
const ATTR_BYTES: usize = 120;
/// Buckets read at a time.
const SCAN: usize = 512;

/// Answer to `ReadDirectory`.
pub(crate) fn read_directory(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    dir: Oid,
    after: u64,
    page_bytes: u32,
    with_attrs: bool,
) -> Answer {
    let shard = node.shard_on_target(dir, target.id).ok_or(Status::WrongTarget)?;
    leased_names::wait_for_holder(node, target, dir, asker);
    let cookie = DirCookie::decode(after);
    let budget = page_bytes.clamp(512, PAGE_BYTES_MAX) as usize;
    let mut from = start_key(dir, after, cookie.hash);
    let mut entries = Vec::new();
    let mut used = 0;
    loop {
        let page = target
            .store
            .scan(Space::Entry, &dir.to_bytes(), from.as_deref(), SCAN)
            .map_err(store_status)?;
        let last_page = page.len() < SCAN;
        for (key, value) in &page {
            let (_, hash) = parse_bucket_key(key).ok_or(Status::Damaged)?;
            let bucket: Bucket = decode(value)?;
            for slot in bucket.slots {
                if after != 0 && hash == cookie.hash && slot.place <= cookie.place {
                    continue;
                }
                let attr =
                    if with_attrs { attr_at_hand(node, asker, slot.entry.oid)? } else { None };
                used += ENTRY_BYTES + slot.name.len() + if attr.is_some() { ATTR_BYTES } else { 0 };
                if used > budget && !entries.is_empty() {
                    return Ok(Reply::Entries { entries, end: false });
                }
                entries.push(DirEntry {
                    cookie: DirCookie { shard, hash, place: slot.place }.encode(),
                    name: slot.name,
                    entry: slot.entry,
                    attr,
                });
            }
        }
        if last_page {
            return Ok(Reply::Entries { entries, end: true });
        }
        from = page.last().map(|(key, _)| key.clone());
    }
}

/// Answer to `DirShard`.
pub(crate) fn shard(target: &Target, dir: Oid) -> Answer {
    let stat = target.dir_shards.get(&target.store, dir)?;
    Ok(Reply::DirShard(stat.unwrap_or_default()))
}

/// The key before the bucket of the cookie, which may have further entries.
fn start_key(dir: Oid, after: u64, hash: u64) -> Option<Vec<u8>> {
    if after == 0 {
        return None;
    }
    let mut key: [u8; ENTRY_KEY_BYTES] = bucket_key(dir, hash);
    // Keys have a fixed length, so the one before is the number before.
    for byte in key.iter_mut().rev() {
        let (value, borrowed) = byte.overflowing_sub(1);
        *byte = value;
        if !borrowed {
            break;
        }
    }
    Some(key.to_vec())
}

/// Attributes that can be told without waiting for another engine, or for a client that is writing; for
/// the others the client asks by itself.
fn attr_at_hand(
    node: &Node,
    asker: Option<SessionId>,
    oid: Oid,
) -> Result<Option<azekura_proto::Attr>, Status> {
    let Some(home) = node.local_home(oid) else { return Ok(None) };
    match load_inode(home, oid) {
        Ok(inode) if is_at_hand(node, &inode) && !is_being_written(node, asker, oid, &inode) => {
            complete(node, home, asker, oid, &inode).map(Some)
        }
        Ok(_) | Err(Status::Stale) => Ok(None),
        Err(status) => Err(status),
    }
}

/// Whether somebody else has a write lease of a shard on this engine.
fn is_being_written(node: &Node, asker: Option<SessionId>, oid: Oid, inode: &Inode) -> bool {
    let shards = match inode.kind {
        FileKind::Regular if inode.striped => node.shards(oid),
        FileKind::Regular => 1,
        _ => 0,
    };
    (0..shards).any(|shard| {
        node.local(node.shard_target(oid, shard))
            .is_some_and(|target| target.leases.would_wait((oid, shard), asker))
    })
}
