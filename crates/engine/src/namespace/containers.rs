//! Containers: the list of them on target 0 of the pool, and their root directories. Owns the rule
//! that a container's id is never given twice.

use azekura_proto::attr::{FileKind, Inheritance, NewInode};
use azekura_proto::limits::{CONTAINERS_MAX, NAME_BYTES_MAX};
use azekura_proto::message::{Answer, Container, DirShardStat, Reply, Request};
use azekura_proto::{ContainerId, Oid, SessionId, Status, TargetId};
use azekura_store::Space;

use crate::namespace::leased_names;
use crate::node::Node;
use crate::records::record::{Inode, decode};
use crate::records::stored::{load, store_status};
use crate::records::update::Update;
use crate::requests::retry::{Caller, FirstAnswer};
use crate::target::Target;

const TAG: &[u8] = b"container/";
const NEXT_KEY: &[u8] = b"next-container";

fn key(name: &str) -> Vec<u8> {
    [TAG, name.as_bytes()].concat()
}

fn check_place(target: &Target) -> Result<(), Status> {
    if target.id == TargetId(0) { Ok(()) } else { Err(Status::WrongTarget) }
}

/// Answer to `ContainerOpen`.
pub(crate) fn open(target: &Target, name: &str) -> Answer {
    find(target, name).map(Reply::Container)
}

/// Finds a container.
pub(crate) fn find(target: &Target, name: &str) -> Result<Container, Status> {
    check_place(target)?;
    load(&target.store, Space::System, &key(name))?.ok_or(Status::NotFound)
}

/// Answer to `ContainerList`.
pub(crate) fn list(target: &Target) -> Answer {
    check_place(target)?;
    let records =
        target.store.scan(Space::System, TAG, None, CONTAINERS_MAX).map_err(store_status)?;
    let containers: Result<Vec<Container>, Status> =
        records.iter().map(|(_, value)| decode(value)).collect();
    Ok(Reply::Containers(containers?))
}

/// Answer to `ContainerCreate`.
pub(crate) fn create(
    target: &Target,
    caller: &Caller,
    name: &str,
    inheritance: Inheritance,
) -> Answer {
    check_place(target)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(['/', ':', '\0']) {
        return Err(Status::Invalid);
    }
    if caller.first_answer(&target.store)?.is_some() {
        return open(target, name);
    }
    let _state = target.lock();
    if target.store.get(Space::System, &key(name)).map_err(store_status)?.is_some() {
        return Err(Status::Exists);
    }
    let next: u32 = load(&target.store, Space::System, NEXT_KEY)?.unwrap_or(1);
    let id = ContainerId(next);
    let root = Oid::new(id, inheritance.dir_class, target.id, target.draw_serial()?);
    let mut inode = Inode::new(&root_inode(inheritance), Some(root), target.now());
    inode.parent = Some(root);
    let container = Container { id, name: name.to_owned(), root, inheritance };
    let mut update = Update::new(target);
    update.put(Space::System, NEXT_KEY, &(next + 1));
    update.put(Space::System, &key(name), &container);
    update.put(Space::Inode, &root.to_bytes(), &inode);
    update.set_dir_shard(
        root,
        Some(DirShardStat { changed: target.now(), ..DirShardStat::default() }),
    );
    caller.record(&mut update, FirstAnswer::Done);
    update.commit()?;
    target.objects.add(root);
    Ok(Reply::Container(container))
}

fn root_inode(inheritance: Inheritance) -> NewInode {
    NewInode {
        kind: FileKind::Directory,
        // Whoever has the pool's secret may write; a pool for several users sets its own rules.
        mode: 0o1777,
        uid: 0,
        gid: 0,
        rdev: 0,
        symlink_text: Vec::new(),
        class: inheritance.dir_class,
        chunk_bytes: inheritance.chunk_bytes,
        inheritance: Some(inheritance),
    }
}

/// Answer to `ContainerChange`.
pub(crate) fn change(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    name: &str,
    inheritance: Inheritance,
) -> Answer {
    let root = find(target, name)?.root;
    let _state = leased_names::lock_to_rejudge(node, target, root, asker)?;
    let mut container = find(target, name)?;
    if container.root != root {
        // Another one of this name.
        return Err(Status::Busy);
    }
    container.inheritance = inheritance;
    let mut update = Update::new(target);
    let root = container.root.to_bytes();
    let mut inode: Inode = update.get(Space::Inode, &root)?.ok_or(Status::Damaged)?;
    inode.inheritance = Some(inheritance);
    inode.ctime = target.fine_now();
    update.put(Space::Inode, &root, &inode);
    update.put(Space::System, &key(name), &container);
    update.commit()?;
    Ok(Reply::Container(container))
}

/// Answer to `ContainerDestroy`: every target marks the container first, so that nothing stays
/// when this engine stops half-way; the name goes last.
pub(crate) fn destroy(node: &Node, target: &Target, caller: &Caller, name: &str) -> Answer {
    check_place(target)?;
    if caller.first_answer(&target.store)?.is_some() {
        return Ok(Reply::Done);
    }
    let container: Container =
        load(&target.store, Space::System, &key(name))?.ok_or(Status::NotFound)?;
    for index in 0..node.map.target_count() {
        node.call(TargetId(index), &Request::ContainerReclaim { container: container.id })?;
    }
    let _state = target.lock();
    let mut update = Update::new(target);
    // Another may have destroyed it too, and the name lead to a new one by now.
    let now: Option<Container> = load(&target.store, Space::System, &key(name))?;
    if now.is_some_and(|now| now.id == container.id) {
        update.delete(Space::System, &key(name));
    }
    caller.record(&mut update, FirstAnswer::Done);
    update.commit()?;
    Ok(Reply::Done)
}
