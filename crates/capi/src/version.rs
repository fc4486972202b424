//! Which release of the library runs, as against the header that a program was compiled with.

use std::ffi::c_char;

const fn part(text: &str) -> u32 {
    let mut number = 0;
    let mut at = 0;
    while at < text.len() {
        number = number * 10 + (text.as_bytes()[at] - b'0') as u32;
        at += 1;
    }
    number
}

const VERSION: u32 = (part(env!("CARGO_PKG_VERSION_MAJOR")) << 16)
    | (part(env!("CARGO_PKG_VERSION_MINOR")) << 8)
    | part(env!("CARGO_PKG_VERSION_PATCH"));

/// `azekura_version`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_version() -> u32 {
    VERSION
}

/// `azekura_version_string`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
