//! Moving entries: `rename`, without replacing, exchanging, and leaving a whiteout. The target of the new name
//! coordinates. Owns the checks of types, of loops, and what becomes of the object that is
//! replaced.

use azekura_proto::attr::FileKind;
use azekura_proto::limits::DIRECTORY_DEPTH_MAX;
use azekura_proto::message::{Answer, RenameMode, Reply, Request, check_name};
use azekura_proto::transaction::{Action, Entry};
use azekura_proto::{Oid, Status};

use crate::namespace::entries::{add_directory_removal, find_entry};
use crate::node::Node;
use crate::requests::retry::Caller;
use crate::target::Target;
use crate::transaction::coordinator::{Need, Parts, run_with_tree};
use crate::transaction::participant::directory_above;

/// What a whiteout is.
const WHITEOUT: FileKind = FileKind::CharDevice;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryName<'a> {
    pub(crate) dir: Oid,
    pub(crate) name: &'a [u8],
}

/// Answer to `Rename`.
pub(crate) fn rename(
    node: &Node,
    target: &Target,
    caller: &Caller,
    from: EntryName<'_>,
    to: EntryName<'_>,
    mode: RenameMode,
) -> Answer {
    check_name(from.name)?;
    check_name(to.name)?;
    if caller.first_answer(&target.store)?.is_some() {
        return Ok(Reply::Done);
    }
    if from.dir.container() != to.dir.container() {
        return Err(Status::Invalid);
    }
    let node = &node.on_behalf_of(caller.client());
    run_with_tree(node, target, caller, |tree_is_locked| {
        let source = look(node, caller, from)?.ok_or(Status::NotFound)?;
        let there = find_entry(node, target, caller.client(), (to.dir, to.name))?;
        let moves_directory = source.kind == FileKind::Directory
            || (mode == RenameMode::Exchange
                && there.is_some_and(|entry| entry.kind == FileKind::Directory));
        if moves_directory && from.dir != to.dir && !tree_is_locked {
            return root_of(node, target, to.dir).map(Need::TreeLock);
        }
        parts_of(node, target, from, to, mode, source, there).map(Need::Changes)
    })?;
    Ok(Reply::Done)
}

fn look(node: &Node, caller: &Caller, place: EntryName<'_>) -> Result<Option<Entry>, Status> {
    let target = node.entry_target(place.dir, place.name);
    match node.local(target) {
        Some(local) => find_entry(node, local, caller.client(), (place.dir, place.name)),
        None => match node.call(target, &Request::Lookup { dir: place.dir, name: place.name }) {
            Ok(Reply::Entry { entry, .. }) => Ok(Some(entry)),
            Ok(_) => Err(Status::Damaged),
            Err(Status::NotFound) => Ok(None),
            Err(status) => Err(status),
        },
    }
}

fn root_of(node: &Node, target: &Target, dir: Oid) -> Result<Oid, Status> {
    let mut at = dir;
    for _ in 0..DIRECTORY_DEPTH_MAX {
        let parent = directory_above(node, target, at)?;
        if parent == at {
            return Ok(at);
        }
        at = parent;
    }
    Err(Status::Damaged)
}

/// Refuses to move `moved` to a place below itself. The tree is locked, so nothing changes.
fn refuse_loop(node: &Node, target: &Target, moved: Oid, into: Oid) -> Result<(), Status> {
    let mut at = into;
    for _ in 0..DIRECTORY_DEPTH_MAX {
        if at == moved {
            return Err(Status::IntoItself);
        }
        let parent = directory_above(node, target, at)?;
        if parent == at {
            return Ok(());
        }
        at = parent;
    }
    Err(Status::Damaged)
}

fn parts_of(
    node: &Node,
    target: &Target,
    from: EntryName<'_>,
    to: EntryName<'_>,
    mode: RenameMode,
    source: Entry,
    there: Option<Entry>,
) -> Result<Parts, Status> {
    match (mode, there) {
        (RenameMode::NoReplace, Some(_)) => return Err(Status::Exists),
        (RenameMode::Exchange, None) => return Err(Status::NotFound),
        // Two names of one object: POSIX has rename succeed and do nothing.
        (_, Some(entry)) if entry.oid == source.oid => return Ok(Parts::default()),
        _ => {}
    }
    if source.kind == FileKind::Directory {
        refuse_loop_if_moved(node, target, source.oid, from.dir, to.dir)?;
    }
    let mut parts = Parts::default();
    let from_target = node.entry_target(from.dir, from.name);
    let insert =
        Action::InsertEntry { dir: to.dir, name: to.name.to_vec(), entry: source, replaces: there };
    if mode == RenameMode::Exchange {
        let there = there.ok_or(Status::NotFound)?;
        if there.kind == FileKind::Directory {
            refuse_loop_if_moved(node, target, there.oid, to.dir, from.dir)?;
        }
        let back = Action::InsertEntry {
            dir: from.dir,
            name: from.name.to_vec(),
            entry: there,
            replaces: Some(source),
        };
        parts.add(target.id, insert);
        parts.add(from_target, back);
        moved(&mut parts, there, to.dir, from.dir);
    } else {
        // Taken out first: both names may share a bucket.
        parts.add(from_target, take_out(node, from, source, mode)?);
        parts.add(target.id, insert);
        if let RenameMode::Whiteout(left) = mode {
            parts.add(left.home(), Action::AddLinks { oid: left, links: 1 });
        }
        if let Some(replaced) = there {
            match (source.kind, replaced.kind) {
                (FileKind::Directory, FileKind::Directory) => {
                    // What moves is an entry of what is replaced: removing it first would make
                    // that look empty.
                    if replaced.oid == from.dir {
                        return Err(Status::NotEmpty);
                    }
                    add_directory_removal(node, &mut parts, replaced.oid);
                }
                (FileKind::Directory, _) => return Err(Status::NotDirectory),
                (_, FileKind::Directory) => return Err(Status::IsDirectory),
                _ => {
                    parts.add(
                        replaced.oid.home(),
                        Action::AddLinks { oid: replaced.oid, links: -1 },
                    );
                }
            }
        }
    }
    moved(&mut parts, source, from.dir, to.dir);
    Ok(parts)
}

/// What happens under the old name of what moves away: nothing stays there, or the whiteout does.
fn take_out(
    node: &Node,
    from: EntryName<'_>,
    source: Entry,
    mode: RenameMode,
) -> Result<Action, Status> {
    let (dir, name) = (from.dir, from.name.to_vec());
    let RenameMode::Whiteout(left) = mode else {
        return Ok(Action::RemoveEntry { dir, name, entry: source });
    };
    if left.container() != dir.container() {
        return Err(Status::Invalid);
    }
    match node.call(left.home(), &Request::GetAttr { oid: left })? {
        Reply::Attr(attr) if attr.kind == WHITEOUT => {}
        Reply::Attr(_) => return Err(Status::Invalid),
        _ => return Err(Status::Damaged),
    }
    let entry = Entry { oid: left, kind: WHITEOUT };
    Ok(Action::InsertEntry { dir, name, entry, replaces: Some(source) })
}

fn refuse_loop_if_moved(
    node: &Node,
    target: &Target,
    dir: Oid,
    from: Oid,
    to: Oid,
) -> Result<(), Status> {
    if from == to {
        return Ok(());
    }
    refuse_loop(node, target, dir, to)
}

/// The object that moves is marked as changed, and a directory learns what is above it now.
fn moved(parts: &mut Parts, entry: Entry, from: Oid, to: Oid) {
    let action = if entry.kind == FileKind::Directory && from != to {
        Action::SetParent { dir: entry.oid, parent: to }
    } else {
        Action::AddLinks { oid: entry.oid, links: 0 }
    };
    parts.add(entry.oid.home(), action);
}
