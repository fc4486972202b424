//! Whose directory it is, and what happens when it is not as it must be.

use std::fs;
use std::path::Path;

use azekura_proto::{PoolId, TargetId};
use azekura_store::{Batch, Environment, Space, Store, StoreConfig, StoreError};

use crate::fixture::{Fixture, POOL, TARGET, get, put};

fn try_open(dir: &Path) -> Result<Store, StoreError> {
    Store::open(&Environment::system(), dir, POOL, TARGET, &StoreConfig::default())
}

fn refusal(dir: &Path) -> StoreError {
    match try_open(dir) {
        Ok(_) => panic!("opened"),
        Err(error) => {
            assert!(error.to_string().contains(&*dir.to_string_lossy()), "{error}");
            error
        }
    }
}

/// A closed target with something in it.
fn closed() -> tempfile::TempDir {
    let target = Fixture::new();
    for i in 0..2000u32 {
        put(&target.store, Space::Inode, &i.to_be_bytes(), &[1; 100]);
    }
    let Fixture { store, dir } = target;
    drop(store);
    dir
}

#[test]
fn creating_twice_changes_nothing() {
    let target = Fixture::new();
    put(&target.store, Space::Inode, b"a", b"1");
    Store::create(&Environment::system(), target.dir.path(), POOL, TARGET).unwrap();
    let target = target.reopen();
    Store::create(&Environment::system(), target.dir.path(), POOL, TARGET).unwrap();
    assert_eq!(get(&target.store, Space::Inode, b"a"), Some(b"1".to_vec()));
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "precious").unwrap();
    let error = Store::create(&Environment::system(), dir.path(), POOL, TARGET).unwrap_err();
    assert!(matches!(error, StoreError::NotATarget { .. }), "{error}");
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
    assert!(matches!(refusal(dir.path()), StoreError::NotATarget { .. }));
    assert!(matches!(refusal(&dir.path().join("nowhere")), StoreError::NotATarget { .. }));
}

#[test]
fn an_interrupted_creation_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("target.json.unfinished"), "{").unwrap();
    fs::create_dir_all(dir.path().join("data/00")).unwrap();
    fs::create_dir_all(dir.path().join("kv/keyspaces")).unwrap();
    assert!(matches!(refusal(dir.path()), StoreError::NotATarget { .. }));
    Store::create(&Environment::system(), dir.path(), POOL, TARGET).unwrap();
    put(&try_open(dir.path()).unwrap(), Space::Inode, b"a", b"1");
}

#[test]
fn another_pool_or_target_is_refused() {
    let dir = closed();
    for (pool, target) in [(PoolId([8; 16]), TARGET), (POOL, TargetId(4))] {
        let error = Store::create(&Environment::system(), dir.path(), pool, target).unwrap_err();
        assert!(matches!(error, StoreError::WrongIdentity { .. }), "{error}");
        let error =
            Store::open(&Environment::system(), dir.path(), pool, target, &StoreConfig::default())
                .err()
                .unwrap();
        assert!(matches!(error, StoreError::WrongIdentity { .. }), "{error}");
    }
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    let target = Fixture::new();
    assert!(matches!(refusal(target.dir.path()), StoreError::InUse { .. }));
    put(&target.store, Space::Inode, b"a", b"1");
    let target = target.reopen();
    assert_eq!(get(&target.store, Space::Inode, b"a"), Some(b"1".to_vec()));
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let dir = closed();
    let path = dir.path().join("target.json");
    let text = fs::read_to_string(&path).unwrap();
    let newer = text.replace("\"version\": 1", "\"version\": 2, \"more\": true");
    assert_ne!(newer, text);
    fs::write(&path, newer).unwrap();
    let error = refusal(dir.path());
    assert!(matches!(error, StoreError::NewerVersion { found: 2, known: 1, .. }), "{error}");
    let error = Store::create(&Environment::system(), dir.path(), POOL, TARGET).unwrap_err();
    assert!(matches!(error, StoreError::NewerVersion { .. }), "{error}");
    fs::write(&path, text).unwrap();
    try_open(dir.path()).unwrap();
}

#[test]
fn a_damaged_identity_is_refused() {
    let dir = closed();
    let path = dir.path().join("target.json");
    let text = fs::read_to_string(&path).unwrap();
    let other_format = text.replace("azekura-target", "other");
    let wrong_pool = text.replace("0707", "07");
    let too_long = "x".repeat(1 << 20);
    for damaged in ["", "{", "[]", &text[..text.len() / 2], &other_format, &wrong_pool, &too_long] {
        fs::write(&path, damaged).unwrap();
        assert!(matches!(refusal(dir.path()), StoreError::Damaged { .. }));
    }
}

#[test]
fn missing_parts_are_damage_and_never_made_anew() {
    for part in ["kv", "data", "kv/version", "kv/keyspaces", "kv/keyspaces/1", "kv/0.jnl"] {
        let dir = closed();
        let path = dir.path().join(part);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
        let error = refusal(dir.path());
        assert!(matches!(error, StoreError::Damaged { .. }), "{part}: {error}");
        assert!(!path.exists(), "{part}");
    }
}

#[test]
fn a_data_directory_that_is_gone_is_damage() {
    use crate::fixture::oid;
    let target = Fixture::new();
    let serial = 0x42;
    fs::remove_dir(target.dir.path().join("data/42")).unwrap();
    let error = target.store.shard_create(oid(serial), 0).err().unwrap();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let error = target.store.shard_list(&mut |_, _, _| {}).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn changed_tables_are_reported_and_never_read_as_data() {
    // Enough for tables on disk.
    let target = Fixture::new();
    for i in 0..12_000u32 {
        let mut batch = Batch::new();
        batch.put(Space::Inode, &i.to_be_bytes(), vec![i as u8; 2000]);
        target.store.commit(batch).unwrap();
    }
    let Fixture { store, dir } = target;
    drop(store);
    let mut changed = 0;
    for keyspace in fs::read_dir(dir.path().join("kv/keyspaces")).unwrap() {
        let Ok(tables) = fs::read_dir(keyspace.unwrap().path().join("tables")) else { continue };
        for table in tables {
            let path = table.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            let third = bytes.len() / 3;
            if bytes.len() > 1_000_000 {
                bytes[third..third + 60_000].fill(0xa5);
                fs::write(&path, bytes).unwrap();
                changed += 1;
            }
        }
    }
    assert!(changed > 0);
    let Ok(store) = try_open(dir.path()) else { return };
    let mut reported = 0;
    for i in 0..12_000u32 {
        match store.get(Space::Inode, &i.to_be_bytes()) {
            Ok(value) => assert_eq!(value.unwrap().to_vec(), vec![i as u8; 2000]),
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
                reported += 1;
            }
        }
    }
    assert!(reported > 0);
}
