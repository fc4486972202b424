//! `link`: a further name for an object that is there.

use azekura_proto::message::check_name;
use azekura_proto::message::typed::Link;
use azekura_proto::{Attr, Oid, Timestamp};

use super::changed_dir::{ChangedDir, Effect};
use crate::errno::{of_entry, of_status};
use crate::writer::WriteLeases;
use crate::{Credentials, Errno, FileSystem, Result};

impl FileSystem {
    /// Another name for an object (also for a nameless one); gives its attributes then.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`, `EACCES`.
    pub fn link(&self, caller: &Credentials, oid: Oid, dir: Oid, name: &[u8]) -> Result<Attr> {
        self.link_entry(caller, oid, (dir, name), None)?;
        self.getattr(oid)
    }

    /// As [`FileSystem::link`], for callers who do not want the attributes.
    ///
    /// # Errors
    /// Those of [`FileSystem::link`].
    pub fn add_name(&self, caller: &Credentials, oid: Oid, dir: Oid, name: &[u8]) -> Result<()> {
        self.link_entry(caller, oid, (dir, name), None)
    }

    /// As [`FileSystem::link`], with the directory as it was before and after.
    ///
    /// # Errors
    /// Those of [`FileSystem::link`].
    pub fn link_in(
        &self,
        caller: &Credentials,
        oid: Oid,
        dir: &mut ChangedDir,
        name: &[u8],
    ) -> Result<Attr> {
        self.link_entry(caller, oid, (dir.oid(), name), Some(dir))?;
        self.getattr(oid)
    }

    fn link_entry(
        &self,
        caller: &Credentials,
        oid: Oid,
        (dir, name): (Oid, &[u8]),
        watched: Option<&mut ChangedDir>,
    ) -> Result<()> {
        check_name(name).map_err(of_status)?;
        let _naming = self.begin_naming(None);
        self.note_unsynced(dir);
        self.publish_names(&[dir])?;
        if self.checks() {
            let parent = self.parent_attr(dir)?;
            self.check_change(caller, &parent)?;
        }
        let effect = |stamp: &Option<Timestamp>| Effect::of_stamp(*stamp, 0);
        // The engine looks the object up as anybody would, and waits for whoever writes it: for this process too.
        let _settled = self.writing.settle(oid, WriteLeases::ReleaseFirst)?;
        let naming = self.changes.begin_naming();
        let _change = self.listed.change_names();
        let done = self.change_entry((dir, name), Link { oid, dir, name }, watched, effect);
        drop(naming);
        done.map_err(|error| match of_entry(&error) {
            Errno::ISDIR => Errno::PERM,
            other => other,
        })?;
        self.cache.forget_step(dir, name);
        self.cache.age_dir(dir);
        Ok(())
    }
}
