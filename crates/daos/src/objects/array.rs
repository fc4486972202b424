//! Arrays of cells: the array of an object, and a value beside it that keeps the sizes of cells and chunks.

use std::ffi::{c_int, c_uint};

use azekura_client::Objects as _;
use azekura_proto::message::Condition;

use crate::data::{Part, parts_of, pieces};
use crate::event::{finish, launch};
use crate::handles;
use crate::objects::cells::cells;
use crate::objects::handle::daos_obj_close;
use crate::objects::open::{self, Form, OPEN_READ_ONLY, OpenObject, check_no_transaction};
use crate::objects::update::put_one;
use crate::status::{Der, daos_call, number_of_der};
use crate::types::{
    ArrayRanges, ArrayStat, Event, Handle, ObjectId, Range, SgList, items, place, put,
};

/// The keys under which the sizes stand: dkey 0, as no chunk has it.
const SIZES: (&[u8], &[u8]) = (&[0; 8], b"sizes");

fn form_of(cell_bytes: u64, chunk_cells: u64) -> Result<Form, Der> {
    if cell_bytes == 0 || chunk_cells == 0 {
        return Err(Der::Inval);
    }
    Ok(Form::Array { cell_bytes, chunk_cells })
}

fn encode(cell_bytes: u64, chunk_cells: u64) -> [u8; 16] {
    (u128::from(cell_bytes) << 64 | u128::from(chunk_cells)).to_be_bytes()
}

fn decode(bytes: &[u8]) -> Result<(u64, u64), Der> {
    let both = u128::from_be_bytes(bytes.try_into().map_err(|_| Der::Io)?);
    Ok(((both >> 64) as u64, both as u64))
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_create(
    container: Handle,
    id: ObjectId,
    transaction: Handle,
    cell_bytes: u64,
    chunk_cells: u64,
    handle: *mut Handle,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let container = handles::container(container)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        let form = form_of(cell_bytes, chunk_cells)?;
        let object = OpenObject::new(container, id, false, form);
        let oid = object.find_or_make()?;
        let sizes = encode(cell_bytes, chunk_cells);
        put_one(&object, oid, SIZES, &sizes, Condition::MustNotExist)?;
        *handle = open::add(object);
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_open(
    container: Handle,
    id: ObjectId,
    transaction: Handle,
    mode: c_uint,
    cell_bytes: *mut u64,
    chunk_cells: *mut u64,
    handle: *mut Handle,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let container = handles::container(container)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        let read_only = mode & OPEN_READ_ONLY != 0;
        let mut object = OpenObject::new(container, id, read_only, Form::Values);
        let oid = object.find()?.ok_or(Der::Nonexist)?;
        let (dkey, akey) = SIZES;
        let kept = object.pool().get(oid, dkey, akey)?.ok_or(Der::Nonexist)?;
        let (cell, chunk) = decode(&kept)?;
        object.form = form_of(cell, chunk)?;
        // SAFETY: both are null or the caller's to write to, by the contract.
        unsafe {
            put(cell_bytes, cell);
            put(chunk_cells, chunk);
        }
        *handle = open::add(object);
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_open_with_attr(
    container: Handle,
    id: ObjectId,
    transaction: Handle,
    mode: c_uint,
    cell_bytes: u64,
    chunk_cells: u64,
    handle: *mut Handle,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let container = handles::container(container)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        let form = form_of(cell_bytes, chunk_cells)?;
        let read_only = mode & OPEN_READ_ONLY != 0;
        *handle = open::add(OpenObject::new(container, id, read_only, form));
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_close(handle: Handle, event: *mut Event) -> c_int {
    // SAFETY: by the contract.
    unsafe { daos_obj_close(handle, event) }
}

/// Ranges by their first byte and their length in bytes.
type ByteRanges = Vec<(u64, u64)>;

/// What a call that moves cells was given.
struct Transfer {
    object: Handle,
    transaction: Handle,
    ranges: *mut ArrayRanges,
    list: *mut SgList,
}

impl Transfer {
    /// The ranges in bytes.
    fn byte_ranges(&self, cell_bytes: u64) -> Result<ByteRanges, Der> {
        // SAFETY: by the contract.
        let ranges = unsafe { place(self.ranges) }.ok_or(Der::Inval)?;
        // SAFETY: by the contract.
        let ranges: &[Range] = unsafe { items(ranges.ranges.cast_const(), ranges.count as usize) }
            .ok_or(Der::Inval)?;
        let bytes = |cells: u64| cells.checked_mul(cell_bytes).ok_or(Der::Overflow);
        ranges.iter().map(|range| Ok((bytes(range.index)?, bytes(range.length)?))).collect()
    }

    /// The parts of memory, and the ranges in bytes.
    fn parts(&self, cell_bytes: u64) -> Result<(Vec<Part>, ByteRanges), Der> {
        let ranges = self.byte_ranges(cell_bytes)?;
        // SAFETY: by the contract.
        let iovs = unsafe { pieces(self.list) }.map_err(|_| Der::Inval)?;
        let parts = parts_of(ranges.iter().copied(), iovs).map_err(|_| Der::Inval)?;
        Ok((parts, ranges))
    }

    fn read(&self) -> c_int {
        daos_call(|| {
            check_no_transaction(self.transaction)?;
            let cells = cells(self.object)?;
            let cell_bytes = cells.cell_bytes();
            let (parts, ranges) = self.parts(cell_bytes)?;
            let mut all_there = true;
            for part in parts {
                // SAFETY: the caller's memory to write to, by the contract.
                let got = cells.read(part.offset, unsafe { part.room() })?;
                all_there &= got == part.bytes;
            }
            let wanted = ranges.iter().map(|(_, bytes)| bytes / cell_bytes).sum();
            let mut there = wanted;
            if !all_there {
                let size = cells.size()?;
                let before_end = |&(from, bytes): &(u64, u64)| {
                    size.saturating_sub(from).min(bytes).div_ceil(cell_bytes)
                };
                there = ranges.iter().map(before_end).sum();
            }
            // SAFETY: by the contract.
            let result = unsafe { place(self.ranges) }.ok_or(Der::Inval)?;
            (result.read, result.short_read) = (there, wanted - there);
            Ok(())
        })
    }

    fn write(&self) -> c_int {
        daos_call(|| {
            check_no_transaction(self.transaction)?;
            let cells = cells(self.object)?;
            let (parts, _) = self.parts(cells.cell_bytes())?;
            // SAFETY: the caller's memory to read, by the contract.
            parts.into_iter().try_for_each(|part| cells.write(part.offset, unsafe { part.data() }))
        })
    }

    fn punch(&self) -> c_int {
        daos_call(|| {
            check_no_transaction(self.transaction)?;
            let cells = cells(self.object)?;
            cells.punch(&self.byte_ranges(cells.cell_bytes())?)
        })
    }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_read(
    object: Handle,
    transaction: Handle,
    ranges: *mut ArrayRanges,
    list: *mut SgList,
    event: *mut Event,
) -> c_int {
    let given = Transfer { object, transaction, ranges, list };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_der, given, Transfer::read) }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_write(
    object: Handle,
    transaction: Handle,
    ranges: *mut ArrayRanges,
    list: *mut SgList,
    event: *mut Event,
) -> c_int {
    let given = Transfer { object, transaction, ranges, list };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_der, given, Transfer::write) }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_punch(
    object: Handle,
    transaction: Handle,
    ranges: *mut ArrayRanges,
    event: *mut Event,
) -> c_int {
    let given = Transfer { object, transaction, ranges, list: std::ptr::null_mut() };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_der, given, Transfer::punch) }
}

fn size(object: Handle, transaction: Handle) -> Result<u64, Der> {
    check_no_transaction(transaction)?;
    let cells = cells(object)?;
    Ok(cells.size()?.div_ceil(cells.cell_bytes()))
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_get_size(
    object: Handle,
    transaction: Handle,
    count: *mut u64,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        // SAFETY: null or the caller's to write to, by the contract.
        *unsafe { place(count) }.ok_or(Der::Inval)? = size(object, transaction)?;
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_stat(
    object: Handle,
    transaction: Handle,
    stat: *mut ArrayStat,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        // SAFETY: null or the caller's to write to, by the contract.
        let stat = unsafe { place(stat) }.ok_or(Der::Inval)?;
        *stat = ArrayStat { cells: size(object, transaction)?, epoch: 0 };
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_set_size(
    object: Handle,
    transaction: Handle,
    count: u64,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let cells = cells(object)?;
        cells.set_size(count.checked_mul(cells.cell_bytes()).ok_or(Der::Overflow)?)
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_get_attr(
    object: Handle,
    chunk_cells: *mut u64,
    cell_bytes: *mut u64,
) -> c_int {
    daos_call(|| {
        let cells = cells(object)?;
        // SAFETY: both are null or the caller's to write to, by the contract.
        unsafe {
            put(chunk_cells, cells.chunk_cells());
            put(cell_bytes, cells.cell_bytes());
        }
        Ok(())
    })
}

/// See `daos_array.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_array_destroy(
    object: Handle,
    transaction: Handle,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        cells(object)?.destroy()
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
