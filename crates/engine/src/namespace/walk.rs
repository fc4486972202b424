//! Several names of a path by one request, for clients that are far away. Owns where such a walk ends. It
//! follows no symlink and judges no permission: both are the client's, which is told of every step.

use azekura_proto::limits::{NAME_BYTES_MAX, WALK_NAMES_MAX};
use azekura_proto::message::{Answer, Reply};
use azekura_proto::transaction::Entry;
use azekura_proto::{Attr, FileKind, Oid, SessionId, Status};

use crate::namespace::attributes::{complete, load_inode};
use crate::namespace::entries::find_entry;
use crate::node::Node;
use crate::target::Target;

type Attributes = Option<Box<Attr>>;

/// What a name was found to be.
enum Looked {
    There(Entry, Attributes),
    Absent,
}

/// The attributes of an object, if its home is here.
fn attributes(node: &Node, asker: Option<SessionId>, oid: Oid) -> Result<Attributes, Status> {
    let Some(home) = node.local_home(oid) else { return Ok(None) };
    let inode = load_inode(home, oid)?;
    Ok(Some(Box::new(complete(node, home, asker, oid, &inode)?)))
}

fn look(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    (dir, name): (Oid, &[u8]),
) -> Result<Looked, Status> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    let Some(entry) = find_entry(node, target, asker, (dir, name))? else {
        return Ok(Looked::Absent);
    };
    match attributes(node, asker, entry.oid) {
        // Removed since the entry was read.
        Err(Status::Stale) => Ok(Looked::Absent),
        attr => Ok(Looked::There(entry, attr?)),
    }
}

/// Answer to `Walk`. What goes wrong behind the first name only ends the walk: whoever looks up the next name
/// by itself is told.
pub(crate) fn walk(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    (dir, path): (Oid, &[u8]),
    with_dir: bool,
) -> Answer {
    let names = || path.split(|byte| *byte == b'/');
    if names().nth(WALK_NAMES_MAX).is_some() {
        return Err(Status::TooLarge);
    }
    let above = if with_dir { attributes(node, asker, dir).unwrap_or_default() } else { None };
    let mut steps = Vec::new();
    let mut is_absent = false;
    let mut at = dir;
    for name in names() {
        let looked = if steps.is_empty() {
            look(node, target, asker, (at, name))?
        } else {
            let Some(local) = node.local(node.entry_target(at, name)) else { break };
            let Ok(looked) = look(node, local, asker, (at, name)) else { break };
            looked
        };
        let Looked::There(entry, attr) = looked else {
            is_absent = true;
            break;
        };
        at = entry.oid;
        steps.push((entry, attr));
        if entry.kind != FileKind::Directory {
            break;
        }
    }
    Ok(Reply::Walked { dir: above, steps, is_absent })
}
