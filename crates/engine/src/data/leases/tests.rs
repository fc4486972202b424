//! What the leases promise, seen from several sessions.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::virtual_time::VirtualTime;
use azekura_platform::Platform as _;
use azekura_proto::{ContainerId, ObjectClass, TargetId};

const ONE: SessionId = SessionId([1; 16]);
const TWO: SessionId = SessionId([2; 16]);
const NONE: Given = Given { read: false, write: false, names: false };

fn key() -> Key {
    (Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), 7), 3)
}

impl Leases {
    /// Nobody changes the data who does not ask here.
    fn grant_read_alone(&self, key: Key, session: SessionId) -> Granted {
        self.grant_read(key, session, || false)
    }

    /// Nobody looks at the shard who does not ask here.
    fn grant_write_alone(&self, key: Key, session: SessionId, instead_of: Option<u64>) -> Granted {
        self.grant_write(key, session, instead_of, || false)
    }
}

fn leases_of(boot: u64, earlier: Given) -> (Arc<Leases>, Arc<VirtualTime>) {
    let time = VirtualTime::new();
    (Arc::new(Leases::new(time.clone(), boot, earlier)), time)
}

fn leases() -> (Arc<Leases>, Arc<VirtualTime>) {
    leases_of(1, NONE)
}

/// Has something done with the leases while somebody waits.
fn after(
    (leases, time): (&Arc<Leases>, &Arc<VirtualTime>),
    delay: Duration,
    act: impl FnOnce(&Leases) + Send + 'static,
) {
    let leases = Arc::clone(leases);
    time.after(delay, move || act(&leases));
}

#[test]
fn a_write_waits_for_the_read_lease_of_another_and_ends_the_giving_of_leases() {
    let (leases, time) = leases();
    let first = leases.grant_read_alone(key(), ONE);
    assert_eq!(first.lease, READ);
    leases.before_write(key(), Some(TWO));
    assert_eq!(time.passed(), READ);
    let second = leases.grant_read_alone(key(), ONE);
    assert_eq!(second.lease, Duration::ZERO);
    assert_ne!(second.version, first.version);
    // Nobody holds one now: no waiting, but another version.
    leases.before_write(key(), Some(TWO));
    assert_eq!(time.passed(), READ);
    assert_ne!(leases.grant_read_alone(key(), ONE).version, second.version);
    time.sleep(REFUSAL);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, READ, "refused for a while only");
}

#[test]
fn a_change_that_waits_for_nobody_lets_leases_go_on_being_given() {
    let (leases, time) = leases();
    // Somebody has read the file, a while ago.
    leases.grant_read_alone(key(), ONE);
    time.sleep(READ);
    // Another writes it, and cuts it.
    drop(leases.before_write(key(), Some(TWO)));
    drop(leases.before_write(key(), None));
    assert_eq!(time.passed(), READ);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, READ);
    // The same after writes in flight.
    let other = (key().0, 4);
    let written = leases.grant_write_alone(other, TWO, None);
    leases.release(other, TWO, written.version);
    drop(leases.before_write(other, None));
    assert_eq!(leases.grant_read_alone(other, ONE).lease, READ);
}

#[test]
fn a_lease_whose_reader_has_gone_is_waited_for_and_keeps_nobody_else_from_one() {
    let (leases, time) = leases();
    leases.grant_read_alone(key(), ONE);
    leases.reader_left(ONE);
    // Meanwhile nobody gets another, or the writer would wait for that as well.
    after((&leases, &time), READ / 2, |leases| {
        assert_eq!(leases.grant_read_alone(key(), ONE).lease, Duration::ZERO);
    });
    drop(leases.before_write(key(), Some(TWO)));
    assert_eq!(time.passed(), READ);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, READ);
    // It has come back.
    drop(leases.before_write(key(), Some(TWO)));
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, Duration::ZERO);
}

#[test]
fn who_reads_what_others_go_on_writing_gets_no_lease_until_they_pause() {
    let (leases, time) = leases();
    leases.grant_read_alone(key(), ONE);
    leases.before_write(key(), Some(TWO));
    for _ in 0..10 {
        time.sleep(REFUSAL / 2);
        leases.before_write(key(), Some(TWO));
        assert_eq!(leases.grant_read_alone(key(), ONE).lease, Duration::ZERO);
    }
    assert_eq!(time.passed(), READ + REFUSAL / 2 * 10, "nobody waits any more");
    time.sleep(REFUSAL);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, READ);
}

#[test]
fn no_read_lease_is_given_while_a_change_is_carried_out() {
    let (leases, time) = leases();
    // Nobody has a lease when it begins, so nothing says later that it has.
    let change = leases.before_write(key(), Some(TWO));
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, Duration::ZERO);
    time.sleep(REFUSAL);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, Duration::ZERO, "however long it takes");
    drop(change);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, READ);
}

#[test]
fn the_reader_itself_does_not_wait_and_keeps_its_lease() {
    let (leases, time) = leases();
    let first = leases.grant_read_alone(key(), ONE);
    leases.before_write(key(), Some(ONE));
    assert_eq!(time.passed(), Duration::ZERO);
    let second = leases.grant_read_alone(key(), ONE);
    assert_eq!(second.lease, READ);
    assert_ne!(second.version, first.version);
}

#[test]
fn a_second_reader_makes_the_first_wait_too() {
    let (leases, time) = leases();
    leases.grant_read_alone(key(), ONE);
    leases.grant_read_alone(key(), TWO);
    leases.before_write(key(), Some(ONE));
    assert_eq!(time.passed(), READ);
}

#[test]
fn renewals_do_not_hold_up_a_writer_for_ever() {
    let (leases, time) = leases();
    leases.grant_read_alone(key(), ONE);
    for tenth in 1..20 {
        after((&leases, &time), READ / 10 * tenth, |leases| {
            leases.grant_read_alone(key(), ONE);
        });
    }
    leases.before_write(key(), Some(TWO));
    assert_eq!(time.passed(), READ);
}

#[test]
fn versions_of_two_runs_never_meet_and_a_restart_keeps_old_promises() {
    let before = leases().0.grant_read_alone(key(), ONE);
    let (leases, time) = leases_of(2, Given { read: true, ..NONE });
    leases.before_write(key(), Some(TWO));
    assert_eq!(time.passed(), READ);
    assert_ne!(leases.grant_read_alone(key(), ONE).version, before.version);
}

#[test]
fn everybody_but_the_holder_waits_for_a_write_lease() {
    for act in [
        |leases: &Leases, who| leases.before_read(key(), Some(who)),
        |leases: &Leases, who| drop(leases.before_write(key(), Some(who))),
        |leases: &Leases, who| {
            leases.grant_read_alone(key(), who);
        },
    ] {
        let (leases, time) = leases();
        let granted = leases.grant_write_alone(key(), ONE, None);
        assert_eq!(granted.lease, WRITE);
        act(&leases, ONE);
        assert_eq!(time.passed(), Duration::ZERO);
        act(&leases, TWO);
        assert!(time.passed() >= WRITE);
        // Its time is over, and others write and read here.
        assert_eq!(leases.begin_write(key(), ONE, granted.version), None);
        assert_eq!(leases.grant_write_alone(key(), ONE, None).lease, Duration::ZERO);
    }
}

#[test]
fn a_lease_that_is_given_back_is_waited_for_no_longer() {
    // Who waits is woken, which takes a second thread.
    let leases = Leases::new(azekura_platform::system(), 1, NONE);
    let granted = leases.grant_write_alone(key(), ONE, None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| leases.before_read(key(), None));
        std::thread::sleep(WRITE / 50);
        leases.release(key(), ONE, granted.version);
    });
    assert!(start.elapsed() < WRITE);
    leases.before_write(key(), Some(TWO));
    assert!(start.elapsed() < WRITE);
}

#[test]
fn a_lease_is_not_renewed_while_somebody_waits() {
    let (leases, time) = leases();
    let granted = leases.grant_write_alone(key(), ONE, None);
    let refused = Arc::new(AtomicBool::new(false));
    for twentieth in 1..40 {
        let refused = Arc::clone(&refused);
        after((&leases, &time), WRITE / 20 * twentieth, move |leases| {
            if let Some(renewed) = leases.begin_write(key(), ONE, granted.version) {
                leases.end_write(key(), granted.version);
                refused.fetch_or(renewed.lease.is_zero(), Ordering::Relaxed);
            }
        });
    }
    leases.before_read(key(), Some(TWO));
    assert!(refused.load(Ordering::Relaxed));
    assert!(time.passed() >= WRITE && time.passed() < WRITE * 2);
    assert_eq!(leases.begin_write(key(), ONE, granted.version), None);
}

#[test]
fn a_lease_that_ran_out_is_current_until_somebody_else_comes() {
    let (leases, time) = leases();
    let granted = leases.grant_write_alone(key(), ONE, None);
    time.sleep(WRITE + Duration::from_millis(10));
    assert!(leases.begin_write(key(), ONE, granted.version).is_some());
    leases.end_write(key(), granted.version);
    assert_eq!(leases.begin_write(key(), TWO, granted.version), None);
    assert_eq!(leases.begin_write(key(), ONE, granted.version + 1), None);
}

#[test]
fn a_new_epoch_ends_the_old_one() {
    let (leases, _) = leases();
    let first = leases.grant_write_alone(key(), ONE, None);
    let second = leases.grant_write_alone(key(), ONE, Some(first.version));
    assert_eq!(second.lease, WRITE);
    assert_eq!(leases.begin_write(key(), ONE, first.version), None);
    assert!(leases.begin_write(key(), ONE, second.version).is_some());
    leases.end_write(key(), second.version);
    // Somebody else's, or one that is long over.
    assert_eq!(leases.grant_write_alone(key(), TWO, Some(second.version)).lease, Duration::ZERO);
    assert_eq!(leases.grant_write_alone(key(), ONE, Some(first.version)).lease, Duration::ZERO);
}

#[test]
fn a_late_release_of_an_old_epoch_does_not_end_a_new_lease() {
    let (leases, _) = leases();
    let first = leases.grant_write_alone(key(), ONE, None);
    // Its release is on the way on another connection when the client asks anew.
    let second = leases.grant_write_alone(key(), ONE, None);
    assert_eq!(second.lease, WRITE);
    assert_ne!(second.version, first.version);
    leases.release(key(), ONE, first.version);
    assert!(leases.would_wait(key(), Some(TWO)));
    assert!(leases.begin_write(key(), ONE, second.version).is_some());
    leases.end_write(key(), second.version);
}

#[test]
fn a_grant_waits_for_the_own_writes_under_way() {
    let (leases, time) = leases();
    let first = leases.grant_write_alone(key(), ONE, None);
    leases.begin_write(key(), ONE, first.version).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    after((&leases, &time), WRITE / 20, move |leases| {
        leases.end_write(key(), first.version);
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(leases.grant_write_alone(key(), ONE, None).lease, WRITE);
    assert!(seen.load(Ordering::Relaxed));
}

#[test]
fn a_refused_renewal_ends_the_old_epoch_and_others_still_wait() {
    let (leases, time) = leases();
    let granted = leases.grant_write_alone(key(), ONE, None);
    let renewed = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&renewed);
    after((&leases, &time), WRITE / 10, move |leases| {
        let again = leases.grant_write_alone(key(), ONE, Some(granted.version));
        let late = leases.begin_write(key(), ONE, granted.version);
        renewed.store(!again.lease.is_zero() || late.is_some(), Ordering::Relaxed);
    });
    leases.before_read(key(), Some(TWO));
    assert!(!seen.load(Ordering::Relaxed));
    assert!(time.passed() >= WRITE);
}

#[test]
fn who_would_wait_is_known_without_waiting() {
    let (leases, _) = leases();
    assert!(!leases.would_wait(key(), None));
    let granted = leases.grant_write_alone(key(), ONE, None);
    assert!(!leases.would_wait(key(), Some(ONE)));
    assert!(leases.would_wait(key(), Some(TWO)));
    assert!(!leases.would_wait((key().0, 4), Some(TWO)));
    leases.release(key(), ONE, granted.version);
    assert!(!leases.would_wait(key(), Some(TWO)));
}

#[test]
fn a_write_under_way_outlasts_its_lease() {
    let (leases, time) = leases();
    let granted = leases.grant_write_alone(key(), ONE, None);
    leases.begin_write(key(), ONE, granted.version).unwrap();
    after((&leases, &time), WRITE + WRITE / 10, move |leases| {
        leases.end_write(key(), granted.version);
    });
    leases.before_read(key(), Some(TWO));
    assert!(time.passed() >= WRITE + WRITE / 10);
}

#[test]
fn readers_keep_a_write_lease_away_and_the_end_of_a_session_frees_it() {
    let (leases, time) = leases();
    leases.grant_read_alone(key(), TWO);
    assert_eq!(leases.grant_write_alone(key(), ONE, None).lease, Duration::ZERO);
    let other = (key().0, 4);
    assert_eq!(leases.grant_write_alone(other, ONE, None).lease, WRITE);
    assert_eq!(leases.grant_write_alone(other, TWO, None).lease, Duration::ZERO);
    leases.drop_session(ONE);
    leases.before_read(other, Some(TWO));
    assert_eq!(time.passed(), Duration::ZERO);
}

#[test]
fn nobody_waits_for_a_reader_whose_session_is_over() {
    let (leases, time) = leases();
    leases.grant_read_alone(key(), ONE);
    leases.drop_session(TWO);
    leases.drop_session(ONE);
    leases.before_write(key(), Some(TWO));
    assert_eq!(time.passed(), Duration::ZERO);
    // Of several readers one is left, and nobody knows which.
    let other = (key().0, 4);
    leases.grant_read_alone(other, ONE);
    leases.grant_read_alone(other, TWO);
    leases.drop_session(ONE);
    leases.before_write(other, None);
    assert_eq!(time.passed(), READ);
}

#[test]
fn after_a_restart_the_holder_comes_first() {
    let before = leases().0.grant_write_alone(key(), ONE, None);
    let (leases, time) = leases_of(2, Given { write: true, ..NONE });
    assert_eq!(leases.grant_write_alone(key(), TWO, None).lease, Duration::ZERO);
    let after = leases.grant_write_alone(key(), ONE, Some(before.version));
    assert_eq!(after.lease, WRITE);
    assert_ne!(after.version, before.version);
    leases.before_write(key(), Some(ONE));
    leases.before_read(key(), Some(ONE));
    assert_eq!(time.passed(), Duration::ZERO);
    leases.before_read((key().0, 0), Some(TWO));
    assert_eq!(time.passed(), WRITE);
    // Too late for whoever comes now.
    assert_eq!(
        leases.grant_write_alone((key().0, 1), ONE, Some(before.version)).lease,
        Duration::ZERO
    );
}

#[test]
fn names_are_waited_for_by_themselves() {
    let before = leases().0.grant_names(key(), ONE, None);
    // Who has leased data only keeps nobody from names after a restart.
    let (leases, time) = leases_of(2, Given { write: true, ..NONE });
    leases.before_look_up(key(), Some(TWO));
    assert!(!leases.is_withheld(key(), None));
    assert_eq!(time.passed(), Duration::ZERO);
    let (leases, time) = leases_of(2, Given { names: true, ..NONE });
    leases.before_read(key(), Some(TWO));
    assert_eq!(time.passed(), Duration::ZERO);
    assert_eq!(leases.grant_names(key(), TWO, None).lease, Duration::ZERO);
    assert_eq!(leases.grant_names(key(), ONE, Some(before.version)).lease, WRITE);
    assert!(leases.is_withheld(key(), Some(TWO)) && !leases.is_withheld(key(), Some(ONE)));
    let (waited_for, other) = (leases.begin_write(key(), ONE, u64::MAX), (key().0, 0));
    assert_eq!(waited_for, None);
    leases.before_look_up(other, Some(TWO));
    assert_eq!(time.passed(), WRITE);
    leases.before_look_up(key(), Some(TWO));
    assert!(!leases.is_withheld(key(), Some(TWO)), "the lease is over");
}

#[test]
fn a_name_stays_while_somebody_else_relies_on_it() {
    let (leases, time) = leases();
    assert!(leases.try_change(key(), None).is_some(), "nobody does");
    let first = leases.grant_read_alone(key(), ONE);
    drop(leases.try_change(key(), Some(ONE)).unwrap());
    let second = leases.grant_read_alone(key(), ONE);
    assert_ne!(second.version, first.version);
    assert!(leases.try_change(key(), Some(TWO)).is_none());
    assert!(leases.try_change(key(), None).is_none(), "who does not say who it is, neither");
    assert_eq!(
        leases.grant_read_alone(key(), ONE).lease,
        Duration::ZERO,
        "whoever waits has its turn"
    );
    time.sleep(READ);
    let change = leases.try_change(key(), Some(TWO)).unwrap();
    time.sleep(REFUSAL);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, Duration::ZERO, "it is being changed");
    drop(change);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, READ);
}

#[test]
fn who_relies_on_all_names_is_waited_for_by_whoever_makes_one() {
    let (leases, time) = leases();
    let is_kept = |who| leases.keeps_names_away(key(), who);
    // Who relies on names that are there does not mind new ones.
    leases.grant_read_alone(key(), ONE);
    assert!(!is_kept(Some(TWO)));
    assert_eq!(leases.grant_all_names(key(), ONE).lease, READ);
    assert!(!is_kept(Some(ONE)), "its own are known to itself");
    time.sleep(READ / 2);
    assert_eq!(leases.grant_read_alone(key(), ONE).lease, READ);
    assert!(is_kept(Some(TWO)) && is_kept(None));
    leases.before_insert(key(), Some(TWO));
    assert_eq!(time.passed(), READ, "by the lease of names that are there nobody waits");
    assert!(!is_kept(Some(TWO)));
    // Whoever makes names has its turn.
    assert_eq!(leases.grant_all_names(key(), ONE).lease, Duration::ZERO);
    time.sleep(READ + REFUSAL);
    assert_eq!(leases.grant_all_names(key(), ONE).lease, READ);
    assert_eq!(leases.grant_all_names(key(), TWO).lease, READ);
    assert!(is_kept(Some(ONE)) && is_kept(Some(TWO)), "each for the other");
    assert_eq!(leases.grant_names(key(), TWO, None).lease, Duration::ZERO);
    leases.drop_session(ONE);
    assert!(is_kept(Some(TWO)), "of several nobody is told apart");
    time.sleep(READ);
    assert!(!is_kept(Some(TWO)));
    // As long as names are made by others they wait no more.
    for _ in 0..4 {
        time.sleep(REFUSAL / 2);
        assert!(!is_kept(Some(TWO)));
        assert_eq!(leases.grant_all_names(key(), ONE).lease, Duration::ZERO);
    }
    // A lease to write is waited for by who wants to read.
    time.sleep(REFUSAL);
    assert_eq!(leases.grant_names(key(), TWO, None).lease, WRITE);
    let before = time.passed();
    assert_eq!(leases.grant_all_names(key(), ONE).lease, READ);
    assert_eq!(time.passed().checked_sub(before), Some(WRITE));
}

#[test]
fn names_that_an_earlier_run_gave_leases_of_stay_for_as_long() {
    let (leases, time) = leases_of(2, Given { read: true, ..NONE });
    assert!(leases.try_change(key(), Some(ONE)).is_none());
    assert!(leases.keeps_names_away(key(), Some(ONE)));
    leases.before_insert(key(), Some(ONE));
    assert_eq!(time.passed(), READ);
    assert!(!leases.keeps_names_away(key(), Some(ONE)));
    assert!(leases.try_change(key(), Some(ONE)).is_some());
}

#[test]
fn nobody_writes_early_while_somebody_looks_past_the_leases() {
    let (leases, time) = leases();
    assert_eq!(leases.grant_write(key(), ONE, None, || true).lease, Duration::ZERO);
    let granted = leases.grant_write(key(), ONE, None, || false);
    assert_eq!(granted.lease, WRITE, "nobody looks any more, and nobody had to wait");
    // While the lease holds nobody begins to look, its holder neither, and nobody waits for that.
    assert_eq!(leases.while_unwritten(key(), || ()), None);
    assert_eq!(leases.while_unwritten((key().0, 4), || ()), Some(()), "another shard");
    assert_eq!(time.passed(), Duration::ZERO);
    // It is not taken up anew under somebody's eyes, and what comes late is refused.
    assert_eq!(
        leases.grant_write(key(), ONE, Some(granted.version), || true).lease,
        Duration::ZERO
    );
    assert_eq!(leases.begin_write(key(), ONE, granted.version), None);
}

#[test]
fn who_looks_after_a_lease_ran_out_ends_its_epoch() {
    let (leases, time) = leases();
    let granted = leases.grant_write_alone(key(), ONE, None);
    leases.begin_write(key(), ONE, granted.version).unwrap();
    time.sleep(WRITE);
    assert_eq!(leases.while_unwritten(key(), || ()), None, "a write is under way");
    leases.end_write(key(), granted.version);
    assert_eq!(leases.while_unwritten(key(), || ()), Some(()));
    assert_eq!(leases.begin_write(key(), ONE, granted.version), None);
}

#[test]
fn nobody_looks_past_what_an_earlier_run_may_have_given() {
    let (leases, time) = leases_of(2, Given { write: true, ..NONE });
    assert_eq!(leases.while_unwritten(key(), || ()), None);
    time.sleep(WRITE);
    assert_eq!(leases.while_unwritten(key(), || ()), Some(()));
}

#[test]
fn whoever_changes_a_shard_by_himself_finds_nobody_who_relies_on_it() {
    let (leases, time) = leases();
    let use_alone = |wait| leases.while_unused(key(), TWO, wait, || ()).is_some();
    // A reader keeps others out while its lease lasts, and is waited for if that is wanted.
    let before = leases.grant_read_alone(key(), ONE);
    assert!(!use_alone(false));
    assert!(use_alone(true) && time.passed() >= READ);
    // What it was told before does not hold any more.
    let refused = leases.grant_read(key(), ONE, || true);
    assert_eq!(refused.lease, Duration::ZERO);
    assert_ne!(refused.version, before.version);
    assert_ne!(leases.grant_read(key(), ONE, || true).version, refused.version, "nor this");
    // A change under way keeps others out, too.
    time.sleep(REFUSAL);
    let change = leases.before_write(key(), Some(ONE));
    assert!(!use_alone(false));
    drop(change);
    assert!(use_alone(false));
    // As does somebody whose writes are on their way, also one's own.
    let written = leases.grant_write_alone(key(), TWO, None);
    assert!(written.lease > Duration::ZERO && !use_alone(false));
    leases.release(key(), TWO, written.version);
    assert!(use_alone(false));
}

#[test]
fn an_own_read_lease_ends_with_what_is_changed_without_asking() {
    let (leases, _time) = leases();
    let before = leases.grant_read_alone(key(), ONE);
    assert!(leases.while_unused(key(), ONE, false, || ()).is_some());
    assert_ne!(leases.grant_read_alone(key(), ONE).version, before.version);
}

#[test]
fn objects_that_are_numbered_side_by_side_do_not_hold_each_other_up() {
    // Clients draw blocks of numbers, so that what is made beside what was there has the same low bits.
    let of = |serial| stripe((Oid::new(ContainerId(1), ObjectClass::S1, TargetId(2), serial), 0));
    for block in 1..64_u64 {
        let shared = (1..=256).filter(|serial| of(*serial) == of(serial + block * 1024)).count();
        assert!(shared <= 16, "{shared} of 256 at a distance of {block} blocks");
    }
    let all: std::collections::HashSet<usize> = (1..=256).map(of).collect();
    assert!(all.len() >= 128, "{} stripes for 256 in a row", all.len());
}
