//! The object API: containers, values, arrays.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use azekura_client::{
    ArrayValues, ClientError, KeyCursor, Objects, PoolFile, ValueKind, akey_kind,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::message::{Condition, ValueUpdate};
use azekura_proto::{ObjectClass, Oid, Status};
use azekura_testkit::Cluster;

fn object(objects: &impl Objects, class: ObjectClass) -> Oid {
    let container = objects.container_open("default").unwrap().id;
    objects.allocate(container, class, 0xbeef, None).unwrap()
}

fn status<T>(result: Result<T, ClientError>) -> Status {
    result.err().and_then(|error| error.status()).expect("a status")
}

#[test]
fn values_are_put_under_conditions() {
    let cluster = Cluster::start(2, 2, Inheritance::default());
    let pool = cluster.pool();
    let oid = object(&*pool, ObjectClass::SX);
    assert_ne!(oid, object(&*pool, ObjectClass::SX));
    assert_eq!(pool.get(oid, b"d", b"a").unwrap(), None);
    pool.put(oid, b"d", b"a", b"1").unwrap();
    let update = |akey, value, condition| ValueUpdate { dkey: b"d", akey, value, condition };
    let insert = update(b"a", Some(b"2"), Condition::MustNotExist);
    assert_eq!(status(pool.update(oid, vec![insert])), Status::ConditionFailed);
    let batch = vec![
        update(b"b", Some(b"new"), Condition::Always),
        update(b"a", Some(b"2"), Condition::Equals(b"0")),
    ];
    assert_eq!(status(pool.update(oid, batch)), Status::ConditionFailed);
    assert_eq!(pool.get(oid, b"d", b"b").unwrap(), None, "a batch is all or nothing");
    let batch = vec![
        update(b"b", Some(b"new"), Condition::MustNotExist),
        update(b"a", Some(b"2"), Condition::Equals(b"1")),
    ];
    pool.update(oid, batch).unwrap();
    assert_eq!(pool.get(oid, b"d", b"a").unwrap().as_deref(), Some(&b"2"[..]));
    pool.update(oid, vec![update(b"a", None, Condition::MustExist)]).unwrap();
    let (akeys, end) = pool.list_akeys(oid, b"d", None, 10).unwrap();
    assert_eq!((akeys, end), (vec![b"b".to_vec()], true));
    pool.punch(oid, b"d").unwrap();
    assert_eq!(pool.get(oid, b"d", b"b").unwrap(), None);
}

#[test]
fn keys_of_all_shards_are_listed_in_pages() {
    let cluster = Cluster::start(2, 2, Inheritance::default());
    let pool = cluster.pool();
    let oid = object(&*pool, ObjectClass::SX);
    let mut made: Vec<Vec<u8>> = (0..90).map(|i| format!("key{i:03}").into_bytes()).collect();
    for key in &made {
        pool.put(oid, key, b"a", b"v").unwrap();
    }
    let mut listed = Vec::new();
    let mut cursor: Option<KeyCursor> = None;
    loop {
        let (keys, next) = pool.list_dkeys(oid, cursor, 7).unwrap();
        assert!(keys.len() <= 7);
        listed.extend(keys);
        match next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    made.sort();
    listed.sort();
    assert_eq!(made, listed);
    pool.punch_all(oid).unwrap();
    assert_eq!(pool.list_dkeys(oid, None, 7).unwrap(), (Vec::new(), None));
}

#[test]
fn arrays_are_striped_sparse_and_cut() {
    let cluster = Cluster::start(2, 2, Inheritance::default());
    let pool = cluster.pool();
    let (oid, chunk) = (object(&*pool, ObjectClass::S4), 4096);
    assert_eq!(pool.array_size(oid, chunk).unwrap(), 0);
    let data: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8 + 1).collect();
    pool.array_write(oid, chunk, 10_000, &data).unwrap();
    assert_eq!(pool.array_size(oid, chunk).unwrap(), 60_000);
    let mut buffer = vec![9; 80_000];
    assert_eq!(pool.array_read(oid, chunk, 0, &mut buffer).unwrap(), 60_000);
    assert!(buffer[..10_000].iter().all(|byte| *byte == 0));
    assert!(buffer[10_000..60_000] == data);
    pool.array_truncate(oid, chunk, 30_000).unwrap();
    assert_eq!(pool.array_size(oid, chunk).unwrap(), 30_000);
    pool.array_truncate(oid, chunk, 40_000).unwrap();
    assert_eq!(pool.array_read(oid, chunk, 25_000, &mut buffer).unwrap(), 15_000);
    assert!(buffer[..5000] == data[15_000..20_000]);
    assert!(buffer[5000..15_000].iter().all(|byte| *byte == 0));
    pool.array_sync(oid).unwrap();
    pool.array_remove(oid).unwrap();
    assert_eq!(pool.array_size(oid, chunk).unwrap(), 0);
}

#[test]
fn records_lie_under_keys_on_the_target_of_the_dkey() {
    let cluster = Cluster::start(2, 2, Inheritance::default());
    let pool = cluster.pool();
    let oid = object(&*pool, ObjectClass::SX);
    let arrays = ArrayValues::new(&pool, oid);
    let dkeys: Vec<Vec<u8>> = (0..20).map(|i| format!("d{i}").into_bytes()).collect();
    let mut data = Vec::new();
    for dkey in &dkeys {
        assert_eq!(arrays.find(dkey, b"r").unwrap(), None);
        let array = arrays.find_or_make(dkey, b"r", 12).unwrap();
        assert_eq!(arrays.find_or_make(dkey, b"r", 12).unwrap(), array);
        assert_eq!(status(arrays.find_or_make(dkey, b"r", 13)), Status::Invalid);
        arrays.write_bytes(array, 7 * 12, &[5; 24]).unwrap();
        assert_eq!(arrays.records(array).unwrap(), 9);
        let mut back = [1; 48];
        arrays.read_bytes(array, 6 * 12, &mut back).unwrap();
        assert_eq!(back, std::array::from_fn(|at| if (12..36).contains(&at) { 5 } else { 0 }));
        let (first, records) = arrays.next_extent(array, 0).unwrap().unwrap();
        assert!(first <= 7 && first + records == 9);
        assert_eq!(arrays.next_extent(array, 9).unwrap(), None);
        let descriptor = pool.get(oid, dkey, b"\0array\0\0r").unwrap().unwrap();
        let kept = Oid::from_bytes(&descriptor[8..]).unwrap();
        assert_eq!(kept.home(), pool.placement().dkey_target(oid, dkey));
        data.push(kept);
    }
    // Either kind keeps the other from its akey.
    let always = Condition::Always;
    assert_eq!(status(arrays.put_singles(b"d3", &[(b"r", b"x", always)])), Status::Invalid);
    arrays.put_singles(b"d3", &[(b"s", b"x", always), (b"t", b"y", always)]).unwrap();
    assert_eq!(status(arrays.find_or_make(b"d3", b"s", 4)), Status::Invalid);
    let missing = [(b"u".as_slice(), b"x".as_slice(), Condition::MustExist)];
    assert_eq!(status(arrays.put_singles(b"d3", &missing)), Status::ConditionFailed);
    let (akeys, _) = pool.list_akeys(oid, b"d3", None, 10).unwrap();
    let kinds: Vec<_> = akeys.iter().map(|akey| akey_kind(akey)).collect();
    let single = |akey: &'static [u8]| (ValueKind::Single, akey);
    assert_eq!(kinds, [(ValueKind::Array, b"r".as_slice()), single(b"s"), single(b"t")]);

    let left = |gone: usize| pool.array_size(data[gone], 1 << 20).unwrap();
    assert!(arrays.remove(b"d0", b"r").unwrap());
    assert!(!arrays.remove(b"d0", b"r").unwrap());
    assert_eq!((left(0), left(3)), (0, 108));
    arrays.remove_dkey(b"d3").unwrap();
    assert_eq!((left(3), left(4)), (0, 108));
    assert_eq!(pool.get(oid, b"d3", b"s").unwrap(), None);
    arrays.remove_all().unwrap();
    assert!((0..data.len()).all(|index| left(index) == 0));
    assert_eq!(pool.list_dkeys(oid, None, 10).unwrap(), (vec![], None));
}

#[test]
fn containers_come_change_and_go() {
    let cluster = Cluster::start(2, 1, Inheritance::default());
    let pool = cluster.pool();
    let small = Inheritance { chunk_bytes: 8192, ..Inheritance::default() };
    let made = pool.container_create("second", Inheritance::default()).unwrap();
    assert_eq!(status(pool.container_create("second", small)), Status::Exists);
    let changed = pool.container_change("second", small).unwrap();
    assert_eq!((changed.id, changed.inheritance), (made.id, small));
    let mut names: Vec<String> =
        pool.container_list().unwrap().into_iter().map(|container| container.name).collect();
    names.sort();
    assert_eq!(names, ["default", "second"]);
    pool.container_destroy("second").unwrap();
    assert_eq!(status(pool.container_open("second")), Status::NotFound);
}

#[test]
fn pool_files_are_private_and_read_back() {
    use std::os::unix::fs::PermissionsExt as _;
    let cluster = Cluster::start(1, 1, Inheritance::default());
    std::fs::create_dir_all(cluster.scratch()).unwrap();
    let path = cluster.scratch().join("pool.toml");
    cluster.file().save(&path).unwrap();
    assert_eq!(&PoolFile::load(&path).unwrap(), cluster.file());
    assert_eq!(&PoolFile::find(path.to_str().unwrap()).unwrap(), cluster.file());
    let inline = PoolFile {
        secret: azekura_client::SecretSource::Inline("ab".repeat(32)),
        ..cluster.file().clone()
    };
    inline.save(&path).unwrap();
    assert_eq!(PoolFile::load(&path).unwrap(), inline);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = PoolFile::load(&path).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    std::fs::write(&path, "name = 1").unwrap();
    let error = PoolFile::load(&path).unwrap_err().to_string();
    assert!(error.contains("pool.toml"), "{error}");
    let error = PoolFile::find("no-such-pool-anywhere").unwrap_err().to_string();
    assert!(error.contains("azekura up"), "{error}");
}
