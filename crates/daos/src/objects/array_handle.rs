//! Open arrays as bytes, of which another process makes open arrays.

use std::ffi::{c_int, c_uint};

use azekura_posix::{Errno, OFlags};
use serde::{Deserialize, Serialize};

use crate::global::{self, Kind};
use crate::handles::{self, ContainerHandle};
use crate::mount::Mount;
use crate::object::Object;
use crate::objects::cells::{self, Cells, FileCells, cells};
use crate::objects::open::{self, Form, OPEN_READ_ONLY, OpenObject};
use crate::status::{Der, daos_call};
use crate::types::{Handle, Iov, ObjectId, place};

/// An open array of a container that the receiver has.
#[derive(Serialize, Deserialize)]
struct GlobalArray {
    container: u32,
    id: (u64, u64),
    read_only: bool,
    cell_bytes: u64,
    chunk_cells: u64,
    /// It is a file with this id.
    is_file: bool,
}

/// The file of an array of bytes, opened in the container of the receiver.
fn open_file(
    container: &ContainerHandle,
    id: ObjectId,
    read_only: bool,
) -> Result<FileCells, Errno> {
    let flags = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let mount = Mount::new(container, flags.bits().cast_signed())?;
    let oid = mount.own(id.to_ours().ok_or(Errno::INVAL)?)?;
    Object::open(&mount, &mount.fs().getattr(oid)?, flags)?.cells()
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_local2global(handle: Handle, iov: *mut Iov) -> c_int {
    daos_call(|| {
        let cells = cells(handle)?;
        let (container, id, read_only, is_file) = match &cells {
            Cells::Own { object, .. } => {
                (object.container.container.id, object.id, object.read_only, false)
            }
            Cells::File(file) => {
                let oid = file.file.oid();
                (oid.container(), ObjectId::of(oid), !file.file.is_writable(), true)
            }
        };
        let contents = GlobalArray {
            container: container.0,
            id: (id.hi, id.lo),
            read_only,
            cell_bytes: cells.cell_bytes(),
            chunk_cells: cells.chunk_cells(),
            is_file,
        };
        // SAFETY: a list with its buffer, by the contract.
        unsafe { global::give(Kind::Array, &contents, iov) }
    })
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_global2local(
    container: Handle,
    iov: Iov,
    mode: c_uint,
    handle: *mut Handle,
) -> c_int {
    daos_call(|| {
        let container = handles::container(container)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        // SAFETY: a list with its buffer, by the contract.
        let contents: GlobalArray = unsafe { global::take(Kind::Array, &iov) }?;
        let GlobalArray { cell_bytes, chunk_cells, .. } = contents;
        if contents.container != container.container.id.0 || cell_bytes == 0 || chunk_cells == 0 {
            return Err(Der::Inval);
        }
        let read_only = if mode == 0 { contents.read_only } else { mode & OPEN_READ_ONLY != 0 };
        let id = ObjectId { hi: contents.id.0, lo: contents.id.1 };
        if contents.is_file {
            *handle = cells::add_file(open_file(&container, id, read_only)?);
            return Ok(());
        }
        let form = Form::Array { cell_bytes, chunk_cells };
        *handle = open::add(OpenObject::new(container, id, read_only, form));
        Ok(())
    })
}
