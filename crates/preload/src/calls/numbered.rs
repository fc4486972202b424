//! `syscall`: system calls by number. Those that could be about files of the pool go to the hooks;
//! all others go to the kernel at once, as the C library does it, without touching the stack.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_long};

use super::{close, data, open, position, stat};
use crate::descriptors::{size_limit, table};
use crate::{guard, host, staging};

/// A system call as the kernel has it; gives what it returned.
///
/// # Safety
/// As for the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn kernel(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller says so; the kernel changes these registers only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A system call as the kernel has it; gives what it returned.
///
/// # Safety
/// As for the system call.
#[cfg(target_arch = "aarch64")]
unsafe fn kernel(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller says so; the kernel changes these registers only.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    result
}

/// # Safety
/// As for the system call.
unsafe fn pass(number: c_long, a: [usize; 6]) -> c_long {
    // SAFETY: the caller says so.
    conclude(unsafe { kernel(number, a) })
}

fn conclude(result: isize) -> c_long {
    if (-4095..0).contains(&result) {
        host::set_errno(-result as c_int);
        return -1;
    }
    result as c_long
}

/// The end of a system call that has failed.
extern "C" fn fail(result: isize) -> c_long {
    conclude(result)
}

/// A system call that could be ours.
///
/// # Safety
/// As for the system call.
#[allow(clippy::many_single_char_names, reason = "a system call's arguments have no other names")]
unsafe extern "C-unwind" fn route(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let all = [a, b, c, d, e, f];
    if guard::is_inside() {
        // SAFETY: the caller says so.
        return unsafe { pass(number, all) };
    }
    let fd = a as c_int;
    // SAFETY: the arguments are those of the system call, which the hooks of the same name take.
    unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => open::open(a as *const c_char, b as c_int, c as u32).into(),
            libc::SYS_openat => open::openat(fd, b as *const c_char, c as c_int, d as u32).into(),
            libc::SYS_openat2 => match open::openat2(fd, b as *const c_char, c as _, d) {
                Some(fd) => fd.into(),
                None => pass(number, all),
            },
            libc::SYS_read => data::read(fd, b as _, c) as c_long,
            libc::SYS_write => data::write(fd, b as _, c) as c_long,
            libc::SYS_pread64 => data::pread(fd, b as _, c, d as i64) as c_long,
            libc::SYS_pwrite64 => data::pwrite(fd, b as _, c, d as i64) as c_long,
            libc::SYS_lseek => position::lseek(fd, b as i64, c as c_int),
            libc::SYS_close => close::close(fd).into(),
            libc::SYS_close_range => close::close_range(a as u32, b as u32, c as c_int).into(),
            libc::SYS_statx => {
                stat::statx(fd, b as *const c_char, c as c_int, d as u32, e as _).into()
            }
            libc::SYS_newfstatat => {
                stat::fstatat(fd, b as *const c_char, c as _, d as c_int).into()
            }
            libc::SYS_renameat2 => libc::renameat2(
                fd,
                b as *const c_char,
                c as c_int,
                d as *const c_char,
                e as libc::c_uint,
            )
            .into(),
            libc::SYS_copy_file_range => {
                libc::copy_file_range(fd, b as _, c as c_int, d as _, e, f as libc::c_uint)
                    as c_long
            }
            libc::SYS_setrlimit | libc::SYS_prlimit64 => {
                let result = pass(number, all);
                size_limit::forget();
                result
            }
            // The kernel would open the node's own files for a ring: programs that use one if there is one do
            // without.
            libc::SYS_io_uring_setup if staging::get().is_some() => {
                host::set_errno(libc::ENOSYS);
                -1
            }
            libc::SYS_getdents64 if table::is_ours(fd) => {
                // Directories are read through `readdir` here.
                host::set_errno(libc::ENOSYS);
                -1
            }
            _ => pass(number, all),
        }
    }
}

/// The body of `syscall`: the numbers that could be ours lead to [`route`], all others to the kernel by
/// the given lines, which end with a jump to `3f` where the kernel has failed. The two lines of a
/// comparison stand in brackets, around the number.
macro_rules! enter {
    ([$before:literal, $after:literal] $($line:literal)*; $($further:ident)?) => {
        enter! {
            @numbers [$before, $after] [$($line)*]
            $($further)? SYS_openat SYS_openat2 SYS_read SYS_write SYS_pread64 SYS_pwrite64 SYS_lseek
            SYS_close SYS_close_range SYS_statx SYS_newfstatat SYS_renameat2 SYS_copy_file_range
            SYS_getdents64 SYS_io_uring_setup SYS_setrlimit SYS_prlimit64
        }
    };
    (@numbers [$before:literal, $after:literal] [$($line:literal)*] $($number:ident)*) => {
        naked_asm!(
            $(concat!($before, "{", stringify!($number), "}", $after),)*
            $($line,)*
            $($number = const libc::$number,)*
            route = sym route,
            fail = sym fail,
        )
    };
}

/// `syscall`.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    #[cfg(target_arch = "x86_64")]
    enter! {
        ["cmp rdi, ", "\nje 2f"]
        "mov rax, rdi"
        "mov rdi, rsi"
        "mov rsi, rdx"
        "mov rdx, rcx"
        "mov r10, r8"
        "mov r8, r9"
        "mov r9, [rsp + 8]"
        "syscall"
        "cmp rax, -4095"
        "jae 3f"
        "ret"
        "2: jmp {route}"
        "3: mov rdi, rax"
        "jmp {fail}";
        SYS_open
    }
    #[cfg(target_arch = "aarch64")]
    enter! {
        ["cmp x0, ", "\nb.eq 2f"]
        "mov x8, x0"
        "mov x0, x1"
        "mov x1, x2"
        "mov x2, x3"
        "mov x3, x4"
        "mov x4, x5"
        "mov x5, x6"
        "svc 0"
        "cmn x0, 4095"
        "b.hs 3f"
        "ret"
        "2: b {route}"
        "3: b {fail}";
    }
}
