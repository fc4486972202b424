//! Attributes of containers, and numbers for objects. Owns where both stand among what a container keeps
//! for this interface.

use std::ffi::{c_char, c_int, c_void};

use azekura_client::{ClientError, Objects as _};
use azekura_proto::Status;
use azekura_proto::limits::{BATCH_UPDATES_MAX, VALUE_BYTES_MAX};
use azekura_proto::message::{Condition, ValueUpdate};

use crate::event::finish;
use crate::handles::{self, ContainerHandle};
use crate::objects::table::values_of;
use crate::status::{Der, daos_call};
use crate::types::{Event, Handle, c_bytes, items, items_mut, place};

/// The dkey of all attributes; each is an akey.
const ATTRIBUTES: &[u8] = b"a";
/// Where the next number for an object stands.
const NUMBERS: (&[u8], &[u8]) = (b"n", b"next");
/// The first number.
const FIRST: u64 = 1;
/// Longest name of an attribute in bytes.
const NAME_BYTES_MAX: usize = 511;
/// Names asked for at a time.
const NAMES_AT_ONCE: u32 = 256;
/// Clients that take numbers at the same time get in each other's way at most so often.
const ROUNDS: u32 = 1000;

/// The names that a caller gives.
///
/// # Safety
/// So many C strings stand there for `'a`.
unsafe fn names_of<'a>(count: c_int, names: *const *const c_char) -> Result<Vec<&'a [u8]>, Der> {
    let count = usize::try_from(count).map_err(|_| Der::Inval)?;
    if count == 0 || count > BATCH_UPDATES_MAX {
        return Err(Der::Inval);
    }
    // SAFETY: the caller's promise.
    let names = unsafe { items(names, count) }.ok_or(Der::Inval)?;
    let name = |name: &*const c_char| {
        // SAFETY: the caller's promise.
        let name = unsafe { c_bytes(*name) }.ok_or(Der::Inval)?;
        if (1..=NAME_BYTES_MAX).contains(&name.len()) { Ok(name) } else { Err(Der::Inval) }
    };
    names.iter().map(name).collect()
}

/// The container, to be written to.
fn writable(handle: Handle) -> Result<std::sync::Arc<ContainerHandle>, Der> {
    let open = handles::container(handle)?;
    if open.read_only { Err(Der::NoPerm) } else { Ok(open) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_list_attr(
    handle: Handle,
    buffer: *mut c_char,
    bytes: *mut usize,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let open = handles::container(handle)?;
        // SAFETY: null or the caller's, by the contract.
        let bytes = unsafe { place(bytes) }.ok_or(Der::Inval)?;
        let room = if buffer.is_null() { 0 } else { *bytes };
        let mut all = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let (names, end) = open.pool.pool.list_akeys(
                values_of(open.container.id),
                ATTRIBUTES,
                after.as_deref(),
                NAMES_AT_ONCE,
            )?;
            for name in &names {
                all.extend_from_slice(name);
                all.push(0);
            }
            after = names.into_iter().next_back().or(after);
            if end {
                break;
            }
        }
        let count = all.len().min(room);
        // SAFETY: there is so much room, by the contract.
        let to = unsafe { items_mut(buffer.cast::<u8>(), count) }.ok_or(Der::Inval)?;
        to.copy_from_slice(&all[..count]);
        *bytes = all.len();
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_get_attr(
    handle: Handle,
    count: c_int,
    names: *const *const c_char,
    buffers: *const *mut c_void,
    sizes: *mut usize,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let open = handles::container(handle)?;
        // SAFETY: by the contract.
        let (names, sizes) = unsafe { (names_of(count, names)?, items_mut(sizes, count as usize)) };
        // SAFETY: null or so many, by the contract.
        let buffers = unsafe { items(buffers, count as usize) };
        for (index, (name, size)) in names.iter().zip(sizes.ok_or(Der::Inval)?).enumerate() {
            let oid = values_of(open.container.id);
            let value = open.pool.pool.get(oid, ATTRIBUTES, name)?.ok_or(Der::Nonexist)?;
            let to = buffers.map_or(std::ptr::null_mut(), |buffers| buffers[index]);
            let fits = if to.is_null() { 0 } else { value.len().min(*size) };
            // SAFETY: there is so much room, by the contract.
            let to = unsafe { items_mut(to.cast::<u8>(), fits) }.ok_or(Der::Inval)?;
            to.copy_from_slice(&value[..fits]);
            *size = value.len();
        }
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_set_attr(
    handle: Handle,
    count: c_int,
    names: *const *const c_char,
    values: *const *const c_void,
    sizes: *const usize,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let open = writable(handle)?;
        // SAFETY: by the contract.
        let names = unsafe { names_of(count, names) }?;
        // SAFETY: so many, by the contract.
        let (values, sizes) = unsafe { (items(values, names.len()), items(sizes, names.len())) };
        let (values, sizes) = (values.ok_or(Der::Inval)?, sizes.ok_or(Der::Inval)?);
        let mut updates = Vec::new();
        for (akey, (value, size)) in names.into_iter().zip(values.iter().zip(sizes)) {
            if *size > VALUE_BYTES_MAX {
                return Err(Der::Overflow);
            }
            // SAFETY: so many bytes, by the contract.
            let value = unsafe { items(value.cast::<u8>(), *size) }.ok_or(Der::Inval)?;
            let condition = Condition::Always;
            updates.push(ValueUpdate { dkey: ATTRIBUTES, akey, value: Some(value), condition });
        }
        Ok(open.pool.pool.update(values_of(open.container.id), updates)?)
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_del_attr(
    handle: Handle,
    count: c_int,
    names: *const *const c_char,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let open = writable(handle)?;
        // SAFETY: by the contract.
        let names = unsafe { names_of(count, names) }?;
        let condition = Condition::Always;
        let gone = |akey| ValueUpdate { dkey: ATTRIBUTES, akey, value: None, condition };
        let updates = names.into_iter().map(gone).collect();
        Ok(open.pool.pool.update(values_of(open.container.id), updates)?)
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// The next number for an object, once there was one.
fn kept_number(open: &ContainerHandle) -> Result<Option<u64>, Der> {
    let (dkey, akey) = NUMBERS;
    let kept = open.pool.pool.get(values_of(open.container.id), dkey, akey)?;
    let number = |bytes: Vec<u8>| bytes.try_into().map(u64::from_be_bytes).map_err(|_| Der::Io);
    kept.map(number).transpose()
}

/// The next number for an object that nobody has yet.
pub(crate) fn allocated(open: &ContainerHandle) -> Result<u64, Der> {
    Ok(kept_number(open)?.unwrap_or(FIRST))
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_alloc_oids(
    handle: Handle,
    count: u64,
    first: *mut u64,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let open = writable(handle)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let first = unsafe { place(first) }.ok_or(Der::Inval)?;
        let (dkey, akey) = NUMBERS;
        for _ in 0..ROUNDS {
            let kept = kept_number(&open)?;
            let now = kept.unwrap_or(FIRST);
            let then = now.checked_add(count).ok_or(Der::Overflow)?.to_be_bytes();
            let before = now.to_be_bytes();
            let condition =
                if kept.is_none() { Condition::MustNotExist } else { Condition::Equals(&before) };
            let update = ValueUpdate { dkey, akey, value: Some(&then), condition };
            match open.pool.pool.update(values_of(open.container.id), vec![update]) {
                // Somebody else was first.
                Err(ClientError::Status(Status::ConditionFailed)) => {}
                other => {
                    *first = now;
                    return Ok(other?);
                }
            }
        }
        Err(Der::Busy)
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
