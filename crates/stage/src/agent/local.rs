//! The socket by which programs of the node reach the agent. Owns the connections, their bound, and the
//! rule that nobody is answered but the user who runs the agent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use azekura_proto::staging::local::{LocalReply, LocalRequest, MESSAGE_BYTES_MAX, decode, encode};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::agent::answer::Answers;
use crate::doors::{OpenSockets, spawn};

/// Programs that are connected at once, at most.
const PROGRAMS_MAX: usize = 4096;
const WAITING_MAX: i32 = 256;

/// Listens under a name of the abstract name space.
pub(crate) fn listen(name: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(socket)
}

/// Serves the programs until the sockets are closed.
pub(crate) fn serve(
    listener: OwnedFd,
    answers: Arc<Answers>,
    open: Arc<OpenSockets>,
) -> io::Result<()> {
    let connected = Arc::new(AtomicUsize::new(0));
    let entered = open.enter(&listener)?;
    spawn("local", move || {
        let _entered = entered;
        while !open.is_closed() {
            let program = match rustix::net::accept_with(&listener, SocketFlags::CLOEXEC) {
                Ok(program) => program,
                Err(_) if open.is_closed() => return,
                Err(error) => {
                    tracing::warn!("cannot take a program's connection: {error}");
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            if connected.fetch_add(1, Ordering::AcqRel) >= PROGRAMS_MAX || !is_ours(&program) {
                connected.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let (answers, open) = (Arc::clone(&answers), Arc::clone(&open));
            let count = Arc::clone(&connected);
            let spawned = spawn("program", move || {
                if let Ok(_entered) = open.enter(&program) {
                    talk(&program, &answers);
                }
                count.fetch_sub(1, Ordering::AcqRel);
            });
            if spawned.is_err() {
                connected.fetch_sub(1, Ordering::AcqRel);
            }
        }
    })
}

fn is_ours(program: impl AsFd) -> bool {
    sockopt::socket_peercred(program).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

fn talk(program: &OwnedFd, answers: &Answers) {
    let mut packet = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let bytes = match rustix::net::recv(program, &mut packet[..], RecvFlags::TRUNC) {
            Ok((bytes, whole)) if bytes == whole && bytes > 0 => bytes,
            Err(Errno::INTR) => continue,
            _ => return,
        };
        let Some(request) = decode::<LocalRequest>(&packet[..bytes]) else { return };
        let reply = answers.answer(request);
        let reply = encode(&reply)
            .or_else(|| encode(&LocalReply::Failed(Errno::NAMETOOLONG.raw_os_error())));
        let Some(reply): Option<Vec<u8>> = reply else { return };
        if rustix::net::send(program, &reply, SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}
