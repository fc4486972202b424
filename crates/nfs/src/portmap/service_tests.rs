//! Clients that are told no port, and those who may not ask.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use azekura_posix::CachePolicy;
use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;

use super::service::{PortMapper, open_at};
use crate::exports::Exports;
use crate::procedures::{MOUNT, NFS, NLM, NSM, PORTMAP, Program};
use crate::rpc::client::Callee;
use crate::xdr::{Reader, Writer};
use crate::{Gateway, GatewayConfig, Server, ServerConfig};

const TIMEOUT: Duration = Duration::from_secs(5);
const NFS_PORT: u16 = 2049;
const MOUNT_PORT: u16 = 20048;
const TCP: u32 = 6;
const UDP: u32 = 17;

/// A port that is free for both, whichever that is.
fn open() -> (TcpListener, PortMapper) {
    let any = "127.0.0.1:0".parse().unwrap();
    (0..100).find_map(|_| open_at(any).ok()).unwrap()
}

fn gateway(cluster: &Cluster, clients: &str) -> Arc<Gateway> {
    let fs = cluster.mount(CachePolicy::None);
    let text = format!("[[export]]\npath = '/'\nclients = ['{clients}']\n");
    let exports = Exports::parse(&text, Path::new("exports.toml"), fs.container().id).unwrap();
    Gateway::new(fs, exports, b"secret", GatewayConfig::default()).unwrap()
}

/// Runs a gateway with a port mapper that only these clients may use.
fn with_port_mapper(clients: &str, test: impl FnOnce(SocketAddr)) {
    let cluster = Cluster::start(1, 1, Inheritance::default());
    let gateway = gateway(&cluster, clients);
    let (listener, mapper) = open();
    let address = listener.local_addr().unwrap();
    let mapping = mapper.start(&gateway, NFS_PORT, MOUNT_PORT).unwrap();
    let server = Server::start(gateway, vec![listener], ServerConfig::default()).unwrap();
    test(address);
    drop(mapping);
    server.stop(TIMEOUT);
}

fn question(program: u32, version: u32, protocol: u32) -> Writer {
    let mut args = Writer::default();
    args.u32s(&[program, version, protocol, 0]);
    args
}

/// What comes back of a call by UDP, in words behind the xid.
fn ask(
    address: SocketAddr,
    program: &Program,
    procedure: u32,
    args: &Writer,
) -> io::Result<Vec<u8>> {
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    udp.set_read_timeout(Some(Duration::from_millis(300)))?;
    let mut call = Writer::default();
    call.u32s(&[7, 0, 2, program.number, program.version, procedure, 0, 0, 0, 0]);
    call.raw(args.bytes());
    udp.send_to(call.bytes(), address)?;
    let mut reply = [0; 1000];
    let bytes = udp.recv(&mut reply)?;
    Ok(reply[4..bytes].to_vec())
}

#[test]
fn ports_are_told_by_tcp_and_udp() {
    with_port_mapper("127.0.0.0/8", |address| {
        let callee = Callee { address, timeout: TIMEOUT };
        let port = address.port();
        for (program, expected) in
            [(&NFS, NFS_PORT), (&MOUNT, MOUNT_PORT), (&NLM, NFS_PORT), (&PORTMAP, port)]
        {
            assert_eq!(callee.port_of(program).unwrap(), expected, "{}", program.name);
        }
        let by_udp = |program: &Program, version, protocol| {
            let args = question(program.number, version, protocol);
            let reply = ask(address, &PORTMAP, 3, &args).unwrap();
            assert_eq!(reply[..20], [1, 0, 0, 0, 0].map(u32::to_be_bytes).concat());
            Reader::new(&reply[20..]).u32().unwrap()
        };
        for _ in 0..2 {
            assert_eq!(ask(address, &PORTMAP, 0, &Writer::default()).unwrap().len(), 20);
        }
        assert_eq!(by_udp(&NLM, 4, TCP), u32::from(NFS_PORT));
        assert_eq!(
            by_udp(&NFS, 4, TCP),
            u32::from(NFS_PORT),
            "that there is no version 4 NFS says"
        );
        assert_eq!(by_udp(&NSM, 1, UDP), u32::from(port));
        assert_eq!(by_udp(&NFS, 3, UDP), 0, "NFS is not served by UDP");
        assert_eq!(by_udp(&Program { number: 99, ..NFS }, 1, TCP), 0);
    });
}

#[test]
fn nobody_changes_the_list() {
    with_port_mapper("127.0.0.0/8", |address| {
        let callee = Callee { address, timeout: TIMEOUT };
        let list = || callee.call(&PORTMAP, 4, &[]).unwrap();
        let before = list();
        for procedure in [1, 2] {
            let args = question(NFS.number, 3, TCP);
            assert_eq!(callee.call(&PORTMAP, procedure, args.bytes()).unwrap(), [0; 4]);
        }
        assert_eq!(list(), before);
        let nfs = [1, NFS.number, 3, TCP, u32::from(NFS_PORT)].map(u32::to_be_bytes).concat();
        assert!(before.starts_with(&nfs));
        assert!(callee.call(&PORTMAP, 5, &[]).is_err(), "it calls others in our name");
    });
}

#[test]
fn what_a_stranger_sends_by_udp_has_no_answer() {
    with_port_mapper("10.0.0.0/8", |address| {
        assert!(ask(address, &PORTMAP, 0, &Writer::default()).is_err());
        let callee = Callee { address, timeout: TIMEOUT };
        assert_eq!(callee.port_of(&NFS).unwrap(), NFS_PORT, "a connection has a sender");
    });
    with_port_mapper("127.0.0.1", |address| {
        assert!(ask(address, &NFS, 0, &Writer::default()).is_err());
        assert!(ask(address, &NLM, 0, &Writer::default()).is_err());
        assert_eq!(ask(address, &NSM, 0, &Writer::default()).unwrap().len(), 20);
    });
}
