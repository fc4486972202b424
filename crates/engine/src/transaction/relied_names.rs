//! Names that clients rely on under a lease of their directory's shard: under a read lease on those that are
//! there, under a write lease on all that there are. Owns which actions have to do with such names. Nobody is
//! waited for here: who wants to change one comes back, as it does for a lock.

use azekura_proto::attr::FileKind;
use azekura_proto::transaction::Action;
use azekura_proto::{SessionId, Status};

use crate::data::leases::Change;
use crate::namespace::leased_names::are_withheld;
use crate::node::Node;
use crate::target::Target;

/// Keeps the names that actions take away, or lead elsewhere, from being relied upon until what this gives
/// is dropped. The caller keeps them from being looked up meanwhile, or afterwards. `who`: the session on
/// whose behalf it is, if that is known.
///
/// # Errors
/// `Busy` while others rely on one of them, two seconds at most.
pub(crate) fn keep_from_leases<'t>(
    node: &Node,
    target: &'t Target,
    who: Option<SessionId>,
    actions: &[Action],
) -> Result<Vec<Change<'t>>, Status> {
    let mut changes = Vec::new();
    for action in actions {
        let is_withheld = match action {
            Action::RemoveEntry { dir, .. } | Action::InsertEntry { dir, .. } => {
                are_withheld(node, target, *dir, who)
            }
            // It is empty: only what is on its way there counts.
            Action::SealShard { dir } => node
                .shard_on_target(*dir, target.id)
                .is_some_and(|shard| target.leases.is_withheld((*dir, shard), who)),
            _ => false,
        };
        if is_withheld {
            return Err(Status::Busy);
        }
        let (dir, gone) = match action {
            Action::RemoveEntry { dir, entry, .. }
            | Action::InsertEntry { dir, replaces: Some(entry), .. } => (*dir, entry),
            _ => continue,
        };
        if gone.kind != FileKind::Directory
            && let Some(shard) = node.shard_on_target(dir, target.id)
        {
            changes.push(target.leases.try_change((dir, shard), who).ok_or(Status::Busy)?);
        }
    }
    Ok(changes)
}
