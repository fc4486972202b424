//! Asking the node's agent. Owns the connections to it, as many as calls wait for it at once; knows nothing
//! of what is asked.

use std::os::fd::OwnedFd;
use std::sync::Once;

use azekura_proto::staging::JobId;
use azekura_proto::staging::local::{
    self, LOCAL_VERSION, LocalMap, LocalReply, LocalRequest, MESSAGE_BYTES_MAX,
};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

/// Connections that are kept while nobody asks.
const IDLE_MAX: usize = 16;

/// The agent of a job on this node.
pub(super) struct Agent {
    job: JobId,
    idle: Mutex<Vec<Connection>>,
    /// That the agent is gone is said once.
    gone: Once,
}

/// What an agent says at first.
pub(super) struct Greeting {
    pub(super) maps: Vec<LocalMap>,
    /// The device that files are on which are read as they come.
    pub(super) arriving: Option<u64>,
}

struct Connection {
    socket: OwnedFd,
    packet: Vec<u8>,
}

impl Agent {
    /// Connects to the agent, and asks it for its maps.
    pub(super) fn connect(job: JobId) -> Result<(Self, Greeting), Errno> {
        let (connection, greeting) = Connection::open(job)?;
        let idle = Mutex::new(vec![connection]);
        Ok((Self { job, idle, gone: Once::new() }, greeting))
    }

    /// Waits for the answer, however long it takes.
    ///
    /// # Errors
    /// What the agent says the call fails with; `EIO` if it is gone; `ENAMETOOLONG`.
    pub(super) fn ask(&self, request: &LocalRequest) -> Result<LocalReply, Errno> {
        let packet = local::encode(request).ok_or(Errno::NAMETOOLONG)?;
        let idle = self.idle.lock().pop();
        let kept = idle.and_then(|mut connection| {
            let reply = connection.exchange(&packet).ok()?;
            Some((connection, reply))
        });
        // A connection that broke while it was idle says nothing about the agent now. No request does
        // harm when it is made twice.
        let (connection, reply) = match kept {
            Some(done) => done,
            None => self.ask_anew(&packet).map_err(|error| {
                self.gone.call_once(|| {
                    tracing::error!(%error, "no agent answers any more: mapped files give EIO");
                });
                Errno::IO
            })?,
        };
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        match reply {
            LocalReply::Failed(number) => Err(Errno::from_raw_os_error(number)),
            reply => Ok(reply),
        }
    }

    fn ask_anew(&self, packet: &[u8]) -> Result<(Connection, LocalReply), Errno> {
        let (mut connection, _) = Connection::open(self.job)?;
        let reply = connection.exchange(packet)?;
        Ok((connection, reply))
    }
}

impl Connection {
    fn open(job: JobId) -> Result<(Self, Greeting), Errno> {
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new_abstract_name(job.socket_name().as_bytes())?;
        connect(&socket, &address)?;
        let mut connection = Self { socket, packet: vec![0; MESSAGE_BYTES_MAX] };
        let greeting = local::encode(&LocalRequest::Greet { version: LOCAL_VERSION });
        match connection.exchange(&greeting.ok_or(Errno::PROTO)?)? {
            LocalReply::Welcome { maps, arriving, .. } => {
                Ok((connection, Greeting { maps, arriving }))
            }
            _ => Err(Errno::PROTO),
        }
    }

    fn exchange(&mut self, packet: &[u8]) -> Result<LocalReply, Errno> {
        send(&self.socket, packet, SendFlags::NOSIGNAL)?;
        let got = rustix::io::retry_on_intr(|| {
            recv(&self.socket, &mut self.packet[..], RecvFlags::empty())
        });
        let (bytes, _) = got?;
        if bytes == 0 {
            return Err(Errno::CONNRESET);
        }
        local::decode(&self.packet[..bytes]).ok_or(Errno::PROTO)
    }
}
