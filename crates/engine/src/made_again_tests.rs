//! What was made by a request whose answer nobody has got, and what others do with it before its maker asks again:
//! it is not made once more, also by another run of the engine.

use azekura_proto::attr::FileKind;
use azekura_proto::message::{RenameMode, Reply, Request, ShardRef};
use azekura_proto::{Oid, Status};
use azekura_store::Space;

use crate::crash_tests::Pool;
use crate::restart_tests::{Client, ONE, TWO, create, new_inode};
use crate::service::Service;

/// What others do with a thing before its maker has been answered.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Removed,
    MadeAnew,
    Replaced,
    Exchanged,
    Moved,
    MovedAway,
}

impl Fate {
    const ALL: [Self; 6] = [
        Self::Removed,
        Self::MadeAnew,
        Self::Replaced,
        Self::Exchanged,
        Self::Moved,
        Self::MovedAway,
    ];

    /// What stands under the name afterwards.
    fn befall(
        self,
        (root, kind): (Oid, FileKind),
        service: &Service,
        by: &mut Client,
    ) -> Option<Oid> {
        let place = |name| service.node().entry_target(root, name);
        let make = |by: &mut Client, name| {
            let inode = new_inode(kind);
            let request = Request::Create { dir: root, name, inode, open: false };
            match by.ask(place(name), &request) {
                Ok(Reply::Created(attr)) => attr.oid,
                other => panic!("{other:?}"),
            }
        };
        let remove = |by: &mut Client| {
            let (dir, name) = (root, b"thing");
            let request = match kind {
                FileKind::Directory => Request::RemoveDirectory { dir, name },
                _ => Request::Unlink { dir, name },
            };
            by.ask(place(b"thing"), &request).unwrap();
        };
        let rename = |by: &mut Client, from: &[u8], (to_dir, to): (Oid, &[u8]), mode| {
            let request =
                Request::Rename { from_dir: root, from_name: from, to_dir, to_name: to, mode };
            by.ask(service.node().entry_target(to_dir, to), &request).unwrap();
        };
        match self {
            Self::Removed => {
                remove(by);
                None
            }
            Self::MadeAnew => {
                remove(by);
                Some(make(by, b"thing"))
            }
            Self::Replaced => {
                let other = make(by, b"other");
                rename(by, b"other", (root, b"thing"), RenameMode::Replace);
                Some(other)
            }
            Self::Exchanged => {
                let other = make(by, b"other");
                rename(by, b"other", (root, b"thing"), RenameMode::Exchange);
                Some(other)
            }
            Self::Moved => {
                rename(by, b"thing", (root, b"elsewhere"), RenameMode::NoReplace);
                None
            }
            Self::MovedAway => {
                let inode = new_inode(FileKind::Directory);
                let request = Request::Create { dir: root, name: b"dir", inode, open: false };
                let Ok(Reply::Created(attr)) = by.ask(place(b"dir"), &request) else { panic!() };
                rename(by, b"thing", (attr.oid, b"thing"), RenameMode::NoReplace);
                None
            }
        }
    }
}

#[test]
fn a_file_is_leased_to_its_maker_once_and_before_anybody_else_sees_it() {
    let pool = Pool::new();
    let service = pool.service();
    let (mut one, mut two) = (Client::of(&service, ONE), Client::of(&service, TWO));
    let target = service.node().entry_target(pool.root, b"thing");
    let make = |kind| Request::CreateToWrite {
        dir: pool.root,
        name: b"thing",
        inode: new_inode(kind),
        guard: None,
    };
    assert_eq!(one.ask(target, &make(FileKind::Directory)), Err(Status::Invalid));
    let request = make(FileKind::Regular);
    let first = one.ask(target, &request).unwrap();
    let Reply::CreatedToWrite { attr, lease_ms, version } = first else { panic!("{first:?}") };
    assert!(lease_ms > 0);
    let data = ShardRef { oid: attr.oid, shard: 0, is_file: true };
    let lease = Request::LeaseWrite { data, instead_of: None };
    match two.ask(target, &lease) {
        Ok(Reply::Leased { lease_ms: 0, .. }) => {}
        other => panic!("{other:?}"),
    }
    let write = Request::WriteLeased { data, offset: 0, epoch: version };
    assert!(matches!(one.ask(target, &write), Ok(Reply::Leased { .. })));
    let found = two.ask(target, &request).unwrap();
    let Reply::Entry { entry, .. } = found else { panic!("{found:?}") };
    assert_eq!(entry.oid, attr.oid, "who comes second finds it");
    let Ok(Reply::Created(again)) = one.ask_again(target, &request) else { panic!() };
    assert_eq!(again.oid, attr.oid);
}

#[test]
fn what_was_made_before_a_restart_is_not_made_again_whatever_has_become_of_it() {
    let kinds = [(FileKind::Regular, true), (FileKind::Fifo, false), (FileKind::Directory, false)];
    for (kind, open) in kinds {
        for (fate, is_before) in
            Fate::ALL.into_iter().flat_map(|fate| [(fate, true), (fate, false)])
        {
            let what = format!("{kind:?}, {fate:?} before the restart: {is_before}");
            let pool = Pool::new();
            let service = pool.service();
            let mut one = Client::of(&service, ONE);
            let target = service.node().entry_target(pool.root, b"thing");
            let inode = new_inode(kind);
            let request = Request::Create { dir: pool.root, name: b"thing", inode, open };
            let Ok(Reply::Created(first)) = one.ask(target, &request) else { panic!("{what}") };
            let place = (pool.root, kind);
            let befall =
                |service: &Service| fate.befall(place, service, &mut Client::of(service, TWO));
            let mut there = is_before.then(|| befall(&service)).flatten();
            let sequence = one.sequence;
            drop((one, service));
            let service = pool.service();
            if !is_before {
                there = befall(&service);
            }
            let mut one = Client::of(&service, ONE);
            one.sequence = sequence;
            let Ok(Reply::Created(again)) = one.ask_again(target, &request) else {
                panic!("{what}")
            };
            assert_eq!(again.oid, first.oid, "{what}");
            let lookup = Request::Lookup { dir: pool.root, name: b"thing" };
            let found = match Client::of(&service, TWO).ask(target, &lookup) {
                Ok(Reply::Entry { entry, .. }) => Some(entry.oid),
                Err(Status::NotFound) => None,
                other => panic!("{what}: {other:?}"),
            };
            assert_eq!(found, there, "{what}");
            if open {
                assert!(service.node().sessions.is_open(first.oid), "{what}");
                assert!(one.ask(first.oid.home(), &Request::GetAttr { oid: first.oid }).is_ok());
            }
        }
    }
}

#[test]
fn what_nobody_can_ask_for_again_leaves_no_record() {
    let pool = Pool::new();
    let service = pool.service();
    let count = || {
        let node = service.node();
        let records = node.local_targets().map(|target| {
            let all = target.store.scan(Space::Reply, &ONE.0, None, usize::MAX).unwrap();
            all.len()
        });
        records.sum::<usize>()
    };
    let (mut one, mut two) = (Client::of(&service, ONE), Client::of(&service, TWO));
    create(&pool, &service, &mut one, b"first");
    create(&pool, &service, &mut one, b"last");
    let unlink = |client: &mut Client, name| {
        let target = service.node().entry_target(pool.root, name);
        client.ask(target, &Request::Unlink { dir: pool.root, name }).unwrap();
    };
    unlink(&mut two, b"first");
    assert_eq!(count(), 0, "its maker has asked for something else since");
    unlink(&mut two, b"last");
    assert_eq!(count(), 1);
}
