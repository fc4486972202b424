//! The body of a reply frame: what decodes must encode to something that decodes to the same.

#![no_main]

use azekura_proto::frame::{HEAD_BYTES, decode, encode_into};
use azekura_proto::message::{Answer, DirCookie, Reply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(answer) = decode::<Answer>(bytes) else { return };
    let mut out = Vec::new();
    if encode_into(&mut out, &answer, 0).is_ok() {
        assert_eq!(decode::<Answer>(&out[HEAD_BYTES..]).as_ref(), Ok(&answer));
    }
    match answer {
        Ok(Reply::Entries { entries, .. }) => {
            for entry in entries {
                let cookie = DirCookie::decode(entry.cookie);
                assert_eq!(DirCookie::decode(cookie.encode()), cookie);
            }
        }
        Ok(Reply::Map(map)) => drop(map.validate()),
        Ok(_) => {}
        Err(status) => drop(status.class()),
    }
});
