//! Keys, batches and scans.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura_proto::Status;
use azekura_store::{Batch, Space, Store};
use proptest::prelude::*;

use crate::fixture::{Fixture, delete, get, put};

const SPACES: [Space; 10] = [
    Space::System,
    Space::Entry,
    Space::Inode,
    Space::DirShard,
    Space::Xattr,
    Space::Kv,
    Space::Reply,
    Space::Transaction,
    Space::Reclaim,
    Space::Orphan,
];

fn keys(store: &Store, space: Space, prefix: &[u8]) -> Vec<Vec<u8>> {
    store.scan(space, prefix, None, usize::MAX).unwrap().into_iter().map(|(key, _)| key).collect()
}

#[test]
fn spaces_do_not_mix() {
    let target = Fixture::new();
    for (i, space) in SPACES.into_iter().enumerate() {
        put(&target.store, space, b"same key", &[i as u8]);
    }
    for (i, space) in SPACES.into_iter().enumerate() {
        assert_eq!(get(&target.store, space, b"same key"), Some(vec![i as u8]));
        assert_eq!(keys(&target.store, space, b""), [b"same key"]);
        delete(&target.store, space, b"same key");
        assert_eq!(get(&target.store, space, b"same key"), None);
    }
}

#[test]
fn a_batch_may_touch_every_space_and_survives_a_reopening() {
    let target = Fixture::new();
    let mut batch = Batch::new();
    for space in SPACES {
        batch.put(space, b"a", b"1".as_slice());
        batch.put(space, b"b", vec![2; 100_000]);
        batch.delete(space, b"a");
    }
    assert_eq!(batch.len(), 30);
    target.store.commit(batch).unwrap();
    let target = target.reopen();
    for space in SPACES {
        assert_eq!(get(&target.store, space, b"a"), None);
        assert_eq!(get(&target.store, space, b"b"), Some(vec![2; 100_000]));
    }
}

#[test]
fn an_empty_batch_and_an_empty_value_are_fine() {
    let target = Fixture::new();
    target.store.commit(Batch::new()).unwrap();
    put(&target.store, Space::Inode, b"", b"");
    assert_eq!(get(&target.store, Space::Inode, b""), Some(vec![]));
}

#[test]
fn a_key_beyond_all_bounds_is_refused() {
    let target = Fixture::new();
    let mut batch = Batch::new();
    batch.put(Space::Inode, b"good", b"1");
    batch.put(Space::Inode, &vec![1; 100_000], b"1");
    assert_eq!(target.store.commit(batch).unwrap_err().status(), Status::Invalid);
    assert_eq!(get(&target.store, Space::Inode, b"good"), None);
}

#[test]
fn a_scan_gives_keys_in_order_below_its_prefix() {
    let target = Fixture::new();
    for key in [&b"a"[..], b"b", b"b\0", b"b\xff", b"b\xff\xff", b"c", b"\xff", b"\xff\xff"] {
        put(&target.store, Space::Entry, key, b"");
    }
    let store = &target.store;
    assert_eq!(keys(store, Space::Entry, b"b"), [&b"b"[..], b"b\0", b"b\xff", b"b\xff\xff"]);
    assert_eq!(keys(store, Space::Entry, b"b\xff"), [&b"b\xff"[..], b"b\xff\xff"]);
    assert_eq!(keys(store, Space::Entry, b"\xff"), [&b"\xff"[..], b"\xff\xff"]);
    assert_eq!(keys(store, Space::Entry, b"").len(), 8);
    assert_eq!(keys(store, Space::Inode, b""), Vec::<Vec<u8>>::new());

    let page = |after: &[u8], limit| -> Vec<Vec<u8>> {
        let page = store.scan(Space::Entry, b"b", Some(after), limit).unwrap();
        page.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(page(b"b", 2), [&b"b\0"[..], b"b\xff"]);
    assert_eq!(page(b"b\xff", 9), [b"b\xff\xff"]);
    assert_eq!(page(b"a", 1), [b"b"]);
    assert_eq!(page(b"c", 9), Vec::<Vec<u8>>::new());
    assert_eq!(page(b"b", 0), Vec::<Vec<u8>>::new());
}

#[test]
fn a_visitor_may_use_the_store() {
    let target = Fixture::new();
    for i in 0..10u8 {
        put(&target.store, Space::Reclaim, &[i], &[i]);
    }
    let mut seen = 0;
    target
        .store
        .scan_visit(Space::Reclaim, b"", None, |key, value| {
            assert_eq!(get(&target.store, Space::Reclaim, key), Some(value.to_vec()));
            delete(&target.store, Space::Reclaim, key);
            seen += 1;
            if seen == 6 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(keys(&target.store, Space::Reclaim, b"").len(), 4);
}

#[test]
fn pages_hold_every_key_that_stays_while_others_come_and_go() {
    let target = Fixture::new();
    let key = |i: u32| i.to_be_bytes();
    for i in (0..4000).step_by(2) {
        put(&target.store, Space::Entry, &key(i), b"stays");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 1;
            while !done.load(Ordering::Relaxed) {
                put(&target.store, Space::Entry, &key(i), b"comes");
                delete(&target.store, Space::Entry, &key(i));
                i = (i + 38) % 4000;
            }
        });
        for _ in 0..5 {
            let (mut kept, mut after) = (Vec::new(), None::<Vec<u8>>);
            loop {
                let page = target.store.scan(Space::Entry, b"", after.as_deref(), 17).unwrap();
                let Some((last, _)) = page.last() else { break };
                assert!(page.is_sorted_by(|a, b| a.0 < b.0));
                assert!(after.is_none_or(|after| after < page[0].0));
                after = Some(last.clone());
                kept.extend(page.into_iter().filter(|(_, value)| *value == b"stays"));
            }
            assert_eq!(kept.len(), 2000);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn more_than_the_memtables_hold_is_found_again() {
    let target = Fixture::new();
    let value = |i: u32| vec![i as u8; 2000];
    for i in 0..30_000u32 {
        let mut batch = Batch::new();
        batch.put(Space::Inode, &i.to_be_bytes(), value(i));
        batch.put(Space::Reply, &(i % 8).to_be_bytes(), value(i));
        target.store.commit(batch).unwrap();
    }
    let check = |store: &Store| {
        for i in (0..30_000u32).step_by(97) {
            assert_eq!(get(store, Space::Inode, &i.to_be_bytes()), Some(value(i)), "{i}");
        }
        assert_eq!(get(store, Space::Reply, &7u32.to_be_bytes()), Some(value(29_999)));
        assert_eq!(keys(store, Space::Inode, b"").len(), 30_000);
    };
    check(&target.store);
    assert!(target.store.space().unwrap().key_value_bytes > 1_000_000);
    check(&target.reopen().store);
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(u8, u8, Option<u8>)>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0..3u8, 0..12u8, proptest::option::of(any::<u8>()));
    prop_oneof![
        12 => proptest::collection::vec(change, 1..40).prop_map(Step::Commit),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Batches, gets and scans behave like a sorted map, also across reopening.
    #[test]
    fn it_behaves_like_a_sorted_map(steps in proptest::collection::vec(step(), 1..60)) {
        const USED: [Space; 3] = [Space::Inode, Space::DirShard, Space::Kv];
        let mut target = Fixture::new();
        let mut model: BTreeMap<(u8, u8), u8> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Commit(changes) => {
                    let mut batch = Batch::new();
                    for (space, key, value) in changes {
                        let used = USED[usize::from(space)];
                        if let Some(value) = value {
                            batch.put(used, &[key], [value]);
                            model.insert((space, key), value);
                        } else {
                            batch.delete(used, &[key]);
                            model.remove(&(space, key));
                        }
                    }
                    target.store.commit(batch).unwrap();
                }
                Step::Reopen => target = target.reopen(),
            }
            for (i, space) in USED.into_iter().enumerate() {
                let mut expected = Vec::new();
                for key in 0..12u8 {
                    let value = model.get(&(i as u8, key)).map(|value| vec![*value]);
                    prop_assert_eq!(get(&target.store, space, &[key]), value.clone());
                    expected.extend(value.map(|value| (vec![key], value)));
                }
                let found: Vec<_> = target.store.scan(space, b"", None, 100).unwrap()
                    .into_iter().map(|(key, value)| (key, value.to_vec())).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
