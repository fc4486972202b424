//! Node numbers of the kernel and objects. A node number is the object's inode number, but for the
//! root, which the protocol calls 1. Stateless: no table, and nothing to forget.

use azekura_posix::{Errno, FileSystem, Oid};

/// What the protocol calls the root.
pub(crate) const ROOT: u64 = 1;

/// The object of a node.
pub(crate) fn object(fs: &FileSystem, node: u64) -> Result<Oid, Errno> {
    fs.object(node)
}

/// The node, and the inode number shown to programs, of an object.
pub(crate) fn number(fs: &FileSystem, oid: Oid) -> u64 {
    if oid == fs.root() { ROOT } else { oid.inode_number() }
}
