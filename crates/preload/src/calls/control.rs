//! `fcntl`, and `lockf`, which is a form of it; `ioctl`.

use std::ffi::c_int;
use std::sync::Arc;

use azekura_posix::{Errno, Result};
use libc::off_t;

use super::{duplicate, hooks, lock};
use crate::descriptors::{Backing, CHANGEABLE, Description, on_fd, table};
use crate::report::counter;
use crate::{hook, host, recording, staging, stdio};

fn control(
    file: &Arc<Description>,
    fd: c_int,
    command: c_int,
    argument: usize,
) -> Result<Option<c_int>> {
    // SAFETY: the kernel's own part of the call; pointers are passed on as they came.
    let kernel = || unsafe { host::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate::keep(kernel(), file).map(Some),
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
    /// `fcntl`.
    fn [fcntl fcntl64](fd: c_int, command: c_int, argument: usize) -> c_int {
        let counter = counter!("fcntl");
        // SAFETY: as for the C function.
        let hosts = || unsafe { host::fcntl(fd, command, argument) };
        if !table::is_ours(fd) {
            counter.passed();
            if !matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                return hosts();
            }
            let result = recording::duplicated(fd, None, hosts);
            staging::renewed(result);
            return result;
        }
        let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
        let result = lock::until_free(waits, || match table::get(fd) {
            Some(file) => control(&file, fd, command, argument),
            None => Ok(None),
        });
        if let (Some(Ok(Some(new))), libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) = (&result, command) {
            stdio::after_replacing(*new);
        }
        hook::conclude_or(counter, result, hosts)
    }

    /// `ioctl`: what a regular file of most file systems answers.
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
                    return Err(Errno::NOTTY);
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

    /// `lockf`.
    fn [lockf lockf64](fd: c_int, operation: c_int, bytes: off_t) -> c_int {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_whence = libc::SEEK_CUR as _;
        lock.l_len = bytes;
        lock.l_type = if operation == libc::F_ULOCK { libc::F_UNLCK } else { libc::F_WRLCK } as _;
        let command = match operation {
            libc::F_LOCK => libc::F_SETLKW,
            libc::F_TLOCK | libc::F_ULOCK => libc::F_SETLK,
            libc::F_TEST => libc::F_GETLK,
            _ => {
                host::set_errno(libc::EINVAL);
                return -1;
            }
        };
        // SAFETY: the lock lives until the call is over.
        let result = unsafe { fcntl(fd, command, &raw mut lock as usize) };
        if result == 0 && operation == libc::F_TEST && c_int::from(lock.l_type) != libc::F_UNLCK {
            host::set_errno(libc::EACCES);
            return -1;
        }
        result
    }
}
