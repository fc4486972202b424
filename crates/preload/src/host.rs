//! The C library's own functions, looked up behind this library. Owns the look-up; a hook calls these
//! for everything that is not the pool's.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{mode_t, off_t, size_t, ssize_t};

/// What a C function returns when it fails; `errno` says why.
pub(crate) trait Failing: Copy {
    /// The value of a failure.
    const FAILED: Self;
    /// Whether this is the value of a failure.
    fn is_failed(self) -> bool;
}

impl Failing for c_int {
    const FAILED: Self = -1;
    fn is_failed(self) -> bool {
        self == -1
    }
}

impl Failing for i64 {
    const FAILED: Self = -1;
    fn is_failed(self) -> bool {
        self == -1
    }
}

impl Failing for isize {
    const FAILED: Self = -1;
    fn is_failed(self) -> bool {
        self == -1
    }
}

/// `fread` and `fwrite` give the records that were moved, and none when they fail.
impl Failing for usize {
    const FAILED: Self = 0;
    fn is_failed(self) -> bool {
        self == 0
    }
}

/// `umask` cannot fail; this is what no umask is.
impl Failing for u32 {
    const FAILED: Self = Self::MAX;
    fn is_failed(self) -> bool {
        self == Self::MAX
    }
}

impl<T> Failing for *mut T {
    const FAILED: Self = std::ptr::null_mut();
    fn is_failed(self) -> bool {
        self.is_null()
    }
}

/// One function of the C library.
pub(crate) struct Function {
    found: AtomicPtr<c_void>,
}

impl Function {
    pub(crate) const fn new() -> Self {
        Self { found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function's address; null if no library has it.
    pub(crate) fn address(&self, name: &CStr) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name is a C string; the call has no other conditions.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the C library gives a valid pointer to this thread's own variable.
    unsafe { *libc::__errno_location() = errno };
}

/// The calling thread's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Declares functions of the C library. Those that are variadic in C are called with the arguments
/// that they read; on the supported machines both are passed the same way.
macro_rules! host {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty;)*) => { $(
        #[doc = concat!("The C library's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        pub(crate) unsafe fn $name($($arg: $type),*) -> $ret {
            // It may be unwound: a thread can be cancelled in it.
            type Signature = unsafe extern "C-unwind" fn($($type),*) -> $ret;
            #[unsafe(link_section = ".data.hot")]
            static FOUND: $crate::host::Function = $crate::host::Function::new();
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name with a zero byte"),
                };
            let address = FOUND.address(NAME);
            if address.is_null() {
                $crate::host::set_errno(libc::ENOSYS);
                return <$ret as $crate::host::Failing>::FAILED;
            }
            // SAFETY: the C library's function of this name has this signature.
            let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Signature>(address) };
            // SAFETY: the caller keeps the C function's conditions.
            unsafe { function($($arg),*) }
        }
    )* };
}
pub(crate) use host;

host! {
    fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: libc::c_uint, last: libc::c_uint, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, new: c_int) -> c_int;
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn ioctl(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int;
    fn flock(fd: c_int, operation: c_int) -> c_int;
    fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t;
    fn pread(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    fn pwrite(fd: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> ssize_t;
    fn preadv(fd: c_int, parts: *const libc::iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev(fd: c_int, parts: *const libc::iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, parts: *const libc::iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn syncfs(fd: c_int) -> c_int;
    fn ftruncate(fd: c_int, bytes: off_t) -> c_int;
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int;
    fn posix_fallocate(fd: c_int, offset: off_t, bytes: off_t) -> c_int;
    fn posix_fadvise(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int;
    fn fstatat(dirfd: c_int, path: *const c_char, stat: *mut libc::stat, flags: c_int) -> c_int;
    fn fstat(fd: c_int, stat: *mut libc::stat) -> c_int;
    fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: libc::c_uint, statx: *mut libc::statx) -> c_int;
    fn fork() -> c_int;
    fn nanosleep(asked: *const libc::timespec, left: *mut libc::timespec) -> c_int;
}
