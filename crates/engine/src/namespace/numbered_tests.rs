//! Objects that their makers have numbered, as an engine makes them.

use azekura_proto::attr::{DirectoryGuard, FileKind, NewInode};
use azekura_proto::message::{Answer, NamesLease, Reply, Request, RequestHead, Role, ShardRef};
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
        let (map_version, slot, sequence, resent, connection) = (1, 0, 0, false, 0);
        let head = RequestHead { target, map_version, slot, sequence, resent, connection };
        self.client.call(&head, request, &[]).0
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
