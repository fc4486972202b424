//! The hooks: functions with the names of the C library's, one module per family. Each says in one
//! expression whose call it is and what it comes to; what the calls mean is known by `posix`.

// The hooks are exported by name, for programs that know nothing of this crate.
#![allow(unreachable_pub)]

mod attributes;
mod canonical;
mod close;
mod commands;
mod control;
mod convert;
mod copy;
mod cwd;
mod data;
mod directories;
mod duplicate;
mod exec;
pub(crate) mod fork;
mod leave;
mod limits;
mod links;
mod loading;
mod lock;
mod map;
mod names;
mod numbered;
mod open;
mod position;
mod records;
mod scan;
mod signals;
mod socket;
mod space;
mod spawn;
mod stat;
mod streams;
mod sync;
mod temporary;
mod tree;
mod user;
mod variadic;
mod watch;
mod xattr;

/// Exports hooks under the C library's names: the function's own in brackets, and further ones of the
/// same call. On 64-bit machines the 64 forms are the same functions. A hook catches nothing: a thread
/// that is cancelled in the C library's function is unwound through it. What can panic is run by [`crate::hook::run`].
macro_rules! hooks {
    ($(
        $(#[$doc:meta])*
        fn [$name:ident $($alias:ident)*] $args:tt -> $ret:ty $body:block
    )*) => { $(
        $crate::calls::hook! { $(#[$doc])* $name $args -> $ret $body }
        $( $crate::calls::alias! { $alias $name $args -> $ret } )*
    )* };
}
macro_rules! hook {
    ($(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to the loader, not to Rust")]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret $body
    };
}
macro_rules! alias {
    ($alias:ident $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $ret:ty) => {
        #[doc = concat!("As [`", stringify!($name), "`].")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to the loader, not to Rust")]
        pub unsafe extern "C-unwind" fn $alias($($arg: $type),*) -> $ret {
            // SAFETY: the same conditions.
            unsafe { self::$name($($arg),*) }
        }
    };
}
pub(crate) use hooks;
pub(crate) use {alias, hook};

use azekura_posix::{Errno, Result};
use libc::iovec;

use crate::paths::is_plausible;

/// The caller's buffer to be filled.
///
/// # Safety
/// As for `read`: the bytes are writable, or the pointer is null.
unsafe fn buffer<'a>(start: *mut libc::c_void, bytes: usize) -> Result<&'a mut [u8]> {
    if bytes == 0 {
        return Ok(&mut []);
    }
    if !is_plausible(start) {
        return Err(Errno::FAULT);
    }
    // What the kernel moves at most in one call.
    let bytes = bytes.min(0x7fff_f000);
    // SAFETY: the caller says so.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) })
}

/// The caller's data.
///
/// # Safety
/// As for `write`: the bytes are readable, or the pointer is null.
unsafe fn data<'a>(start: *const libc::c_void, bytes: usize) -> Result<&'a [u8]> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if !is_plausible(start) {
        return Err(Errno::FAULT);
    }
    let bytes = bytes.min(0x7fff_f000);
    // SAFETY: the caller says so.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), bytes) })
}

/// The caller's vector of buffers.
///
/// # Safety
/// As for `readv`.
unsafe fn vector<'a>(parts: *const iovec, count: libc::c_int) -> Result<&'a [iovec]> {
    let count = usize::try_from(count).ok().filter(|count| *count <= 1024).ok_or(Errno::INVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    if !is_plausible(parts) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller says so.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    let total = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len));
    match total {
        Some(total) if isize::try_from(total).is_ok() => Ok(parts),
        _ => Err(Errno::INVAL),
    }
}

/// An offset that must not be negative.
fn offset(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Errno::INVAL)
}
