//! Which calls are trapped, and what they ask for. Owns the filter that the kernel runs at each call of the
//! programs, and the numbers of this architecture; carries nothing out. Calls of another architecture's
//! numbering (i386, x32) pass untouched.

use libc::{AT_FDCWD, c_long, sock_filter};

/// A path as a call names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    /// A descriptor of the directory that the path starts from, or `AT_FDCWD`.
    pub(crate) dir: i32,
    /// Where the path is in the caller's memory.
    pub(crate) address: u64,
}

/// A piece of the caller's memory that a result goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// A trapped call. Numbers named like the arguments of the manual's pages are theirs; `u64`s named after
/// something in memory are addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Open {
        at: Named,
        flags: u64,
        mode: u32,
    },
    OpenHow {
        at: Named,
        how: Room,
    },
    Stat {
        at: Named,
        into: u64,
        flags: i32,
    },
    /// Of a descriptor.
    DescriptorStat {
        fd: i32,
        into: u64,
    },
    Statx {
        at: Named,
        into: u64,
        flags: i32,
        mask: u32,
    },
    Access {
        at: Named,
        mode: u32,
        flags: i32,
    },
    ReadLink {
        at: Named,
        into: Room,
    },
    GetAttribute {
        at: Named,
        follow: bool,
        name: u64,
        into: Room,
    },
    ListAttributes {
        at: Named,
        follow: bool,
        into: Room,
    },
    FileSystem {
        at: Named,
        into: u64,
    },
    WorkingDirectory {
        into: Room,
    },
    Enter {
        at: Named,
    },
    Execute {
        at: Named,
        argv: u64,
        envp: u64,
        flags: i32,
    },
    Rename {
        from: Named,
        to: Named,
        flags: u32,
    },
    Link {
        from: Named,
        to: Named,
        flags: i32,
    },
    Change {
        at: Named,
        change: Change,
    },
}

/// A call that changes something at one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    MakeDirectory { mode: u32 },
    MakeNode { mode: u32, dev: u64 },
    MakeSymlink { text: u64 },
    Remove { flags: i32 },
    Mode { mode: u32, flags: i32 },
    Owner { uid: u32, gid: u32, flags: i32 },
    Cut { bytes: u64 },
    Times { times: u64, form: TimesForm, flags: i32 },
    SetAttribute { follow: bool, name: u64, value: Room, flags: u32 },
    RemoveAttribute { follow: bool, name: u64 },
}

/// How times stand in the caller's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimesForm {
    /// Two `struct timespec`.
    Nanoseconds,
    /// Two `struct timeval`.
    Microseconds,
    /// `struct utimbuf`.
    Seconds,
}

/// Not in `libc` for all architectures, which have the same number for it.
const SYS_FCHMODAT2: c_long = 452;

/// The trapped calls that all architectures have.
const CALLS: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_statfs,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
];

/// Those that only older ones have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_symlink,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[c_long] = &[];

/// What the kernel does for a ring is not trapped: programs that use one if there is one do without.
const REFUSED: c_long = libc::SYS_io_uring_setup;

/// `AUDIT_ARCH_*` of linux/audit.h.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// Numbers from here on are those of x32.
const NUMBERS_END: u32 = 0x4000_0000;

/// The program for the kernel. What it does not look at beyond the number costs nothing since Linux 5.11,
/// which remembers the outcome for each number.
/// Looks at descriptors are trapped only if there are some of which the kernel does not tell what programs are to
/// see.
pub(crate) fn filter(traps_descriptors: bool) -> Vec<sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const IS_FROM: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // Offsets within struct seccomp_data.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let is_trapped = |number: &&c_long| traps_descriptors || **number != libc::SYS_fstat;
    let numbers = CALLS.iter().chain(OLD_CALLS).filter(is_trapped);
    let numbers: Vec<u32> = numbers.map(|number| *number as u32).collect();
    let count = numbers.len() as u8 + 1;
    let mut program = vec![
        step(LOAD, ARCH, 0, 0),
        step(IS, ARCHITECTURE, 0, count + 2),
        step(LOAD, NUMBER, 0, 0),
        step(IS_FROM, NUMBERS_END, count, 0),
    ];
    for (index, number) in numbers.into_iter().enumerate() {
        program.push(step(IS, number, count - index as u8, 0));
    }
    program.push(step(IS, REFUSED as u32, 2, 0));
    program.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    program.push(step(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0));
    program.push(step(RETURN, NO_SUCH_CALL, 0, 0));
    program
}

/// What a call asks for; `None` if it is none that is trapped.
pub(crate) fn decode(number: i64, args: [u64; 6]) -> Option<Call> {
    let (number, args) = modern(number, args);
    let at = Named { dir: args[0] as i32, address: args[1] };
    // Calls without a directory's descriptor have the path first.
    let path = Named { dir: AT_FDCWD, address: args[0] };
    let room = |address: usize, bytes: usize| Room { address: args[address], bytes: args[bytes] };
    Some(match number {
        libc::SYS_openat => Call::Open { at, flags: args[2], mode: args[3] as u32 },
        libc::SYS_openat2 => Call::OpenHow { at, how: room(2, 3) },
        libc::SYS_newfstatat => Call::Stat { at, into: args[2], flags: args[3] as i32 },
        libc::SYS_fstat => Call::DescriptorStat { fd: args[0] as i32, into: args[1] },
        libc::SYS_statx => {
            Call::Statx { at, into: args[4], flags: args[2] as i32, mask: args[3] as u32 }
        }
        libc::SYS_faccessat => Call::Access { at, mode: args[2] as u32, flags: 0 },
        libc::SYS_faccessat2 => Call::Access { at, mode: args[2] as u32, flags: args[3] as i32 },
        libc::SYS_readlinkat => Call::ReadLink { at, into: room(2, 3) },
        libc::SYS_getxattr | libc::SYS_lgetxattr => Call::GetAttribute {
            at: path,
            follow: number == libc::SYS_getxattr,
            name: args[1],
            into: room(2, 3),
        },
        libc::SYS_listxattr | libc::SYS_llistxattr => Call::ListAttributes {
            at: path,
            follow: number == libc::SYS_listxattr,
            into: room(1, 2),
        },
        libc::SYS_statfs => Call::FileSystem { at: path, into: args[1] },
        libc::SYS_getcwd => Call::WorkingDirectory { into: room(0, 1) },
        libc::SYS_chdir => Call::Enter { at: path },
        libc::SYS_execve => Call::Execute { at: path, argv: args[1], envp: args[2], flags: 0 },
        libc::SYS_execveat => {
            Call::Execute { at, argv: args[2], envp: args[3], flags: args[4] as i32 }
        }
        libc::SYS_renameat | libc::SYS_renameat2 => Call::Rename {
            from: at,
            to: Named { dir: args[2] as i32, address: args[3] },
            flags: if number == libc::SYS_renameat { 0 } else { args[4] as u32 },
        },
        libc::SYS_linkat => Call::Link {
            from: at,
            to: Named { dir: args[2] as i32, address: args[3] },
            flags: args[4] as i32,
        },
        // The one call with the path after what goes there.
        libc::SYS_symlinkat => Call::Change {
            at: Named { dir: args[1] as i32, address: args[2] },
            change: Change::MakeSymlink { text: args[0] },
        },
        _ => return decode_change(number, args, at, path),
    })
}

fn decode_change(number: i64, args: [u64; 6], at: Named, path: Named) -> Option<Call> {
    let nanoseconds = TimesForm::Nanoseconds;
    let (at, change) = match number {
        libc::SYS_mkdirat => (at, Change::MakeDirectory { mode: args[2] as u32 }),
        libc::SYS_mknodat => (at, Change::MakeNode { mode: args[2] as u32, dev: args[3] }),
        libc::SYS_unlinkat => (at, Change::Remove { flags: args[2] as i32 }),
        libc::SYS_fchmodat => (at, Change::Mode { mode: args[2] as u32, flags: 0 }),
        SYS_FCHMODAT2 => (at, Change::Mode { mode: args[2] as u32, flags: args[3] as i32 }),
        libc::SYS_fchownat => {
            let (uid, gid) = (args[2] as u32, args[3] as u32);
            (at, Change::Owner { uid, gid, flags: args[4] as i32 })
        }
        libc::SYS_truncate => (path, Change::Cut { bytes: args[1] }),
        libc::SYS_utimensat => {
            let flags = args[3] as i32;
            (at, Change::Times { times: args[2], form: nanoseconds, flags })
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => {
            (at, Change::Times { times: args[2], form: TimesForm::Microseconds, flags: 0 })
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => {
            (path, Change::Times { times: args[1], form: TimesForm::Seconds, flags: 0 })
        }
        libc::SYS_setxattr | libc::SYS_lsetxattr => {
            let value = Room { address: args[2], bytes: args[3] };
            let follow = number == libc::SYS_setxattr;
            (path, Change::SetAttribute { follow, name: args[1], value, flags: args[4] as u32 })
        }
        libc::SYS_removexattr | libc::SYS_lremovexattr => {
            let follow = number == libc::SYS_removexattr;
            (path, Change::RemoveAttribute { follow, name: args[1] })
        }
        _ => return None,
    };
    Some(Call::Change { at, change })
}

/// An old call as the one that took its place.
#[cfg(target_arch = "x86_64")]
fn modern(number: i64, args: [u64; 6]) -> (i64, [u64; 6]) {
    let here = AT_FDCWD as u64;
    let nofollow = libc::AT_SYMLINK_NOFOLLOW as u64;
    let [a, b, c, ..] = args;
    match number {
        libc::SYS_open => (libc::SYS_openat, [here, a, b, c, 0, 0]),
        libc::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            (libc::SYS_openat, [here, a, flags as u64, b, 0, 0])
        }
        libc::SYS_stat => (libc::SYS_newfstatat, [here, a, b, 0, 0, 0]),
        libc::SYS_lstat => (libc::SYS_newfstatat, [here, a, b, nofollow, 0, 0]),
        libc::SYS_access => (libc::SYS_faccessat, [here, a, b, 0, 0, 0]),
        libc::SYS_readlink => (libc::SYS_readlinkat, [here, a, b, c, 0, 0]),
        libc::SYS_rename => (libc::SYS_renameat, [here, a, here, b, 0, 0]),
        libc::SYS_link => (libc::SYS_linkat, [here, a, here, b, 0, 0]),
        libc::SYS_mkdir => (libc::SYS_mkdirat, [here, a, b, 0, 0, 0]),
        libc::SYS_mknod => (libc::SYS_mknodat, [here, a, b, c, 0, 0]),
        libc::SYS_symlink => (libc::SYS_symlinkat, [a, here, b, 0, 0, 0]),
        libc::SYS_unlink => (libc::SYS_unlinkat, [here, a, 0, 0, 0, 0]),
        libc::SYS_rmdir => (libc::SYS_unlinkat, [here, a, libc::AT_REMOVEDIR as u64, 0, 0, 0]),
        libc::SYS_chmod => (libc::SYS_fchmodat, [here, a, b, 0, 0, 0]),
        libc::SYS_chown => (libc::SYS_fchownat, [here, a, b, c, 0, 0]),
        libc::SYS_lchown => (libc::SYS_fchownat, [here, a, b, c, nofollow, 0]),
        libc::SYS_utimes => (libc::SYS_futimesat, [here, a, b, 0, 0, 0]),
        _ => (number, args),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn modern(number: i64, args: [u64; 6]) -> (i64, [u64; 6]) {
    (number, args)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do with a call.
    fn run(program: &[sock_filter], arch: u32, number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            let holds = match u32::from(step.code) {
                0x20 => {
                    loaded = if step.k == 4 { arch } else { number };
                    continue;
                }
                0x06 => return step.k,
                0x15 => loaded == step.k,
                0x35 => loaded >= step.k,
                other => panic!("instruction {other:#x}"),
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn the_filter_traps_what_can_be_decoded_and_nothing_else() {
        let program = filter(true);
        for number in 0..1000 {
            let is_trapped = decode(i64::from(number), [0; 6]).is_some();
            let wanted = match i64::from(number) {
                REFUSED => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
                _ if is_trapped => libc::SECCOMP_RET_USER_NOTIF,
                _ => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(run(&program, ARCHITECTURE, number), wanted, "call {number}");
            assert_eq!(run(&program, 0x4000_0003, number), libc::SECCOMP_RET_ALLOW, "i386");
            let x32 = run(&program, ARCHITECTURE, NUMBERS_END + number);
            assert_eq!(x32, libc::SECCOMP_RET_ALLOW, "x32");
        }
        assert_eq!(program.len(), CALLS.len() + OLD_CALLS.len() + 8);
        let fewer = filter(false);
        let fstat = libc::SYS_fstat as u32;
        assert_eq!(run(&fewer, ARCHITECTURE, fstat), libc::SECCOMP_RET_ALLOW);
        assert_eq!(fewer.len() + 1, program.len());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn an_old_call_is_the_new_one_from_the_working_directory() {
        let at = Named { dir: AT_FDCWD, address: 7 };
        let flags = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u64;
        assert_eq!(
            decode(libc::SYS_creat, [7, 0o640, 9, 9, 9, 9]),
            Some(Call::Open { at, flags, mode: 0o640 })
        );
        assert_eq!(
            decode(libc::SYS_symlink, [5, 7, 9, 9, 9, 9]),
            Some(Call::Change { at, change: Change::MakeSymlink { text: 5 } })
        );
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        assert_eq!(
            decode(libc::SYS_lchown, [7, 1, 2, 9, 9, 9]),
            Some(Call::Change { at, change: Change::Owner { uid: 1, gid: 2, flags } })
        );
    }
}
