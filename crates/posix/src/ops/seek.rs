//! `SEEK_DATA` and `SEEK_HOLE`. Owns what they mean at the end of a file.

use azekura_proto::attr::FileKind;

use crate::errno::of_client;
use crate::{Errno, FileSystem, OpenFile, Result};

/// What `seek` looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// Data.
    Data,
    /// A hole; the end of the file counts as one.
    Hole,
}

impl FileSystem {
    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// `ENXIO` if there is none before the end, or `offset` is at the end or beyond.
    pub fn seek(&self, file: &OpenFile, offset: u64, to: SeekTo) -> Result<u64> {
        if file.kind() != FileKind::Regular {
            return Err(Errno::INVAL);
        }
        let (layout, attr) = (&file.layout, self.getattr(file.oid())?);
        layout.learn_striped(attr.striped);
        if offset >= attr.size {
            return Err(Errno::NXIO);
        }
        let shards = if layout.is_striped() { layout.shards() } else { 1 };
        let earliest = self
            .shard_io(layout)
            .seek(offset, to == SeekTo::Hole, shards)
            .map_err(|error| of_client(&error))?;
        match (earliest, to) {
            (Some(found), SeekTo::Data) if found < attr.size => Ok(found),
            (_, SeekTo::Data) => Err(Errno::NXIO),
            (found, SeekTo::Hole) => Ok(found.unwrap_or(attr.size).min(attr.size)),
        }
    }
}
