//! The state of a stream of the C library, as stream.c reads it.

use std::ffi::{c_int, c_void};

use crate::stdio::Stream;

/// The state of a stream; the same as `look` in stream.c.
#[repr(C)]
#[derive(Default)]
pub(super) struct Look {
    pub(super) fd: c_int,
    pub(super) is_writing: c_int,
    /// Bytes that were read and not asked for.
    pub(super) unread: usize,
    /// Bytes of the buffer that were read.
    pub(super) filled: usize,
    /// Bytes that wait to be written.
    pub(super) pending: usize,
    /// Bytes that the buffer has room for.
    pub(super) room: usize,
    /// Bytes of the buffer.
    pub(super) buffer: usize,
}

unsafe extern "C" {
    fn azekura_stream_look(stream: *const c_void, into: *mut Look);
}

/// Looks at a stream.
///
/// # Safety
/// The stream is open.
pub(super) unsafe fn look(stream: Stream) -> Look {
    let mut look = Look::default();
    // SAFETY: the caller says so; a valid structure.
    unsafe { azekura_stream_look(stream, &raw mut look) };
    look
}
