//! How many strangers an engine listens to at a time. Owns the bound on them; what they have to prove is
//! the handshake's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use azekura_proto::limits::HANDSHAKES_MAX;

use crate::engine_state::EngineState;

/// Room for one stranger: whoever has not proven yet who it is costs a thread and a descriptor, so
/// there is a bound on them. Given back on drop.
pub(crate) struct HandshakePermit {
    state: Arc<EngineState>,
    is_local: bool,
}

impl HandshakePermit {
    /// Waits until there is room, with further callers in the listening socket's queue; none if the
    /// engine stops. Who comes over a network takes no room from who `is_local`.
    pub(crate) fn wait_for(state: &Arc<EngineState>, is_local: bool) -> Option<Self> {
        let has_room = |count| (count < HANDSHAKES_MAX).then_some(count + 1);
        loop {
            if state.is_stopping() {
                return None;
            }
            let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
            if state.handshakes[usize::from(is_local)].fetch_update(set, fetch, has_room).is_ok() {
                return Some(Self { state: Arc::clone(state), is_local });
            }
            state.platform.sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.state.handshakes[usize::from(self.is_local)].fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use azekura_wire::Secret;

    use super::*;
    use crate::engine_state::EngineConfig;

    #[test]
    fn strangers_on_the_network_take_no_room_from_callers_of_this_host() {
        let dir = tempfile::tempdir().unwrap();
        let config = EngineConfig {
            dir: dir.path().to_owned(),
            target_dirs: Vec::new(),
            target_count: 1,
            listen: Vec::new(),
            secret: Secret::generate().unwrap(),
            metrics_listen: None,
        };
        let state = Arc::new(EngineState::open(config).unwrap());
        let strangers: Vec<_> =
            (0..HANDSHAKES_MAX).map(|_| HandshakePermit::wait_for(&state, false)).collect();
        assert!(strangers.iter().all(Option::is_some));
        // It would wait for ever if they shared the room.
        assert!(HandshakePermit::wait_for(&state, true).is_some());
        state.stopping.store(true, Ordering::Relaxed);
        assert!(HandshakePermit::wait_for(&state, false).is_none());
    }
}
