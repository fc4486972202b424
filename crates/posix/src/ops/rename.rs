//! `rename`, in all its modes. Owns who may move what; that it is atomic is the engines' work.

use azekura_proto::attr::FileKind;
use azekura_proto::message::typed::Rename;
use azekura_proto::message::{RenameMode, check_name};
use azekura_proto::{Attr, Oid};

use super::changed_dir::ChangedDir;
use super::create::{NewEntry, Striping};
use super::remove::allow_restricted;
use crate::errno::{of_client, of_status};
use crate::newborn::Going;
use crate::{Access, Credentials, Errno, FileSystem, Result, permission};

/// The device number of a whiteout.
const WHITEOUT_NUMBER: u64 = 0;

impl FileSystem {
    /// Moves or exchanges names (`renameat2`), atomically.
    ///
    /// # Errors
    /// Those of `rename`: `ENOENT`, `EEXIST`, `ENOTDIR`, `EISDIR`, `ENOTEMPTY`, `EINVAL` for a
    /// directory that would go below itself, `EACCES`, `EPERM`.
    pub fn rename(
        &self,
        caller: &Credentials,
        from_dir: Oid,
        from_name: &[u8],
        to_dir: Oid,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        for name in [from_name, to_name] {
            match name {
                b"." | b".." => return Err(Errno::BUSY),
                _ => check_name(name).map_err(of_status)?,
            }
        }
        if self.checks() && !caller.is_root() {
            self.check_rename(caller, (from_dir, from_name), (to_dir, to_name), mode)?;
        }
        let _naming = self.begin_naming(None);
        for dir in [from_dir, to_dir] {
            self.note_unsynced(dir);
        }
        let begun = match mode {
            RenameMode::Replace | RenameMode::NoReplace => {
                self.begin_move((from_dir, from_name), Going::Moved((to_dir, to_name)))?
            }
            RenameMode::Exchange | RenameMode::Whiteout(_) => {
                self.publish_names(&[from_dir, to_dir])?;
                None
            }
        };
        let _change = match mode {
            RenameMode::Replace | RenameMode::NoReplace => self.listed.move_name(from_dir, to_dir),
            RenameMode::Exchange | RenameMode::Whiteout(_) => self.listed.change_names(),
        };
        let request = Rename { from_dir, from_name, to_dir, to_name, mode };
        let naming = self.changes.begin_naming();
        let done = self.call_entry(to_dir, to_name, request);
        drop(naming);
        self.cache.forget_step(from_dir, from_name);
        self.cache.forget_step(to_dir, to_name);
        if done.is_ok() {
            self.end_move(begun);
        }
        // Also what moved, and what it replaced, may be a directory.
        self.cache.age_dirs();
        done
    }

    /// As [`FileSystem::rename`], with both directories as they were before and after.
    ///
    /// # Errors
    /// Those of [`FileSystem::rename`].
    pub fn rename_in(
        &self,
        caller: &Credentials,
        (from_dir, from_name): (&mut ChangedDir, &[u8]),
        (to_dir, to_name): (&mut ChangedDir, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from_dir.oid(), to_dir.oid());
        // What moves or is replaced may be a directory: what becomes of the counts is not known here.
        let both = [from, to];
        let dirs = if from == to { &both[..1] } else { &both[..] };
        let before = self.getattrs(dirs);
        let done = self.rename(caller, from, from_name, to, to_name, mode);
        let after = self.getattrs(dirs);
        let seen = before.iter().zip(&after);
        let mut seen = seen.map(|(before, after)| (before.as_ref().ok(), after.as_ref().ok()));
        let of_from = seen.next().unwrap_or_default();
        let of_to = seen.next().unwrap_or(of_from);
        from_dir.note(of_from.0, of_from.1);
        to_dir.note(of_to.0, of_to.1);
        done
    }

    /// Moves a name and leaves a whiteout, a character device with the number 0, under the old one
    /// (`RENAME_WHITEOUT`), atomically. So a file system that lies over this one goes on hiding what is
    /// below it.
    ///
    /// # Errors
    /// Those of [`FileSystem::rename`].
    pub fn rename_leaving_whiteout(
        &self,
        caller: &Credentials,
        (from_dir, from_name): (Oid, &[u8]),
        (to_dir, to_name): (Oid, &[u8]),
    ) -> Result<()> {
        let parent = self.parent_attr(from_dir)?;
        let inode = self.new_inode(
            caller,
            &parent,
            NewEntry::CharDevice(WHITEOUT_NUMBER),
            0,
            Striping::default(),
        );
        // Where the old name lies, so that looking it up takes one request. Without the name it goes when
        // the reference does, whatever becomes of the rename.
        let home = self.entry_target(from_dir, from_name);
        let created = self.pool().create_unlinked(self.container().id, home, inode);
        let (whiteout, _reference) = created.map_err(|error| of_client(&error))?;
        let mode = RenameMode::Whiteout(whiteout.oid);
        self.rename(caller, from_dir, from_name, to_dir, to_name, mode)
    }

    fn check_rename(
        &self,
        caller: &Credentials,
        (from_dir, from_name): (Oid, &[u8]),
        (to_dir, to_name): (Oid, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let from_parent = self.parent_attr(from_dir)?;
        let to_parent = self.parent_attr(to_dir)?;
        self.check_change(caller, &from_parent)?;
        self.check_change(caller, &to_parent)?;
        let moves = from_dir != to_dir;
        // Where nothing depends on what is moved, nobody looks at it.
        if moves || permission::is_restricted(caller, &from_parent) {
            let source = self.lookup_unchecked(from_dir, from_name)?;
            allow_move(caller, &from_parent, &source, moves)?;
        }
        let replaced_moves = moves && mode == RenameMode::Exchange;
        if !replaced_moves && !permission::is_restricted(caller, &to_parent) {
            return Ok(());
        }
        match self.lookup_unchecked(to_dir, to_name) {
            Ok(target) => allow_move(caller, &to_parent, &target, replaced_moves),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Whether the caller may take this object out of its directory, and, for a directory that gets
/// another parent, write in it.
fn allow_move(caller: &Credentials, parent: &Attr, object: &Attr, moves: bool) -> Result<()> {
    if permission::is_restricted(caller, parent) {
        allow_restricted(caller, object)?;
    }
    if moves && object.kind == FileKind::Directory {
        permission::check(caller, object, Access { write: true, ..Access::default() })?;
    }
    Ok(())
}
