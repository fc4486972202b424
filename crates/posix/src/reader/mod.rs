//! Reading far files: what an open file has in flight and read ahead. Owns the bytes and the leases under
//! which they may be used; what to ask for is decided in the `policy` crate, and how it travels in the
//! client's pipeline. Whatever does not come out here is read in the ordinary way; why is said by
//! [`Direct`].

mod brought;
mod brought_bytes;
mod expected;
mod far_file;
mod file;
mod leased_attr;
mod readahead;
mod reading;
mod short_files;
mod trace;
mod waits;
mod whole;
mod window;

pub(crate) use brought_bytes::{BROUGHT_BYTES_MAX, BroughtBytes, FILE_BYTES_MAX, HELD_BYTES_MAX};
pub(crate) use expected::Bring;
pub(crate) use far_file::Direct;
pub(crate) use file::FileReader;
pub(crate) use reading::Reading;
pub use trace::{Trace, TraceDecision, TracePolicy, TraceRecord};
