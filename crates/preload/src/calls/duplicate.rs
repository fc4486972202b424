//! `dup` and its forms, and `fcntl`.

use std::ffi::c_int;
use std::sync::Arc;

use azekura_posix::Result;

use super::{close, hooks, lock};
use crate::descriptors::{Backing, CHANGEABLE, Description, on_fd, reserve, table};
use crate::host;
use crate::report::counter;
use crate::{gate, stdio};

/// A further number for a description, from the kernel's own duplication of the reservation.
fn keep(new: c_int, description: &Arc<Description>) -> Result<c_int> {
    if new < 0 {
        return Err(azekura_posix::Errno::from_raw_os_error(host::errno()));
    }
    if table::set(new, Arc::clone(description)) {
        return Ok(new);
    }
    // SAFETY: it was made just now.
    unsafe { host::close(new) };
    Err(azekura_posix::Errno::MFILE)
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
    let change = gate::visit(|| {
        let before = table::get(new);
        let description = table::get(old);
        let is_ours = description.is_some_and(|description| table::set(new, description));
        Ok(Change { before, is_ours })
    });
    change.and_then(Result::ok).unwrap_or_default()
}

/// After the kernel has done so, or has refused.
fn follow(new: c_int, change: Change, is_done: bool) {
    let _ = gate::visit(|| {
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
        Ok(())
    });
}

/// # Safety
/// As for `dup2`.
unsafe fn duplicate_onto(old: c_int, new: c_int, hosts: impl FnOnce() -> c_int) -> c_int {
    let counter = counter!("dup2");
    if gate::is_inside() || old == new {
        return hosts();
    }
    if reserve::is_own(new) {
        host::set_errno(close::TAKEN.raw_os_error());
        return -1;
    }
    let concerns_us = table::is_ours(old) || table::is_ours(new);
    if concerns_us {
        counter.served();
        stdio::before_replacing(new);
    } else {
        counter.passed();
    }
    if !concerns_us {
        return hosts();
    }
    let change = lead(old, new);
    let result = hosts();
    follow(new, change, result >= 0);
    stdio::after_replacing(new);
    result
}

fn control(
    file: &Arc<Description>,
    fd: c_int,
    command: c_int,
    argument: usize,
) -> Result<Option<c_int>> {
    // SAFETY: the kernel's own part of the call; pointers are passed on as they came.
    let kernel = || unsafe { host::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => keep(kernel(), file).map(Some),
        libc::F_GETFL if file.backing() == Backing::Reserved => Ok(Some(file.shown_flags())),
        libc::F_SETFL => {
            let flags = argument as c_int & CHANGEABLE.bits() as c_int;
            file.position().set_flags(flags);
            Ok((file.backing() == Backing::Reserved).then_some(0))
        }
        _ if file.backing() == Backing::Mount => Ok(None),
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => {
            lock::record(file, command, argument, lock::Owner::Process).map(Some)
        }
        libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
            lock::record(file, command, argument, lock::Owner::Description).map(Some)
        }
        _ => Ok(None),
    }
}

hooks! {
    /// `dup`.
    ///
    /// # Safety
    /// As for the C function.
    fn [dup](fd: c_int) -> c_int {
        // SAFETY: as for the C function.
        let new = crate::descriptors::on_data(
            counter!("dup"),
            fd,
            |file| keep(unsafe { host::dup(fd) }, file),
            || close::not_ours(unsafe { host::dup(fd) }),
        );
        stdio::after_replacing(new);
        new
    }

    /// `dup2`.
    ///
    /// # Safety
    /// As for the C function.
    fn [dup2](old: c_int, new: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { duplicate_onto(old, new, || host::dup2(old, new)) }
    }

    /// `dup3`.
    ///
    /// # Safety
    /// As for the C function.
    fn [dup3](old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { duplicate_onto(old, new, || host::dup3(old, new, flags)) }
    }

    /// `fcntl`.
    ///
    /// # Safety
    /// As for the C function.
    fn [fcntl fcntl64](fd: c_int, command: c_int, argument: usize) -> c_int {
        let counter = counter!("fcntl");
        // SAFETY: as for the C function.
        let hosts = || unsafe { host::fcntl(fd, command, argument) };
        if !table::is_ours(fd) {
            counter.passed();
            return hosts();
        }
        let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
        let result = lock::until_free(waits, || match table::get(fd) {
            Some(file) => control(&file, fd, command, argument),
            None => Ok(None),
        });
        match result {
            Some(Ok(Some(value))) => {
                if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                    stdio::after_replacing(value);
                }
                gate::conclude(counter, Ok(value))
            }
            Some(Err(errno)) => gate::conclude(counter, Err(errno)),
            Some(Ok(None)) | None => hosts(),
        }
    }

    /// `ioctl`: what a regular file of most file systems answers.
    ///
    /// # Safety
    /// As for the C function.
    fn [ioctl](fd: c_int, request: libc::c_ulong, argument: usize) -> c_int {
        // SAFETY: as for the C function.
        let hosts = || unsafe { host::ioctl(fd, request, argument) };
        if matches!(request, libc::FIOCLEX | libc::FIONCLEX) {
            return hosts();
        }
        on_fd(
            counter!("ioctl"),
            fd,
            |file| {
                if request != libc::FIONREAD || argument == 0 {
                    return Err(azekura_posix::Errno::NOTTY);
                }
                let size = file.attr()?.size;
                let left = file.position().locked(|place| size.saturating_sub(place.offset()));
                // SAFETY: as for the C function: it points to an int.
                unsafe { (argument as *mut c_int).write(left.min(i32::MAX as u64) as c_int) };
                Ok(0)
            },
            hosts,
        )
    }
}
