//! The protocol layer against the real kernel: a tiny file system in memory, mounted and used.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use azekura_fuse_kernel::{
    Attr, DirentWriter, Entry, Handler, ListedEntry, MountError, MountOptions, OpenFlags,
    Operation, Replier, Request, Session, SessionConfig, SessionError, Transport, mount, unmount,
    with_reply_buffer,
};
use azekura_testkit::{UringAllowed, skip};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

/// One directory with one file, whose lock is never free.
struct Tiny {
    content: Mutex<Vec<u8>>,
    waiting: Mutex<Option<Replier>>,
    arrived: Condvar,
}

const ROOT: u64 = 1;
const FILE: u64 = 2;
const TTL: Duration = Duration::from_secs(1);

impl Tiny {
    fn attr(&self, node: u64) -> Attr {
        let (mode, size) = match node {
            ROOT => (0o040_755, 0),
            _ => (0o100_666, self.content.lock().len() as u64),
        };
        Attr { ino: node, size, mode, nlink: 1, blksize: 4096, ..Attr::default() }
    }

    fn entry(&self, node: u64) -> Entry {
        Entry { node, generation: 0, entry_ttl: TTL, attr_ttl: TTL, attr: self.attr(node) }
    }

    fn list(&self, cookie: u64, size: u32, plus: bool, replier: Replier) {
        with_reply_buffer(size as usize, |buffer| {
            let mut writer = DirentWriter::new(buffer);
            let all = [
                (ROOT, &b"."[..], 0o040_000),
                (ROOT, b"..", 0o040_000),
                (FILE, b"file", 0o100_000),
            ];
            for (index, (ino, name, mode)) in all.into_iter().enumerate().skip(cookie as usize) {
                let listed = ListedEntry { ino, next_cookie: index as u64 + 1, mode, name };
                let pushed = match (plus, ino) {
                    (true, FILE) => writer.push_plus(&listed, &self.entry(FILE)),
                    (true, _) => writer.push_plus(&listed, &Entry::default()),
                    (false, _) => writer.push(&listed),
                };
                if pushed.is_err() {
                    break;
                }
            }
            replier.data(writer.bytes());
        });
    }
}

impl Handler for Tiny {
    fn handle(&self, request: Request<'_>, replier: Replier) {
        let node = request.header.node;
        match request.operation {
            Operation::Lookup { name: b"file" } => replier.entry(&self.entry(FILE)),
            Operation::Lookup { .. } => replier.error(Errno::NOENT),
            Operation::Getattr { .. } => replier.attr(&self.attr(node), TTL),
            Operation::Setattr(set) => {
                if let Some(size) = set.size {
                    self.content.lock().resize(size as usize, 0);
                }
                replier.attr(&self.attr(node), TTL);
            }
            Operation::Open { .. } | Operation::Opendir { .. } => {
                replier.open(9, OpenFlags::default());
            }
            Operation::Readdir(wanted) => {
                self.list(wanted.cookie, wanted.size, wanted.plus, replier);
            }
            Operation::Read { offset, size, .. } => {
                let content = self.content.lock();
                let start = (offset as usize).min(content.len());
                let end = (start + size as usize).min(content.len());
                replier.data(&content[start..end]);
            }
            Operation::Write(write) => {
                let (offset, data) = (write.offset, write.data);
                let mut content = self.content.lock();
                let end = offset as usize + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[offset as usize..end].copy_from_slice(data);
                replier.written(data.len() as u32);
            }
            Operation::Setlk { wait: true, .. } => {
                *self.waiting.lock() = Some(replier);
                self.arrived.notify_all();
            }
            Operation::Release { .. } | Operation::Releasedir { .. } | Operation::Flush { .. } => {
                replier.ok();
            }
            // Leaves the answer to the replier.
            Operation::Readlink => {}
            _ => replier.error(Errno::NOSYS),
        }
    }

    fn interrupt(&self, unique: u64) {
        let mut waiting = self.waiting.lock();
        while waiting.is_none() {
            if self.arrived.wait_for(&mut waiting, Duration::from_secs(10)).timed_out() {
                return;
            }
        }
        if let Some(replier) = waiting.take() {
            assert_eq!(replier.unique(), unique);
            replier.error(Errno::INTR);
        }
    }

    fn forget(&self, _node: u64, _count: u64) {}
}

fn options() -> MountOptions {
    MountOptions {
        fsname: "tiny test".into(),
        subtype: "tiny".into(),
        allow_other: false,
        default_permissions: true,
        read_only: false,
        allow_suid: false,
        allow_devices: false,
        max_read_bytes: 1 << 20,
    }
}

/// Unmounts whatever the test's fate is.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, true);
    }
}

/// Mounts the tiny file system; `None`, with the reason printed, where that is not possible.
fn serve(path: &Path, transport: Transport) -> Option<Session> {
    let device = match mount(path, &options()) {
        Ok(device) => device,
        Err(
            error @ (MountError::NoDevice
            | MountError::DeviceDenied { .. }
            | MountError::NoHelper
            | MountError::Mount { errno: Errno::PERM, .. }),
        ) => {
            skip(&error.to_string());
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let tiny = Tiny {
        content: Mutex::new(b"hello".to_vec()),
        waiting: Mutex::new(None),
        arrived: Condvar::new(),
    };
    let config = SessionConfig { transport, ..SessionConfig::default() };
    let session = Session::start(device, &config, Arc::new(tiny)).unwrap();
    assert_eq!(session.negotiated().over_io_uring, transport == Transport::Uring);
    Some(session)
}

#[test]
fn a_mounted_file_system_is_listed_read_and_written() {
    list_read_and_write(Transport::Device);
}

#[test]
fn over_io_uring_too_it_is_listed_read_and_written() {
    if let Some(_allowed) = UringAllowed::new() {
        list_read_and_write(Transport::Uring);
    }
}

fn list_read_and_write(transport: Transport) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let Some(session) = serve(path, transport) else { return };
    let guard = Mounted(path);
    assert!(session.negotiated().minor >= 31);

    let names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
    let file = path.join("file");
    assert_eq!(fs::read(&file).unwrap(), b"hello");
    assert_eq!(fs::metadata(path.join("other")).unwrap_err().raw_os_error(), Some(2));

    let big: Vec<u8> = (0..3_000_001u32).map(|index| (index * 7 / 3) as u8).collect();
    fs::File::options().write(true).open(&file).unwrap().write_all(&big).unwrap();
    session.notifier().invalidate_node(FILE, 0, 0).unwrap();
    let mut back = Vec::new();
    fs::File::open(&file).unwrap().read_to_end(&mut back).unwrap();
    assert!(back == big, "what was written comes back");
    let mut part = [0; 1000];
    fs::File::open(&file).unwrap().read_exact_at(&mut part, 1_500_000).unwrap();
    assert_eq!(part[..], big[1_500_000..1_501_000]);

    // Operations that are not served say so.
    assert!(fs::create_dir(path.join("new")).is_err());
    session.notifier().invalidate_entry(ROOT, b"file").unwrap();
    session.notifier().invalidate_entry(ROOT, b"unknown").unwrap();

    unmount(path, false).unwrap();
    session.wait();
    drop(guard);
    assert_eq!(fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn a_waiting_lock_request_ends_when_its_caller_gives_up() {
    give_up_a_lock(Transport::Device);
}

#[test]
fn over_io_uring_too_a_waiting_lock_request_ends() {
    if let Some(_allowed) = UringAllowed::new() {
        give_up_a_lock(Transport::Uring);
    }
}

fn give_up_a_lock(transport: Transport) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let Some(session) = serve(path, transport) else { return };
    let guard = Mounted(path);
    // It waits in flock(2) until its own alarm interrupts that.
    let status = std::process::Command::new("flock")
        .args(["--timeout", "0.2"])
        .arg(path.join("file"))
        .arg("true")
        .status();
    match status {
        Ok(status) => assert_eq!(status.code(), Some(1), "the lock is never free"),
        Err(error) => skip(&format!("the program `flock` cannot be run: {error}")),
    }
    unmount(path, false).unwrap();
    session.wait();
    drop(guard);
}

#[test]
fn a_mount_whose_server_is_gone_is_recognized() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let device = match mount(path, &options()) {
        Ok(device) => device,
        Err(error) => {
            skip(&error.to_string());
            return;
        }
    };
    let guard = Mounted(path);
    drop(device);
    let error = mount(path, &options()).unwrap_err();
    assert!(error.to_string().contains("azekura umount"), "{error}");
    drop(guard);
}

#[test]
fn an_unmount_before_the_handshake_is_an_error_not_a_hang() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (device, other) = match rustix::pipe::pipe() {
        Ok(ends) => ends,
        Err(errno) => panic!("{errno}"),
    };
    drop(other);
    let tiny = Tiny {
        content: Mutex::new(Vec::new()),
        waiting: Mutex::new(None),
        arrived: Condvar::new(),
    };
    let error = Session::start(device, &SessionConfig::default(), Arc::new(tiny)).unwrap_err();
    assert!(matches!(error, SessionError::UnmountedEarly), "{error}");
    assert!(path.exists());
}
