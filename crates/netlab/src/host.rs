//! One host: its name spaces, its devices, its names for the others, and the way into it. Everything
//! hangs on the holder process and on open descriptors, so it goes when they go; nothing is ever
//! written to a place that outlives them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::LabError;
use crate::{mounts, sys};

/// What takes longer than this is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// One end of a link, as a host sees it.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// Name of the interface.
    pub(crate) interface: String,
    pub(crate) mtu_bytes: u32,
}

/// What a host is made from.
#[derive(Clone, Debug)]
pub(crate) struct HostSpec {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) ports: Vec<Port>,
    /// Address of another host, and the index of the port that leads there.
    pub(crate) routes: Vec<(Ipv4Addr, usize)>,
    /// The text of the host's `/etc/hosts`.
    pub(crate) names: String,
    pub(crate) sysctl: BTreeMap<String, String>,
}

/// A host that runs.
pub(crate) struct Host {
    holder: Pid,
    control: UnixStream,
    /// The thread whose child the holder is; it lives as long as this is not dropped.
    parent: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

struct Made {
    tuns: Vec<File>,
    holder: Pid,
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::System { what, source }
}

impl Host {
    /// Makes a host; gives its TUN devices in the order of its ports.
    pub(crate) fn make(spec: HostSpec) -> Result<(Self, Vec<File>), LabError> {
        let name = spec.name.clone();
        let (ours, theirs) = UnixStream::pair().map_err(failed("cannot make a socket pair"))?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(failed("cannot set a time limit"))?;
        let (tell, made) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let parent = std::thread::Builder::new()
            .name(format!("host {name}"))
            .spawn(move || {
                let result = build(&spec, theirs.into());
                let going = result.is_ok();
                // The holder gets a signal when its parent thread ends, so the thread stays.
                if tell.send(result).is_ok() && going {
                    let _ = stopped.recv();
                }
            })
            .map_err(failed("cannot start a thread"))?;
        let made = made.recv().map_err(|_| LabError::Gone)??;
        let host = Self { holder: made.holder, control: ours, parent: Some((stop, parent)) };
        host.heard()
            .map_err(failed(format!("cannot give host '{name}' its process table (/proc)")))?;
        Ok((host, made.tuns))
    }

    /// The process that holds the host's name spaces.
    pub(crate) fn holder(&self) -> Pid {
        self.holder
    }

    fn heard(&self) -> io::Result<()> {
        let mut byte = [0];
        (&self.control).read_exact(&mut byte)?;
        match byte[0] {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(i32::from(error))),
        }
    }

    /// Sends a signal to every process of the host, at once.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        (&self.control).write_all(&[signal.as_raw() as u8])?;
        self.heard()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Killing the first process of the host kills all of them.
        let _ = rustix::process::kill_process(self.holder, Signal::KILL);
        let patience = std::time::Instant::now();
        // It stays while a process of the host has ended but its parent outside has not looked.
        while patience.elapsed() < PATIENCE
            && matches!(
                rustix::process::waitpid(Some(self.holder), WaitOptions::NOHANG),
                Ok(None) | Err(rustix::io::Errno::INTR)
            )
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some((stop, parent)) = self.parent.take() {
            drop(stop);
            let _ = parent.join();
        }
    }
}

fn build(spec: &HostSpec, control: OwnedFd) -> Result<Made, LabError> {
    let host = &spec.name;
    sys::leave_name_spaces().map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM) => LabError::NotAllowed,
        _ => failed("cannot make name spaces")(source),
    })?;
    set_up_files(spec).map_err(failed(format!("cannot set up the files of host '{host}'")))?;
    let mut settings = base_settings();
    settings.extend(spec.sysctl.iter().map(|(key, value)| (key.as_str(), value.as_str(), true)));
    for (key, value, needed) in settings {
        let path = Path::new("/proc/sys").join(key.replace('.', "/"));
        match std::fs::write(&path, value) {
            Err(source) if needed => {
                return Err(failed(format!("host '{host}': cannot set {key} to '{value}'"))(
                    source,
                ));
            }
            _ => {}
        }
    }
    let tuns = set_up_network(spec)?;
    let holder = sys::start_holder(&control)
        .map_err(failed(format!("cannot start the first process of host '{host}'")))?;
    // From here on the holder's end is only the holder's: if it dies, reading from it says so.
    drop(control);
    Ok(Made { tuns, holder })
}

/// Settings of every host, and whether it can do without.
fn base_settings() -> Vec<(&'static str, &'static str, bool)> {
    vec![
        ("net.ipv4.ip_forward", "1", true),
        ("net.ipv4.conf.all.rp_filter", "0", false),
        ("net.ipv4.conf.default.rp_filter", "0", false),
        ("net.ipv4.conf.all.send_redirects", "0", false),
        ("net.ipv4.conf.default.send_redirects", "0", false),
        // Hosts have no IPv6 addresses; without this the kernel looks for routers all the time.
        ("net.ipv6.conf.all.disable_ipv6", "1", false),
        ("net.ipv6.conf.default.disable_ipv6", "1", false),
        // The kernel's default is what the machine has chosen; labs shall not differ by that.
        ("net.ipv4.tcp_congestion_control", "cubic", false),
    ]
}

fn set_up_files(spec: &HostSpec) -> io::Result<()> {
    sys::set_host_name(&spec.name)?;
    mounts::follow_outside()?;
    let hosts = Path::new("/etc/hosts");
    if hosts.exists() { mounts::put_before(hosts, &spec.names) } else { Ok(()) }
}

fn set_up_network(spec: &HostSpec) -> Result<Vec<File>, LabError> {
    let host = &spec.name;
    let interfaces = sys::Interfaces::open().map_err(failed("cannot make a socket"))?;
    interfaces.bring_up("lo").map_err(failed(format!("host '{host}': cannot bring up lo")))?;
    let mut tuns = Vec::new();
    for port in &spec.ports {
        let name = &port.interface;
        tuns.push(sys::make_tun(name).map_err(|source| LabError::NoTun { source })?);
        interfaces
            .set_up_tun(name, spec.address, port.mtu_bytes)
            .map_err(failed(format!("host '{host}': cannot set up {name}")))?;
    }
    for (to, port) in &spec.routes {
        interfaces
            .add_route(*to, &spec.ports[*port].interface)
            .map_err(failed(format!("host '{host}': cannot add the route to {to}")))?;
    }
    Ok(tuns)
}

/// The name spaces of a host: the way into it.
#[derive(Debug)]
pub struct NameSpaces {
    spaces: Vec<(LinkNameSpaceType, OwnedFd)>,
}

impl NameSpaces {
    /// Those of the host that this process holds.
    ///
    /// # Errors
    /// If the process is gone, or this one may not enter.
    pub fn of(holder_pid: u32) -> io::Result<Self> {
        let kinds = [
            (LinkNameSpaceType::Network, "net"),
            (LinkNameSpaceType::HostNameAndNISDomainName, "uts"),
            (LinkNameSpaceType::ProcessID, "pid"),
            (LinkNameSpaceType::Mount, "mnt"),
        ];
        let spaces = kinds
            .into_iter()
            .map(|(kind, name)| {
                let path = format!("/proc/{holder_pid}/ns/{name}");
                Ok((kind, OwnedFd::from(File::open(path)?)))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { spaces })
    }

    /// Moves this thread into the host: its network, mounts and host name; processes that it starts
    /// from now on are the host's. The thread cannot start threads any more. There is no way back.
    ///
    /// # Errors
    /// If the host is gone, or this process may not enter.
    pub fn enter(&self) -> io::Result<()> {
        let directory: PathBuf = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        sys::leave_directory()?;
        for (kind, space) in &self.spaces {
            move_into_link_name_space(space.as_fd(), Some(*kind))?;
        }
        // Entering mounts leads to their root. A directory that is not there in the host stays at it.
        let _ = rustix::process::chdir(&directory);
        Ok(())
    }

    /// Moves this thread into the host's network only.
    ///
    /// # Errors
    /// If the host is gone, or this process may not enter.
    pub(crate) fn enter_network(&self) -> io::Result<()> {
        for (kind, space) in &self.spaces {
            if matches!(kind, LinkNameSpaceType::Network) {
                move_into_link_name_space(space.as_fd(), Some(*kind))?;
            }
        }
        Ok(())
    }

    /// Starts a command in the host.
    ///
    /// # Errors
    /// If the host is gone, or the command cannot be started.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        std::thread::scope(|scope| {
            let spawned = scope.spawn(|| {
                self.enter()?;
                command.spawn()
            });
            spawned.join().unwrap_or_else(|_| Err(io::Error::other("the thread ended early")))
        })
    }
}
