//! An engine as a transport of this process calls it. Owns nothing: it is the service under the traits
//! that `azekura_rpc` has for it.

use azekura_proto::message::{Answer, Refusal, Request, RequestHead, Welcome};
use azekura_rpc::transport::{self, Guest, Visit};

use crate::requests::attachment::Attachment;
use crate::service::Service;

impl transport::Service for Service {
    fn admit(&self, guest: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal> {
        let (attachment, welcome) = self.attach(guest.session, guest.role, false)?;
        Ok((Box::new(attachment), welcome))
    }
}

impl Visit for Attachment {
    fn serve(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> Option<(Answer, Vec<u8>)> {
        let answered = self.call(head, request, bulk);
        request.has_reply().then_some(answered)
    }
}
