//! The network lock manager, version 4 (RFC 1813, appendix II), and of the network status monitor what
//! a lock manager needs: the word of a client that it was started anew. Owns the translation into locks
//! of the pool, which hold against every client of every gateway and mount.

mod calls;
mod held;
mod locks;
mod types;
mod waiting;

use crate::gateway::Request;
use crate::procedure::Procedure;
use crate::xdr::{Garbage, Reader, Writer};

pub(crate) use locks::Locks;

/// In the order of [`crate::procedures::NLM`].
pub(crate) const PROCEDURES: &[Procedure] = &[
    Procedure::Nothing,
    Procedure::Repeatable(calls::test),
    Procedure::Once(calls::lock),
    Procedure::Once(calls::cancel),
    Procedure::Once(calls::unlock),
    Procedure::Repeatable(calls::granted),
    Procedure::Repeatable(calls::test_msg),
    Procedure::Once(calls::lock_msg),
    Procedure::Once(calls::cancel_msg),
    Procedure::Once(calls::unlock_msg),
    Procedure::Repeatable(calls::granted_msg),
    // Results of calls that are never made here: GRANTED is called so that it is answered at once.
    Procedure::Repeatable(ignore),
    Procedure::Repeatable(ignore),
    Procedure::Repeatable(ignore),
    Procedure::Repeatable(ignore),
    Procedure::Repeatable(ignore),
    Procedure::Absent,
    Procedure::Absent,
    Procedure::Absent,
    Procedure::Absent,
    Procedure::Repeatable(calls::share),
    Procedure::Repeatable(calls::share),
    Procedure::Once(calls::nm_lock),
    Procedure::Repeatable(calls::release_all),
];

/// In the order of [`crate::procedures::NSM`]. Who asks to be told of restarts asks in vain.
pub(crate) const MONITOR_PROCEDURES: &[Procedure] = &[
    Procedure::Nothing,
    Procedure::Absent,
    Procedure::Absent,
    Procedure::Absent,
    Procedure::Absent,
    Procedure::Absent,
    Procedure::Repeatable(calls::release_all),
];

#[allow(clippy::unnecessary_wraps)] // It is what procedures return.
fn ignore(_: &Request<'_>, _: &mut Reader<'_>, _: &mut Writer) -> Result<(), Garbage> {
    Ok(())
}
