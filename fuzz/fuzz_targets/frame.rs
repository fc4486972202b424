//! A stream of bytes taken apart into frames, in one piece and in two: never more than was sent,
//! and never a length beyond its bound.

#![no_main]

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use azekura_proto::frame::{FrameHead, HEAD_BYTES};
use azekura_proto::limits::{FRAME_BODY_BYTES_MAX, FRAME_BULK_BYTES_MAX};
use azekura_wire::{Connection, Socket};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(64 * 1024)];
    if let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
        if let Ok(head) = FrameHead::decode(*head) {
            assert!(head.body_bytes <= FRAME_BODY_BYTES_MAX);
            assert!(head.bulk_bytes <= FRAME_BULK_BYTES_MAX);
        }
    }
    let (mut peer, ours) = UnixStream::pair().expect("a socket pair");
    peer.write_all(bytes).expect("room in the socket");
    drop(peer);
    let mut connection = Connection::new(Socket::Unix(ours));
    let mut taken = 0;
    while let Ok((head, body)) = connection.recv() {
        taken += HEAD_BYTES + body.len();
        if connection.discard_bulk(u64::from(head.bulk_bytes)).is_err() {
            break;
        }
        taken += head.bulk_bytes as usize;
        assert!(taken <= bytes.len());
    }
});
