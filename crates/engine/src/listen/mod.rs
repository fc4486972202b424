//! Sockets: who may come in, and frames in and out. Nothing in here knows what is asked.

pub(crate) mod adoption;
pub(crate) mod connection;
pub(crate) mod handshakes;
pub(crate) mod metrics_server;
pub(crate) mod server;
