//! From a message to its answer. Owns which procedure a call means, whether it may be carried out
//! twice, and that every call is counted; knows neither sockets nor what procedures do.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::gateway::{Asker, Gateway, Request};
use crate::metrics::Answered;
use crate::owner::Owner;
use crate::procedure::{Procedure, Run};
use crate::procedures::{MOUNT, NFS, NLM, NSM, PORTMAP, Program};
use crate::replies::{ReplyKey, Turn};
use crate::rpc::{self, Auth, BadCall, Call, Refusal};
use crate::xdr::{Garbage, Writer};
use crate::{mount3, nfs3, nlm4, portmap};

/// Every program has its procedures here.
const SERVED: &[(&Program, &[Procedure])] = &[
    (&NFS, nfs3::PROCEDURES),
    (&MOUNT, mount3::PROCEDURES),
    (&NLM, nlm4::PROCEDURES),
    (&NSM, nlm4::MONITOR_PROCEDURES),
    (&PORTMAP, portmap::PROCEDURES),
];

/// Moving so many bytes does not take long.
const SHORT_BYTES: usize = 64 << 10;

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The answer stands in the writer, as a record behind those before.
    Answered,
    /// There is nothing to answer now: the same call is being carried out.
    Silent,
    /// It was no call: the connection ends.
    NoCall,
}

/// Whether a message is likely to take long, so that others should go on beside it: it moves many
/// bytes, waits for disks, or lists a directory. A guess, by where the numbers stand that tell.
pub(crate) fn is_long(message: &[u8]) -> bool {
    const PROGRAM_AT: usize = 12;
    const PROCEDURE_AT: usize = 20;
    const READ: u32 = 6;
    const READDIR: u32 = 16;
    const READDIRPLUS: u32 = 17;
    const COMMIT: u32 = 21;
    let number = |at: usize| Some(u32::from_be_bytes(*message.get(at..)?.first_chunk()?));
    match number(PROGRAM_AT) {
        Some(program) if program == NFS.number => {}
        // A lock may have to be waited for.
        program => return program == Some(NLM.number),
    }
    match number(PROCEDURE_AT) {
        Some(READDIR | READDIRPLUS | COMMIT) => true,
        // Its last argument is how many bytes.
        Some(READ) => number(message.len() - 4).is_some_and(|bytes| bytes as usize > SHORT_BYTES),
        _ => message.len() > SHORT_BYTES,
    }
}

/// As a connection from this address would: answers messages that have come together, in whatever order,
/// each with a record. `false` if one was no call.
pub fn answer_messages(
    gateway: &Gateway,
    address: IpAddr,
    messages: &[&[u8]],
    replies: &mut Writer,
) -> bool {
    let owner = Owner::unknown();
    answer_all(gateway, Asker { address, owner: &owner }, messages.iter().copied(), replies)
}

/// Answers messages that have come together, in whatever order. `false` if one was no call.
pub(crate) fn answer_all<'m>(
    gateway: &Gateway,
    asker: Asker<'_>,
    messages: impl ExactSizeIterator<Item = &'m [u8]>,
    replies: &mut Writer,
) -> bool {
    let is_alone = messages.len() == 1;
    let mut looks: Vec<(&[u8], Call<'_>)> = Vec::new();
    for message in messages {
        match Call::decode(message) {
            Ok(call) if !is_alone && nfs3::batch::can_be_batched(&call) => {
                looks.push((message, call));
            }
            _ => {
                if answer(gateway, asker, message, replies) == Outcome::NoCall {
                    return false;
                }
            }
        }
    }
    answer_looks(gateway, asker, looks, replies);
    true
}

fn answer_looks(
    gateway: &Gateway,
    asker: Asker<'_>,
    looks: Vec<(&[u8], Call<'_>)>,
    replies: &mut Writer,
) {
    if looks.is_empty() {
        return;
    }
    let started = Instant::now();
    let (messages, calls): (Vec<_>, Vec<_>) = looks.into_iter().unzip();
    let exports = gateway.exports();
    let mut at = replies.len();
    let lengths = nfs3::batch::answer(gateway, asker, &exports, &calls, replies);
    for ((message, call), length) in messages.into_iter().zip(&calls).zip(lengths) {
        if length == 0 {
            answer(gateway, asker, message, replies);
            continue;
        }
        let answered = Answered {
            is_error: rpc::is_error(&replies.bytes()[at..at + length]),
            bytes_in: message.len() as u64,
            bytes_out: length as u64,
            latency: started.elapsed(),
        };
        gateway.metrics.count(call.program, call.procedure, answered);
        at += length;
    }
}

/// Answers one message.
pub(crate) fn answer(
    gateway: &Gateway,
    asker: Asker<'_>,
    message: &[u8],
    reply: &mut Writer,
) -> Outcome {
    let started = Instant::now();
    let start = reply.len();
    let call = match Call::decode(message) {
        Ok(call) => call,
        Err(BadCall::NoCall) => return Outcome::NoCall,
        Err(BadCall::Refused { xid, refusal }) => {
            gateway.metrics.refused_calls.fetch_add(1, Ordering::Relaxed);
            rpc::refuse(reply, xid, refusal);
            return Outcome::Answered;
        }
    };
    let outcome = match find(&call) {
        Ok(procedure) => carry_out(gateway, asker, &call, procedure, reply),
        Err(refusal) => {
            rpc::refuse(reply, call.xid, refusal);
            Outcome::Answered
        }
    };
    if outcome == Outcome::Answered {
        let answered = Answered {
            is_error: rpc::is_error(&reply.bytes()[start..]),
            bytes_in: message.len() as u64,
            bytes_out: (reply.len() - start) as u64,
            latency: started.elapsed(),
        };
        gateway.metrics.count(call.program, call.procedure, answered);
    }
    outcome
}

fn find(call: &Call<'_>) -> Result<Procedure, Refusal> {
    let (program, procedures) = SERVED
        .iter()
        .find(|(program, _)| program.number == call.program)
        .ok_or(Refusal::NoProgram)?;
    if call.version != program.version {
        return Err(Refusal::ProgramMismatch { version: program.version });
    }
    match procedures.get(call.procedure as usize) {
        None | Some(Procedure::Absent) => Err(Refusal::NoProcedure),
        Some(procedure) => Ok(*procedure),
    }
}

fn carry_out(
    gateway: &Gateway,
    asker: Asker<'_>,
    call: &Call<'_>,
    procedure: Procedure,
    reply: &mut Writer,
) -> Outcome {
    match procedure {
        Procedure::Absent => rpc::refuse(reply, call.xid, Refusal::NoProcedure),
        Procedure::Nothing => {
            let start = rpc::begin_reply(reply, call.xid);
            rpc::finish_reply(reply, start);
        }
        Procedure::Repeatable(run) => run_procedure(gateway, asker, call, run, reply),
        Procedure::Once(run) => {
            let caller = match &call.auth {
                Auth::None => (u32::MAX, u32::MAX),
                Auth::Sys(user) => (user.uid, user.gid),
            };
            let key = ReplyKey::new(
                asker.address,
                call.xid,
                (call.program, call.procedure),
                call.args.rest(),
                caller,
            );
            match gateway.replies.begin(key) {
                Turn::First(turn) => {
                    let start = reply.len();
                    run_procedure(gateway, asker, call, run, reply);
                    turn.answer(Arc::from(&reply.bytes()[start..]));
                }
                Turn::InProgress => return Outcome::Silent,
                Turn::Answered(first) => {
                    gateway.metrics.repeated_calls.fetch_add(1, Ordering::Relaxed);
                    reply.raw(&first);
                }
            }
        }
    }
    Outcome::Answered
}

fn run_procedure(
    gateway: &Gateway,
    asker: Asker<'_>,
    call: &Call<'_>,
    run: Run,
    reply: &mut Writer,
) {
    let request = Request::new(gateway, asker, call, gateway.exports());
    let start = rpc::begin_reply(reply, call.xid);
    let mut args = call.args;
    if let Err(Garbage) = run(&request, &mut args, reply) {
        reply.truncate(start);
        rpc::refuse(reply, call.xid, Refusal::GarbageArgs);
    } else {
        rpc::finish_reply(reply, start);
    }
}
