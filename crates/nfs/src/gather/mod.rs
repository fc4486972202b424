//! Writes that need not be durable yet (RFC 1813, sections 3.3.7 and 4.8): small ones are gathered into
//! whole chunks before they go to the engines. Owns what was answered and is not at an engine, what of
//! that was lost, and the verifier by which clients find out. Whoever asks this gateway about a file
//! sees what is gathered of it, since it goes to the engines first.

mod chunk;
mod file;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura_posix::{
    Attr, ChangeMark, Credentials, Errno, FileSystem, ObjectSync, ObjectWrite, Oid, Result,
    WriteVerifier,
};
use azekura_proto::limits::FILE_BYTES_MAX;
use parking_lot::Mutex;

use file::{GatheredFile, Sent};

/// A write of at least this size goes to the engines by itself: gathering would only copy it.
const DIRECT_BYTES: usize = 256 << 10;
/// What is gathered stays here for so long at most, so that others see it.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Bytes that may be gathered in all files together.
const GATHERED_BYTES_MAX: usize = 256 << 20;
/// Files that may be gathered for at a time.
const FILES_MAX: usize = 4096;
/// A file that nothing comes to is forgotten after so long.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// So is one whose client never asks what became of its bytes; the verifier tells it all the same.
const UNASKED_MAX: Duration = Duration::from_secs(60);

/// How durable a write is (`stable_how`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub(crate) enum Stability {
    /// Until COMMIT it may be lost, and then the verifier changes.
    Unstable = 0,
    /// The data are durable.
    Data = 1,
    /// The data and all attributes are.
    File = 2,
}

/// What a write has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    pub(crate) stability: Stability,
    pub(crate) verifier: [u8; 8],
    /// The file just before, and after, as far as that is known without asking for it.
    pub(crate) before: Option<ChangeMark>,
    pub(crate) after: Option<Attr>,
}

/// What a commit has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Committed {
    pub(crate) verifier: [u8; 8],
    pub(crate) before: Option<ChangeMark>,
    pub(crate) after: Attr,
}

/// What is gathered, by file.
#[derive(Debug)]
pub(crate) struct Gather {
    fs: Arc<FileSystem>,
    coalesces: bool,
    files: Mutex<HashMap<Oid, Arc<Mutex<GatheredFile>>>>,
    /// How many there are, for those who only ask if there is nothing.
    file_count: AtomicUsize,
    gathered_bytes: AtomicUsize,
    /// Of this gateway's start: what it had gathered is gone with it.
    boot: u64,
    /// How often something was lost since.
    losses: AtomicU64,
}

impl Gather {
    /// Nothing gathered yet.
    ///
    /// # Errors
    /// If the system has no random bytes for the verifier.
    pub(crate) fn new(fs: Arc<FileSystem>, coalesces: bool) -> io::Result<Self> {
        let mut boot = [0; 8];
        fs.config().platform.fill_random(&mut boot)?;
        Ok(Self {
            fs,
            coalesces,
            files: Mutex::default(),
            file_count: AtomicUsize::new(0),
            gathered_bytes: AtomicUsize::new(0),
            boot: u64::from_be_bytes(boot),
            losses: AtomicU64::new(0),
        })
    }

    /// Writes, or gathers what need not be written yet.
    pub(crate) fn write(
        &self,
        caller: &Credentials,
        oid: Oid,
        offset: u64,
        data: &[u8],
        wanted: Stability,
    ) -> Result<Written> {
        let is_small = !data.is_empty() && data.len() < DIRECT_BYTES;
        if self.coalesces && wanted == Stability::Unstable && is_small {
            offset
                .checked_add(data.len() as u64)
                .filter(|end| *end <= FILE_BYTES_MAX)
                .ok_or(Errno::FBIG)?;
            if let Some(file) = self.file_or_new(oid) {
                return self.gather(&file, caller, oid, offset, data);
            }
        }
        self.flush_before_change(oid)?;
        let ObjectWrite { bytes, verifier, before, after } =
            self.fs.write_object(caller, oid, offset, data)?;
        let verifier = self.verifier(verifier);
        if wanted == Stability::Unstable {
            return Ok(Written { bytes, stability: wanted, verifier, before, after });
        }
        // If an engine has been started anew in between, the write may not be what was synced.
        let synced = self.fs.commit_object(oid)?;
        if self.verifier(synced.verifier) != verifier {
            return Err(Errno::IO);
        }
        let after = Some(synced.attr);
        Ok(Written { bytes, stability: Stability::File, verifier, before, after })
    }

    fn gather(
        &self,
        file: &Mutex<GatheredFile>,
        caller: &Credentials,
        oid: Oid,
        offset: u64,
        data: &[u8],
    ) -> Result<Written> {
        let mut file = file.lock();
        if !file.is_followed_by(caller, offset) {
            // Not one of many small writes, as far as anybody can tell.
            let sent = file.send_all(&self.fs);
            self.count(sent);
            let written = self.fs.write_object(caller, oid, offset, data)?;
            file.begin_stream(caller, offset, &written, self.now());
            let ObjectWrite { bytes, verifier, before, after } = written;
            let (verifier, stability) = (self.verifier(verifier), Stability::Unstable);
            return Ok(Written { bytes, stability, verifier, before, after });
        }
        let verifier = file.allow(&self.fs, caller, self.now())?;
        // Before anything of this write can be lost.
        let verifier = self.verifier(verifier);
        let (taken_bytes, full) = file.put(offset, data, self.now());
        let gathered = self.gathered_bytes.fetch_add(taken_bytes, Ordering::Relaxed) + taken_bytes;
        for index in full {
            let sent = file.send(&self.fs, index);
            self.count(sent);
        }
        if gathered > GATHERED_BYTES_MAX {
            let sent = file.send_all(&self.fs);
            self.count(sent);
        }
        let after = file.foreseen(self.fs.config().platform.wall_time());
        let stability = Stability::Unstable;
        Ok(Written { bytes: data.len(), stability, verifier, before: None, after })
    }

    /// Makes all that was written to a file durable, through whichever gateway, and gives the verifier
    /// that all writes have had of which nothing was lost.
    pub(crate) fn commit(&self, oid: Oid) -> Result<Committed> {
        let mut has_sent = false;
        if let Some(file) = self.file(oid) {
            let mut file = file.lock();
            has_sent = !file.is_empty();
            let sent = file.send_all(&self.fs);
            self.count(sent);
            if let Some(errno) = file.take_error() {
                return Err(errno);
            }
        }
        let ObjectSync { verifier, attr } = self.fs.commit_object(oid)?;
        // To make a file durable does not change it.
        let before = (!has_sent).then(|| ChangeMark::of(&attr));
        Ok(Committed { verifier: self.verifier(verifier), before, after: attr })
    }

    /// Sends what is gathered of a file to the engines before somebody looks at it. Tells whether there
    /// may have been anything.
    pub(crate) fn flush_before_look(&self, oid: Oid) -> bool {
        let Some(file) = self.file(oid) else { return false };
        let sent = file.lock().send_all(&self.fs);
        self.count(sent);
        true
    }

    /// As [`Gather::flush_before_look`], before it is changed in another way.
    pub(crate) fn flush_before_change(&self, oid: Oid) -> Result<()> {
        let Some(file) = self.file(oid) else { return Ok(()) };
        let mut file = file.lock();
        let sent = file.send_all(&self.fs);
        self.count(sent);
        file.ask_again();
        // It stays for COMMIT too, which may come from somebody else.
        if sent.is_lost { Err(Errno::IO) } else { Ok(()) }
    }

    /// Sends what has been here for long, and forgets files that nothing comes to. To be called about
    /// twice a second.
    pub(crate) fn tick(&self) {
        let now = self.now();
        let all: Vec<_> = self.files.lock().values().cloned().collect();
        for file in all {
            // One that is locked is being written to or sent.
            if let Some(mut file) = file.try_lock()
                && file.age(now) >= AGE_MAX
            {
                let sent = file.send_all(&self.fs);
                self.count(sent);
            }
        }
        let mut files = self.files.lock();
        files.retain(|_, shared| {
            let Some(file) = shared.try_lock() else { return true };
            let kept = if file.has_error() { UNASKED_MAX } else { IDLE_MAX };
            // Who holds it as well may be about to gather for it.
            let is_idle = Arc::strong_count(shared) == 1 && file.is_empty();
            !(is_idle && file.age(now) >= kept)
        });
        self.file_count.store(files.len(), Ordering::Release);
    }

    /// Sends everything, before the gateway ends.
    pub(crate) fn flush_all(&self) {
        let all: Vec<_> = self.files.lock().values().cloned().collect();
        for file in all {
            let sent = file.lock().send_all(&self.fs);
            self.count(sent);
        }
    }

    /// What is gathered of a file, if it is one that is gathered for.
    fn file(&self, oid: Oid) -> Option<Arc<Mutex<GatheredFile>>> {
        if self.file_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.files.lock().get(&oid).cloned()
    }

    fn file_or_new(&self, oid: Oid) -> Option<Arc<Mutex<GatheredFile>>> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(&oid) {
            return Some(Arc::clone(file));
        }
        if files.len() >= FILES_MAX {
            return None;
        }
        let chunk_bytes = self.fs.container().inheritance.chunk_bytes as usize;
        let file = Arc::new(Mutex::new(GatheredFile::new(oid, chunk_bytes, self.now())));
        files.insert(oid, Arc::clone(&file));
        self.file_count.store(files.len(), Ordering::Release);
        Some(file)
    }

    fn count(&self, sent: Sent) {
        self.gathered_bytes.fetch_sub(sent.freed_bytes, Ordering::Relaxed);
        if sent.is_lost {
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Changes when this gateway is started anew, an engine of the file is, or something was lost.
    fn verifier(&self, engines: WriteVerifier) -> [u8; 8] {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let losses = self.losses.load(Ordering::Acquire).wrapping_mul(SPREAD);
        (self.boot ^ u64::from_be_bytes(engines.0).rotate_left(17) ^ losses).to_be_bytes()
    }

    fn now(&self) -> Instant {
        self.fs.config().platform.now()
    }
}
