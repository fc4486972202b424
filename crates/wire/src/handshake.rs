//! The mutual challenge that opens a connection (`Hello`, `Challenge`, `Proof`, `Welcome`). Each
//! side shows that it knows the pool secret by an HMAC over both nonces; the secret itself never
//! crosses the wire. Owns the order of these messages and the time that they may take.

use std::io;
use std::time::{Duration, Instant};

use azekura_proto::frame::{self, FrameError};
use azekura_proto::limits::{EARLY_PROOF_MS, HANDSHAKE_BODY_BYTES_MAX, HANDSHAKE_MS};
use azekura_proto::message::{
    Challenge, Hello, MAGIC, NONCE_BYTES, Proof, Refusal, Role, Ticket, VERSION, Welcome,
};
use azekura_proto::{PoolId, SessionId};

use crate::connection::Connection;
use crate::frames::{FrameReader, RecvError};
use crate::secret::{Secret, draw};
use crate::socket::{Socket, wait_for_any};
use crate::tickets::Tickets;

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

impl ConnectError {
    /// Whether the same caller would be refused again, however long it waits.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.is_final(),
            Self::Impostor => true,
            Self::Io(_) => false,
        }
    }
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

/// What an early proof is computed over.
pub(crate) fn early_words<'a>(
    hello: &'a Hello,
    ticket: &'a Ticket,
    body: &'a [u8],
) -> [&'a [u8]; 7] {
    let [side, pool, session, role, nonce, ticket] = transcript(EARLY_SIDE, hello, &ticket.0);
    [side, pool, session, role, nonce, ticket, body]
}

/// No time at all would mean for ever to a socket.
const LIMIT_MIN: Duration = Duration::from_millis(1);
const ENGINE_SIDE: &[u8] = b"azekura 1 engine";
const CALLER_SIDE: &[u8] = b"azekura 1 caller";
const EARLY_SIDE: &[u8] = b"azekura 1 early";

/// The caller's side of the handshake, its hello sent: it waits for the engine's challenge. Several
/// are taken through their steps side by side in the round trips of one.
#[derive(Debug)]
pub struct HelloSent {
    connection: Connection,
    hello: Hello,
    deadline: Instant,
}

/// The caller's side of the handshake, its proof sent: it waits to be let in.
#[derive(Debug)]
pub struct ProofSent {
    connection: Connection,
    ticket: Option<Ticket>,
}

/// Sends the hello to the engine at the other end, which is to let the caller in within `limit`, and
/// within the handshake's own in any case.
///
/// # Errors
/// [`ConnectError::Io`].
pub fn begin(
    socket: Socket,
    pool: PoolId,
    session: SessionId,
    role: Role,
    limit: Duration,
) -> Result<HelloSent, ConnectError> {
    let (hello, mut connection, deadline) = prepare(socket, (pool, session, role), limit)?;
    connection.queue(&hello, 0)?;
    connection.flush(&[])?;
    Ok(HelloSent { connection, hello, deadline })
}

/// The caller's side with nothing said yet: its hello, and until when it is to be let in.
pub(crate) fn prepare(
    socket: Socket,
    (pool, session, role): (PoolId, SessionId, Role),
    limit: Duration,
) -> io::Result<(Hello, Connection, Instant)> {
    let limit = limit.clamp(LIMIT_MIN, Duration::from_millis(HANDSHAKE_MS));
    set_timeouts(&socket, Some(limit))?;
    let mut connection = Connection::new(socket);
    let deadline = Instant::now() + limit;
    connection.distrust(deadline, HANDSHAKE_BODY_BYTES_MAX);
    let nonce = draw()?;
    let hello = Hello { magic: MAGIC, version: VERSION, pool, session, role, nonce, early: None };
    Ok((hello, connection, deadline))
}

/// What is said to an engine's challenge once it has shown that it knows the secret, and its ticket.
pub(crate) fn answer_challenge(
    hello: &Hello,
    secret: &Secret,
    body: &[u8],
) -> Result<(Proof, Option<Ticket>), ConnectError> {
    let challenge = frame::decode::<Offer>(body)??;
    let words = |side| transcript(side, hello, &challenge.nonce);
    if !secret.verify(&words(ENGINE_SIDE), &challenge.proof) {
        return Err(ConnectError::Impostor);
    }
    Ok((Proof { proof: secret.sign(&words(CALLER_SIDE)) }, challenge.ticket))
}

impl HelloSent {
    /// Waits for the engine's challenge, and answers it.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn prove(mut self, secret: &Secret) -> Result<ProofSent, ConnectError> {
        let (proof, ticket) = answer_challenge(&self.hello, secret, self.connection.recv()?.1)?;
        self.connection.queue(&proof, 0)?;
        self.connection.flush(&[])?;
        Ok(ProofSent { connection: self.connection, ticket })
    }
}

impl ProofSent {
    /// Waits for the engine's welcome. The socket keeps no time-outs.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn finish(mut self) -> Result<(Connection, Welcome), ConnectError> {
        let welcome = receive_welcome(self.connection.reader())?;
        set_timeouts(self.connection.socket(), None)?;
        Ok((self.connection, welcome))
    }

    /// The connection, for a caller who sends its first request without waiting for the welcome: the
    /// engine has shown that it knows the secret, and looks at the request only once it has seen the
    /// proof. What comes first is to be read by [`receive_welcome`]. The socket keeps its time-outs. Gives
    /// the engine's ticket too.
    pub fn go_on(self) -> (Connection, Option<Ticket>) {
        (self.connection, self.ticket)
    }
}

/// Waits for the engine's welcome, for as long as the handshake has.
///
/// # Errors
/// [`ConnectError`].
pub fn receive_welcome(reader: &mut FrameReader) -> Result<Welcome, ConnectError> {
    let welcome = frame::decode::<Verdict>(reader.recv()?.1)??;
    reader.trust();
    Ok(welcome)
}

/// `HelloSent::prove` for several, in the order in which the challenges come, each with what its caller goes by: an
/// engine gives up a caller that does not answer, so one that is silent must not make the others late.
pub fn prove_all<K>(
    callers: Vec<(K, HelloSent)>,
    secret: &Secret,
) -> Vec<(K, Result<ProofSent, ConnectError>)> {
    let mut proven = Vec::with_capacity(callers.len());
    let mut waiting = callers;
    while let Some(deadline) = waiting.iter().map(|(_, caller)| caller.deadline).min() {
        let left = deadline.saturating_duration_since(Instant::now());
        let sockets: Vec<_> =
            waiting.iter().map(|(_, caller)| caller.connection.shared_socket()).collect();
        let come = wait_for_any(&sockets, left);
        let now = Instant::now();
        let mut silent = Vec::new();
        for ((key, caller), come) in waiting.into_iter().zip(come) {
            // When their time is over, those that are silent still say so themselves.
            if come || caller.deadline <= now {
                proven.push((key, caller.prove(secret)));
            } else {
                silent.push((key, caller));
            }
        }
        waiting = silent;
    }
    proven
}

/// Introduces this program to the engine at the other end, as [`begin`] does. The socket keeps no
/// time-outs.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(
    socket: Socket,
    pool: PoolId,
    session: SessionId,
    role: Role,
    secret: &Secret,
    limit: Duration,
) -> Result<(Connection, Welcome), ConnectError> {
    begin(socket, pool, session, role, limit)?.prove(secret)?.finish()
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

/// A caller that has come in.
#[derive(Debug)]
pub struct Arrival {
    /// The connection to it.
    pub connection: Connection,
    /// Who it is.
    pub guest: Guest,
    /// The body of a request that came with its hello.
    pub first: Option<Vec<u8>>,
    /// What its proof is to be held against, if only that request may be answered before.
    awaited: Option<(Hello, [u8; NONCE_BYTES])>,
}

impl Arrival {
    /// Whether only its first request may be answered, if that changes nothing, before
    /// [`Arrival::take_proof`].
    pub fn is_to_prove(&self) -> bool {
        self.awaited.is_some()
    }

    /// Waits for the proof of a caller whose first request was answered early. The socket keeps no time-outs.
    ///
    /// # Errors
    /// [`ConnectError`]; the connection is of no further use.
    pub fn take_proof(&mut self, secret: &Secret) -> Result<(), ConnectError> {
        let Some((hello, nonce)) = self.awaited.take() else { return Ok(()) };
        let connection = &mut self.connection;
        let limit = Duration::from_millis(EARLY_PROOF_MS);
        set_timeouts(connection.socket(), Some(limit))?;
        connection.distrust(Instant::now() + limit, HANDSHAKE_BODY_BYTES_MAX);
        let proof = frame::decode::<Proof>(connection.recv()?.1)?;
        if !secret.verify(&transcript(CALLER_SIDE, &hello, &nonce), &proof.proof) {
            return Err(Refusal::WrongSecret.into());
        }
        connection.trust();
        set_timeouts(connection.socket(), None)?;
        Ok(())
    }
}

/// The engine's side of the handshake.
#[derive(Debug)]
pub struct Acceptor<'a> {
    /// The pool's secret.
    pub secret: &'a Secret,
    /// The pool served; `PoolId::NONE` while there is none. A caller that knows the secret but not
    /// the pool yet says `PoolId::NONE` too, and asks for the map.
    pub pool: PoolId,
    /// By which callers may ask something with their hello; none are taken or given where there are none.
    pub tickets: Option<&'a Tickets>,
}

impl Acceptor<'_> {
    /// Challenges a caller; `admit` then says whether there is room for it, and what it is told.
    /// The socket keeps no time-outs, unless the caller has come early and is still to prove who it is.
    ///
    /// # Errors
    /// [`ConnectError`]; the caller has been told the reason where it spoke the protocol.
    pub fn receive(
        &self,
        socket: Socket,
        admit: impl FnOnce(&Guest) -> Result<Welcome, Refusal>,
    ) -> Result<Arrival, ConnectError> {
        let limit = Duration::from_millis(HANDSHAKE_MS);
        set_timeouts(&socket, Some(limit))?;
        let mut connection = Connection::new(socket);
        connection.distrust(Instant::now() + limit, HANDSHAKE_BODY_BYTES_MAX);
        let (hello, challenge) = match self.offer(connection.recv()?.1)? {
            Ok(offered) => offered,
            Err(refusal) => {
                connection.queue(&Offer::Err(refusal.clone()), 0)?;
                connection.flush(&[])?;
                return Err(refusal.into());
            }
        };
        let first = match hello.early {
            Some(_) => Some(connection.recv()?.1.to_vec()),
            None => None,
        };
        let is_early = first.as_ref().is_some_and(|body| self.takes_early(&hello, body));
        connection.queue(&Offer::Ok(challenge.clone()), 0)?;
        let guest = Guest { session: hello.session, role: hello.role, pool: hello.pool };
        let verdict = if is_early {
            admit(&guest)
        } else {
            connection.flush(&[])?;
            let proof = frame::decode::<Proof>(connection.recv()?.1)?;
            let words = transcript(CALLER_SIDE, &hello, &challenge.nonce);
            let is_proven = self.secret.verify(&words, &proof.proof);
            if is_proven { admit(&guest) } else { Err(Refusal::WrongSecret) }
        };
        connection.queue(&verdict, 0)?;
        connection.flush(&[])?;
        verdict?;
        let awaited = is_early.then_some((hello, challenge.nonce));
        if awaited.is_none() {
            connection.trust();
            set_timeouts(connection.socket(), None)?;
        }
        Ok(Arrival { connection, guest, first, awaited })
    }

    /// What a caller's first words are, and the challenge to it.
    fn offer(&self, body: &[u8]) -> Result<Result<(Hello, Challenge), Refusal>, ConnectError> {
        // All versions begin with these.
        let (magic, version) = frame::decode::<([u8; MAGIC.len()], u32)>(body)?;
        if magic != MAGIC {
            return Err(FrameError::Malformed.into());
        }
        if version != VERSION {
            return Ok(Err(Refusal::Version { engine: VERSION }));
        }
        let hello = frame::decode::<Hello>(body)?;
        if hello.pool != self.pool && hello.pool != PoolId::NONE {
            return Ok(Err(Refusal::WrongPool));
        }
        let nonce = draw()?;
        let proof = self.secret.sign(&transcript(ENGINE_SIDE, &hello, &nonce));
        let ticket = self.tickets.map(Tickets::current);
        Ok(Ok((hello, Challenge { nonce, proof, ticket })))
    }

    /// Whether the request that came with a hello may be answered before the caller's proof.
    fn takes_early(&self, hello: &Hello, body: &[u8]) -> bool {
        let (Some(tickets), Some(early)) = (self.tickets, &hello.early) else { return false };
        self.secret.verify(&early_words(hello, &early.ticket, body), &early.proof)
            && tickets.take(early.ticket, &hello.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    use azekura_proto::{EngineId, Incarnation};

    fn meet(caller: &Secret, engine: &Secret, pool: PoolId) -> Result<Welcome, ConnectError> {
        let (near, far) = Socket::pair().unwrap();
        let engine = engine.clone();
        let accepting = std::thread::spawn(move || {
            let acceptor = Acceptor { secret: &engine, pool: PoolId([1; 16]), tickets: None };
            let welcome = Welcome {
                engine: EngineId(0),
                incarnation: Incarnation(4),
                map_version: 1,
                fresh_session: true,
            };
            acceptor.receive(far, |_| Ok(welcome)).map(|arrival| arrival.guest)
        });
        let met = connect(near, pool, SessionId([5; 16]), Role::Client, caller, LONG);
        let guest = accepting.join().unwrap();
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
    fn another_release_is_told_so() {
        let (near, far) = Socket::pair().unwrap();
        let mut caller = Connection::new(near);
        // As it was before callers could ask early.
        caller
            .queue(&(MAGIC, VERSION - 1, [1u8; 16], [5u8; 16], Role::Client, [0u8; 32]), 0)
            .unwrap();
        caller.flush(&[]).unwrap();
        let secret = Secret::generate().unwrap();
        let acceptor = Acceptor { secret: &secret, pool: PoolId([1; 16]), tickets: None };
        assert!(acceptor.receive(far, |_| Err(Refusal::Full)).is_err());
        let offer: Offer = frame::decode(caller.recv().unwrap().1).unwrap();
        assert_eq!(offer, Err(Refusal::Version { engine: VERSION }));
    }

    #[test]
    fn several_meet_step_by_step_and_one_that_fails_hinders_no_other() {
        let pool = PoolId([1; 16]);
        let (secret, foreign) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        let welcome = || Welcome {
            engine: EngineId(2),
            incarnation: Incarnation(4),
            map_version: 1,
            fresh_session: false,
        };
        std::thread::scope(|scope| {
            let mut begun = Vec::new();
            for acceptor_secret in [&secret, &foreign, &secret] {
                let (near, far) = Socket::pair().unwrap();
                scope.spawn(move || {
                    let acceptor = Acceptor { secret: acceptor_secret, pool, tickets: None };
                    acceptor.receive(far, |_| Ok(welcome())).is_ok()
                });
                let caller = begin(near, pool, SessionId([5; 16]), Role::Client, LONG).unwrap();
                begun.push((begun.len(), caller));
            }
            let proven = prove_all(begun, &secret);
            let failed =
                proven.iter().filter_map(|(key, proven)| Some((key, proven.as_ref().err()?)));
            assert!(matches!(failed.collect::<Vec<_>>()[..], [(1, ConnectError::Impostor)]));
            let met = proven.into_iter().filter_map(|(_, proven)| proven.ok());
            let met = met.map(|caller| caller.finish().unwrap().1.engine);
            assert_eq!(met.collect::<Vec<_>>(), [EngineId(2); 2]);
        });
    }

    #[test]
    fn the_challenges_are_answered_in_the_order_in_which_they_come() {
        let (pool, secret) = (PoolId([1; 16]), Secret::generate().unwrap());
        let (first, late) = Socket::pair().unwrap();
        let (second, early) = Socket::pair().unwrap();
        let begun = [first, second]
            .map(|socket| begin(socket, pool, SessionId([5; 16]), Role::Client, LONG).unwrap())
            .map(|caller| ((), caller));
        std::thread::scope(|scope| {
            let proving = scope.spawn(|| prove_all(begun.into(), &secret));
            let acceptor = Acceptor { secret: &secret, pool, tickets: None };
            // It has the proof of the second before the first is challenged.
            assert!(acceptor.receive(early, |_| Err(Refusal::Full)).is_err());
            assert!(acceptor.receive(late, |_| Err(Refusal::Full)).is_err());
            for ((), caller) in proving.join().unwrap() {
                let error = caller.unwrap().finish().unwrap_err();
                assert!(matches!(error, ConnectError::Refused(Refusal::Full)), "{error}");
            }
        });
    }

    #[test]
    fn an_engine_that_goes_away_between_the_steps_is_an_error() {
        let (near, far) = Socket::pair().unwrap();
        let begun = begin(near, PoolId::NONE, SessionId([5; 16]), Role::Client, LONG).unwrap();
        drop(far);
        let error = begun.prove(&Secret::generate().unwrap()).unwrap_err();
        assert!(matches!(error, ConnectError::Io(_)), "{error}");
    }

    #[test]
    fn a_silent_engine_is_given_up_when_the_callers_time_is_over() {
        let (near, _far) = Socket::pair().unwrap();
        let limit = Duration::from_millis(200);
        let begun = Instant::now();
        let caller = begin(near, PoolId::NONE, SessionId([5; 16]), Role::Client, limit).unwrap();
        let proven = prove_all(vec![((), caller)], &Secret::generate().unwrap());
        assert!(matches!(proven[..], [((), Err(ConnectError::Io(_)))]));
        assert!(begun.elapsed() >= limit && begun.elapsed() < 10 * limit);
    }

    /// A caller that sends a byte now and then for ever, or announces more than a hello.
    #[test]
    fn a_stranger_gets_neither_time_nor_memory() {
        let secret = Secret::generate().unwrap();
        let acceptor = Acceptor { secret: &secret, pool: PoolId([1; 16]), tickets: None };
        let (near, far) = Socket::pair().unwrap();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| acceptor.receive(far, |_| Err(Refusal::Full)).is_err());
            near.write_all(&mut [io::IoSlice::new(&[200, 0, 0, 0, 0, 0, 0, 0])], false).unwrap();
            while !refused.is_finished() && begun.elapsed() < Duration::from_secs(30) {
                // It fails once the engine has hung up.
                let _ = near.write_all(&mut [io::IoSlice::new(&[0])], false);
                std::thread::sleep(Duration::from_millis(100));
            }
            assert!(refused.join().unwrap());
        });
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(2 * HANDSHAKE_MS), "held for {took:?}");
        let (near, far) = Socket::pair().unwrap();
        near.write_all(&mut [io::IoSlice::new(&[0, 4, 0, 0, 0, 0, 0, 0])], false).unwrap();
        let refused = acceptor.receive(far, |_| Err(Refusal::Full));
        assert!(matches!(refused, Err(ConnectError::Io(_))), "without waiting for the body");
    }

    #[test]
    fn garbage_is_no_handshake() {
        let (near, far) = Socket::pair().unwrap();
        near.write_all(&mut [io::IoSlice::new(b"GET / HTTP/1.1\r\n\r\n")], false).unwrap();
        drop(near);
        let secret = Secret::generate().unwrap();
        let acceptor = Acceptor { secret: &secret, pool: PoolId([1; 16]), tickets: None };
        assert!(acceptor.receive(far, |_| Err(Refusal::Full)).is_err());
    }
}
