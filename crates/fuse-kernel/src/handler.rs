//! Who carries out requests, and the threads that bring them. Owns these two interfaces and nothing else.

use crate::reply::Replier;
use crate::request::Request;

/// Carries out requests. Called from many threads at once.
pub trait Handler: Send + Sync + 'static {
    /// Carries out `request` and answers it through `replier`, now or later, here or on another
    /// thread. What may wait for long must go to a thread of the handler's own, since the threads
    /// that call this are few.
    fn handle(&self, request: Request<'_>, replier: Replier);

    /// Whoever sent request `unique` does not want to wait any longer. May arrive before the
    /// request itself, or after its answer.
    fn interrupt(&self, unique: u64);

    /// The kernel has dropped `count` references to `node`.
    fn forget(&self, node: u64, count: u64);

    /// The file system goes away; no request follows. May be told more than once.
    fn destroy(&self) {}
}

/// The threads of a mount, whatever their handler is.
pub(crate) trait Workers: Send + Sync + std::fmt::Debug {
    fn join(&self);
}
