//! The metrics over HTTP, for whoever collects them. Owns the port and the one path that is served.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine_state::EngineState;
use crate::error::{EngineError, io_error};
use crate::metrics::Gauges;
use crate::target::Target;

/// Listens at `host:port`.
pub(crate) fn listen(address: &str) -> Result<tiny_http::Server, EngineError> {
    tiny_http::Server::http(address).map_err(|error| {
        io_error("cannot serve metrics at", Path::new(address))(io::Error::other(error))
    })
}

/// Serves `GET /metrics` until the engine stops.
pub(crate) fn serve(server: &tiny_http::Server, state: &EngineState) {
    while !state.is_stopping() {
        let Ok(Some(request)) = server.recv_timeout(Duration::from_millis(500)) else { continue };
        let response = if request.url() == "/metrics" {
            tiny_http::Response::from_string(state.metrics.render(&gauges(state)))
        } else {
            tiny_http::Response::from_string("see /metrics\n").with_status_code(404)
        };
        // A reader that has gone away needs no answer.
        let _ = request.respond(response);
    }
}

fn gauges(state: &EngineState) -> Gauges {
    let Some(service) = state.service() else { return Gauges::default() };
    let node = service.node();
    let sum = |value: fn(&Target) -> u64| node.local_targets().map(|target| value(target)).sum();
    Gauges {
        sessions: node.sessions.len() as u64,
        reclaim_backlog: sum(|target| target.reclaim_backlog.load(Ordering::Relaxed)),
        objects: sum(|target| target.objects.total()),
        set_aside: sum(|target| target.set_aside.count()),
    }
}
