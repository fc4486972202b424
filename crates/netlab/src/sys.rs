//! System calls that no safe crate offers: TUN devices, addresses and routes by `ioctl`, name spaces
//! of one thread, the process that holds a host's name spaces, real-time priority. The only unsafe
//! code of the crate; decides nothing.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use libc::{c_int, c_void};
use rustix::process::Pid;

/// Packets that wait in the kernel for the relay to read them.
const TUN_QUEUE_PACKETS: c_int = 2000;
const VNET_HEADER_BYTES: c_int = crate::segment::VNET_HEADER_BYTES as c_int;
// From linux/if_tun.h.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUN_F_CSUM: libc::c_ulong = 1;
const TUN_F_TSO4: libc::c_ulong = 2;
const TUN_F_TSO_ECN: libc::c_ulong = 8;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A request about an interface, with nothing but its name.
fn request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn address(ip: Ipv4Addr) -> libc::sockaddr {
    let internet = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: both are plain data of the same size; sockaddr_in is a form of sockaddr.
    unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(internet) }
}

/// Makes a TUN device with segmentation offload in the network of this thread. It goes when the file
/// is closed.
pub(crate) fn make_tun(name: &str) -> io::Result<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut wanted = request(name)?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    wanted.ifr_ifru.ifru_flags = flags as libc::c_short;
    let offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO_ECN;
    let nonblocking = libc::O_NONBLOCK;
    let header_bytes = VNET_HEADER_BYTES;
    // SAFETY: the descriptor is open; the requests take an ifreq, an int and a number, and keep
    // nothing of them.
    unsafe {
        check(libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &raw mut wanted))?;
        check(libc::ioctl(file.as_raw_fd(), TUNSETVNETHDRSZ as _, &raw const header_bytes))?;
        check(libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD as _, offloads))?;
        check(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, nonblocking))?;
    }
    Ok(file)
}

/// A socket for requests about interfaces of this thread's network.
pub(crate) struct Interfaces {
    socket: OwnedFd,
}

impl Interfaces {
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: takes numbers only; the descriptor that comes back is nobody else's.
        let socket = unsafe {
            let fd = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { socket })
    }

    fn ask<T>(&self, code: libc::c_ulong, wanted: &mut T) -> io::Result<()> {
        // SAFETY: private; every caller passes the structure that the code takes, alive until here.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, &raw mut *wanted) })?;
        Ok(())
    }

    /// Lets an interface carry packets.
    pub(crate) fn bring_up(&self, interface: &str) -> io::Result<()> {
        let mut wanted = request(interface)?;
        wanted.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        self.ask(libc::SIOCSIFFLAGS as _, &mut wanted)
    }

    /// Address, packet size and queue of a TUN device, and up.
    pub(crate) fn set_up_tun(&self, name: &str, ip: Ipv4Addr, mtu_bytes: u32) -> io::Result<()> {
        let mut wanted = request(name)?;
        wanted.ifr_ifru.ifru_mtu = mtu_bytes as c_int;
        self.ask(libc::SIOCSIFMTU as _, &mut wanted)?;
        // The queue length has the place of an int.
        wanted.ifr_ifru.ifru_metric = TUN_QUEUE_PACKETS;
        self.ask(libc::SIOCSIFTXQLEN as _, &mut wanted)?;
        wanted.ifr_ifru.ifru_addr = address(ip);
        self.ask(libc::SIOCSIFADDR as _, &mut wanted)?;
        self.bring_up(name)
    }

    /// Sends what is for `to` over an interface.
    pub(crate) fn add_route(&self, to: Ipv4Addr, interface: &str) -> io::Result<()> {
        let mut device = request(interface)?.ifr_name;
        // SAFETY: rtentry is plain data, for which all zeros is a value.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        route.rt_dst = address(to);
        route.rt_genmask = address(Ipv4Addr::BROADCAST);
        route.rt_flags = libc::RTF_UP | libc::RTF_HOST;
        route.rt_dev = device.as_mut_ptr();
        // `device` lives until the call has returned.
        self.ask(libc::SIOCADDRT as _, &mut route)
    }
}

/// Gives this thread a network, mounts, a host name and (for its children) process ids of its own.
pub(crate) fn leave_name_spaces() -> io::Result<()> {
    let flags = libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWUTS | libc::CLONE_NEWPID;
    // SAFETY: takes a number; none of these name spaces is shared with memory or descriptors.
    check(unsafe { libc::unshare(flags) })?;
    Ok(())
}

/// Gives this thread a working directory of its own, which entering other mounts needs.
pub(crate) fn leave_directory() -> io::Result<()> {
    // SAFETY: takes a number; the working directory is no memory.
    check(unsafe { libc::unshare(libc::CLONE_FS) })?;
    Ok(())
}

/// Sets the host name of this thread's name space.
pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the name is alive and that long.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
    Ok(())
}

/// Lets this thread run before all ordinary ones. Refused in some containers.
pub(crate) fn run_in_real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is this thread; the parameters are alive.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })?;
    Ok(())
}

/// The process at the other end and its user. It is `None` where it stands outside of the caller's process ids.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<(Option<Pid>, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    let place: *mut c_void = (&raw mut peer).cast();
    // SAFETY: the place is alive and as long as is said.
    check(unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        libc::getsockopt(stream.as_raw_fd(), level, option, place, &raw mut bytes)
    })?;
    Ok((Pid::from_raw(peer.pid), peer.uid))
}

/// Starts a command that is killed when this thread ends.
///
/// # Errors
/// If it cannot be started.
pub fn spawn_bound(command: &mut Command) -> io::Result<Child> {
    // SAFETY: between fork and exec there is one system call on numbers.
    unsafe {
        command.pre_exec(|| {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            Ok(())
        });
    }
    command.spawn()
}

/// Starts the first process of this thread's new process ids. It holds the name spaces, and does
/// nothing but pass signals on: for each byte that comes over `control` it sends that signal to all
/// processes of the host and answers with a byte, 0 or the error. It dies with this thread, with
/// `control`, and takes every process of the host with it.
pub(crate) fn start_holder(control: &OwnedFd) -> io::Result<rustix::process::Pid> {
    let control = control.as_raw_fd();
    // SAFETY: the child only makes plain system calls: no memory, no locks, no return.
    let child = unsafe { libc::fork() };
    if check(child)? == 0 {
        // SAFETY: this is the child of the fork, single-threaded.
        unsafe { hold(control) }
    }
    rustix::process::Pid::from_raw(child).ok_or_else(|| io::Error::from(io::ErrorKind::Other))
}

/// The holder's life. `control` becomes descriptor 3, all others are closed, so that devices and
/// sockets of the parent go when the parent goes.
///
/// # Safety
/// Only in a process that has just been forked: it closes every descriptor and never returns.
unsafe fn hold(control: RawFd) -> ! {
    // SAFETY: plain system calls on numbers and static text; the byte outlives its calls.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"netlab-host".as_ptr());
        for signal in 1..=31 {
            libc::signal(signal, libc::SIG_DFL);
        }
        // Orphans of the host are buried by the kernel.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::dup2(control, 3);
        libc::syscall(libc::SYS_close_range, 4u32, u32::MAX, 0u32);
        for stream in 0..3 {
            libc::close(stream);
        }
        let proc = c"proc".as_ptr();
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let mounted = libc::mount(proc, c"/proc".as_ptr(), proc, flags, std::ptr::null());
        let mut byte = if mounted == 0 { 0 } else { *libc::__errno_location() as u8 };
        let place: *mut c_void = (&raw mut byte).cast();
        while libc::write(3, place, 1) == 1 && libc::read(3, place, 1) == 1 {
            let sent = libc::kill(-1, c_int::from(byte));
            let error = *libc::__errno_location();
            // A host without processes has taken every signal.
            byte = if sent == 0 || error == libc::ESRCH { 0 } else { error as u8 };
        }
        libc::_exit(0)
    }
}
