//! Files of shards that are gone or were cut while nobody had the target open.

use std::path::{Path, PathBuf};

use azekura_store::{Store, StoreError};

use crate::fixture::{Fixture, oid};

const BYTES: usize = 10_000;

/// A target with one shard, and the path of its file.
fn with_a_file(note: impl Fn(&Store)) -> (Fixture, PathBuf) {
    let target = Fixture::new();
    let file = target.store.shard_create(oid(1), 0).unwrap();
    file.write_at(&[7; BYTES], 0).unwrap();
    note(&target.store);
    let path = target.dir.path().join("data/01").join(format!("{}.0", oid(1)));
    assert!(path.is_file());
    (target, path)
}

fn cut(path: &Path, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn read(store: &Store, offset: u64, bytes: usize) -> Result<Vec<u8>, StoreError> {
    let Some(file) = store.shard(oid(1), 0)? else { return Ok(Vec::new()) };
    let mut buffer = vec![0; bytes];
    let read = file.read_at(&mut buffer, offset)?;
    assert_eq!(file.readable(offset, bytes as u64)?, read as u64);
    buffer.truncate(read);
    Ok(buffer)
}

fn lost(store: &Store) -> Vec<(u64, u64)> {
    let mut lost = Vec::new();
    let mut visit = |_, noted, found| lost.push((noted, found));
    assert!(store.shard_find_lost(&[], None, 10, &mut visit).unwrap().is_none());
    lost
}

fn is_lost<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Lost { .. }))
}

fn synced(store: &Store) {
    store.shard(oid(1), 0).unwrap().unwrap().sync(true).unwrap();
}

fn noted(store: &Store) {
    store.note_shard_lengths().unwrap();
}

#[test]
fn a_file_that_is_gone_is_missed() {
    for note in [synced, noted] {
        let (target, path) = with_a_file(note);
        let target = target.reopen_after(|| std::fs::remove_file(&path).unwrap());
        let store = &target.store;
        assert_eq!(lost(store), [(BYTES as u64, 0)]);
        assert_eq!(store.shard_stat(oid(1), 0).unwrap().unwrap().bytes, BYTES as u64);
        assert!(is_lost(&read(store, 0, 10)));
        assert!(is_lost(&read(store, BYTES as u64 - 1, 10)));
        assert_eq!(read(store, BYTES as u64, 10).unwrap(), b"");
        let error = read(store, 0, 10).unwrap_err().to_string();
        for part in [&oid(1).to_string(), "shard 0", "target", path.to_str().unwrap()] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn a_file_that_was_cut_is_missed_behind_its_end() {
    for note in [synced, noted] {
        let (target, path) = with_a_file(note);
        let target = target.reopen_after(|| cut(&path, 4000));
        let store = &target.store;
        assert_eq!(lost(store), [(BYTES as u64, 4000)]);
        assert_eq!(read(store, 3990, 10).unwrap(), [7; 10]);
        assert!(is_lost(&read(store, 3995, 10)));
        let file = store.shard(oid(1), 0).unwrap().unwrap();
        assert_eq!(file.stat().unwrap().bytes, BYTES as u64);
        // Nothing makes what is lost read as zeros.
        assert!(is_lost(&file.write_at(b"x", 20_000)) && is_lost(&file.truncate(20_000)));
        assert!(
            is_lost(&file.allocate(0, 20_000, false))
                && is_lost(&file.extend(BYTES as u64, 20_000, 1))
        );
        file.write_at(b"x", 3999).unwrap();
        assert_eq!(lost(store), [(BYTES as u64, 4000)]);
        // Cut on purpose it is whole again.
        file.truncate(4000).unwrap();
        file.write_at(b"y", 4000).unwrap();
        assert_eq!((lost(store), read(store, 3999, 10).unwrap()), (vec![], b"xy".to_vec()));
    }
}

#[test]
fn a_file_that_is_gone_can_be_written_anew() {
    let (target, path) = with_a_file(synced);
    let target = target.reopen_after(|| std::fs::remove_file(&path).unwrap());
    let file = target.store.shard(oid(1), 0).unwrap().unwrap();
    file.truncate(0).unwrap();
    file.write_at(b"new", 0).unwrap();
    assert_eq!(
        (lost(&target.store), read(&target.store, 0, 10).unwrap()),
        (vec![], b"new".to_vec())
    );
}

#[test]
fn what_was_cut_removed_or_never_written_is_not_missed() {
    for note in [synced, noted, |_: &Store| {}] {
        let (target, _) = with_a_file(note);
        let file = target.store.shard(oid(1), 0).unwrap().unwrap();
        file.truncate(3).unwrap();
        drop(file);
        let target = target.reopen_after(|| {});
        assert_eq!(
            (lost(&target.store), read(&target.store, 0, 10).unwrap()),
            (vec![], vec![7; 3])
        );
        assert_eq!(read(&target.store, 5, 10).unwrap(), b"");
        for removed in [Store::shard_remove, Store::shard_remove_freed] {
            removed(&target.store, oid(1), 0).unwrap();
            target.store.note_shard_lengths().unwrap();
            assert!(target.store.shard_stat(oid(1), 0).unwrap().is_none());
            assert_eq!(
                (lost(&target.store), read(&target.store, 0, 10).unwrap()),
                (vec![], vec![])
            );
        }
        // Written by an older release: nothing is on record.
        target.store.shard_create(oid(1), 0).unwrap().write_at(b"sparse", 1 << 20).unwrap();
        assert_eq!(read(&target.store, 0, 10).unwrap(), [0; 10]);
    }
}

#[test]
fn a_file_that_is_removed_while_it_is_open_is_not_put_on_record_again() {
    let (target, _) = with_a_file(|_| {});
    let file = target.store.shard(oid(1), 0).unwrap().unwrap();
    target.store.shard_remove(oid(1), 0).unwrap();
    file.sync(true).unwrap();
    file.write_at(b"more", 20_000).unwrap();
    target.store.note_shard_lengths().unwrap();
    assert_eq!(lost(&target.store), []);
}
