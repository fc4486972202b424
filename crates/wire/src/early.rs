//! The caller's side of a handshake whose first request goes out with the hello, by an engine's ticket. Owns what
//! is said when: what is asked after that waits for the engine's challenge, and goes out right behind the caller's
//! proof. The first request is covered by the proof that goes with it, and what the engine says counts only once
//! it has shown that it knows the secret too: nobody is trusted more than after a challenge, only earlier.

use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use azekura_proto::frame::{self, HEAD_BYTES};
use azekura_proto::limits::{HANDSHAKE_BODY_BYTES_MAX, HANDSHAKE_MS};
use azekura_proto::message::{EarlyProof, Hello, Role, Ticket};
use azekura_proto::{PoolId, SessionId};
use parking_lot::Mutex;
use serde::Serialize;

use crate::connection::Connection;
use crate::frames::{FrameReader, FrameWriter};
use crate::handshake::{ConnectError, answer_challenge, early_words, prepare};
use crate::secret::Secret;
use crate::socket::Socket;

/// Bytes that may wait for the proof: more requests than anybody has a use for in a round trip.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// A caller by an engine's ticket.
#[derive(Debug)]
pub struct EarlyCaller {
    hello: Hello,
    ticket: Ticket,
    secret: Secret,
    words: Mutex<Words>,
}

/// How far it has come.
#[derive(Debug)]
enum Words {
    /// Nothing was said.
    None,
    /// The hello was, with the first request; these frames wait for the proof.
    Said(Vec<u8>),
    /// The proof was sent.
    Proven,
}

/// Makes ready to call the engine at the other end with its ticket; it is to let the caller in within `limit`,
/// and within the handshake's own in any case.
///
/// # Errors
/// If the socket cannot be set up.
pub fn begin_early(
    socket: Socket,
    who: (PoolId, SessionId, Role),
    ticket: Ticket,
    secret: &Secret,
    limit: Duration,
) -> io::Result<(EarlyCaller, Connection)> {
    let (hello, connection, _) = prepare(socket, who, limit)?;
    let words = Mutex::new(Words::None);
    Ok((EarlyCaller { hello, ticket, secret: secret.clone(), words }, connection))
}

impl EarlyCaller {
    /// Sends a request without bulk data: the first with the hello, which is to be one that changes nothing; others
    /// are kept for the proof. `false` once that was sent: from then on requests go out by themselves.
    ///
    /// # Errors
    /// If the first request is too long to be sent early, too much is to be kept, or the socket fails.
    pub fn send<T: Serialize>(&self, writer: &mut FrameWriter, request: &T) -> io::Result<bool> {
        let mut words = self.words.lock();
        match &mut *words {
            Words::None => {
                self.say_hello(writer, request)?;
                *words = Words::Said(Vec::new());
            }
            Words::Said(held) => {
                frame::encode_into(held, request, 0).map_err(io::Error::other)?;
                if held.len() > HELD_BYTES_MAX {
                    return Err(io::Error::other(
                        "too much is asked before the engine has answered",
                    ));
                }
            }
            Words::Proven => return Ok(false),
        }
        Ok(true)
    }

    /// Whether nothing was said yet.
    pub fn is_silent(&self) -> bool {
        matches!(*self.words.lock(), Words::None)
    }

    /// Whether requests go out by themselves by now.
    pub fn is_proven(&self) -> bool {
        matches!(*self.words.lock(), Words::Proven)
    }

    fn say_hello<T: Serialize>(&self, writer: &mut FrameWriter, request: &T) -> io::Result<()> {
        let mut framed = Vec::new();
        frame::encode_into(&mut framed, request, 0).map_err(io::Error::other)?;
        let body = framed.get(HEAD_BYTES..).unwrap_or_default();
        if body.len() > HANDSHAKE_BODY_BYTES_MAX as usize {
            return Err(io::Error::other("the first request is too long to be sent early"));
        }
        let proof = self.secret.sign(&early_words(&self.hello, &self.ticket, body));
        let early = Some(EarlyProof { ticket: self.ticket, proof });
        let hello = Hello { early, ..self.hello.clone() };
        writer.queue(&hello, 0).map_err(io::Error::other)?;
        writer.queue_bulk(&framed);
        writer.flush(&[])
    }

    /// Waits for the engine's challenge, and answers it; what was kept goes out with that. What follows is the
    /// engine's welcome, then the answer to the first request. Gives the ticket for the next call.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn prove(&self, reader: &mut FrameReader) -> Result<Option<Ticket>, ConnectError> {
        // The caller may have had something else to do since.
        let deadline = Instant::now() + Duration::from_millis(HANDSHAKE_MS);
        reader.distrust(deadline, HANDSHAKE_BODY_BYTES_MAX);
        let (proof, ticket) = answer_challenge(&self.hello, &self.secret, reader.recv()?.1)?;
        let mut framed = Vec::new();
        frame::encode_into(&mut framed, &proof, 0)?;
        // Until it is written: what is asked from here on must not overtake it.
        let mut words = self.words.lock();
        if let Words::Said(held) = std::mem::replace(&mut *words, Words::Proven) {
            framed.extend_from_slice(&held);
        }
        reader.socket().write_all(&mut [IoSlice::new(&framed)], false)?;
        Ok(ticket)
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::message::{Proof, Refusal, Welcome};
    use azekura_proto::{EngineId, Incarnation};

    use super::*;
    use crate::handshake::{Acceptor, Arrival, receive_welcome};
    use crate::tickets::Tickets;

    const POOL: PoolId = PoolId([1; 16]);
    const LONG: Duration = Duration::from_secs(60);

    fn welcome() -> Welcome {
        let (engine, incarnation) = (EngineId(0), Incarnation(4));
        Welcome { engine, incarnation, map_version: 1, fresh_session: true }
    }

    fn call(socket: Socket, secret: &Secret, ticket: Ticket) -> (EarlyCaller, Connection) {
        let who = (POOL, SessionId([5; 16]), Role::Client);
        begin_early(socket, who, ticket, secret, LONG).unwrap()
    }

    /// What an engine makes of a call: the request that it may answer before the proof, if it may.
    fn accept(socket: Socket, secret: &Secret, tickets: &Tickets) -> Result<Arrival, ConnectError> {
        let acceptor = Acceptor { secret, pool: POOL, tickets: Some(tickets) };
        acceptor.receive(socket, |_| Ok(welcome()))
    }

    #[test]
    fn the_first_request_is_there_before_the_proof() {
        let (secret, tickets) = (Secret::generate().unwrap(), Tickets::new().unwrap());
        let (near, far) = Socket::pair().unwrap();
        let (caller, connection) = call(near, &secret, tickets.current());
        let (mut writer, mut reader) = connection.split();
        assert!(caller.send(&mut writer, &"question").unwrap());
        let mut arrival = accept(far, &secret, &tickets).unwrap();
        let first = arrival.first.take().unwrap();
        assert_eq!(frame::decode::<String>(&first).unwrap(), "question");
        assert!(arrival.is_to_prove());
        arrival.connection.queue(&"answer", 0).unwrap();
        arrival.connection.flush(&[]).unwrap();
        assert_eq!(caller.prove(&mut reader).unwrap(), Some(tickets.current()));
        assert_eq!(receive_welcome(&mut reader).unwrap(), welcome());
        assert_eq!(frame::decode::<String>(reader.recv().unwrap().1).unwrap(), "answer");
        arrival.take_proof(&secret).unwrap();
        assert!(!arrival.is_to_prove());
    }

    #[test]
    fn who_has_come_early_proves_who_it_is_when_it_has_time_for_that() {
        let (secret, tickets) = (Secret::generate().unwrap(), Tickets::new().unwrap());
        let (near, far) = Socket::pair().unwrap();
        let who = (POOL, SessionId([5; 16]), Role::Client);
        let soon = Duration::from_millis(1);
        let (caller, connection) =
            begin_early(near, who, tickets.current(), &secret, soon).unwrap();
        let (mut writer, mut reader) = connection.split();
        assert!(caller.is_silent() && !caller.is_proven());
        assert!(caller.send(&mut writer, &"first").unwrap());
        let mut arrival = accept(far, &secret, &tickets).unwrap();
        // These wait for the proof.
        assert!(caller.send(&mut writer, &"second").unwrap());
        assert!(caller.send(&mut writer, &"third").unwrap());
        assert!(!caller.is_silent() && !caller.is_proven());
        std::thread::sleep(20 * soon);
        caller.prove(&mut reader).unwrap();
        assert!(caller.is_proven());
        assert!(!caller.send(&mut writer, &"by itself").unwrap());
        writer.queue(&"fourth", 0).unwrap();
        writer.flush(&[]).unwrap();
        arrival.take_proof(&secret).unwrap();
        for word in ["second", "third", "fourth"] {
            let said = arrival.connection.recv().unwrap().1;
            assert_eq!(frame::decode::<String>(said).unwrap(), word);
        }
        assert!(caller.send(&mut writer, &"too late").is_ok_and(|kept| !kept));
    }

    #[test]
    fn no_more_is_kept_for_the_proof_than_anybody_has_a_use_for() {
        let secret = Secret::generate().unwrap();
        let (near, _far) = Socket::pair().unwrap();
        let (caller, connection) = call(near, &secret, Ticket([7; 32]));
        let mut writer = connection.split().0;
        let mut kept = 0;
        while caller.send(&mut writer, &"x".repeat(400)).is_ok() {
            kept += 1;
        }
        assert!((100..400).contains(&kept), "{kept}");
    }

    #[test]
    fn whose_ticket_is_not_good_is_challenged_and_its_request_kept() {
        let (secret, tickets) = (Secret::generate().unwrap(), Tickets::new().unwrap());
        let (near, far) = Socket::pair().unwrap();
        let (caller, connection) = call(near, &secret, Tickets::new().unwrap().current());
        let (mut writer, mut reader) = connection.split();
        assert!(caller.send(&mut writer, &"question").unwrap());
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| accept(far, &secret, &tickets).unwrap());
            assert_eq!(caller.prove(&mut reader).unwrap(), Some(tickets.current()));
            assert_eq!(receive_welcome(&mut reader).unwrap(), welcome());
            let arrival = accepting.join().unwrap();
            assert!(!arrival.is_to_prove());
            let first = arrival.first.unwrap();
            assert_eq!(frame::decode::<String>(&first).unwrap(), "question");
        });
    }

    #[test]
    fn what_was_overheard_is_worth_nothing() {
        let (secret, tickets) = (Secret::generate().unwrap(), Tickets::new().unwrap());
        let (near, ear) = Socket::pair().unwrap();
        let (caller, connection) = call(near, &secret, tickets.current());
        assert!(caller.send(&mut connection.split().0, &"question").unwrap());
        let mut said = vec![0; 4096];
        let bytes = ear.read(&mut said).unwrap();
        said.truncate(bytes);
        let say = |said: &[u8]| {
            let (near, far) = Socket::pair().unwrap();
            near.write_all(&mut [IoSlice::new(said)], false).unwrap();
            // It has nothing to prove with.
            rustix::net::shutdown(&near, rustix::net::Shutdown::Write).unwrap();
            accept(far, &secret, &tickets).map(|arrival| arrival.is_to_prove())
        };
        // Another request in place of the one that was proven.
        let mut other = said.clone();
        *other.last_mut().unwrap() ^= 1;
        assert!(say(&other).is_err());
        // It is good for the request that it was said with, once, and for no further one.
        assert!(say(&said).unwrap());
        assert!(say(&said).is_err());
        // Who does not know the secret is not let in by a ticket.
        let stranger = Secret::generate().unwrap();
        let (near, far) = Socket::pair().unwrap();
        let (caller, connection) = call(near, &stranger, tickets.current());
        let (mut writer, mut reader) = connection.split();
        assert!(caller.send(&mut writer, &"question").unwrap());
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| accept(far, &secret, &tickets));
            assert!(matches!(caller.prove(&mut reader), Err(ConnectError::Impostor)));
            drop((writer, reader));
            assert!(accepting.join().unwrap().is_err());
        });
    }

    #[test]
    fn who_is_let_in_early_and_proves_nothing_is_cut_off() {
        let (secret, tickets) = (Secret::generate().unwrap(), Tickets::new().unwrap());
        let (near, far) = Socket::pair().unwrap();
        let (caller, connection) = call(near, &secret, tickets.current());
        let (mut writer, _reader) = connection.split();
        assert!(caller.send(&mut writer, &"question").unwrap());
        let mut arrival = accept(far, &secret, &tickets).unwrap();
        writer.queue(&Proof { proof: [0; 32] }, 0).unwrap();
        writer.flush(&[]).unwrap();
        let error = arrival.take_proof(&secret).unwrap_err();
        assert!(matches!(error, ConnectError::Refused(Refusal::WrongSecret)), "{error}");
    }

    #[test]
    fn a_request_that_is_too_long_is_not_sent() {
        let secret = Secret::generate().unwrap();
        let (near, far) = Socket::pair().unwrap();
        let (caller, connection) = call(near, &secret, Ticket([7; 32]));
        let long = "x".repeat(HANDSHAKE_BODY_BYTES_MAX as usize);
        assert!(caller.send(&mut connection.split().0, &long).is_err());
        assert_eq!(far.try_read(&mut [0; 8]).unwrap(), Some(0), "and the connection is closed");
    }
}
