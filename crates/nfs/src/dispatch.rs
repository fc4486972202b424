//! From a message to its answer. Owns which procedure a call means, whether it may be carried out
//! twice, and that every call is counted; knows neither sockets nor what procedures do.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::gateway::{Gateway, Request};
use crate::metrics::Answered;
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

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The answer stands in the writer, as a record.
    Answered,
    /// There is nothing to answer now: the same call is being carried out.
    Silent,
    /// It was no call: the connection ends.
    NoCall,
}

/// Who asks, as far as a connection tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    /// The address.
    pub(crate) address: IpAddr,
}

/// Answers one message.
pub(crate) fn answer(
    gateway: &Gateway,
    asker: Asker,
    message: &[u8],
    reply: &mut Writer,
) -> Outcome {
    let started = Instant::now();
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
            is_error: rpc::is_error(reply.bytes()),
            bytes_in: message.len() as u64,
            bytes_out: reply.len() as u64,
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
    asker: Asker,
    call: &Call<'_>,
    procedure: Procedure,
    reply: &mut Writer,
) -> Outcome {
    match procedure {
        Procedure::Absent => rpc::refuse(reply, call.xid, Refusal::NoProcedure),
        Procedure::Nothing => {
            rpc::begin_reply(reply, call.xid);
            rpc::finish_reply(reply);
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
                    run_procedure(gateway, asker, call, run, reply);
                    turn.answer(Arc::from(reply.bytes()));
                }
                Turn::InProgress => return Outcome::Silent,
                Turn::Answered(first) => {
                    gateway.metrics.repeated_calls.fetch_add(1, Ordering::Relaxed);
                    reply.clear();
                    reply.raw(&first);
                }
            }
        }
    }
    Outcome::Answered
}

fn run_procedure(gateway: &Gateway, asker: Asker, call: &Call<'_>, run: Run, reply: &mut Writer) {
    let request =
        Request { gateway, peer: asker.address, auth: &call.auth, exports: gateway.exports() };
    rpc::begin_reply(reply, call.xid);
    let mut args = call.args;
    match run(&request, &mut args, reply) {
        Ok(()) => rpc::finish_reply(reply),
        Err(Garbage) => rpc::refuse(reply, call.xid, Refusal::GarbageArgs),
    }
}
