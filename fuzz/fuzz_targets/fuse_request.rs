//! One message of the kernel's FUSE device. The parser is private to its crate, so its files are
//! taken in here as they are.

#![no_main]
#![allow(dead_code, unreachable_pub, unused_imports, unfulfilled_lint_expectations)]

#[path = "../../crates/fuse-kernel/src/abi.rs"]
mod abi;
#[path = "../../crates/fuse-kernel/src/operation.rs"]
mod operation;
#[path = "../../crates/fuse-kernel/src/request.rs"]
mod request;

use libfuzzer_sys::fuzz_target;
use request::{Message, parse};

fn look(bytes: &[u8]) {
    match parse(bytes) {
        Ok(Message::Request(request)) => {
            assert!(request.header.groups.iter().count() * 4 <= bytes.len());
            assert!(!format!("{:?}", request.operation).is_empty());
        }
        Ok(Message::Forget(forgets)) => forgets.for_each(|_, _| {}),
        Ok(_) | Err(_) => {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    look(bytes);
    // The kernel's length is right but for a bug of its own; with it mended more can be reached.
    if bytes.len() >= 4 {
        let mut mended = bytes.to_vec();
        mended[..4].copy_from_slice(&(bytes.len() as u32).to_ne_bytes());
        look(&mended);
    }
});
