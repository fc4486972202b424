//! Key-values: each key is a dkey with one single value.

use std::ffi::{c_char, c_int, c_uint, c_void};

use azekura_client::Objects as _;
use azekura_proto::limits::KEY_BYTES_MAX;

use crate::event::{finish, launch};
use crate::objects::handle::{daos_obj_close, daos_obj_open};
use crate::objects::list::{Room, list_dkeys};
use crate::objects::open::{self, check_no_transaction};
use crate::objects::punch::{MUST_EXIST, daos_obj_punch, remove_single};
use crate::objects::update::{KEY_INSERT, KEY_UPDATE, condition_of, put_one};
use crate::status::{Der, daos_call, number_of_der};
use crate::types::{
    Anchor, Event, Handle, KeyDescriptor, ObjectId, SgList, c_bytes, items, items_mut, place,
};

/// The akey under which the value of a key stands.
const VALUE: &[u8] = b"value";
/// The condition of a get that there is a value.
const KEY_GET: u64 = 1 << 3;

/// What a call about one key was given.
struct Access {
    object: Handle,
    transaction: Handle,
    flags: u64,
    key: *const c_char,
    memory: *mut u8,
    /// Of a put.
    bytes: u64,
    /// Of a get.
    size: *mut u64,
}

impl Access {
    fn key(&self) -> Result<&[u8], Der> {
        check_no_transaction(self.transaction)?;
        // SAFETY: a C string, by the contract.
        let key = unsafe { c_bytes(self.key) }.ok_or(Der::Inval)?;
        if (1..=KEY_BYTES_MAX).contains(&key.len()) { Ok(key) } else { Err(Der::Inval) }
    }

    fn put(&self) -> c_int {
        daos_call(|| {
            let key = self.key()?;
            let object = open::object(self.object)?;
            object.check_values()?;
            let condition = condition_of(self.flags, KEY_INSERT, KEY_UPDATE)?;
            // SAFETY: so many bytes, by the contract.
            let value = unsafe { items(self.memory.cast_const(), self.bytes as usize) };
            let oid = object.find_or_make()?;
            put_one(&object, oid, (key, VALUE), value.ok_or(Der::Inval)?, condition)
        })
    }

    fn get(&self) -> c_int {
        daos_call(|| {
            let key = self.key()?;
            let object = open::object(self.object)?;
            object.check_values()?;
            if self.flags & !KEY_GET != 0 {
                return Err(Der::Nosys);
            }
            // SAFETY: null or the caller's, by the contract.
            let size = unsafe { place(self.size) }.ok_or(Der::Inval)?;
            let room = std::mem::take(size);
            let found = match object.find()? {
                Some(oid) => object.pool().get(oid, key, VALUE)?,
                None => None,
            };
            let Some(found) = found else {
                return if self.flags & KEY_GET != 0 { Err(Der::Nonexist) } else { Ok(()) };
            };
            *size = found.len() as u64;
            if self.memory.is_null() {
                return Ok(());
            }
            if room < *size {
                return Err(Der::Rec2Big);
            }
            // SAFETY: there is room for so many, as was just checked.
            let memory = unsafe { items_mut(self.memory, found.len()) }.ok_or(Der::Inval)?;
            memory.copy_from_slice(&found);
            Ok(())
        })
    }

    fn remove(&self) -> c_int {
        daos_call(|| {
            let key = self.key()?;
            let object = open::object(self.object)?;
            object.check_values()?;
            object.check_writable()?;
            if self.flags & !MUST_EXIST != 0 {
                return Err(Der::Nosys);
            }
            let gone = match object.find()? {
                Some(oid) => remove_single(&object, oid, (key, VALUE))?,
                None => false,
            };
            if gone || self.flags & MUST_EXIST == 0 { Ok(()) } else { Err(Der::Nonexist) }
        })
    }
}

/// See `daos_kv.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_kv_open(
    container: Handle,
    id: ObjectId,
    mode: c_uint,
    handle: *mut Handle,
    event: *mut Event,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { daos_obj_open(container, id, mode, handle, event) }
}

/// See `daos_kv.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_kv_close(handle: Handle, event: *mut Event) -> c_int {
    // SAFETY: by the contract.
    unsafe { daos_obj_close(handle, event) }
}

/// See `daos_kv.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_kv_destroy(
    object: Handle,
    transaction: Handle,
    event: *mut Event,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { daos_obj_punch(object, transaction, 0, event) }
}

/// See `daos_kv.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_kv_put(
    object: Handle,
    transaction: Handle,
    flags: u64,
    key: *const c_char,
    bytes: u64,
    memory: *const c_void,
    event: *mut Event,
) -> c_int {
    let (memory, size) = (memory.cast_mut().cast(), std::ptr::null_mut());
    let given = Access { object, transaction, flags, key, memory, bytes, size };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_der, given, Access::put) }
}

/// See `daos_kv.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_kv_get(
    object: Handle,
    transaction: Handle,
    flags: u64,
    key: *const c_char,
    size: *mut u64,
    memory: *mut c_void,
    event: *mut Event,
) -> c_int {
    let given = Access { object, transaction, flags, key, memory: memory.cast(), bytes: 0, size };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_der, given, Access::get) }
}

/// See `daos_kv.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_kv_remove(
    object: Handle,
    transaction: Handle,
    flags: u64,
    key: *const c_char,
    event: *mut Event,
) -> c_int {
    let (memory, size) = (std::ptr::null_mut(), std::ptr::null_mut());
    let given = Access { object, transaction, flags, key, memory, bytes: 0, size };
    // SAFETY: by the contract.
    unsafe { launch(event, number_of_der, given, Access::remove) }
}

/// See `daos_kv.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_kv_list(
    object: Handle,
    transaction: Handle,
    count: *mut u32,
    descriptors: *mut KeyDescriptor,
    memory: *mut SgList,
    anchor: *mut Anchor,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let object = open::object(object)?;
        object.check_values()?;
        // SAFETY: by the contract.
        unsafe { list_dkeys(&object, Room::of(count, descriptors, memory, anchor)?) }
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
