//! Ids of objects, and opening and closing objects.

use std::ffi::{c_int, c_uint};

use crate::event::finish;
use crate::objects::open::{
    Form, GROUPS_SHIFT, OPEN_READ_ONLY, OpenObject, REDUNDANCY_SHIFT, TYPE_MAX, TYPE_SHIFT, add,
    class_of,
};
use crate::status::{Der, daos_call};
use crate::types::{Event, Handle, ObjectId, place};
use crate::{class, handles};

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_open(
    container: Handle,
    id: ObjectId,
    mode: c_uint,
    handle: *mut Handle,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let container = handles::container(container)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        class_of(id)?;
        let read_only = mode & OPEN_READ_ONLY != 0;
        let object = OpenObject::new(container, id, read_only, Form::Values);
        *handle = add(object);
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_close(handle: Handle, event: *mut Event) -> c_int {
    let rc = daos_call(|| handles::remove_object(handle));
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_generate_oid(
    container: Handle,
    id: *mut ObjectId,
    kind: u32,
    class_id: u32,
    _hints: u16,
    _arguments: u32,
) -> c_int {
    daos_call(|| {
        handles::container(container)?;
        // SAFETY: null or the caller's to read and write, by the contract.
        let id = unsafe { place(id) }.ok_or(Der::Inval)?;
        class::wanted(class_id).map_err(|_| Der::Inval)?;
        if kind > TYPE_MAX {
            return Err(Der::Inval);
        }
        let class = u64::from(class_id >> 24) << REDUNDANCY_SHIFT
            | u64::from(class_id & 0xffff) << GROUPS_SHIFT;
        id.hi = id.hi & u64::from(u32::MAX) | u64::from(kind) << TYPE_SHIFT | class;
        Ok(())
    })
}
