//! Remote procedure calls as ONC defines them (RFC 5531) Owns records, the
//! heads of calls and replies, and who calls by their own word; knows no program.

mod call;
pub(crate) mod client;
mod record;
mod reply;

pub use call::{Auth, AuthSys, BadCall, Call};
pub use record::{RECORD_BYTES_MAX, RecordError, Records};
pub use reply::{AuthProblem, Refusal, begin_reply, finish_reply, is_error, refuse};
