//! `unlink` and `rmdir`. Owns who may remove a name; only engines know if a directory is empty.

use azekura_proto::message::check_name;
use azekura_proto::message::typed::{RemoveDirectory, Unlink};
use azekura_proto::{Attr, Oid, Timestamp};

use super::changed_dir::{ChangedDir, Effect};
use crate::errno::{of_entry, of_status};
use crate::newborn::Going;
use crate::{Credentials, Errno, FileSystem, Result, permission};

impl FileSystem {
    /// Removes a name of anything but a directory. The object lives on while it is open.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
    pub fn unlink(&self, caller: &Credentials, dir: Oid, name: &[u8]) -> Result<()> {
        self.remove_name(caller, (dir, name), None)
    }

    /// As [`FileSystem::unlink`], with the directory as it was before and after.
    ///
    /// # Errors
    /// Those of [`FileSystem::unlink`].
    pub fn unlink_in(&self, caller: &Credentials, dir: &mut ChangedDir, name: &[u8]) -> Result<()> {
        self.remove_name(caller, (dir.oid(), name), Some(dir))
    }

    fn remove_name(
        &self,
        caller: &Credentials,
        (dir, name): (Oid, &[u8]),
        watched: Option<&mut ChangedDir>,
    ) -> Result<()> {
        match name {
            b"." | b".." => return Err(Errno::ISDIR),
            _ => check_name(name).map_err(of_status)?,
        }
        if self.is_absent(dir, name) {
            self.check_search(caller, dir)?;
            return Err(Errno::NOENT);
        }
        let _naming = self.begin_naming(None);
        self.note_unsynced(dir);
        self.check_removal(caller, dir, name)?;
        let begun = self.begin_move((dir, name), Going::Unlinked)?;
        let effect = |stamp: &Option<Timestamp>| Effect::of_stamp(*stamp, 0);
        let naming = self.changes.begin_naming();
        let _change = self.listed.move_name(dir, dir);
        let done = self.change_entry((dir, name), Unlink { dir, name }, watched, effect);
        drop(naming);
        let done = done.map_err(|error| of_entry(&error));
        self.cache.forget_step(dir, name);
        if done.is_ok() {
            self.end_move(begun);
        }
        match done {
            Ok(Some(changed)) => self.cache.touch_dir(dir, changed, 0),
            _ => self.cache.age_dir(dir),
        }
        done.map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`; `EINVAL` for `.`.
    pub fn rmdir(&self, caller: &Credentials, dir: Oid, name: &[u8]) -> Result<()> {
        self.remove_directory(caller, (dir, name), None)
    }

    /// As [`FileSystem::rmdir`], with the directory above as it was before and after.
    ///
    /// # Errors
    /// Those of [`FileSystem::rmdir`].
    pub fn rmdir_in(&self, caller: &Credentials, dir: &mut ChangedDir, name: &[u8]) -> Result<()> {
        self.remove_directory(caller, (dir.oid(), name), Some(dir))
    }

    fn remove_directory(
        &self,
        caller: &Credentials,
        (dir, name): (Oid, &[u8]),
        watched: Option<&mut ChangedDir>,
    ) -> Result<()> {
        match name {
            b"." => return Err(Errno::INVAL),
            b".." => return Err(Errno::NOTEMPTY),
            _ => check_name(name).map_err(of_status)?,
        }
        if self.is_absent(dir, name) {
            self.check_search(caller, dir)?;
            return Err(Errno::NOENT);
        }
        let _naming = self.begin_naming(None);
        self.note_unsynced(dir);
        self.check_removal(caller, dir, name)?;
        let begun = self.begin_move((dir, name), Going::Removed)?;
        let effect = |stamp: &Option<Timestamp>| Effect::of_stamp(*stamp, -1);
        let _change = self.listed.move_name(dir, dir);
        let done = self.change_entry((dir, name), RemoveDirectory { dir, name }, watched, effect);
        if done.is_ok() {
            self.end_move(begun);
        }
        // Names kept below the directory lead nowhere now, and age away.
        self.cache.forget_step(dir, name);
        self.cache.age_dirs();
        done.map(drop).map_err(|error| of_entry(&error))
    }

    /// Whether the caller may remove this name, if that is checked here.
    fn check_removal(&self, caller: &Credentials, dir: Oid, name: &[u8]) -> Result<()> {
        if !self.checks() || caller.is_root() {
            return Ok(());
        }
        let parent = self.parent_attr(dir)?;
        self.check_change(caller, &parent)?;
        if permission::is_restricted(caller, &parent) {
            let victim = self.lookup_unchecked(dir, name)?;
            return allow_restricted(caller, &victim);
        }
        Ok(())
    }
}

/// In a sticky directory that belongs to another, only the owner of an object removes it.
pub(super) fn allow_restricted(caller: &Credentials, victim: &Attr) -> Result<()> {
    if permission::owns(caller, victim) { Ok(()) } else { Err(Errno::PERM) }
}
