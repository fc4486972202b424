//! What an NFS client sends: a stream of records, and each of its messages answered by a gateway to a
//! small pool in this process. The gateway's exports and key are those that the seeds' handles are made
//! for, so that procedures are reached behind them.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

use azekura_nfs::exports::Exports;
use azekura_nfs::rpc::{RECORD_BYTES_MAX, Records};
use azekura_nfs::xdr::Writer;
use azekura_nfs::{Gateway, GatewayConfig, answer_messages};
use azekura_posix::{AttrUpdate, CachePolicy, Credentials, FileSystem};
use azekura_testkit::Cluster;
use libfuzzer_sys::fuzz_target;

/// As in the seeds.
const SECRET: &[u8] = b"fuzz";
const ROOT: &str = "0000000100000000.3f00000000000010";

struct Served {
    gateway: Arc<Gateway>,
    _cluster: Cluster,
}

/// Started once: an input is a moment in the life of a gateway.
static SERVED: LazyLock<Served> = LazyLock::new(|| {
    let cluster = Cluster::start_below(&std::env::temp_dir(), 1, 1);
    let fs: Arc<FileSystem> = cluster.mount(CachePolicy::None);
    assert_eq!(fs.root().to_string(), ROOT, "the handles of the seeds lead nowhere");
    let all = AttrUpdate { mode: Some(0o777), ..AttrUpdate::default() };
    fs.setattr(&Credentials::ROOT, fs.root(), None, &all).expect("a root");
    let exports = Exports::whole_container_to_loopback(fs.container().id);
    // Nobody is called back: nothing listens at this port.
    let config = GatewayConfig { client_portmap_port: 1, ..GatewayConfig::default() };
    let gateway = Gateway::new(fs, exports, SECRET, config).expect("a gateway");
    Served { gateway, _cluster: cluster }
});

/// Has messages answered that have come together, and looks at the answers.
fn ask(messages: &[&[u8]]) {
    let mut replies = Writer::default();
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    answer_messages(&SERVED.gateway, client, messages, &mut replies);
    let mut rest = replies.bytes();
    let mut count = 0;
    while let Some((mark, behind)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*mark) ^ 1 << 31;
        assert!(length.is_multiple_of(4) && length as usize <= RECORD_BYTES_MAX);
        let (reply, behind) = behind.split_at(length as usize);
        assert!(messages.iter().any(|message| message.starts_with(&reply[..4])));
        rest = behind;
        count += 1;
    }
    assert!(rest.is_empty() && count <= messages.len());
}

/// Gives the bytes to the records as a connection would, some at a time.
fn messages_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Records::default();
    let mut messages = Vec::new();
    for part in bytes.chunks(97) {
        records.room()[..part.len()].copy_from_slice(part);
        records.received(part.len());
        loop {
            match records.next_message() {
                Ok(Some(range)) => messages.push(records.message(range).to_vec()),
                Ok(None) => break,
                Err(_) => return messages,
            }
        }
    }
    assert!(messages.iter().map(Vec::len).sum::<usize>() <= bytes.len());
    assert!(records.held() <= (bytes.len() + 1) * 2 + (128 << 10), "more is held than was sent");
    messages
}

fuzz_target!(|bytes: &[u8]| {
    ask(&[bytes]);
    let messages = messages_of(bytes);
    // As many as a connection takes off at once.
    for together in messages.chunks(16) {
        ask(&together.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
});
