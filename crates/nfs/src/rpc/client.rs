//! Calls of others' programs (RFC 5531), one connection for each: the gateway seldom makes any, and
//! whom it calls may be gone. Owns the bounds on how long and how large an answer may be.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use xxhash_rust::xxh3::xxh3_64;

use super::record::Records;
use crate::procedures::{PORTMAP, Program};
use crate::xdr::{Garbage, Reader, Writer};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const AUTH_BYTES_MAX: usize = 400;
const LAST_FRAGMENT: u32 = 1 << 31;
/// Answers that are expected here are small.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const PORTMAP_GETPORT: u32 = 3;
const PROTOCOL_TCP: u32 = 6;

/// Whom to call, for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callee {
    pub(crate) address: SocketAddr,
    /// The address of this host that it is to be called from; any if `None`.
    pub(crate) from: Option<IpAddr>,
    /// For everything from the connection to the answer.
    pub(crate) timeout: Duration,
}

impl Callee {
    /// Calls a procedure and gives its results.
    ///
    /// # Errors
    /// If nobody answers in time, or the answer is that it was not carried out.
    pub(crate) fn call(
        &self,
        program: &Program,
        procedure: u32,
        args: &[u8],
    ) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + self.timeout;
        let mut stream = self.connect()?;
        stream.set_nodelay(true)?;
        let call = encode(program, procedure, args);
        stream.set_write_timeout(Some(self.timeout))?;
        stream.write_all(&call)?;
        let mut records = Records::default();
        loop {
            if let Some(message) = records.next_message().map_err(io::Error::other)? {
                return results(records.message(message), &call[4..8])
                    .map_err(|Garbage| io::Error::other("the call was not carried out"));
            }
            if records.held() > ANSWER_BYTES_MAX * 2 {
                return Err(io::Error::other("the answer is too long"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(records.room())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => records.received(bytes),
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let Some(from) = self.from.filter(|from| from.is_ipv4() == self.address.is_ipv4()) else {
            return TcpStream::connect_timeout(&self.address, self.timeout);
        };
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        net::bind(&socket, &SocketAddr::new(from, 0))?;
        // It bounds how long connecting takes, too.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(self.timeout))?;
        net::connect(&socket, &self.address)?;
        Ok(TcpStream::from(socket))
    }

    /// Asks the port mapper here where a program of this host listens on TCP.
    ///
    /// # Errors
    /// As [`Callee::call`]; `NotFound` if the program is not there.
    pub(crate) fn port_of(&self, program: &Program) -> io::Result<u16> {
        let mut args = Writer::default();
        args.u32s(&[program.number, program.version, PROTOCOL_TCP, 0]);
        let results = self.call(&PORTMAP, PORTMAP_GETPORT, args.bytes())?;
        let port = Reader::new(&results).u32().ok().and_then(|port| u16::try_from(port).ok());
        port.filter(|port| *port != 0).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A program whose port the port mapper of its host knows.
///
/// # Errors
/// As [`Callee::port_of`].
pub(crate) fn find(portmap: Callee, program: &Program) -> io::Result<Callee> {
    let port = portmap.port_of(program)?;
    Ok(Callee { address: SocketAddr::new(portmap.address.ip(), port), ..portmap })
}

/// The whole record of a call.
fn encode(program: &Program, procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut call = Writer::default();
    // One call for each connection: any number will do.
    let xid = xxh3_64(args) as u32;
    let head = [0, xid, CALL, RPC_VERSION, program.number, program.version, procedure];
    call.u32s(&head);
    // Neither a credential nor a verifier.
    call.u32s(&[0; 4]);
    call.raw(args);
    call.set_u32(0, LAST_FRAGMENT | (call.len() - 4) as u32);
    call.bytes().to_vec()
}

/// What follows the head of a reply to the call with this xid.
fn results(message: &[u8], xid: &[u8]) -> Result<Vec<u8>, Garbage> {
    let mut reply = Reader::new(message);
    let is_ours = reply.fixed::<4>()?[..] == *xid;
    // A reply, accepted, ...
    if !is_ours || reply.u32()? != REPLY || reply.u32()? != 0 {
        return Err(Garbage);
    }
    let _verifier_flavour = reply.u32()?;
    reply.opaque(AUTH_BYTES_MAX)?;
    // ... and carried out.
    if reply.u32()? != 0 { Err(Garbage) } else { Ok(reply.rest().to_vec()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procedures::NLM;
    use crate::rpc::{Call, Refusal, begin_reply, finish_reply, refuse};
    use std::net::TcpListener;

    /// Answers one call, and tells what it was.
    fn with_server(
        answer: impl FnOnce(&Call<'_>, &mut Writer) + Send,
        client: impl FnOnce(Callee),
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut records = Records::default();
                let range = loop {
                    if let Some(range) = records.next_message().unwrap() {
                        break range;
                    }
                    let bytes = stream.read(records.room()).unwrap();
                    records.received(bytes);
                };
                let mut reply = Writer::default();
                answer(&Call::decode(records.message(range)).unwrap(), &mut reply);
                stream.write_all(reply.bytes()).unwrap();
            });
            client(Callee { address, from: None, timeout: Duration::from_secs(5) });
        });
    }

    #[test]
    fn results_come_back() {
        with_server(
            |call, reply| {
                assert_eq!((call.program, call.version, call.procedure), (100_021, 4, 5));
                let start = begin_reply(reply, call.xid);
                reply.raw(call.args.rest());
                finish_reply(reply, start);
            },
            |callee| assert_eq!(callee.call(&NLM, 5, b"args").unwrap(), b"args"),
        );
    }

    #[test]
    fn a_call_comes_from_where_it_is_to_come_from() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let from = IpAddr::from([127, 0, 0, 9]);
        let callee = Callee { address, from: Some(from), timeout: Duration::from_millis(50) };
        assert!(callee.call(&NLM, 0, &[]).is_err(), "nobody answers");
        assert_eq!(listener.accept().unwrap().1.ip(), from);
    }

    #[test]
    fn a_port_is_asked_for() {
        with_server(
            |call, reply| {
                let mut args = call.args;
                let mut next = || args.u32().unwrap();
                assert_eq!([next(), next(), next(), next()], [100_021, 4, 6, 0]);
                let start = begin_reply(reply, call.xid);
                reply.u32(4045);
                finish_reply(reply, start);
            },
            |callee| assert_eq!(callee.port_of(&NLM).unwrap(), 4045),
        );
    }

    #[test]
    fn refusals_and_silence_are_errors() {
        with_server(
            |call, reply| refuse(reply, call.xid, Refusal::NoProgram),
            |callee| assert!(callee.call(&NLM, 5, &[]).is_err()),
        );
        with_server(
            |call, reply| {
                let start = begin_reply(reply, call.xid ^ 1);
                finish_reply(reply, start);
            },
            |callee| assert!(callee.call(&NLM, 5, &[]).is_err(), "it answers another call"),
        );
        with_server(
            |_, _| {},
            |callee| {
                assert!(callee.call(&NLM, 5, &[]).is_err());
                let timeout = Duration::from_millis(50);
                let silent = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = silent.local_addr().unwrap();
                let error = Callee { address, from: None, timeout }.call(&NLM, 5, &[]).unwrap_err();
                let is_late = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
                assert!(is_late.contains(&error.kind()), "{error}");
            },
        );
    }
}
