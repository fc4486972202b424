//! The messages that open a connection. Owns the protocol version.

use serde::{Deserialize, Serialize};

use crate::ids::{EngineId, Incarnation, PoolId, SessionId};

/// The first bytes of every connection.
pub const MAGIC: [u8; 8] = *b"AZEKURA\n";
/// The protocol version. Both sides must have the same.
pub const VERSION: u32 = 7;
/// Bytes of a handshake nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a handshake proof (HMAC-SHA-256).
pub const PROOF_BYTES: usize = 32;

/// Who opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// A client.
    Client,
    /// Another engine of the pool.
    Engine,
}

/// Opens a connection (first message, from the side that connects).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// The pool that the caller means.
    pub pool: PoolId,
    /// The caller's session.
    pub session: SessionId,
    /// Who calls.
    pub role: Role,
    /// Drawn at random for this connection.
    pub nonce: [u8; NONCE_BYTES],
    /// The first request follows at once.
    pub early: Option<EarlyProof>,
}

/// Shows before the engine's challenge that the caller knows the pool's secret, for the one request that
/// follows its [`Hello`]: that may be answered before the [`Proof`] is there, once, and only if it changes
/// nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EarlyProof {
    /// What the engine gave to an earlier caller.
    pub ticket: Ticket,
    /// HMAC over the ticket, the caller's nonce and the request.
    pub proof: [u8; PROOF_BYTES],
}

/// A word of this run of an engine, by which it sees that a proof was made for it and lately. It is no
/// secret, and shows nothing by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ticket(pub [u8; NONCE_BYTES]);

/// The engine's answer to [`Hello`]: its proof, and its own challenge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Challenge {
    /// Drawn at random for this connection.
    pub nonce: [u8; NONCE_BYTES],
    /// Shows that the engine knows the pool's secret.
    pub proof: [u8; PROOF_BYTES],
    /// For a later hello, if the engine takes requests early.
    pub ticket: Option<Ticket>,
}

/// The caller's proof that it knows the pool's secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// HMAC over both nonces.
    pub proof: [u8; PROOF_BYTES],
}

/// The engine lets the caller in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Which engine this is.
    pub engine: EngineId,
    /// Which run of it.
    pub incarnation: Incarnation,
    /// Version of its pool map.
    pub map_version: u32,
    /// The engine did not know the session: a caller that believes to hold objects or locks there
    /// has lost them, and claims them again.
    pub fresh_session: bool,
}

/// Why an engine does not let the caller in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another protocol version.
    #[error(
        "the engine speaks protocol version {engine}, this program version {VERSION}: install the same release on both"
    )]
    Version {
        /// The engine's version.
        engine: u32,
    },
    /// The engine serves another pool.
    #[error("the engine at this address serves another pool: is the pool file old?")]
    WrongPool,
    /// The proof is wrong.
    #[error("the engine refused the pool secret: is the pool file the one of this pool?")]
    WrongSecret,
    /// As many connections or sessions as the engine serves are open.
    #[error("the engine has no room for another connection")]
    Full,
    /// The engine is about to stop.
    #[error("the engine is stopping")]
    Stopping,
}

impl Refusal {
    /// Whether the same caller would be refused again, however long it waits.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Version { .. } | Self::WrongPool | Self::WrongSecret => true,
            Self::Full | Self::Stopping => false,
        }
    }
}
