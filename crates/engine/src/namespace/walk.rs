//! Several names of a path by one request, for clients that are far away. Owns where such a walk ends. It
//! follows no symlink and judges no permission: both are the client's, which is told of every step.

use azekura_proto::limits::WALK_NAMES_MAX;
use azekura_proto::message::{Answer, Reply};
use azekura_proto::{FileKind, Oid, SessionId, Status};

use crate::namespace::attributes::local_attributes;
use crate::namespace::entries::look;
use crate::node::Node;
use crate::target::Target;

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
    Ok(Reply::Walked { dir: above, steps, is_absent })
}
