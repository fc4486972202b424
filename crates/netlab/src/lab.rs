//! A lab that runs: its hosts, and the relay between them. Dropping it removes everything; so does
//! the end of the process, however it ends.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;

use crate::error::LabError;
use crate::host::{Host, HostSpec, NameSpaces, Port};
use crate::relay::{Order, Relay, RelayView, Wire};
use crate::routes;
use crate::status::{DirectionStatus, HostState, HostStatus, LabStatus, LinkStatus};
use crate::topology::{Change, Topology};

/// The relay answers within this unless the machine is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest name of an interface.
const INTERFACE_BYTES_MAX: usize = 15;

#[derive(Clone, Copy, Debug, Default)]
struct Condition {
    cut: bool,
    frozen: bool,
}

/// Hosts and links that run.
pub struct Lab {
    topology: Topology,
    hosts: Vec<Host>,
    conditions: Mutex<Vec<Condition>>,
    orders: Option<mpsc::Sender<Order>>,
    bell: Arc<OwnedFd>,
    relay: Option<JoinHandle<()>>,
    started: Instant,
}

fn address_of(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, host as u8 + 1)
}

/// What each host is made from.
fn host_specs(topology: &Topology) -> Vec<HostSpec> {
    let ends: Vec<[usize; 2]> = topology.links.iter().map(|link| link.ends).collect();
    let next = routes::next_links(topology.hosts.len(), &ends);
    let mut names = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for (index, host) in topology.hosts.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(names, "{} {host}", address_of(index));
    }
    let spec = |(host, name): (usize, &String)| {
        let own: Vec<usize> = (0..ends.len()).filter(|link| ends[*link].contains(&host)).collect();
        let port = |link: &usize| {
            let name = &topology.links[*link].name;
            let fits = name.len() <= INTERFACE_BYTES_MAX && name != "lo";
            Port {
                interface: if fits { name.clone() } else { format!("link{link}") },
                mtu_bytes: topology.links[*link].mtu_bytes,
            }
        };
        let route = |other: usize| {
            let link = next[host][other]?;
            Some((address_of(other), own.iter().position(|mine| *mine == link)?))
        };
        HostSpec {
            name: name.clone(),
            address: address_of(host),
            ports: own.iter().map(port).collect(),
            routes: (0..topology.hosts.len()).filter_map(route).collect(),
            names: names.clone(),
            sysctl: topology.sysctl.clone(),
        }
    };
    topology.hosts.iter().enumerate().map(spec).collect()
}

impl Lab {
    /// Makes the hosts and links and lets packets pass.
    ///
    /// # Errors
    /// If this process may not, or the kernel cannot. Then nothing is left.
    pub fn up(topology: &Topology) -> Result<Self, LabError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::NotAllowed);
        }
        let mut hosts = Vec::new();
        let mut ends: Vec<Vec<std::fs::File>> = topology.links.iter().map(|_| Vec::new()).collect();
        for (index, spec) in host_specs(topology).into_iter().enumerate() {
            let (host, tuns) = Host::make(spec)?;
            hosts.push(host);
            let own =
                topology.links.iter().enumerate().filter(|(_, link)| link.ends.contains(&index));
            for ((link, shape), tun) in own.zip(tuns) {
                // The device of the link's first end comes first.
                let at = if shape.ends[0] == index { 0 } else { ends[link].len() };
                ends[link].insert(at, tun);
            }
        }
        let wires = topology.links.iter().zip(ends).filter_map(|(link, tuns)| {
            let tuns = tuns.try_into().ok()?;
            Some(Wire { tuns, hosts: link.ends, shape: link.shape.clone() })
        });
        let system = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| LabError::System { what, source }
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("cannot make an event descriptor")(error.into()))?;
        let bell = Arc::new(bell);
        let (orders, receiver) = mpsc::channel();
        let relay =
            Relay::new(wires.collect(), hosts.len(), topology.seed, receiver, Arc::clone(&bell))
                .map_err(system("cannot watch the links"))?;
        let relay = std::thread::Builder::new()
            .name("netlab relay".to_owned())
            .spawn(move || relay.run())
            .map_err(system("cannot start the relay's thread"))?;
        Ok(Self {
            conditions: Mutex::new(vec![Condition::default(); hosts.len()]),
            topology: topology.clone(),
            hosts,
            orders: Some(orders),
            bell,
            relay: Some(relay),
            started: Instant::now(),
        })
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.topology.name
    }

    fn host_index(&self, name: &str) -> Result<usize, LabError> {
        self.topology.host(name).ok_or_else(|| LabError::Unknown {
            what: "host",
            name: name.to_owned(),
            known: self.topology.hosts.join(", "),
        })
    }

    fn link_index(&self, name: &str) -> Result<usize, LabError> {
        self.topology.link(name).ok_or_else(|| {
            let known: Vec<&str> = self.topology.links.iter().map(|l| l.name.as_str()).collect();
            LabError::Unknown { what: "link", name: name.to_owned(), known: known.join(", ") }
        })
    }

    fn ring(&self) {
        // Fails only when it has been rung 2^64 times.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    fn ask<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> Order) -> Result<T, LabError> {
        let (answer, answered) = mpsc::channel();
        let orders = self.orders.as_ref().ok_or(LabError::Gone)?;
        orders.send(order(answer)).map_err(|_| LabError::Gone)?;
        self.ring();
        answered.recv_timeout(PATIENCE).map_err(|_| LabError::Gone)
    }

    /// Changes a link. What is on its way keeps its delay.
    ///
    /// # Errors
    /// If there is no such link, or `from` is not at its end.
    pub fn set(&self, link: &str, change: &Change) -> Result<(), LabError> {
        let index = self.link_index(link)?;
        let ends = self.topology.links[index].ends;
        let directions = match &change.from {
            None => [true, true],
            Some(host) => {
                let from = self.topology.host(host);
                if !ends.iter().any(|end| Some(*end) == from) {
                    return Err(LabError::Unknown {
                        what: "end of the link",
                        name: host.clone(),
                        known: ends.map(|end| self.topology.hosts[end].as_str()).join(", "),
                    });
                }
                ends.map(|end| Some(end) == from)
            }
        };
        self.ask(|done| Order::Change { link: index, directions, change: change.clone(), done })
    }

    /// Takes a host off all its links, as if its cables were pulled.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn cut(&self, host: &str) -> Result<(), LabError> {
        self.set_cut(host, true)
    }

    /// Undoes [`Self::cut`].
    ///
    /// # Errors
    /// If there is no such host.
    pub fn mend(&self, host: &str) -> Result<(), LabError> {
        self.set_cut(host, false)
    }

    fn set_cut(&self, host: &str, cut: bool) -> Result<(), LabError> {
        let host = self.host_index(host)?;
        self.conditions.lock()[host].cut = cut;
        self.ask(|done| Order::Cut { host, cut, done })
    }

    /// Stops all processes of a host where they are.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn freeze(&self, host: &str) -> Result<(), LabError> {
        self.signal(host, Signal::STOP, true)
    }

    /// Lets the processes of a host go on.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn thaw(&self, host: &str) -> Result<(), LabError> {
        self.signal(host, Signal::CONT, false)
    }

    /// Kills all processes of a host. The host stays, with its links and without processes.
    ///
    /// # Errors
    /// If there is no such host.
    pub(crate) fn kill(&self, host: &str) -> Result<(), LabError> {
        self.signal(host, Signal::KILL, false)
    }

    fn signal(&self, host: &str, signal: Signal, frozen: bool) -> Result<(), LabError> {
        let index = self.host_index(host)?;
        // The lock also keeps two callers from mixing up the holder's answers.
        let mut conditions = self.conditions.lock();
        self.hosts[index].signal(signal).map_err(|source| LabError::System {
            what: format!("cannot signal the processes of host '{host}'"),
            source,
        })?;
        conditions[index].frozen = frozen;
        Ok(())
    }

    /// The process that holds a host's name spaces, for [`NameSpaces::of`].
    ///
    /// # Errors
    /// If there is no such host, or it is frozen.
    pub(crate) fn holder_pid(&self, host: &str) -> Result<u32, LabError> {
        let index = self.host_index(host)?;
        if self.conditions.lock()[index].frozen {
            return Err(LabError::Frozen(host.to_owned()));
        }
        Ok(self.hosts[index].holder().as_raw_pid().unsigned_abs())
    }

    /// Names of all hosts.
    pub(crate) fn host_names(&self) -> &[String] {
        &self.topology.hosts
    }

    /// The way into a host.
    pub(crate) fn name_spaces(&self, host: &str) -> Result<NameSpaces, LabError> {
        NameSpaces::of(self.holder_pid(host)?).map_err(|source| LabError::System {
            what: format!("cannot enter host '{host}'"),
            source,
        })
    }

    /// The address of a host.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn address(&self, host: &str) -> Result<Ipv4Addr, LabError> {
        self.host_index(host).map(address_of)
    }

    /// Starts a command in a host.
    ///
    /// # Errors
    /// If there is no such host, or the command cannot be started.
    pub fn spawn(&self, host: &str, command: &mut Command) -> Result<Child, LabError> {
        self.name_spaces(host)?.spawn(command).map_err(|source| LabError::System {
            what: format!("cannot start {} in '{host}'", command.get_program().to_string_lossy()),
            source,
        })
    }

    /// Runs a command in a host to its end and gives what it printed.
    ///
    /// # Errors
    /// If there is no such host, or the command cannot be started.
    pub fn exec(&self, host: &str, command: &mut Command) -> Result<Output, LabError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawn(host, command)?;
        child.wait_with_output().map_err(|source| LabError::System {
            what: format!("cannot hear {}", command.get_program().to_string_lossy()),
            source,
        })
    }

    /// Runs a function in a thread that is in the host's network: sockets that it opens are the
    /// host's, whichever thread uses them later.
    ///
    /// # Errors
    /// If there is no such host, or it cannot be entered.
    pub fn within<T: Send>(
        &self,
        host: &str,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, LabError> {
        let spaces = self.name_spaces(host)?;
        let entered = std::thread::scope(|scope| {
            scope
                .spawn(|| spaces.enter_network().map(|()| work()))
                .join()
                .map_err(|_| LabError::Gone)
        })?;
        entered.map_err(|source| LabError::System {
            what: format!("cannot enter host '{host}'"),
            source,
        })
    }

    /// How the lab is.
    ///
    /// # Errors
    /// If the lab has ended.
    pub fn status(&self) -> Result<LabStatus, LabError> {
        let view = self.ask(|to| Order::View { to })?;
        Ok(LabStatus {
            name: self.topology.name.clone(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            relay_cpu_s: view.cpu_ns as f64 / 1e9,
            real_time: view.real_time,
            hosts: self.host_statuses(),
            links: self.link_statuses(&view),
        })
    }

    fn host_statuses(&self) -> Vec<HostStatus> {
        let conditions = self.conditions.lock();
        let hosts = self.topology.hosts.iter().zip(&self.hosts).zip(conditions.iter());
        hosts
            .enumerate()
            .map(|(index, ((name, host), condition))| HostStatus {
                name: name.clone(),
                address: address_of(index),
                state: match (condition.cut, condition.frozen) {
                    (false, false) => HostState::Up,
                    (true, false) => HostState::Cut,
                    (false, true) => HostState::Frozen,
                    (true, true) => HostState::CutAndFrozen,
                },
                holder_pid: host.holder().as_raw_pid().unsigned_abs(),
            })
            .collect()
    }

    fn link_statuses(&self, view: &RelayView) -> Vec<LinkStatus> {
        let name = |host: usize| self.topology.hosts[host].clone();
        let links = self.topology.links.iter().zip(view.directions.chunks(2));
        links
            .map(|(link, directions)| LinkStatus {
                name: link.name.clone(),
                directions: directions
                    .iter()
                    .enumerate()
                    .map(|(end, direction)| {
                        let (from, to) = (name(link.ends[end]), name(link.ends[1 - end]));
                        DirectionStatus::new(from, to, direction)
                    })
                    .collect(),
            })
            .collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.hosts.clear();
        self.orders = None;
        self.ring();
        if let Some(relay) = self.relay.take() {
            // A relay that panicked has said so already.
            let _ = relay.join();
        }
    }
}
