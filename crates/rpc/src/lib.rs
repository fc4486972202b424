//! One client side of the protocol, for clients, for engines that ask each other, and for commands.
//!
//! A [`Slot`] is a place of a session at an engine with its sequence numbers and, while there is one,
//! its conversation. It asks one thing at a time, or stands behind a [`Channel`], on which many
//! requests are in flight. [`Attempts`] decides what follows a failure, [`PeerClient`] and [`Dialogue`] are
//! the short ways to ask other engines, and [`transport`] is how messages get to an engine. This crate
//! knows requests, not what they do; it starts no threads.

mod channel;
mod conversations;
mod dialogue;
mod failure;
mod in_flight;
mod peers;
mod retry;
#[cfg(test)]
mod shared_memory_tests;
mod slot;
#[cfg(test)]
mod test_engine;
pub mod transport;

pub use channel::{Arrival, Channel, Outgoing, Reader};
pub use conversations::Conversations;
pub use dialogue::Dialogue;
pub use failure::Failure;
pub use in_flight::InFlight;
pub use peers::{PeerClient, PeerRequest};
pub use retry::{Attempts, Patience, Step};
pub use slot::{Attempt, Destination, Releases, Slot};
