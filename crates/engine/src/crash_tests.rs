//! Stops transactions between their steps, as a crash would, and looks at what a restart makes of
//! them: never both names, never none.

use std::sync::Arc;
use std::time::Duration;

use azekura_platform::Platform as _;
use azekura_proto::attr::{FileKind, Inheritance, NewInode};
use azekura_proto::message::{Answer, RenameMode, Reply, Request};
use azekura_proto::pool_map::EngineEntry;
use azekura_proto::transaction::{Action, Entry, TransactionId};
use azekura_proto::{Dependences, EngineId, ObjectClass, Oid, PoolId, PoolMap, Status, TargetId};
use azekura_store::Environment;
use tempfile::TempDir;

use crate::background::recovery;
use crate::engine_dir::EngineDir;
use crate::node::Node;
use crate::peers::Peers;
use crate::service::{Service, ServiceParts};
use crate::transaction::coordinator::{Attempt, Parts};
use crate::virtual_time::VirtualTime;

const TARGETS: u16 = 4;

/// A pool of one engine, whose runs share a virtual time.
pub(crate) struct Pool {
    _dir: TempDir,
    pub(crate) time: Arc<VirtualTime>,
    engine_dir: EngineDir,
    pub(crate) root: Oid,
}

/// An engine that is alone asks nobody.
struct NoPeers;

impl Peers for NoPeers {
    fn call(
        &self,
        _: &PoolMap,
        target: TargetId,
        _: &Request<'_>,
        _: &[u8],
        _: Duration,
    ) -> Answer {
        panic!("target {} is at no other engine", target.0)
    }

    fn call_all(
        &self,
        _: &PoolMap,
        _: &[(TargetId, &Request<'_>)],
        _: &mut dyn FnMut(),
        _: Duration,
    ) -> Vec<Answer> {
        panic!("there is no other engine")
    }
}

fn open(dir: &EngineDir) -> Service {
    Service::open(ServiceParts { dir: dir.clone(), peers: Box::new(NoPeers) }).unwrap()
}

impl Pool {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let time = VirtualTime::new();
        let environment = Environment::new(time.clone());
        let engine_dir = EngineDir::new(environment, dir.path().to_owned(), Vec::new());
        let engines = vec![EngineEntry { addresses: Vec::new() }];
        let map = PoolMap::deal(PoolId([3; 16]), "crash".to_owned(), engines, &[TARGETS]);
        engine_dir.format(&map, EngineId(0)).unwrap();
        let create = Request::ContainerCreate {
            name: "default".to_owned(),
            inheritance: Inheritance::default(),
        };
        match open(&engine_dir).node().call(TargetId(0), &create).unwrap() {
            Reply::Container(container) => {
                Self { _dir: dir, time, engine_dir, root: container.root }
            }
            other => panic!("{other:?}"),
        }
    }

    /// A fresh run of the engine on what is on disk.
    pub(crate) fn service(&self) -> Service {
        open(&self.engine_dir)
    }

    fn boot(&self) -> Node {
        self.service().node()
    }

    fn recover(&self, node: &Node) {
        self.time.sleep(Duration::from_millis(600));
        for target in node.local_targets() {
            recovery::finish_transactions(node, target);
        }
        for target in node.local_targets() {
            assert_eq!(target.lock().locks.len(), 0, "locks stay after recovery");
        }
    }

    fn create(&self, node: &Node, name: &[u8], kind: FileKind) -> Entry {
        let inode = NewInode {
            kind,
            mode: 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            symlink_text: Vec::new(),
            class: ObjectClass::SX,
            chunk_bytes: 1 << 20,
            inheritance: None,
        };
        let request = Request::Create { dir: self.root, name, inode, open: false };
        match node.call(node.entry_target(self.root, name), &request).unwrap() {
            Reply::Created(attr) => Entry { oid: attr.oid, kind },
            other => panic!("{other:?}"),
        }
    }

    fn find(&self, node: &Node, name: &[u8]) -> Option<Oid> {
        let request = Request::Lookup { dir: self.root, name };
        match node.call(node.entry_target(self.root, name), &request) {
            Ok(Reply::Entry { entry, .. }) => Some(entry.oid),
            Err(Status::NotFound) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Two names on different targets.
    fn names(&self, node: &Node) -> (Vec<u8>, Vec<u8>) {
        let from = b"from".to_vec();
        let at = node.entry_target(self.root, &from);
        let to = (0..1000)
            .map(|i| format!("to.{i}").into_bytes())
            .find(|name| node.entry_target(self.root, name) != at)
            .unwrap();
        (from, to)
    }

    /// A rename of `from` to `to`, stopped after its `steps` first steps: prepared, decided.
    fn half_a_rename(&self, node: &Node, from: &[u8], to: &[u8], steps: u32) {
        let entry = Entry { oid: self.find(node, from).unwrap(), kind: FileKind::Regular };
        let coordinator = node.local(node.entry_target(self.root, to)).unwrap();
        let insert =
            Action::InsertEntry { dir: self.root, name: to.to_vec(), entry, replaces: None };
        let remove = Action::RemoveEntry { dir: self.root, name: from.to_vec(), entry };
        let mut parts = Parts::default();
        parts.add(coordinator.id, insert);
        parts.add(node.entry_target(self.root, from), remove);
        Attempt::new(node, coordinator).stop_after(parts, steps).unwrap();
    }
}

#[test]
fn a_rename_that_was_only_prepared_never_was() {
    let pool = Pool::new();
    let node = pool.boot();
    let (from, to) = pool.names(&node);
    let entry = pool.create(&node, &from, FileKind::Regular);
    pool.half_a_rename(&node, &from, &to, 1);
    drop(node);
    let node = pool.boot();
    pool.recover(&node);
    assert_eq!(pool.find(&node, &from), Some(entry.oid));
    assert_eq!(pool.find(&node, &to), None);
}

#[test]
fn a_rename_that_was_decided_is_finished() {
    let pool = Pool::new();
    let node = pool.boot();
    let (from, to) = pool.names(&node);
    let entry = pool.create(&node, &from, FileKind::Regular);
    pool.half_a_rename(&node, &from, &to, 2);
    drop(node);
    let node = pool.boot();
    pool.recover(&node);
    assert_eq!(pool.find(&node, &from), None);
    assert_eq!(pool.find(&node, &to), Some(entry.oid));
}

/// A participant gets the same part again: from a peer that lost its connection before the answer, at
/// the same time, or out of an old connection when all is over.
#[test]
fn a_part_that_is_prepared_again_is_done_once() {
    let pool = Pool::new();
    let node = pool.boot();
    let file = pool.create(&node, b"file", FileKind::Regular).oid;
    let home = node.local_home(file).unwrap();
    let links = || match node.call(file.home(), &Request::GetAttr { oid: file }).unwrap() {
        Reply::Attr(attr) => attr.nlink,
        other => panic!("{other:?}"),
    };
    let id = TransactionId { coordinator: TargetId(9), number: 1 };
    let part = vec![Action::AddLinks { oid: file, links: 1 }];
    let prepare = || node.call(home.id, &Request::Prepare { id, actions: part.clone() });
    prepare().unwrap();
    prepare().unwrap();
    // A further part of the same transaction adds to it.
    let tree = vec![Action::LockTree { root: pool.root }];
    for _ in 0..2 {
        let request = Request::Prepare { id, actions: tree.clone() };
        node.call(home.id, &request).unwrap();
    }
    node.call(home.id, &Request::Commit { id, after: Dependences::NONE }).unwrap();
    assert_eq!(links(), 2);
    assert_eq!(prepare(), Err(Status::Busy), "it is over");
    node.call(home.id, &Request::Commit { id, after: Dependences::NONE }).unwrap();
    assert_eq!((links(), home.lock().locks.len()), (2, 0));
    let aborted = TransactionId { number: 2, ..id };
    node.call(home.id, &Request::Abort { id: aborted }).unwrap();
    let late = node.call(home.id, &Request::Prepare { id: aborted, actions: part.clone() });
    assert_eq!((late, home.lock().locks.len()), (Err(Status::Busy), 0));
}

#[test]
fn directories_move_exchange_and_go() {
    let pool = Pool::new();
    let node = pool.boot();
    let one = pool.create(&node, b"one", FileKind::Directory);
    let two = pool.create(&node, b"two", FileKind::Regular);
    let rename = |from: &[u8], to: &[u8], mode| {
        let request = Request::Rename {
            from_dir: pool.root,
            from_name: from,
            to_dir: pool.root,
            to_name: to,
            mode,
        };
        node.call(node.entry_target(pool.root, to), &request)
    };
    rename(b"one", b"two", RenameMode::Exchange).unwrap();
    assert_eq!(pool.find(&node, b"two"), Some(one.oid));
    assert_eq!(pool.find(&node, b"one"), Some(two.oid));
    assert_eq!(rename(b"one", b"two", RenameMode::Replace), Err(Status::IsDirectory));
    assert_eq!(rename(b"two", b"one", RenameMode::NoReplace), Err(Status::Exists));
    let into_itself = Request::Rename {
        from_dir: pool.root,
        from_name: b"two",
        to_dir: one.oid,
        to_name: b"x",
        mode: RenameMode::Replace,
    };
    let target = node.entry_target(one.oid, b"x");
    assert_eq!(node.call(target, &into_itself), Err(Status::IntoItself));
    let remove = Request::RemoveDirectory { dir: pool.root, name: b"two" };
    node.call(node.entry_target(pool.root, b"two"), &remove).unwrap();
    let late = Request::Link { oid: two.oid, dir: one.oid, name: b"late" };
    let target = node.entry_target(one.oid, b"late");
    assert_eq!(node.call(target, &late), Err(Status::NotFound));
    assert_eq!(node.call(one.oid.home(), &Request::GetAttr { oid: one.oid }), Err(Status::Stale));
}

#[test]
fn a_rename_leaves_nothing_but_a_whiteout() {
    let pool = Pool::new();
    let node = pool.boot();
    let (from, to) = pool.names(&node);
    let file = pool.create(&node, &from, FileKind::Regular);
    let other = pool.create(&node, b"other", FileKind::Regular);
    let device = pool.create(&node, b"device", FileKind::CharDevice);
    let rename = |left: Oid| {
        let request = Request::Rename {
            from_dir: pool.root,
            from_name: &from,
            to_dir: pool.root,
            to_name: &to,
            mode: RenameMode::Whiteout(left),
        };
        node.call(node.entry_target(pool.root, &to), &request)
    };
    assert_eq!(rename(other.oid), Err(Status::Invalid));
    assert_eq!(rename(pool.root), Err(Status::Invalid));
    assert_eq!(pool.find(&node, &to), None);
    rename(device.oid).unwrap();
    assert_eq!(pool.find(&node, &to), Some(file.oid));
    assert_eq!(pool.find(&node, &from), Some(device.oid));
    let attr = match node.call(device.oid.home(), &Request::GetAttr { oid: device.oid }).unwrap() {
        Reply::Attr(attr) => attr,
        other => panic!("{other:?}"),
    };
    assert_eq!(attr.nlink, 2, "the name that it had, and the new one");
}

#[test]
fn an_engine_takes_newer_maps_of_its_pool_only_and_keeps_them() {
    let pool = Pool::new();
    let service = open(&pool.engine_dir);
    let mut before = service.node();
    let old = service.map();
    assert_eq!(service.install_map(old.clone()), Err(Status::Invalid), "not newer");
    let mut foreign = PoolMap { version: old.version + 1, ..old.clone() };
    foreign.pool = PoolId([4; 16]);
    assert_eq!(service.install_map(foreign), Err(Status::Invalid));
    let mut moved = PoolMap { version: old.version + 1, ..old.clone() };
    moved.targets.pop();
    assert_eq!(service.install_map(moved), Err(Status::Invalid), "its own targets stay");
    let mut new = PoolMap { version: old.version + 1, ..old.clone() };
    new.engines.push(EngineEntry { addresses: Vec::new() });
    new.targets.push(EngineId(1));
    service.install_map(new.clone()).unwrap();
    assert_eq!(before.map.target_count(), TARGETS, "a request that is served keeps its map");
    before.refresh();
    assert_eq!(before.map.target_count(), TARGETS + 1);
    drop((before, service));
    assert_eq!(open(&pool.engine_dir).map(), new);
}
