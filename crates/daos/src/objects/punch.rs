//! Removing values.

use std::ffi::{c_int, c_uint};

use azekura_client::{ClientError, Objects as _};
use azekura_proto::message::{Condition, ValueUpdate};
use azekura_proto::{Oid, Status};

use crate::event::finish;
use crate::objects::memory::{bytes_of_key, key};
use crate::objects::open::{self, OpenObject, check_no_transaction};
use crate::status::{Der, daos_call};
use crate::types::{Event, Handle, Iov, items};

/// The condition that there is something to remove.
pub(super) const MUST_EXIST: u64 = 1;

/// Removes a single value; false if there was none.
pub(super) fn remove_single(
    object: &OpenObject,
    oid: Oid,
    (dkey, akey): (&[u8], &[u8]),
) -> Result<bool, Der> {
    let condition = Condition::MustExist;
    let gone = ValueUpdate { dkey, akey, value: None, condition };
    match object.pool().update(oid, vec![gone]) {
        Err(ClientError::Status(Status::ConditionFailed)) => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_punch(
    object: Handle,
    transaction: Handle,
    flags: u64,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let object = open::object(object)?;
        object.check_values()?;
        object.check_writable()?;
        if flags != 0 {
            return Err(Der::Nosys);
        }
        let Some(oid) = object.find()? else { return Ok(()) };
        Ok(object.values(oid).remove_all()?)
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_punch_dkeys(
    object: Handle,
    transaction: Handle,
    flags: u64,
    count: c_uint,
    dkeys: *mut Iov,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let object = open::object(object)?;
        object.check_values()?;
        object.check_writable()?;
        if flags != 0 {
            return Err(Der::Nosys);
        }
        // SAFETY: by the contract.
        let dkeys = unsafe { items(dkeys.cast_const(), count as usize) }.ok_or(Der::Inval)?;
        let Some(oid) = object.find()? else { return Ok(()) };
        for dkey in dkeys {
            // SAFETY: by the contract.
            object.values(oid).remove_dkey(unsafe { bytes_of_key(dkey) }?)?;
        }
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_obj.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_obj_punch_akeys(
    object: Handle,
    transaction: Handle,
    flags: u64,
    dkey: *mut Iov,
    count: c_uint,
    akeys: *mut Iov,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        check_no_transaction(transaction)?;
        let object = open::object(object)?;
        object.check_values()?;
        object.check_writable()?;
        if flags & !MUST_EXIST != 0 {
            return Err(Der::Nosys);
        }
        // SAFETY: by the contract.
        let (dkey, akeys) =
            unsafe { (key(dkey)?, items(akeys.cast_const(), count as usize).ok_or(Der::Inval)?) };
        let oid = object.find()?;
        for akey in akeys {
            // SAFETY: by the contract.
            let akey = unsafe { bytes_of_key(akey) }?;
            let gone = match oid {
                None => false,
                Some(oid) => {
                    remove_single(&object, oid, (dkey, akey))?
                        || object.values(oid).remove(dkey, akey)?
                }
            };
            if !gone && flags & MUST_EXIST != 0 {
                return Err(Der::Nonexist);
            }
        }
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
