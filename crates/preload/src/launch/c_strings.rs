//! Texts as C has them, singly and in arrays that end with a null pointer.

use std::ffi::{CStr, CString, c_char};

use azekura_posix::{Errno, Result};

/// The strings of a C array.
///
/// # Safety
/// Null, or an array of C strings that ends with a null pointer and outlives the result.
pub(crate) unsafe fn array<'a>(start: *const *const c_char) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    if start.is_null() {
        return all;
    }
    let mut next = start;
    // SAFETY: the caller says that it ends with a null pointer.
    while let Some(text) = unsafe { next.read().as_ref() } {
        // SAFETY: as above.
        all.push(unsafe { CStr::from_ptr(text) });
        // SAFETY: not the end yet.
        next = unsafe { next.add(1) };
    }
    all
}

/// A text of our own for C; `EINVAL` if there is a zero byte in it.
pub(super) fn c_string(bytes: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(bytes).map_err(|_| Errno::INVAL)
}
