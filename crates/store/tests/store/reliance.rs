//! Commits that rely on those of another target: they are read at once, durable only after these, and
//! taken back where these are lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use azekura_proto::{Dependence, Dependences, Status, TargetId};
use azekura_store::{Batch, Space, Store, StoreError, Unsettled, Witnesses};
use parking_lot::Mutex;

use crate::fixture::{Fixture, TARGET, get};

const ELSEWHERE: Dependence = Dependence { target: TargetId(900), epoch: 5, seq: 7 };

/// The other target, which answers as the test wants.
struct Other {
    answer: Mutex<Result<(), Unsettled>>,
    asked: AtomicUsize,
}

impl Witnesses for Other {
    fn make_durable(&self, wanted: &Dependences) -> Result<(), Unsettled> {
        assert_eq!(*wanted, [ELSEWHERE].into_iter().collect());
        self.asked.fetch_add(1, Ordering::Relaxed);
        *self.answer.lock()
    }
}

fn other(answer: Result<(), Unsettled>) -> Arc<Other> {
    Arc::new(Other { answer: Mutex::new(answer), asked: AtomicUsize::new(0) })
}

fn attach(store: &Store, other: &Arc<Other>) {
    let other: Weak<Other> = Arc::downgrade(other);
    store.set_witnesses(other);
}

fn put(store: &Store, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    batch.put(Space::Entry, key, value);
    store.commit(batch)
}

fn rely(store: &Store) {
    assert!(store.observe(&[ELSEWHERE].into_iter().collect()));
}

fn listed(store: &Store) -> Vec<Vec<u8>> {
    let page = store.scan(Space::Entry, b"", None, usize::MAX).unwrap();
    page.into_iter().map(|(_, value)| value.to_vec()).collect()
}

fn last_own(store: &Store) -> Option<Dependence> {
    store.position().iter().find(|each| each.target == TARGET).copied()
}

#[test]
fn a_commit_waits_for_what_it_relies_on_and_is_read_meanwhile() {
    let mut fixture = Fixture::new();
    let silent = other(Err(Unsettled::Silent(ELSEWHERE.target)));
    attach(&fixture.store, &silent);
    for key in [b"a", b"c", b"e"] {
        put(&fixture.store, key, b"old").unwrap();
    }
    fixture.store.sync().unwrap();
    rely(&fixture.store);
    put(&fixture.store, b"b", b"new").unwrap();
    put(&fixture.store, b"c", b"new").unwrap();
    let mut batch = Batch::new();
    batch.delete(Space::Entry, b"e");
    fixture.store.commit(batch).unwrap();
    put(&fixture.store, b"f", b"new").unwrap();
    let shown: [&[u8]; 4] = [b"old", b"new", b"new", b"new"];
    for _ in 0..2 {
        assert_eq!(get(&fixture.store, Space::Entry, b"c"), Some(b"new".to_vec()));
        assert_eq!(listed(&fixture.store), shown);
        let page = fixture.store.scan(Space::Entry, b"", Some(b"a"), 1).unwrap();
        assert_eq!(page[0].0, b"b");
        let error = fixture.store.sync().unwrap_err();
        assert!(matches!(error, StoreError::Waits { target, .. } if target == ELSEWHERE.target));
        assert_eq!(error.status(), Status::PeerUnreachable);
        // Whoever hears of the target now relies on both.
        let relied_on = fixture.store.position();
        assert_eq!(relied_on.seq_of(ELSEWHERE.target, ELSEWHERE.epoch), Some(ELSEWHERE.seq));
        assert!(last_own(&fixture.store).is_some());
        // The end of the process changes nothing.
        fixture = fixture.reopen();
        attach(&fixture.store, &silent);
    }
    *silent.answer.lock() = Ok(());
    fixture.store.sync().unwrap();
    assert!(fixture.store.position().is_empty());
    assert!(silent.asked.load(Ordering::Relaxed) > 0);
    let fixture = fixture.reopen();
    assert_eq!(listed(&fixture.store), shown);
}

#[test]
fn what_relies_on_a_lost_commit_is_taken_back_for_good() {
    let fixture = Fixture::new();
    let lost = other(Err(Unsettled::Silent(ELSEWHERE.target)));
    attach(&fixture.store, &lost);
    put(&fixture.store, b"a", b"kept").unwrap();
    let kept = last_own(&fixture.store).unwrap();
    rely(&fixture.store);
    put(&fixture.store, b"b", b"relies").unwrap();
    put(&fixture.store, b"c", b"after it").unwrap();
    let dropped = last_own(&fixture.store).unwrap();
    assert!(fixture.store.hold(dropped.epoch, dropped.seq).unwrap());
    // The process ends in between: the answer comes to the next one.
    let fixture = fixture.reopen();
    attach(&fixture.store, &lost);
    assert!(fixture.store.hold(dropped.epoch, dropped.seq).unwrap());
    let mut numbers = Batch::new();
    numbers.put(Space::System, b"number", b"1");
    fixture.store.commit_aside(numbers).unwrap();
    put(&fixture.store, b"d", b"in the next epoch").unwrap();
    let dropped_too = last_own(&fixture.store).unwrap();

    *lost.answer.lock() = Err(Unsettled::Lost(ELSEWHERE));
    assert_eq!(fixture.store.sync().unwrap_err().status(), Status::Stopping);
    assert!(fixture.store.is_rolled_back());
    assert_eq!(put(&fixture.store, b"e", b"").unwrap_err().status(), Status::Stopping);
    assert!(!fixture.store.hold(dropped.epoch, dropped.seq).unwrap());

    let fixture = fixture.reopen();
    attach(&fixture.store, &lost);
    assert!(!fixture.store.is_rolled_back());
    assert_eq!(listed(&fixture.store), [b"kept"]);
    assert_eq!(get(&fixture.store, Space::System, b"number"), Some(b"1".to_vec()));
    put(&fixture.store, b"f", b"numbered as a lost one").unwrap();
    assert!(fixture.store.hold(kept.epoch, kept.seq).unwrap());
    for gone in [dropped, dropped_too] {
        assert!(!fixture.store.hold(gone.epoch, gone.seq).unwrap(), "{gone:?}");
        // Who relies on what was lost here does not make others rely on it.
        let heard = [gone, ELSEWHERE].into_iter().collect();
        assert!(!fixture.store.observe(&heard));
    }
    fixture.store.sync().unwrap();
}

/// More than the front keeps: whoever commits is told that it has to wait, and nothing that was answered
/// is lost.
#[test]
fn commits_are_refused_when_too_many_wait() {
    let fixture = Fixture::new();
    let silent = other(Err(Unsettled::Silent(ELSEWHERE.target)));
    attach(&fixture.store, &silent);
    rely(&fixture.store);
    let mut answered = 0u64;
    let refused = loop {
        match put(&fixture.store, &answered.to_be_bytes(), &answered.to_be_bytes()) {
            Ok(()) => answered += 1,
            Err(error) => break error,
        }
        assert!(answered < 1_000_000);
    };
    assert_eq!(refused.status(), Status::PeerUnreachable);
    // One too long for the journal has to wait as well.
    assert!(put(&fixture.store, b"long", &vec![0; 300_000]).is_err());
    *silent.answer.lock() = Ok(());
    put(&fixture.store, b"long", &vec![0; 300_000]).unwrap();
    fixture.store.sync().unwrap();
    assert_eq!(listed(&fixture.store).len() as u64, answered + 1);
}
