//! Real mounts of a pool in this process, used through the kernel.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test, with its place")]

mod mounted;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use azekura_fuse::CacheMode;
use azekura_testkit::mounts_are_possible;
use mounted::{Mounted, Mounts};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, XattrFlags,
};
use rustix::io::Errno;

const BOTH: [CacheMode; 2] = [CacheMode::Auto, CacheMode::None];

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Bytes that tell where they stand.
fn pattern(start: u64, bytes: usize) -> Vec<u8> {
    (start..).take(bytes).map(|place| (place ^ place >> 8 ^ place >> 16) as u8).collect()
}

fn each_mode(test: impl Fn(&Mounted)) {
    if !mounts_are_possible() {
        return;
    }
    let mounts = Mounts::start();
    for cache in BOTH {
        let mounted = mounts.mount(&format!("{cache:?}"), cache);
        test(&mounted);
        for entry in fs::read_dir(mounted.root()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
    }
}

#[test]
fn files_and_directories_come_and_go() {
    each_mode(|mounted| {
        let dir = mounted.path("dir");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("a"), "hello").unwrap();
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"hello");
        fs::hard_link(dir.join("a"), dir.join("b")).unwrap();
        assert_eq!(fs::metadata(dir.join("b")).unwrap().nlink(), 2);
        std::os::unix::fs::symlink("b", dir.join("c")).unwrap();
        assert_eq!(fs::read(dir.join("c")).unwrap(), b"hello");
        assert_eq!(names(&dir), ["a", "b", "c"]);
        let error = fs::remove_dir(&dir).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
        for name in ["a", "b", "c"] {
            fs::remove_file(dir.join(name)).unwrap();
        }
        fs::remove_dir(&dir).unwrap();
        assert!(!dir.exists());
        assert_eq!(fs::metadata(mounted.root()).unwrap().ino(), 1);
    });
}

#[test]
fn special_files_keep_their_kind_and_device() {
    each_mode(|mounted| {
        let device = rustix::fs::makedev(259, 70_000);
        let make = |name: &str, kind, device| {
            let mode = Mode::from_raw_mode(0o640);
            rustix::fs::mknodat(CWD, mounted.path(name), kind, mode, device).unwrap();
            fs::symlink_metadata(mounted.path(name)).unwrap()
        };
        assert!(make("fifo", rustix::fs::FileType::Fifo, 0).file_type().is_fifo());
        let node = make("node", rustix::fs::FileType::CharacterDevice, device);
        assert!(node.file_type().is_char_device());
        assert_eq!(node.rdev(), device);
    });
}

#[test]
fn renames_replace_refuse_and_exchange() {
    each_mode(|mounted| {
        let (a, b) = (mounted.path("a"), mounted.path("b"));
        let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
        fs::write(&a, "1").unwrap();
        fs::write(&b, "2").unwrap();
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"2".into(), b"1".into()));
        fs::rename(&a, &b).unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"2");
        assert_eq!(names(mounted.root()), ["b"]);
    });
}

#[test]
fn a_large_file_reads_as_it_was_written() {
    each_mode(|mounted| {
        const BYTES: usize = 24 << 20;
        let path = mounted.path("large");
        let mut file = File::create(&path).unwrap();
        file.write_all(&pattern(0, BYTES)).unwrap();
        drop(file);
        assert_eq!(fs::metadata(&path).unwrap().len(), BYTES as u64);
        assert!(fs::read(&path).unwrap() == pattern(0, BYTES));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(b"middle", 5 << 20).unwrap();
        let mut six = [0; 6];
        file.read_exact_at(&mut six, 5 << 20).unwrap();
        assert_eq!(&six, b"middle");
        file.set_len(3 << 20).unwrap();
        file.set_len(4 << 20).unwrap();
        let whole = fs::read(&path).unwrap();
        assert!(whole[..3 << 20] == pattern(0, 3 << 20));
        assert!(whole[3 << 20..].iter().all(|byte| *byte == 0));
    });
}

#[test]
fn holes_are_punched_and_found() {
    each_mode(|mounted| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(mounted.path("sparse"))
            .unwrap();
        file.write_all_at(&pattern(0, 1 << 20), 0).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 64 << 10, 128 << 10).unwrap();
        let mut read = vec![1; 256 << 10];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read[64 << 10..192 << 10].iter().all(|byte| *byte == 0));
        assert!(read[..64 << 10] == pattern(0, 64 << 10));
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(64 << 10));
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(64 << 10)), Ok(192 << 10));
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    });
}

#[test]
fn copies_are_made_between_files() {
    each_mode(|mounted| {
        fs::write(mounted.path("from"), pattern(0, 3 << 20)).unwrap();
        let from = File::open(mounted.path("from")).unwrap();
        let to = File::create(mounted.path("to")).unwrap();
        let mut done = 0;
        while done < 3 << 20 {
            let rest = (3 << 20) - done;
            done += rustix::fs::copy_file_range(&from, None, &to, None, rest).unwrap();
        }
        assert!(fs::read(mounted.path("to")).unwrap() == pattern(0, 3 << 20));
    });
}

#[test]
fn extended_attributes_are_kept() {
    each_mode(|mounted| {
        let path = mounted.path("file");
        fs::write(&path, "").unwrap();
        rustix::fs::setxattr(&path, "user.color", b"red", XattrFlags::CREATE).unwrap();
        let again = rustix::fs::setxattr(&path, "user.color", b"blue", XattrFlags::CREATE);
        assert_eq!(again, Err(Errno::EXIST));
        let mut value = [0; 64];
        assert_eq!(rustix::fs::getxattr(&path, "user.color", &mut value), Ok(3));
        assert_eq!(&value[..3], b"red");
        assert_eq!(rustix::fs::getxattr(&path, "user.color", &mut [0; 2]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::listxattr(&path, &mut value), Ok(11));
        rustix::fs::removexattr(&path, "user.color").unwrap();
        let gone = rustix::fs::getxattr(&path, "user.color", &mut value);
        assert_eq!(gone, Err(Errno::NODATA));
        let length = rustix::fs::getxattr(&path, "user.azekura.class", &mut value).unwrap();
        assert_eq!(&value[..length], b"SX");
    });
}

#[test]
fn a_file_without_a_name_can_get_one() {
    each_mode(|mounted| {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::TMPFILE.bits() as i32)
            .open(mounted.root())
            .unwrap();
        file.write_all(b"late").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let own = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&file.as_fd()));
        let path = mounted.path("named");
        rustix::fs::linkat(CWD, own, CWD, &path, AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"late");
        assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    each_mode(|mounted| {
        let path = mounted.path("gone");
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"still here").unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "still here");
    });
}

#[test]
fn a_large_directory_is_listed_whole() {
    each_mode(|mounted| {
        let dir = mounted.path("many");
        fs::create_dir(&dir).unwrap();
        let mut wanted: Vec<String> = (0..3000).map(|number| format!("file-{number}")).collect();
        for name in &wanted {
            File::create(dir.join(name)).unwrap();
        }
        wanted.sort();
        assert_eq!(names(&dir), wanted);
        // Removing while listing leaves nothing behind.
        for entry in fs::read_dir(&dir).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        assert!(names(&dir).is_empty());
    });
}

#[test]
fn attributes_are_set_and_bits_cleared() {
    each_mode(|mounted| {
        let path = mounted.path("program");
        fs::write(&path, "x").unwrap();
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(mode(), 0o6755);
        std::os::unix::fs::chown(&path, Some(1), Some(2)).unwrap();
        assert_eq!(mode(), 0o755);
        let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        File::open(&path).unwrap().set_modified(time).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.modified().unwrap(), time);
        assert_eq!((metadata.uid(), metadata.gid()), (1, 2));
        assert!(metadata.created().is_ok());
        let space = rustix::fs::statvfs(mounted.root()).unwrap();
        assert!(space.f_blocks > 0 && space.f_namemax == 255);
    });
}

#[test]
fn a_read_only_mount_refuses_changes() {
    if !mounts_are_possible() {
        return;
    }
    let mounts = Mounts::start();
    let mounted = mounts.mount_as("ro", |config| config.read_only = true);
    let error = fs::write(mounted.path("file"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
}

#[test]
fn a_mount_ends_when_it_is_told_to() {
    if !mounts_are_possible() {
        return;
    }
    let mounts = Mounts::start();
    let mounted = mounts.mount("here", CacheMode::Auto);
    let held = File::create(mounted.path("held")).unwrap();
    let unmounter = mounted.mount().unmounter();
    unmounter.unmount(false).unwrap_err();
    drop(held);
    // The kernel closes in the background.
    let ended = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        unmounter.unmount(false).is_ok()
    });
    assert!(ended);
    mounted.mount().wait();
    assert!(names(mounted.root()).is_empty());
    unmounter.unmount(false).unwrap();
}

#[test]
fn appends_of_two_mounts_interleave_whole() {
    const RECORDS: usize = 300;
    const BYTES: usize = 700;
    if !mounts_are_possible() {
        return;
    }
    let mounts = Mounts::start();
    let mounts = [mounts.mount("one", CacheMode::Auto), mounts.mount("two", CacheMode::Auto)];
    File::create(mounts[0].path("log")).unwrap();
    std::thread::scope(|scope| {
        for (mounted, letter) in mounts.iter().zip([b'a', b'b']) {
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(mounted.path("log")).unwrap();
                for _ in 0..RECORDS {
                    log.write_all(&[letter; BYTES]).unwrap();
                }
            });
        }
    });
    for mounted in &mounts {
        let log = fs::read(mounted.path("log")).unwrap();
        assert_eq!(log.len(), 2 * RECORDS * BYTES);
        let records = || log.chunks(BYTES);
        assert!(records().all(|record| record.iter().all(|byte| *byte == record[0])));
        assert_eq!(records().filter(|record| record[0] == b'a').count(), RECORDS);
    }
}

#[test]
fn a_change_by_another_mount_is_seen_at_open() {
    if !mounts_are_possible() {
        return;
    }
    let mounts = Mounts::start();
    let (one, two) = (mounts.mount("one", CacheMode::Auto), mounts.mount("two", CacheMode::Auto));
    for round in 0..20 {
        let text = format!("round {round:04}");
        fs::write(one.path("file"), &text).unwrap();
        for _ in 0..3 {
            assert_eq!(fs::read_to_string(two.path("file")).unwrap(), text);
        }
        fs::rename(one.path("file"), one.path("other")).unwrap();
        fs::rename(one.path("other"), one.path("file")).unwrap();
    }
}

#[test]
fn locks_exclude_between_mounts() {
    if !mounts_are_possible() {
        return;
    }
    let mounts = Mounts::start();
    let (one, two) = (mounts.mount("one", CacheMode::Auto), mounts.mount("two", CacheMode::Auto));
    let first = File::create(one.path("lock")).unwrap();
    let second = File::options().write(true).open(two.path("lock")).unwrap();
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&first, exclusive).unwrap();
    assert_eq!(rustix::fs::flock(&second, exclusive), Err(Errno::AGAIN));
    let waiting = std::thread::spawn(move || {
        rustix::fs::flock(&second, FlockOperation::LockExclusive).unwrap();
        second
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    // The last close gives it back.
    drop(first);
    let second = waiting.join().unwrap();
    rustix::fs::flock(&second, FlockOperation::Unlock).unwrap();

    let range = FlockOperation::NonBlockingLockExclusive;
    let first = File::options().write(true).open(one.path("lock")).unwrap();
    rustix::fs::fcntl_lock(&first, range).unwrap();
    assert_eq!(rustix::fs::fcntl_lock(&second, range), Err(Errno::AGAIN));
    // Any close of the file by the process does.
    drop(File::open(one.path("lock")).unwrap());
    rustix::fs::fcntl_lock(&second, range).unwrap();
}
