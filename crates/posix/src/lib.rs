//! The file system of Azekura: POSIX over the objects of a pool.
//!
//! [`FileSystem`] has one call per operation, by object id, which is what a mount, an NFS server or
//! a preloaded library translates its requests into. [`Namespace`] has the same by path, with
//! [`File`] and [`Directory`] handles, for programs that use the file system as a library.
//!
//! This crate owns path walk, permission checks, open handles and the only map from a status of the
//! protocol to an errno. It never keeps file data but for what is in flight, and it never knows which
//! front end called it.

mod cache;
mod changes;
mod contents;
mod credentials;
pub mod errno;
mod filesystem;
mod handle;
mod known_files;
mod layout;
mod listed;
mod local_file;
mod looked_up;
mod namespace;
mod newborn;
mod ops;
mod permission;
mod privileges;
mod read_lately;
mod reader;
mod reopened;
mod unsynced;
mod walked;
mod writer;

pub use azekura_client::{ClientError, LocalUse, Pool};
pub use azekura_policy::{ReadPolicy, ReadPolicyError, WritePolicy, WritePolicyError};
pub use azekura_proto::attr::{ChangeMark, SetTime};
pub use azekura_proto::message::{Allocation, Lock, LockKind, LockMode, RenameMode, XattrMode};
pub use azekura_proto::{Attr, FileKind, Oid, Timestamp};
pub use credentials::Credentials;
pub use errno::{Errno, Result};
pub use filesystem::{CachePolicy, FileSystem, FsConfig, MountError};
pub use handle::OpenFile;
pub use listed::{Foreseen, Listed, Trust};
pub use namespace::{Directory, DirectoryEntry, File, LEFT, Namespace, OpenOptions, below_prefix};
pub use ops::attr::AttrUpdate;
pub use ops::changed_dir::ChangedDir;
pub use ops::create::{NewEntry, Striping};
pub use ops::readdir::{AttrsWanted, DirPage};
pub use ops::seek::SeekTo;
pub use ops::stateless::{ObjectRead, ObjectSync, ObjectWrite, ReadRequest, WriteVerifier};
pub use ops::statfs::StatFs;
pub use ops::way::BelievedWay;
pub use permission::{Access, may_access, may_change};
pub use privileges::Privileges;
pub use reader::{Trace, TraceDecision, TracePolicy, TraceRecord};
pub use rustix::fs::OFlags;
