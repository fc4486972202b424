//! How a target makes sure of what its commits rely on at other targets, so that these commits may become
//! durable. Owns the asking; what is asked for stands in the store. Never takes a lock of a target: it is
//! called by whoever makes room for a commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use azekura_proto::limits::PEER_ANSWER_MS;
use azekura_proto::message::{Answer, Reply, Request};
use azekura_proto::{Dependence, Dependences, PoolMap, TargetId};
use azekura_store::{Unsettled, Witnesses};

use crate::node::NodeState;
use crate::records::stored::store_status;

/// How long a target may take to sync: less than whoever is asked for a commit has himself.
const HOLD_TIME: Duration = Duration::from_millis(PEER_ANSWER_MS / 2);

impl Witnesses for NodeState {
    fn make_durable(&self, wanted: &Dependences) -> Result<(), Unsettled> {
        let (own, others): (Vec<&Dependence>, Vec<&Dependence>) =
            wanted.iter().partition(|each| self.local(each.target).is_some());
        let requests: Vec<Request<'static>> =
            others.iter().map(|each| Request::Hold { epoch: each.epoch, seq: each.seq }).collect();
        let asked: Vec<(TargetId, &Request<'_>)> =
            others.iter().map(|each| each.target).zip(&requests).collect();
        let mut own_answers = Vec::with_capacity(own.len());
        let mut hold_own = || own_answers.extend(own.iter().map(|each| self.hold(each)));
        let other_answers = if asked.is_empty() {
            hold_own();
            Vec::new()
        } else {
            let map: Arc<PoolMap> = self.current_map.get();
            self.peers.call_all(&map, &asked, &mut hold_own, HOLD_TIME)
        };
        let mut outcome = Ok(());
        let held = others.iter().zip(other_answers).chain(own.iter().zip(own_answers));
        for (each, answer) in held {
            match answer {
                Ok(Reply::Held(true)) => {}
                Ok(Reply::Held(false)) => {
                    // Whoever comes now would only see what is about to be taken back.
                    self.stopping.store(true, Ordering::Relaxed);
                    return Err(Unsettled::Lost(**each));
                }
                Ok(_) | Err(_) => outcome = Err(Unsettled::Silent(each.target)),
            }
        }
        outcome
    }
}

impl NodeState {
    fn hold(&self, wanted: &Dependence) -> Answer {
        let Some(target) = self.local(wanted.target) else { return Ok(Reply::Held(false)) };
        target.store.hold(wanted.epoch, wanted.seq).map(Reply::Held).map_err(store_status)
    }
}
