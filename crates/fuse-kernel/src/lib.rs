//! The FUSE protocol of the Linux kernel: requests from `/dev/fuse` or over io_uring, replies, mounting. It
//! knows nothing of the file system that is served, and holds no state of it.

mod abi;
mod affinity;
mod channel;
mod dirent;
mod dispatch;
mod entry;
mod handler;
mod latch;
mod lent;
mod mount;
mod negotiate;
mod notify;
mod operation;
mod queues;
mod reply;
mod request;
mod session;
mod session_error;
mod slot;
mod sys;
mod transport;

#[cfg(test)]
mod request_tests;

pub use abi::Attr;
pub use dirent::{DirentWriter, Full, ListedEntry};
pub use handler::Handler;
pub use lent::{Lender, LentFile, passthrough_refusal};
pub use mount::{
    MountError, MountOptions, attach, mount, mounted_device, raise_readahead, unmount,
};
pub use negotiate::{Negotiated, SessionConfig};
pub use notify::Notifier;
pub use operation::{CopyRange, Lock, LockKind, Operation, ReadDir, SetAttr, SetTime, Write};
pub use reply::{Entry, OpenFlags, Replier, Statfs, Timestamp, with_reply_buffer};
pub use request::{Groups, Header, Request};
pub use session::Session;
pub use session_error::SessionError;
pub use transport::{Transport, uring_refusal};
