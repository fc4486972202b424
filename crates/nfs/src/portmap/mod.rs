//! The port mapper, version 2 (RFC 1833). Owns how clients that are told no ports find them: the kernel's
//! lock manager has no other way to. Nothing but the gateway's own programs is ever in its list.

mod calls;
mod mappings;
mod service;
#[cfg(test)]
mod service_tests;

use crate::procedure::Procedure;

pub(crate) use mappings::{Mappings, PORT};
pub use service::{PortMapper, PortMapping};

/// In the order of [`crate::procedures::PORTMAP`]. CALLIT would let strangers call in our name.
pub(crate) const PROCEDURES: &[Procedure] = &[
    Procedure::Nothing,
    Procedure::Repeatable(calls::refuse),
    Procedure::Repeatable(calls::refuse),
    Procedure::Repeatable(calls::getport),
    Procedure::Repeatable(calls::dump),
    Procedure::Absent,
];
