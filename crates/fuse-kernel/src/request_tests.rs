//! Tests of `request`: every operation from bytes built by hand, and bytes that lie.

use proptest::prelude::*;

use crate::abi::InHeader;
use crate::abi::opcode as op;
use crate::operation::{CopyRange, Lock, LockKind, Operation, ReadDir, SetAttr, SetTime, Write};
use crate::request::{Forgets, Message, ParseError, parse, parse_ring};
use zerocopy::FromBytes;

/// Builds messages field by field.
#[derive(Clone, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn text(mut self, text: &[u8]) -> Self {
        self.0.extend(text);
        self.0.push(0);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn args() -> Bytes {
    Bytes::default()
}

fn with_extensions(code: u32, arguments: &Bytes, extensions: &[u8]) -> Vec<u8> {
    let length = 40 + arguments.0.len() + extensions.len();
    Bytes::default()
        .u32(length as u32)
        .u32(code)
        .u64(77)
        .u64(5)
        .u32(1000)
        .u32(100)
        .u32(4242)
        .u16((extensions.len() / 8) as u16)
        .u16(0)
        .raw(&arguments.0)
        .raw(extensions)
        .0
}

fn message(code: u32, arguments: &Bytes) -> Vec<u8> {
    with_extensions(code, arguments, &[])
}

/// The operation in a message, after a look at the header.
fn operation(bytes: &[u8]) -> Operation<'_> {
    match parse(bytes) {
        Ok(Message::Request(request)) => {
            let header = request.header;
            assert_eq!((header.unique, header.node, header.pid), (77, 5, 4242));
            assert_eq!((header.uid, header.gid), (1000, 100));
            request.operation
        }
        other => panic!("not a request: {other:?}"),
    }
}

/// One good message of every operation, with what has to come out.
fn samples() -> Vec<(u32, Bytes, Operation<'static>)> {
    let mut all = samples_of_names();
    all.extend(samples_of_files());
    all.extend(samples_of_attributes());
    all
}

fn samples_of_names() -> Vec<(u32, Bytes, Operation<'static>)> {
    vec![
        (op::LOOKUP, args().text(b"n"), Operation::Lookup { name: b"n" }),
        (op::READLINK, args(), Operation::Readlink),
        (
            op::SYMLINK,
            args().text(b"n").text(b"to"),
            Operation::Symlink { name: b"n", target: b"to" },
        ),
        (
            op::MKNOD,
            args().u32(0o10_644).u32(3).u32(0o22).u32(0).text(b"n"),
            Operation::Mknod { name: b"n", mode: 0o10_644, rdev: 3, umask: 0o22 },
        ),
        (
            op::MKDIR,
            args().u32(0o755).u32(0o22).text(b"n"),
            Operation::Mkdir { name: b"n", mode: 0o755, umask: 0o22 },
        ),
        (op::UNLINK, args().text(b"n"), Operation::Unlink { name: b"n" }),
        (op::RMDIR, args().text(b"n"), Operation::Rmdir { name: b"n" }),
        (
            op::RENAME,
            args().u64(9).text(b"a").text(b"b"),
            Operation::Rename { name: b"a", new_parent: 9, new_name: b"b", flags: 0 },
        ),
        (
            op::RENAME2,
            args().u64(9).u32(2).u32(0).text(b"a").text(b"b"),
            Operation::Rename { name: b"a", new_parent: 9, new_name: b"b", flags: 2 },
        ),
        (op::LINK, args().u64(8).text(b"n"), Operation::Link { existing: 8, new_name: b"n" }),
        (
            op::CREATE,
            args().u32(0o102).u32(0o644).u32(0o22).u32(1).text(b"n"),
            Operation::Create {
                name: b"n",
                flags: 0o102,
                mode: 0o644,
                umask: 0o22,
                kill_suidgid: true,
            },
        ),
        (
            op::TMPFILE,
            args().u32(2).u32(0o600).u32(0o77).u32(0).text(b"/"),
            Operation::Tmpfile { flags: 2, mode: 0o600, umask: 0o77 },
        ),
        (op::OPENDIR, args().u32(1).u32(0), Operation::Opendir { flags: 1 }),
        (
            op::READDIR,
            args().u64(3).u64(10).u32(4096).u32(0).u64(0).u32(0).u32(0),
            Operation::Readdir(ReadDir { fh: 3, cookie: 10, size: 4096, plus: false }),
        ),
        (
            op::READDIRPLUS,
            args().u64(3).u64(10).u32(4096).u32(0).u64(0).u32(0).u32(0),
            Operation::Readdir(ReadDir { fh: 3, cookie: 10, size: 4096, plus: true }),
        ),
        (
            op::RELEASEDIR,
            args().u64(3).u32(1).u32(0).u64(0),
            Operation::Releasedir { fh: 3, flags: 1 },
        ),
        (op::FSYNCDIR, args().u64(3).u32(1).u32(0), Operation::Fsyncdir { fh: 3, data_only: true }),
    ]
}

fn samples_of_files() -> Vec<(u32, Bytes, Operation<'static>)> {
    let lock = args().u64(3).u64(0xabc).u64(10).u64(20).u32(1).u32(4242).u32(0).u32(0);
    let expected = Lock {
        fh: 3,
        owner: 0xabc,
        flock: false,
        kind: LockKind::Write,
        start: 10,
        end: 20,
        pid: 4242,
    };
    let flock = args().u64(3).u64(0xabc).u64(0).u64(9).u32(2).u32(0).u32(1).u32(0);
    let unlocked =
        Lock { kind: LockKind::Unlock, flock: true, start: 0, end: 9, pid: 0, ..expected };
    let copy = args().u64(1).u64(2).u64(3).u64(4).u64(5).u64(6).u64(0);
    let copied = |wide| {
        Operation::CopyFileRange(CopyRange {
            fh_in: 1,
            offset_in: 2,
            node_out: 3,
            fh_out: 4,
            offset_out: 5,
            length: 6,
            flags: 0,
            wide,
        })
    };
    vec![
        (op::OPEN, args().u32(2).u32(1), Operation::Open { flags: 2, kill_suidgid: true }),
        (
            op::READ,
            args().u64(3).u64(4096).u32(512).u32(2).u64(0xabc).u32(2).u32(0),
            Operation::Read { fh: 3, offset: 4096, size: 512, lock_owner: Some(0xabc), flags: 2 },
        ),
        (
            op::WRITE,
            args().u64(3).u64(4096).u32(4).u32(4).u64(0).u32(1).u32(0).raw(b"data"),
            Operation::Write(Write {
                fh: 3,
                offset: 4096,
                data: b"data",
                lock_owner: None,
                flags: 1,
                cached: false,
                kill_suidgid: true,
            }),
        ),
        (
            op::RELEASE,
            args().u64(3).u32(2).u32(2).u64(0xabc),
            Operation::Release {
                fh: 3,
                flags: 2,
                lock_owner: 0xabc,
                flush: false,
                flock_unlock: true,
            },
        ),
        (op::FSYNC, args().u64(3).u32(0).u32(0), Operation::Fsync { fh: 3, data_only: false }),
        (
            op::FLUSH,
            args().u64(3).u32(0).u32(0).u64(0xabc),
            Operation::Flush { fh: 3, lock_owner: 0xabc },
        ),
        (op::GETLK, lock.clone(), Operation::Getlk(expected)),
        (op::SETLK, flock, Operation::Setlk { lock: unlocked, wait: false }),
        (op::SETLKW, lock, Operation::Setlk { lock: expected, wait: true }),
        (
            op::FALLOCATE,
            args().u64(3).u64(1).u64(2).u32(3).u32(0),
            Operation::Fallocate { fh: 3, offset: 1, length: 2, mode: 3 },
        ),
        (
            op::LSEEK,
            args().u64(3).u64(1).u32(4).u32(0),
            Operation::Lseek { fh: 3, offset: 1, whence: 4 },
        ),
        (op::COPY_FILE_RANGE, copy.clone(), copied(false)),
        (op::COPY_FILE_RANGE_64, copy, copied(true)),
    ]
}

fn samples_of_attributes() -> Vec<(u32, Bytes, Operation<'static>)> {
    let setattr = args()
        .u32(1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 11)
        .u32(0)
        .u64(0)
        .u64(100)
        .u64(0)
        .u64(11)
        .u64(22)
        .u64(33)
        .u32(1)
        .u32(2)
        .u32(3)
        .u32(0o600)
        .u32(0)
        .u32(7)
        .u32(8)
        .u32(0);
    let set = SetAttr {
        mode: Some(0o600),
        size: Some(100),
        atime: Some(SetTime::At { seconds: 11, nanoseconds: 1 }),
        mtime: Some(SetTime::Now),
        kill_suidgid: true,
        ..SetAttr::default()
    };
    vec![
        (op::GETATTR, args().u32(1).u32(0).u64(3), Operation::Getattr { fh: Some(3) }),
        (
            op::STATX,
            args().u32(0).u32(0).u64(0).u32(1).u32(0xfff),
            Operation::Statx { fh: None, flags: 1, mask: 0xfff },
        ),
        (op::SETATTR, setattr, Operation::Setattr(set)),
        (op::STATFS, args(), Operation::Statfs),
        (op::SYNCFS, args().u64(0), Operation::Syncfs),
        (op::ACCESS, args().u32(4).u32(0), Operation::Access { mask: 4 }),
        (
            op::SETXATTR,
            args().u32(3).u32(1).text(b"user.a").raw(b"v\0w"),
            Operation::Setxattr { name: b"user.a", value: b"v\0w", flags: 1 },
        ),
        (
            op::GETXATTR,
            args().u32(64).u32(0).text(b"user.a"),
            Operation::Getxattr { name: b"user.a", size: 64 },
        ),
        (op::LISTXATTR, args().u32(64).u32(0), Operation::Listxattr { size: 64 }),
        (op::REMOVEXATTR, args().text(b"user.a"), Operation::Removexattr { name: b"user.a" }),
    ]
}

#[test]
fn every_operation_is_read_as_the_kernel_writes_it() {
    for (code, arguments, expected) in samples() {
        assert_eq!(operation(&message(code, &arguments)), expected, "operation {code}");
    }
}

#[test]
fn a_message_cut_short_anywhere_is_malformed() {
    for (code, arguments, expected) in samples() {
        // What follows CREATE's structure in TMPFILE, and SYNCFS's argument, is not looked at.
        if matches!(expected, Operation::Tmpfile { .. } | Operation::Syncfs) {
            continue;
        }
        for length in 0..arguments.0.len() {
            let bytes = message(code, &Bytes(arguments.0[..length].to_vec()));
            let malformed = Err(ParseError::Malformed { unique: 77, opcode: code });
            assert_eq!(parse(&bytes), malformed, "operation {code} cut to {length}");
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let mut bytes = message(op::LOOKUP, &args().text(b"name"));
    assert_eq!(parse(&bytes[..39]), Err(ParseError::NoHeader));
    bytes.push(0);
    assert_eq!(parse(&bytes), Err(ParseError::Malformed { unique: 77, opcode: op::LOOKUP }));
    let lock = args().u64(3).u64(1).u64(10).u64(20).u32(9).u32(1).u32(0).u32(0);
    assert!(parse(&message(op::SETLK, &lock)).is_err(), "a lock of no kind");
    let forget = args().u32(u32::MAX).u32(0).u64(1).u64(1);
    assert!(parse(&message(op::BATCH_FORGET, &forget)).is_err());
    assert!(parse(&message(op::LOOKUP, &args().text(b""))).is_err(), "an empty name");
}

#[test]
fn unknown_operations_are_told_apart_from_malformed_ones() {
    assert_eq!(parse(&message(999, &args())), Err(ParseError::Unknown { unique: 77, opcode: 999 }));
}

#[test]
fn messages_without_an_operation_are_sorted_out() {
    let init = args().u32(7).u32(45).u32(131_072).u32(1 | 1 << 30).u32(16).raw(&[0; 44]);
    assert_eq!(
        parse(&message(op::INIT, &init)),
        Ok(Message::Init {
            unique: 77,
            major: 7,
            minor: 45,
            max_readahead: 131_072,
            flags: 1 | 1 << 30 | 16 << 32,
        })
    );
    assert_eq!(
        parse(&message(op::INTERRUPT, &args().u64(12))),
        Ok(Message::Interrupt { target: 12 })
    );
    assert_eq!(parse(&message(op::DESTROY, &args())), Ok(Message::Destroy { unique: 77 }));
    assert_eq!(
        parse(&message(op::FORGET, &args().u64(2))),
        Ok(Message::Forget(Forgets::One { node: 5, count: 2 }))
    );
    let bytes = message(op::BATCH_FORGET, &args().u32(2).u32(0).u64(1).u64(2).u64(3).u64(4));
    let Ok(Message::Forget(forgets)) = parse(&bytes) else { panic!("not a forget") };
    let mut seen = Vec::new();
    forgets.for_each(|node, count| seen.push((node, count)));
    assert_eq!(seen, [(1, 2), (3, 4)]);
}

#[test]
fn groups_are_found_behind_other_extensions() {
    let other = args().u32(16).u32(1).u64(0);
    let groups = args().u32(24).u32(32).u32(2).u32(50).u32(60).u32(0);
    let extensions = [other.0, groups.0].concat();
    let bytes = with_extensions(op::UNLINK, &args().text(b"n"), &extensions);
    let Ok(Message::Request(request)) = parse(&bytes) else { panic!("not a request") };
    assert_eq!(request.header.groups.iter().collect::<Vec<_>>(), [50, 60]);
    assert_eq!(request.operation, Operation::Unlink { name: b"n" });

    let lying = args().u32(16).u32(32).u32(999).u32(50);
    assert!(parse(&with_extensions(op::UNLINK, &args().text(b"n"), &lying.0)).is_err());
    let endless = args().u32(0).u32(1);
    assert!(parse(&with_extensions(op::UNLINK, &args().text(b"n"), &endless.0)).is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_arguments_make_the_parser_panic(
        code in 0u32..60,
        arguments in proptest::collection::vec(any::<u8>(), 0..200),
        extensions in proptest::collection::vec(any::<u64>(), 0..6),
    ) {
        let extensions: Vec<u8> = extensions.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes = with_extensions(code, &Bytes(arguments), &extensions);
        if let Ok(Message::Request(request)) = parse(&bytes) {
            let _ = request.header.groups.iter().count();
        }
    }
}

#[test]
fn in_parts_the_operations_are_the_same() {
    // How many bytes of the arguments are the operation's own structure.
    let structures = [
        (op::LOOKUP, 0),
        (op::SYMLINK, 0),
        (op::MKDIR, 8),
        (op::RENAME2, 16),
        (op::CREATE, 16),
        (op::WRITE, 40),
        (op::READ, 40),
        (op::SETATTR, 88),
        (op::SETXATTR, 8),
        (op::STATFS, 0),
    ];
    for (code, structure_bytes) in structures {
        let (_, arguments, expected) =
            samples().into_iter().find(|(sample, ..)| *sample == code).unwrap();
        let whole = message(code, &arguments);
        let (header, _) = InHeader::read_from_prefix(&whole).unwrap();
        let (structure, payload) = arguments.0.split_at(structure_bytes);
        let mut room = [0xaa; 128];
        room[..structure_bytes].copy_from_slice(structure);
        match parse_ring(&header, &room, payload) {
            Ok(Message::Request(request)) => assert_eq!(request.operation, expected),
            other => panic!("{code}: {other:?}"),
        }
        // Lengths that contradict each other.
        for length in [0, header.len - 1 - structure_bytes as u32, header.len + 129] {
            let wrong = InHeader { len: length, ..header };
            assert!(parse_ring(&wrong, &room, payload).is_err(), "{code}, {length}");
        }
    }
}
