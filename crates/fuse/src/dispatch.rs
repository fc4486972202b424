//! From a request to the method that carries it out: one arm each. Owns nothing else.

use crate::answer;
use crate::front_end::FrontEnd;
use crate::kernel::{Handler, Operation, Replier, Request};

impl Handler for FrontEnd {
    fn handle(&self, request: Request<'_>, replier: Replier) {
        let header = &request.header;
        match request.operation {
            Operation::Lookup { name } => answer::entry(replier, self.lookup(header, name)),
            Operation::Symlink { name, target } => {
                answer::entry(replier, self.symlink(header, name, target));
            }
            Operation::Mknod { name, mode, rdev, umask } => {
                answer::entry(replier, self.mknod(header, name, mode & !umask, rdev));
            }
            Operation::Mkdir { name, mode, umask } => {
                answer::entry(replier, self.mkdir(header, name, mode & !umask));
            }
            Operation::Link { existing, new_name } => {
                answer::entry(replier, self.link(header, existing, new_name));
            }
            Operation::Unlink { name } => answer::done(replier, self.unlink(header, name)),
            Operation::Rmdir { name } => answer::done(replier, self.rmdir(header, name)),
            Operation::Rename { name, new_parent, new_name, flags } => {
                answer::done(replier, self.rename(header, name, (new_parent, new_name), flags));
            }
            Operation::Create { name, flags, mode, umask, kill_suidgid: _ } => {
                answer::created(replier, self.create(header, name, flags, mode & !umask));
            }
            Operation::Tmpfile { flags, mode, umask } => {
                answer::created(replier, self.tmpfile(header, flags, mode & !umask));
            }

            Operation::Getattr { fh } => answer::attr(replier, self.getattr(header, fh)),
            Operation::Statx { fh, flags: _, mask: _ } => {
                answer::with(replier, self.statx(header, fh), |replier, (attr, birth, ttl)| {
                    replier.statx(&attr, Some(birth), ttl);
                });
            }
            Operation::Setattr(set) => answer::attr(replier, self.setattr(header, &set)),
            Operation::Readlink => {
                answer::with(replier, self.readlink(header), |replier, text| replier.data(&text));
            }
            Operation::Access { mask } => answer::done(replier, self.access(header, mask)),
            Operation::Statfs => {
                answer::with(replier, self.statfs(), |replier, statfs| replier.statfs(&statfs));
            }
            Operation::Syncfs => answer::done(replier, self.fs.syncfs()),
            Operation::Setxattr { name, value, flags } => {
                answer::done(replier, self.setxattr(header, name, value, flags));
            }
            Operation::Getxattr { name, size } => {
                answer::xattr(replier, self.getxattr(header, name), size);
            }
            Operation::Listxattr { size } => answer::xattr(replier, self.listxattr(header), size),
            Operation::Removexattr { name } => {
                answer::done(replier, self.removexattr(header, name));
            }

            Operation::Opendir { flags: _ } => answer::opened(replier, self.opendir(header)),
            Operation::Readdir(wanted) => self.readdir(header, replier, &wanted),
            Operation::Releasedir { fh, flags: _ } => {
                answer::done(replier, Ok(self.dirs.remove(fh)));
            }
            Operation::Fsyncdir { fh: _, data_only: _ } => {
                answer::done(replier, self.fsyncdir(header));
            }

            Operation::Open { flags, kill_suidgid: _ } => {
                answer::opened(replier, self.open(header, flags));
            }
            Operation::Read { fh, offset, size, lock_owner: _, flags: _ } => {
                self.read(replier, fh, offset, size);
            }
            Operation::Write(write) => self.write(header, replier, &write),
            Operation::Flush { fh, lock_owner } => {
                answer::done(replier, self.flush(header, fh, lock_owner));
            }
            Operation::Release { fh, flags: _, lock_owner, flush: _, flock_unlock } => {
                answer::done(replier, self.release(fh, flock_unlock.then_some(lock_owner)));
            }
            Operation::Fsync { fh, data_only } => answer::done(replier, self.fsync(fh, data_only)),
            Operation::Fallocate { fh, offset, length, mode } => {
                answer::done(replier, self.fallocate(header, fh, (offset, length), mode));
            }
            Operation::Lseek { fh, offset, whence } => {
                answer::with(replier, self.seek(fh, offset, whence), Replier::seek);
            }
            Operation::CopyFileRange(copy) => {
                answer::with(replier, self.copy(header, &copy), |replier, bytes| {
                    replier.copied(bytes, copy.wide);
                });
            }
            Operation::Getlk(lock) => {
                answer::with(replier, self.test_lock(header, &lock), |replier, conflict| {
                    replier.lock(conflict.as_ref());
                });
            }
            Operation::Setlk { lock, wait } => self.set_lock(header, replier, &lock, wait),
        }
    }

    fn interrupt(&self, unique: u64) {
        self.waiters.interrupt(unique);
    }

    fn forget(&self, node: u64, _count: u64) {
        // Node numbers are computed; what is kept is only what engines do not have any more.
        if let Ok(oid) = self.object(node) {
            self.directories.forget(oid);
        }
    }

    fn destroy(&self) {
        self.waiters.close();
    }
}
