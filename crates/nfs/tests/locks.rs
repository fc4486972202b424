//! Locks over the wire: what one client holds the others do not get, and who waits is called.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use azekura_nfs::exports::Exports;
use azekura_nfs::handle::{FileHandle, HandleKey};
use azekura_nfs::rpc::{Call, Records, begin_reply, finish_reply};
use azekura_nfs::xdr::{Reader, Writer};
use azekura_nfs::{Gateway, GatewayConfig, Server, ServerConfig};
use azekura_posix::{
    AttrUpdate, CachePolicy, Credentials, Errno, FileSystem, Lock, LockKind, LockMode, NewEntry,
    Oid,
};
use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;

const NLM: (u32, u32) = (100_021, 4);
const NSM: (u32, u32) = (100_024, 1);
const SECRET: &[u8] = b"a secret of tests";
const USER: u32 = 1000;

const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const GRANTED: u32 = 5;
const LOCK_MSG: u32 = 7;
const LOCK_RES: u32 = 12;
const SHARE: u32 = 20;
const NM_LOCK: u32 = 22;
const FREE_ALL: u32 = 23;

/// `nlm4_stats`.
const OK: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const DEADLOCK: u32 = 5;
const READ_ONLY: u32 = 6;
const STALE: u32 = 7;
const TOO_BIG: u32 = 8;
const FAILED: u32 = 9;

struct Fixture {
    fs: Arc<FileSystem>,
    gateway: Arc<Gateway>,
    server: Option<Server>,
    address: SocketAddr,
    oid: Oid,
    handle: Vec<u8>,
    calls: Receiver<(u32, Vec<u8>)>,
    cluster: Cluster,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.server.take().unwrap().stop(Duration::from_secs(5));
    }
}

impl Fixture {
    /// A gateway, and at its client's side a lock manager that answers GRANTED with `status`.
    fn new(rules: &str, status: u32) -> Self {
        let cluster = Cluster::start(1, 2, Inheritance::default());
        let fs = cluster.mount(CachePolicy::None);
        let all = AttrUpdate { mode: Some(0o777), ..AttrUpdate::default() };
        fs.setattr(&Credentials::ROOT, fs.root(), None, &all).unwrap();
        let user = Credentials { uid: USER, gid: USER, groups: Vec::new(), process: None };
        let oid = fs.make(&user, fs.root(), b"file", 0o600, NewEntry::Regular).unwrap().oid;
        let text = format!("[[export]]\npath = '/'\nclients = ['127.0.0.0/8']\n{rules}\n");
        let exports = Exports::parse(&text, Path::new("exports.toml"), fs.container().id).unwrap();
        let export = exports.find("/").unwrap().id();
        let handle = HandleKey::derive(SECRET).seal(FileHandle { export, oid }).to_vec();
        let (portmap_port, calls) = lock_manager(status);
        let config =
            GatewayConfig { client_portmap_port: portmap_port, ..GatewayConfig::default() };
        let gateway = Gateway::new(Arc::clone(&fs), exports, SECRET, config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server =
            Server::start(Arc::clone(&gateway), vec![listener], ServerConfig::default()).unwrap();
        Self { fs, gateway, server: Some(server), address, oid, handle, calls, cluster }
    }

    fn client(&self) -> Client<'_> {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { fixture: self, stream, records: Records::default(), uid: USER }
    }

    /// The same lock as a mount of the pool would take it.
    fn lock_elsewhere(&self, fs: &FileSystem) -> Result<(), Errno> {
        fs.lock(self.oid, range(0, u64::MAX), false, &|| false)
    }
}

fn range(start: u64, end: u64) -> Lock {
    let (kind, mode) = (LockKind::Range, LockMode::Exclusive);
    Lock { kind, owner: 1, pid: 1, mode, start, end }
}

/// A port mapper, and the lock manager that it leads to, in one. Tells what was called.
fn lock_manager(status: u32) -> (u16, Receiver<(u32, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, calls) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut records = Records::default();
            let Some(message) = receive(&mut stream, &mut records) else { continue };
            let call = Call::decode(&message).unwrap();
            let mut reply = Writer::default();
            let start = begin_reply(&mut reply, call.xid);
            if call.program == NLM.0 {
                let mut args = call.args;
                reply.opaque(args.opaque(1024).unwrap());
                reply.u32(status);
                // Nobody may listen any more, at the end of a test.
                let _ = sender.send((call.procedure, call.args.rest().to_vec()));
            } else {
                reply.u32(u32::from(port));
            }
            finish_reply(&mut reply, start);
            let _ = stream.write_all(reply.bytes());
        }
    });
    (port, calls)
}

fn receive(stream: &mut TcpStream, records: &mut Records) -> Option<Vec<u8>> {
    loop {
        if let Some(range) = records.next_message().unwrap() {
            return Some(records.message(range).to_vec());
        }
        match stream.read(records.room()) {
            Ok(0) | Err(_) => return None,
            Ok(bytes) => records.received(bytes),
        }
    }
}

struct Client<'a> {
    fixture: &'a Fixture,
    stream: TcpStream,
    records: Records,
    uid: u32,
}

/// What is locked by whom.
#[derive(Clone, Copy)]
struct Range {
    svid: u32,
    offset: u64,
    length: u64,
    is_exclusive: bool,
    blocks: bool,
}

fn owned(svid: u32) -> Range {
    Range { svid, offset: 0, length: 0, is_exclusive: true, blocks: false }
}

impl Client<'_> {
    /// Calls a procedure, and gives its results.
    fn call(&mut self, (program, version): (u32, u32), procedure: u32, args: &[u8]) -> Vec<u8> {
        const AUTH_SYS: u32 = 1;
        // All clients are at one address: numbers are what tells their calls apart.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let xid = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut credential = Writer::default();
        credential.u32(0);
        credential.opaque(b"host");
        credential.u32s(&[self.uid, self.uid, 0]);
        let mut call = Writer::default();
        call.u32s(&[0, xid, 0, 2, program, version, procedure, AUTH_SYS]);
        call.opaque(credential.bytes());
        call.u32s(&[0, 0]);
        call.raw(args);
        call.set_u32(0, 1 << 31 | (call.len() - 4) as u32);
        self.stream.write_all(call.bytes()).unwrap();
        let reply = receive(&mut self.stream, &mut self.records).unwrap();
        let mut reply = Reader::new(&reply);
        let head = [(); 6].map(|()| reply.u32().unwrap());
        assert_eq!(head, [xid, 1, 0, 0, 0, 0]);
        reply.rest().to_vec()
    }

    fn args(procedure: u32, handle: &[u8], range: Range) -> Vec<u8> {
        let mut args = Writer::default();
        args.opaque(b"cook");
        if [LOCK, CANCEL, LOCK_MSG, NM_LOCK].contains(&procedure) {
            args.bool(range.blocks);
        }
        if procedure != UNLOCK {
            args.bool(range.is_exclusive);
        }
        args.opaque(b"host");
        args.opaque(handle);
        args.opaque(format!("{}@host", range.svid).as_bytes());
        args.u32(range.svid);
        args.u64(range.offset);
        args.u64(range.length);
        if [LOCK, LOCK_MSG, NM_LOCK].contains(&procedure) {
            args.bool(false);
            args.u32(1);
        }
        args.bytes().to_vec()
    }

    fn ask(&mut self, procedure: u32, range: Range) -> u32 {
        let handle = self.fixture.handle.clone();
        self.ask_of(procedure, &handle, range)
    }

    fn ask_of(&mut self, procedure: u32, handle: &[u8], range: Range) -> u32 {
        let results = self.call(NLM, procedure, &Self::args(procedure, handle, range));
        let mut results = Reader::new(&results);
        assert_eq!(results.opaque(1024), Ok(&b"cook"[..]));
        results.u32().unwrap()
    }
}

#[test]
fn what_one_owner_has_another_does_not_get() {
    let fixture = Fixture::new("", OK);
    let mut client = fixture.client();
    assert_eq!(client.ask(LOCK, Range { offset: 10, length: 5, ..owned(1) }), OK);
    assert_eq!(client.ask(LOCK, Range { offset: 14, ..owned(2) }), DENIED);
    assert_eq!(client.ask(LOCK, Range { offset: 15, ..owned(2) }), OK);
    let shared = Range { is_exclusive: false, length: 10, ..owned(3) };
    assert_eq!(client.ask(LOCK, shared), OK);
    assert_eq!(client.ask(LOCK, Range { svid: 4, ..shared }), OK);
    assert_eq!(client.ask(TEST, Range { length: 1, ..owned(1) }), DENIED);
    assert_eq!(client.ask(UNLOCK, owned(3)), OK);
    assert_eq!(client.ask(UNLOCK, owned(4)), OK);
    assert_eq!(client.ask(TEST, Range { length: 1, ..owned(1) }), OK);
}

#[test]
fn a_test_tells_who_is_in_the_way() {
    let fixture = Fixture::new("", OK);
    let mut client = fixture.client();
    assert_eq!(client.ask(LOCK, Range { offset: 10, length: 5, ..owned(7) }), OK);
    let args = Client::args(TEST, &fixture.handle, owned(8));
    let results = client.call(NLM, TEST, &args);
    let mut told = Reader::new(&results);
    assert_eq!(told.opaque(8), Ok(&b"cook"[..]));
    assert_eq!((told.u32(), told.bool(), told.u32()), (Ok(DENIED), Ok(true), Ok(7)));
    assert!(told.opaque(1024).is_ok());
    assert_eq!((told.u64(), told.u64()), (Ok(10), Ok(5)));
}

#[test]
fn locks_hold_against_all_clients_of_the_pool() {
    let fixture = Fixture::new("", OK);
    let other = fixture.cluster.mount(CachePolicy::None);
    let mut client = fixture.client();
    assert_eq!(client.ask(LOCK, owned(1)), OK);
    assert_eq!(fixture.lock_elsewhere(&other), Err(Errno::AGAIN));
    assert_eq!(client.ask(UNLOCK, owned(1)), OK);
    assert_eq!(fixture.lock_elsewhere(&other), Ok(()));
    assert_eq!(client.ask(LOCK, owned(1)), DENIED);
}

#[test]
fn who_gets_a_lock_sees_what_was_written_under_it() {
    const WRITE: u32 = 7;
    const UNSTABLE: u32 = 0;
    let fixture = Fixture::new("", OK);
    let other = fixture.cluster.mount(CachePolicy::None);
    let mut client = fixture.client();
    assert_eq!(client.ask(LOCK, owned(1)), OK);
    let mut args = Writer::default();
    args.opaque(&fixture.handle);
    args.u64(0);
    args.u32s(&[4, UNSTABLE]);
    args.opaque(b"data");
    assert_eq!(client.call((100_003, 3), WRITE, args.bytes())[..4], [0; 4]);
    assert_eq!(client.ask(UNLOCK, owned(1)), OK);
    assert_eq!(fixture.lock_elsewhere(&other), Ok(()));
    let mut data = [0; 4];
    let read = other.read_object(&Credentials::ROOT, fixture.oid, 0, &mut data).unwrap();
    assert_eq!((read.bytes, &data), (4, b"data"));
}

#[test]
fn who_waits_is_called_when_the_lock_is_free() {
    let fixture = Fixture::new("", OK);
    let (mut client, mut other) = (fixture.client(), fixture.client());
    assert_eq!(client.ask(LOCK, owned(1)), OK);
    let wanted = Range { offset: 5, length: 6, blocks: true, ..owned(2) };
    assert_eq!(other.ask(LOCK, wanted), BLOCKED);
    assert_eq!(other.ask(LOCK, wanted), BLOCKED, "it is asked again, as clients do");
    assert!(fixture.calls.try_recv().is_err());
    assert_eq!(client.ask(UNLOCK, owned(1)), OK);
    let (procedure, args) = fixture.calls.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(procedure, GRANTED);
    assert_eq!(args, Client::args(GRANTED, &fixture.handle, wanted));
    assert_eq!(client.ask(LOCK, Range { length: 6, ..owned(1) }), DENIED);
    assert_eq!(other.ask(UNLOCK, wanted), OK);
    assert_eq!(client.ask(LOCK, owned(1)), OK);
    assert!(fixture.calls.try_recv().is_err(), "it was called once");
}

/// Asks until the answer is this.
fn eventually(client: &mut Client<'_>, procedure: u32, range: Range, expected: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.ask(procedure, range) != expected {
        assert!(Instant::now() < deadline, "{procedure} is never answered with {expected}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_lock_that_its_client_does_not_want_is_given_back() {
    let fixture = Fixture::new("", DENIED);
    let (mut client, mut other) = (fixture.client(), fixture.client());
    assert_eq!(client.ask(LOCK, owned(1)), OK);
    assert_eq!(other.ask(LOCK, Range { blocks: true, ..owned(2) }), BLOCKED);
    assert_eq!(client.ask(UNLOCK, owned(1)), OK);
    fixture.calls.recv_timeout(Duration::from_secs(10)).unwrap();
    eventually(&mut client, LOCK, owned(1), OK);
}

#[test]
fn a_lock_that_is_cancelled_is_not_waited_for() {
    let fixture = Fixture::new("", OK);
    let mut client = fixture.client();
    assert_eq!(client.ask(LOCK, owned(1)), OK);
    let wanted = Range { blocks: true, ..owned(2) };
    assert_eq!(client.ask(CANCEL, wanted), DENIED, "nobody waits");
    assert_eq!(client.ask(LOCK, wanted), BLOCKED);
    assert_eq!(client.ask(CANCEL, wanted), OK);
    assert_eq!(client.ask(UNLOCK, owned(1)), OK);
    eventually(&mut client, LOCK, owned(3), OK);
    std::thread::sleep(Duration::from_millis(700));
    assert!(fixture.calls.try_recv().is_err(), "a cancelled lock is offered");
}

#[test]
fn owners_that_would_wait_for_each_other_are_told() {
    let fixture = Fixture::new("", OK);
    let mut client = fixture.client();
    let (low, high) = ((0, 1), (1, 1));
    let at = |svid, (offset, length)| Range { offset, length, blocks: true, ..owned(svid) };
    assert_eq!(client.ask(LOCK, at(1, low)), OK);
    assert_eq!(client.ask(LOCK, at(2, high)), OK);
    assert_eq!(client.ask(LOCK, at(1, high)), BLOCKED);
    assert_eq!(client.ask(LOCK, at(2, low)), DEADLOCK);
    assert_eq!(client.ask(UNLOCK, at(2, high)), OK);
    let (procedure, _) = fixture.calls.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(procedure, GRANTED);
}

#[test]
fn a_client_that_was_started_anew_has_no_locks() {
    let fixture = Fixture::new("", OK);
    for (program, procedure) in [(NLM, FREE_ALL), (NSM, 6)] {
        let mut client = fixture.client();
        assert_eq!(client.ask(LOCK, Range { length: 9, ..owned(1) }), OK);
        assert_eq!(client.ask(NM_LOCK, Range { offset: 20, length: 9, ..owned(2) }), OK);
        assert_eq!(client.ask(LOCK, Range { blocks: true, ..owned(3) }), BLOCKED);
        let notice = |name: &[u8]| {
            let mut args = Writer::default();
            args.opaque(name);
            args.u32(3);
            args.bytes().to_vec()
        };
        assert!(client.call(program, procedure, &notice(b"other")).is_empty());
        assert_eq!(client.ask(LOCK, owned(4)), DENIED, "another client was started anew");
        assert!(client.call(program, procedure, &notice(b"HOST.example")).is_empty());
        eventually(&mut client, LOCK, owned(4), OK);
        assert_eq!(client.ask(UNLOCK, owned(4)), OK);
        assert!(fixture.calls.try_recv().is_err(), "nobody waits any more");
    }
}

#[test]
fn results_of_message_procedures_come_by_a_call() {
    let fixture = Fixture::new("", OK);
    let mut client = fixture.client();
    let args = Client::args(LOCK_MSG, &fixture.handle, owned(1));
    assert!(client.call(NLM, LOCK_MSG, &args).is_empty());
    let (procedure, results) = fixture.calls.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!((procedure, &*results), (LOCK_RES, &b"\0\0\0\x04cook\0\0\0\0"[..]));
    assert_eq!(client.ask(LOCK, owned(2)), DENIED);
}

#[test]
fn only_who_may_use_the_file_may_lock_it() {
    let fixture = Fixture::new("", OK);
    let mut client = fixture.client();
    assert_eq!(client.ask(LOCK, Range { offset: 1 << 63, ..owned(1) }), TOO_BIG);
    client.uid = USER + 1;
    assert_eq!(client.ask(LOCK, owned(1)), DENIED, "it may not even read");
    client.uid = USER;
    assert_eq!(client.ask_of(LOCK, b"no handle", owned(1)), STALE);
    let export = HandleKey::derive(SECRET).open(&fixture.handle).unwrap().export;
    let sealed = |oid| HandleKey::derive(SECRET).seal(FileHandle { export, oid });
    assert_eq!(client.ask_of(LOCK, &sealed(fixture.fs.root()), owned(1)), FAILED);
    let gone =
        fixture.fs.make(&Credentials::ROOT, fixture.fs.root(), b"gone", 0o666, NewEntry::Regular);
    let gone = gone.unwrap().oid;
    fixture.fs.unlink(&Credentials::ROOT, fixture.fs.root(), b"gone").unwrap();
    assert_eq!(client.ask_of(LOCK, &sealed(gone), owned(1)), STALE);
    let mut share = Writer::default();
    for name in [b"cook", b"host"] {
        share.opaque(name);
    }
    share.opaque(&fixture.handle);
    share.opaque(b"owner");
    share.u32s(&[0, 0, 0]);
    let results = client.call(NLM, SHARE, share.bytes());
    assert_eq!(results[8..], [FAILED, 0].map(u32::to_be_bytes).concat());
    assert_eq!(fixture.gateway.metrics().snapshot().in_flight, 0);
}

#[test]
fn an_export_that_is_only_read_gives_no_exclusive_locks() {
    let fixture = Fixture::new("read_only = true", OK);
    let mut client = fixture.client();
    assert_eq!(client.ask(LOCK, owned(1)), READ_ONLY);
    assert_eq!(client.ask(LOCK, Range { is_exclusive: false, ..owned(1) }), OK);
    assert_eq!(client.ask(UNLOCK, owned(1)), OK);
}
