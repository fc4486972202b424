//! A full disk is an answer like any other: nothing is half written, and with space come writes.
//! Needs a small file system of its own, so it is skipped where this process may not mount.

use std::path::{Path, PathBuf};

use azekura_proto::Status;
use azekura_store::{Batch, Environment, Space, Store};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::fixture::{POOL, TARGET, delete, get, oid, open};

/// A memory file system of 48 MiB, unmounted on drop.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        match mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(c"size=48m")) {
            Ok(()) => Some(Self { dir }),
            Err(error) => {
                eprintln!("skipped: cannot mount a small file system here: {error}");
                None
            }
        }
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    fn available_bytes(&self) -> u64 {
        let disk = rustix::fs::statvfs(self.dir.path()).unwrap();
        disk.f_bavail * disk.f_frsize
    }

    /// Takes all but `left_bytes` of the space, from outside of the store.
    fn fill(&self, left_bytes: u64) -> PathBuf {
        let path = self.dir.path().join("ballast");
        let bytes = self.available_bytes().saturating_sub(left_bytes);
        std::fs::write(&path, vec![1; bytes as usize]).unwrap();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(self.dir.path(), UnmountFlags::DETACH).unwrap();
    }
}

fn create(dir: &Path) -> Store {
    Store::create(&Environment::system(), dir, POOL, TARGET).unwrap();
    open(dir)
}

fn inode(store: &Store, i: u64) -> Result<(), azekura_store::StoreError> {
    let mut batch = Batch::new();
    batch.put(Space::Inode, &i.to_be_bytes(), vec![i as u8; 1000]);
    batch.put(Space::Entry, &i.to_be_bytes(), vec![i as u8; 100]);
    store.commit(batch)
}

#[test]
fn key_values_stop_at_the_reserve_and_go_on_after_removals() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = create(&disk.target());
    let mut stored = 0u64;
    let error = loop {
        match inode(&store, stored) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1_000_000);
    };
    assert_eq!(error.status(), Status::NoSpace, "{error}");
    assert!(stored > 1000, "{stored}");
    assert!(disk.available_bytes() > 1 << 20);
    assert_eq!(get(&store, Space::Inode, &stored.to_be_bytes()), None);
    assert_eq!(get(&store, Space::Entry, &stored.to_be_bytes()), None);

    // Removals pass, and so does what is marked as taking no lasting space.
    delete(&store, Space::Entry, &0u64.to_be_bytes());
    let mut batch = Batch::new();
    batch.put(Space::Inode, &1u64.to_be_bytes(), b"new times");
    batch.allow_reserve();
    store.commit(batch).unwrap();
    drop(store);

    let store = open(&disk.target());
    for i in 2..stored {
        assert_eq!(get(&store, Space::Inode, &i.to_be_bytes()), Some(vec![i as u8; 1000]));
        assert_eq!(get(&store, Space::Entry, &i.to_be_bytes()), Some(vec![i as u8; 100]));
    }
    assert_eq!(get(&store, Space::Inode, &1u64.to_be_bytes()), Some(b"new times".to_vec()));
}

#[test]
fn data_stop_at_the_reserve_and_may_be_overwritten() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = create(&disk.target());
    let file = store.shard_create(oid(1), 0).unwrap();
    let block = vec![5u8; 1 << 20];
    let mut written = 0u64;
    let error = loop {
        match file.write_at(&block, written) {
            Ok(()) => written += block.len() as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.status(), Status::NoSpace, "{error}");
    assert!(written >= 16 << 20, "{written}");
    assert_eq!(file.allocate(written, 1 << 20, false).unwrap_err().status(), Status::NoSpace);
    file.write_at(&vec![6u8; 1 << 20], 1 << 20).unwrap();
    let error = (0..2000).find_map(|i| inode(&store, i).err()).unwrap();
    assert_eq!(error.status(), Status::NoSpace, "{error}");

    drop(file);
    assert!(store.shard_remove(oid(1), 0).unwrap());
    inode(&store, 1).unwrap();
    store.shard_create(oid(2), 0).unwrap().write_at(&block, 0).unwrap();
}

#[test]
fn a_disk_filled_by_others_is_met_without_harm() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = create(&disk.target());
    for i in 0..100 {
        inode(&store, i).unwrap();
    }
    // So that nothing is written while the disk is being filled.
    store.sync().unwrap();
    let ballast = disk.fill(0);
    // Perhaps the last look at the disk lets a few pass; then it is full for good.
    let (refused, error) = (100..5000).find_map(|i| Some((i, inode(&store, i).err()?))).unwrap();
    assert_eq!(error.status(), Status::NoSpace, "{error}");
    let is_absent = |store: &Store| {
        for space in [Space::Inode, Space::Entry] {
            assert_eq!(get(store, space, &u64::to_be_bytes(refused)), None);
        }
    };
    is_absent(&store);
    for i in 0..100 {
        assert_eq!(get(&store, Space::Inode, &u64::to_be_bytes(i)), Some(vec![i as u8; 1000]));
    }
    std::fs::remove_file(ballast).unwrap();
    for i in 5000..5100 {
        inode(&store, i).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    let store = open(&disk.target());
    is_absent(&store);
    for i in (0..100).chain(5000..5100) {
        assert_eq!(get(&store, Space::Inode, &u64::to_be_bytes(i)), Some(vec![i as u8; 1000]));
        assert_eq!(get(&store, Space::Entry, &u64::to_be_bytes(i)), Some(vec![i as u8; 100]));
    }
}

#[test]
fn a_target_on_a_read_only_disk_is_refused() {
    let Some(disk) = SmallDisk::mount() else { return };
    drop(create(&disk.target()));
    rustix::mount::mount_remount(disk.dir.path(), MountFlags::RDONLY, c"").unwrap();
    let error = Store::open(
        &Environment::system(),
        &disk.target(),
        POOL,
        TARGET,
        &azekura_store::StoreConfig::default(),
    )
    .err()
    .unwrap();
    assert_eq!(error.status(), Status::ReadOnly, "{error}");
    let error = Store::create(&Environment::system(), &disk.dir.path().join("other"), POOL, TARGET)
        .unwrap_err();
    assert_eq!(error.status(), Status::ReadOnly, "{error}");
}
