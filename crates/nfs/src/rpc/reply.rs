//! The head of a reply (RFC 5531, section 9), and the record that it goes in.

use crate::xdr::Writer;

const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
const AUTH_NONE: u32 = 0;
const LAST_FRAGMENT: u32 = 1 << 31;
const MARK_BYTES: usize = 4;

/// What is wrong with the word of a caller (`auth_stat`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum AuthProblem {
    /// The credential cannot be decoded.
    BadCredential = 1,
    /// The verifier cannot be decoded.
    BadVerifier = 3,
    /// Another kind of credential is needed.
    TooWeak = 5,
}

/// Why a call is not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another version of RPC.
    RpcMismatch,
    /// Who calls is not clear.
    Auth(AuthProblem),
    /// There is no such program here.
    NoProgram,
    /// The program is here in another version.
    ProgramMismatch {
        /// That version.
        version: u32,
    },
    /// The program has no such procedure.
    NoProcedure,
    /// The arguments cannot be decoded.
    GarbageArgs,
}

/// Begins a reply to a call that is carried out, behind what was written before; its results follow.
/// Gives where it begins.
pub fn begin_reply(reply: &mut Writer, xid: u32) -> usize {
    let start = reply.len();
    reply.numbers(&[0, xid, REPLY, ACCEPTED, AUTH_NONE, 0, 0]);
    start
}

/// Makes a record of what was written since [`begin_reply`].
pub fn finish_reply(reply: &mut Writer, start: usize) {
    let length = (reply.len() - start - MARK_BYTES) as u32;
    reply.set_u32(start, LAST_FRAGMENT | length);
}

/// Whether a finished reply refuses its call, or begins with a status that is not 0.
pub fn is_error(record: &[u8]) -> bool {
    const MESSAGE_STATUS_AT: usize = 12;
    const CALL_STATUS_AT: usize = 24;
    const RESULT_AT: usize = 28;
    let is_set = |at: usize| record.get(at..at + 4).is_some_and(|number| number != [0; 4]);
    is_set(MESSAGE_STATUS_AT) || is_set(CALL_STATUS_AT) || is_set(RESULT_AT)
}

/// Writes the whole reply to a call that is refused, behind what was written before.
pub fn refuse(reply: &mut Writer, xid: u32, refusal: Refusal) {
    const RPC_VERSION: u32 = 2;
    let start = reply.len();
    reply.numbers(&[0, xid, REPLY]);
    match refusal {
        Refusal::RpcMismatch => {
            reply.numbers(&[DENIED, RPC_MISMATCH, RPC_VERSION, RPC_VERSION]);
        }
        Refusal::Auth(problem) => {
            reply.numbers(&[DENIED, AUTH_ERROR, problem as u32]);
        }
        Refusal::NoProgram => accepted(reply, 1, &[]),
        Refusal::ProgramMismatch { version } => accepted(reply, 2, &[version, version]),
        Refusal::NoProcedure => accepted(reply, 3, &[]),
        Refusal::GarbageArgs => accepted(reply, 4, &[]),
    }
    finish_reply(reply, start);
}

fn accepted(reply: &mut Writer, status: u32, rest: &[u32]) {
    reply.numbers(&[ACCEPTED, AUTH_NONE, 0, status]);
    reply.numbers(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_record() {
        let mut reply = Writer::default();
        for number in [42, 43] {
            let start = begin_reply(&mut reply, 5);
            reply.u32(number);
            finish_reply(&mut reply, start);
        }
        let expected = [42, 43].map(|number| [LAST_FRAGMENT + 28, 5, 1, 0, 0, 0, 0, number]);
        assert_eq!(
            reply.bytes(),
            expected.concat().into_iter().flat_map(u32::to_be_bytes).collect::<Vec<_>>()
        );
    }

    #[test]
    fn refusals_say_which_versions_there_are() {
        let mut reply = Writer::default();
        refuse(&mut reply, 5, Refusal::ProgramMismatch { version: 3 });
        let expected = [LAST_FRAGMENT + 32, 5, 1, 0, 0, 0, 2, 3, 3];
        assert_eq!(reply.bytes(), expected.map(u32::to_be_bytes).concat());
        reply.clear();
        refuse(&mut reply, 5, Refusal::RpcMismatch);
        assert_eq!(
            reply.bytes(),
            [LAST_FRAGMENT + 24, 5, 1, 1, 0, 2, 2].map(u32::to_be_bytes).concat()
        );
    }
}
