//! How many strangers an engine listens to at a time. Owns the bound on them; what they have to prove is
//! the handshake's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use azekura_proto::limits::HANDSHAKES_MAX;

use crate::engine_state::EngineState;

/// Room for one stranger: whoever has not proven yet who it is costs a thread and a descriptor, so
/// there is a bound on them. Given back on drop.
pub(crate) struct HandshakePermit(Arc<EngineState>);

impl HandshakePermit {
    /// Waits until there is room, with further callers in the listening socket's queue; none if the
    /// engine stops.
    pub(crate) fn wait_for(state: &Arc<EngineState>) -> Option<Self> {
        let has_room = |count| (count < HANDSHAKES_MAX).then_some(count + 1);
        loop {
            if state.is_stopping() {
                return None;
            }
            let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
            if state.handshakes.fetch_update(set, fetch, has_room).is_ok() {
                return Some(Self(Arc::clone(state)));
            }
            state.platform.sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Ordering::AcqRel);
    }
}
