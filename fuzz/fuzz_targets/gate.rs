//! An engine's acceptor, or a client that dials, with a stranger at the other end of the socket.
//! Nobody may get in, and nobody may be believed.

#![no_main]

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use azekura_proto::message::{Refusal, Role, Ticket};
use azekura_proto::{PoolId, SessionId};
use azekura_wire::{Acceptor, Secret, Socket, Tickets, begin_early, connect};
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fuzz_target!(|bytes: &[u8]| {
    let Some((side, script)) = bytes.split_first() else { return };
    let (mut stranger, ours) = UnixStream::pair().expect("a socket pair");
    // More than the socket holds would wait for a reader that has not begun.
    stranger.write_all(&script[..script.len().min(64 * 1024)]).expect("room in the socket");
    stranger.shutdown(std::net::Shutdown::Write).expect("an open socket");
    let secret = Secret::from_hex(SECRET).expect("64 hex digits");
    let pool = PoolId([1; 16]);
    let (ours, session, limit) = (Socket::Unix(ours), SessionId([2; 16]), Duration::from_secs(5));
    match side % 3 {
        0 => {
            let tickets = Tickets::new().expect("random numbers");
            let acceptor = Acceptor { secret: &secret, pool, tickets: Some(&tickets) };
            assert!(acceptor.receive(ours, |_| Err(Refusal::Full)).is_err());
        }
        1 => assert!(connect(ours, pool, session, Role::Client, &secret, limit).is_err()),
        _ => {
            let who = (pool, session, Role::Client);
            let begun = begin_early(ours, who, Ticket([3; 32]), &secret, limit);
            let (caller, connection) = begun.expect("a socket that works");
            let (mut writer, mut reader) = connection.split();
            caller.send(&mut writer, &"request").expect("room in the socket");
            assert!(caller.prove(&mut reader).is_err());
        }
    }
});
