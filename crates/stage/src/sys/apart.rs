//! A FUSE file system that stands nowhere: mounted by an ordinary user in a user name space of its own
//! (Linux 5.2), attached to no directory, and kept by the descriptor of its root alone. What it takes is done
//! by a child that ends at once, since only a process of one thread may enter a user name space.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::path::DecInt;

/// What the child sends when it has failed: the number of the errno.
const FAILED_BYTES: usize = size_of::<i32>();

/// A file system that nobody serves yet.
pub(crate) struct Apart {
    /// The end of the kernel's conversation.
    pub(crate) device: OwnedFd,
    /// The root directory, with `O_PATH`.
    pub(crate) root: OwnedFd,
}

/// Texts that the child needs: between fork and end it may not ask for memory.
struct Texts {
    user: CString,
    group: CString,
    user_map: CString,
    group_map: CString,
}

/// Mounts one.
///
/// # Errors
/// If `/dev/fuse` cannot be opened, or nobody but root may mount here.
pub(crate) fn mount() -> io::Result<Apart> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let text = |text: String| CString::new(text).map_err(io::Error::other);
    let texts = Texts {
        user: text(user.to_string())?,
        group: text(group.to_string())?,
        user_map: text(format!("{user} {user} 1"))?,
        group_map: text(format!("{group} {group} 1"))?,
    };
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // SAFETY: the child makes system calls on memory that is there already, and ends by `_exit`: nothing of
    // this process's other threads is looked at.
    let child = unsafe { libc::fork() };
    if child == 0 {
        if let Err(errno) = work(&texts, theirs.as_fd()) {
            let number = errno.raw_os_error().to_ne_bytes();
            // A parent that hears nothing knows that it has failed.
            let _ = rustix::net::send(&theirs, &number, SendFlags::NOSIGNAL);
        }
        // SAFETY: does not return, and runs nothing of what the parent has registered.
        unsafe { libc::_exit(0) };
    }
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    drop(theirs);
    let received = receive(ours.as_fd());
    // SAFETY: waits for a child of this function.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    received
}

fn work(texts: &Texts, to: BorrowedFd) -> Result<(), Errno> {
    // Root may do without, where user name spaces are not allowed.
    // SAFETY: takes a number; the child has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) } == 0 {
        write(c"/proc/self/setgroups", c"deny")?;
        write(c"/proc/self/uid_map", &texts.user_map)?;
        write(c"/proc/self/gid_map", &texts.group_map)?;
    }
    let device = openat(CWD, c"/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let system = fsopen(c"fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let number = DecInt::new(device.as_raw_fd());
    for (key, value) in [
        (c"source", c"azekura-stage"),
        (c"fd", number.as_c_str()),
        (c"rootmode", c"40000"),
        (c"user_id", texts.user.as_c_str()),
        (c"group_id", texts.group.as_c_str()),
    ] {
        fsconfig_set_string(&system, key, value)?;
    }
    fsconfig_set_flag(&system, c"default_permissions")?;
    fsconfig_create(&system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    let root = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let fds = [device.as_fd(), root.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(to, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL).map(drop)
}

fn write(file: &CStr, text: &CStr) -> Result<(), Errno> {
    let file = openat(CWD, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.to_bytes()).map(drop)
}

fn receive(from: BorrowedFd) -> io::Result<Apart> {
    let mut bytes = [0; FAILED_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        recvmsg(from, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let (Some(device), Some(root)) = (fds.next(), fds.next())
        {
            return Ok(Apart { device, root });
        }
    }
    Err(if received.bytes == FAILED_BYTES {
        io::Error::from_raw_os_error(i32::from_ne_bytes(bytes))
    } else {
        io::ErrorKind::UnexpectedEof.into()
    })
}
