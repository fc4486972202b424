//! What sessions hold over a restart of the engine, or the end of their lease, asked of an engine in the
//! same process under a virtual time.

use std::sync::Arc;
use std::time::Duration;

use azekura_platform::Platform as _;
use azekura_proto::attr::{FileKind, NewInode};
use azekura_proto::limits::{LEASE_MS, LOCAL_LEASE_MS, LOCKS_GRACE_MS};
use azekura_proto::message::{
    Answer, Lock, LockKind, LockMode, Reply, Request, RequestHead, Role, ShardRef,
};
use azekura_proto::{ObjectClass, Oid, SessionId, Status, TargetId};
use azekura_store::{Batch, Space};

use crate::background::reclaim;
use crate::crash_tests::Pool;
use crate::requests::attachment::Attachment;
use crate::service::Service;

pub(crate) const ONE: SessionId = SessionId([1; 16]);
pub(crate) const TWO: SessionId = SessionId([2; 16]);
const LOCK: Lock = Lock {
    kind: LockKind::Whole,
    owner: 1,
    pid: 1,
    mode: LockMode::Exclusive,
    start: 0,
    end: u64::MAX,
};

fn head(target: TargetId, sequence: u64) -> RequestHead {
    RequestHead { target, map_version: 1, slot: 0, sequence, resent: false, connection: 1 }
}

pub(crate) struct Client {
    attachment: Attachment,
    pub(crate) sequence: u64,
}

impl Client {
    pub(crate) fn of(service: &Service, session: SessionId) -> Self {
        let (attachment, _) = service.attach(session, Role::Client, false).unwrap();
        Self { attachment, sequence: 0 }
    }

    /// What it has asked for last, once more.
    pub(crate) fn ask_again(&mut self, target: TargetId, request: &Request<'_>) -> Answer {
        let head = RequestHead { resent: true, ..head(target, self.sequence) };
        self.attachment.call(&head, request, &[]).0
    }

    pub(crate) fn ask(&mut self, target: TargetId, request: &Request<'_>) -> Answer {
        let mut sequence = 0;
        if request.needs_exact_retry() {
            self.sequence += 1;
            sequence = self.sequence;
        }
        self.attachment.call(&head(target, sequence), request, &[]).0
    }

    fn lock(&mut self, oid: Oid) -> Answer {
        self.ask(oid.home(), &Request::LockAcquire { oid, lock: LOCK, wait: false })
    }

    fn claim(&mut self, open: &[Oid], locks: &[Oid]) -> Answer {
        let locks = locks.iter().map(|oid| (*oid, LOCK)).collect();
        self.ask(TargetId(0), &Request::Claim { open: open.to_vec(), locks })
    }
}

pub(crate) fn new_inode(kind: FileKind) -> NewInode {
    NewInode {
        kind,
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

/// A new file, open in the client.
pub(crate) fn create(pool: &Pool, service: &Service, client: &mut Client, name: &[u8]) -> Oid {
    let inode = new_inode(FileKind::Regular);
    let target = service.node().entry_target(pool.root, name);
    match client.ask(target, &Request::Create { dir: pool.root, name, inode, open: true }) {
        Ok(Reply::Created(attr)) => attr.oid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lock_that_was_answered_has_its_grace_however_soon_the_engine_ends() {
    let pool = Pool::new();
    let service = pool.service();
    let mut one = Client::of(&service, ONE);
    let oid = create(&pool, &service, &mut one, b"file");
    assert_eq!(one.lock(oid), Ok(Reply::Done));
    drop((one, service));
    let service = pool.service();
    let (mut one, mut two) = (Client::of(&service, ONE), Client::of(&service, TWO));
    assert_eq!(two.lock(oid), Err(Status::Grace));
    let test = Request::LockTest { oid, lock: LOCK };
    assert_eq!(two.ask(oid.home(), &test), Err(Status::Grace));
    assert_eq!(one.claim(&[oid], &[oid]), Ok(Reply::Done));
    pool.time.sleep(Duration::from_millis(LOCKS_GRACE_MS + 1));
    assert_eq!(two.lock(oid), Err(Status::Locked));
    // Nobody holds anything: the next run need not wait.
    assert_eq!(one.ask(oid.home(), &Request::LockRelease { oid, lock: LOCK }), Ok(Reply::Done));
    for _ in 0..20 {
        service.background_pass();
    }
    drop((one, two, service));
    let service = pool.service();
    assert_eq!(Client::of(&service, TWO).lock(oid), Ok(Reply::Done));
}

#[test]
fn a_lock_that_is_claimed_after_the_grace_is_lost_if_another_had_it() {
    for another_had_it in [false, true] {
        let pool = Pool::new();
        let service = pool.service();
        let mut one = Client::of(&service, ONE);
        let oid = create(&pool, &service, &mut one, b"file");
        assert_eq!(one.lock(oid), Ok(Reply::Done));
        drop((one, service));
        let service = pool.service();
        pool.time.sleep(Duration::from_millis(LOCKS_GRACE_MS + 1));
        let mut two = Client::of(&service, TWO);
        if another_had_it {
            assert_eq!(two.lock(oid), Ok(Reply::Done));
            let release = Request::LockRelease { oid, lock: LOCK };
            assert_eq!(two.ask(oid.home(), &release), Ok(Reply::Done));
        }
        let wanted = if another_had_it { Err(Status::Locked) } else { Ok(Reply::Done) };
        assert_eq!(Client::of(&service, ONE).claim(&[], &[oid]), wanted);
    }
}

#[test]
fn an_open_file_that_is_unlinked_before_it_is_claimed_lives() {
    let pool = Pool::new();
    let service = pool.service();
    let mut one = Client::of(&service, ONE);
    let oid = create(&pool, &service, &mut one, b"file");
    drop((one, service));
    let service = pool.service();
    let mut two = Client::of(&service, TWO);
    let target = service.node().entry_target(pool.root, b"file");
    two.ask(target, &Request::Unlink { dir: pool.root, name: b"file" }).unwrap();
    let mut one = Client::of(&service, ONE);
    assert_eq!(one.claim(&[oid], &[]), Ok(Reply::Done));
    let get = Request::GetAttr { oid };
    for _ in 0..3 {
        pool.time.sleep(Duration::from_millis(LEASE_MS));
        service.background_pass();
        assert!(one.ask(oid.home(), &get).is_ok());
    }
    one.ask(TargetId(0), &Request::Release { oids: vec![oid] }).unwrap();
    assert_eq!(one.ask(oid.home(), &get), Err(Status::Stale));
}

#[test]
fn an_unlinked_file_that_nobody_claims_goes_with_the_lease() {
    let pool = Pool::new();
    let service = pool.service();
    let mut one = Client::of(&service, ONE);
    let oid = create(&pool, &service, &mut one, b"file");
    drop((one, service));
    let service = pool.service();
    let mut two = Client::of(&service, TWO);
    let target = service.node().entry_target(pool.root, b"file");
    two.ask(target, &Request::Unlink { dir: pool.root, name: b"file" }).unwrap();
    pool.time.sleep(Duration::from_millis(LEASE_MS + 1));
    service.background_pass();
    assert_eq!(two.ask(oid.home(), &Request::GetAttr { oid }), Err(Status::Stale));
}

#[test]
fn what_a_session_claims_when_it_comes_back_does_not_go_with_its_old_one() {
    let pool = Pool::new();
    let service = pool.service();
    let mut one = Client::of(&service, ONE);
    let oid = create(&pool, &service, &mut one, b"file");
    assert_eq!(one.lock(oid), Ok(Reply::Done));
    drop(one);
    pool.time.sleep(Duration::from_millis(LOCAL_LEASE_MS + 1));
    let node = service.node();
    let expired = node.sessions.take_expired();
    assert_eq!(expired.len(), 1);
    // It comes back while its old session is being ended, and has to wait for that.
    assert!(service.attach(ONE, Role::Client, false).is_err());
    reclaim::end_session(&node, &expired[0]);
    let (_, welcome) = service.attach(ONE, Role::Client, false).unwrap();
    assert!(welcome.fresh_session);
    let mut one = Client::of(&service, ONE);
    assert_eq!(one.claim(&[oid], &[oid]), Ok(Reply::Done));
    assert_eq!(Client::of(&service, TWO).lock(oid), Err(Status::Locked));
    assert!(node.sessions.is_open(oid));
}

#[test]
fn a_record_that_cannot_be_dealt_with_does_not_keep_others_waiting() {
    let pool = Pool::new();
    let service = pool.service();
    let mut one = Client::of(&service, ONE);
    let oid = create(&pool, &service, &mut one, b"file");
    let node = service.node();
    let home = Arc::clone(node.local_home(oid).unwrap());
    let mut bad = Batch::new();
    // The first of each kind, and no key or value that anybody has written.
    bad.put(Space::Reclaim, b"\0", b"bad");
    bad.put(Space::Transaction, b"c\0", b"bad");
    bad.put(Space::System, b"reclaim-container/bad", Vec::new());
    home.store.commit(bad).unwrap();
    let data = ShardRef { oid, shard: 0, is_file: true };
    let write = Request::Write { data, offset: 0 };
    one.attachment.call(&head(oid.home(), 0), &write, b"data").0.unwrap();
    let target = service.node().entry_target(pool.root, b"file");
    one.ask(target, &Request::Unlink { dir: pool.root, name: b"file" }).unwrap();
    one.ask(oid.home(), &Request::Release { oids: vec![oid] }).unwrap();
    assert!(home.store.shard(oid, 0).unwrap().is_some());
    for _ in 0..10 {
        service.background_pass();
    }
    assert!(home.store.shard(oid, 0).unwrap().is_none(), "its data are gone");
    let report = service.report();
    let shown = report.targets.iter().find(|target| target.target == oid.home()).unwrap();
    assert_eq!((shown.set_aside, shown.reclaim_backlog), (3, 1));
}

#[test]
fn objects_of_a_destroyed_container_are_counted_no_longer() {
    let pool = Pool::new();
    let service = pool.service();
    let count = |service: &Service| -> u64 {
        service.report().targets.iter().map(|target| target.space.objects).sum()
    };
    let mut one = Client::of(&service, ONE);
    for index in 0..10_u8 {
        create(&pool, &service, &mut one, &[b'a' + index]);
    }
    assert_eq!(count(&service), 11, "ten files and the root");
    let destroy = Request::ContainerDestroy { name: "default" };
    one.ask(TargetId(0), &destroy).unwrap();
    assert_eq!(count(&service), 0, "before the data have gone");
    drop((one, service));
    let service = pool.service();
    assert_eq!(count(&service), 0, "nor does a restart count them");
    for _ in 0..3 {
        service.background_pass();
    }
    assert_eq!(count(&service), 0);
}
