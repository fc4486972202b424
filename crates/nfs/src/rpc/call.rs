//! The head of a call, and who makes it by their own word (RFC 5531, sections 9 and 14).

use super::reply::{AuthProblem, Refusal};
use crate::xdr::{Garbage, Reader};

const CALL: u32 = 0;
const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// Longest body of a credential, in bytes.
const AUTH_BYTES_MAX: usize = 400;
const MACHINE_NAME_BYTES_MAX: usize = 255;
const GROUPS_MAX: usize = 16;

/// A user, as the client's machine says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AuthSys {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Up to 16 further groups.
    pub groups: Vec<u32>,
}

/// Who calls.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Auth {
    /// Nobody says.
    None,
    /// A user of the client's machine.
    Sys(AuthSys),
}

/// The head of a call, and its arguments.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The client's number of this call.
    pub xid: u32,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure.
    pub procedure: u32,
    /// Who calls.
    pub auth: Auth,
    /// The arguments.
    pub args: Reader<'a>,
}

/// What cannot be carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadCall {
    /// No call at all: there is nothing to answer to.
    NoCall,
    /// A call that is answered with a refusal.
    Refused {
        /// Its number.
        xid: u32,
        /// The answer.
        refusal: Refusal,
    },
}

impl From<Garbage> for BadCall {
    fn from(_: Garbage) -> Self {
        Self::NoCall
    }
}

impl<'a> Call<'a> {
    /// Takes the head of a call off a message.
    ///
    /// # Errors
    /// If it is none, or of another version of the protocol, or from someone who does not say who.
    pub fn decode(message: &'a [u8]) -> Result<Self, BadCall> {
        let mut args = Reader::new(message);
        let xid = args.u32()?;
        if args.u32()? != CALL {
            return Err(BadCall::NoCall);
        }
        if args.u32()? != RPC_VERSION {
            return Err(BadCall::Refused { xid, refusal: Refusal::RpcMismatch });
        }
        let (program, version, procedure) = (args.u32()?, args.u32()?, args.u32()?);
        let refused = |problem| BadCall::Refused { xid, refusal: Refusal::Auth(problem) };
        let flavour = args.u32()?;
        let body = args.opaque(AUTH_BYTES_MAX).map_err(|_| refused(AuthProblem::BadCredential))?;
        let auth = match flavour {
            AUTH_NONE => Auth::None,
            AUTH_SYS => {
                decode_sys(body).map(Auth::Sys).map_err(|_| refused(AuthProblem::BadCredential))?
            }
            _ => return Err(refused(AuthProblem::TooWeak)),
        };
        let _verifier_flavour = args.u32().map_err(|_| refused(AuthProblem::BadVerifier))?;
        args.opaque(AUTH_BYTES_MAX).map_err(|_| refused(AuthProblem::BadVerifier))?;
        Ok(Self { xid, program, version, procedure, auth, args })
    }
}

fn decode_sys(body: &[u8]) -> Result<AuthSys, Garbage> {
    let mut body = Reader::new(body);
    let _stamp = body.u32()?;
    body.opaque(MACHINE_NAME_BYTES_MAX)?;
    let (uid, gid) = (body.u32()?, body.u32()?);
    let count = body.u32()? as usize;
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| body.u32()).collect::<Result<_, _>>()?;
    Ok(AuthSys { uid, gid, groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Writer;

    fn call(rpc_version: u32, flavour: u32, body: &[u8]) -> Vec<u8> {
        let mut writer = Writer::default();
        for number in [77, CALL, rpc_version, 100_003, 3, 1, flavour] {
            writer.u32(number);
        }
        writer.opaque(body);
        writer.u32(AUTH_NONE);
        writer.opaque(&[]);
        writer.u32(4711);
        writer.bytes().to_vec()
    }

    fn sys(groups: u32) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u32(1);
        writer.opaque(b"host");
        writer.u32(1000);
        writer.u32(100);
        writer.u32(groups);
        (0..groups).for_each(|group| writer.u32(group));
        writer.bytes().to_vec()
    }

    fn problem(message: &[u8]) -> Refusal {
        match Call::decode(message).unwrap_err() {
            BadCall::Refused { xid: 77, refusal } => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_is_taken_apart() {
        let message = call(2, AUTH_SYS, &sys(16));
        let mut call = Call::decode(&message).unwrap();
        assert_eq!((call.xid, call.program, call.version, call.procedure), (77, 100_003, 3, 1));
        let groups = (0..16).collect();
        assert_eq!(call.auth, Auth::Sys(AuthSys { uid: 1000, gid: 100, groups }));
        assert_eq!(call.args.u32(), Ok(4711));
    }

    #[test]
    fn who_does_not_say_who_is_refused() {
        assert_eq!(problem(&call(3, AUTH_NONE, &[])), Refusal::RpcMismatch);
        assert_eq!(problem(&call(2, 6, &[])), Refusal::Auth(AuthProblem::TooWeak));
        let bad = Refusal::Auth(AuthProblem::BadCredential);
        assert_eq!(problem(&call(2, AUTH_SYS, &sys(17))), bad);
        assert_eq!(problem(&call(2, AUTH_SYS, &sys(3)[..20])), bad);
        assert_eq!(problem(&call(2, AUTH_NONE, &[0; 404])), bad);
        assert_eq!(Call::decode(&[0; 7]).unwrap_err(), BadCall::NoCall);
        let reply = [&[0; 7][..], &[1], &[0; 32]].concat();
        assert_eq!(Call::decode(&reply).unwrap_err(), BadCall::NoCall);
    }
}
