//! Pointers of a program, which may lead anywhere: the kernel answers a bad one with `EFAULT`, and so do the
//! hooks, as far as they can tell one. Owns that question.

use std::ffi::{CStr, c_char};

use azekura_posix::{Errno, Result};

/// Whether a pointer can be one of a program: not null, near it, or in the kernel's half. The kernel
/// answers such a one with `EFAULT`; to look would be the end of the program.
pub(crate) fn is_plausible<T>(pointer: *const T) -> bool {
    (4096..=isize::MAX as usize).contains(&pointer.addr())
}

/// The text of a C path; `EFAULT` for none.
///
/// # Safety
/// Null or a C string.
pub(crate) unsafe fn text<'a>(path: *const c_char) -> Result<&'a [u8]> {
    if !is_plausible(path) {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller says so.
    Ok(unsafe { CStr::from_ptr(path) }.to_bytes())
}
