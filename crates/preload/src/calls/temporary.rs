//! Files and directories with new names: the `mkstemp` family. The C library would make them behind
//! the hooks, so the names are chosen here, and made by the hooks of `open` and `mkdir` on whichever
//! side they lie.

use std::ffi::{c_char, c_int};

use super::{hooks, names, open, stat};
use crate::host;
use crate::paths;

/// Names that are tried.
const TRIES: u32 = 62 * 62 * 62;
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const MARK: &[u8; 6] = b"XXXXXX";

fn random() -> u64 {
    let mut number = 0_u64;
    // SAFETY: a buffer of eight bytes. Where the kernel gives nothing the name is only less random.
    unsafe { libc::syscall(libc::SYS_getrandom, &raw mut number, size_of::<u64>(), 0) };
    number
}

/// Tries names in place of the six `X` before the suffix until `make` takes one. `errno` is left as it
/// was if one is taken.
///
/// # Safety
/// As for `mkstemps`.
unsafe fn with_new_name(
    template: *mut c_char,
    suffix_bytes: c_int,
    make: impl Fn(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: the caller says that it is null or a C string.
    let length = unsafe { paths::text(template) }.map_or(0, <[u8]>::len);
    let start = usize::try_from(suffix_bytes)
        .ok()
        .and_then(|suffix| length.checked_sub(suffix.checked_add(MARK.len())?));
    let Some(start) = start else {
        host::set_errno(libc::EINVAL);
        return -1;
    };
    // SAFETY: these bytes lie in the C string, which the caller lets us change.
    let mark =
        unsafe { std::slice::from_raw_parts_mut(template.add(start).cast::<u8>(), MARK.len()) };
    if mark != MARK {
        host::set_errno(libc::EINVAL);
        return -1;
    }
    let errno = host::errno();
    for _ in 0..TRIES {
        let mut number = random();
        for letter in mark.iter_mut() {
            *letter = LETTERS[(number % 62) as usize];
            number /= 62;
        }
        let result = make(template);
        if result >= 0 {
            host::set_errno(errno);
            return result;
        }
        if host::errno() != libc::EEXIST {
            return -1;
        }
    }
    host::set_errno(libc::EEXIST);
    -1
}

hooks! {
    /// `mkostemps`.
    fn [mkostemps mkostemps64](
        template: *mut c_char, suffix_bytes: c_int, flags: c_int,
    ) -> c_int {
        let flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: as for the C function; the path that is made is the template's.
        unsafe { with_new_name(template, suffix_bytes, |path| open::open(path, flags, 0o600)) }
    }

    /// `mkostemp`.
    fn [mkostemp mkostemp64](template: *mut c_char, flags: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { mkostemps(template, 0, flags) }
    }

    /// `mkstemps`.
    fn [mkstemps mkstemps64](template: *mut c_char, suffix_bytes: c_int) -> c_int {
        // SAFETY: as for the C function.
        unsafe { mkostemps(template, suffix_bytes, 0) }
    }

    /// `mkstemp`.
    fn [mkstemp mkstemp64](template: *mut c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe { mkostemps(template, 0, 0) }
    }

    /// `mkdtemp`.
    fn [mkdtemp](template: *mut c_char) -> *mut c_char {
        // SAFETY: as for the C function; the path that is made is the template's.
        let made = unsafe { with_new_name(template, 0, |path| names::mkdir(path, 0o700)) };
        if made < 0 { std::ptr::null_mut() } else { template }
    }

    /// `mktemp`: a name that nothing has.
    fn [mktemp](template: *mut c_char) -> *mut c_char {
        let is_free = |path: *const c_char| {
            // SAFETY: a structure of numbers, for which zero is a value.
            let mut found: libc::stat = unsafe { std::mem::zeroed() };
            // SAFETY: the path is the template's.
            if unsafe { stat::lstat(path, &raw mut found) } == 0 {
                host::set_errno(libc::EEXIST);
                return -1;
            }
            if host::errno() == libc::ENOENT { 0 } else { -1 }
        };
        // SAFETY: as for the C function.
        if unsafe { with_new_name(template, 0, is_free) } < 0 && !template.is_null() {
            // SAFETY: a C string has at least this byte.
            unsafe { *template = 0 };
        }
        template
    }
}
