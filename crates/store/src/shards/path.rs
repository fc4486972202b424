//! Names of shard files: from ids to paths and back. Owns the naming, which is part of the on-disk
//! format. Does no I/O.

use azekura_proto::Oid;

/// The directory of a target that holds all shard files.
pub(crate) const DATA_NAME: &str = "data";
/// Number of directories that shard files are spread over.
pub(crate) const DATA_DIRS: usize = 256;

/// One shard of one object.
pub(crate) type ShardKey = (Oid, u16);

/// Which of the data directories holds the shard's file.
pub(crate) fn dir_index(oid: Oid) -> usize {
    usize::from(oid.to_bytes()[15])
}

/// The name of a data directory.
pub(crate) fn dir_name(index: usize) -> String {
    assert!(index < DATA_DIRS, "there is no data directory {index}");
    format!("{index:02x}")
}

/// The path below the data directory.
pub(crate) fn relative_path((oid, shard): ShardKey) -> String {
    format!("{:02x}/{oid}.{shard}", dir_index(oid))
}

/// The shard that a file name in data directory `index` names; `None` if it is not such a name.
pub(crate) fn parse_name(index: usize, name: &str) -> Option<ShardKey> {
    let (oid, shard) = name.rsplit_once('.')?;
    let oid: Oid = oid.parse().ok()?;
    let key = (oid, shard.parse().ok()?);
    (dir_index(oid) == index && relative_path(key)[3..] == *name).then_some(key)
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    #[test]
    fn a_name_leads_back_to_its_shard() {
        let oid = Oid::new(ContainerId(9), ObjectClass::S4, TargetId(3), 0x1ab);
        let path = relative_path((oid, 12));
        assert!(path.starts_with("ab/"));
        assert_eq!(parse_name(0xab, &path[3..]), Some((oid, 12)));
        assert_eq!(parse_name(0xac, &path[3..]), None);
        assert_eq!(parse_name(0xab, &format!("{oid}.012")), None);
        assert_eq!(parse_name(0xab, "core.123"), None);
    }

    /// Shard files are found by these names: a change loses the data of every pool.
    #[test]
    fn names_never_change() {
        let oid = Oid::new(ContainerId(9), ObjectClass::S4, TargetId(3), 0x1ab);
        let golden = "ab/0000000900000000.03000300000001ab.12";
        assert_eq!(relative_path((oid, 12)), golden);
        assert_eq!(dir_name(5), "05");
    }
}
