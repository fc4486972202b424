//! Files that programs read while they come: a file system of the agent's own that stands nowhere, with a
//! file for each content that is coming or read through. Programs open them below the agent's directory of
//! descriptors in `/proc`; mapping, seeking, copies of descriptors are the kernel's business then. Owns the
//! reads that wait; never blocks a thread of the kernel's conversation.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura_fuse_kernel::{
    Attr, Entry, Handler, OpenFlags, Operation, Replier, Request, Session, SessionConfig, Statfs,
    with_reply_buffer,
};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::agent::incoming::Incoming;
use crate::agent::reading::{Openable, Reading};
use crate::doors::spawn;
use crate::message::ContentId;
use crate::supply::Bell;
use crate::sys::apart;

/// Files from this size on, in bytes, are read as they come: what a smaller one takes is over before a program
/// has looked at it.
pub(crate) const BYTES_MIN: u64 = 4 << 20;
/// The largest read, in bytes.
const READ_BYTES_MAX: u32 = 256 * 1024;
/// Threads that talk with the kernel; none of them waits for a piece.
const THREADS: usize = 4;
/// How often those who wait are looked at, whatever comes: one of them may have been killed.
const TICK: Duration = Duration::from_millis(250);
/// Reads that are remembered because a signal has come, at most.
const DISTURBED_MAX: usize = 4096;
/// How long programs that have files open when the agent ends may take to hear of it: on a busy machine they do not
/// run at once.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_STEP: Duration = Duration::from_millis(10);
const ROOT: u64 = 1;
/// The kernel's numbers of contents begin here.
const FIRST: u64 = 2;
/// What has been told of a file stays so.
const LASTING: Duration = Duration::from_secs(3600);
const BLOCK_BYTES: u32 = 4096;
const NAME_BYTES_MAX: u32 = 64;

/// The file system.
pub(crate) struct Arriving {
    /// Its root; none once the agent has ended.
    root: Mutex<Option<OwnedFd>>,
    device: u64,
    files: Arc<Files>,
    /// Keeps the kernel's end open.
    _session: Session,
}

/// What serves it.
struct Files {
    incoming: Arc<Incoming>,
    /// Goes behind a content's number in its name: a directory of other processes has no such names.
    salt: u64,
    bell: Arc<Bell>,
    waiting: Mutex<Vec<Read>>,
    /// Reads whose threads signals have come to, and which may not have been seen.
    disturbed: Mutex<VecDeque<u64>>,
    is_over: AtomicBool,
}

/// A read that is not answered.
struct Read {
    content: ContentId,
    offset: u64,
    bytes: u32,
    thread: u32,
    replier: Replier,
}

impl Arriving {
    /// Mounts it.
    ///
    /// # Errors
    /// If the machine does not let users mount in name spaces of their own, or has no FUSE.
    pub(crate) fn mount(incoming: &Arc<Incoming>) -> io::Result<Self> {
        let apart = apart::mount()?;
        let mut salt = [0; 8];
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        let files = Arc::new(Files {
            incoming: Arc::clone(incoming),
            salt: u64::from_ne_bytes(salt),
            bell: Arc::default(),
            waiting: Mutex::default(),
            disturbed: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let config = SessionConfig {
            threads: THREADS,
            max_write_bytes: READ_BYTES_MAX,
            max_readahead_bytes: READ_BYTES_MAX,
            auto_invalidate_data: false,
            cache_symlinks: false,
            readdir_plus: false,
            locks: false,
            ..SessionConfig::default()
        };
        let session = Session::start(apart.device, &config, Arc::clone(&files));
        let session = session.map_err(io::Error::other)?;
        let device = rustix::fs::fstat(&apart.root)?.st_dev;
        let serving = Arc::clone(&files);
        spawn("arriving", move || serving.answer_waiting())?;
        Ok(Self { root: Mutex::new(Some(apart.root)), device, files, _session: session })
    }

    /// The device that its files are on.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// The path at which programs of this node open a content; `None` once the agent has ended.
    pub(crate) fn path_of(&self, content: ContentId) -> Option<Vec<u8>> {
        let root = self.root.lock().as_ref()?.as_raw_fd();
        let process = rustix::process::getpid().as_raw_nonzero();
        let name = self.files.name_of(content);
        Some(format!("/proc/{process}/fd/{root}/{name}").into_bytes())
    }

    /// Answers all who wait: they get errors.
    pub(crate) fn end(&self) {
        self.files.incoming.end_reading();
        self.files.is_over.store(true, Ordering::Release);
        self.files.bell.ring();
        drop(self.root.lock().take());
    }

    /// Goes on answering for a moment: programs that read later than that hear that there is no file system any
    /// more, which tells them less.
    pub(crate) fn linger(&self) {
        let end = Instant::now() + LINGER;
        while self.files.incoming.has_readers() && Instant::now() < end {
            std::thread::sleep(LINGER_STEP);
        }
    }
}

impl Files {
    fn name_of(&self, content: ContentId) -> String {
        format!("{}-{:016x}", content.0, self.salt)
    }

    fn content_of_name(&self, name: &[u8]) -> Option<ContentId> {
        let (number, _) = std::str::from_utf8(name).ok()?.split_once('-')?;
        let content = ContentId(number.parse().ok()?);
        (self.name_of(content).as_bytes() == name).then_some(content)
    }

    fn look_up(&self, name: &[u8], replier: Replier) {
        let content = self.content_of_name(name);
        let found = content.and_then(|id| Some((id, self.incoming.openable(id, false)?)));
        match found {
            Some((id, found)) => replier.entry(&Entry {
                node: id.0 + FIRST,
                attr_ttl: LASTING,
                attr: attr_of(&found),
                ..Entry::default()
            }),
            None => replier.error(Errno::NOENT),
        }
    }

    fn tell(&self, node: u64, replier: Replier) {
        match self.incoming.openable(content_of(node), true) {
            _ if node == ROOT => replier.attr(&root_attr(), LASTING),
            Some(found) => replier.attr(&attr_of(&found), LASTING),
            None => replier.error(Errno::IO),
        }
    }

    fn open(&self, node: u64, replier: Replier) {
        if node == ROOT || !self.incoming.open_reader(content_of(node)) {
            // The program asks again, and is told where the file is now.
            return replier.error(Errno::NOENT);
        }
        // A content is one version: what was read of it stays right.
        replier.open(0, OpenFlags::KEEP_CACHE.with(OpenFlags::NO_FLUSH));
    }

    fn read(&self, read: Read) {
        let Some(read) = self.try_read(read) else { return };
        self.waiting.lock().push(read);
        // More may have come before it was among those who wait.
        self.bell.ring();
    }

    /// Answers a read if that is possible.
    fn try_read(&self, read: Read) -> Option<Read> {
        with_reply_buffer(read.bytes as usize, |buffer| {
            match self.incoming.read(read.content, read.offset, buffer, &self.bell) {
                Reading::Done(bytes) => read.replier.data(&buffer[..bytes]),
                Reading::Failed => read.replier.error(Errno::IO),
                Reading::NotYet => return Some(read),
            }
            None
        })
    }

    /// Answers those who wait, as pieces come.
    fn answer_waiting(&self) {
        loop {
            self.bell.wait(TICK);
            let reads = std::mem::take(&mut *self.waiting.lock());
            let is_idle = reads.is_empty();
            let mut left: Vec<_> = reads.into_iter().filter_map(|read| self.go_on(read)).collect();
            self.waiting.lock().append(&mut left);
            if is_idle && self.is_over.load(Ordering::Acquire) {
                return;
            }
        }
    }

    fn go_on(&self, read: Read) -> Option<Read> {
        let unique = read.replier.unique();
        let is_disturbed = self.disturbed.lock().contains(&unique);
        if is_disturbed && is_being_killed(read.thread) {
            read.replier.error(Errno::INTR);
            return None;
        }
        self.try_read(read)
    }
}

impl Handler for Files {
    fn handle(&self, request: Request<'_>, replier: Replier) {
        let node = request.header.node;
        match request.operation {
            Operation::Lookup { name } if node == ROOT => self.look_up(name, replier),
            Operation::Getattr { .. } => self.tell(node, replier),
            Operation::Open { .. } => self.open(node, replier),
            Operation::Read { offset, size, .. } => self.read(Read {
                content: content_of(node),
                offset,
                bytes: size.min(READ_BYTES_MAX),
                thread: request.header.pid,
                replier,
            }),
            Operation::Release { .. } => {
                self.incoming.close_reader(content_of(node));
                replier.ok();
            }
            Operation::Statfs => replier.statfs(&Statfs {
                block_bytes: BLOCK_BYTES,
                fragment_bytes: BLOCK_BYTES,
                name_bytes_max: NAME_BYTES_MAX,
                ..Statfs::default()
            }),
            // The kernel does what it can by itself.
            _ => replier.error(Errno::NOSYS),
        }
    }

    /// A signal that is handled does not end a read of a file. One that kills does, and whoever is killed would
    /// otherwise stay until its piece has come.
    fn interrupt(&self, unique: u64) {
        let mut disturbed = self.disturbed.lock();
        disturbed.push_back(unique);
        if disturbed.len() > DISTURBED_MAX {
            disturbed.pop_front();
        }
        drop(disturbed);
        self.bell.ring();
    }

    fn forget(&self, _node: u64, _count: u64) {
        // The numbers are those of contents.
    }
}

fn content_of(node: u64) -> ContentId {
    ContentId(node.wrapping_sub(FIRST))
}

fn attr_of(found: &Openable) -> Attr {
    let attributes = &found.attributes;
    let (seconds, nanos) = (attributes.mtime.secs, attributes.mtime.nanos);
    Attr {
        ino: found.inode,
        size: attributes.size,
        blocks: attributes.size.div_ceil(u64::from(BLOCK_BYTES)) * u64::from(BLOCK_BYTES) / 512,
        atime: seconds,
        mtime: seconds,
        ctime: seconds,
        atimensec: nanos,
        mtimensec: nanos,
        ctimensec: nanos,
        mode: attributes.kind.mode_bits() | attributes.mode & 0o777,
        nlink: 1,
        blksize: BLOCK_BYTES,
        ..own_attr()
    }
}

fn root_attr() -> Attr {
    Attr { ino: ROOT, mode: libc::S_IFDIR | 0o500, nlink: 2, blksize: BLOCK_BYTES, ..own_attr() }
}

fn own_attr() -> Attr {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    Attr { uid: user.as_raw(), gid: group.as_raw(), ..Attr::default() }
}

/// Whether a thread ends as soon as it can; also if that is not known.
fn is_being_killed(thread: u32) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let pending = |line: &str| {
        let digits = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(digits.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|pending| pending & KILL != 0)
}
