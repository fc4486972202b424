//! Taking privileges from a file whose data change. Owns the requests for it, and their order: before the
//! change, so that nothing of it ever runs with them.

use azekura_proto::Oid;
use azekura_proto::attr::{AttrChange, CAPABILITY_XATTR};
use azekura_proto::message::typed::{GetAttr, GetXattr, RemoveXattr, SetAttr};

use crate::privileges::AtFirstWrite;
use crate::{Credentials, Errno, FileSystem, Privileges, Result};

impl FileSystem {
    /// The privileges that a file has now.
    ///
    /// # Errors
    /// `ESTALE` if it is gone.
    pub fn privileges(&self, oid: Oid) -> Result<Privileges> {
        // Writes on their way change none of them, so they are not waited for.
        Ok(Privileges::of(&*self.call(oid.home(), GetAttr { oid })?))
    }

    /// Takes from a file what a write must not leave it, before that write. `writer` is `None` if set-id
    /// bits may stay. `privileges` are those that are left then. Tells whether anything was taken.
    ///
    /// # Errors
    /// `ESTALE` if the file is gone.
    pub fn take_privileges(
        &self,
        oid: Oid,
        privileges: &mut Privileges,
        writer: Option<&Credentials>,
    ) -> Result<bool> {
        let taken = privileges.may_have_capability && self.take_capability(oid)?;
        privileges.may_have_capability = false;
        let lost = writer.map_or(0, |writer| privileges.take_bits(writer));
        let cleared = (lost != 0).then(|| {
            let change = AttrChange { clear_mode_bits: lost, ..AttrChange::default() };
            let _change = self.begin_change(oid);
            self.call(oid.home(), SetAttr { oid, change })
        });
        self.files.forget(oid);
        cleared.transpose().map(|cleared| taken || cleared.is_some())
    }

    /// Does what was put off until the first change of the data through a handle.
    pub(crate) fn do_at_first_write(
        &self,
        oid: Oid,
        first: Option<Box<AtFirstWrite>>,
    ) -> Result<()> {
        let Some(first) = first else { return Ok(()) };
        let AtFirstWrite { mut privileges, opener } = *first;
        let writer = (!opener.is_root()).then_some(&opener);
        self.take_privileges(oid, &mut privileges, writer).map(drop)
    }

    /// Takes the capabilities of a file; whether it had any.
    ///
    /// # Errors
    /// What the engine answers.
    pub fn take_capability(&self, oid: Oid) -> Result<bool> {
        // Most extended attributes are others, and looking changes nothing.
        match self.call(oid.home(), GetXattr { oid, name: CAPABILITY_XATTR }) {
            Err(Errno::NOENT) => return Ok(false),
            other => other?,
        };
        let _change = self.begin_change(oid);
        let _names = self.listed.change_names();
        match self.call(oid.home(), RemoveXattr { oid, name: CAPABILITY_XATTR }) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(errno),
        }
    }
}
