//! Complete attributes: what the inode knows joined with what the shards know. A file that is not striped has
//! all of it on one target; a striped file's home asks the other shards, and so does a directory's.
//! Owns the rule of which time counts.

use azekura_proto::attr::FileKind;
use azekura_proto::limits::DIRECTORY_BYTES;
use azekura_proto::message::{Answer, DirShardStat, Reply, Request, ShardRef, ShardStat};
use azekura_proto::{Attr, Geometry, Oid, SessionId, Status, Timestamp};
use azekura_store::{FileStat, Space};

use crate::node::Node;
use crate::records::record::Inode;
use crate::records::stored::{load, store_status};
use crate::target::Target;

/// The inode of an object at its home.
pub(crate) fn load_inode(target: &Target, oid: Oid) -> Result<Inode, Status> {
    load(&target.store, Space::Inode, &oid.to_bytes())?.ok_or(Status::Stale)
}

/// Attributes with size and times as the shards know them. Waits for the write leases of anybody but
/// the `asker`: the session of the client that wants to know.
pub(crate) fn complete(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    oid: Oid,
    inode: &Inode,
) -> Result<Attr, Status> {
    if inode.kind == FileKind::Regular && !inode.striped {
        target.leases.before_read((oid, 0), asker);
        let stat = target.store.shard_stat(oid, 0).map_err(store_status)?;
        return Ok(at_home(oid, inode, stat));
    }
    let mut attr = inode.attr(oid);
    match inode.kind {
        FileKind::Regular => {
            let replies = node.call_shards(oid, |shard| Request::ShardStat {
                data: ShardRef { oid, shard, is_file: false },
                asker,
            })?;
            let geometry = Geometry::new(inode.chunk_bytes, node.shards(oid));
            for (shard, reply) in replies.into_iter().enumerate() {
                let Reply::Shard(stat) = reply else { return Err(Status::Damaged) };
                add_shard(&mut attr, inode.mtime, (geometry, shard as u16), stat);
            }
        }
        FileKind::Directory => {
            let replies = node.call_shards(oid, |_| Request::DirShard { dir: oid })?;
            let mut shards = Vec::with_capacity(replies.len());
            for reply in replies {
                let Reply::DirShard(stat) = reply else { return Err(Status::Damaged) };
                shards.push(stat);
            }
            add_dir_shards(&mut attr, inode, &shards);
        }
        _ => {}
    }
    Ok(attr)
}

/// The attributes of an object, if its home is here.
pub(crate) fn local_attributes(
    node: &Node,
    asker: Option<SessionId>,
    oid: Oid,
) -> Result<Option<Box<Attr>>, Status> {
    let Some(home) = node.local_home(oid) else { return Ok(None) };
    let inode = load_inode(home, oid)?;
    Ok(Some(Box::new(complete(node, home, asker, oid, &inode)?)))
}

/// The attributes of a file that is not striped, by what is known of its data.
pub(crate) fn at_home(oid: Oid, inode: &Inode, stat: Option<FileStat>) -> Attr {
    let mut attr = inode.attr(oid);
    let geometry = Geometry::new(inode.chunk_bytes, 1);
    add_shard(&mut attr, inode.mtime, (geometry, 0), stat.map(wire_stat));
    attr
}

/// Whether the attributes can be completed without asking another engine.
pub(crate) fn is_at_hand(node: &Node, inode: &Inode) -> bool {
    node.is_alone()
        || match inode.kind {
            FileKind::Directory => false,
            FileKind::Regular => !inode.striped,
            _ => true,
        }
}

/// The store's view of a shard's file in the words of the protocol.
pub(crate) fn wire_stat(stat: FileStat) -> ShardStat {
    ShardStat {
        bytes: stat.bytes,
        blocks_512: stat.blocks_512,
        mtime: stat.mtime,
        ctime: stat.ctime,
    }
}

/// `set`: the time of last change that the inode has, which its shards have been given where it was set.
fn add_shard(
    attr: &mut Attr,
    set: Timestamp,
    (geometry, shard): (Geometry, u16),
    stat: Option<ShardStat>,
) {
    let Some(stat) = stat else { return };
    // The shards' files carry the time of the last write, and of the last utimens, so the inode's
    // own stamp counts only where no shard exists: the first one found replaces it.
    if stat.mtime == Timestamp::default() {
        // A file that is gone has no time.
    } else if attr.blocks_512 == 0 && attr.size == 0 {
        attr.mtime = stat.mtime;
    } else {
        attr.mtime = attr.mtime.max(stat.mtime);
    }
    if stat.mtime != set {
        // Written since; else the inode tells when the time was set, which has changed the file as well.
        attr.ctime = attr.ctime.max(stat.ctime);
    }
    attr.size = attr.size.max(geometry.global_end(shard, stat.bytes));
    attr.blocks_512 += stat.blocks_512;
}

fn add_dir_shards(attr: &mut Attr, inode: &Inode, shards: &[DirShardStat]) {
    let mut subdirs = 0;
    for shard in shards {
        subdirs += shard.subdirs;
        attr.ctime = attr.ctime.max(shard.changed);
        if inode.mtime_set.is_none_or(|set| shard.changed > set) {
            attr.mtime = attr.mtime.max(shard.changed);
        }
    }
    if inode.mtime_set.is_some_and(|set| shards.iter().any(|shard| shard.changed > set)) {
        attr.mtime = shards.iter().map(|shard| shard.changed).max().unwrap_or(attr.mtime);
    }
    if inode.nlink > 0 {
        attr.nlink = 2 + subdirs;
    }
    attr.size = DIRECTORY_BYTES;
    attr.blocks_512 = DIRECTORY_BYTES / 512;
}

/// Answer to `GetAttr`.
pub(crate) fn get(node: &Node, target: &Target, asker: Option<SessionId>, oid: Oid) -> Answer {
    let inode = load_inode(target, oid)?;
    Ok(Reply::Attr(Box::new(complete(node, target, asker, oid, &inode)?)))
}
