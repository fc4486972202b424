//! The body of a request frame: what decodes must encode to something that decodes to the same.

#![no_main]

use azekura_proto::frame::{HEAD_BYTES, decode_borrowed, encode_into};
use azekura_proto::message::{Request, RequestHead};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(both) = decode_borrowed::<(RequestHead, Request<'_>)>(bytes) else { return };
    let mut out = Vec::new();
    if encode_into(&mut out, &both, 0).is_ok() {
        let again = decode_borrowed::<(RequestHead, Request<'_>)>(&out[HEAD_BYTES..]);
        assert_eq!(again.as_ref(), Ok(&both));
    }
    // What an engine asks of every request before it looks at its meaning.
    assert!(!both.1.name().is_empty());
    let _ = (both.1.has_reply(), both.1.needs_exact_retry());
});
