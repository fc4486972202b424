//! What passes between a simulated client and an engine: connections, requests and answers, and what goes
//! wrong with them. Owns what becomes of a request whose connection breaks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use azekura_proto::message::{Answer, Request, RequestHead, Welcome};
use azekura_proto::{EngineId, SessionId, frame};

use super::pool::{Connection, Event, LATE_MS_MAX, Pool};

impl Pool {
    // -- connections

    /// Opens a connection of a session to an engine. `None`: the engine is down, or about to
    /// be.
    pub(crate) fn connect(
        &self,
        engine: EngineId,
        session: SessionId,
    ) -> Option<(Connection, Welcome)> {
        let mut seat = self.seat(engine).lock();
        let (guest, welcome) = seat.run.as_ref()?.let_in(session)?;
        let number = self.number_connection();
        seat.guests.insert(number, guest);
        Some((Connection { engine, session, number }, welcome))
    }

    fn number_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends a connection without a word.
    pub(crate) fn disconnect(&self, connection: Connection) {
        let guest = self.seat(connection.engine).lock().guests.remove(&connection.number);
        drop(guest);
    }

    // -- requests

    fn serve(
        &self,
        connection: Connection,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Option<(Answer, Vec<u8>)> {
        let guest = self.seat(connection.engine).lock().guests.get(&connection.number)?.clone();
        self.enter(connection.engine, |_| guest.call(&head, request, bulk))
    }

    /// Sends a request of a connected client and brings the answer back. `None`: the connection broke.
    pub(crate) fn exchange(
        &self,
        connection: Connection,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Option<(Answer, Vec<u8>)> {
        let engine = connection.engine;
        assert!(
            self.has_threads() || !self.is_entered(engine),
            "clients call between operations of engines"
        );
        let answer = self.exchange_or_fail(connection, head, request, bulk);
        if let Err(what) = &answer {
            self.note(format!("{what}: {} {head:?}", request.name()));
            self.disconnect(connection);
        }
        answer.ok()
    }

    fn exchange_or_fail(
        &self,
        connection: Connection,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Result<(Answer, Vec<u8>), &'static str> {
        let engine = connection.engine;
        self.travel();
        if self.strikes(|faults| faults.power_cut) {
            self.cut_power_soon(engine);
        }
        if self.strikes(|faults| faults.stopped) {
            self.stop(engine);
        }
        if self.strikes(|faults| faults.killed) {
            self.kill(engine);
            return Err("killed before");
        }
        if request.is_fenced() && self.strikes(|faults| faults.request_late) {
            self.repeat_later(connection, head, request, bulk);
            return Err("request late");
        }
        if self.strikes(|faults| faults.request_lost) {
            return Err("request lost");
        }
        let answer = self.serve(connection, head, request, bulk).ok_or("ended inside")?;
        let is_on_record = answer.0.is_ok() && has_record(request);
        if is_on_record && self.strikes(|faults| faults.late_repeat) {
            self.repeat_later(connection, head, request, bulk);
        }
        if self.strikes(|faults| faults.killed) {
            self.kill(engine);
            return Err("killed after");
        }
        if self.strikes(|faults| faults.answer_lost) {
            return Err("answer lost");
        }
        self.travel();
        Ok(answer)
    }

    fn repeat_later(
        &self,
        Connection { engine, number, .. }: Connection,
        head: RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) {
        let mut frame = Vec::new();
        frame::encode_into(&mut frame, &(head, request), bulk.len() as u32).unwrap();
        frame.drain(..frame::HEAD_BYTES);
        let mut seat = self.seat(engine).lock();
        let Some(given_up) = seat.guests.get(&number).cloned() else { return };
        let guest = self.number_connection();
        seat.guests.insert(guest, given_up);
        drop(seat);
        let delay = Duration::from_millis(self.below(LATE_MS_MAX));
        self.plan(delay, Event::Late { engine, guest, frame, bulk: bulk.to_vec() });
    }
}

/// Whether the engine has on record that it has carried such a request out.
fn has_record(request: &Request<'_>) -> bool {
    let makes_inode = matches!(
        request,
        Request::Create { .. }
            | Request::CreateGuarded { .. }
            | Request::CreateToWrite { .. }
            | Request::CreateUnlinked { .. }
    );
    request.needs_exact_retry() && !makes_inode
}
