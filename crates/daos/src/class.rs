//! Object classes as the interface numbers them. Owns both directions of the numbering.

use std::ffi::{c_char, c_int};

use azekura_posix::Errno;
use azekura_proto::ObjectClass;

use crate::status::call_or;
use crate::types::c_text;

/// No class: inherit.
const UNKNOWN: u32 = 0;
/// The redundancy bits of all classes without any.
const PLAIN: u32 = 1 << 24;
/// Room that callers give for a name.
const NAME_BYTES: usize = 24;

/// The number of a class.
pub(crate) fn id_of(class: ObjectClass) -> u32 {
    PLAIN
        | match class {
            ObjectClass::S1 => 1,
            ObjectClass::S2 => 2,
            ObjectClass::S4 => 4,
            ObjectClass::S8 => 8,
            ObjectClass::S16 => 16,
            ObjectClass::S32 => 32,
            ObjectClass::SX => 0xffff,
        }
}

fn class_of(id: u32) -> Option<ObjectClass> {
    ObjectClass::ALL.into_iter().find(|class| id_of(*class) == id)
}

/// The class that a caller asks for, `None` for the inherited one; `EINVAL` if there is no such.
pub(crate) fn wanted(id: u32) -> Result<Option<ObjectClass>, Errno> {
    if id == UNKNOWN { Ok(None) } else { class_of(id).map(Some).ok_or(Errno::INVAL) }
}

/// See `daos_obj_class.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_oclass_name2id(name: *const c_char) -> u32 {
    call_or(UNKNOWN, || {
        // SAFETY: a C string, by the contract.
        let name = unsafe { c_text(name) };
        name.and_then(|name| name.parse().ok()).map_or(UNKNOWN, id_of)
    })
}

/// See `daos_obj_class.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_oclass_id2name(id: u32, name: *mut c_char) -> c_int {
    let Some(class) = class_of(id) else { return -1 };
    let text = class.name().as_bytes();
    if name.is_null() || text.len() >= NAME_BYTES {
        return -1;
    }
    // SAFETY: the caller gives room for NAME_BYTES, by the contract; the text and its zero fit.
    unsafe {
        name.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        name.add(text.len()).write(0);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_lead_to_each_other() {
        for class in ObjectClass::ALL {
            let name = std::ffi::CString::new(class.name()).unwrap();
            // SAFETY: the text ends with a zero.
            let id = unsafe { daos_oclass_name2id(name.as_ptr()) };
            assert_eq!(wanted(id), Ok(Some(class)));
            let mut shown = [0; NAME_BYTES];
            // SAFETY: there is room for NAME_BYTES, and a zero at the end.
            let shown = unsafe {
                assert_eq!(daos_oclass_id2name(id, shown.as_mut_ptr()), 0);
                std::ffi::CStr::from_ptr(shown.as_ptr())
            };
            assert_eq!(shown, &*name);
        }
        // SAFETY: the texts end with a zero, or are null.
        unsafe {
            assert_eq!(daos_oclass_name2id(c"RP_2GX".as_ptr()), UNKNOWN);
            assert_eq!(daos_oclass_name2id(std::ptr::null()), UNKNOWN);
        }
        assert_eq!(wanted(0), Ok(None));
        assert_eq!(wanted(PLAIN | 3), Err(Errno::INVAL));
    }
}
