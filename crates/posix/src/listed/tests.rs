use azekura_proto::attr::FileKind;
use azekura_proto::{ContainerId, ObjectClass, TargetId};

use super::directory::{BESIDE_FIRST, BESIDE_MAX};
use super::files::FILES_FIRST;
use super::*;

const UNBOUND: Bounds = Bounds { bytes_max: u64::MAX, waited: Duration::ZERO };
const LONG: Duration = Duration::from_secs(60);

fn object(serial: u64) -> Oid {
    Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), serial)
}

fn listings(ttl: Duration) -> Listings {
    let changes = Arc::new(Changes::new(true));
    Listings::new(Some(ttl), (Trust::ForAWhile, Some(0)), azekura_platform::system(), changes)
}

fn name(number: u64) -> Vec<u8> {
    format!("name{number}").into_bytes()
}

fn entry(number: u64, kind: FileKind) -> Listed {
    let oid = object(number);
    let attr = Some(Attr { oid, size: number, ..azekura_testkit::attr(kind) });
    Listed { name: name(number), oid, kind, cookie: 100 + number, attr }
}

fn part(kind: FileKind, count: u64, what: PartOf) -> Part {
    let entries = (0..count).map(|number| entry(number, kind)).collect();
    Part { after: 0, until: None, entries, end: true, what, leased_until: None }
}

fn files(count: u64) -> Part {
    part(FileKind::Regular, count, PartOf::Listing)
}

/// No file need not be asked for.
fn not_open(_: Oid) -> bool {
    false
}

fn dir() -> Oid {
    object(1_000_000)
}

fn is_known(listings: &Listings, number: u64) -> bool {
    match listings.look(dir(), &name(number), false) {
        Look::Known(attr, _) => {
            assert_eq!((attr.oid, attr.size), (object(number), number));
            true
        }
        _ => false,
    }
}

#[test]
fn what_a_listing_brought_is_known_until_this_client_changes_something() {
    let listings = listings(LONG);
    listings.keep(&listings.ask(), dir(), files(600));
    assert!((0..600).all(|number| is_known(&listings, number)));
    assert!(!is_known(&listings, 600));
    // The data of one file: the others are as they were.
    drop(listings.changes.begin(object(7)));
    assert!(!is_known(&listings, 7) && is_known(&listings, 8));
    drop(listings.change_names());
    assert!(!(0..600).any(|number| is_known(&listings, number)));
}

#[test]
fn where_names_are_leased_a_listing_counts_as_long_as_their_lease() {
    let changes = Arc::new(Changes::new(true));
    let platform = azekura_platform::system();
    let listings = Listings::new(Some(LONG), (Trust::Leased, Some(0)), platform, changes);
    let now = listings.platform.now();
    listings.keep(&listings.ask(), dir(), files(600));
    assert!(!is_known(&listings, 7), "without a lease");
    let keep = |leased_until| {
        let part = Part { leased_until: Some(leased_until), ..files(600) };
        listings.keep(&listings.ask(), dir(), part);
    };
    keep(now);
    assert!(!is_known(&listings, 7), "it is over");
    keep(now + LONG / 2);
    assert!((0..600).all(|number| is_known(&listings, number)));
    let Look::Known(_, since) = listings.look(dir(), &name(1), true) else { panic!() };
    assert!(since + LONG <= now + LONG / 2, "it is believed for no longer than the lease");
    let is_absent = |number| matches!(listings.look(dir(), &name(number), true), Look::Absent);
    assert!(is_absent(600));
    // What is made elsewhere changes nothing here; what is made here does.
    drop(listings.make_name(object(2_000_000)));
    assert!(is_absent(600) && is_known(&listings, 7));
    drop(listings.make_name(dir()));
    assert!(!is_absent(600) && !is_known(&listings, 7));
    // What a listing had no attributes of is asked for all at once.
    let bare = |entry: Listed| Listed { attr: None, ..entry };
    let entries = files(9).entries.into_iter().map(bare).collect();
    let leased_until = Some(now + LONG);
    listings.keep(&listings.ask(), dir(), Part { entries, leased_until, ..files(0) });
    let looks = [1, 2, 3].map(|number| listings.look(dir(), &name(number), false));
    assert!(
        matches!(&looks, [Look::Unknown, Look::Unknown, Look::Incomplete(all)] if all.len() == 6)
    );
    // Of a directory all of whose names are not known nobody can tell which are not there.
    let part = Part { end: false, leased_until: Some(now + LONG), ..files(3) };
    listings.keep(&listings.ask(), dir(), part);
    assert!(is_known(&listings, 2) && !is_absent(600));
}

#[test]
fn what_is_made_in_a_directory_changes_what_is_told_of_it() {
    let listings = listings(LONG);
    listings.keep(&listings.ask(), dir(), part(FileKind::Directory, 9, PartOf::Listing));
    drop(listings.make_name(object(4)));
    assert!(!is_known(&listings, 4) && is_known(&listings, 5));
}

#[test]
fn an_answer_from_before_a_change_is_not_kept() {
    let listings = listings(LONG);
    let asked = listings.ask();
    drop(listings.change_names());
    listings.keep(&asked, dir(), files(3));
    assert!(!is_known(&listings, 1));
    // Asked while a change is under way: that may have been before or after it.
    let change = listings.changes.begin(object(1));
    let asked = listings.ask();
    drop(change);
    listings.keep(&asked, dir(), files(3));
    assert!(!is_known(&listings, 1) && is_known(&listings, 2));
}

#[test]
fn with_children_or_near_nothing_is_kept() {
    let listings = listings(LONG);
    listings.keep(&listings.ask(), dir(), files(3));
    listings.stop();
    assert!(!listings.is_on(|_| 50_000) && !is_known(&listings, 1));
    listings.keep(&listings.ask(), dir(), files(3));
    assert!(!is_known(&listings, 1));
    let changes = || Arc::new(Changes::new(true));
    let of = |from, changes| {
        Listings::new(Some(LONG), (Trust::ForAWhile, from), azekura_platform::system(), changes)
    };
    assert!(of(Some(1_000), changes()).is_on(|_| 1_000));
    assert!(!of(Some(1_000), changes()).is_on(|_| 999));
    assert!(!of(None, changes()).is_on(|_| 50_000));
    // Own changes would go unnoticed.
    assert!(!of(Some(0), Arc::new(Changes::new(false))).is_on(|_| 50_000));
}

#[test]
fn a_walk_over_what_is_too_old_asks_for_a_page_and_a_single_name_does_not() {
    let listings = listings(Duration::ZERO);
    listings.keep(&listings.ask(), dir(), files(600));
    for _ in 0..10 {
        assert!(matches!(listings.look(dir(), &name(5), false), Look::Unknown));
    }
    assert!(matches!(listings.look(dir(), &name(6), false), Look::Unknown));
    let Look::Old { after, until, entries, .. } = listings.look(dir(), &name(7), false) else {
        panic!("three names are a walk");
    };
    assert_eq!((after, until, entries), (0, Some(100 + PAGE_ENTRIES as u64 - 1), PAGE_ENTRIES));
    assert!(matches!(listings.look(dir(), &name(8), true), Look::Unknown));
    // The last page is of another part, and goes to the end.
    for number in [598, 599] {
        assert!(matches!(listings.look(dir(), &name(number), false), Look::Unknown));
    }
    let Look::Old { after, until, .. } = listings.look(dir(), &name(597), false) else {
        panic!("three names are a walk");
    };
    assert_eq!((after, until), (100 + 2 * PAGE_ENTRIES as u64 - 1, None));
    // After an own change nobody knows whether it is worth it.
    drop(listings.change_names());
    assert!(matches!(listings.look(dir(), &name(9), false), Look::Unknown));
}

#[test]
fn a_page_that_is_listed_again_leaves_the_others() {
    let listings = listings(LONG);
    listings.keep(&listings.ask(), dir(), files(600));
    let mut again = files(200);
    (again.until, again.end, again.what) = (Some(355), false, PartOf::Looks);
    listings.keep(&listings.ask(), dir(), again);
    assert!(is_known(&listings, 199) && !is_known(&listings, 200) && is_known(&listings, 256));
}

#[test]
fn attributes_that_did_not_come_along_are_asked_for_together() {
    let listings = listings(LONG);
    let mut part = files(10);
    part.entries.iter_mut().for_each(|entry| entry.attr = None);
    listings.keep(&listings.ask(), dir(), part);
    let look = |number| listings.look(dir(), &name(number), false);
    assert!(matches!(look(0), Look::Unknown) && matches!(look(1), Look::Unknown));
    let Look::Incomplete(oids) = look(2) else { panic!("three names are a walk") };
    assert_eq!(oids, (2..10).map(object).collect::<Vec<_>>());
    let answers = (2..10).map(|number| {
        let attr = entry(number, FileKind::Regular).attr;
        (object(number), attr.filter(|_| number != 5))
    });
    let answers = answers.collect();
    listings.complete(&listings.ask(), dir(), answers);
    assert!(is_known(&listings, 2) && is_known(&listings, 9));
    // One that is gone is not asked for again and again.
    assert!(matches!(look(5), Look::Unknown));
}

#[test]
fn a_listing_that_came_along_is_given_once() {
    let listings = listings(LONG);
    listings.keep(&listings.ask(), dir(), part(FileKind::Regular, 300, PartOf::Gift));
    let take = |after| listings.take(dir(), after, true);
    let first = take(0).unwrap();
    assert_eq!((first.entries.len(), first.end), (PAGE_ENTRIES, false));
    let rest = take(first.entries.last().unwrap().cookie).unwrap();
    assert_eq!((rest.entries.len(), rest.end), (300 - PAGE_ENTRIES, true));
    assert!(take(0).is_none(), "who lists it again wants to know it anew");
    listings.keep(&listings.ask(), dir(), files(3));
    assert!(take(0).is_none(), "it was given to who asked for it");
    listings.keep(&listings.ask(), dir(), part(FileKind::Regular, 0, PartOf::Gift));
    assert!(take(0).is_some_and(|given| given.entries.is_empty() && given.end));
}

#[test]
fn a_listing_that_came_along_has_the_attributes_that_still_hold() {
    let changes = Arc::new(Changes::new(true));
    let (trust, platform) = ((Trust::ForAWhile, Some(0)), azekura_platform::system());
    let listings = Listings::new(Some(LONG), trust, platform, Arc::clone(&changes));
    let gift = || part(FileKind::Regular, 3, PartOf::Gift);
    let asked = listings.ask();
    listings.keep(&asked, dir(), gift());
    let given = listings.take(dir(), 0, true).unwrap();
    assert!(
        given.entries.iter().all(|entry| entry.attr.is_some()) && given.since <= asked.stamp.since
    );
    listings.keep(&listings.ask(), dir(), gift());
    let given = listings.take(dir(), 0, false).unwrap();
    assert!(given.entries.iter().all(|entry| entry.attr.is_none()), "not wanted");
    listings.keep(&listings.ask(), dir(), gift());
    changes.note(object(1));
    let given = listings.take(dir(), 0, true).unwrap();
    let has_attrs: Vec<_> = given.entries.iter().map(|entry| entry.attr.is_some()).collect();
    assert_eq!(has_attrs, [true, false, true], "what was changed here since is not believed");
}

#[test]
fn what_was_leased_is_given_to_be_believed_no_longer_than_the_lease() {
    let (ttl, left) = (Duration::from_secs(10), Duration::from_secs(4));
    let (trust, changes) = ((Trust::Leased, Some(0)), Arc::new(Changes::new(true)));
    let listings = Listings::new(Some(ttl), trust, azekura_platform::system(), changes);
    let asked = listings.ask();
    let until = asked.stamp.since + left;
    let leased = Part { leased_until: Some(until), ..part(FileKind::Regular, 3, PartOf::Gift) };
    listings.keep(&asked, dir(), leased);
    assert_eq!(listings.take(dir(), 0, true).unwrap().since + ttl, until);
}

#[test]
fn directories_come_along_with_their_siblings_as_long_as_they_are_used() {
    let directories = || part(FileKind::Directory, 200, PartOf::Listing);
    let listings = listings(LONG);
    assert!(listings.beside(object(0)).is_empty(), "no listing had it");
    listings.keep(&listings.ask(), dir(), directories());
    assert_eq!(listings.directory(dir(), &name(3)), Some(object(3)));
    assert!(listings.beside(object(0)).is_empty(), "one alone is no walk");
    let came = listings.beside(object(1));
    assert_eq!(came, (2..2 + BESIDE_FIRST as u64).map(object).collect::<Vec<_>>());
    let note = |oid: Oid| {
        listings.known.lock().directories.get_mut(&dir()).unwrap().note_entered(oid, true);
    };
    came.into_iter().for_each(note);
    assert_eq!(listings.beside(object(6)).len(), 4 * BESIDE_FIRST);
    // None of these was wanted: once more, and then none for a while.
    assert!(listings.beside(object(150)).is_empty());
    assert_eq!(listings.beside(object(151)).len(), BESIDE_FIRST);
    assert!(listings.beside(object(180)).is_empty() && listings.beside(object(181)).is_empty());
    assert!((182..185).all(|number| listings.beside(object(number)).is_empty()));
    assert_eq!(listings.beside(object(185)).len(), 1);
    let mut known = listings.known.lock();
    assert_eq!(known.above.len(), 200);
    let last = known.count;
    known.remove(last);
    assert!(known.above.is_empty());
}

#[test]
fn who_comes_to_few_of_the_directories_that_came_along_gets_as_many_again() {
    let listings = listings(LONG);
    listings.keep(&listings.ask(), dir(), part(FileKind::Directory, 200, PartOf::Listing));
    let note = |number| {
        let mut known = listings.known.lock();
        known.directories.get_mut(&dir()).unwrap().note_entered(object(number), true);
    };
    assert!(listings.beside(object(0)).is_empty());
    let mut brought = Vec::new();
    for number in (1..30).step_by(2) {
        brought.push(listings.beside(object(number)).len());
        note(number + 1);
    }
    assert_eq!(brought[..4], [BESIDE_FIRST, 1, 4, 1], "one of them is used each time");
    assert_eq!(brought.iter().skip(1).step_by(2).max(), Some(&1));
}

/// Opens directories in an order; how many had not come along, and how many came in all.
fn walk(listings: &Listings, order: impl Iterator<Item = u64>) -> (usize, usize) {
    listings.keep(&listings.ask(), dir(), part(FileKind::Directory, 200, PartOf::Listing));
    let (mut here, mut misses, mut brought) = (Vec::new(), 0, 0);
    for oid in order.map(object) {
        if here.contains(&oid) {
            listings.known.lock().directories.get_mut(&dir()).unwrap().note_entered(oid, true);
        } else {
            let came = listings.beside(oid);
            assert!(came.len() <= BESIDE_MAX && !came.contains(&oid));
            (misses, brought) = (misses + 1, brought + came.len());
            here.extend(came);
        }
    }
    (misses, brought)
}

#[test]
fn directories_come_along_in_the_order_in_which_they_are_opened() {
    let listings = listings(LONG);
    assert_eq!(walk(&listings, 0..200), (9, 191));
    let mut by_name: Vec<u64> = (0..200).collect();
    by_name.sort_by_key(|number| name(*number));
    // The first two follow each other in the listing, too, which is taken for the order: one step more.
    assert_eq!(walk(&listings, by_name.into_iter()).0, 10);
    // In no order at all.
    assert_eq!(walk(&listings, (0..200).map(|turn| turn * 77 % 200)), (200, 0));
}

#[test]
fn it_stays_bounded() {
    let listings = listings(LONG);
    for number in 0..400 {
        let dir = object(2_000_000 + number);
        listings.keep(&listings.ask(), dir, files(number % 2 * 500));
    }
    let known = listings.known.lock();
    assert!(known.entries <= ENTRIES_MAX && known.entries > ENTRIES_MAX / 2);
    assert!(known.pages.len() < 400 && known.directories.len() < 400);
}

/// Opens files, none of which comes, in an order; how many were worth asking for.
fn open_files(listings: &Listings, order: impl Iterator<Item = u64>) -> usize {
    let wanted =
        order.map(|number| match listings.open_file(dir(), &name(number), UNBOUND, not_open) {
            (None, Wanted::Files { files, .. }) => {
                assert_eq!(files[0].oid, object(number), "the one that is opened is in front");
                files.len() - 1
            }
            (None, _) => 0,
            (Some(_), _) => panic!("nobody has brought it"),
        });
    wanted.sum()
}

#[test]
fn files_are_worth_asking_for_in_the_order_in_which_others_were_opened() {
    let known = || {
        let listings = listings(LONG);
        listings.keep(&listings.ask(), dir(), files(100));
        listings
    };
    // The first of all has no contents, and need not be opened.
    assert_eq!(open_files(&known(), 1..3), FILES_FIRST);
    assert_eq!(open_files(&known(), 50..53), FILES_FIRST);
    assert_eq!(open_files(&known(), 50..52), 0, "two are no order");
    let mut by_name: Vec<u64> = (0..100).collect();
    by_name.sort_by_key(|number| name(*number));
    // 19, 2, 20.
    assert_eq!(open_files(&known(), by_name[11..14].iter().copied()), FILES_FIRST);
    assert_eq!(open_files(&known(), (0..100).map(|turn| (3 + turn * 37) % 100)), 0);
    assert_eq!(open_files(&known(), (0..50).map(|turn| 99 - turn)), 0, "backwards");
    assert_eq!(open_files(&known(), [5; 50].into_iter()), 0, "one again and again");
}

#[test]
fn files_that_come_to_nothing_are_not_asked_for_for_long() {
    let listings = listings(LONG);
    listings.keep(&listings.ask(), dir(), files(1000));
    let mut asked = 0;
    for number in 1..1000 {
        if let (_, Wanted::Files { files, .. }) =
            listings.open_file(dir(), &name(number), UNBOUND, not_open)
        {
            asked += files.len();
            listings.keep_files((dir(), &listings.ask()), files.len(), Vec::new());
        }
    }
    assert!(asked <= 4 * FILES_FIRST, "{asked}");
}

#[test]
fn no_more_is_brought_at_a_time_than_the_link_carries() {
    let listings = listings(LONG);
    let mut part = files(10);
    for entry in &mut part.entries {
        entry.attr = entry.attr.take().map(|attr| Attr { size: 1000, ..attr });
    }
    listings.keep(&listings.ask(), dir(), part);
    listings.open_file(dir(), &name(0), Bounds { bytes_max: 2500, ..UNBOUND }, not_open);
    let (_, Wanted::Files { files, .. }) =
        listings.open_file(dir(), &name(1), Bounds { bytes_max: 2500, ..UNBOUND }, not_open)
    else {
        panic!()
    };
    assert_eq!(files.iter().map(|file| file.oid).collect::<Vec<_>>(), [1, 2, 3].map(object));
}

#[test]
fn names_that_are_opened_one_after_the_other_make_a_directory_worth_listing_once() {
    let listings = listings(LONG);
    let wants = |number: u64| match listings.open_file(dir(), &name(number), UNBOUND, not_open).1 {
        Wanted::Listing(last) => Some(last),
        _ => None,
    };
    assert_eq!([wants(1), wants(5)], [None, None]);
    assert_eq!(wants(7), Some(name(5).into()));
    assert_eq!([wants(8), wants(9)], [None, None]);
    listings.keep(&listings.ask(), dir(), files(20));
    listings.begin_files_after(dir(), &name(8));
    let (_, Wanted::Files { files, .. }) = listings.open_file(dir(), &name(9), UNBOUND, not_open)
    else {
        panic!()
    };
    // By number, or as they are listed; by name there is none behind it.
    assert_eq!(files[..2].iter().map(|file| file.oid).collect::<Vec<_>>(), [9, 10].map(object));
}
