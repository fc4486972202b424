//! An engine called in the same process: what a connection gets, without a socket.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use azekura_proto::attr::{AttrChange, DirectoryGuard, FileGuard, FileKind, NewInode};
use azekura_proto::message::{Answer, Reply, Request, RequestHead, Role, ShardRef, XattrMode};
use azekura_proto::{
    Attr, EngineId, ObjectClass, Oid, PoolId, PoolMap, SessionId, Status, TargetId,
};

use crate::crash_tests::Pool;
use crate::requests::attachment::Attachment;
use crate::requests::bulk::{BulkIn, BulkOut};
use crate::service::Service;

const SESSION: SessionId = SessionId([7; 16]);

pub(crate) fn attach(service: &Service) -> Attachment {
    service.attach(SESSION, Role::Client, false).unwrap().0
}

pub(crate) fn head(target: TargetId, sequence: u64) -> RequestHead {
    RequestHead { target, map_version: 1, slot: 0, sequence, resent: false, connection: 0 }
}

fn new_inode() -> NewInode {
    NewInode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        symlink_text: Vec::new(),
        class: ObjectClass::S1,
        chunk_bytes: 1 << 20,
        inheritance: None,
    }
}

pub(crate) fn create(
    (pool, service): (&Pool, &Service),
    client: &Attachment,
    name: &[u8],
    sequence: u64,
) -> Oid {
    let target = service.node().entry_target(pool.root, name);
    let request = Request::Create { dir: pool.root, name, inode: new_inode(), open: true };
    match client.call(&head(target, sequence), &request, &[]).0.unwrap() {
        Reply::Created(attr) => attr.oid,
        other => panic!("{other:?}"),
    }
}

fn read(client: &Attachment, data: ShardRef, offset: u64, bytes: u32) -> (Answer, Vec<u8>) {
    client.call(&head(data.oid.home(), 0), &Request::Read { data, offset, bytes }, &[])
}

#[test]
fn what_is_written_is_read_as_bytes_or_as_a_part_of_a_file() {
    let pool = Pool::new();
    let service = pool.service();
    let mut client = attach(&service);
    let oid = create((&pool, &service), &client, b"file", 1);
    let data = ShardRef { oid, shard: 0, is_file: true };
    assert_eq!(read(&client, data, 0, 10), (Ok(Reply::Data { bytes: 0, striped: false }), vec![]));
    let written: Vec<u8> = (0..600_000u32).map(|i| (i % 251) as u8).collect();
    let (whole, streamed) = written.split_at(300_000);
    let write = Request::Write { data, offset: 0 };
    assert_eq!(client.call(&head(oid.home(), 0), &write, whole).0, Ok(Reply::Done));
    // The other half comes in pieces.
    let mut rest = streamed;
    let mut take = |piece: &mut [u8]| io::Read::read_exact(&mut rest, piece);
    let bulk = BulkIn::Stream { bytes: streamed.len() as u32, read: &mut take };
    let write = Request::Write { data, offset: whole.len() as u64 };
    let mut buffer = Vec::new();
    let response = client.serve(&head(oid.home(), 0), &write, bulk, &mut buffer).unwrap();
    assert_eq!(response.answer, Some(Ok(Reply::Done)));
    for (offset, bytes) in [(5, 100), (1, 500_000), (599_990, 100), (700_000, 10), (0, 700_000)] {
        let request = Request::Read { data, offset, bytes };
        let none = BulkIn::Bytes(&[]);
        let response = client.serve(&head(oid.home(), 0), &request, none, &mut buffer).unwrap();
        let got = match response.bulk {
            BulkOut::None | BulkOut::Descriptor(_) => Vec::new(),
            BulkOut::Bytes(data) => data.to_vec(),
            BulkOut::File(range) => range.read().unwrap(),
        };
        let start = written.len().min(offset as usize);
        let end = written.len().min(offset as usize + bytes as usize);
        assert!(got == written[start..end], "{bytes} bytes at {offset}");
        let expected = Reply::Data { bytes: (end - start) as u32, striped: false };
        assert_eq!(response.answer, Some(Ok(expected)));
        assert_eq!(read(&client, data, offset, bytes).1, got);
    }
}

#[test]
fn data_that_break_off_are_answered_to_nobody() {
    let pool = Pool::new();
    let service = pool.service();
    let mut client = attach(&service);
    let oid = create((&pool, &service), &client, b"file", 1);
    let data = ShardRef { oid, shard: 0, is_file: true };
    for request in [Request::Write { data, offset: 0 }, Request::Append { oid }] {
        let mut fail = |_: &mut [u8]| Err(io::ErrorKind::UnexpectedEof.into());
        let bulk = BulkIn::Stream { bytes: 10, read: &mut fail };
        let mut buffer = Vec::new();
        assert!(client.serve(&head(oid.home(), 2), &request, bulk, &mut buffer).is_err());
    }
    assert_eq!(read(&client, data, 0, 10).1, b"");
    // The slot was not entered: the same number is a new request.
    let append = client.call(&head(oid.home(), 2), &Request::Append { oid }, b"0123456789").0;
    assert_eq!(append, Ok(Reply::Appended { offset: 0 }));
}

/// The attributes that an answer has.
fn attr_of(answer: Answer) -> Attr {
    match answer.unwrap() {
        Reply::Attr(attr) | Reply::Created(attr) => *attr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_guarded_change_that_comes_again_meets_its_own_work_and_no_condition() {
    let pool = Pool::new();
    let service = pool.service();
    let client = attach(&service);
    let oid = create((&pool, &service), &client, b"file", 1);
    let guard = FileGuard { mode: 0o644, uid: 0, gid: 0, chunk_bytes: 1 << 20, has_xattrs: false };
    let change = AttrChange { mode: Some(0o600), uid: Some(5), ..AttrChange::default() };
    let request = Request::SetAttrGuarded { oid, change, guard };
    let ask = |sequence, resent| {
        let head = RequestHead { resent, ..head(oid.home(), sequence) };
        client.call(&head, &request, &[]).0
    };
    for resent in [false, true] {
        let attr = attr_of(ask(2, resent));
        assert_eq!((attr.mode, attr.uid), (0o600, 5));
    }
    assert_eq!(ask(3, false), Err(Status::ConditionFailed), "a new request");
    let chunks = AttrChange { chunk_bytes: Some(4096), ..AttrChange::default() };
    let request = Request::SetAttrGuarded { oid, change: chunks, guard };
    assert_eq!(client.call(&head(oid.home(), 4), &request, &[]).0, Err(Status::Invalid));
}

#[test]
fn a_guarded_change_of_length_cuts_nothing_of_a_file_that_is_not_as_it_was() {
    let pool = Pool::new();
    let service = pool.service();
    let client = attach(&service);
    let oid = create((&pool, &service), &client, b"file", 1);
    let data = ShardRef { oid, shard: 0, is_file: true };
    let write = Request::Write { data, offset: 0 };
    client.call(&head(oid.home(), 2), &write, b"0123456789").0.unwrap();
    let guard = FileGuard { mode: 0o644, uid: 0, gid: 0, chunk_bytes: 1 << 20, has_xattrs: false };
    let change = AttrChange { size: Some(4), ..AttrChange::default() };
    let ask = |sequence, guard, resent| {
        let head = RequestHead { resent, ..head(oid.home(), sequence) };
        client.call(&head, &Request::SetAttrGuarded { oid, change: change.clone(), guard }, &[]).0
    };
    let other = FileGuard { uid: 5, ..guard };
    assert_eq!(ask(3, other, false), Err(Status::ConditionFailed));
    assert_eq!(read(&client, data, 0, 10).1, b"0123456789");
    for resent in [false, true] {
        assert_eq!(attr_of(ask(4, guard, resent)).size, 4);
    }
    assert_eq!(read(&client, data, 0, 10).1, b"0123");
}

#[test]
fn a_guarded_creation_is_made_once_and_only_in_a_directory_that_is_as_it_was() {
    let pool = Pool::new();
    let service = pool.service();
    let client = attach(&service);
    let (dir, home) = (pool.root, pool.root.home());
    let seen = attr_of(client.call(&head(home, 0), &Request::GetAttr { oid: dir }, &[]).0);
    let guard = DirectoryGuard::of(&seen);
    let inode = new_inode();
    let make = |name: &'static [u8], sequence, resent| {
        let target = service.node().entry_target(dir, name);
        let head = RequestHead { resent, ..head(target, sequence) };
        let inode = inode.clone();
        let request = Request::CreateGuarded { dir, name, inode, open: true, guard };
        client.call(&head, &request, &[]).0
    };
    let first = attr_of(make(b"one", 1, false));
    let change = AttrChange { mode: Some(0o700), ..AttrChange::default() };
    let request = Request::SetAttr { oid: dir, change };
    attr_of(client.call(&head(home, 0), &request, &[]).0);
    assert_eq!(attr_of(make(b"one", 1, true)).oid, first.oid);
    for (sequence, name) in [(2, &b"one"[..]), (3, b"two")] {
        assert_eq!(make(name, sequence, false), Err(Status::ConditionFailed));
    }
    let target = service.node().entry_target(dir, b"two");
    let look = Request::Lookup { dir, name: b"two" };
    assert_eq!(client.call(&head(target, 0), &look, &[]).0, Err(Status::NotFound));
}

#[test]
fn a_request_with_a_number_is_done_once() {
    let pool = Pool::new();
    let service = pool.service();
    let client = attach(&service);
    let oid = create((&pool, &service), &client, b"file", 1);
    assert_eq!(create((&pool, &service), &client, b"file", 1), oid);
    let append = |sequence| {
        let request = Request::Append { oid };
        client.call(&head(oid.home(), sequence), &request, b"abc").0
    };
    assert_eq!(append(2), Ok(Reply::Appended { offset: 0 }));
    assert_eq!(append(2), Ok(Reply::Appended { offset: 0 }));
    assert_eq!(append(3), Ok(Reply::Appended { offset: 3 }));
    // Also by the next run of the engine.
    drop((client, service));
    let service = pool.service();
    let client = attach(&service);
    let resent = RequestHead { resent: true, ..head(oid.home(), 3) };
    let again = client.call(&resent, &Request::Append { oid }, b"abc").0;
    assert_eq!(again, Ok(Reply::Appended { offset: 3 }));
}

#[test]
fn an_engine_takes_a_newer_map_of_its_pool_and_of_no_other() {
    let pool = Pool::new();
    let service = pool.service();
    let client = attach(&service);
    let told = |map: &PoolMap| {
        let head = RequestHead { map_version: 0, ..head(TargetId(0), 0) };
        client.call(&head, &Request::Adopt { map: map.clone(), engine: EngineId(0) }, &[]).0
    };
    let before = service.map();
    assert_eq!(told(&before), Ok(Reply::Done), "said twice");
    let mut moved = PoolMap { version: before.version + 1, ..before.clone() };
    moved.engines[0].addresses = vec!["elsewhere:7070".parse().unwrap()];
    assert_eq!(told(&moved), Ok(Reply::Done));
    assert_eq!(service.map(), moved);
    assert_eq!(told(&before), Err(Status::Invalid), "an older one");
    let other = PoolMap { pool: PoolId([9; 16]), version: 9, ..moved.clone() };
    assert_eq!(told(&other), Err(Status::Exists));
    drop((client, service));
    assert_eq!(pool.service().map(), moved, "also in the next run");
}

#[test]
fn what_is_refused_is_refused_before_it_is_looked_at() {
    let pool = Pool::new();
    let service = pool.service();
    let client = attach(&service);
    let old = RequestHead { map_version: 0, ..head(TargetId(0), 0) };
    assert_eq!(client.call(&old, &Request::Space, &[]).0, Err(Status::Refresh));
    assert!(client.call(&old, &Request::Map, &[]).0.is_ok(), "asked for without a map");
    let strange = head(TargetId(9), 0);
    assert_eq!(client.call(&strange, &Request::Space, &[]).0, Err(Status::WrongTarget));
    assert_eq!(service.report().sessions, 1);
    assert_eq!(client.call(&head(TargetId(0), 0), &Request::Goodbye, &[]).0, Ok(Reply::Done));
    assert_eq!(service.report().sessions, 0);
}

/// What came over which connection of which slot.
fn over(slot: u16, connection: u32, target: TargetId) -> RequestHead {
    RequestHead { slot, connection, ..head(target, 0) }
}

#[test]
fn a_write_of_a_given_up_connection_does_not_undo_what_was_answered_since() {
    let pool = Pool::new();
    let service = pool.service();
    let client = attach(&service);
    let oid = create((&pool, &service), &client, b"file", 1);
    let (data, home) = (ShardRef { oid, shard: 0, is_file: true }, oid.home());
    let write =
        |head: RequestHead, bytes| client.call(&head, &Request::Write { data, offset: 0 }, bytes).0;
    assert_eq!(write(over(0, 1, home), b"first"), Ok(Reply::Done));
    // Another slot goes on, once the engine knows that the connection was given up.
    let fence = Request::Fence { slots: vec![(0, 1)] };
    assert_eq!(client.call(&over(1, 1, home), &fence, &[]).0, Ok(Reply::Done));
    assert_eq!(write(over(1, 1, home), b"since"), Ok(Reply::Done));
    assert!(write(over(0, 1, home), b"late!").is_err());
    // The slot itself goes on over its next connection.
    assert_eq!(write(over(0, 2, home), b"again"), Ok(Reply::Done));
    assert!(write(over(0, 1, home), b"late!").is_err());
    assert_eq!(read(&client, data, 0, 10).1, b"again");
}

#[test]
fn a_write_that_is_still_coming_in_ends_when_its_connection_is_given_up() {
    let pool = Pool::new();
    let service = pool.service();
    let (mut old, new) = (attach(&service), attach(&service));
    let oid = create((&pool, &service), &new, b"file", 1);
    let (data, home) = (ShardRef { oid, shard: 0, is_file: true }, oid.home());
    let fence = Request::Fence { slots: vec![(0, 1)] };
    std::thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        // Its client goes on over another slot, and is answered when the write has ended.
        let (told, is_told) = mpsc::channel();
        scope.spawn(move || {
            has_begun.recv().unwrap();
            let ask = || new.call(&over(1, 1, home), &fence, &[]).0;
            // In virtual time no wait is long.
            let answer = std::iter::repeat_with(ask).find(|answer| *answer != Err(Status::Busy));
            told.send(answer.unwrap()).unwrap();
        });
        let mut pieces = 0;
        let mut take = |piece: &mut [u8]| {
            piece.fill(1);
            pieces += 1;
            if pieces == 1 {
                begun.send(()).unwrap();
            }
            assert!(is_told.try_recv().is_err(), "a piece may be on its way to the disk");
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        };
        let bulk = BulkIn::Stream { bytes: 64 << 20, read: &mut take };
        let mut buffer = Vec::new();
        let write = Request::Write { data, offset: 0 };
        assert!(old.serve(&over(0, 1, home), &write, bulk, &mut buffer).is_err());
        assert_eq!(is_told.recv_timeout(Duration::from_secs(5)), Ok(Ok(Reply::Done)));
        assert!(pieces < 20, "it ends soon, but {pieces} pieces came");
    });
}

#[test]
fn a_number_below_the_last_one_of_its_slot_is_refused() {
    let pool = Pool::new();
    let service = pool.service();
    let client = attach(&service);
    let oid = create((&pool, &service), &client, b"file", 1);
    let set = |sequence, resent, value: &[u8]| {
        let mode = XattrMode::Set;
        let request = Request::SetXattr { oid, name: b"user.x", value, mode };
        client.call(&RequestHead { resent, ..head(oid.home(), sequence) }, &request, &[]).0
    };
    assert_eq!(set(3, false, b"newer"), Ok(Reply::Done));
    for resent in [false, true] {
        assert_eq!(set(2, resent, b"older"), Err(Status::Invalid));
    }
    let get = Request::GetXattr { oid, name: b"user.x" };
    let got = client.call(&head(oid.home(), 0), &get, &[]).0;
    assert_eq!(got, Ok(Reply::Bytes(b"newer".to_vec())));
}
