//! The cells behind the handle of an array: those of an object, or the bytes of a file that was opened in a
//! mounted container. Owns how either is read, written, measured and cut; which parts of memory that
//! concerns is for its callers to say.

use std::sync::Arc;

use azekura_client::{Objects as _, ShardIo};
use azekura_posix::{AttrUpdate, Credentials, FileSystem, OpenFile};
use azekura_proto::Layout;
use azekura_proto::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, FILE_BYTES_MAX};
use azekura_proto::message::Allocation;

use crate::handles;
use crate::objects::open::{Form, OpenObject};
use crate::status::Der;
use crate::types::Handle;

/// A file as an array of bytes.
pub(crate) struct FileCells {
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) caller: Credentials,
    pub(crate) file: Arc<OpenFile>,
    /// Bytes of a chunk.
    pub(crate) chunk_bytes: u64,
}

/// The cells of an array.
pub(super) enum Cells {
    /// Of an object, with the bytes of a cell and of a chunk as the pool deals it over targets.
    Own {
        object: Arc<OpenObject>,
        cell_bytes: u64,
        chunk_cells: u64,
        chunk_bytes: u32,
    },
    File(Arc<FileCells>),
}

/// The cells of a handle.
pub(super) fn cells(handle: Handle) -> Result<Cells, Der> {
    let found = handles::object(handle)?;
    let object = match found.downcast::<FileCells>() {
        Ok(file) => return Ok(Cells::File(file)),
        Err(other) => other.downcast::<OpenObject>().map_err(|_| Der::NoHdl)?,
    };
    let Form::Array { cell_bytes, chunk_cells } = object.form else { return Err(Der::NoHdl) };
    let wanted = cell_bytes.saturating_mul(chunk_cells);
    // What the pool can have and is nearest: cells are found by their place, wherever they lie.
    let page = u64::from(CHUNK_BYTES_MIN);
    let chunk = wanted.div_ceil(page).saturating_mul(page).min(CHUNK_BYTES_MAX.into());
    Ok(Cells::Own { object, cell_bytes, chunk_cells, chunk_bytes: chunk as u32 })
}

/// A handle of a file as an array.
pub(crate) fn add_file(cells: FileCells) -> Handle {
    handles::add_object(Arc::new(cells))
}

impl Cells {
    /// Bytes of a cell.
    pub(super) fn cell_bytes(&self) -> u64 {
        match self {
            Self::Own { cell_bytes, .. } => *cell_bytes,
            Self::File(_) => 1,
        }
    }

    /// Cells of a chunk.
    pub(super) fn chunk_cells(&self) -> u64 {
        match self {
            Self::Own { chunk_cells, .. } => *chunk_cells,
            Self::File(file) => file.chunk_bytes,
        }
    }

    /// Reads into all of `room`, zeros where there is nothing; gives how many bytes lie before the end.
    pub(super) fn read(&self, offset: u64, room: &mut [u8]) -> Result<usize, Der> {
        room.fill(0);
        match self {
            Self::Own { object, chunk_bytes, .. } => match object.find()? {
                Some(oid) => Ok(object.pool().array_read(oid, *chunk_bytes, offset, room)?),
                None => Ok(0),
            },
            Self::File(cells) => Ok(cells.fs.read(&cells.file, offset, room)?),
        }
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Der> {
        match self {
            Self::Own { object, chunk_bytes, .. } => {
                let oid = object.find_or_make()?;
                Ok(object.pool().array_write(oid, *chunk_bytes, offset, data)?)
            }
            Self::File(cells) => {
                let (mut at, mut data) = (offset, data);
                while !data.is_empty() {
                    match cells.fs.write(&cells.file, at, data)? {
                        0 => return Err(Der::Io),
                        bytes => {
                            at += bytes as u64;
                            data = &data[bytes..];
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// Length in bytes.
    pub(super) fn size(&self) -> Result<u64, Der> {
        match self {
            Self::Own { object, chunk_bytes, .. } => match object.find()? {
                Some(oid) => Ok(object.pool().array_size(oid, *chunk_bytes)?),
                None => Ok(0),
            },
            Self::File(cells) => Ok(cells.fs.getattr(cells.file.oid())?.size),
        }
    }

    /// Cuts or grows it to so many bytes.
    pub(super) fn set_size(&self, bytes: u64) -> Result<(), Der> {
        match self {
            Self::Own { object, chunk_bytes, .. } => {
                let oid = object.find_or_make()?;
                Ok(object.pool().array_truncate(oid, *chunk_bytes, bytes)?)
            }
            Self::File(cells) => {
                let (file, update) = (&*cells.file, AttrUpdate::size(bytes));
                if !file.is_writable() {
                    return Err(Der::NoPerm);
                }
                cells.fs.setattr(&cells.caller, file.oid(), Some(file), &update)?;
                Ok(())
            }
        }
    }

    /// Makes holes of these bytes (offset and length); what lies beyond the end is one already.
    pub(super) fn punch(&self, ranges: &[(u64, u64)]) -> Result<(), Der> {
        let ranges = ranges
            .iter()
            .map(|(from, bytes)| (*from, from.saturating_add(*bytes).min(FILE_BYTES_MAX)))
            .filter(|(from, end)| from < end);
        match self {
            Self::Own { object, chunk_bytes, .. } => {
                object.check_writable()?;
                let Some(oid) = object.find()? else { return Ok(()) };
                let layout = Layout::of_array(object.pool().placement(), oid, *chunk_bytes);
                let array = ShardIo::new(object.pool(), layout);
                for (from, end) in ranges {
                    array.allocate(from, end, Allocation::PunchHole)?;
                }
            }
            Self::File(cells) => {
                for (from, end) in ranges {
                    cells.fs.allocate(&cells.file, from, end - from, Allocation::PunchHole)?;
                }
            }
        }
        Ok(())
    }

    /// Removes all of it. `DER_NO_PERM` for a file, which goes with its name.
    pub(super) fn destroy(&self) -> Result<(), Der> {
        let Self::Own { object, .. } = self else { return Err(Der::NoPerm) };
        object.check_writable()?;
        let Some(oid) = object.find()? else { return Ok(()) };
        object.pool().punch_all(oid)?;
        Ok(object.pool().array_remove(oid)?)
    }
}
