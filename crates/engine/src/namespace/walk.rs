//! Several names of a path by one request, for clients that are far away. Owns where such a walk ends. It
//! follows no symlink and judges no permission: both are the client's, which is told of every step.

use azekura_proto::limits::WALK_NAMES_MAX;
use azekura_proto::message::{Answer, Container, Reply};
use azekura_proto::transaction::Entry;
use azekura_proto::{Attr, FileKind, Oid, SessionId, Status};

use crate::namespace::attributes::local_attributes;
use crate::namespace::entries::look;
use crate::node::Node;
use crate::target::Target;

/// Where a path leads, as far as it was walked.
#[derive(Default)]
struct Walked {
    /// Attributes of the directory where it begins.
    above: Option<Box<Attr>>,
    steps: Vec<(Entry, Option<Box<Attr>>)>,
    is_absent: bool,
}

/// Answer to `Walk`.
pub(crate) fn walk(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    (dir, path): (Oid, &[u8]),
    with_dir: bool,
) -> Answer {
    let Walked { above, steps, is_absent } = along(node, target, asker, (dir, path), with_dir)?;
    Ok(Reply::Walked { dir: above, steps, is_absent })
}

/// What `ContainerWalk` is answered, of a container that was found. What goes wrong on the path is told to whoever looks up its
/// names by themselves.
pub(crate) fn walk_container(
    node: &Node,
    asker: Option<SessionId>,
    container: Container,
    path: &[u8],
) -> Reply {
    let root = container.root;
    let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    let local = node.local(node.entry_target(root, first)).filter(|_| !first.is_empty());
    let walked = local.and_then(|local| along(node, local, asker, (root, path), false).ok());
    let Walked { steps, is_absent, .. } = walked.unwrap_or_default();
    let dir = local_attributes(node, asker, root).unwrap_or_default();
    Reply::ContainerWalked { container, dir, steps, is_absent }
}

/// Walks along a path. What goes wrong behind the first name only ends the walk: whoever looks up the next name
/// by itself is told.
fn along(
    node: &Node,
    target: &Target,
    asker: Option<SessionId>,
    (dir, path): (Oid, &[u8]),
    with_dir: bool,
) -> Result<Walked, Status> {
    let names = || path.split(|byte| *byte == b'/');
    if names().nth(WALK_NAMES_MAX).is_some() {
        return Err(Status::TooLarge);
    }
    let above =
        if with_dir { local_attributes(node, asker, dir).unwrap_or_default() } else { None };
    let mut steps = Vec::new();
    let mut is_absent = false;
    let mut at = dir;
    for name in names() {
        let looked = if steps.is_empty() {
            look(node, target, asker, (at, name))
        } else {
            let Some(local) = node.local(node.entry_target(at, name)) else { break };
            look(node, local, asker, (at, name))
        };
        let (entry, attr) = match looked {
            Ok(found) => found,
            Err(Status::NotFound) => {
                is_absent = true;
                break;
            }
            Err(status) if steps.is_empty() => return Err(status),
            Err(_) => break,
        };
        at = entry.oid;
        steps.push((entry, attr));
        if entry.kind != FileKind::Directory {
            break;
        }
    }
    Ok(Walked { above, steps, is_absent })
}
