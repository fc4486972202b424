//! The metrics over HTTP, for whoever collects them. Owns the port and the one path that is served.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::metrics::Metrics;

/// Listens at `host:port`.
///
/// # Errors
/// If the address cannot be had.
pub fn listen(address: &str) -> io::Result<tiny_http::Server> {
    tiny_http::Server::http(address).map_err(|error| {
        io::Error::other(format!(
            "cannot serve metrics at {address}: {error}; choose another address"
        ))
    })
}

/// Serves `GET /metrics` until the gateway stops.
pub fn serve(server: &tiny_http::Server, metrics: &Metrics, is_stopping: &AtomicBool) {
    while !is_stopping.load(Ordering::Relaxed) {
        let Ok(Some(request)) = server.recv_timeout(Duration::from_millis(500)) else { continue };
        let response = if request.url() == "/metrics" {
            tiny_http::Response::from_string(metrics.snapshot().render())
        } else {
            tiny_http::Response::from_string("see /metrics\n").with_status_code(404)
        };
        // A reader that has gone away needs no answer.
        let _ = request.respond(response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    fn get(server: &tiny_http::Server, path: &str) -> String {
        let mut stream = TcpStream::connect(server.server_addr().to_ip().unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn metrics_are_served_until_the_end() {
        let server = listen("127.0.0.1:0").unwrap();
        let (metrics, is_stopping) = (Metrics::default(), AtomicBool::new(false));
        metrics.connections.store(5, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&server, &metrics, &is_stopping));
            assert!(get(&server, "/metrics").contains("\nazekura_nfs_connections 5\n"));
            assert!(get(&server, "/").starts_with("HTTP/1.0 404"));
            is_stopping.store(true, Ordering::Relaxed);
            serving.join().unwrap();
        });
    }
}
