//! How clients come to know the ports of a gateway. Owns port 111 if nobody else has it, and otherwise
//! the entries at the port mapper that does; and the one UDP socket of a gateway, on which come what
//! clients send by UDP only, such as the word that they were started anew.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::mappings::{Mapping, Mappings, PORT, Protocol};
use crate::dispatch::{self, Outcome};
use crate::gateway::Asker;
use crate::gateway::Gateway;
use crate::owner::Owner;
use crate::procedures::{MOUNT, NFS, NLM, NSM, PORTMAP, Program};
use crate::rpc::{Call, client::Callee};
use crate::xdr::{Reader, Writer};

/// What is served by UDP: small questions with small answers.
const BY_UDP: [&Program; 3] = [&PORTMAP, &MOUNT, &NSM];
/// Calls by UDP are not longer than that; what is is none.
const DATAGRAM_BYTES_MAX: usize = 8 << 10;
const MARK_BYTES: usize = 4;
const TICK: Duration = Duration::from_millis(500);
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const SET: u32 = 1;
const UNSET: u32 = 2;

/// Sockets that were had before the gateway serves.
#[derive(Debug)]
pub struct PortMapper {
    udp: UdpSocket,
    is_own: bool,
}

/// The port mapper at work. Dropped, it ends, and takes its entries from another one.
#[derive(Debug)]
pub struct PortMapping {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    registered: Vec<Mapping>,
}

impl PortMapper {
    /// Takes port 111 of this address if it is free. The listener is to be served as the gateway's
    /// others; there is none if another port mapper of this host is to be told of the gateway.
    ///
    /// # Errors
    /// If there is no other one either.
    pub fn open(address: IpAddr) -> io::Result<(Self, Option<TcpListener>)> {
        match open_at(SocketAddr::new(address, PORT)) {
            Ok((listener, mapper)) => Ok((mapper, Some(listener))),
            Err(error) => {
                rpcbind().call(&PORTMAP, 0, &[]).map_err(|_| {
                    io::Error::new(
                        error.kind(),
                        format!(
                            "port {PORT} of {address} cannot be had ({error}), and no port mapper \
                             answers at it: start rpcbind, run the gateway as root, or leave \
                             --portmap away"
                        ),
                    )
                })?;
                let udp = UdpSocket::bind(SocketAddr::new(address, 0))?;
                Ok((Self { udp, is_own: false }, None))
            }
        }
    }

    /// Tells clients of the gateway's TCP ports from now on.
    ///
    /// # Errors
    /// If another server stands in the list of the host's port mapper.
    pub fn start(
        self,
        gateway: &Arc<Gateway>,
        nfs_port: u16,
        mount_port: u16,
    ) -> io::Result<PortMapping> {
        let udp_port = self.udp.local_addr()?.port();
        let tcp = [(&NFS, nfs_port), (&MOUNT, mount_port), (&NLM, nfs_port), (&NSM, nfs_port)];
        let tcp = tcp.map(|(program, port)| Mapping { program, protocol: Protocol::Tcp, port });
        let mut all = tcp.to_vec();
        let by_udp =
            BY_UDP.iter().filter(|program| self.is_own || program.number != PORTMAP.number);
        all.extend(by_udp.map(|program| Mapping {
            program,
            protocol: Protocol::Udp,
            port: udp_port,
        }));
        if self.is_own {
            let protocol = Protocol::Tcp;
            all.push(Mapping { program: &PORTMAP, protocol, port: udp_port });
        }
        let registered = if self.is_own { Vec::new() } else { register(&all)? };
        *gateway.mappings.write() = Mappings(all);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut mapping =
            PortMapping { is_stopping: Arc::clone(&is_stopping), thread: None, registered };
        self.udp.set_read_timeout(Some(TICK))?;
        let gateway = Arc::clone(gateway);
        let thread = std::thread::Builder::new().name("nfs-udp".to_owned());
        mapping.thread =
            Some(thread.spawn(move || serve_datagrams(&self.udp, &gateway, &is_stopping))?);
        Ok(mapping)
    }
}

impl Drop for PortMapping {
    fn drop(&mut self) {
        unregister(&self.registered);
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends at its next tick; a panic in it was reported.
            let _ = thread.join();
        }
    }
}

pub(super) fn open_at(address: SocketAddr) -> io::Result<(TcpListener, PortMapper)> {
    let listener = TcpListener::bind(address)?;
    let udp = UdpSocket::bind(listener.local_addr()?)?;
    Ok((listener, PortMapper { udp, is_own: true }))
}

/// The port mapper of this host.
fn rpcbind() -> Callee {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
    Callee { address, from: None, timeout: CALL_TIMEOUT }
}

fn change(procedure: u32, mapping: &Mapping) -> io::Result<bool> {
    let Mapping { program, protocol, port } = mapping;
    let mut args = Writer::default();
    args.u32s(&[program.number, program.version, *protocol as u32, u32::from(*port)]);
    let results = rpcbind().call(&PORTMAP, procedure, args.bytes())?;
    Ok(Reader::new(&results).bool().unwrap_or(false))
}

/// Makes entries at the host's port mapper, all or none. A status monitor that is there already stays:
/// then its host's kernel needs it, and clients of the gateway that are started anew keep their locks
/// until they ask for them again.
fn register(all: &[Mapping]) -> io::Result<Vec<Mapping>> {
    let mut registered = Vec::new();
    for mapping in all {
        let Mapping { program, .. } = mapping;
        match change(SET, mapping) {
            Ok(true) => registered.push(*mapping),
            Ok(false) if program.number == NSM.number => {
                tracing::warn!("this host has a status monitor of its own; it is not replaced");
            }
            other => {
                unregister(&registered);
                let why = other.err().map_or(String::new(), |error| format!(" ({error})"));
                return Err(io::Error::other(format!(
                    "the port mapper of this host does not take program {} ({}){why}: another server \
                     has it; stop that, or remove what it left with 'rpcinfo -d {} {}'",
                    program.number, program.name, program.number, program.version
                )));
            }
        }
    }
    Ok(registered)
}

/// Takes entries away again; the program goes as a whole, whatever the protocol.
fn unregister(registered: &[Mapping]) {
    for mapping in registered {
        if let Err(error) = change(UNSET, mapping) {
            let program = mapping.program.name;
            tracing::warn!(program, %error, "an entry stays at the port mapper of this host");
        }
    }
}

fn serve_datagrams(udp: &UdpSocket, gateway: &Gateway, is_stopping: &AtomicBool) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    let mut reply = Writer::default();
    while !is_stopping.load(Ordering::Relaxed) {
        // The time is up, or an earlier answer could not be delivered.
        let Ok((bytes, sender)) = udp.recv_from(&mut datagram) else { continue };
        let message = &datagram[..bytes];
        // Senders of datagrams can be made up: strangers get no answers sent to others by it.
        let is_admitted = gateway.exports().iter().any(|export| export.admits(sender.ip()));
        let is_served = Call::decode(message)
            .is_ok_and(|call| BY_UDP.iter().any(|program| program.number == call.program));
        if !is_admitted || !is_served {
            continue;
        }
        let owner = Owner::unknown();
        let asker = Asker { address: sender.ip(), owner: &owner };
        reply.clear();
        if dispatch::answer(gateway, asker, message, &mut reply) == Outcome::Answered {
            // A client that has gone asks no more.
            let _ = udp.send_to(&reply.bytes()[MARK_BYTES..], sender);
        }
    }
}
