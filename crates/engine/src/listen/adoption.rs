//! What an engine answers before it belongs to a pool: what it has, and `Adopt`. Owns nothing else;
//! a connection that asks for more is told that the engine does not serve it.

use azekura_proto::frame;
use azekura_proto::message::{
    Answer, EngineReport, Reply, Request, RequestHead, SpaceStat, TargetReport, Welcome,
};
use azekura_proto::{EngineId, Incarnation, PoolId, Status, TargetId};
use azekura_wire::{Acceptor, Connection, RecvError, Socket};

use crate::engine_state::EngineState;
use crate::listen::connection::bound_frames;
use crate::listen::handshakes::HandshakePermit;
use crate::report::resident_bytes;

/// Serves a connection until it ends.
pub(crate) fn serve(state: &EngineState, socket: Socket, handshake: HandshakePermit) {
    let acceptor = Acceptor { secret: &state.config.secret, pool: PoolId::NONE, tickets: None };
    let welcome = Welcome {
        engine: EngineId(0),
        incarnation: Incarnation(0),
        map_version: 0,
        fresh_session: true,
    };
    let mut connection = match acceptor.receive(socket, |_| Ok(welcome)) {
        Ok(arrival) => arrival.connection,
        Err(error) => {
            tracing::warn!("connection refused: {error}");
            return;
        }
    };
    drop(handshake);
    if bound_frames(&mut connection).is_err() {
        return;
    }
    while answer(state, &mut connection).is_some() {}
}

fn answer(state: &EngineState, connection: &mut Connection) -> Option<()> {
    let body = match connection.recv() {
        Ok((_, body)) => body,
        Err(RecvError::Idle) => return Some(()),
        Err(_) => return None,
    };
    let (_, request): (RequestHead, Request<'_>) = frame::decode_borrowed(body).ok()?;
    let answer: Answer = match request {
        Request::Ping => Ok(Reply::Done),
        Request::Report => Ok(Reply::Report(Box::new(report(state)))),
        Request::Adopt { map, engine } => state.adopt(&map, engine).map(|()| Reply::Done),
        _ => Err(Status::Unsupported),
    };
    connection.queue(&answer, 0).ok()?;
    connection.flush(&[]).ok()
}

fn report(state: &EngineState) -> EngineReport {
    let dir = state.config.engine_dir();
    let targets = (0..state.config.target_count).map(|index| TargetReport {
        target: TargetId(index),
        path: dir.target_dir(usize::from(index)).display().to_string(),
        space: SpaceStat::default(),
        reclaim_backlog: 0,
        transactions: 0,
        set_aside: 0,
    });
    EngineReport {
        engine: EngineId(0),
        pid: std::process::id(),
        uptime_s: 0,
        stopping: state.is_stopping(),
        targets: targets.collect(),
        sessions: 0,
        connections: 0,
        requests: 0,
        read_bytes: 0,
        written_bytes: 0,
        requests_per_s: 0,
        read_bytes_per_s: 0,
        written_bytes_per_s: 0,
        resident_bytes: resident_bytes(),
    }
}
