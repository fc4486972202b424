//! Blocking sockets that speak the protocol: dialling, listening, the mutual handshake, and frames
//! in and out, over the socket or through memory that both ends share. Client and engine share this
//! crate and `azekura_proto` only. It knows frames, not what is in them, and it starts no threads.

mod congestion;
mod connection;
mod descriptor;
mod dial;
mod early;
mod frames;
mod handshake;
mod patience;
mod ring;
mod secret;
mod socket;
mod source;
mod sys;
mod tickets;

pub use connection::Connection;
pub use descriptor::{receive_with_descriptor, send_with_descriptor};
pub use dial::{Dialled, Dialling, dial, dial_all, dial_timed};
pub use early::{EarlyCaller, begin_early};
pub use frames::{FrameReader, FrameWriter, RecvError};
pub use handshake::{
    Acceptor, Arrival, ConnectError, Guest, HelloSent, ProofSent, begin, connect, prove_all,
    receive_welcome,
};
pub use ring::{Incoming, Look, Outgoing, Rings};
pub use secret::{Secret, SecretError};
pub use socket::{Listener, Socket, wait_for_any};
pub use tickets::Tickets;
