//! Writes the first corpus of each fuzz target: well-formed messages, so that a fuzzer starts
//! behind the first check and not in front of it. `cargo run --example seeds -- corpus`.

use std::path::{Path, PathBuf};

use azekura_nfs::handle::{ExportId, FileHandle, HandleKey};
use azekura_nfs::procedures::{MOUNT, NFS, NLM, NSM, PORTMAP, Program};
use azekura_nfs::xdr::Writer;
use azekura_proto::attr::{
    AttrChange, ChangeMark, DirectoryGuard, FileGuard, Inheritance, NewInode, SetTime,
};
use azekura_proto::frame::{HEAD_BYTES, encode_into};
use azekura_proto::message::{
    Allocation, Answer, Challenge, ChangeStream, Condition, Container, EarlyProof, Hello, Lock, LockKind, LockMode, MAGIC,
    Proof, Refusal, RenameMode, Reply, Request, RequestHead, Role, ShardRef, ShardStat, Ticket,
    VERSION, ValueUpdate, Welcome, XattrMode,
};
use azekura_proto::pool_map::EngineEntry;
use azekura_proto::staging::local::{Change, LOCAL_VERSION, LocalMap, LocalReply, LocalRequest};
use azekura_proto::staging::{Attributes, MapKind, NodeId};
use azekura_proto::transaction::{Action, Entry, TransactionId};
use azekura_proto::{
    Attr, ContainerId, EngineId, FileKind, Incarnation, ObjectClass, Oid, PoolId, PoolMap,
    SessionId, Status, TargetId, Timestamp,
};
use serde::Serialize;

struct Corpus {
    dir: PathBuf,
}

impl Corpus {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) {
        let dir = self.dir.join(target);
        std::fs::create_dir_all(&dir).expect("the corpus directory can be made");
        std::fs::write(dir.join(name), bytes).expect("the seed can be written");
    }
}

fn frame_of<T: Serialize>(message: &T) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(&mut out, message, 0).expect("a seed is small");
    out
}

fn body<T: Serialize>(message: &T) -> Vec<u8> {
    frame_of(message).split_off(HEAD_BYTES)
}

fn tagged(tag: u8, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.insert(0, tag);
    bytes
}

fn oid(serial: u64) -> Oid {
    Oid::new(ContainerId(1), ObjectClass::SX, TargetId(1), serial)
}

fn map() -> PoolMap {
    let addresses = ["unix:/run/a.sock", "tcp:[::1]:7000"].map(|text| text.parse().expect("valid"));
    let engines = vec![EngineEntry { addresses: addresses.to_vec() }; 3];
    PoolMap::deal(PoolId([1; 16]), "pool".to_owned(), engines, &[2, 2, 2])
}

fn attr() -> Attr {
    let time = Timestamp { secs: 1_700_000_000, nanos: 5 };
    Attr {
        oid: oid(9),
        kind: FileKind::Directory,
        mode: 0o755,
        uid: 1000,
        gid: 1000,
        nlink: 2,
        size: 0,
        blocks_512: 8,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        rdev: 0,
        chunk_bytes: 1 << 20,
        striped: false,
        has_xattrs: true,
        inheritance: Some(Inheritance::default()),
        parent: Some(oid(0)),
    }
}

fn new_inode() -> NewInode {
    NewInode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        symlink_text: b"to/there".to_vec(),
        class: ObjectClass::S2,
        chunk_bytes: 1 << 20,
        inheritance: None,
    }
}

fn requests() -> Vec<Request<'static>> {
    let data = ShardRef { oid: oid(1), shard: 1, is_file: true };
    let lock = Lock {
        kind: LockKind::Range,
        owner: 7,
        pid: 8,
        mode: LockMode::Exclusive,
        start: 0,
        end: u64::MAX,
    };
    let update = ValueUpdate {
        dkey: b"d",
        akey: b"a",
        value: Some(b"v"),
        condition: Condition::Equals(b"w"),
    };
    let guard = FileGuard { mode: 0o644, uid: 1, gid: 2, chunk_bytes: 1 << 20, has_xattrs: false };
    let change = AttrChange {
        mode: Some(0o600),
        size: Some(1 << 40),
        mtime: Some(SetTime::Now),
        ..AttrChange::default()
    };
    let entry = Entry { oid: oid(3), kind: FileKind::Regular };
    let id = TransactionId { coordinator: TargetId(1), number: 77 };
    let stream = ChangeStream { number: 5, sequence: 1 << 33, run: Incarnation(9) };
    vec![
        Request::Ping,
        Request::Claim { open: vec![oid(1), oid(2)], locks: vec![(oid(1), lock)] },
        Request::Adopt { map: map(), engine: EngineId(1) },
        Request::ContainerCreate { name: "c".to_owned(), inheritance: Inheritance::default() },
        Request::Lookup { dir: oid(0), name: b"name" },
        Request::Walk { dir: oid(0), path: b"some/path", with_dir: true },
        Request::ContainerWalk { name: "c", path: b"some/path" },
        Request::Time,
        Request::Relay { to: TargetId(3), stream, request: vec![12, 9, 200, 255] },
        Request::OnBehalf { client: SessionId([3; 16]), stream: Some(stream), request: Vec::new() },
        Request::OnBehalf { client: SessionId([4; 16]), stream: None, request: vec![7; 20] },
        Request::Create { dir: oid(0), name: b"new", inode: new_inode(), open: true },
        Request::Rename {
            from_dir: oid(0),
            from_name: b"a",
            to_dir: oid(4),
            to_name: b"b",
            mode: RenameMode::Exchange,
        },
        Request::Rename {
            from_dir: oid(0),
            from_name: b"a",
            to_dir: oid(4),
            to_name: b"b",
            mode: RenameMode::Whiteout(oid(9)),
        },
        Request::ReadDirectory { dir: oid(0), after: 3, page_bytes: 65_536, with_attrs: true },
        Request::SetAttrIf { oid: oid(1), change: change.clone(), ctime: Timestamp::default() },
        Request::CreateGuarded {
            dir: oid(0),
            name: b"new",
            inode: new_inode(),
            open: true,
            guard: DirectoryGuard::of(&attr()),
        },
        Request::CreateToWrite {
            dir: oid(0),
            name: b"new",
            inode: new_inode(),
            guard: Some(DirectoryGuard::of(&attr())),
        },
        Request::LeaseFile { oid: oid(1) },
        Request::OpenEntry { dir: oid(0), name: b"old", lease: true, bring_bytes: 4096 },
        Request::SetAttrGuarded { oid: oid(1), change: change.clone(), guard },
        Request::SetAttr { oid: oid(1), change },
        Request::LeaseRead { data },
        Request::LeaseWrite { data, instead_of: Some(1 << 40 | 7) },
        Request::WriteLeased { data, offset: 1 << 33, epoch: 1 << 40 | 8 },
        Request::ReleaseWrite { data, epoch: 1 << 40 | 8 },
        Request::ShardExtend { data, from: 7, to: 4096, token: 1 << 40 | 9 },
        Request::ShardDescriptor { data },
        Request::ShardWriteDescriptor { data, wait: true },
        Request::ReadFile { oid: oid(1), offset: 1 << 33, bytes: 4096 },
        Request::WriteFile { oid: oid(1), offset: 7, guard },
        Request::Fence { slots: vec![(3, 1), (255, 300)] },
        Request::ShardStat { data, asker: Some(SessionId([3; 16])) },
        Request::Release { oids: vec![oid(1), oid(2)] },
        Request::SetXattr { oid: oid(1), name: b"user.a", value: b"v", mode: XattrMode::Create },
        Request::Read { data, offset: 1 << 33, bytes: 1 << 20 },
        Request::Write { data, offset: 0 },
        Request::ShardAllocate { data, offset: 5, bytes: 6, what: Allocation::PunchHole },
        Request::ValueUpdate { oid: oid(1), updates: vec![update, update] },
        Request::LockAcquire { oid: oid(1), lock, wait: true },
        Request::Prepare {
            id,
            actions: vec![
                Action::InsertEntry { dir: oid(0), name: b"n".to_vec(), entry, replaces: None },
                Action::AddLinks { oid: oid(3), links: -1 },
            ],
        },
    ]
}

fn answers() -> Vec<Answer> {
    let stat = ShardStat {
        bytes: 1,
        blocks_512: 8,
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
    };
    let entry = Entry { oid: oid(3), kind: FileKind::Regular };
    vec![
        Ok(Reply::Done),
        Ok(Reply::Map(map())),
        Ok(Reply::Entry { entry, attr: Some(Box::new(attr())) }),
        Ok(Reply::Bytes(vec![1, 2, 3])),
        Ok(Reply::Shard(Some(stat))),
        Ok(Reply::Keys { keys: vec![vec![1], vec![2, 3]], end: true }),
        Err(Status::NoSpace),
        Ok(Reply::FileData { bytes: 4096, attr: Box::new(attr()) }),
        Ok(Reply::Written { before: Some(ChangeMark::of(&attr())), attr: Box::new(attr()) }),
        Ok(Reply::Opened {
            entry: Entry { oid: oid(1), kind: FileKind::Regular },
            attr: Some(Box::new(attr())),
            lease_ms: 1000,
            version: 1 << 40,
            others: vec![9],
            brought_bytes: Some(4096),
        }),
        Ok(Reply::Walked {
            dir: Some(Box::new(attr())),
            steps: vec![(Entry { oid: oid(1), kind: FileKind::Directory }, Some(Box::new(attr())))],
            is_absent: true,
        }),
        Ok(Reply::ContainerWalked {
            container: Container {
                id: ContainerId(1),
                name: "c".to_owned(),
                root: oid(0),
                inheritance: Inheritance::default(),
            },
            dir: None,
            steps: vec![(Entry { oid: oid(1), kind: FileKind::Regular }, None)],
            is_absent: false,
        }),
        Ok(Reply::CreatedToWrite {
            attr: Box::new(attr()),
            lease_ms: 2000,
            version: 1 << 40,
        }),
        Ok(Reply::Time(Timestamp { secs: 1_700_000_000, nanos: 999_999_999 })),
        Ok(Reply::FileLeased {
            lease_ms: 1000,
            version: 1 << 40,
            others: vec![1 << 41, 7],
            attr: Box::new(attr()),
        }),
    ]
}

fn head() -> RequestHead {
    RequestHead {
        target: TargetId(1),
        map_version: 1,
        slot: 3,
        sequence: 1 << 40,
        resent: true,
        connection: 2,
    }
}

fn messages(corpus: &Corpus) {
    let head = head();
    let mut stream = Vec::new();
    for request in requests() {
        corpus.put("request", request.name(), &body(&(head, &request)));
        stream.extend(frame_of(&(head, &request)));
    }
    corpus.put("frame", "requests", &stream);
    corpus.put("frame", "too_large", &[255; 8]);
    for (index, answer) in answers().iter().enumerate() {
        corpus.put("reply", &format!("{index:02}"), &body(answer));
    }
    corpus.put("pool_map", "three_engines", &body(&map()));
}

fn handshakes(corpus: &Corpus) {
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        pool: PoolId([1; 16]),
        session: SessionId([5; 16]),
        role: Role::Client,
        nonce: [9; 32],
        early: None,
    };
    let ticket = Ticket([4; 32]);
    let early = Hello { early: Some(EarlyProof { ticket, proof: [6; 32] }), ..hello.clone() };
    let challenge: Result<Challenge, Refusal> =
        Ok(Challenge { nonce: [1; 32], proof: [2; 32], ticket: Some(ticket) });
    let proof = Proof { proof: [3; 32] };
    let welcome: Result<Welcome, Refusal> = Ok(Welcome {
        engine: EngineId(0),
        incarnation: Incarnation(4),
        map_version: 1,
        fresh_session: true,
    });
    let refusal: Result<Welcome, Refusal> = Err(Refusal::Version { engine: 9 });
    corpus.put("handshake", "hello", &tagged(0, body(&hello)));
    corpus.put("handshake", "early", &tagged(0, body(&early)));
    corpus.put("handshake", "challenge", &tagged(1, body(&challenge)));
    corpus.put("handshake", "proof", &tagged(2, body(&proof)));
    corpus.put("handshake", "welcome", &tagged(3, body(&welcome)));
    corpus.put("handshake", "refusal", &tagged(3, body(&refusal)));
    let caller = [frame_of(&hello), frame_of(&proof)].concat();
    corpus.put("gate", "caller", &tagged(0, caller));
    let newer = Hello { version: VERSION + 1, ..hello.clone() };
    corpus.put("gate", "newer", &tagged(0, frame_of(&newer)));
    let elsewhere = Hello { pool: PoolId([8; 16]), ..hello };
    corpus.put("gate", "elsewhere", &tagged(0, frame_of(&elsewhere)));
    let engine = [frame_of(&challenge), frame_of(&welcome)].concat();
    corpus.put("gate", "engine", &tagged(1, engine.clone()));
    let ping = frame_of(&(head(), Request::Ping));
    corpus.put("gate", "early", &tagged(0, [frame_of(&early), ping, frame_of(&proof)].concat()));
    corpus.put("gate", "engine_of_early", &tagged(2, engine));
}

fn texts(corpus: &Corpus) {
    for (name, text) in [
        ("oid", "0000000100000000.3f00010000000009"),
        ("unix", "unix:/run/azekura/p.sock"),
        ("tcp", "tcp:[::1]:7000"),
        ("host", "localhost:7000"),
        ("class", "SX"),
        ("pool", "0123456789abcdef0123456789abcdef"),
    ] {
        corpus.put("text", name, text.as_bytes());
    }
    corpus.put("text", "oid_bytes", &oid(9).to_bytes());
}

/// A FUSE message: the kernel's 40-byte header, then its arguments.
fn fuse_message(opcode: u32, arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for number in [(40 + arguments.len()) as u32, opcode] {
        message.extend(number.to_ne_bytes());
    }
    for number in [7u64, 1] {
        message.extend(number.to_ne_bytes());
    }
    for number in [1000u32, 1000, 4242, 0] {
        message.extend(number.to_ne_bytes());
    }
    message.extend(arguments);
    message
}

fn fuse(corpus: &Corpus) {
    let numbers = |count: usize| (1..=count as u32).flat_map(u32::to_ne_bytes).collect::<Vec<_>>();
    // (name, opcode, 32-bit numbers in front, text behind)
    let messages: [(&str, u32, usize, &[u8]); 18] = [
        ("lookup", 1, 0, b"name\0"),
        ("forget", 2, 2, b""),
        ("getattr", 3, 4, b""),
        ("setattr", 4, 22, b""),
        ("symlink", 6, 0, b"name\0text\0"),
        ("mknod", 8, 4, b"name\0"),
        ("mkdir", 9, 2, b"name\0"),
        ("rename", 12, 2, b"old\0new\0"),
        ("link", 13, 2, b"name\0"),
        ("read", 15, 10, b""),
        ("write", 16, 10, b"data"),
        ("setxattr", 21, 2, b"user.a\0v"),
        ("init", 26, 16, b""),
        ("lock", 32, 12, b""),
        ("create", 35, 4, b"name\0"),
        ("batch_forget", 42, 6, b""),
        ("fallocate", 43, 8, b""),
        ("rename2", 45, 4, b"old\0new\0"),
    ];
    for (name, opcode, count, text) in messages {
        let arguments = [numbers(count), text.to_vec()].concat();
        corpus.put("fuse_request", name, &fuse_message(opcode, &arguments));
    }
}

fn stored(corpus: &Corpus) {
    let entry = Entry { oid: oid(3), kind: FileKind::Regular };
    // A bucket with one slot, as the engine writes it: slots, place, name, entry.
    corpus.put("stored", "bucket", &tagged(1, body(&vec![(2u8, b"name".to_vec(), entry)])));
    corpus.put("stored", "dir_shard", &tagged(2, body(&(3u64, 1u32, Timestamp::default()))));
    corpus.put("stored", "orphan", &tagged(3, vec![1]));
    let actions = vec![Action::SealShard { dir: oid(0) }, Action::LockTree { root: oid(0) }];
    corpus.put("stored", "actions", &tagged(4, body(&actions)));
    corpus.put("stored", "bucket_key", &tagged(5, [&oid(0).to_bytes()[..], &[1; 6]].concat()));
    corpus.put("stored", "transaction_key", &tagged(6, [&b"p\0\x01"[..], &[3; 8]].concat()));
    let inode = (
        (FileKind::Regular, 0o644u16, 0u32, 0u32, 1u32, 0u64),
        (1u32 << 20, false, true, Timestamp::default(), Timestamp::default()),
        (Timestamp::default(), Timestamp::default(), None::<Timestamp>, Vec::<u8>::new()),
        (None::<Inheritance>, None::<Oid>),
    );
    corpus.put("stored", "inode", &tagged(0, body(&inode)));
}

/// A sealed record with one change: key "Ikey", value "value". The checksum is mended by the target.
fn journal(corpus: &Corpus) {
    let mut record = vec![0; 8];
    record.extend(7u64.to_le_bytes());
    record.extend(9u64.to_le_bytes());
    record.extend(47u32.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record.extend(4u16.to_le_bytes());
    record.extend(5u32.to_le_bytes());
    record.extend(b"Ikeyvalue");
    corpus.put("journal_record", "change", &tagged(1, record.clone()));
    record.truncate(36);
    corpus.put("journal_record", "torn", &tagged(1, record));
}

/// A 64-bit program with these segments, which lie one after the other behind their headers.
fn elf(segments: &[(u32, &[u8])]) -> Vec<u8> {
    let data_at = 64 + segments.len() * 56;
    let mut file = vec![0; data_at];
    file[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    file[18..20].copy_from_slice(&62u16.to_le_bytes());
    file[32..40].copy_from_slice(&64u64.to_le_bytes());
    file[54..56].copy_from_slice(&56u16.to_le_bytes());
    file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    for (index, (kind, bytes)) in segments.iter().enumerate() {
        let header = 64 + index * 56;
        let at = (file.len() as u64).to_le_bytes();
        file[header..header + 4].copy_from_slice(&kind.to_le_bytes());
        // The offset in the file, and the address in memory: the same.
        file[header + 8..header + 16].copy_from_slice(&at);
        file[header + 16..header + 24].copy_from_slice(&at);
        file[header + 32..header + 40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        file.extend_from_slice(bytes);
    }
    file
}

fn executables(corpus: &Corpus) {
    corpus.put("executable", "script", b"#!/usr/bin/env -S A=b python3 -u\n");
    let interpreter: (u32, &[u8]) = (3, b"/lib64/ld-linux-x86-64.so.2\0");
    // The texts lie behind three headers.
    let texts: (u32, &[u8]) = (1, b"\0libc.so.6\0$ORIGIN/lib:/a\0");
    let entries = [(1u64, 1u64), (29, 11), (14, 1), (5, 64 + 3 * 56), (0, 0)];
    let dynamic: Vec<u8> = entries
        .iter()
        .flat_map(|(tag, value)| [tag, value])
        .flat_map(|n| n.to_le_bytes())
        .collect();
    corpus.put("executable", "dynamic", &elf(&[texts, (2, &dynamic), interpreter]));
    let note = [&4u32.to_le_bytes()[..], &4u32.to_le_bytes(), &4u32.to_le_bytes(), b"Go\0\0id=1"];
    corpus.put("executable", "go", &elf(&[interpreter, (4, &note.concat()), texts]));
    corpus.put("executable", "library", &elf(&[texts, (2, &dynamic), (4, b"torn")]));
}

const POOL_FILE: &str = r#"name = "pool"
pool = "01010101010101010101010101010101"
version = 1
secret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
targets = [0, 1, 0]

[[engines]]
addresses = ["unix:/run/azekura/p.sock", "tcp:127.0.0.1:7000"]

[[engines]]
addresses = ["tcp:127.0.0.1:7001"]
"#;

/// A call as AUTH_SYS, of user 0 or another, with what `args` writes.
fn nfs_call(
    program: &Program,
    procedure: u32,
    uid: u32,
    args: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    const AUTH_SYS: u32 = 1;
    let mut credential = Writer::default();
    credential.u32(0);
    credential.opaque(b"host");
    credential.u32s(&[uid, uid, 2, 10, 11]);
    let mut call = Writer::default();
    call.u32s(&[77, 0, 2, program.number, program.version, procedure, AUTH_SYS]);
    call.opaque(credential.bytes());
    call.u32s(&[0, 0]);
    args(&mut call);
    call.bytes().to_vec()
}

/// The handle of the root of the pool that the target `nfs_call` serves.
fn nfs_root() -> Vec<u8> {
    // The first container of a new pool with one target.
    let container = ContainerId(1);
    let oid = Oid::new(container, ObjectClass::SX, TargetId(0), 16);
    let export = ExportId::of(container, "/");
    HandleKey::derive(b"fuzz").seal(FileHandle { export, oid }).to_vec()
}

/// What every procedure takes: words, names in the root, handles.
enum Arg {
    Root,
    Name(&'static [u8]),
    Words(&'static [u32]),
}

fn nfs(corpus: &Corpus) {
    use Arg::{Name, Root, Words};
    // No mode, owner, size, times: nothing is set.
    const SET_NOTHING: Arg = Words(&[0; 6]);
    const LOCK_HEAD: [Arg; 2] = [Name(b"cook"), Words(&[1, 1])];
    let lock = || [Name(b"host"), Root, Name(b"1@host"), Words(&[1, 0, 5, 0, 10])];
    let nfs: [(u32, Vec<Arg>); 22] = [
        (0, vec![]),
        (1, vec![Root]),
        (2, vec![Root, Words(&[1, 0o755, 0, 0, 0, 0, 0, 0])]),
        (3, vec![Root, Name(b"file")]),
        (4, vec![Root, Words(&[0x3f])]),
        (5, vec![Root]),
        (6, vec![Root, Words(&[0, 0, 4096])]),
        (7, vec![Root, Words(&[0, 0, 4, 2]), Name(b"data")]),
        (8, vec![Root, Name(b"file"), Words(&[0]), SET_NOTHING]),
        (9, vec![Root, Name(b"dir"), SET_NOTHING]),
        (10, vec![Root, Name(b"link"), SET_NOTHING, Name(b"file")]),
        (11, vec![Root, Name(b"fifo"), Words(&[7]), SET_NOTHING]),
        (12, vec![Root, Name(b"file")]),
        (13, vec![Root, Name(b"dir")]),
        (14, vec![Root, Name(b"file"), Root, Name(b"other")]),
        (15, vec![Root, Root, Name(b"hard")]),
        (16, vec![Root, Words(&[0, 0, 0, 0, 4096])]),
        (17, vec![Root, Words(&[0, 0, 0, 0, 4096, 8192])]),
        (18, vec![Root]),
        (19, vec![Root]),
        (20, vec![Root]),
        (21, vec![Root, Words(&[0, 0, 0])]),
    ];
    for (procedure, args) in nfs {
        put_call(corpus, &NFS, procedure, &args);
    }
    let with_lock = |head: &[Arg], tail: &[u32]| {
        let mut message = Writer::default();
        head.iter().chain(&lock()).for_each(|arg| put_arg(&mut message, arg));
        message.u32s(tail);
        message.bytes().to_vec()
    };
    let locks = [
        (1, with_lock(&[Name(b"cook"), Words(&[1])], &[])),
        (2, with_lock(&LOCK_HEAD, &[0, 1])),
        (3, with_lock(&LOCK_HEAD, &[])),
        (4, with_lock(&[Name(b"cook")], &[])),
        (5, with_lock(&[Name(b"cook"), Words(&[1])], &[])),
        (7, with_lock(&LOCK_HEAD, &[0, 1])),
        (22, with_lock(&LOCK_HEAD, &[0, 1])),
    ];
    for (procedure, args) in locks {
        let call = nfs_call(&NLM, procedure, 0, |call| call.raw(&args));
        corpus.put("nfs_call", &format!("nlm_{procedure}"), &call);
    }
    let share = [Name(b"cook"), Name(b"host"), Root, Name(b"owner"), Words(&[1, 1, 0])];
    put_call(corpus, &NLM, 20, &share);
    put_call(corpus, &NLM, 23, &[Name(b"host"), Words(&[3])]);
    put_call(corpus, &NSM, 6, &[Name(b"host"), Words(&[3])]);
    for (procedure, args) in
        [(1, vec![Name(b"/dir")]), (2, vec![]), (3, vec![Name(b"/")]), (5, vec![])]
    {
        put_call(corpus, &MOUNT, procedure, &args);
    }
    put_call(corpus, &PORTMAP, 3, &[Words(&[100_021, 4, 6, 0])]);
    put_call(corpus, &PORTMAP, 4, &[]);
    let call = nfs_call(&NFS, 1, 0, |call| call.opaque(&nfs_root()));
    let mut record = Writer::default();
    record.u32(8);
    record.raw(&call[..8]);
    record.u32(1 << 31 | (call.len() - 8) as u32);
    record.raw(&call[8..]);
    corpus.put("nfs_call", "record", record.bytes());
    let mut looks = Writer::default();
    for _ in 0..3 {
        looks.u32(1 << 31 | call.len() as u32);
        looks.raw(&call);
    }
    corpus.put("nfs_call", "records", looks.bytes());
}

fn put_call(corpus: &Corpus, program: &Program, procedure: u32, args: &[Arg]) {
    let call = nfs_call(program, procedure, 1000, |call| {
        args.iter().for_each(|arg| put_arg(call, arg));
    });
    corpus.put("nfs_call", &format!("{}_{procedure}", program.name), &call);
}

fn put_arg(message: &mut Writer, arg: &Arg) {
    match arg {
        Arg::Root => message.opaque(&nfs_root()),
        Arg::Name(name) => message.opaque(name),
        Arg::Words(words) => message.u32s(words),
    }
}

/// As the target has them: the tag, then a message, or names of a home and a path over them.
fn staging(corpus: &Corpus) {
    let path = || b"/data/in/\xff\n".to_vec();
    let mut requests = vec![
        LocalRequest::Greet { version: LOCAL_VERSION },
        LocalRequest::Read { path: path(), follow: true },
        LocalRequest::Open { path: path(), follow: true },
        LocalRequest::Look { path: path(), follow: false },
        LocalRequest::List { path: path() },
        LocalRequest::Prefetch { paths: vec![path(), path()] },
    ];
    let write = Change::Write { follow: true };
    let changes = [Change::Create, write, Change::Replace, Change::Remove];
    requests.extend(changes.map(|change| LocalRequest::Change { path: path(), change }));
    for (index, request) in requests.iter().enumerate() {
        corpus.put("staging", &format!("request_{index}"), &tagged(0, body(request)));
    }
    let (dir, tree, lists) = (path(), b"/cache/tree/0".to_vec(), b"/cache/lists/0".to_vec());
    let attributes = Attributes {
        kind: FileKind::Symlink,
        mode: 0o777,
        size: 3,
        mtime: Timestamp { secs: -1, nanos: 5 },
        link: b"a/b".to_vec(),
    };
    let replies = [
        LocalReply::Welcome {
            node: NodeId(3),
            maps: vec![LocalMap { dir, kind: MapKind::ReadOnly, tree, lists }],
            arriving: Some(77),
        },
        LocalReply::Local(path()),
        LocalReply::Outside(path()),
        LocalReply::Found {
            attributes: attributes.clone(),
            inode: 1 << 63,
            kind: MapKind::ReadWrite,
        },
        LocalReply::Failed(2),
        LocalReply::Done,
    ];
    for (index, reply) in replies.iter().enumerate() {
        corpus.put("staging", &format!("reply_{index}"), &tagged(1, body(reply)));
    }
    // A page of a listing, a content, and what is said when files are fetched: numbers of variants, then fields.
    let page: Result<Vec<(&[u8], Attributes)>, i32> = Ok(vec![(b"name", attributes.clone())]);
    corpus.put("staging", "listing", &tagged(2, body(&(1u8, (0u16, b"dir".to_vec()), page, true))));
    let part = ((0u16, b"dir/name".to_vec()), attributes);
    let content = (7u64, 65_536u32, vec![part.clone(), part]);
    corpus.put("staging", "take", &tagged(2, body(&(2u8, content, 0u8))));
    corpus.put("staging", "want", &tagged(3, body(&(2u8, vec![((0u16, path()), 9u64)]))));
    corpus.put("staging", "control", &tagged(4, body(&(0u8, vec![(1u16, "n1:99")], 7000u16))));
    corpus.put("staging", "fetch", &tagged(5, body(&(0u8, 7u64, 3u32))));
    corpus.put("staging", "piece", &tagged(6, body(&(0u8, 7u64, 3u32, u64::MAX))));
    let home: [(u16, &str, u8, &str); 9] = [
        (0, "f", 0, ""),
        (0, "d", 1, ""),
        (0, "d/up", 2, "../f"),
        (0, "l", 2, "d/"),
        (0, "loop", 2, "loop"),
        (0, "away", 2, "/azekura-fuzz-nowhere/b/../c"),
        (1, "", 1, ""),
        (1, "r", 2, "/azekura-fuzz-nowhere/a/l/up"),
        (1, "p", 3, ""),
    ];
    for (index, path) in
        ["/a/l/up", "/b/r", "/a/loop", "/a/away", "/a/d/../../b/./p/"].iter().enumerate()
    {
        let way =
            (path.as_bytes().to_vec(), true, ["a", "b"].map(str::as_bytes).to_vec(), home.to_vec());
        corpus.put("staging", &format!("way_{index}"), &tagged(7, body(&way)));
    }
}

fn main() {
    let dir = std::env::args_os().nth(1).expect("usage: seeds DIR");
    let corpus = Corpus { dir: Path::new(&dir).to_owned() };
    messages(&corpus);
    handshakes(&corpus);
    texts(&corpus);
    fuse(&corpus);
    stored(&corpus);
    journal(&corpus);
    executables(&corpus);
    nfs(&corpus);
    staging(&corpus);
    corpus.put("pool_file", "two_engines", POOL_FILE.as_bytes());
}
