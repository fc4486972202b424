//! What a procedure is to the dispatcher: a function, and whether it may be carried out twice.

use crate::gateway::Request;
use crate::xdr::{Garbage, Reader, Writer};

/// Takes arguments, and writes results behind the head of the reply.
pub(crate) type Run =
    fn(&Request<'_>, &mut Reader<'_>, &mut Writer) -> std::result::Result<(), Garbage>;

/// How a procedure is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Procedure {
    /// It is not carried out here.
    Absent,
    /// It does nothing, and says so.
    Nothing,
    /// Twice is as good as once.
    Repeatable(Run),
    /// Who asks again gets the first answer.
    Once(Run),
}
