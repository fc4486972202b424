//! `fork` and `vfork`. Owns what has to happen around one: positions become shared, and no lock of
//! ours is held by a thread that the child does not have; what was written has arrived.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::pid_t;

use crate::descriptors::inherit;
use crate::host::Function;
use crate::{guard, host, recording, service, settings, staging};

extern "C" fn before() {
    recording::before_fork();
    guard::close_for_fork();
    if settings::get().is_some() {
        service::drain();
        inherit::share_all();
    }
}

extern "C" fn after() {
    guard::open_after_fork();
}

extern "C" fn after_in_child() {
    staging::after_fork_in_child();
    recording::after_fork_in_child();
    after();
}

unsafe extern "C" {
    /// `pthread_atfork`, which is a part of each library that calls it; the last argument is the library that is
    /// going to be unloaded, of which there is none here.
    fn __register_atfork(
        before: extern "C" fn(),
        after: extern "C" fn(),
        after_in_child: extern "C" fn(),
        library: *const c_void,
    ) -> libc::c_int;
}

/// Watches every fork of the process, also those that the C library makes itself.
pub(crate) fn watch() {
    // SAFETY: three functions that stay for the life of the process. Out of memory there is nobody to
    // tell; forks then behave as if positions were not shared.
    unsafe { __register_atfork(before, after, after_in_child, std::ptr::null()) };
}

/// Where `vfork` goes. As `fork` where this library knows descriptors by more than their numbers: a child that
/// shares our memory would change what the parent knows of its own.
#[unsafe(link_section = ".data.hot")]
static VFORK: AtomicPtr<c_void> = AtomicPtr::new(as_fork as *mut c_void);

extern "C" fn as_fork() -> pid_t {
    // SAFETY: `fork` has no conditions that `vfork` has not.
    unsafe { host::fork() }
}

/// Leaves `vfork` to the C library: the recording mode tells such a child by its number, and a `fork` of a
/// large program costs more than all that it records.
pub(crate) fn leave_vfork_alone() {
    #[unsafe(link_section = ".data.hot")]
    static FOUND: Function = Function::new();
    let found = FOUND.address(c"vfork");
    if !found.is_null() {
        VFORK.store(found, Ordering::Relaxed);
    }
}

/// `vfork`, which recording has to know of. Nothing may lie on the stack between the caller and the C library's
/// own: parent and child return through the same.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov byte ptr [rip + {}], 1",
        "jmp qword ptr [rip + {}]",
        sym recording::HAS_VFORKED,
        sym VFORK
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x16, {0}",
        "mov w17, #1",
        "strb w17, [x16, :lo12:{0}]",
        "adrp x16, {1}",
        "ldr x16, [x16, :lo12:{1}]",
        "br x16",
        sym recording::HAS_VFORKED,
        sym VFORK
    );
}
