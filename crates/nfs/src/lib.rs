//! The NFS gateway: NFS version 3 with its MOUNT protocol and locks (RFC 1813), for clients that have
//! nothing of ours installed. Owns what these protocols say and how their calls become calls of
//! [`azekura_posix`]; it holds no rule of the file system of its own, and keeps no state that another
//! gateway of the pool would need.

mod dispatch;
pub mod exports;
mod gateway;
mod gather;
pub mod handle;
pub mod metrics;
pub mod metrics_server;
mod mount3;
mod mounts;
mod nfs3;
mod nlm4;
mod owner;
mod portmap;
mod procedure;
pub mod procedures;
pub mod replies;
pub mod rpc;
mod server;
pub mod xdr;

pub use dispatch::answer_messages;
pub use gateway::{Gateway, GatewayConfig};
pub use mounts::Mounted;
pub use portmap::{PortMapper, PortMapping};
pub use server::{Server, ServerConfig};
