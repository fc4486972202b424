//! Key-value objects.

use azekura_proto::Status;
use azekura_store::{KvCondition, KvOp, KvUpdate, Store};

use crate::fixture::{Fixture, oid};

fn update<'a>(
    dkey: &'a [u8],
    akey: &'a [u8],
    op: KvOp<'a>,
    condition: KvCondition<'a>,
) -> KvUpdate<'a> {
    KvUpdate { dkey, akey, op, condition }
}

fn set(store: &Store, serial: u64, dkey: &[u8], akey: &[u8], value: &[u8]) {
    let put = update(dkey, akey, KvOp::Put(value), KvCondition::None);
    store.kv_update(oid(serial), &[put]).unwrap();
}

#[test]
fn values_are_told_apart_by_object_dkey_and_akey() {
    let target = Fixture::new();
    let store = &target.store;
    set(store, 1, b"a", b"bc", b"1");
    set(store, 1, b"ab", b"c", b"2");
    set(store, 2, b"a", b"bc", b"3");
    set(store, 1, b"", b"", b"4");
    set(store, 1, b"a\0", b"", b"5");
    let value = |serial, dkey: &[u8], akey: &[u8]| {
        store.kv_get(oid(serial), dkey, akey).unwrap().map(|value| value.to_vec())
    };
    assert_eq!(value(1, b"a", b"bc"), Some(b"1".to_vec()));
    assert_eq!(value(1, b"ab", b"c"), Some(b"2".to_vec()));
    assert_eq!(value(2, b"a", b"bc"), Some(b"3".to_vec()));
    assert_eq!(value(1, b"", b""), Some(b"4".to_vec()));
    assert_eq!(value(1, b"a\0", b""), Some(b"5".to_vec()));
    assert_eq!(value(1, b"a", b""), None);
}

#[test]
fn an_update_is_made_whole_or_not_at_all() {
    let target = Fixture::new();
    let store = &target.store;
    set(store, 1, b"d", b"old", b"1");
    let refused = [
        update(b"d", b"new", KvOp::Put(b"2"), KvCondition::MustNotExist),
        update(b"d", b"old", KvOp::Punch, KvCondition::Equals(b"other")),
    ];
    let error = store.kv_update(oid(1), &refused).unwrap_err();
    assert_eq!(error.status(), Status::ConditionFailed);
    assert!(store.kv_get(oid(1), b"d", b"new").unwrap().is_none());
    let absent = update(b"d", b"none", KvOp::Put(b"2"), KvCondition::MustExist);
    assert!(store.kv_update(oid(1), &[absent]).is_err());

    let made = [
        update(b"d", b"new", KvOp::Put(b"2"), KvCondition::MustNotExist),
        update(b"d", b"old", KvOp::Punch, KvCondition::Equals(b"1")),
    ];
    store.kv_update(oid(1), &made).unwrap();
    assert_eq!(store.kv_list_akeys(oid(1), b"d", None, 10).unwrap(), [b"new"]);
}

#[test]
fn of_racing_inserts_one_wins() {
    let target = Fixture::new();
    for round in 0..50u32 {
        let dkey = round.to_be_bytes();
        let wins: usize = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..4u8)
                .map(|racer| {
                    let (store, dkey) = (&target.store, &dkey);
                    scope.spawn(move || {
                        let value = [racer];
                        let insert =
                            update(dkey, b"a", KvOp::Put(&value), KvCondition::MustNotExist);
                        usize::from(store.kv_update(oid(1), &[insert]).is_ok())
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        });
        assert_eq!(wins, 1);
    }
}

#[test]
fn listings_are_in_order_and_come_in_pages() {
    let target = Fixture::new();
    let store = &target.store;
    let mut dkeys: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i * 6, 0, i]).collect();
    dkeys.extend([vec![], vec![0], vec![0, 0], vec![0xff], vec![0xff, 0xff]]);
    dkeys.sort();
    for (i, dkey) in dkeys.iter().enumerate() {
        // Some dkeys have very many akeys, which a listing of dkeys does not have to read.
        for akey in 0..if i % 10 == 0 { 300u32 } else { 2 } {
            set(store, 5, dkey, &akey.to_be_bytes(), b"v");
        }
    }
    set(store, 4, b"before", b"a", b"v");
    set(store, 6, b"behind", b"a", b"v");
    for page in [1, 7, 1000] {
        let mut listed: Vec<Vec<u8>> = Vec::new();
        loop {
            let after = listed.last().cloned();
            let next = store.kv_list_dkeys(oid(5), after.as_deref(), page).unwrap();
            if next.is_empty() {
                break;
            }
            assert!(next.len() <= page);
            listed.extend(next);
        }
        assert_eq!(listed, dkeys);
    }
    let akeys = store.kv_list_akeys(oid(5), &dkeys[10], Some(&7u32.to_be_bytes()), 3).unwrap();
    assert_eq!(akeys, [8u32, 9, 10].map(|akey| akey.to_be_bytes().to_vec()));
    assert_eq!(store.kv_list_akeys(oid(5), b"nothing", None, 3).unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(store.kv_list_dkeys(oid(5), None, 0).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn punching_removes_what_it_names_and_nothing_else() {
    let target = Fixture::new();
    let store = &target.store;
    for akey in 0..1000u32 {
        set(store, 1, b"many", &akey.to_be_bytes(), b"v");
    }
    set(store, 1, b"many\0", b"a", b"v");
    set(store, 1, b"mani", b"a", b"v");
    set(store, 2, b"many", b"a", b"v");
    assert_eq!(store.kv_punch_dkey(oid(1), b"many").unwrap(), 1000);
    assert_eq!(store.kv_list_dkeys(oid(1), None, 9).unwrap(), [&b"mani"[..], b"many\0"]);
    assert_eq!(store.kv_punch_object(oid(1)).unwrap(), 2);
    assert_eq!(store.kv_punch_object(oid(1)).unwrap(), 0);
    assert_eq!(store.kv_list_dkeys(oid(1), None, 9).unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(store.kv_list_dkeys(oid(2), None, 9).unwrap(), [b"many"]);
}
