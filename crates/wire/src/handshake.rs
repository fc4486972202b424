//! The mutual challenge that opens a connection (`Hello`, `Challenge`, `Proof`, `Welcome`). Each
//! side shows that it knows the pool secret by an HMAC over both nonces; the secret itself never
//! crosses the wire. Owns the order of these messages and the time that they may take.

use std::io;
use std::time::Duration;

use azekura_proto::frame::{self, FrameError};
use azekura_proto::limits::HANDSHAKE_MS;
use azekura_proto::message::{
    Challenge, Hello, MAGIC, NONCE_BYTES, Proof, Refusal, Role, VERSION, Welcome,
};
use azekura_proto::{PoolId, SessionId};

use crate::connection::{Connection, RecvError};
use crate::secret::Secret;
use crate::socket::Socket;

/// Why a connection was not opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The engine said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What answers does not know the secret: it is not an engine of this pool.
    #[error("what listens there does not know the pool secret: it is no engine of this pool")]
    Impostor,
    /// Nobody listens, no answer came, or what came is no handshake.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<RecvError> for ConnectError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Io(error) => Self::Io(error),
            RecvError::Closed => Self::Io(io::ErrorKind::ConnectionReset.into()),
            RecvError::Idle => Self::Io(io::ErrorKind::TimedOut.into()),
            RecvError::Protocol(error) => error.into(),
        }
    }
}

impl From<FrameError> for ConnectError {
    fn from(error: FrameError) -> Self {
        Self::Io(io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

type Offer = Result<Challenge, Refusal>;
type Verdict = Result<Welcome, Refusal>;

fn draw_nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

fn set_timeouts(socket: &Socket, timeout: Option<Duration>) -> io::Result<()> {
    socket.set_read_timeout(timeout)?;
    socket.set_write_timeout(timeout)
}

/// What both proofs are computed over, but for the side's own word.
fn transcript<'a>(side: &'a [u8], hello: &'a Hello, engine_nonce: &'a [u8]) -> [&'a [u8]; 6] {
    let role: &[u8] = match hello.role {
        Role::Client => b"client",
        Role::Engine => b"engine",
    };
    [side, &hello.pool.0, &hello.session.0, role, &hello.nonce, engine_nonce]
}

const ENGINE_SIDE: &[u8] = b"azekura 1 engine";
const CALLER_SIDE: &[u8] = b"azekura 1 caller";

/// Introduces this program to the engine at the other end. The socket keeps no time-outs.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(
    socket: Socket,
    pool: PoolId,
    session: SessionId,
    role: Role,
    secret: &Secret,
) -> Result<(Connection, Welcome), ConnectError> {
    set_timeouts(&socket, Some(Duration::from_millis(HANDSHAKE_MS)))?;
    let mut connection = Connection::new(socket);
    let hello = Hello { magic: MAGIC, version: VERSION, pool, session, role, nonce: draw_nonce()? };
    connection.queue(&hello, 0)?;
    connection.flush(&[])?;
    let challenge = frame::decode::<Offer>(connection.recv()?.1)??;
    if !secret.verify(&transcript(ENGINE_SIDE, &hello, &challenge.nonce), &challenge.proof) {
        return Err(ConnectError::Impostor);
    }
    let proof = Proof { proof: secret.sign(&transcript(CALLER_SIDE, &hello, &challenge.nonce)) };
    connection.queue(&proof, 0)?;
    connection.flush(&[])?;
    let welcome = frame::decode::<Verdict>(connection.recv()?.1)??;
    set_timeouts(connection.socket(), None)?;
    Ok((connection, welcome))
}

/// Who has come in.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// The caller's session.
    pub session: SessionId,
    /// Client or engine.
    pub role: Role,
    /// The pool that the caller asked for: the engine's own, or `PoolId::NONE`.
    pub pool: PoolId,
}

/// The engine's side of the handshake.
#[derive(Debug)]
pub struct Gate<'a> {
    /// The pool's secret.
    pub secret: &'a Secret,
    /// The pool served; `PoolId::NONE` while there is none. A caller that knows the secret but not
    /// the pool yet says `PoolId::NONE` too, and asks for the map.
    pub pool: PoolId,
}

impl Gate<'_> {
    /// Challenges a caller; `admit` then says whether there is room for it, and what it is told.
    /// The socket keeps no time-outs.
    ///
    /// # Errors
    /// [`ConnectError`]; the caller has been told the reason where it spoke the protocol.
    pub fn receive(
        &self,
        socket: Socket,
        admit: impl FnOnce(&Guest) -> Result<Welcome, Refusal>,
    ) -> Result<(Connection, Guest), ConnectError> {
        set_timeouts(&socket, Some(Duration::from_millis(HANDSHAKE_MS)))?;
        let mut connection = Connection::new(socket);
        let hello = frame::decode::<Hello>(connection.recv()?.1)?;
        if hello.magic != MAGIC {
            return Err(FrameError::Malformed.into());
        }
        let offer = if hello.version != VERSION {
            Err(Refusal::Version { engine: VERSION })
        } else if hello.pool != self.pool && hello.pool != PoolId::NONE {
            Err(Refusal::WrongPool)
        } else {
            let nonce = draw_nonce()?;
            Ok(Challenge {
                nonce,
                proof: self.secret.sign(&transcript(ENGINE_SIDE, &hello, &nonce)),
            })
        };
        connection.queue(&offer, 0)?;
        connection.flush(&[])?;
        let challenge = offer?;
        let proof = frame::decode::<Proof>(connection.recv()?.1)?;
        let words = transcript(CALLER_SIDE, &hello, &challenge.nonce);
        let guest = Guest { session: hello.session, role: hello.role, pool: hello.pool };
        let verdict = if self.secret.verify(&words, &proof.proof) {
            admit(&guest)
        } else {
            Err(Refusal::WrongSecret)
        };
        connection.queue(&verdict, 0)?;
        connection.flush(&[])?;
        verdict?;
        set_timeouts(connection.socket(), None)?;
        Ok((connection, guest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::{EngineId, Incarnation};

    fn meet(caller: &Secret, engine: &Secret, pool: PoolId) -> Result<Welcome, ConnectError> {
        let (near, far) = Socket::pair().unwrap();
        let engine = engine.clone();
        let gatekeeper = std::thread::spawn(move || {
            let gate = Gate { secret: &engine, pool: PoolId([1; 16]) };
            let welcome = Welcome {
                engine: EngineId(0),
                incarnation: Incarnation(4),
                map_version: 1,
                fresh_session: true,
            };
            gate.receive(far, |_| Ok(welcome)).map(|(_, guest)| guest)
        });
        let met = connect(near, pool, SessionId([5; 16]), Role::Client, caller);
        let guest = gatekeeper.join().unwrap();
        assert_eq!(met.is_ok(), guest.is_ok());
        met.map(|(_, welcome)| welcome)
    }

    #[test]
    fn those_who_know_the_secret_meet() {
        let secret = Secret::generate().unwrap();
        assert_eq!(meet(&secret, &secret, PoolId([1; 16])).unwrap().incarnation, Incarnation(4));
    }

    #[test]
    fn a_wrong_secret_and_a_wrong_pool_are_told_apart() {
        let (one, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert!(matches!(meet(&one, &other, PoolId([1; 16])), Err(ConnectError::Impostor)));
        let error = meet(&one, &one, PoolId([2; 16])).unwrap_err();
        assert!(matches!(error, ConnectError::Refused(Refusal::WrongPool)));
    }

    #[test]
    fn garbage_is_no_handshake() {
        let (near, far) = Socket::pair().unwrap();
        near.write_all(&mut [io::IoSlice::new(b"GET / HTTP/1.1\r\n\r\n")], false).unwrap();
        drop(near);
        let secret = Secret::generate().unwrap();
        let gate = Gate { secret: &secret, pool: PoolId([1; 16]) };
        assert!(gate.receive(far, |_| Err(Refusal::Full)).is_err());
    }
}
