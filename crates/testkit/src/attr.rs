//! Attributes for tests to start from. Owns the values that a test does not care about.

use azekura_proto::attr::FileKind;
use azekura_proto::{Attr, ContainerId, ObjectClass, Oid, TargetId, Timestamp};

/// An empty object of some kind that belongs to root, for a test to change what it is about.
pub fn attr(kind: FileKind) -> Attr {
    let time = Timestamp::default();
    Attr {
        oid: Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 1),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        size: 0,
        blocks_512: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        rdev: 0,
        chunk_bytes: 4096,
        striped: false,
        has_xattrs: false,
        inheritance: None,
        parent: None,
    }
}
