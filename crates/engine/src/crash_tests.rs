//! Stops transactions between their steps, as a crash would, and looks at what a restart makes of
//! them: never both names, never none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use azekura_proto::attr::{FileKind, Inheritance, NewInode};
use azekura_proto::message::{RenameMode, Reply, Request};
use azekura_proto::placement::entry_target;
use azekura_proto::pool_map::EngineEntry;
use azekura_proto::transaction::{Action, Entry};
use azekura_proto::{EngineId, ObjectClass, Oid, PoolId, PoolMap, Status, TargetId};
use azekura_wire::Secret;
use parking_lot::RwLock;
use tempfile::TempDir;

use crate::engine::{Engine, EngineConfig, Shared, open_node};
use crate::metrics::Metrics;
use crate::node::Node;
use crate::recovery;
use crate::transaction::{Attempt, Plan};

const TARGETS: u16 = 4;

struct Pool {
    _dir: TempDir,
    shared: Shared,
    map: PoolMap,
    root: Oid,
}

fn shared(dir: &Path) -> Shared {
    Shared {
        config: EngineConfig {
            dir: dir.to_owned(),
            target_dirs: Vec::new(),
            target_count: TARGETS,
            listen: Vec::new(),
            secret: Secret::generate().unwrap(),
            metrics_listen: None,
        },
        node: RwLock::new(None),
        metrics: Arc::new(Metrics::new()),
        stopping: Arc::new(AtomicBool::new(false)),
        open_connections: AtomicUsize::new(0),
    }
}

impl Pool {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shared = shared(dir.path());
        let engines = vec![EngineEntry { addresses: Vec::new() }];
        let map = PoolMap::deal(PoolId([3; 16]), "crash".to_owned(), engines, &[TARGETS]);
        Engine::format(&shared.config, &map, EngineId(0)).unwrap();
        let node = open_node(&shared, EngineId(0), map.clone()).unwrap();
        let create = Request::ContainerCreate {
            name: "default".to_owned(),
            inheritance: Inheritance::default(),
        };
        let Reply::Container(container) = node.call(TargetId(0), &create).unwrap() else {
            panic!("no container")
        };
        Self { _dir: dir, shared, map, root: container.root }
    }

    /// A fresh run of the engine on what is on disk.
    fn boot(&self) -> Arc<Node> {
        open_node(&self.shared, EngineId(0), self.map.clone()).unwrap()
    }

    fn settle(node: &Node) {
        std::thread::sleep(std::time::Duration::from_millis(600));
        for target in node.local_targets() {
            recovery::settle(node, target);
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
        let request = Request::Create { dir: self.root, name, inode, hold: false };
        match node.call(entry_target(self.root, name, TARGETS), &request).unwrap() {
            Reply::Created(attr) => Entry { oid: attr.oid, kind },
            other => panic!("{other:?}"),
        }
    }

    fn find(&self, node: &Node, name: &[u8]) -> Option<Oid> {
        let request = Request::Lookup { dir: self.root, name };
        match node.call(entry_target(self.root, name, TARGETS), &request) {
            Ok(Reply::Entry { entry, .. }) => Some(entry.oid),
            Err(Status::NotFound) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Two names on different targets.
    fn names(&self) -> (Vec<u8>, Vec<u8>) {
        let from = b"from".to_vec();
        let at = entry_target(self.root, &from, TARGETS);
        let to = (0..1000)
            .map(|i| format!("to.{i}").into_bytes())
            .find(|name| entry_target(self.root, name, TARGETS) != at)
            .unwrap();
        (from, to)
    }

    /// A rename of `from` to `to`, stopped after its `steps` first steps: prepared, decided.
    fn half_a_rename(&self, node: &Node, from: &[u8], to: &[u8], steps: u32) {
        let entry = Entry { oid: self.find(node, from).unwrap(), kind: FileKind::Regular };
        let coordinator = node.local(entry_target(self.root, to, TARGETS)).unwrap();
        let insert =
            Action::InsertEntry { dir: self.root, name: to.to_vec(), entry, replaces: None };
        let remove = Action::RemoveEntry { dir: self.root, name: from.to_vec(), entry };
        let mut plan = Plan::default();
        plan.add(coordinator.id, insert);
        plan.add(entry_target(self.root, from, TARGETS), remove);
        Attempt::new(node, coordinator).stop_after(plan, steps).unwrap();
    }
}

#[test]
fn a_rename_that_was_only_prepared_never_was() {
    let pool = Pool::new();
    let (from, to) = pool.names();
    let node = pool.boot();
    let entry = pool.create(&node, &from, FileKind::Regular);
    pool.half_a_rename(&node, &from, &to, 1);
    drop(node);
    let node = pool.boot();
    Pool::settle(&node);
    assert_eq!(pool.find(&node, &from), Some(entry.oid));
    assert_eq!(pool.find(&node, &to), None);
}

#[test]
fn a_rename_that_was_decided_is_finished() {
    let pool = Pool::new();
    let (from, to) = pool.names();
    let node = pool.boot();
    let entry = pool.create(&node, &from, FileKind::Regular);
    pool.half_a_rename(&node, &from, &to, 2);
    drop(node);
    let node = pool.boot();
    Pool::settle(&node);
    assert_eq!(pool.find(&node, &from), None);
    assert_eq!(pool.find(&node, &to), Some(entry.oid));
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
        node.call(entry_target(pool.root, to, TARGETS), &request)
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
    let target = entry_target(one.oid, b"x", TARGETS);
    assert_eq!(node.call(target, &into_itself), Err(Status::IntoItself));
    let remove = Request::RemoveDirectory { dir: pool.root, name: b"two" };
    node.call(entry_target(pool.root, b"two", TARGETS), &remove).unwrap();
    let late = Request::Link { oid: two.oid, dir: one.oid, name: b"late" };
    let target = entry_target(one.oid, b"late", TARGETS);
    assert_eq!(node.call(target, &late), Err(Status::NotFound));
    assert_eq!(node.call(one.oid.home(), &Request::GetAttr { oid: one.oid }), Err(Status::Stale));
}
