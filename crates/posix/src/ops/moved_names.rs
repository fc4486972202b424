//! Removing and moving names by requests that are waited for. Owns whether the leases of names are given back for
//! it: not where what is known of the names goes on being so ([`crate::newborn::Move`]), since whoever writes a file
//! under another name and gives it its own would make nothing early else.

use azekura_proto::Oid;

use crate::errno::of_client;
use crate::newborn::{Going, Move};
use crate::{FileSystem, Result};

impl FileSystem {
    /// A name is about to go, by a request that comes after all that is in flight. Leases of names are given back
    /// unless what is known under them stays so.
    pub(super) fn begin_move<'a>(
        &self,
        from: (Oid, &'a [u8]),
        going: Going<'a>,
    ) -> Result<Option<Move<'a>>> {
        if self.newborns.are_none() {
            return Ok(None);
        }
        let begun = self.newborns.begin_move(self.pool().names_generation(), from, going);
        if begun.is_none() {
            let to = if let Going::Moved((dir, _)) = going { dir } else { from.0 };
            self.publish_names(&[from.0, to])?;
        }
        Ok(begun)
    }

    /// It has been done.
    pub(super) fn end_move(&self, begun: Option<Move<'_>>) {
        let Some(begun) = begun else { return };
        let to_shard = begun.to().and_then(|(dir, name)| {
            let target = self.entry_target(dir, name);
            self.pool().placement().shard_on_target(dir, target)
        });
        self.newborns.end_move(self.pool().names_generation(), &begun, to_shard);
    }

    /// Names are about to change in a way that leases of names are no good for: everything in flight arrives
    /// and all of them are given back. None is asked for in these directories for a while.
    pub(super) fn publish_names(&self, dirs: &[Oid]) -> Result<()> {
        if !self.changes_fly() {
            return Ok(());
        }
        let now = self.now();
        for dir in dirs {
            self.newborns.refuse(*dir, now);
        }
        if self.newborns.are_none() {
            return Ok(());
        }
        self.pool().publish().map_err(|error| of_client(&error))
    }
}
