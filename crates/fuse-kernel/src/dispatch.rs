//! From a message to the handler, whichever way it came. Owns what is answered without the handler;
//! knows neither threads nor rings.

use std::sync::Arc;

use rustix::io::Errno;

use crate::channel::Channel;
use crate::handler::Handler;
use crate::operation::{Operation, Write};
use crate::reply::{Replier, Way};
use crate::request::{Message, ParseError, Request};

/// Brings messages to a handler.
pub(crate) struct Dispatcher<H> {
    pub(crate) channel: Arc<Channel>,
    pub(crate) handler: Arc<H>,
}

impl<H: Handler> Dispatcher<H> {
    /// Deals with one message. The answer goes by `way`, now or later; `false` if there will be none.
    pub(crate) fn dispatch(
        &self,
        parsed: Result<Message<'_>, ParseError>,
        way: impl FnOnce() -> Way,
    ) -> bool {
        match parsed {
            Ok(Message::Request(request)) => {
                let unique = request.header.unique;
                tracing::trace!(unique, node = request.header.node, "{:?}", Brief(&request));
                self.handler.handle(request, Replier::new(way(), unique));
            }
            Ok(Message::Forget(forgets)) => {
                forgets.for_each(|node, count| self.handler.forget(node, count));
                return false;
            }
            Ok(Message::Interrupt { target }) => {
                self.handler.interrupt(target);
                return false;
            }
            Ok(Message::Destroy { unique }) => {
                self.handler.destroy();
                way().reply(unique, [&[], &[]]);
            }
            Ok(Message::Ignored) => return false,
            // A second handshake on a served mount has no meaning.
            Ok(Message::Init { unique, .. }) => way().reply_error(unique, Errno::IO),
            Err(ParseError::NoHeader) => {
                tracing::warn!("a FUSE message without a whole header");
                return false;
            }
            Err(ParseError::Malformed { unique, opcode }) => {
                tracing::warn!(unique, opcode, "malformed FUSE message");
                way().reply_error(unique, Errno::IO);
            }
            Err(ParseError::Unknown { unique, opcode }) => {
                tracing::debug!(unique, opcode, "FUSE operation that is not served");
                way().reply_error(unique, Errno::NOSYS);
            }
        }
        true
    }
}

/// Shows a request in the log without the data of a write.
struct Brief<'a>(&'a Request<'a>);

impl std::fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.operation {
            Operation::Write(Write { fh, offset, data, flags, .. }) => {
                write!(f, "Write {{ fh: {fh}, offset: {offset}, ")?;
                write!(f, "bytes: {}, flags: {flags:#x} }}", data.len())
            }
            ref other => std::fmt::Debug::fmt(other, f),
        }
    }
}
