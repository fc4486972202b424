//! Files of shards that clients of the host read and write by themselves: what is promised to others meanwhile.

use std::os::fd::OwnedFd;
use std::time::Duration;

use azekura_proto::attr::{AttrChange, SetTime};
use azekura_proto::limits::{LEASE_REFUSAL_MS, WRITE_LEASE_MS};
use azekura_proto::message::{Reply, Request, Role, ShardRef, XattrMode};
use azekura_proto::{Attr, Oid, SessionId, Status, Timestamp};

use crate::crash_tests::Pool;
use crate::requests::attachment::Attachment;
use crate::requests::bulk::{BulkIn, BulkOut};
use crate::service_tests::{attach, create, head};

/// Asks for a shard's file, to be read.
fn ask_descriptor(client: &mut Attachment, data: ShardRef) -> Result<OwnedFd, Status> {
    ask(client, data, &Request::ShardDescriptor { data })
}

/// Asks for it to be written, too.
fn ask_to_write(client: &mut Attachment, data: ShardRef, wait: bool) -> Result<OwnedFd, Status> {
    ask(client, data, &Request::ShardWriteDescriptor { data, wait })
}

fn ask(client: &mut Attachment, data: ShardRef, request: &Request<'_>) -> Result<OwnedFd, Status> {
    let none = BulkIn::Bytes(&[]);
    let mut buffer = Vec::new();
    let response = client.serve(&head(data.oid.home(), 0), request, none, &mut buffer).unwrap();
    match (response.answer.unwrap()?, response.bulk) {
        (Reply::Done, BulkOut::Descriptor(descriptor)) => Ok(descriptor),
        (reply, _) => panic!("{reply:?}"),
    }
}

#[test]
fn a_file_is_read_past_the_engine_or_written_early_and_never_both() {
    let pool = Pool::new();
    let service = pool.service();
    let mut client = attach(&service);
    let writer = service.attach(SessionId([8; 16]), Role::Client, true).unwrap().0;
    let oid = create((&pool, &service), &client, b"file", 1);
    let data = ShardRef { oid, shard: 0, is_file: true };
    let home = head(oid.home(), 0);
    assert_eq!(ask_descriptor(&mut client, data).unwrap_err(), Status::Unsupported, "no socket");
    client.carry_descriptors();
    assert_eq!(ask_descriptor(&mut client, data).unwrap_err(), Status::NotFound, "no data");
    let array = ShardRef { is_file: false, ..data };
    assert_eq!(ask_descriptor(&mut client, array).unwrap_err(), Status::Invalid);
    client.call(&home, &Request::Write { data, offset: 0 }, b"0123456789").0.unwrap();
    let lease = || match writer.call(&home, &Request::LeaseWrite { data, instead_of: None }, &[]).0
    {
        Ok(Reply::Leased { lease_ms, version }) => (lease_ms > 0).then_some(version),
        other => panic!("{other:?}"),
    };

    let descriptor = ask_descriptor(&mut client, data).unwrap();
    let mut buffer = [0; 10];
    assert_eq!(rustix::io::pread(&descriptor, &mut buffer, 2), Ok(8));
    assert!(rustix::io::pwrite(&descriptor, b"x", 0).is_err(), "it is for reading alone");
    assert_eq!(lease(), None);
    let other = descriptor.try_clone().unwrap();
    drop(descriptor);
    assert_eq!(lease(), None, "a duplicate is as good");
    drop(other);
    let epoch = lease().unwrap();
    // Refused at once: whoever reads by a request waits.
    assert_eq!(ask_descriptor(&mut client, data).unwrap_err(), Status::ConditionFailed);
    let written = Request::WriteLeased { data, offset: 0, epoch };
    writer.call(&home, &written, b"later").0.unwrap();
    writer.call(&home, &Request::ReleaseWrite { data, epoch }, &[]).0.unwrap();
    let descriptor = ask_descriptor(&mut client, data).unwrap();
    assert_eq!(rustix::io::pread(&descriptor, &mut buffer, 0), Ok(10));
    assert_eq!(&buffer, b"later56789");
    assert_eq!(writer.call(&home, &written, b"much later").0, Err(Status::ConditionFailed));

    // The next run knows of what this one has handed out.
    drop((client, writer));
    drop(service);
    let service = pool.service();
    let writer = service.attach(SessionId([9; 16]), Role::Client, true).unwrap().0;
    // It keeps what this one may have leased, too.
    service.node().platform.sleep(Duration::from_millis(WRITE_LEASE_MS));
    let request = Request::LeaseWrite { data, instead_of: None };
    let lease = || match writer.call(&home, &request, &[]).0 {
        Ok(Reply::Leased { lease_ms, .. }) => lease_ms > 0,
        other => panic!("{other:?}"),
    };
    assert!(!lease());
    drop(descriptor);
    assert!(lease());
}

/// A pool with a file of one shard, a client that may have descriptors, and another one.
struct World {
    _pool: Pool,
    client: Attachment,
    other: Attachment,
    oid: Oid,
    sleep: Box<dyn Fn(Duration)>,
}

impl World {
    fn new() -> Self {
        let pool = Pool::new();
        let service = pool.service();
        let mut client = attach(&service);
        let other = service.attach(SessionId([8; 16]), Role::Client, true).unwrap().0;
        let oid = create((&pool, &service), &client, b"file", 1);
        client.carry_descriptors();
        let sleep = Box::new(move |time| service.node().platform.sleep(time));
        Self { _pool: pool, client, other, oid, sleep }
    }

    fn data(&self) -> ShardRef {
        ShardRef { oid: self.oid, shard: 0, is_file: true }
    }

    fn open(&mut self, wait: bool) -> Result<OwnedFd, Status> {
        let data = self.data();
        ask_to_write(&mut self.client, data, wait)
    }

    /// What the other client is answered.
    fn ask_other(
        &self,
        sequence: u64,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Result<Reply, Status> {
        self.other.call(&head(self.oid.home(), sequence), request, bulk).0
    }

    /// The read lease that the other client gets, and the version that it is told.
    fn lease(&self) -> (bool, u64) {
        match self.ask_other(0, &Request::LeaseRead { data: self.data() }, &[]) {
            Ok(Reply::Leased { lease_ms, version }) => (lease_ms > 0, version),
            other => panic!("{other:?}"),
        }
    }

    fn attr(&self) -> Attr {
        match self.ask_other(0, &Request::GetAttr { oid: self.oid }, &[]) {
            Ok(Reply::Attr(attr)) => *attr,
            other => panic!("{other:?}"),
        }
    }

    fn change(&self, sequence: u64, change: AttrChange) -> Attr {
        match self.ask_other(sequence, &Request::SetAttr { oid: self.oid, change }, &[]) {
            Ok(Reply::Attr(attr)) => *attr,
            other => panic!("{other:?}"),
        }
    }

    fn mode(&self, sequence: u64, mode: u16) -> u16 {
        self.change(sequence, AttrChange { mode: Some(mode), ..AttrChange::default() }).mode
    }
}

#[test]
fn nobody_relies_on_a_file_that_is_written_past_the_engine() {
    let mut world = World::new();
    let (is_leased, first) = world.lease();
    assert!(is_leased);
    assert_eq!(world.open(false).unwrap_err(), Status::ConditionFailed, "somebody relies on it");
    // Waiting for it takes as long as the lease lasts.
    let descriptor = world.open(true).unwrap();
    assert_eq!(rustix::io::pwrite(&descriptor, b"past the engine", 0), Ok(15));
    (world.sleep)(Duration::from_millis(2 * LEASE_REFUSAL_MS));
    let (is_leased, second) = world.lease();
    assert!(!is_leased && second != first);
    let (request, data) =
        (Request::LeaseWrite { data: world.data(), instead_of: None }, world.data());
    assert_eq!(world.ask_other(0, &request, &[]), Ok(Reply::Leased { lease_ms: 0, version: 0 }));
    // What others write and cut is the same file, and so is what they are told of it.
    let write = Request::Write { data, offset: 5 };
    assert_eq!(world.ask_other(0, &write, b"THE"), Ok(Reply::Done));
    let mut seen = [0; 20];
    assert_eq!(rustix::io::pread(&descriptor, &mut seen, 0), Ok(15));
    assert_eq!(&seen[..15], b"past THE engine");
    let size = |world: &World| match world.ask_other(0, &Request::GetAttr { oid: world.oid }, &[]) {
        Ok(Reply::Attr(attr)) => attr.size,
        other => panic!("{other:?}"),
    };
    assert_eq!(rustix::io::pwrite(&descriptor, b"!", 99), Ok(1));
    assert_eq!(size(&world), 100);
    drop(descriptor);
    let (is_leased, third) = world.lease();
    assert!(is_leased && third != second && third != first);
}

#[test]
fn an_append_lands_behind_what_is_written_past_the_engine() {
    let mut world = World::new();
    let descriptor = world.open(false).unwrap();
    let append = Request::Append { oid: world.oid };
    rustix::io::pwrite(&descriptor, b"own,", 0).unwrap();
    assert_eq!(world.ask_other(1, &append, b"other,"), Ok(Reply::Appended { offset: 4 }));
    rustix::io::pwrite(&descriptor, b"own again,", 10).unwrap();
    assert_eq!(world.ask_other(2, &append, b"end"), Ok(Reply::Appended { offset: 20 }));
    // The same request once more is the same append.
    assert_eq!(world.ask_other(2, &append, b"end"), Ok(Reply::Appended { offset: 20 }));
    let mut seen = [0; 40];
    assert_eq!(rustix::io::pread(&descriptor, &mut seen, 0), Ok(23));
    assert_eq!(&seen[..23], b"own,other,own again,end");
}

#[test]
fn a_file_has_no_privileges_while_it_is_written_past_the_engine() {
    let mut world = World::new();
    let descriptor = world.open(false).unwrap();
    assert_eq!(world.mode(1, 0o6755), 0o755);
    let (oid, mode) = (world.oid, XattrMode::Set);
    let capable = Request::SetXattr { oid, name: b"security.capability", value: b"x", mode };
    assert_eq!(world.ask_other(2, &capable, &[]), Err(Status::Busy));
    drop(descriptor);
    assert_eq!(world.mode(3, 0o4755), 0o4755);
    assert_eq!(world.open(true).unwrap_err(), Status::ConditionFailed);
    assert_eq!(world.mode(4, 0o755), 0o755);
    assert_eq!(world.ask_other(5, &capable, &[]), Ok(Reply::Done));
    assert_eq!(world.open(true).unwrap_err(), Status::ConditionFailed);
}

/// What becomes of set-id bits that a file is to get while it is written past the engine.
fn set_id_after(meanwhile: impl Fn(&World, &OwnedFd)) -> u16 {
    let mut world = World::new();
    let file = world.open(true).unwrap();
    rustix::io::pwrite(&file, b"abc", 0).unwrap();
    assert_eq!(world.mode(1, 0o6755), 0o755);
    meanwhile(&world, &file);
    assert_eq!(world.attr().mode, 0o755, "it is open");
    drop(file);
    let mode = world.attr().mode;
    assert_eq!(world.open(false).is_ok(), mode == 0o755);
    mode
}

#[test]
fn set_id_bits_come_when_a_file_is_closed_that_was_not_written_meanwhile() {
    let write = |file: &OwnedFd| assert_eq!(rustix::io::pwrite(file, b"X", 0), Ok(1));
    let set_times = |world: &World| {
        let mtime = Some(SetTime::At(Timestamp::default()));
        world.change(2, AttrChange { mtime, ..AttrChange::default() });
    };
    assert_eq!(set_id_after(|_, _| {}), 0o6755);
    assert_eq!(set_id_after(|world, _| set_times(world)), 0o6755);
    assert_eq!(set_id_after(|_, file| write(file)), 0o755);
    let hidden = set_id_after(|world, file| {
        write(file);
        set_times(world);
    });
    assert_eq!(hidden, 0o755);
    let owner = AttrChange { uid: Some(7), ..AttrChange::default() };
    let given_away = set_id_after(|world, _| assert_eq!(world.change(2, owner.clone()).uid, 7));
    assert_eq!(given_away, 0o755);
    assert_eq!(set_id_after(|world, _| assert_eq!(world.mode(2, 0o755), 0o755)), 0o755);
    assert_eq!(set_id_after(|world, _| assert_eq!(world.mode(2, 0o4755), 0o755)), 0o4755);
}

#[test]
fn who_only_reads_keeps_nobody_from_a_read_lease() {
    let mut world = World::new();
    drop(world.open(false).unwrap());
    let data = world.data();
    let reader = ask_descriptor(&mut world.client, data).unwrap();
    assert!(world.lease().0);
    // A writer that is there already counts as before.
    let writer = world.open(true).unwrap();
    let second = ask_descriptor(&mut world.client, data).unwrap();
    drop((writer, reader));
    (world.sleep)(Duration::from_millis(2 * LEASE_REFUSAL_MS));
    assert!(!world.lease().0, "which of them is left nobody knows");
    drop(second);
    assert!(world.lease().0);
}
