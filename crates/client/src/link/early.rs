//! What has come of the connections to an engine over which something was asked before it had let them in. Owns when
//! more may be made so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use azekura_proto::limits::EARLY_PROOF_MS;
use azekura_rpc::transport::Said;

/// What an engine has said to those that were made last.
#[derive(Debug)]
pub(super) struct EarlySaid {
    said: Arc<Said>,
    /// When they were made.
    at_us: u64,
}

impl EarlySaid {
    /// To those that were made at this time.
    pub(super) fn new(said: Arc<Said>, at_us: u64) -> Self {
        Self { said, at_us }
    }

    /// Whether more may be made so: one was let in, or none for so long that it is worth another trial.
    pub(super) fn allows_more(&self, now_us: u64) -> bool {
        let age_us = now_us.saturating_sub(self.at_us);
        self.said.welcome.get().is_some() || age_us >= EARLY_PROOF_MS * 1000
    }

    /// Whether the engine has let one in that it did not know any more.
    pub(super) fn has_forgotten(&self) -> bool {
        self.said.has_forgotten.load(Ordering::Acquire)
    }
}
