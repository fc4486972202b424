//! Connections over sockets that break when a test says so. Owns nothing of what they carry.

use std::sync::Arc;
use std::time::Duration;

use azekura_proto::pool_map::Address;
use azekura_rpc::transport::{Caller, Line, Met, Network, Sockets, Wanted};
use parking_lot::Mutex;

/// A way to the engines on which nothing lasts.
#[derive(Debug, Default)]
pub struct Fragile {
    sockets: Sockets,
    lines: Mutex<Vec<Arc<dyn Line>>>,
}

impl Fragile {
    /// Breaks all connections that there are.
    pub fn cut(&self) {
        for line in self.lines.lock().drain(..) {
            line.shut_down();
        }
    }
}

impl Network for Fragile {
    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met {
        let met = self.sockets.open(wanted, caller);
        let lines = met.good.iter().map(|(conversation, _)| Arc::clone(conversation.line()));
        self.lines.lock().extend(lines);
        met
    }

    fn wait_for_any(&self, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool> {
        self.sockets.wait_for_any(lines, limit)
    }

    fn is_near(&self, addresses: &[Address]) -> bool {
        self.sockets.is_near(addresses)
    }
}
