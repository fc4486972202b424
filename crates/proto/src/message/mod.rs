//! Requests and replies between a client and an engine, and between engines. Owns their meaning;
//! the bytes are [`crate::frame`]'s. Names and values in requests borrow from the receive buffer.

mod check;
mod directory;
mod handling;
mod handshake;
mod reply;
mod request;
mod stat;
mod terms;
pub mod typed;

pub use check::{Repair, ScanItem, ScanKind};
pub use directory::{DirCookie, DirEntry, check_name, entry_of};
pub use handshake::{
    Challenge, EarlyProof, Hello, MAGIC, NONCE_BYTES, PROOF_BYTES, Proof, Refusal, Role, Ticket,
    VERSION, Welcome,
};
pub use reply::{Answer, Reply};
pub use request::{Request, RequestHead};
pub use stat::{Container, DirShardStat, EngineReport, ShardStat, SpaceStat, TargetReport};
pub use terms::{
    Allocation, ChangeStream, Condition, Lock, LockKind, LockMode, NamesLease, RenameMode,
    ShardRef, ValueUpdate, XattrMode,
};
pub use typed::TypedRequest;
