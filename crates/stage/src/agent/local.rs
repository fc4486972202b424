//! The socket by which programs of the node reach the agent. Owns the connections, their bound, and the
//! rule that nobody is answered but the user who runs the agent.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_proto::staging::local::{LocalReply, LocalRequest, MESSAGE_BYTES_MAX, decode, encode};
use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::agent::answer::Answers;
use crate::doors::{OpenSockets, spawn};
use crate::peer::is_own_user;

/// Programs that are connected at once, at most.
const PROGRAMS_MAX: usize = 4096;
const WAITING_MAX: i32 = 256;
/// How long the last answers may take.
const END_TIME: Duration = Duration::from_secs(1);

/// Listens under a name of the abstract name space.
pub(crate) fn listen(name: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    match rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Err(Errno::ADDRINUSE) => {
            let why = "another host of the job is this same machine; name each machine once";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        bound => bound?,
    }
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(socket)
}

/// The programs that are connected.
#[derive(Default)]
pub(crate) struct Programs {
    open: Arc<OpenSockets>,
    /// They, and the thread that lets them in.
    count: Mutex<usize>,
    gone: Condvar,
}

impl Programs {
    /// Serves programs until the end, which waits for the listener too: another agent may listen in its place then.
    pub(crate) fn serve(self: &Arc<Self>, listener: OwnedFd, answers: Answers) -> io::Result<()> {
        let entered = self.open.enter(&listener)?;
        let programs = Arc::clone(self);
        *self.count.lock() += 1;
        let spawned = spawn("local", move || {
            programs.listen(&listener, &Arc::new(answers));
            drop((entered, listener));
            programs.leave();
        });
        spawned.inspect_err(|_| self.leave())
    }

    fn listen(self: &Arc<Self>, listener: &OwnedFd, answers: &Arc<Answers>) {
        while !self.open.is_closed() {
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(program) if is_own_user(&program) => self.let_in(program, answers),
                Ok(_) => tracing::warn!("a program of another user was not let in"),
                Err(_) if self.open.is_closed() => return,
                Err(error) => {
                    tracing::warn!("cannot take a program's connection: {error}");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn let_in(self: &Arc<Self>, program: OwnedFd, answers: &Arc<Answers>) {
        {
            let mut count = self.count.lock();
            if *count > PROGRAMS_MAX {
                return;
            }
            *count += 1;
        }
        let (programs, answers) = (Arc::clone(self), Arc::clone(answers));
        let spawned = spawn("program", move || {
            if let Ok(_entered) = programs.open.enter(&program) {
                talk(&program, &answers);
            }
            programs.leave();
        });
        if spawned.is_err() {
            self.leave();
        }
    }

    fn leave(&self) {
        *self.count.lock() -= 1;
        self.gone.notify_all();
    }

    /// Takes in no further requests, and waits a moment for the answers to those that there are.
    pub(crate) fn end(&self) {
        self.open.close_inputs();
        let deadline = Instant::now() + END_TIME;
        let mut count = self.count.lock();
        while *count > 0 && !self.gone.wait_until(&mut count, deadline).timed_out() {}
    }
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
