//! Serving programs that no hook reaches: static ones, Go's, and what the C library calls inside itself. The
//! kernel stops each call of the program that names a path (seccomp user notification, `seccomp_unotify(2)`),
//! and a thread of this process answers it: with a descriptor of the file that has come, with attributes, or
//! by letting it pass. Reading and writing are never trapped. Works for an ordinary user; set-user-id programs
//! run without that right. This is a service, not a fence: a program that wants to can get around it.
//!
//! What cannot be served: descriptors with `O_PATH` are ones for reading, but for those of symlinks; `O_TMPFILE`
//! is refused (`EOPNOTSUPP`), paths of sockets and watches (inotify) are the node's own. A program that has been given a working directory in a map sees the map's name for
//! it by getcwd(2), and the node's by `/proc`.

mod asking;
mod caller;
mod calls;
mod change;
mod exec;
mod look;
mod maps;
mod open;
mod places;
mod pool;
mod remote;
mod scripts;
mod serve;

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;

use azekura_proto::staging::JobId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::sys::memory;
use crate::sys::notify::{self, GREETING_BYTES, Listener};
use maps::Maps;
use pool::Pool;
use serve::Server;

/// The first Linux with all that is needed (`SECCOMP_IOCTL_NOTIF_ADDFD`).
const LINUX_NEEDED: (u32, u32) = (5, 9);
/// Says to the programs of a job, by its digits, that their calls are trapped for it already.
const TRAPPED_VARIABLE: &str = "AZEKURA_STAGE_TRAPPED";
const YAMA_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Why a program cannot be run with its calls trapped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine does not let calls be trapped.
    #[error(
        "calls of programs cannot be trapped here: {0}; dynamic programs can be served by --via preload"
    )]
    Unavailable(String),
    /// Nobody has the job's files.
    #[error("no agent of the job {} answers on this node ({source}): is it one of the job's hosts?", .job.to_hex())]
    NoAgent {
        /// The job.
        job: JobId,
        /// What came of asking.
        source: io::Error,
    },
    /// Another process traps the program's calls already, and the kernel allows only one.
    #[error("calls of this process are trapped already, by something that is not this job")]
    TrappedAlready,
    /// The program cannot be run; the kind is as of [`Command::spawn`].
    #[error("cannot run '{program}': {source}")]
    CannotRun {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Anything else that the system refuses.
    #[error("cannot {what}: {source}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// Why it cannot be.
        source: io::Error,
    },
}

/// A program whose calls are trapped. It is killed when the thread that started it ends; its calls fail with
/// `ENOSYS` when this process does.
pub struct Program {
    child: Child,
    watch: OwnedFd,
    /// None if a trap around this one serves the program.
    pool: Option<Arc<Pool>>,
}

/// Whether calls of programs can be trapped here.
///
/// # Errors
/// [`Error::Unavailable`] if not, with the reason.
pub fn is_available() -> Result<(), Error> {
    let unavailable = |why: String| Err(Error::Unavailable(why));
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    if version_of(&release).is_none_or(|version| version < LINUX_NEEDED) {
        let (major, minor) = LINUX_NEEDED;
        return unavailable(format!("this is Linux {release}, and {major}.{minor} is needed"));
    }
    if let Err(error) = notify::check_notifications() {
        return unavailable(format!("seccomp with user notification is refused ({error})"));
    }
    let word = 1_u64;
    let mut copy = [0; 8];
    let own = rustix::process::getpid().as_raw_nonzero().get();
    if let Err(error) = memory::read(own, (&raw const word) as u64, &mut copy) {
        return unavailable(format!("reading another process's memory is refused ({error})"));
    }
    if yama_scope() >= 2 && !rustix::process::geteuid().is_root() {
        return unavailable(format!("{YAMA_SCOPE} lets nobody but root look into processes"));
    }
    Ok(())
}

/// Who may look into processes: 0 their user, 1 only ancestors, from 2 on only root.
fn yama_scope() -> u32 {
    let scope = std::fs::read_to_string(YAMA_SCOPE).unwrap_or_default();
    scope.trim().parse().unwrap_or(0)
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Runs a program of a job to its end, and until no process is left that it has started.
///
/// # Errors
/// See [`start`].
pub fn run(command: Command, job: JobId) -> Result<ExitStatus, Error> {
    let mut program = start(command, job)?;
    let status = program.wait()?;
    program.wait_for_rest()?;
    Ok(status)
}

/// Starts a program of a job with its calls trapped. Within a program that is trapped for the same job, it is
/// started as it is, which comes to the same.
///
/// # Errors
/// If calls cannot be trapped, there is no agent, or the program cannot be run.
pub fn start(mut command: Command, job: JobId) -> Result<Program, Error> {
    is_available()?;
    let maps = Maps::of_job(job).map_err(|error| Error::NoAgent { job, source: error.into() })?;
    let filter = calls::filter(maps.have_arriving());
    let digits = job.to_hex();
    let is_trapped = std::env::var_os(TRAPPED_VARIABLE).is_some_and(|job| job == *digits);
    command.env(TRAPPED_VARIABLE, &digits);
    if yama_scope() == 1 {
        let system = |source| Error::System { what: "become the parent of orphans", source };
        notify::adopt_orphans().map_err(system)?;
    }
    let system = |what| move |source: io::Error| Error::System { what, source };
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(|error| system("make a socket")(error.into()))?;
    // The program's first call is the one by which it is run: somebody has to answer before it is.
    let greeted = std::thread::Builder::new()
        .name("stage-trap".to_owned())
        .spawn(move || begin(&ours, maps))
        .map_err(system("start a thread"))?;
    let started = notify::start_filtered(&mut command, filter, theirs, is_trapped);
    // With the command goes this process's copy of the program's end of the socket.
    let name = command.get_program().to_string_lossy().into_owned();
    drop(command);
    let pool = end_of(greeted);
    let child = match started {
        Ok(child) => child,
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) && pool.is_err() => {
            return Err(Error::TrappedAlready);
        }
        Err(source) => return Err(Error::CannotRun { program: name, source }),
    };
    let pool = pool.map_err(system("answer the program's calls"))?;
    let watch = notify::watch_process(child.id() as i32).map_err(system("watch the program"))?;
    Ok(Program { child, watch, pool })
}

/// Waits for the program's listener and begins to answer. `None` if another trap does.
fn begin(from: &OwnedFd, maps: Maps) -> io::Result<Option<Arc<Pool>>> {
    let mut greeting = [0; GREETING_BYTES];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut greeting)];
    let message = rustix::io::retry_on_intr(|| {
        recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if message.bytes != GREETING_BYTES {
        // It has not come that far.
        return Err(Errno::CHILD.into());
    }
    let listener = control.drain().find_map(|received| match received {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    match listener {
        Some(listener) => Pool::start(Listener::new(listener), Server::new(maps)).map(Some),
        None => Ok(None),
    }
}

fn end_of<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

impl Program {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program has ended; what it has started may run on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(&mut self) -> Result<ExitStatus, Error> {
        let system = |source| Error::System { what: "wait for the program", source };
        // A wait for the child would also see when it stands still for a moment, under the hands of
        // this process.
        loop {
            match poll(&mut [PollFd::new(&self.watch, PollFlags::IN)], None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(system(error.into())),
            }
        }
        self.child.wait().map_err(system)
    }

    /// Waits until no process is left whose calls are trapped. Whoever ends this process before that lets
    /// the calls of those that are left fail.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait_for_rest(&self) -> Result<(), Error> {
        let system = |source| Error::System { what: "wait for what the program started", source };
        self.pool.as_ref().map_or(Ok(()), |pool| pool.wait_until_deserted()).map_err(system)
    }
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn a_release_has_a_version() {
        assert_eq!(version_of("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version_of("5.9"), Some((5, 9)));
        assert_eq!(version_of("5.10-rc1"), Some((5, 10)));
        assert_eq!(version_of("x"), None);
    }
}
