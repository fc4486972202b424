//! Connections over sockets, as to engines that are far away. Owns which engines were called together.

use std::sync::Arc;
use std::time::Duration;

use azekura_proto::EngineId;
use azekura_proto::pool_map::Address;
use azekura_rpc::transport::{Caller, Line, Met, Network, Sockets, Wanted};
use parking_lot::Mutex;

/// A way to the engines that keeps whom it was asked for.
#[derive(Debug, Default)]
pub struct Rounds {
    sockets: Sockets,
    called: Mutex<Vec<Vec<EngineId>>>,
}

impl Rounds {
    /// The engines that were called so far, those of each round together.
    pub fn called(&self) -> Vec<Vec<EngineId>> {
        self.called.lock().clone()
    }
}

impl Network for Rounds {
    fn open(&self, wanted: &Wanted<'_>, caller: &Caller) -> Met {
        self.open_all(&[*wanted], caller).pop().unwrap_or_default()
    }

    fn open_all(&self, wanted: &[Wanted<'_>], caller: &Caller) -> Vec<Met> {
        self.called.lock().push(wanted.iter().map(|wanted| wanted.engine).collect());
        self.sockets.open_all(wanted, caller)
    }

    fn wait_for_any(&self, lines: &[Arc<dyn Line>], limit: Duration) -> Vec<bool> {
        self.sockets.wait_for_any(lines, limit)
    }

    fn is_near(&self, _addresses: &[Address]) -> bool {
        false
    }
}
