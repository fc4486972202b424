//! Appends beside writes of others, and appends that break off and come again.

use std::sync::atomic::{AtomicBool, Ordering};

use azekura_proto::attr::{AttrChange, FileKind, NewInode};
use azekura_proto::limits::CHUNK_BYTES_MIN;
use azekura_proto::message::{Answer, Reply, Request, RequestHead, Role, ShardRef};
use azekura_proto::{Geometry, ObjectClass, Oid, SessionId};

use crate::crash_tests::Pool;
use crate::data::append::Appending;
use crate::namespace::attributes::load_inode;
use crate::requests::attachment::Attachment;
use crate::requests::retry::Caller;
use crate::service::Service;

const CHUNK: u64 = CHUNK_BYTES_MIN as u64;
const RECORD: usize = 100;
/// Targets of the pool, so that a file has as many shards.
const SHARDS: u16 = 4;

struct Client<'p> {
    pool: &'p Pool,
    service: &'p Service,
    attachment: Attachment,
    session: SessionId,
}

impl<'p> Client<'p> {
    fn new(pool: &'p Pool, service: &'p Service, number: u8) -> Self {
        let session = SessionId([number; 16]);
        let attachment = service.attach(session, Role::Client, false).unwrap().0;
        Self { pool, service, attachment, session }
    }

    fn call(&self, oid: Oid, sequence: u64, request: &Request<'_>, bulk: &[u8]) -> Answer {
        self.send(oid, (sequence, false), request, bulk)
    }

    fn send(
        &self,
        oid: Oid,
        (sequence, resent): (u64, bool),
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Answer {
        let head = RequestHead {
            target: oid.home(),
            map_version: 1,
            slot: 0,
            sequence,
            resent,
            connection: 1,
        };
        self.attachment.call(&head, request, bulk).0
    }

    fn create(&self, name: &[u8]) -> Oid {
        let target = self.service.node().entry_target(self.pool.root, name);
        let inode = NewInode {
            kind: FileKind::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            symlink_text: Vec::new(),
            class: ObjectClass::SX,
            chunk_bytes: CHUNK as u32,
            inheritance: None,
        };
        let request = Request::Create { dir: self.pool.root, name, inode, open: true };
        let head = RequestHead {
            target,
            map_version: 1,
            slot: 1,
            sequence: 1,
            resent: false,
            connection: 1,
        };
        match self.attachment.call(&head, &request, &[]).0.unwrap() {
            Reply::Created(attr) => attr.oid,
            other => panic!("{other:?}"),
        }
    }

    /// A write at a place of the file that lies within one chunk, as a client makes it.
    fn write(&self, oid: Oid, offset: u64, bytes: &[u8]) {
        let geometry = Geometry::new(CHUNK as u32, SHARDS);
        if !geometry.is_within_first_chunk(offset + bytes.len() as u64) {
            self.call(oid, 0, &Request::SetStriped { oid }, &[]).unwrap();
        }
        let (chunk, within) = (offset / CHUNK, offset % CHUNK);
        let shard = (chunk % u64::from(SHARDS)) as u16;
        let data = ShardRef { oid, shard, is_file: true };
        let request = Request::Write { data, offset: chunk / u64::from(SHARDS) * CHUNK + within };
        let target = self.service.node().shard_target(oid, shard);
        let head = RequestHead {
            target,
            map_version: 1,
            slot: 0,
            sequence: 0,
            resent: false,
            connection: 1,
        };
        assert_eq!(self.attachment.call(&head, &request, bytes).0, Ok(Reply::Done));
    }

    fn append(&self, oid: Oid, sequence: u64, resent: bool, bytes: &[u8]) -> u64 {
        match self.send(oid, (sequence, resent), &Request::Append { oid }, bytes) {
            Ok(Reply::Appended { offset }) => offset,
            other => panic!("{other:?}"),
        }
    }

    fn set_size(&self, oid: Oid, size: u64) {
        let change = AttrChange { size: Some(size), ..AttrChange::default() };
        self.call(oid, 0, &Request::SetAttr { oid, change }, &[]).unwrap();
    }

    fn size(&self, oid: Oid) -> u64 {
        match self.call(oid, 0, &Request::GetAttr { oid }, &[]) {
            Ok(Reply::Attr(attr)) => attr.size,
            other => panic!("{other:?}"),
        }
    }

    /// All data of the file.
    fn read(&self, oid: Oid) -> Vec<u8> {
        let node = self.service.node();
        let mut data = vec![0; self.size(oid) as usize];
        for piece in node.layout(oid, CHUNK as u32).pieces(0, data.len() as u64, u64::MAX) {
            let store = &node.local(piece.target).unwrap().store;
            if let Some(file) = store.shard(oid, piece.data.shard).unwrap() {
                file.read_at(&mut data[piece.within(0)], piece.local_offset).unwrap();
            }
        }
        data
    }

    /// Puts the place of an append on record, and stops there.
    fn break_off_append(&self, oid: Oid, sequence: u64, bytes: &[u8]) {
        let node = self.service.node();
        let target = node.local_home(oid).unwrap();
        let caller =
            Caller { session: self.session, slot: 0, sequence, resent: false, created: None };
        let append = Appending { node: &node, target, caller: &caller, oid, data: bytes };
        append.record_place(&load_inode(target, oid).unwrap(), self.size(oid)).unwrap();
    }
}

/// Somebody appends while somebody else writes a little behind the end: nobody's bytes are lost.
fn append_beside_writes(first_bytes: usize, rounds: u64) {
    let pool = Pool::new();
    let service = pool.service();
    let (appender, writer) = (Client::new(&pool, &service, 1), Client::new(&pool, &service, 2));
    let oid = appender.create(b"file");
    if first_bytes > 0 {
        appender.append(oid, 1, false, &vec![9; first_bytes]);
    }
    let is_over = AtomicBool::new(false);
    let (places, written) = std::thread::scope(|scope| {
        let appends = scope.spawn(|| {
            let given: Vec<u64> = (0..rounds)
                .map(|round| appender.append(oid, 2 + round, false, &[1; RECORD]))
                .collect();
            is_over.store(true, Ordering::Relaxed);
            given
        });
        let mut written = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let offset = writer.size(oid) + 7;
            // Within one chunk.
            if offset / CHUNK == (offset + 9) / CHUNK {
                writer.write(oid, offset, &[2; 10]);
                written.push(offset);
            }
        }
        (appends.join().unwrap(), written)
    });
    let data = appender.read(oid);
    for offset in &written {
        // What it was told is the end may lie in an append that was under way then.
        let is_inside = |place: &u64| place < &(offset + 10) && offset < &(place + RECORD as u64);
        let at = *offset as usize;
        assert!(at + 10 <= data.len(), "written at {offset}, and cut off");
        let is_there = data[at..at + 10] == [2; 10];
        assert!(is_there || places.iter().any(is_inside), "lost at {offset}");
    }
    for place in places {
        let record = &data[place as usize..place as usize + RECORD];
        assert!(record.iter().all(|byte| *byte > 0), "a hole in what was appended at {place}");
    }
}

#[test]
fn an_append_cuts_off_nothing_that_others_have_written() {
    append_beside_writes(CHUNK as usize + 5, 300);
}

#[test]
fn an_append_that_broke_off_is_written_where_its_place_is() {
    let pool = Pool::new();
    let service = pool.service();
    let client = Client::new(&pool, &service, 1);
    let oid = client.create(b"file");
    client.append(oid, 1, false, b"abc");
    client.break_off_append(oid, 2, b"record");
    drop(client);
    drop(service);
    let service = pool.service();
    let (client, other) = (Client::new(&pool, &service, 1), Client::new(&pool, &service, 2));
    other.append(oid, 1, false, b"x");
    assert_eq!(client.append(oid, 2, true, b"record"), 3);
    assert_eq!(client.read(oid), b"abcrecordx");
}

#[test]
fn an_append_that_broke_off_is_written_though_the_file_became_longer() {
    let pool = Pool::new();
    let service = pool.service();
    let client = Client::new(&pool, &service, 1);
    let oid = client.create(b"file");
    client.append(oid, 1, false, b"abc");
    client.break_off_append(oid, 2, b"record");
    drop(client);
    drop(service);
    let service = pool.service();
    let (client, other) = (Client::new(&pool, &service, 1), Client::new(&pool, &service, 2));
    other.set_size(oid, 20);
    assert_eq!(client.append(oid, 2, true, b"record"), 3);
    assert_eq!(client.read(oid), b"abcrecord\0\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn an_append_that_broke_off_takes_a_new_place_when_the_file_was_cut() {
    let pool = Pool::new();
    let service = pool.service();
    let client = Client::new(&pool, &service, 1);
    let oid = client.create(b"file");
    client.append(oid, 1, false, b"abc");
    client.break_off_append(oid, 2, b"record");
    client.set_size(oid, 2);
    let other = Client::new(&pool, &service, 2);
    other.append(oid, 1, false, b"xyz");
    assert_eq!(client.append(oid, 2, true, b"record"), 5);
    assert_eq!(client.read(oid), b"abxyzrecord");
}

#[test]
fn an_append_that_was_done_is_not_done_again() {
    let pool = Pool::new();
    let service = pool.service();
    let client = Client::new(&pool, &service, 1);
    let oid = client.create(b"file");
    client.append(oid, 1, false, b"abc");
    drop(client);
    drop(service);
    let service = pool.service();
    let (client, other) = (Client::new(&pool, &service, 1), Client::new(&pool, &service, 2));
    other.write(oid, 1, b"X");
    assert_eq!(client.append(oid, 1, true, b"abc"), 0);
    assert_eq!(client.read(oid), b"aXc");
    client.set_size(oid, 0);
    assert_eq!(client.append(oid, 1, true, b"abc"), 0);
    assert_eq!(client.read(oid), b"");
}
