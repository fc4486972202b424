//! skeleton
#![allow(clippy::all, clippy::pedantic, unused_variables, dead_code)]
use azekura_proto::Oid;
use rustix::fs::OFlags;
/// A file held open. Closing is dropping it: that queues the release of its hold.
#[derive(Debug)]
pub struct OpenFile {}
impl OpenFile {
    /// The object.
    pub fn oid(&self) -> Oid {
        todo!()
    }
    /// The flags that it was opened with (access mode, append, sync flags).
    pub fn flags(&self) -> OFlags {
        todo!()
    }
}
