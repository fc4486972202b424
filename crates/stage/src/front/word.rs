//! What the threads of the front tell the scheduler, which alone knows the state of the job.

use std::sync::Arc;

use azekura_proto::staging::NodeId;

use crate::message::{ContentDescription, ContentId, Place, ToFront};
use crate::stock::Bundled;

/// A message to the scheduler.
pub(crate) enum Word {
    /// An agent has said something.
    Said(NodeId, ToFront),
    /// An agent is gone.
    Gone(NodeId, String),
    /// A large file has been opened, or not.
    Opened { place: Place, opened: Result<Arc<ContentDescription>, i32> },
    /// The small files of the bundle of this number have been read.
    Bundled(u64, Bundled),
    /// A file changed while it was read.
    Changed(ContentId),
    /// A file cannot be read; the number of the errno.
    Unreadable(ContentId, i32),
    /// All nodes are to have these files, of so many bytes.
    Prefetch(Vec<(Place, u64)>),
    /// The scheduler is to end.
    End,
}
