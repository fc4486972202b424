//! `link`: a further name for an object that is there.

use azekura_proto::message::check_name;
use azekura_proto::message::typed::Link;
use azekura_proto::{Attr, Oid};

use crate::errno::of_status;
use crate::{Credentials, Errno, FileSystem, Result};

impl FileSystem {
    /// Another name for an object (also for a nameless one); gives its attributes then.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`, `EACCES`.
    pub fn link(&self, caller: &Credentials, oid: Oid, dir: Oid, name: &[u8]) -> Result<Attr> {
        check_name(name).map_err(of_status)?;
        if self.checks() {
            let parent = self.parent_attr(dir)?;
            self.check_change(caller, &parent)?;
        }
        self.call_entry(dir, name, Link { oid, dir, name }).map_err(|errno| match errno {
            Errno::ISDIR => Errno::PERM,
            other => other,
        })?;
        self.cache.forget_step(dir, name);
        self.cache.forget_dir(dir);
        self.getattr(oid)
    }
}
