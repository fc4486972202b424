//! What each action of a transaction requires and does at its target. Owns the rules of link
//! counts, of directory shards, and of when an inode goes. The caller has the namespace lock.

use azekura_proto::attr::FileKind;
use azekura_proto::limits::LINKS_MAX;
use azekura_proto::transaction::{Action, Entry};
use azekura_proto::{Oid, Status, Timestamp};
use azekura_store::Space;

use crate::records::record::{Bucket, Inode, Orphan, Reclaim, count_entry, entry_key};
use crate::records::stored::store_status;
use crate::records::update::Update;
use crate::requests::retry::keep_created;
use crate::requests::sessions::Sessions;
use crate::target::Target;

/// Checks and applies actions, writing into an update.
pub(crate) struct Actor<'a> {
    pub(crate) target: &'a Target,
    pub(crate) sessions: &'a Sessions,
    pub(crate) now: Timestamp,
    /// The exact time, with which the directory's shard is stamped.
    pub(crate) changed: Timestamp,
}

impl<'a> Actor<'a> {
    /// An actor for what happens now.
    pub(crate) fn new(target: &'a Target, sessions: &'a Sessions) -> Self {
        Self { target, sessions, now: target.now(), changed: target.fine_now() }
    }

    /// Applies one action. Checking is the same as applying to an update that is thrown away, so
    /// that the two can never differ.
    pub(crate) fn apply(&self, update: &mut Update<'_>, action: &Action) -> Result<(), Status> {
        match action {
            Action::InsertEntry { dir, name, entry, replaces } => {
                self.insert_entry(update, *dir, name, *entry, *replaces)
            }
            Action::RemoveEntry { dir, name, entry } => {
                self.remove_entry(update, *dir, name, *entry)
            }
            Action::SealShard { dir } => seal_shard(update, *dir),
            Action::RemoveDirectory { dir } => self.remove_directory(update, *dir),
            Action::AddLinks { oid, links } => self.add_links(update, *oid, *links),
            Action::SetParent { dir, parent } => self.set_parent(update, *dir, *parent),
            Action::LockTree { .. } => Ok(()),
        }
    }

    /// Puts an entry in its bucket and counts it.
    pub(crate) fn insert_entry(
        &self,
        update: &mut Update<'_>,
        dir: Oid,
        name: &[u8],
        entry: Entry,
        replaces: Option<Entry>,
    ) -> Result<(), Status> {
        let key = entry_key(dir, name);
        let mut bucket: Bucket = update.get(Space::Entry, &key)?.unwrap_or_default();
        if bucket.find(name).map(|slot| slot.entry) != replaces {
            return Err(Status::ConditionFailed);
        }
        bucket.insert(name, entry)?;
        update.put(Space::Entry, &key, &bucket);
        let mut stat = update.dir_shard(dir)?.unwrap_or_default();
        if let Some(old) = replaces {
            count_entry(&mut stat, old.kind, -1, self.changed);
        }
        count_entry(&mut stat, entry.kind, 1, self.changed);
        update.set_dir_shard(dir, Some(stat));
        Ok(())
    }

    /// Takes an entry out of its bucket and counts it.
    pub(crate) fn remove_entry(
        &self,
        update: &mut Update<'_>,
        dir: Oid,
        name: &[u8],
        entry: Entry,
    ) -> Result<(), Status> {
        let key = entry_key(dir, name);
        let mut bucket: Bucket = update.get(Space::Entry, &key)?.unwrap_or_default();
        if bucket.find(name).map(|slot| slot.entry) != Some(entry) {
            return Err(Status::ConditionFailed);
        }
        bucket.remove(name);
        if bucket.slots.is_empty() {
            update.delete(Space::Entry, &key);
        } else {
            update.put(Space::Entry, &key, &bucket);
        }
        let mut stat = update.dir_shard(dir)?.unwrap_or_default();
        count_entry(&mut stat, entry.kind, -1, self.changed);
        update.set_dir_shard(dir, Some(stat));
        Ok(())
    }

    fn add_links(&self, update: &mut Update<'_>, oid: Oid, links: i32) -> Result<(), Status> {
        let key = oid.to_bytes();
        let mut inode: Inode = update.get(Space::Inode, &key)?.ok_or(Status::Stale)?;
        if links > 0 && inode.nlink == 0 {
            match update.get::<Orphan>(Space::Orphan, &key)? {
                Some(Orphan::Temporary) => update.delete(Space::Orphan, &key),
                Some(Orphan::Unlinked) | None => return Err(Status::NotFound),
            }
        }
        let count = inode.nlink.checked_add_signed(links).ok_or(Status::Damaged)?;
        if links > 0 && count > LINKS_MAX {
            return Err(Status::TooManyLinks);
        }
        inode.ctime = self.changed;
        if links <= 0 {
            self.keep_for_maker(update, oid, &inode)?;
        }
        if inode.kind != FileKind::Directory {
            inode.nlink = count;
        }
        if inode.nlink > 0 {
            put_inode(update, oid, &inode);
        } else {
            self.drop_inode(update, oid, &mut inode)?;
        }
        Ok(())
    }

    fn remove_directory(&self, update: &mut Update<'_>, dir: Oid) -> Result<(), Status> {
        let mut inode: Inode =
            update.get(Space::Inode, &dir.to_bytes())?.ok_or(Status::NotFound)?;
        if inode.nlink == 0 {
            return Err(Status::NotFound);
        }
        inode.ctime = self.changed;
        self.keep_for_maker(update, dir, &inode)?;
        self.drop_inode(update, dir, &mut inode)
    }

    fn set_parent(&self, update: &mut Update<'_>, dir: Oid, parent: Oid) -> Result<(), Status> {
        let mut inode: Inode =
            update.get(Space::Inode, &dir.to_bytes())?.ok_or(Status::ConditionFailed)?;
        inode.parent = Some(parent);
        inode.ctime = self.changed;
        self.keep_for_maker(update, dir, &inode)?;
        put_inode(update, dir, &inode);
        Ok(())
    }

    /// An object is about to go from where it was made. If its maker may still ask for it, it must not be made
    /// once more.
    fn keep_for_maker(
        &self,
        update: &mut Update<'_>,
        oid: Oid,
        inode: &Inode,
    ) -> Result<(), Status> {
        match inode.born_of.filter(|origin| self.sessions.may_ask_again(origin)) {
            Some(origin) => keep_created(update, &origin, oid),
            None => Ok(()),
        }
    }

    /// The last link is gone: the inode stays only while somebody has it open.
    fn drop_inode(
        &self,
        update: &mut Update<'_>,
        oid: Oid,
        inode: &mut Inode,
    ) -> Result<(), Status> {
        inode.nlink = 0;
        assert!(oid.home() == self.target.id, "an inode is changed at its home");
        if self.sessions.is_open(oid) {
            put_inode(update, oid, inode);
            update.put(Space::Orphan, &oid.to_bytes(), &Orphan::Unlinked);
            return Ok(());
        }
        remove_inode(self.target, update, oid, inode)
    }
}

/// Writes an inode.
pub(crate) fn put_inode(update: &mut Update<'_>, oid: Oid, inode: &Inode) {
    update.put(Space::Inode, &oid.to_bytes(), inode);
}

/// Removes an inode, and leaves word for the reclaimer if there is more to it.
pub(crate) fn remove_inode(
    target: &Target,
    update: &mut Update<'_>,
    oid: Oid,
    inode: &Inode,
) -> Result<(), Status> {
    let key = oid.to_bytes();
    update.delete(Space::Inode, &key);
    let has_data = inode.kind == FileKind::Regular
        && (inode.striped || {
            let stat = target.store.shard_stat(oid, 0);
            stat.map_err(store_status)?.is_some()
        });
    if has_data || inode.has_xattrs {
        update.put(Space::Reclaim, &key, &Reclaim { striped: inode.striped });
    }
    Ok(())
}

fn seal_shard(update: &mut Update<'_>, dir: Oid) -> Result<(), Status> {
    if update.dir_shard(dir)?.unwrap_or_default().entries > 0 {
        return Err(Status::NotEmpty);
    }
    update.set_dir_shard(dir, None);
    Ok(())
}
