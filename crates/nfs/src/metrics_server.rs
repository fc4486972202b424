//! The metrics over HTTP, for whoever collects them. Owns the port and the one path that is served.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::gateway::Gateway;

const TICK: Duration = Duration::from_millis(500);

/// What serves a gateway's metrics, until it is dropped.
pub struct MetricsServer {
    server: Arc<tiny_http::Server>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at `host:port`.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub fn listen(address: &str) -> io::Result<Self> {
        let server = tiny_http::Server::http(address).map_err(|error| {
            io::Error::other(format!(
                "cannot serve metrics at {address}: {error}; choose another address"
            ))
        })?;
        Ok(Self { server: Arc::new(server), is_stopping: Arc::default(), thread: None })
    }

    /// Serves `GET /metrics` from now on.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn start(&mut self, gateway: &Arc<Gateway>) -> io::Result<()> {
        let server = Arc::clone(&self.server);
        let (gateway, is_stopping) = (Arc::clone(gateway), Arc::clone(&self.is_stopping));
        let thread = std::thread::Builder::new().name("nfs-metrics".to_owned());
        self.thread = Some(thread.spawn(move || serve(&server, &gateway, &is_stopping))?);
        Ok(())
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported.
            let _ = thread.join();
        }
    }
}

fn serve(server: &tiny_http::Server, gateway: &Gateway, is_stopping: &AtomicBool) {
    while !is_stopping.load(Ordering::Relaxed) {
        let Ok(Some(request)) = server.recv_timeout(TICK) else { continue };
        let response = if request.url() == "/metrics" {
            tiny_http::Response::from_string(gateway.metrics().snapshot().render())
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
    use std::net::{SocketAddr, TcpStream};

    use azekura_posix::CachePolicy;
    use azekura_proto::attr::Inheritance;
    use azekura_testkit::Cluster;

    use crate::GatewayConfig;
    use crate::exports::Exports;

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn metrics_are_served_until_the_end() {
        let cluster = Cluster::start(1, 1, Inheritance::default());
        let fs = cluster.mount(CachePolicy::None);
        let exports = Exports::whole_container_to_loopback(fs.container().id);
        let gateway = Gateway::new(fs, exports, b"secret", GatewayConfig::default()).unwrap();
        let mut server = MetricsServer::listen("127.0.0.1:0").unwrap();
        let address = server.server.server_addr().to_ip().unwrap();
        server.start(&gateway).unwrap();
        gateway.metrics().connections.store(5, Ordering::Relaxed);
        assert!(get(address, "/metrics").contains("\nazekura_nfs_connections 5\n"));
        assert!(get(address, "/").starts_with("HTTP/1.0 404"));
        drop(server);
    }
}
