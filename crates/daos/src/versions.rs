//! Transactions and snapshots, of which there are none: a target keeps no older versions of what it stores,
//! and no step takes several targets at once. So nothing is ever begun or taken, and the calls that end one
//! find none.

use std::ffi::{c_char, c_int};

use crate::event::finish;
use crate::handles;
use crate::status::{Der, daos_call};
use crate::types::{Anchor, END, EpochRange, Event, Handle, place};

/// What a call comes to that asks for a version of a container, if all else is as it should be.
fn none_of(container: Handle) -> Result<(), Der> {
    handles::container(container)?;
    Err(Der::Nosys)
}

/// What a call about a transaction comes to.
fn no_transaction() -> c_int {
    daos_call(|| Err(Der::NoHdl))
}

/// See `daos_api.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_tx_open(
    container: Handle,
    transaction: *mut Handle,
    _flags: u64,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        if transaction.is_null() {
            return Err(Der::Inval);
        }
        none_of(container)
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_api.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_tx_open_snap(
    container: Handle,
    _epoch: u64,
    transaction: *mut Handle,
    event: *mut Event,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { daos_tx_open(container, transaction, 0, event) }
}

/// See `daos_api.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_tx_commit(_transaction: Handle, event: *mut Event) -> c_int {
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, no_transaction()) }
}

/// See `daos_api.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_tx_abort(_transaction: Handle, event: *mut Event) -> c_int {
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, no_transaction()) }
}

/// See `daos_api.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_tx_close(_transaction: Handle, event: *mut Event) -> c_int {
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, no_transaction()) }
}

/// See `daos_api.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_tx_restart(_transaction: Handle, event: *mut Event) -> c_int {
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, no_transaction()) }
}

/// See `daos_api.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn daos_tx_hdl2epoch(_transaction: Handle, _epoch: *mut u64) -> c_int {
    no_transaction()
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_create_snap_opt(
    container: Handle,
    epoch: *mut u64,
    _name: *mut c_char,
    _options: u32,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        if epoch.is_null() {
            return Err(Der::Inval);
        }
        none_of(container)
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_create_snap(
    container: Handle,
    epoch: *mut u64,
    name: *mut c_char,
    event: *mut Event,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { daos_cont_create_snap_opt(container, epoch, name, 0, event) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_destroy_snap(
    container: Handle,
    _epochs: EpochRange,
    event: *mut Event,
) -> c_int {
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, daos_call(|| none_of(container))) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_rollback(
    container: Handle,
    _epoch: u64,
    event: *mut Event,
) -> c_int {
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, daos_call(|| none_of(container))) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_list_snap(
    container: Handle,
    count: *mut c_int,
    _epochs: *mut u64,
    _names: *mut *mut c_char,
    anchor: *mut Anchor,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        handles::container(container)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let (count, anchor) = unsafe { (place(count), place(anchor)) };
        let (Some(count), Some(anchor)) = (count, anchor) else { return Err(Der::Inval) };
        *count = 0;
        anchor.kind = END;
        Ok(())
    });
    // SAFETY: null or one of the caller's, by the contract.
    unsafe { finish(event, rc) }
}
