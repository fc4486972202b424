//! Object classes as C writes them: the number of targets that an object is spread over.

use std::ffi::c_int;

use azekura_posix::Errno;
use azekura_proto::ObjectClass;
use azekura_proto::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};

use crate::failure::{Failure, Outcome};

/// `AZEKURA_SX`.
const ALL_TARGETS: c_int = 65535;

/// The number that stands for a class.
pub(crate) fn number(class: ObjectClass) -> c_int {
    match class {
        ObjectClass::SX => ALL_TARGETS,
        class => c_int::from(class.shards(u16::MAX)),
    }
}

/// The class that a number stands for; `AZEKURA_CLASS_DEFAULT` (0) is `default`.
pub(crate) fn from_number(given: c_int, default: ObjectClass) -> Outcome<ObjectClass> {
    if given == 0 {
        return Ok(default);
    }
    ObjectClass::ALL.into_iter().find(|class| number(*class) == given).ok_or_else(|| {
        let classes = "use one of AZEKURA_S1, S2, S4, S8, S16, S32, SX";
        Failure::with(Errno::INVAL, format!("there is no object class {given}: {classes}"))
    })
}

/// A chunk size in bytes; 0 is `default`.
pub(crate) fn chunk_bytes(given: u32, default: u32) -> Outcome<u32> {
    match given {
        0 => Ok(default),
        CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX => Ok(given),
        _ => Err(Failure::with(
            Errno::INVAL,
            format!("chunks have {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX} bytes, not {given}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_class() {
        for class in ObjectClass::ALL {
            assert_eq!(from_number(number(class), ObjectClass::S1).ok(), Some(class));
        }
        assert_eq!(number(ObjectClass::S16), 16);
        assert!(from_number(3, ObjectClass::S1).is_err());
    }
}
