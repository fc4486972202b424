//! The array of an object: bytes at offsets, dealt over its targets chunk by chunk.

use std::ffi::c_int;

use azekura_client::{Objects as _, ShardIo};
use azekura_posix::{Allocation, Errno};
use azekura_proto::Layout;
use azekura_proto::limits::FILE_BYTES_MAX;

use crate::call::{count, offset, status};
use crate::failure::{About as _, Failure, Outcome};
use crate::object::Object;
use crate::pointers::{Bytes, Room, handle};

/// `EFBIG` for a range that no array can have.
fn check_range(offset: u64, bytes: u64) -> Outcome<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(()),
        _ => Err(Failure::with(Errno::FBIG, "an array ends before 2^63 bytes")),
    }
}

/// `azekura_array_read`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_array_read(
    object: Option<&Object>,
    buffer: Room<'_>,
    bytes: usize,
    offset: u64,
) -> isize {
    count("azekura_array_read", || {
        let object = handle(object, "object")?;
        // SAFETY: `bytes` is the room in `buffer`.
        let buffer = unsafe { buffer.slice(bytes, "buffer") }?;
        let room = FILE_BYTES_MAX.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if room == 0 {
            return Ok(0);
        }
        object
            .pool
            .array_read(object.oid, object.chunk_bytes, offset, &mut buffer[..room])
            .about(object.subject())
    })
}

/// `azekura_array_write`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_array_write(
    object: Option<&Object>,
    data: Bytes<'_>,
    bytes: usize,
    offset: u64,
) -> c_int {
    status("azekura_array_write", || {
        let object = handle(object, "object")?;
        // SAFETY: `bytes` is the length of `data`.
        let data = unsafe { data.slice(bytes, "data") }?;
        check_range(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        object
            .pool
            .array_write(object.oid, object.chunk_bytes, offset, data)
            .about(object.subject())
    })
}

/// `azekura_array_size`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_array_size(object: Option<&Object>) -> i64 {
    offset("azekura_array_size", || {
        let object = handle(object, "object")?;
        object.pool.array_size(object.oid, object.chunk_bytes).about(object.subject())
    })
}

/// `azekura_array_truncate`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_array_truncate(object: Option<&Object>, size: u64) -> c_int {
    status("azekura_array_truncate", || {
        let object = handle(object, "object")?;
        check_range(0, size)?;
        object.pool.array_truncate(object.oid, object.chunk_bytes, size).about(object.subject())
    })
}

/// `azekura_array_punch`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_array_punch(
    object: Option<&Object>,
    offset: u64,
    bytes: u64,
) -> c_int {
    status("azekura_array_punch", || {
        let object = handle(object, "object")?;
        check_range(offset, bytes)?;
        let placement = object.pool.placement();
        let layout = Layout::of_array(placement, object.oid, object.chunk_bytes);
        ShardIo::new(&object.pool, layout)
            .allocate(offset, offset + bytes, Allocation::PunchHole)
            .about(object.subject())
    })
}

/// `azekura_array_remove`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_array_remove(object: Option<&Object>) -> c_int {
    status("azekura_array_remove", || {
        let object = handle(object, "object")?;
        object.pool.array_remove(object.oid).about(object.subject())
    })
}
