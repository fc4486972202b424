//! `syscall`: system calls by number. Those that could be about files of the pool go to the hooks;
//! all others go to the kernel at once, as the C library does it, without touching the stack.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_long};

use super::{close, data, open, position, stat};
use crate::descriptors::table;
use crate::{gate, host};

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
    if gate::is_inside() {
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
            libc::SYS_getdents64 if table::is_ours(fd) => {
                // Directories are read through `readdir` here.
                host::set_errno(libc::ENOSYS);
                -1
            }
            _ => pass(number, all),
        }
    }
}

/// `syscall`.
///
/// # Safety
/// As for the C function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {open}", "je 2f",
        "cmp rdi, {openat}", "je 2f",
        "cmp rdi, {openat2}", "je 2f",
        "cmp rdi, {read}", "je 2f",
        "cmp rdi, {write}", "je 2f",
        "cmp rdi, {pread64}", "je 2f",
        "cmp rdi, {pwrite64}", "je 2f",
        "cmp rdi, {lseek}", "je 2f",
        "cmp rdi, {close}", "je 2f",
        "cmp rdi, {close_range}", "je 2f",
        "cmp rdi, {statx}", "je 2f",
        "cmp rdi, {newfstatat}", "je 2f",
        "cmp rdi, {renameat2}", "je 2f",
        "cmp rdi, {copy_file_range}", "je 2f",
        "cmp rdi, {getdents64}", "je 2f",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "2: jmp {route}",
        "3: mov rdi, rax",
        "jmp {fail}",
        open = const libc::SYS_open,
        openat = const libc::SYS_openat,
        openat2 = const libc::SYS_openat2,
        read = const libc::SYS_read,
        write = const libc::SYS_write,
        pread64 = const libc::SYS_pread64,
        pwrite64 = const libc::SYS_pwrite64,
        lseek = const libc::SYS_lseek,
        close = const libc::SYS_close,
        close_range = const libc::SYS_close_range,
        statx = const libc::SYS_statx,
        newfstatat = const libc::SYS_newfstatat,
        renameat2 = const libc::SYS_renameat2,
        copy_file_range = const libc::SYS_copy_file_range,
        getdents64 = const libc::SYS_getdents64,
        route = sym route,
        fail = sym fail,
    )
}

/// `syscall`.
///
/// # Safety
/// As for the C function.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp x0, {openat}", "b.eq 2f",
        "mov x9, {openat2}", "cmp x0, x9", "b.eq 2f",
        "cmp x0, {read}", "b.eq 2f",
        "cmp x0, {write}", "b.eq 2f",
        "cmp x0, {pread64}", "b.eq 2f",
        "cmp x0, {pwrite64}", "b.eq 2f",
        "cmp x0, {lseek}", "b.eq 2f",
        "cmp x0, {close}", "b.eq 2f",
        "mov x9, {close_range}", "cmp x0, x9", "b.eq 2f",
        "cmp x0, {statx}", "b.eq 2f",
        "cmp x0, {newfstatat}", "b.eq 2f",
        "cmp x0, {renameat2}", "b.eq 2f",
        "cmp x0, {copy_file_range}", "b.eq 2f",
        "cmp x0, {getdents64}", "b.eq 2f",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc 0",
        "cmn x0, 4095",
        "b.hs 3f",
        "ret",
        "2: b {route}",
        "3: b {fail}",
        openat = const libc::SYS_openat,
        openat2 = const libc::SYS_openat2,
        read = const libc::SYS_read,
        write = const libc::SYS_write,
        pread64 = const libc::SYS_pread64,
        pwrite64 = const libc::SYS_pwrite64,
        lseek = const libc::SYS_lseek,
        close = const libc::SYS_close,
        close_range = const libc::SYS_close_range,
        statx = const libc::SYS_statx,
        newfstatat = const libc::SYS_newfstatat,
        renameat2 = const libc::SYS_renameat2,
        copy_file_range = const libc::SYS_copy_file_range,
        getdents64 = const libc::SYS_getdents64,
        route = sym route,
        fail = sym fail,
    )
}
