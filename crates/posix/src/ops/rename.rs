//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code, unused_imports)]
use crate::{Credentials, FileSystem, OpenFile, Result};
use azekura_proto::attr::SetTime;
use azekura_proto::message::*;
use azekura_proto::{Attr, FileKind, Oid};
use rustix::fs::OFlags;
use std::sync::Arc;

impl FileSystem {
    /// Moves or exchanges names (`renameat2`).
    pub fn rename(
        &self,
        caller: &Credentials,
        from_dir: Oid,
        from_name: &[u8],
        to_dir: Oid,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        todo!()
    }
}
