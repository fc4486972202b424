//! Ids, addresses and classes as people and files write them: what is read is written the same.

#![no_main]

use azekura_proto::pool_map::Address;
use azekura_proto::{ObjectClass, Oid, PoolId};
use azekura_wire::Secret;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(oid) = Oid::from_bytes(bytes) {
        assert_eq!(oid.to_string().parse(), Ok(oid));
        let _ = (oid.class(), oid.home(), oid.container());
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(oid) = text.parse::<Oid>() {
        assert_eq!(Oid::from_bytes(&oid.to_bytes()), Some(oid));
    }
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
    if let Ok(class) = text.parse::<ObjectClass>() {
        assert_eq!(ObjectClass::from_code(class.code()), Some(class));
    }
    let _ = text.parse::<PoolId>();
    let _ = Secret::from_hex(text);
});
