//! An engine as a transport of its own process calls it. Owns nothing but the count of its visitors: it is
//! the service under the traits that `azekura_rpc` has for it. Whoever calls has the pool's secret already.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use azekura_proto::limits::CONNECTIONS_MAX;
use azekura_proto::message::{Answer, Refusal, Request, RequestHead, Welcome};
use azekura_rpc::transport::{self, Data, Guest, Kept, Visit};

use crate::engine_state::EngineState;
use crate::requests::attachment::Attachment;
use crate::requests::bulk::{BulkIn, BulkOut, FileRange};
use crate::service::Service;

impl transport::Service for Service {
    fn admit(&self, guest: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal> {
        let (mut attachment, welcome) = self.attach(guest.session, guest.role, false)?;
        attachment.carry_descriptors();
        Ok((Box::new(attachment), welcome))
    }
}

impl Visit for Attachment {
    fn serve(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> io::Result<Option<(Answer, Data)>> {
        let mut buffer = Vec::new();
        let response = Self::serve(self, head, request, BulkIn::Bytes(bulk), &mut buffer)?;
        let Some(answer) = response.answer else { return Ok(None) };
        let bytes = match response.bulk {
            BulkOut::None => 0,
            BulkOut::Bytes(data) => data.len(),
            BulkOut::Descriptor(descriptor) => {
                return Ok(Some((answer, Data::Descriptor(descriptor))));
            }
            BulkOut::File(range) => return Ok(Some((answer, Data::Kept(Box::new(range))))),
        };
        // They lie at its start.
        buffer.truncate(bytes);
        Ok(Some((answer, Data::Bytes(buffer))))
    }
}

impl Kept for FileRange {
    fn bytes(&self) -> usize {
        self.bytes as usize
    }

    fn read(&self, at: usize, buffer: &mut [u8]) -> io::Result<()> {
        self.read_part(at as u64, buffer).map_err(|status| io::Error::other(status.to_string()))
    }
}

/// A listening engine, for callers of its own process. They count as connections: an engine that stops
/// waits for them.
pub(crate) struct Door(Weak<EngineState>);

impl Door {
    pub(crate) fn of(state: &Arc<EngineState>) -> Self {
        Self(Arc::downgrade(state))
    }
}

impl transport::Service for Door {
    fn admit(&self, guest: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal> {
        let state = self.0.upgrade().ok_or(Refusal::Stopping)?;
        let place = Place::take(state);
        let service = place.0.service().ok_or(Refusal::Stopping)?;
        if guest.pool != service.pool() {
            return Err(Refusal::WrongPool);
        }
        if place.0.open_connections.load(Ordering::Relaxed) > CONNECTIONS_MAX {
            return Err(Refusal::Full);
        }
        let (mut attachment, welcome) = service.attach(guest.session, guest.role, false)?;
        attachment.carry_descriptors();
        Ok((Box::new(Visitor { attachment, _place: place }), welcome))
    }
}

/// A caller that has been let in.
struct Visitor {
    attachment: Attachment,
    /// Given back after the attachment has gone.
    _place: Place,
}

impl Visit for Visitor {
    fn serve(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> io::Result<Option<(Answer, Data)>> {
        Visit::serve(&mut self.attachment, head, request, bulk)
    }
}

/// A place among the connections.
struct Place(Arc<EngineState>);

impl Place {
    fn take(state: Arc<EngineState>) -> Self {
        state.open_connections.fetch_add(1, Ordering::AcqRel);
        state.metrics.connections.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.open_connections.fetch_sub(1, Ordering::AcqRel);
    }
}
