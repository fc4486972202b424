//! Mends what a check has found, one record at a time. Nothing with data in it is thrown away while
//! an inode belongs to it: what has lost its name goes to `/lost+found`. Several passes may be
//! needed, since one repair can uncover the next.

use anyhow::{Context as _, Result, bail};
use azekura_client::Pool;
use azekura_proto::attr::{FileKind, Inheritance, NewInode};
use azekura_proto::message::Repair;
use azekura_proto::message::typed::{self, Create, Creation, Lookup, SetStriped};
use azekura_proto::transaction::Entry;
use azekura_proto::{Oid, TargetId};

use super::finding::{EntryAt, Finding};

const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Mends one container.
pub(crate) struct Mender<'a> {
    pool: &'a Pool,
    root: Oid,
    inheritance: Inheritance,
    lost_and_found: Option<Oid>,
}

impl<'a> Mender<'a> {
    /// A mender of the container with this root.
    pub(crate) fn new(pool: &'a Pool, root: Oid, inheritance: Inheritance) -> Self {
        Self { pool, root, inheritance, lost_and_found: None }
    }

    /// Mends one finding. `false` if there is no repair for it.
    ///
    /// # Errors
    /// If a target does not answer or refuses.
    pub(crate) fn mend(&mut self, finding: &Finding) -> Result<bool> {
        match finding {
            Finding::RootMissing { .. }
            | Finding::MisplacedInode { .. }
            | Finding::MisplacedData { .. }
            | Finding::LostData { .. }
            | Finding::UnreadableData { .. }
            | Finding::UnfinishedTransaction { .. } => return Ok(false),
            Finding::EntryWithoutInode(at)
            | Finding::EntryWithoutDirectory(at)
            | Finding::SurplusName { at, .. }
            | Finding::Loop { at, .. } => self.remove_entry(at)?,
            Finding::EntryOfWrongKind { at, found } => {
                self.remove_entry(at)?;
                let entry = Entry { oid: at.entry.oid, kind: *found };
                self.insert_entry(at.target, at.dir, &at.name, entry)?;
            }
            Finding::MisplacedEntry { at, expected } => self.move_entry(at, *expected)?,
            Finding::LostInode { oid, kind, .. } => {
                self.keep_lost(Entry { oid: *oid, kind: *kind })?;
            }
            Finding::WrongLinkCount { oid, found, .. } => {
                self.repair(oid.home(), Repair::SetLinks { oid: *oid, links: *found })?;
            }
            Finding::WrongParent { dir, found, .. } => {
                self.repair(dir.home(), Repair::SetParent { dir: *dir, parent: *found })?;
            }
            Finding::WrongShardCount { dir, target, .. }
            | Finding::ShardWithoutDirectory { dir, target } => {
                self.repair(*target, Repair::RecountShard { dir: *dir })?;
            }
            Finding::DataWithoutInode { oid, shard, target, .. } => {
                self.repair(*target, Repair::RemoveData { oid: *oid, shard: *shard })?;
            }
            Finding::HiddenData { oid } => {
                self.pool
                    .call(oid.home(), SetStriped { oid: *oid })
                    .with_context(|| format!("cannot make {oid} striped"))?;
            }
        }
        Ok(true)
    }

    fn repair(&self, target: TargetId, repair: Repair) -> Result<()> {
        let what = format!("{repair:?}");
        self.pool
            .call(target, typed::Repair { repair })
            .with_context(|| format!("target {} cannot mend ({what})", target.0))
    }

    fn remove_entry(&self, at: &EntryAt) -> Result<()> {
        self.repair(at.target, Repair::RemoveEntry { dir: at.dir, name: at.name.clone() })
    }

    fn insert_entry(&self, target: TargetId, dir: Oid, name: &[u8], entry: Entry) -> Result<()> {
        self.repair(target, Repair::InsertEntry { dir, name: name.to_owned(), entry })
    }

    /// Moves an entry to where it is looked for. If something else stands there, the entry goes,
    /// and what it led to is lost and found in the next pass.
    fn move_entry(&self, at: &EntryAt, expected: TargetId) -> Result<()> {
        let there = self.pool.call(expected, Lookup { dir: at.dir, name: &at.name });
        if there.is_err() {
            self.insert_entry(expected, at.dir, &at.name, at.entry)?;
        }
        self.remove_entry(at)
    }

    fn keep_lost(&mut self, entry: Entry) -> Result<()> {
        let lost_and_found = self.lost_and_found()?;
        let name = format!("#{}", entry.oid.inode_number()).into_bytes();
        let target = self.pool.placement().entry_target(lost_and_found, &name);
        self.insert_entry(target, lost_and_found, &name, entry)?;
        let (oid, home) = (entry.oid, entry.oid.home());
        if entry.kind == FileKind::Directory {
            self.repair(home, Repair::SetParent { dir: oid, parent: lost_and_found })
        } else {
            self.repair(home, Repair::SetLinks { oid, links: 1 })
        }
    }

    fn lost_and_found(&mut self) -> Result<Oid> {
        if let Some(dir) = self.lost_and_found {
            return Ok(dir);
        }
        let (dir, name) = (self.root, LOST_AND_FOUND);
        let target = self.pool.placement().entry_target(dir, name);
        let inode = NewInode {
            kind: FileKind::Directory,
            mode: 0o700,
            uid: 0,
            gid: 0,
            rdev: 0,
            symlink_text: Vec::new(),
            class: self.inheritance.dir_class,
            chunk_bytes: self.inheritance.chunk_bytes,
            inheritance: Some(self.inheritance),
        };
        let request = Create { dir, name, inode, open: false };
        let made = match self.pool.call(target, request).context("cannot make /lost+found")? {
            Creation::New(attr) => attr.oid,
            Creation::Existing(entry, _) if entry.kind == FileKind::Directory => entry.oid,
            Creation::Existing(..) => {
                bail!("/lost+found is not a directory: rename it and check again")
            }
        };
        self.lost_and_found = Some(made);
        Ok(made)
    }
}
