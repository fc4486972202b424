//! Objects that their makers have numbered, as an engine makes them.

use std::time::Duration;

use azekura_platform::Platform as _;
use azekura_proto::attr::{AttrChange, DirectoryGuard, FileKind, NewInode, SetTime};
use azekura_proto::limits::{LEASE_REFUSAL_MS, WRITE_LEASE_MS};
use azekura_proto::message::{
    Answer, NamesLease, RenameMode, Reply, Request, RequestHead, Role, ShardRef,
};
use azekura_proto::{Attr, ObjectClass, Oid, SessionId, Status, TargetId, Timestamp};

use crate::crash_tests::Pool;
use crate::requests::attachment::Attachment;
use crate::service::Service;

const LONG_AGO: Timestamp = Timestamp { secs: 1_000_000, nanos: 7 };

struct Maker {
    service: Service,
    client: Attachment,
    root: Oid,
    guard: DirectoryGuard,
}

impl Maker {
    fn new(pool: &Pool, session: u8) -> Self {
        let service = pool.service();
        let client = service.attach(SessionId([session; 16]), Role::Client, true).unwrap().0;
        let mut maker = Self {
            service,
            client,
            root: pool.root,
            guard: DirectoryGuard { mode: 0, uid: 0, gid: 0, inheritance: None },
        };
        maker.guard = DirectoryGuard::of(&maker.attr(pool.root));
        maker
    }

    fn ask(&self, target: TargetId, request: &Request<'_>) -> Answer {
        self.client.call(&head(target), request, &[]).0
    }

    fn attr(&self, oid: Oid) -> Attr {
        match self.ask(oid.home(), &Request::GetAttr { oid }).unwrap() {
            Reply::Attr(attr) => *attr,
            other => panic!("{other:?}"),
        }
    }

    fn number(&self, name: &[u8]) -> Oid {
        let target = self.service.node().entry_target(self.root, name);
        match self.ask(target, &Request::AllocateSerials { count: 3 }).unwrap() {
            Reply::Serial(first) => {
                Oid::new(self.root.container(), ObjectClass::S1, target, first + 2)
            }
            other => panic!("{other:?}"),
        }
    }

    fn make(&self, name: &[u8], oid: Oid, inode: &NewInode, under: Option<NamesLease>) -> Answer {
        let (dir, guard, inode) = (self.root, self.guard, inode.clone());
        let (born, open) = (LONG_AGO, false);
        let request = Request::CreateNumbered { dir, name, oid, inode, born, open, guard, under };
        self.ask(oid.home(), &request)
    }

    fn lease(&self, name: &[u8]) -> NamesLease {
        let target = self.service.node().entry_target(self.root, name);
        let shard = self.service.node().shard_on_target(self.root, target).unwrap();
        let data = ShardRef { oid: self.root, shard, is_file: false };
        match self.ask(target, &Request::LeaseWrite { data, instead_of: None }).unwrap() {
            Reply::Leased { lease_ms, version } if lease_ms > 0 => {
                NamesLease { dir: self.root, shard, epoch: version }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn head(target: TargetId) -> RequestHead {
    let (map_version, slot, sequence, resent, connection) = (1, 0, 0, false, 0);
    RequestHead { target, map_version, slot, sequence, resent, connection }
}

fn inode(kind: FileKind) -> NewInode {
    NewInode {
        kind,
        mode: 0o640,
        uid: 3,
        gid: 4,
        rdev: 0,
        symlink_text: if kind == FileKind::Symlink { b"text".to_vec() } else { Vec::new() },
        class: ObjectClass::S1,
        chunk_bytes: 1 << 20,
        inheritance: None,
    }
}

#[test]
fn a_client_knows_what_an_engine_tells_of_what_it_has_made() {
    let pool = Pool::new();
    let maker = Maker::new(&pool, 7);
    for (name, kind) in [
        (&b"file"[..], FileKind::Regular),
        (b"dir", FileKind::Directory),
        (b"link", FileKind::Symlink),
        (b"pipe", FileKind::Fifo),
    ] {
        let (oid, new) = (maker.number(name), inode(kind));
        maker.make(name, oid, &new, None).unwrap();
        assert_eq!(maker.attr(oid), Attr::of_new(oid, &new, pool.root, LONG_AGO));
        // Again it does nothing; but the name is taken for any other.
        maker.make(name, oid, &new, None).unwrap();
        let other = maker.number(name);
        assert_eq!(maker.make(name, other, &new, None), Err(Status::Exists));
    }
}

#[test]
fn a_number_is_good_for_who_has_drawn_it_and_a_lease_for_as_long_as_it_holds() {
    let pool = Pool::new();
    let maker = Maker::new(&pool, 7);
    let (oid, new) = (maker.number(b"file"), inode(FileKind::Regular));
    let beyond = Oid::new(oid.container(), oid.class(), oid.home(), 1 << 39);
    assert_eq!(maker.make(b"file", beyond, &new, None), Err(Status::Invalid));
    let lease = maker.lease(b"file");
    let over = NamesLease { epoch: lease.epoch + 100, ..lease };
    assert_eq!(maker.make(b"file", oid, &new, Some(over)), Err(Status::ConditionFailed));
    match maker.make(b"file", oid, &new, Some(lease)).unwrap() {
        Reply::Leased { lease_ms, version } => {
            assert!(lease_ms > 0);
            assert_eq!(version, lease.epoch);
        }
        other => panic!("{other:?}"),
    }
    // Another client that takes the same number for its own is told so.
    let other = maker.service.attach(SessionId([9; 16]), Role::Client, true).unwrap().0;
    let thief = Maker { client: other, ..maker };
    assert_eq!(thief.make(b"other", oid, &new, None), Err(Status::Invalid));
}

#[test]
fn its_holder_moves_and_removes_names_with_the_lease_in_hand() {
    let pool = Pool::new();
    let maker = Maker::new(&pool, 7);
    let target = |name: &[u8]| maker.service.node().entry_target(pool.root, name);
    // Names at two targets, so that one of them is told by the other.
    let from: &[u8] = b"from";
    let to = (0..100).map(|number| format!("to {number}").into_bytes());
    let to = to.into_iter().find(|name| target(name) != target(from)).unwrap();
    let (oid, new) = (maker.number(from), inode(FileKind::Regular));
    let (lease, other) = (maker.lease(from), maker.lease(&to));
    assert_ne!(lease.shard, other.shard);
    maker.make(from, oid, &new, Some(lease)).unwrap();
    for (from_name, to_name) in [(from, &*to), (&to, from)] {
        let (from_dir, to_dir, mode) = (pool.root, pool.root, RenameMode::Replace);
        let request = Request::Rename { from_dir, from_name, to_dir, to_name, mode };
        maker.ask(target(to_name), &request).unwrap();
    }
    maker.ask(target(from), &Request::Unlink { dir: pool.root, name: from }).unwrap();
    // Nobody has waited for the leases: they are as good as before.
    for (name, lease) in [(from, lease), (&to, other)] {
        let answer = maker.make(name, maker.number(name), &new, Some(lease)).unwrap();
        assert!(matches!(answer, Reply::Leased { lease_ms: 1.., .. }), "{answer:?}");
    }
}

#[test]
fn what_new_things_are_judged_by_is_changed_once_none_are_on_their_way() {
    let pool = Pool::new();
    let maker = Maker::new(&pool, 7);
    let other = maker.service.attach(SessionId([9; 16]), Role::Client, true).unwrap().0;
    let home = pool.root.home();
    let change_by = |client: &Attachment, change: AttrChange| {
        let begun = pool.time.now();
        client.call(&head(home), &Request::SetAttr { oid: pool.root, change }, &[]).0.unwrap();
        pool.time.now() - begun
    };
    let mode = |mode| AttrChange { mode: Some(mode), ..AttrChange::default() };
    let target = |name: &[u8]| maker.service.node().entry_target(pool.root, name);
    let names = (0..100).map(|number| format!("name {number}").into_bytes());
    let (at_home, away): (Vec<_>, Vec<_>) = names.partition(|name| target(name) == home);
    let new = inode(FileKind::Regular);
    for (name, bits) in [(&at_home[0], 0o1700), (&away[0], 0o1750)] {
        let lease = maker.lease(name);
        // Times have nothing to do with it, and its holder's own changes come after what it has made.
        let times = AttrChange { mtime: Some(SetTime::At(LONG_AGO)), ..AttrChange::default() };
        assert!(change_by(&other, times).is_zero());
        assert!(change_by(&maker.client, mode(0o1777)).is_zero());
        maker.make(name, maker.number(name), &new, Some(lease)).unwrap();
        assert!(change_by(&other, mode(bits)) >= Duration::from_millis(WRITE_LEASE_MS));
        let again = maker.make(b"late", maker.number(b"late"), &new, Some(lease));
        assert_eq!(again, Err(Status::ConditionFailed));
        pool.time.sleep(Duration::from_millis(LEASE_REFUSAL_MS));
    }
    let of_others = maker.make(b"late", maker.number(b"late"), &new, None);
    assert_eq!(of_others, Err(Status::ConditionFailed));
}

#[test]
fn the_times_that_a_maker_has_told_are_those_of_its_file_until_it_is_written_to() {
    let pool = Pool::new();
    let maker = Maker::new(&pool, 7);
    let (oid, new) = (maker.number(b"file"), inode(FileKind::Regular));
    maker.make(b"file", oid, &new, None).unwrap();
    let data = ShardRef { oid, shard: 0, is_file: true };
    let target = oid.home();
    let head = head(target);
    let write =
        || maker.client.call(&head, &Request::Write { data, offset: 0 }, b"data").0.unwrap();
    write();
    let born = maker.attr(oid).btime;
    let told = |nanos| Timestamp { secs: born.secs, nanos };
    let settle = |mtime, ctime| maker.ask(target, &Request::SettleTimes { oid, mtime, ctime });
    for (mtime, ctime) in [(told(1), told(2)), (LONG_AGO, told(3))] {
        settle(mtime, ctime).unwrap();
        let attr = maker.attr(oid);
        assert_eq!((attr.mtime, attr.ctime, attr.size), (mtime, ctime, 4));
    }
    write();
    let written = maker.attr(oid);
    assert!(written.mtime > told(3) && written.ctime > told(3), "{written:?}");
    // Nothing changes in times to come.
    let later = Timestamp { secs: i64::from(u32::MAX), nanos: 0 };
    settle(later, later).unwrap();
    assert!(maker.attr(oid).ctime < later);
    // Nobody but the maker tells.
    let other = maker.service.attach(SessionId([9; 16]), Role::Client, true).unwrap().0;
    let other = Maker { client: other, ..maker };
    let request = Request::SettleTimes { oid, mtime: born, ctime: born };
    assert_eq!(other.ask(target, &request), Err(Status::Invalid));
}
