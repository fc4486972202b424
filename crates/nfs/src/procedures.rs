//! The programs that a gateway answers for, and their procedures by name. Owns their numbers (RFC 1813,
//! RFC 1833, XNFS); nobody else spells one.

/// A program with its one version here and the names of its procedures, in the order of their numbers.
#[derive(Debug)]
pub struct Program {
    /// As metrics and logs call it.
    pub name: &'static str,
    /// Its number in calls.
    pub number: u32,
    /// The version that is served.
    pub version: u32,
    /// The names of its procedures.
    pub procedures: &'static [&'static str],
}

/// Network File System, version 3.
pub const NFS: Program = Program {
    name: "nfs",
    number: 100_003,
    version: 3,
    procedures: &[
        "NULL",
        "GETATTR",
        "SETATTR",
        "LOOKUP",
        "ACCESS",
        "READLINK",
        "READ",
        "WRITE",
        "CREATE",
        "MKDIR",
        "SYMLINK",
        "MKNOD",
        "REMOVE",
        "RMDIR",
        "RENAME",
        "LINK",
        "READDIR",
        "READDIRPLUS",
        "FSSTAT",
        "FSINFO",
        "PATHCONF",
        "COMMIT",
    ],
};

/// The MOUNT protocol, version 3.
pub const MOUNT: Program = Program {
    name: "mount",
    number: 100_005,
    version: 3,
    procedures: &["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"],
};

/// The network lock manager, version 4.
pub const NLM: Program = Program {
    name: "nlm",
    number: 100_021,
    version: 4,
    procedures: &[
        "NULL",
        "TEST",
        "LOCK",
        "CANCEL",
        "UNLOCK",
        "GRANTED",
        "TEST_MSG",
        "LOCK_MSG",
        "CANCEL_MSG",
        "UNLOCK_MSG",
        "GRANTED_MSG",
        "TEST_RES",
        "LOCK_RES",
        "CANCEL_RES",
        "UNLOCK_RES",
        "GRANTED_RES",
        "SM_NOTIFY",
        "RESERVED_17",
        "RESERVED_18",
        "RESERVED_19",
        "SHARE",
        "UNSHARE",
        "NM_LOCK",
        "FREE_ALL",
    ],
};

/// The network status monitor, version 1.
pub const NSM: Program = Program {
    name: "nsm",
    number: 100_024,
    version: 1,
    procedures: &["NULL", "STAT", "MON", "UNMON", "UNMON_ALL", "SIMU_CRASH", "NOTIFY"],
};

/// The port mapper, version 2.
pub const PORTMAP: Program = Program {
    name: "portmap",
    number: 100_000,
    version: 2,
    procedures: &["NULL", "SET", "UNSET", "GETPORT", "DUMP", "CALLIT"],
};

/// All of them.
pub const PROGRAMS: [&Program; 5] = [&NFS, &MOUNT, &NLM, &NSM, &PORTMAP];
