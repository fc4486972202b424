//! What the leases promise, seen from several sessions.

use super::*;
use azekura_proto::{ContainerId, ObjectClass, TargetId};

const ONE: SessionId = SessionId([1; 16]);
const TWO: SessionId = SessionId([2; 16]);
const NONE: Given = Given { read: false, write: false };

fn key() -> Key {
    (Oid::new(ContainerId(1), ObjectClass::SX, TargetId(0), 7), 3)
}

fn leases() -> Leases {
    Leases::new(1, NONE)
}

#[test]
fn a_write_waits_for_the_read_lease_of_another_and_ends_the_giving_of_leases() {
    let leases = leases();
    let start = Instant::now();
    let first = leases.grant_read(key(), ONE);
    assert_eq!(first.lease, READ);
    leases.before_write(key(), Some(TWO));
    assert!(start.elapsed() >= READ);
    let second = leases.grant_read(key(), ONE);
    assert_eq!(second.lease, Duration::ZERO);
    assert_ne!(second.version, first.version);
    // Nobody holds one now: no waiting, but another version.
    leases.before_write(key(), Some(TWO));
    assert_ne!(leases.grant_read(key(), ONE).version, second.version);
}

#[test]
fn the_reader_itself_does_not_wait_and_keeps_its_lease() {
    let leases = leases();
    let start = Instant::now();
    let first = leases.grant_read(key(), ONE);
    leases.before_write(key(), Some(ONE));
    assert!(start.elapsed() < READ);
    let second = leases.grant_read(key(), ONE);
    assert_eq!(second.lease, READ);
    assert_ne!(second.version, first.version);
}

#[test]
fn a_second_reader_makes_the_first_wait_too() {
    let leases = leases();
    leases.grant_read(key(), ONE);
    leases.grant_read(key(), TWO);
    let start = Instant::now();
    leases.before_write(key(), Some(ONE));
    assert!(start.elapsed() >= READ / 2);
}

#[test]
fn renewals_do_not_hold_up_a_writer_for_ever() {
    let leases = leases();
    leases.grant_read(key(), ONE);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| leases.before_write(key(), Some(TWO)));
        for _ in 0..20 {
            std::thread::sleep(READ / 10);
            if writer.is_finished() {
                break;
            }
            leases.grant_read(key(), ONE);
        }
        assert!(writer.is_finished());
    });
}

#[test]
fn versions_of_two_runs_never_meet_and_a_restart_keeps_old_promises() {
    let before = leases().grant_read(key(), ONE);
    let leases = Leases::new(2, Given { read: true, write: false });
    let start = Instant::now();
    leases.before_write(key(), Some(TWO));
    assert!(start.elapsed() >= READ * 9 / 10);
    assert_ne!(leases.grant_read(key(), ONE).version, before.version);
}

#[test]
fn everybody_but_the_holder_waits_for_a_write_lease() {
    for act in [
        |leases: &Leases, who| leases.before_read(key(), Some(who)),
        |leases: &Leases, who| leases.before_write(key(), Some(who)),
        |leases: &Leases, who| {
            leases.grant_read(key(), who);
        },
    ] {
        let leases = leases();
        let start = Instant::now();
        let granted = leases.grant_write(key(), ONE, None);
        assert_eq!(granted.lease, WRITE);
        act(&leases, ONE);
        assert!(start.elapsed() < WRITE);
        act(&leases, TWO);
        assert!(start.elapsed() >= WRITE);
        // Its time is over, and others write and read here.
        assert_eq!(leases.begin_write(key(), ONE, granted.version), None);
        assert_eq!(leases.grant_write(key(), ONE, None).lease, Duration::ZERO);
    }
}

#[test]
fn a_lease_that_is_given_back_is_waited_for_no_longer() {
    let leases = leases();
    let granted = leases.grant_write(key(), ONE, None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| leases.before_read(key(), None));
        std::thread::sleep(WRITE / 10);
        leases.release(key(), ONE, granted.version);
    });
    assert!(start.elapsed() < WRITE);
    leases.before_write(key(), Some(TWO));
    assert!(start.elapsed() < WRITE);
}

#[test]
fn a_lease_is_not_renewed_while_somebody_waits() {
    let leases = leases();
    let granted = leases.grant_write(key(), ONE, None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| leases.before_read(key(), Some(TWO)));
        let mut refused = false;
        while let Some(renewed) = leases.begin_write(key(), ONE, granted.version) {
            leases.end_write(key());
            refused |= renewed.lease.is_zero();
            std::thread::sleep(WRITE / 20);
        }
        reader.join().unwrap();
        assert!(refused);
    });
    assert!(start.elapsed() < WRITE * 2);
}

#[test]
fn a_lease_that_ran_out_is_current_until_somebody_else_comes() {
    let leases = leases();
    let granted = leases.grant_write(key(), ONE, None);
    std::thread::sleep(WRITE + Duration::from_millis(10));
    assert!(leases.begin_write(key(), ONE, granted.version).is_some());
    leases.end_write(key());
    assert_eq!(leases.begin_write(key(), TWO, granted.version), None);
    assert_eq!(leases.begin_write(key(), ONE, granted.version + 1), None);
}

#[test]
fn a_new_epoch_ends_the_old_one() {
    let leases = leases();
    let first = leases.grant_write(key(), ONE, None);
    let second = leases.grant_write(key(), ONE, Some(first.version));
    assert_eq!(second.lease, WRITE);
    assert_eq!(leases.begin_write(key(), ONE, first.version), None);
    assert!(leases.begin_write(key(), ONE, second.version).is_some());
    leases.end_write(key());
    // Somebody else's, or one that is long over.
    assert_eq!(leases.grant_write(key(), TWO, Some(second.version)).lease, Duration::ZERO);
    assert_eq!(leases.grant_write(key(), ONE, Some(first.version)).lease, Duration::ZERO);
}

#[test]
fn a_late_release_of_an_old_epoch_does_not_end_a_new_lease() {
    let leases = leases();
    let first = leases.grant_write(key(), ONE, None);
    // Its release is on the way on another connection when the client asks anew.
    let second = leases.grant_write(key(), ONE, None);
    assert_eq!(second.lease, WRITE);
    assert_ne!(second.version, first.version);
    leases.release(key(), ONE, first.version);
    assert!(leases.would_wait(key(), Some(TWO)));
    assert!(leases.begin_write(key(), ONE, second.version).is_some());
    leases.end_write(key());
}

#[test]
fn a_grant_waits_for_the_own_writes_under_way() {
    let leases = leases();
    let first = leases.grant_write(key(), ONE, None);
    leases.begin_write(key(), ONE, first.version).unwrap();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| leases.grant_write(key(), ONE, None));
        std::thread::sleep(WRITE / 20);
        assert!(!asks.is_finished());
        leases.end_write(key());
        assert_eq!(asks.join().unwrap().lease, WRITE);
    });
}

#[test]
fn a_refused_renewal_ends_the_old_epoch_and_others_still_wait() {
    let leases = leases();
    let granted = leases.grant_write(key(), ONE, None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| leases.before_read(key(), Some(TWO)));
        std::thread::sleep(WRITE / 10);
        let again = leases.grant_write(key(), ONE, Some(granted.version));
        assert_eq!(again.lease, Duration::ZERO);
        assert_eq!(leases.begin_write(key(), ONE, granted.version), None);
        assert!(!reader.is_finished());
    });
    assert!(start.elapsed() >= WRITE);
}

#[test]
fn who_would_wait_is_known_without_waiting() {
    let leases = leases();
    assert!(!leases.would_wait(key(), None));
    let granted = leases.grant_write(key(), ONE, None);
    assert!(!leases.would_wait(key(), Some(ONE)));
    assert!(leases.would_wait(key(), Some(TWO)));
    assert!(!leases.would_wait((key().0, 4), Some(TWO)));
    leases.release(key(), ONE, granted.version);
    assert!(!leases.would_wait(key(), Some(TWO)));
}

#[test]
fn a_write_under_way_outlasts_its_lease() {
    let leases = leases();
    let granted = leases.grant_write(key(), ONE, None);
    leases.begin_write(key(), ONE, granted.version).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| leases.before_read(key(), Some(TWO)));
        std::thread::sleep(WRITE + WRITE / 10);
        assert!(!reader.is_finished());
        leases.end_write(key());
    });
    assert!(start.elapsed() >= WRITE);
}

#[test]
fn readers_keep_a_write_lease_away_and_the_end_of_a_session_frees_it() {
    let leases = leases();
    leases.grant_read(key(), TWO);
    assert_eq!(leases.grant_write(key(), ONE, None).lease, Duration::ZERO);
    let other = (key().0, 4);
    let start = Instant::now();
    assert_eq!(leases.grant_write(other, ONE, None).lease, WRITE);
    assert_eq!(leases.grant_write(other, TWO, None).lease, Duration::ZERO);
    leases.drop_session(ONE);
    leases.before_read(other, Some(TWO));
    assert!(start.elapsed() < WRITE);
}

#[test]
fn after_a_restart_the_holder_comes_first() {
    let before = leases().grant_write(key(), ONE, None);
    let leases = Leases::new(2, Given { read: false, write: true });
    let start = Instant::now();
    assert_eq!(leases.grant_write(key(), TWO, None).lease, Duration::ZERO);
    let after = leases.grant_write(key(), ONE, Some(before.version));
    assert_eq!(after.lease, WRITE);
    assert_ne!(after.version, before.version);
    leases.before_write(key(), Some(ONE));
    leases.before_read(key(), Some(ONE));
    assert!(start.elapsed() < WRITE / 2);
    leases.before_read((key().0, 0), Some(TWO));
    assert!(start.elapsed() >= WRITE * 9 / 10);
    // Too late for whoever comes now.
    assert_eq!(leases.grant_write((key().0, 1), ONE, Some(before.version)).lease, Duration::ZERO);
}
