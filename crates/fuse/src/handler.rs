//! The table of operations: which method carries out which request, and in which form its result
//! goes back. Owns what all operations share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use azekura_posix::{Attr, Credentials, Errno, FileSystem, Oid};

use crate::background::Drops;
use crate::cache::{CacheMode, Changes, Versions};
use crate::handles::Handles;
use crate::io::FileHandle;
use crate::kernel::{self, Entry, Handler, Header, Operation, Replier, Request};
use crate::listing::DirHandle;
use crate::view::View;
use crate::waiters::Waiters;
use crate::{convert, node};

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// One mount, as its requests see it.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) cache: CacheMode,
    pub(crate) files: Handles<FileHandle>,
    pub(crate) dirs: Handles<DirHandle>,
    pub(crate) versions: Versions,
    pub(crate) changes: Changes,
    pub(crate) waiters: Arc<Waiters>,
    /// Whether anybody has ever locked a range here; until then closing has nothing to unlock.
    pub(crate) has_ranges: AtomicBool,
    pub(crate) drops: Drops,
    pub(crate) view: View,
}

impl Door {
    pub(crate) fn new(fs: Arc<FileSystem>, cache: CacheMode, drops: Drops, view: View) -> Self {
        Self {
            fs,
            cache,
            files: Handles::default(),
            dirs: Handles::default(),
            versions: Versions::new(),
            changes: Changes::default(),
            waiters: Arc::default(),
            has_ranges: AtomicBool::new(false),
            drops,
            view,
        }
    }

    /// Who asks.
    pub(crate) fn caller(&self, header: &Header<'_>) -> Credentials {
        self.view.caller(header)
    }

    pub(crate) fn object(&self, node: u64) -> Result<Oid> {
        node::object(&self.fs, node)
    }

    pub(crate) fn number(&self, oid: Oid) -> u64 {
        node::number(&self.fs, oid)
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.cache.ttl()
    }

    pub(crate) fn kernel_attr(&self, attr: &Attr) -> kernel::Attr {
        self.view.show(attr, convert::attr(attr, self.number(attr.oid)))
    }

    pub(crate) fn entry(&self, attr: &Attr) -> Entry {
        Entry {
            node: self.number(attr.oid),
            // Serial numbers are never used again.
            generation: 0,
            entry_ttl: self.ttl(),
            attr_ttl: self.ttl(),
            attr: self.kernel_attr(attr),
        }
    }

    /// Carries out a change; what was read before it is not handed out any more.
    pub(crate) fn change<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = change();
        self.changes.add();
        result
    }

    fn names(&self, header: &Header<'_>, operation: Operation<'_>, replier: Replier) {
        let entry = |replier: Replier, entry: Entry| replier.entry(&entry);
        match operation {
            Operation::Lookup { name } => settle(replier, self.lookup(header, name), entry),
            Operation::Symlink { name, target } => {
                settle(replier, self.symlink(header, name, target), entry);
            }
            Operation::Mknod { name, mode, rdev, umask } => {
                settle(replier, self.mknod(header, name, mode & !umask, rdev), entry);
            }
            Operation::Mkdir { name, mode, umask } => {
                settle(replier, self.mkdir(header, name, mode & !umask), entry);
            }
            Operation::Link { existing, new_name } => {
                settle(replier, self.link(header, existing, new_name), entry);
            }
            Operation::Unlink { name } => done(replier, self.unlink(header, name)),
            Operation::Rmdir { name } => done(replier, self.rmdir(header, name)),
            Operation::Rename { name, new_parent, new_name, flags } => {
                done(replier, self.rename(header, name, (new_parent, new_name), flags));
            }
            Operation::Create { name, flags, mode, umask, kill_suidgid: _ } => {
                let result = self.create(header, name, flags, mode & !umask);
                settle(replier, result, |r, (entry, fh, flags)| r.create(&entry, fh, flags));
            }
            Operation::Tmpfile { flags, mode, umask } => {
                let result = self.tmpfile(header, flags, mode & !umask);
                settle(replier, result, |r, (entry, fh, flags)| r.create(&entry, fh, flags));
            }
            other => self.inodes(header, other, replier),
        }
    }

    fn inodes(&self, header: &Header<'_>, operation: Operation<'_>, replier: Replier) {
        let ttl = self.ttl();
        match operation {
            Operation::Getattr { fh: _ } => {
                settle(replier, self.getattr(header), |r, (attr, left)| {
                    r.attr(&self.kernel_attr(&attr), left);
                });
            }
            Operation::Statx { .. } => {
                settle(replier, self.getattr(header), |r, (attr, left)| {
                    r.statx(&self.kernel_attr(&attr), Some(convert::birth(&attr)), left);
                });
            }
            Operation::Setattr(set) => {
                settle(replier, self.setattr(header, &set), |r, attr| {
                    r.attr(&self.kernel_attr(&attr), ttl);
                });
            }
            Operation::Readlink => {
                settle(replier, self.readlink(header), |r, text| r.data(&text));
            }
            Operation::Statfs => {
                settle(replier, self.statfs(), |r, statfs| r.statfs(&statfs));
            }
            Operation::Syncfs => done(replier, self.fs.syncfs()),
            Operation::Setxattr { name, value, flags } => {
                done(replier, self.setxattr(header, name, value, flags));
            }
            Operation::Getxattr { name, size } => {
                settle(replier, self.getxattr(header, name), |r, value| r.xattr(&value, size));
            }
            Operation::Listxattr { size } => {
                settle(replier, self.listxattr(header), |r, names| r.xattr(&names, size));
            }
            Operation::Removexattr { name } => done(replier, self.removexattr(header, name)),
            Operation::Access { mask } => done(replier, self.access(header, mask)),
            other => self.directories(header, other, replier),
        }
    }

    fn directories(&self, header: &Header<'_>, operation: Operation<'_>, replier: Replier) {
        match operation {
            Operation::Opendir { .. } => {
                settle(replier, self.opendir(header), |r, fh| {
                    r.open(fh, kernel::OpenFlags::default());
                });
            }
            Operation::Readdir { fh, cookie, size, plus } => {
                self.readdir(header, replier, fh, (cookie, size, plus));
            }
            Operation::Releasedir { fh, .. } => {
                self.dirs.remove(fh);
                replier.ok();
            }
            Operation::Fsyncdir { .. } => done(replier, self.fsyncdir(header)),
            Operation::Getlk(lock) => {
                let result = self.test_lock(header, &lock);
                settle(replier, result, |r, conflict| r.lock(conflict.as_ref()));
            }
            Operation::Setlk { lock, wait } => self.set_lock(header, replier, &lock, wait),
            other => self.data(header, other, replier),
        }
    }

    fn data(&self, header: &Header<'_>, operation: Operation<'_>, replier: Replier) {
        match operation {
            Operation::Open { flags, kill_suidgid: _ } => {
                let result = self.open(header, flags);
                settle(replier, result, |r, (fh, flags)| r.open(fh, flags));
            }
            Operation::Flush { fh, lock_owner } => {
                done(replier, self.flush(header, fh, lock_owner));
            }
            Operation::Release { fh, lock_owner, flock_unlock, .. } => {
                done(replier, self.release(fh, flock_unlock.then_some(lock_owner)));
            }
            Operation::Fsync { fh, data_only: _ } => done(replier, self.fsync(fh)),
            Operation::Fallocate { fh, offset, length, mode } => {
                done(replier, self.fallocate(fh, offset, length, mode));
            }
            Operation::Lseek { fh, offset, whence } => {
                settle(replier, self.seek(fh, offset, whence), Replier::seek);
            }
            Operation::CopyFileRange {
                fh_in,
                offset_in,
                fh_out,
                offset_out,
                length,
                flags,
                wide,
                node_out: _,
            } => {
                let result =
                    self.copy((fh_in, offset_in), (fh_out, offset_out), length, flags, wide);
                settle(replier, result, |r, bytes| r.copied(bytes, wide));
            }
            // All operations are told apart by now.
            other => {
                tracing::error!("no method for the operation {other:?}");
                replier.error(Errno::NOSYS);
            }
        }
    }
}

/// Sends a result.
pub(crate) fn settle<T>(replier: Replier, result: Result<T>, send: impl FnOnce(Replier, T)) {
    match result {
        Ok(value) => send(replier, value),
        Err(errno) => {
            tracing::debug!(unique = replier.unique(), "answered with an error: {errno}");
            replier.error(errno);
        }
    }
}

/// Sends a result that has nothing to tell.
pub(crate) fn done<T>(replier: Replier, result: Result<T>) {
    settle(replier, result, |replier, _| replier.ok());
}

impl Handler for Door {
    fn handle(&self, request: Request<'_>, replier: Replier) {
        let header = &request.header;
        match request.operation {
            Operation::Read { fh, offset, size, .. } => self.read(replier, fh, offset, size),
            Operation::Write { fh, offset, data, flags, cached, kill_suidgid, .. } => {
                let write = crate::io::Write { offset, data, flags, cached, kill_suidgid };
                self.write(header, replier, fh, write);
            }
            other => self.names(header, other, replier),
        }
    }

    fn interrupt(&self, unique: u64) {
        self.waiters.interrupt(unique);
    }

    fn forget(&self, _node: u64, _count: u64) {
        // Node numbers are computed; there is nothing to forget.
    }

    fn destroy(&self) {
        self.waiters.close();
    }
}
