//! The bodies of the four handshake messages.

#![no_main]

use azekura_proto::frame::{HEAD_BYTES, decode, encode_into};
use azekura_proto::message::{Challenge, Hello, Proof, Refusal, Welcome};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(message) = decode::<T>(bytes) else { return };
    let mut out = Vec::new();
    encode_into(&mut out, &message, 0).expect("a handshake message is small");
    assert_eq!(decode::<T>(&out[HEAD_BYTES..]).as_ref(), Ok(&message));
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, body)) = bytes.split_first() else { return };
    match which % 4 {
        0 => check::<Hello>(body),
        1 => check::<Result<Challenge, Refusal>>(body),
        2 => check::<Proof>(body),
        _ => check::<Result<Welcome, Refusal>>(body),
    }
});
