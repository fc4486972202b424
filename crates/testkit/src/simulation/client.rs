//! A client as small as the protocol allows: names are walked one by one, nothing is cached, files stay
//! within their first chunk. It does by the book what the protocol asks of a client: numbers in slots,
//! the same request again after a broken connection, claims after a restart. Owns no rule about what is
//! right; that is the model's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use azekura_posix::{Errno, FileKind, OFlags};
use azekura_proto::attr::{AttrChange, Inheritance, NewInode};
use azekura_proto::message::{Answer, Reply, Request, RequestHead, ShardRef};
use azekura_proto::placement::Placement;
use azekura_proto::status::StatusClass;
use azekura_proto::{Attr, ContainerId, EngineId, Incarnation, Oid, SessionId, Status, TargetId};

use super::platform::World as _;
use super::pool::{Connection, Pool};
use crate::model::{self, Op, Outcome, SLOTS, Stat, comparable};

/// A request that has had no answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
const CHUNK_BYTES: u32 = 1 << 20;

/// Why an operation came to nothing.
enum Failure {
    /// An engine said so.
    Refused(Status),
    /// Nobody said anything: it may have been done or not.
    Unanswered,
}

/// A session, and what it has open.
pub(crate) struct Client {
    pool: Arc<Pool>,
    session: SessionId,
    root: Oid,
    sequence: u64,
    /// The runs of engines that know what this session has open.
    claimed: BTreeMap<EngineId, Incarnation>,
    connections: BTreeMap<EngineId, Connection>,
    open: [Option<(Oid, bool)>; SLOTS],
}

impl Client {
    /// A session of its own on the container `default`, which it makes if it is not there.
    pub(crate) fn new(pool: Arc<Pool>, number: u8) -> Self {
        let root = Oid::new(ContainerId(0), azekura_proto::ObjectClass::S1, TargetId(0), 0);
        let mut client = Self {
            pool,
            session: SessionId([number; 16]),
            root,
            sequence: 0,
            claimed: BTreeMap::new(),
            connections: BTreeMap::new(),
            open: [None; SLOTS],
        };
        let name = "default";
        let inheritance = Inheritance { chunk_bytes: CHUNK_BYTES, ..Inheritance::default() };
        let make = Request::ContainerCreate { name: name.to_owned(), inheritance };
        let reply = match client.call(TargetId(0), &make, &[]) {
            Err(Failure::Refused(Status::Exists)) => {
                client.call(TargetId(0), &Request::ContainerOpen { name }, &[])
            }
            other => other,
        };
        match reply {
            Ok((Reply::Container(container), _)) => client.root = container.root,
            _ => panic!("no container"),
        }
        client
    }

    /// Ends without a word, as a process that is killed.
    pub(crate) fn leave(self) {
        self.pool.set_open(self.session, BTreeSet::new());
        for connection in self.connections.into_values() {
            self.pool.disconnect(connection);
        }
    }

    /// Carries out an operation.
    pub(crate) fn apply(&mut self, op: &Op) -> Outcome {
        self.try_apply(op).map_err(|failure| match failure {
            Failure::Unanswered => Errno::IO,
            // A directory has one name only.
            Failure::Refused(Status::IsDirectory) if matches!(op, Op::Link { .. }) => Errno::PERM,
            Failure::Refused(status) => azekura_posix::errno::of_status(status),
        })
    }

    fn try_apply(&mut self, op: &Op) -> Result<model::Answer, Failure> {
        match op {
            Op::Open { slot, path, flags, .. } => {
                let oid = self.open(path, *flags)?;
                self.set_slot(*slot, Some((oid, flags.contains(OFlags::APPEND))))?;
            }
            Op::Mkdir { path, .. } => {
                let (dir, name) = self.parent(path)?;
                self.create(dir, name, FileKind::Directory, true)?;
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                self.ask_entry(dir, name, &Request::Unlink { dir, name })?;
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                self.ask_entry(dir, name, &Request::RemoveDirectory { dir, name })?;
            }
            Op::Rename { from, to, mode } => {
                let ((from_dir, from_name), (to_dir, to_name)) =
                    (self.parent(from)?, self.parent(to)?);
                let mode = *mode;
                let request = Request::Rename { from_dir, from_name, to_dir, to_name, mode };
                self.ask_entry(to_dir, to_name, &request)?;
            }
            Op::Link { from, to } => {
                let oid = self.walk(from)?;
                let (dir, name) = self.parent(to)?;
                self.ask_entry(dir, name, &Request::Link { oid, dir, name })?;
            }
            Op::Stat { path, .. } => {
                let oid = self.walk(path)?;
                return self.attr(oid).map(|attr| stat(&attr));
            }
            Op::List { path } => return self.list(path),
            _ => return self.apply_open(op),
        }
        Ok(model::Answer::Done)
    }

    fn apply_open(&mut self, op: &Op) -> Result<model::Answer, Failure> {
        let slot = op.slot().expect("an operation that the simulation draws");
        let Some((oid, appends)) = self.open[slot] else { return Ok(model::Answer::Skipped) };
        let data = ShardRef { oid, shard: 0, is_file: true };
        match op {
            Op::Close { .. } => self.set_slot(slot, None)?,
            Op::Read { offset, bytes, .. } => {
                let request = Request::Read { data, offset: *offset, bytes: *bytes as u32 };
                let (_, bytes) = self.call(oid.home(), &request, &[])?;
                return Ok(model::Answer::Data(bytes));
            }
            Op::Write { offset, data: bytes, .. } => {
                let request = if appends {
                    Request::Append { oid }
                } else {
                    Request::Write { data, offset: *offset }
                };
                self.call(oid.home(), &request, bytes)?;
                return Ok(model::Answer::Count(bytes.len() as u64));
            }
            Op::Truncate { bytes, .. } => {
                let change = AttrChange { size: Some(*bytes), ..AttrChange::default() };
                self.call(oid.home(), &Request::SetAttr { oid, change }, &[])?;
            }
            Op::StatOpen { .. } => return self.attr(oid).map(|attr| stat(&attr)),
            other => panic!("not an operation that the simulation draws: {other:?}"),
        }
        Ok(model::Answer::Done)
    }

    // -- names

    fn target_of(&self, dir: Oid, name: &[u8]) -> TargetId {
        Placement::of(self.pool.map()).entry_target(dir, name)
    }

    fn ask_entry(
        &mut self,
        dir: Oid,
        name: &[u8],
        request: &Request<'_>,
    ) -> Result<Reply, Failure> {
        self.call(self.target_of(dir, name), request, &[]).map(|(reply, _)| reply)
    }

    /// What a name leads to, with its type.
    fn lookup(&mut self, dir: Oid, name: &[u8]) -> Result<(Oid, FileKind), Failure> {
        match self.ask_entry(dir, name, &Request::Lookup { dir, name })? {
            Reply::Entry { entry, .. } => Ok((entry.oid, entry.kind)),
            other => panic!("not an answer to a lookup: {other:?}"),
        }
    }

    /// The directory that the last name of a path stands in.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(Oid, &'p [u8]), Failure> {
        let mut names = path.split(|byte| *byte == b'/');
        let last = names.next_back().expect("a split gives something");
        let mut dir = self.root;
        for name in names {
            let (oid, kind) = self.lookup(dir, name)?;
            if kind != FileKind::Directory {
                return Err(Failure::Refused(Status::NotDirectory));
            }
            dir = oid;
        }
        Ok((dir, last))
    }

    fn walk(&mut self, path: &[u8]) -> Result<Oid, Failure> {
        let (dir, name) = self.parent(path)?;
        if name.is_empty() { Ok(dir) } else { self.lookup(dir, name).map(|(oid, _)| oid) }
    }

    fn create(
        &mut self,
        dir: Oid,
        name: &[u8],
        kind: FileKind,
        exclusive: bool,
    ) -> Result<(Oid, FileKind), Failure> {
        let is_directory = kind == FileKind::Directory;
        let inode = NewInode {
            kind,
            mode: 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            symlink_text: Vec::new(),
            class: azekura_proto::ObjectClass::SX,
            chunk_bytes: CHUNK_BYTES,
            inheritance: is_directory.then(Inheritance::default),
        };
        let request = Request::Create { dir, name, inode, open: !is_directory };
        match self.ask_entry(dir, name, &request)? {
            Reply::Created(attr) => Ok((attr.oid, kind)),
            Reply::Entry { .. } if exclusive => Err(Failure::Refused(Status::Exists)),
            Reply::Entry { entry, .. } => Ok((entry.oid, entry.kind)),
            other => panic!("not an answer to a creation: {other:?}"),
        }
    }

    fn list(&mut self, path: &[u8]) -> Result<model::Answer, Failure> {
        let (parent, name) = self.parent(path)?;
        let dir = if name.is_empty() {
            parent
        } else {
            match self.lookup(parent, name)? {
                (oid, FileKind::Directory) => oid,
                _ => return Err(Failure::Refused(Status::NotDirectory)),
            }
        };
        let placement = Placement::of(self.pool.map());
        let mut names = BTreeMap::new();
        for shard in 0..placement.shards(dir) {
            let request =
                Request::ReadDirectory { dir, after: 0, page_bytes: 65_536, with_attrs: false };
            let reply = self.call(placement.shard_target(dir, shard), &request, &[])?.0;
            let Reply::Entries { entries, end: true } = reply else {
                panic!("not a whole shard of a directory: {reply:?}")
            };
            for entry in entries {
                assert!(names.insert(entry.name, entry.entry.kind).is_none(), "a name comes twice");
            }
        }
        Ok(model::Answer::Names(names))
    }

    // -- open files

    fn open(&mut self, path: &[u8], flags: OFlags) -> Result<Oid, Failure> {
        let (dir, name) = self.parent(path)?;
        let (oid, kind) = if flags.contains(OFlags::CREATE) {
            self.create(dir, name, FileKind::Regular, flags.contains(OFlags::EXCL))?
        } else {
            self.lookup(dir, name)?
        };
        if kind == FileKind::Directory {
            return Err(Failure::Refused(Status::IsDirectory));
        }
        self.call(oid.home(), &Request::Open { oid }, &[])?;
        Ok(oid)
    }

    fn attr(&mut self, oid: Oid) -> Result<Attr, Failure> {
        match self.call(oid.home(), &Request::GetAttr { oid }, &[])?.0 {
            Reply::Attr(attr) => Ok(*attr),
            other => panic!("not attributes: {other:?}"),
        }
    }

    /// Puts a file into a slot. What was there is released if no other slot has it.
    fn set_slot(&mut self, slot: usize, file: Option<(Oid, bool)>) -> Result<(), Failure> {
        let old = std::mem::replace(&mut self.open[slot], file);
        if let Some((oid, _)) = old
            && self.open.iter().flatten().all(|(other, _)| *other != oid)
        {
            self.call(oid.home(), &Request::Release { oids: vec![oid] }, &[])?;
        }
        self.pool.set_open(self.session, self.open_oids());
        Ok(())
    }

    fn open_oids(&self) -> BTreeSet<Oid> {
        self.open.iter().flatten().map(|(oid, _)| *oid).collect()
    }

    // -- requests

    /// One request, sent until it has an answer or its time is up.
    fn call(
        &mut self,
        target: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Result<(Reply, Vec<u8>), Failure> {
        let pool = Arc::clone(&self.pool);
        let engine = pool.map().engine_of(target).expect("a target of the pool");
        let deadline = pool.elapsed() + PATIENCE;
        let mut head = RequestHead {
            target,
            map_version: pool.map().version,
            slot: 0,
            sequence: self.sequence_for(request),
            resent: false,
        };
        let mut pause = PAUSE.0;
        loop {
            match self.try_once(engine, head, request, bulk) {
                Some((Ok(reply), bytes)) => return Ok((reply, bytes)),
                // It may have been done in part: the same request again ends it.
                Some((Err(Status::PeerUnreachable), _)) | None => head.resent = head.sequence > 0,
                Some((Err(status), _)) if status.class() == StatusClass::Retry => {
                    head.sequence = self.sequence_for(request);
                    head.resent = false;
                }
                Some((Err(status), _)) => return Err(Failure::Refused(status)),
            }
            if pool.elapsed() > deadline {
                pool.note(format!("no answer to {}", request.name()));
                return Err(Failure::Unanswered);
            }
            pool.sleep(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    fn sequence_for(&mut self, request: &Request<'_>) -> u64 {
        if !request.needs_exact_retry() {
            return 0;
        }
        self.sequence += 1;
        self.sequence
    }

    /// Sends a request over a connection, which is made if there is none. `None`: it broke.
    fn try_once(
        &mut self,
        engine: EngineId,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Option<(Answer, Vec<u8>)> {
        let old = self.connections.get(&engine).copied();
        let connection = match old.filter(|connection| self.pool.is_connected(*connection)) {
            Some(connection) => connection,
            None => self.connect(engine, head)?,
        };
        self.pool.exchange(connection, head, request, bulk)
    }

    fn connect(&mut self, engine: EngineId, head: RequestHead) -> Option<Connection> {
        let (connection, welcome) = self.pool.connect(engine, self.session)?;
        if welcome.fresh_session || self.claimed.get(&engine) != Some(&welcome.incarnation) {
            self.claimed.remove(&engine);
            self.claim(engine, connection, head)?;
            self.claimed.insert(engine, welcome.incarnation);
        }
        self.connections.insert(engine, connection);
        Some(connection)
    }

    /// Tells a run of an engine that does not know it what this session has open there.
    fn claim(&self, engine: EngineId, connection: Connection, head: RequestHead) -> Option<()> {
        let holds = self.pool.oids_at(engine, &self.open_oids());
        if holds.is_empty() {
            return Some(());
        }
        let head = RequestHead { sequence: 0, resent: false, ..head };
        let request = Request::Claim { open: holds, locks: Vec::new() };
        let (answer, _) = self.pool.exchange(connection, head, &request, &[])?;
        if let Err(status) = answer {
            self.pool.note(format!("not all that was open is still there: {status}"));
        }
        Some(())
    }
}

fn stat(attr: &Attr) -> model::Answer {
    model::Answer::Stat(comparable(Stat {
        kind: attr.kind,
        mode: attr.mode.into(),
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink.into(),
        size: attr.size,
    }))
}
