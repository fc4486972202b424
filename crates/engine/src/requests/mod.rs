//! From a request to its answer: who asks, what is done once only, which function it is for, and the
//! bulk data on both sides. Nothing in here knows sockets.

pub(crate) mod attachment;
pub(crate) mod bulk;
pub(crate) mod dispatch;
pub(crate) mod gate;
pub(crate) mod on_behalf;
#[cfg(test)]
mod on_behalf_tests;
pub(crate) mod retry;
pub(crate) mod sessions;
