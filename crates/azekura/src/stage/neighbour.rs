//! The agent of this node, as a program of the job asks it: by the messages of `azekura_proto`, one packet each.

use std::io;
use std::os::fd::OwnedFd;

use azekura_proto::staging::JobId;
use azekura_proto::staging::local::{
    LOCAL_VERSION, LocalReply, LocalRequest, MESSAGE_BYTES_MAX, decode, encode,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

/// Bytes of paths in one message at most: half of one leaves room for whatever stands between them.
const PATHS_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

/// A connection to the agent.
pub(super) struct Neighbour(OwnedFd);

impl Neighbour {
    /// Calls the agent; `None` if there is none of that job on this node.
    ///
    /// # Errors
    /// If it does not let this process in.
    pub(super) fn find(job: JobId) -> io::Result<Option<Self>> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let address = SocketAddrUnix::new_abstract_name(job.socket_name().as_bytes())?;
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::CONNREFUSED) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let neighbour = Self(socket);
        match neighbour.ask(&LocalRequest::Greet { version: LOCAL_VERSION })? {
            LocalReply::Welcome { .. } => Ok(Some(neighbour)),
            _ => Err(io::Error::other("the agent on this node is of another version of azekura")),
        }
    }

    /// Tells it of files that will be wanted.
    ///
    /// # Errors
    /// If the agent is gone, or a path is too long.
    pub(super) fn prefetch(&self, paths: Vec<Vec<u8>>) -> io::Result<()> {
        for paths in batches(paths) {
            if let LocalReply::Failed(error) = self.ask(&LocalRequest::Prefetch { paths })? {
                return Err(io::Error::from_raw_os_error(error));
            }
        }
        Ok(())
    }

    fn ask(&self, request: &LocalRequest) -> io::Result<LocalReply> {
        let packet = encode(request).ok_or(io::ErrorKind::InvalidInput)?;
        rustix::io::retry_on_intr(|| send(&self.0, &packet, SendFlags::NOSIGNAL))?;
        let mut reply = vec![0; MESSAGE_BYTES_MAX];
        let (_, bytes) =
            rustix::io::retry_on_intr(|| recv(&self.0, &mut reply[..], RecvFlags::empty()))?;
        if bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the agent has gone"));
        }
        decode(&reply[..bytes]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Paths in parts that fit into messages.
fn batches(paths: Vec<Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
    let mut batches: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut room = 0;
    for path in paths {
        // The length in front has a few bytes.
        let bytes = path.len() + 8;
        if bytes > room {
            batches.push(Vec::new());
            room = PATHS_BYTES_MAX;
        }
        room = room.saturating_sub(bytes);
        if let Some(last) = batches.last_mut() {
            last.push(path);
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_paths_go_in_messages_that_fit() {
        let paths: Vec<Vec<u8>> =
            (0..3000).map(|number| format!("/{number:0100}").into_bytes()).collect();
        let batches = batches(paths.clone());
        assert!(batches.len() > 1);
        assert_eq!(batches.concat(), paths);
        for paths in batches {
            assert!(encode(&LocalRequest::Prefetch { paths }).is_some());
        }
    }

    #[test]
    fn a_job_that_is_not_here_has_no_agent() {
        assert!(Neighbour::find(JobId(*b"no job has this!")).unwrap().is_none());
    }
}
