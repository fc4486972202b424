//! An engine for the tests of this crate: it answers at once, and remembers what it was asked.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use azekura_proto::message::{
    Answer, Refusal, Reply, Request, RequestHead, Role, ShardRef, Welcome,
};
use azekura_proto::{
    ContainerId, EngineId, Incarnation, ObjectClass, Oid, PoolId, SessionId, Status, TargetId,
};
use azekura_wire::Secret;
use parking_lot::Mutex;

use crate::slot::{Destination, Slot};
use crate::transport::{Caller, Data, Direct, Guest, Network as _, Service, Visit, Wanted};

/// What an engine was asked: the head, and how many bulk bytes came along.
pub(crate) type Log = Arc<Mutex<Vec<(RequestHead, usize)>>>;

pub(crate) struct TestEngine {
    pub(crate) engine: EngineId,
    pub(crate) log: Log,
}

impl TestEngine {
    pub(crate) fn new(engine: u16) -> Self {
        Self { engine: EngineId(engine), log: Log::default() }
    }
}

struct TestVisit(Log);

impl Service for TestEngine {
    fn admit(&self, _guest: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal> {
        let welcome = Welcome {
            engine: self.engine,
            incarnation: Incarnation(1),
            map_version: 1,
            fresh_session: false,
        };
        Ok((Box::new(TestVisit(Arc::clone(&self.log))), welcome))
    }
}

impl Visit for TestVisit {
    fn serve(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> io::Result<Option<(Answer, Data)>> {
        self.0.lock().push((*head, bulk.len()));
        let mut data = Vec::new();
        let answer = match request {
            Request::Release { .. } => return Ok(None),
            Request::Fence { .. } => return Err(io::ErrorKind::ConnectionAborted.into()),
            Request::Append { .. } => panic!("this engine cannot do that"),
            Request::Read { offset, bytes, .. } => {
                data = vec![*offset as u8; *bytes as usize];
                Ok(Reply::Data { bytes: *bytes, striped: false })
            }
            Request::AllocateSerial => Ok(Reply::Serial(u64::from(head.target.0))),
            Request::ContainerList => Err(Status::Busy),
            _ => Ok(Reply::Done),
        };
        Ok(Some((answer, Data::Bytes(data))))
    }
}

/// A network with one engine of each number, and their logs.
pub(crate) fn network(engines: u16) -> (Arc<Direct>, Vec<Log>) {
    let network = Arc::new(Direct::new());
    let log_of = |engine| {
        let engine = TestEngine::new(engine);
        let log = Arc::clone(&engine.log);
        network.add(engine.engine, Arc::new(engine));
        log
    };
    let logs = (0..engines).map(log_of).collect();
    (network, logs)
}

/// A slot with a conversation with engine 0.
pub(crate) fn slot(network: &Direct) -> Slot {
    let caller = Caller {
        pool: PoolId([1; 16]),
        session: SessionId([2; 16]),
        role: Role::Client,
        secret: Secret::generate().unwrap(),
        timeout: Duration::from_secs(5),
    };
    let (engine, timeout) = (EngineId(0), caller.timeout);
    let mut met = network.open(&Wanted { engine, addresses: &[], count: 1, timeout }, &caller);
    let mut slot = Slot::new(3, Arc::default(), None);
    slot.attach(met.good.pop().unwrap().0);
    slot
}

pub(crate) const TARGET_0: Destination = Destination { target: TargetId(0), map_version: 1 };

pub(crate) fn shard() -> ShardRef {
    let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 5);
    ShardRef { oid, shard: 0, is_file: true }
}
