//! The C library's streams as far as the recording mode wants to know of them: records that a program reads
//! and writes, and positions. All are passed on; the system calls below them are made by the C library.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

use libc::{off_t, size_t, ssize_t};

use super::hooks;
use crate::recording::Direction::{Read, Write};
use crate::recording::{flushing, record, seeking_stream};
use crate::stdio::Stream;

mod real {
    use super::{Stream, c_char, c_int, c_long, c_void, off_t, size_t, ssize_t};
    use crate::host::host;

    host! {
        fn fread(into: *mut c_void, size: size_t, count: size_t, stream: Stream) -> usize;
        fn fread_unlocked(into: *mut c_void, size: size_t, count: size_t, stream: Stream) -> usize;
        fn __fread_chk(into: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream) -> usize;
        fn __fread_unlocked_chk(into: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream) -> usize;
        fn fwrite(from: *const c_void, size: size_t, count: size_t, stream: Stream) -> usize;
        fn fwrite_unlocked(from: *const c_void, size: size_t, count: size_t, stream: Stream) -> usize;
        fn fgets(into: *mut c_char, bytes: c_int, stream: Stream) -> *mut c_char;
        fn fgets_unlocked(into: *mut c_char, bytes: c_int, stream: Stream) -> *mut c_char;
        fn __fgets_chk(into: *mut c_char, room: size_t, bytes: c_int, stream: Stream) -> *mut c_char;
        fn __fgets_unlocked_chk(into: *mut c_char, room: size_t, bytes: c_int, stream: Stream) -> *mut c_char;
        fn __getdelim(line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: Stream) -> ssize_t;
        fn fputs(text: *const c_char, stream: Stream) -> c_int;
        fn fputs_unlocked(text: *const c_char, stream: Stream) -> c_int;
        fn fflush(stream: Stream) -> c_int;
        fn fflush_unlocked(stream: Stream) -> c_int;
        fn fseek(stream: Stream, by: c_long, whence: c_int) -> c_int;
        fn fseeko(stream: Stream, by: off_t, whence: c_int) -> c_int;
        fn fsetpos(stream: Stream, place: *const c_void) -> c_int;
        fn rewind(stream: Stream) -> c_int;
        fn vfprintf(stream: Stream, format: *const c_char, list: *mut c_void) -> c_int;
        fn __vfprintf_chk(stream: Stream, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    }
}

/// # Safety
/// Null or a C string.
unsafe fn length(text: *const c_char) -> usize {
    // SAFETY: the caller says so.
    if text.is_null() { 0 } else { unsafe { CStr::from_ptr(text) }.count_bytes() }
}

fn printed(bytes: c_int) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

hooks! {
    /// `fread`.
    fn [fread](into: *mut c_void, size: size_t, count: size_t, stream: Stream) -> size_t {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::fread(into, size, count, stream);
            record(Read, stream, size.checked_mul(count), call, |done| done * size)
        }
    }

    /// `fread`, unlocked.
    fn [fread_unlocked](
        into: *mut c_void, size: size_t, count: size_t, stream: Stream,
    ) -> size_t {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::fread_unlocked(into, size, count, stream);
            record(Read, stream, size.checked_mul(count), call, |done| done * size)
        }
    }

    /// `fread`, fortified.
    fn [__fread_chk](
        into: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream,
    ) -> size_t {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::__fread_chk(into, room, size, count, stream);
            record(Read, stream, size.checked_mul(count), call, |done| done * size)
        }
    }

    /// `fread`, unlocked and fortified.
    fn [__fread_unlocked_chk](
        into: *mut c_void, room: size_t, size: size_t, count: size_t, stream: Stream,
    ) -> size_t {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::__fread_unlocked_chk(into, room, size, count, stream);
            record(Read, stream, size.checked_mul(count), call, |done| done * size)
        }
    }

    /// `fwrite`.
    fn [fwrite](from: *const c_void, size: size_t, count: size_t, stream: Stream) -> size_t {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::fwrite(from, size, count, stream);
            record(Write, stream, size.checked_mul(count), call, |done| done * size)
        }
    }

    /// `fwrite`, unlocked.
    fn [fwrite_unlocked](
        from: *const c_void, size: size_t, count: size_t, stream: Stream,
    ) -> size_t {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::fwrite_unlocked(from, size, count, stream);
            record(Write, stream, size.checked_mul(count), call, |done| done * size)
        }
    }

    /// `fgets`.
    fn [fgets](into: *mut c_char, bytes: c_int, stream: Stream) -> *mut c_char {
        // SAFETY: as for the C function.
        unsafe {
            record(Read, stream, None, || real::fgets(into, bytes, stream), |line| length(line))
        }
    }

    /// `fgets`, unlocked.
    fn [fgets_unlocked](into: *mut c_char, bytes: c_int, stream: Stream) -> *mut c_char {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::fgets_unlocked(into, bytes, stream);
            record(Read, stream, None, call, |line| length(line))
        }
    }

    /// `fgets`, fortified.
    fn [__fgets_chk](
        into: *mut c_char, room: size_t, bytes: c_int, stream: Stream,
    ) -> *mut c_char {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::__fgets_chk(into, room, bytes, stream);
            record(Read, stream, None, call, |line| length(line))
        }
    }

    /// `fgets`, unlocked and fortified.
    fn [__fgets_unlocked_chk](
        into: *mut c_char, room: size_t, bytes: c_int, stream: Stream,
    ) -> *mut c_char {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::__fgets_unlocked_chk(into, room, bytes, stream);
            record(Read, stream, None, call, |line| length(line))
        }
    }

    /// `getdelim`.
    fn [__getdelim getdelim](
        line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: Stream,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe {
            let call = || real::__getdelim(line, room, end, stream);
            record(Read, stream, None, call, |bytes| usize::try_from(bytes).unwrap_or(0))
        }
    }

    /// `getline`.
    fn [getline](line: *mut *mut c_char, room: *mut size_t, stream: Stream) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe { __getdelim(line, room, c_int::from(b'\n'), stream) }
    }

    /// `fputs`.
    fn [fputs](text: *const c_char, stream: Stream) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            let bytes = if crate::recording::is_recording() { length(text) } else { 0 };
            let call = || real::fputs(text, stream);
            record(Write, stream, Some(bytes), call, |done| if done < 0 { 0 } else { bytes })
        }
    }

    /// `fputs`, unlocked.
    fn [fputs_unlocked](text: *const c_char, stream: Stream) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            let bytes = if crate::recording::is_recording() { length(text) } else { 0 };
            let call = || real::fputs_unlocked(text, stream);
            record(Write, stream, Some(bytes), call, |done| if done < 0 { 0 } else { bytes })
        }
    }

    /// `fflush`.
    fn [fflush](stream: Stream) -> c_int {
        // SAFETY: as for the C function.
        unsafe { flushing(stream, || real::fflush(stream)) }
    }

    /// `fflush`, unlocked.
    fn [fflush_unlocked](stream: Stream) -> c_int {
        // SAFETY: as for the C function.
        unsafe { flushing(stream, || real::fflush_unlocked(stream)) }
    }

    /// `fseek`.
    fn [fseek](stream: Stream, by: c_long, whence: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { seeking_stream(stream, || real::fseek(stream, by, whence)) }
    }

    /// `fseeko`.
    fn [fseeko fseeko64](stream: Stream, by: off_t, whence: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { seeking_stream(stream, || real::fseeko(stream, by, whence)) }
    }

    /// `fsetpos`.
    fn [fsetpos fsetpos64](stream: Stream, place: *const c_void) -> c_int {
        // SAFETY: as for the C function.
        unsafe { seeking_stream(stream, || real::fsetpos(stream, place)) }
    }
}

/// `rewind`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rewind(stream: Stream) {
    // The C function gives nothing, so what is in the register of a result is not looked at.
    // SAFETY: as for the C function.
    unsafe { seeking_stream(stream, || real::rewind(stream)) };
}

/// What `fprintf` and `vfprintf` come to; the list of arguments is one of C.
///
/// # Safety
/// As for `vfprintf`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn azekura_print(
    stream: Stream,
    format: *const c_char,
    list: *mut c_void,
) -> c_int {
    // SAFETY: the caller says so.
    unsafe { record(Write, stream, None, || real::vfprintf(stream, format, list), printed) }
}

/// The same, fortified.
///
/// # Safety
/// As for `__vfprintf_chk`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn azekura_print_checked(
    stream: Stream,
    flag: c_int,
    format: *const c_char,
    list: *mut c_void,
) -> c_int {
    let call = || {
        // SAFETY: the caller says so.
        unsafe { real::__vfprintf_chk(stream, flag, format, list) }
    };
    // SAFETY: the caller says so.
    unsafe { record(Write, stream, None, call, printed) }
}
