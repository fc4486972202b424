//! Seccomp's user notification (`seccomp_unotify(2)`): programs under a filter, and the calls that wait.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use libc::{c_int, c_ulong};
use rustix::io::Errno;

use super::{check, check_long};

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` of linux/seccomp.h (Linux 6.6).
const SYNC_WAKE_UP: c_ulong = 1;
/// What a message of [`start_filtered`] holds: the process id, and with it a descriptor or none.
pub(crate) const GREETING_BYTES: usize = size_of::<i32>();

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    /// The kernel's name for it.
    pub(crate) id: u64,
    /// The thread that made it.
    pub(crate) tid: i32,
    /// The call's number.
    pub(crate) number: i64,
    /// Where the thread goes on after it.
    pub(crate) instruction: u64,
    pub(crate) args: [u64; 6],
}

/// The end of a filter that its notifications come out of. Waiting calls fail with `ENOSYS` once it is closed.
pub(crate) struct Listener(OwnedFd);

impl Listener {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        // Only makes it faster, and is refused before Linux 6.6.
        // SAFETY: the descriptor is open; the request takes a number.
        let _ = unsafe {
            libc::ioctl(fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP)
        };
        Self(fd)
    }

    /// Waits for the next call. `None` once no process has the filter any more (Linux 6.11; before, it
    /// waits for ever).
    pub(crate) fn receive(&self) -> io::Result<Option<Notification>> {
        loop {
            // SAFETY: plain data, for which all zeros is a value, and the kernel wants zeros.
            let mut got: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            match self.ask(libc::SECCOMP_IOCTL_NOTIF_RECV, &mut got) {
                Ok(_) => {
                    return Ok(Some(Notification {
                        id: got.id,
                        tid: got.pid as i32,
                        number: i64::from(got.data.nr),
                        instruction: got.data.instruction_pointer,
                        args: got.data.args,
                    }));
                }
                Err(error) => match Errno::from_io_error(&error) {
                    // ENOENT: either the caller was killed meanwhile, or nobody is left.
                    Some(Errno::NOENT) if self.is_deserted() => return Ok(None),
                    Some(Errno::NOENT | Errno::INTR) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn is_deserted(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Waits until no process has the filter any more.
    pub(crate) fn wait_until_deserted(&self) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, poll};
        loop {
            let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
            match poll(&mut polled, None) {
                Ok(_) if polled[0].revents().contains(PollFlags::HUP) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the call still waits. What was read from its process before is that process's then.
    pub(crate) fn still_waits(&self, id: u64) -> bool {
        let mut id = id;
        self.ask(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut id).is_ok()
    }

    /// Has the kernel carry the call out as it stands. That the caller is gone is nobody's concern.
    pub(crate) fn let_pass(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let _ = self.send(libc::seccomp_notif_resp { id, val: 0, error: 0, flags });
    }

    /// Ends the call with a result, or the number of an error.
    pub(crate) fn answer(&self, id: u64, result: Result<i64, i32>) {
        let (val, error) = match result {
            Ok(value) => (value, 0),
            Err(error) => (0, -error),
        };
        let _ = self.send(libc::seccomp_notif_resp { id, val, error, flags: 0 });
    }

    fn send(&self, mut response: libc::seccomp_notif_resp) -> io::Result<c_int> {
        self.ask(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response)
    }

    /// Gives the caller a descriptor, which goes on waiting. Returns its number there.
    pub(crate) fn give(&self, id: u64, fd: BorrowedFd, close_on_exec: bool) -> io::Result<c_int> {
        self.add(id, fd, close_on_exec, 0)
    }

    /// Ends the call with a descriptor as its result.
    pub(crate) fn answer_descriptor(
        &self,
        id: u64,
        fd: BorrowedFd,
        close_on_exec: bool,
    ) -> io::Result<()> {
        match self.add(id, fd, close_on_exec, libc::SECCOMP_ADDFD_FLAG_SEND) {
            // Before Linux 5.14 it takes two steps.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                let number = self.give(id, fd, close_on_exec)?;
                self.answer(id, Ok(i64::from(number)));
                Ok(())
            }
            added => added.map(drop),
        }
    }

    fn add(
        &self,
        id: u64,
        fd: BorrowedFd,
        close_on_exec: bool,
        flags: c_ulong,
    ) -> io::Result<c_int> {
        let mut wanted = libc::seccomp_notif_addfd {
            id,
            flags: flags as u32,
            srcfd: fd.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        self.ask(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut wanted)
    }

    fn ask<T>(&self, code: libc::Ioctl, about: &mut T) -> io::Result<c_int> {
        // SAFETY: private; every caller passes the structure that the code takes, alive until here.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), code, &raw mut *about) })
    }
}

/// Whether this kernel's notifications have the form that is known here, and nothing forbids them.
pub(crate) fn check_notifications() -> io::Result<()> {
    let mut sizes =
        libc::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    let wanted = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: each operation gets the structure that it takes, alive until the call has returned.
    unsafe {
        let operation = libc::SECCOMP_GET_ACTION_AVAIL;
        check_long(libc::syscall(libc::SYS_seccomp, operation, 0, &raw const wanted))?;
        let operation = libc::SECCOMP_GET_NOTIF_SIZES;
        check_long(libc::syscall(libc::SYS_seccomp, operation, 0, &raw mut sizes))?;
    }
    let known = (size_of::<libc::seccomp_notif>(), size_of::<libc::seccomp_notif_resp>());
    if (usize::from(sizes.seccomp_notif), usize::from(sizes.seccomp_notif_resp)) == known {
        Ok(())
    } else {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

/// Starts a command under a filter. Before it runs, a message comes over the other end of `to`: its process
/// id, and the filter's listener, or none if there is one already and `may_be_nested`. The command dies with
/// this thread.
pub(crate) fn start_filtered(
    command: &mut Command,
    filter: Vec<libc::sock_filter>,
    to: OwnedFd,
    may_be_nested: bool,
) -> io::Result<Child> {
    // SAFETY: between fork and exec there are only system calls on memory that is there already.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            match install(&filter) {
                Ok(listener) => {
                    greet(to.as_raw_fd(), Some(listener))?;
                    check(libc::close(listener))?;
                    Ok(())
                }
                Err(error) if may_be_nested && error.raw_os_error() == Some(libc::EBUSY) => {
                    greet(to.as_raw_fd(), None)
                }
                Err(error) => Err(error),
            }
        });
    }
    command.spawn()
}

/// Puts this thread under a filter.
fn install(filter: &[libc::sock_filter]) -> io::Result<RawFd> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // Without SPEC_ALLOW older kernels slow the whole program down, against attacks that this filter
    // does not guard against. A call that is being answered is not to be begun again for a signal, if
    // the kernel can do that (5.19).
    let needed = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let install = |flags: c_ulong| {
        let operation = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the program is alive and that long; the kernel copies it.
        check_long(unsafe {
            libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program)
        })
    };
    match install(needed | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(needed),
        installed => installed,
    }
    .map(|fd| fd as RawFd)
}

/// Sends the process id, and a descriptor with it. Allocates nothing.
fn greet(to: RawFd, listener: Option<RawFd>) -> io::Result<()> {
    // SAFETY: takes nothing.
    let mut pid = unsafe { libc::getpid() }.to_ne_bytes();
    let mut part = libc::iovec { iov_base: pid.as_mut_ptr().cast(), iov_len: GREETING_BYTES };
    // Words, so that the header in it is aligned.
    let mut control = [0_u64; 8];
    // SAFETY: plain data, for which all zeros is a value; every pointer is to what lives until sendmsg has
    // returned, and the control buffer has room for one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if let Some(listener) = listener {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(listener);
        }
        if libc::sendmsg(to, &raw const message, libc::MSG_NOSIGNAL) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives this thread a umask of its own.
pub(crate) fn leave_umask() -> io::Result<()> {
    // SAFETY: takes a number; what is left is no memory.
    check(unsafe { libc::unshare(libc::CLONE_FS) })?;
    Ok(())
}

/// Makes orphans below this process its children, as which it may look into them where only ancestors may.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Whether the kernel would run a file (Linux 6.14; before, `EINVAL`). Never runs it.
pub(crate) fn check_execution(file: BorrowedFd) -> io::Result<()> {
    /// `AT_EXECVE_CHECK` of linux/fcntl.h; older kernels refuse flags that they do not know.
    const CHECK: c_int = 0x10000;
    let nothing = c"".as_ptr();
    let words = [nothing, std::ptr::null()];
    let flags = libc::AT_EMPTY_PATH | CHECK;
    // SAFETY: the texts and the list end as they must, and are alive.
    check_long(unsafe {
        let (fd, words) = (file.as_raw_fd(), words.as_ptr());
        libc::syscall(libc::SYS_execveat, fd, nothing, words, words.add(1), flags)
    })?;
    Ok(())
}

/// A descriptor for the process `pid`, which is readable once the process has ended.
pub(crate) fn watch_process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers; the descriptor that comes back is nobody else's.
    unsafe {
        let fd = check_long(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}
