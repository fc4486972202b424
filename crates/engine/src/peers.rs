//! Connections to the other engines of the pool. Owns how long an engine waits for another: a peer
//! that does not answer in time is unreachable, and the operation fails rather than hangs.

use std::collections::HashMap;
use std::time::Duration;

use azekura_proto::frame;
use azekura_proto::message::{Answer, Request, RequestHead, Role};
use azekura_proto::{EngineId, PoolMap, SessionId, Status, TargetId};
use azekura_wire::{Connection, Secret, connect, dial};
use parking_lot::Mutex;

use crate::node::Node;

/// How long to wait for a peer to accept or to answer.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections kept for each peer.
const IDLE_MAX: usize = 32;

/// The way to the other engines.
pub(crate) struct Peers {
    secret: Secret,
    session: SessionId,
    idle: Mutex<HashMap<EngineId, Vec<Connection>>>,
}

impl Peers {
    pub(crate) fn new(secret: Secret, session: SessionId) -> Self {
        Self { secret, session, idle: Mutex::default() }
    }

    /// Asks a target of another engine, once. A connection that turns out to be dead is replaced
    /// and the request sent again: everything engines ask of each other may be done twice.
    pub(crate) fn call(
        &self,
        map: &PoolMap,
        target: TargetId,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Answer {
        let engine = map.engine_of(target).ok_or(Status::WrongTarget)?;
        loop {
            let (mut connection, fresh) = self.borrow(map, engine)?;
            let sent = send(&mut connection, map, target, request, bulk)
                .and_then(|()| receive(&mut connection));
            match sent {
                Some(answer) => {
                    self.give_back(engine, connection);
                    return answer;
                }
                None if fresh => {
                    tracing::warn!(engine = engine.0, "engine does not answer");
                    return Err(Status::PeerUnreachable);
                }
                None => {}
            }
        }
    }

    /// Asks many targets: first sends everything, then serves what is local, then collects.
    pub(crate) fn fan_out(
        &self,
        node: &Node,
        wanted: &[(TargetId, Request<'static>)],
    ) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = wanted.iter().map(|_| None).collect();
        let mut open: HashMap<EngineId, (Connection, Vec<usize>)> = HashMap::new();
        for (index, (target, request)) in wanted.iter().enumerate() {
            if node.local(*target).is_some() {
                continue;
            }
            let Some(engine) = node.map.engine_of(*target) else { continue };
            if !open.contains_key(&engine)
                && let Ok((connection, _)) = self.borrow(&node.map, engine)
            {
                open.insert(engine, (connection, Vec::new()));
            }
            if let Some((connection, sent)) = open.get_mut(&engine)
                && send(connection, &node.map, *target, request, &[]).is_some()
            {
                sent.push(index);
            }
        }
        for (answer, (target, request)) in answers.iter_mut().zip(wanted) {
            if let Some(local) = node.local(*target) {
                *answer = Some((node.local_call)(node, local, request));
            }
        }
        for (engine, (mut connection, sent)) in open {
            let alive = sent.iter().all(|index| {
                answers[*index] = receive(&mut connection);
                answers[*index].is_some()
            });
            if alive {
                self.give_back(engine, connection);
            }
        }
        // What an old connection lost is asked again, one by one.
        answers
            .into_iter()
            .zip(wanted)
            .map(|(answer, (target, request))| {
                answer.unwrap_or_else(|| self.call(&node.map, *target, request, &[]))
            })
            .collect()
    }

    fn borrow(&self, map: &PoolMap, engine: EngineId) -> Result<(Connection, bool), Status> {
        if let Some(connection) = self.idle.lock().get_mut(&engine).and_then(Vec::pop) {
            return Ok((connection, false));
        }
        let entry = map.engines.get(usize::from(engine.0)).ok_or(Status::WrongTarget)?;
        for address in &entry.addresses {
            let opened = dial(address, PEER_TIMEOUT).map_err(Into::into).and_then(|socket| {
                connect(socket, map.pool, self.session, Role::Engine, &self.secret)
            });
            match opened {
                Ok((connection, welcome)) if welcome.engine == engine => {
                    if connection.socket().set_read_timeout(Some(PEER_TIMEOUT)).is_ok() {
                        return Ok((connection, true));
                    }
                }
                Ok(_) => tracing::warn!(%address, "another engine than expected listens there"),
                Err(error) => tracing::debug!(%address, "no connection: {error}"),
            }
        }
        tracing::warn!(engine = engine.0, "engine cannot be reached");
        Err(Status::PeerUnreachable)
    }

    fn give_back(&self, engine: EngineId, connection: Connection) {
        let mut idle = self.idle.lock();
        let stack = idle.entry(engine).or_default();
        if stack.len() < IDLE_MAX {
            stack.push(connection);
        }
    }
}

fn send(
    connection: &mut Connection,
    map: &PoolMap,
    target: TargetId,
    request: &Request<'_>,
    bulk: &[u8],
) -> Option<()> {
    let head =
        RequestHead { target, map_version: map.version, slot: 0, sequence: 0, resent: false };
    connection.queue(&(head, request), bulk.len() as u32).ok()?;
    connection.flush(bulk).ok()
}

fn receive(connection: &mut Connection) -> Option<Answer> {
    let (head, body) = connection.recv().ok()?;
    let answer = frame::decode::<Answer>(body).ok()?;
    let bulk_bytes = u64::from(head.bulk_bytes);
    connection.discard_bulk(bulk_bytes).ok()?;
    Some(answer)
}
