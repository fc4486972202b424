//! `dup` and its forms.

use std::ffi::c_int;
use std::sync::Arc;

use azekura_posix::{Errno, Result};

use super::{close, hooks};
use crate::descriptors::{Description, on_data, reserve, table};
use crate::host;
use crate::report::counter;
use crate::{guard, hook, recording, staging, stdio};

/// A further number for a description, from the kernel's own duplication of the reservation.
pub(super) fn keep(new: c_int, description: &Arc<Description>) -> Result<c_int> {
    if new < 0 {
        return Err(Errno::from_raw_os_error(host::errno()));
    }
    if table::set(new, Arc::clone(description)) {
        return Ok(new);
    }
    // SAFETY: it was made just now.
    unsafe { host::close(new) };
    Err(Errno::MFILE)
}

/// What changes where the kernel makes one number a duplicate of another.
#[derive(Default)]
struct Change {
    /// What the new number stood for.
    before: Option<Arc<Description>>,
    /// Whether the old one is ours.
    is_ours: bool,
}

/// Before the kernel makes `new` a duplicate of `old`: a file of the pool stands there at once, so that
/// no other thread meets a mere reservation.
fn lead(old: c_int, new: c_int) -> Change {
    let change = hook::run(|| {
        let before = table::get(new);
        let description = table::get(old);
        let is_ours = description.is_some_and(|description| table::set(new, description));
        Ok(Change { before, is_ours })
    });
    change.and_then(Result::ok).unwrap_or_default()
}

/// After the kernel has done so, or has refused.
fn follow(new: c_int, change: Change, is_done: bool) {
    hook::inside(|| {
        if is_done != change.is_ours {
            table::take(new);
        }
        match change.before {
            Some(before) if is_done => close::give_up(&before),
            Some(before) => {
                table::set(new, before);
            }
            None => {}
        }
    });
}

/// # Safety
/// As for `dup2`.
unsafe fn duplicate_onto(old: c_int, new: c_int, hosts: impl FnOnce() -> c_int) -> c_int {
    let counter = counter!("dup2");
    if guard::is_inside() || old == new {
        return hosts();
    }
    if reserve::is_own(new) {
        host::set_errno(close::TAKEN.raw_os_error());
        return -1;
    }
    if !table::is_ours(old) && !table::is_ours(new) {
        counter.passed();
        staging::renewed(new);
        return recording::duplicated(old, Some(new), hosts);
    }
    counter.served();
    stdio::before_replacing(new);
    let change = lead(old, new);
    let result = hosts();
    follow(new, change, result >= 0);
    stdio::after_replacing(new);
    result
}

hooks! {
    /// `dup`.
    fn [dup](fd: c_int) -> c_int {
        // SAFETY: as for the C function.
        let new = on_data(
            counter!("dup"),
            fd,
            |file| keep(unsafe { host::dup(fd) }, file),
            || recording::duplicated(fd, None, || close::not_ours(unsafe { host::dup(fd) })),
        );
        stdio::after_replacing(new);
        new
    }

    /// `dup2`.
    fn [dup2](old: c_int, new: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { duplicate_onto(old, new, || host::dup2(old, new)) }
    }

    /// `dup3`.
    fn [dup3](old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { duplicate_onto(old, new, || host::dup3(old, new, flags)) }
    }
}
