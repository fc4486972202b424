//! The metrics over HTTP, for whoever collects them. Owns the port and the one path that is served.

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::engine_state::EngineState;
use crate::error::{EngineError, io_error};
use crate::metrics::Gauges;
use crate::target::Target;

/// An engine that starts anew in its process may find the port still taken: the server before closes it in
/// a thread of its own, which nobody can wait for.
const BIND_PATIENCE: Duration = Duration::from_secs(1);
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// Listens at `host:port`.
pub(crate) fn listen(address: &str) -> Result<tiny_http::Server, EngineError> {
    let failed = || io_error("cannot serve metrics at", Path::new(address));
    let listener = bind(address).map_err(failed())?;
    tiny_http::Server::from_listener(listener, None)
        .map_err(|error| failed()(io::Error::other(error)))
}

fn bind(address: &str) -> io::Result<TcpListener> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < BIND_PATIENCE =>
            {
                std::thread::sleep(BIND_PAUSE);
            }
            bound => return bound,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_about_to_be_given_up_is_waited_for_and_no_other() {
        let before = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = before.local_addr().unwrap().to_string();
        assert!(matches!(listen(&address), Err(EngineError::Io { .. })));
        let closing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(before);
        });
        assert!(listen(&address).is_ok());
        closing.join().unwrap();
    }
}
