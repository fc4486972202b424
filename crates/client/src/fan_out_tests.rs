//! Several requests to an engine that is played here.

use std::io;
use std::sync::Arc;

use azekura_proto::message::{Answer, Refusal, Reply, Request, RequestHead, ShardRef, Welcome};
use azekura_proto::{ContainerId, EngineId, Incarnation, ObjectClass, Oid, Status, TargetId};
use azekura_rpc::transport::{Data, Direct, Guest, Service, Visit};
use azekura_wire::Secret;
use parking_lot::Mutex;

use crate::retry::Exchange;
use crate::session::Session;

/// What has been written, by its place. The first write of all comes too early, and others need it.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<(u32, Vec<u64>)>>);

impl Service for Written {
    fn admit(&self, _: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal> {
        let (engine, incarnation) = (EngineId(0), Incarnation(1));
        let welcome = Welcome { engine, incarnation, map_version: 1, fresh_session: false };
        Ok((Box::new(self.clone()), welcome))
    }
}

impl Visit for Written {
    fn serve(
        &mut self,
        _: &RequestHead,
        request: &Request<'_>,
        _: &[u8],
    ) -> io::Result<Option<(Answer, Data)>> {
        let (asked, written) = &mut *self.0.lock();
        let answer = match request {
            Request::Write { offset, .. } => {
                *asked += 1;
                if *asked == 1 {
                    Err(Status::Busy)
                } else if *offset > 0 && !written.contains(&0) {
                    Err(Status::Stale)
                } else {
                    written.push(*offset);
                    Ok(Reply::Done)
                }
            }
            _ => Ok(Reply::Done),
        };
        Ok(request.has_reply().then(|| (answer, Data::default())))
    }
}

#[test]
fn what_needs_a_repeated_request_is_repeated_behind_it() {
    let (network, written) = (Arc::new(Direct::new()), Written::default());
    network.add(EngineId(0), Arc::new(written.clone()));
    let session = Session::to_one_engine(network, Vec::new(), Secret::generate().unwrap());
    let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 1);
    let data = ShardRef { oid, shard: 0, is_file: true };
    let requests = [0, 1, 2].map(|offset| Request::Write { data, offset });
    let ordered = |request| Exchange { is_ordered: true, ..Exchange::new(TargetId(0), request) };
    let results = session.fan_out(&mut requests.each_ref().map(ordered));
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(written.0.lock().1, [0, 1, 2]);
}
