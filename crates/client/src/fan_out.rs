//! Several requests at once. Owns pipelining: everything is sent first, engine by engine over one
//! connection each, and the replies are collected in order. What fails on the way is left to
//! [`crate::retry`], one request after another.

use std::collections::VecDeque;
use std::sync::Arc;

use azekura_proto::limits::FRAME_BULK_BYTES_MAX;
use azekura_proto::message::{Reply, Request};
use azekura_proto::status::StatusClass;
use azekura_proto::{Status, TargetId};

use crate::error::{ClientError, Result};
use crate::lane::LaneError;
use crate::link::{Borrowed, Link};
use crate::retry::{Attempts, Job, patience};
use crate::session::Session;

/// Requests under way on one connection: their answers fit into the socket's buffer, so that
/// neither side waits for the other to read.
const WINDOW_REQUESTS: usize = 64;
/// Bulk bytes under way to an engine on one connection.
const WINDOW_BYTES: usize = FRAME_BULK_BYTES_MAX as usize;
/// Small requests are sent together up to this size.
const QUEUE_BYTES: usize = 32 * 1024;

/// One request of a fan-out.
#[derive(Debug)]
pub struct Call<'a> {
    /// The target.
    pub target: TargetId,
    /// What is asked.
    pub request: Request<'a>,
    /// Bulk data to send.
    pub bulk_out: &'a [u8],
    /// Where bulk data of the reply go. More data than fit are a breach of the protocol.
    pub bulk_in: &'a mut [u8],
    result: Option<Result<Reply>>,
    sequence: u64,
    sent: bool,
    /// It must not be carried out after a later one.
    ordered: bool,
}

impl<'a> Call<'a> {
    /// A request without bulk data.
    pub fn new(target: TargetId, request: Request<'a>) -> Self {
        Self {
            target,
            request,
            bulk_out: &[],
            bulk_in: &mut [],
            result: None,
            sequence: 0,
            sent: false,
            ordered: false,
        }
    }

    /// A write that comes after those before it among the calls to its engine, also where some
    /// have to be repeated. Once one of them has not reached the engine, later ones are not sent again:
    /// they share its error, though they may have been carried out.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// A request that sends bulk data.
    pub fn sending(target: TargetId, request: Request<'a>, bulk_out: &'a [u8]) -> Self {
        Self { bulk_out, ..Self::new(target, request) }
    }

    /// A request that fetches bulk data.
    pub fn fetching(target: TargetId, request: Request<'a>, bulk_in: &'a mut [u8]) -> Self {
        Self { bulk_in, ..Self::new(target, request) }
    }

    /// The answer, once; before the fan-out and the second time it is `TooLarge`.
    pub fn take_result(&mut self) -> Result<Reply> {
        self.result.take().unwrap_or(Err(ClientError::TooLarge))
    }
}

/// A lane in use by a fan-out.
struct Stream {
    borrowed: Borrowed,
    map_version: u32,
    /// Calls that were sent and not answered, oldest first.
    pending: VecDeque<usize>,
    pending_bytes: usize,
    exact_pending: bool,
    broken: bool,
    /// Ordered calls are being repeated.
    repeats: bool,
    /// Why one of them has not reached the engine: those behind it must not be tried.
    failure: Option<ClientError>,
}

impl Session {
    /// Sends all calls, then collects their answers.
    pub(crate) fn fan_out(&self, calls: &mut [Call<'_>]) {
        if let [call] = calls {
            let mut job = Job {
                target: call.target,
                request: &call.request,
                bulk_out: call.bulk_out,
                bulk_in: call.bulk_in,
            };
            call.result = Some(self.call(&mut job));
            return;
        }
        let mut streams = self.open_streams(calls);
        for index in 0..calls.len() {
            if let Some(stream) = self.stream_of(&mut streams, &mut calls[index]) {
                stream.send(calls, index);
            }
        }
        for stream in &mut streams {
            stream.flush();
        }
        for stream in &mut streams {
            while let Some(index) = stream.pending.pop_front() {
                stream.collect(calls, index);
            }
        }
        for call in calls.iter_mut() {
            let is_behind = call.ordered && self.follows_a_repeated_one(&streams, call);
            if is_behind && matches!(call.result, Some(Ok(_))) {
                // What is repeated may have written over it.
                call.result = None;
            }
            let Some(stream) = self.stream_of(&mut streams, call) else { continue };
            stream.repeats |= call.ordered;
            let result = match &stream.failure {
                Some(error) if call.ordered => Err(error.clone()),
                _ => self.redo(stream, call),
            };
            if let Err(error) = &result
                && call.ordered
                && error.is_unreached()
            {
                stream.failure.get_or_insert_with(|| error.clone());
            }
            call.result = Some(result);
        }
    }

    /// A stream to each engine that takes part, borrowed in the order of the engines, so that two
    /// fan-outs never wait for each other.
    fn open_streams(&self, calls: &mut [Call<'_>]) -> Vec<Stream> {
        let mut links: Vec<(Arc<Link>, u32)> = Vec::new();
        for call in calls.iter_mut() {
            match self.link(call.target) {
                Ok(found) => {
                    if links.iter().all(|(link, _)| link.engine != found.0.engine) {
                        links.push(found);
                    }
                }
                Err(error) => call.result = Some(Err(error)),
            }
        }
        links.sort_by_key(|(link, _)| link.engine);
        let mut streams = Vec::with_capacity(links.len());
        for (link, map_version) in links {
            let engine = link.engine;
            match self.borrow(link) {
                Ok(borrowed) => streams.push(Stream {
                    borrowed,
                    map_version,
                    pending: VecDeque::new(),
                    pending_bytes: 0,
                    exact_pending: false,
                    broken: false,
                    repeats: false,
                    failure: None,
                }),
                Err(error) => {
                    for call in calls.iter_mut() {
                        if self.link(call.target).is_ok_and(|(link, _)| link.engine == engine) {
                            call.result = Some(Err(error.clone()));
                        }
                    }
                }
            }
        }
        streams
    }

    /// Whether an ordered call to the same engine has been repeated.
    fn follows_a_repeated_one(&self, streams: &[Stream], call: &Call<'_>) -> bool {
        let mut repeated = streams.iter().filter(|stream| stream.repeats).peekable();
        repeated.peek().is_some()
            && self.link(call.target).is_ok_and(|(link, _)| {
                repeated.any(|stream| stream.borrowed.link.engine == link.engine)
            })
    }

    /// The stream that a call goes over; `None` if it has its result already.
    fn stream_of<'s>(
        &self,
        streams: &'s mut [Stream],
        call: &mut Call<'_>,
    ) -> Option<&'s mut Stream> {
        if call.result.is_some() {
            return None;
        }
        let engine = self.link(call.target).ok()?.0.engine;
        let found = streams.iter_mut().find(|stream| stream.borrowed.link.engine == engine);
        if found.is_none() {
            // A new map came in between: one at a time then.
            let mut job = Job {
                target: call.target,
                request: &call.request,
                bulk_out: call.bulk_out,
                bulk_in: call.bulk_in,
            };
            call.result = Some(self.call(&mut job));
        }
        found
    }

    /// One call again, after its stream broke or the engine wanted it repeated.
    fn redo(&self, stream: &mut Stream, call: &mut Call<'_>) -> Result<Reply> {
        if call.sequence == 0 {
            call.sequence = stream.borrowed.lane().sequence_for(&call.request);
        }
        let mut attempts = Attempts::new(call.sequence);
        attempts.resent = call.sent && call.sequence > 0;
        let mut job = Job {
            target: call.target,
            request: &call.request,
            bulk_out: call.bulk_out,
            bulk_in: call.bulk_in,
        };
        self.drive(&mut stream.borrowed, &mut job, attempts, stream.map_version)
    }
}

impl Stream {
    fn send(&mut self, calls: &mut [Call<'_>], index: usize) {
        let bulk_bytes = calls[index].bulk_out.len();
        let exact = calls[index].request.needs_exact_retry();
        while !self.pending.is_empty()
            && (self.pending.len() >= WINDOW_REQUESTS
                || self.pending_bytes + bulk_bytes > WINDOW_BYTES
                || exact && self.exact_pending)
        {
            self.flush();
            if let Some(oldest) = self.pending.pop_front() {
                self.collect(calls, oldest);
            }
        }
        if self.broken {
            return;
        }
        if let Err(error) = self.try_send(&mut calls[index]) {
            self.fail(calls, index, error);
            return;
        }
        self.pending.push_back(index);
        self.pending_bytes += bulk_bytes;
        self.exact_pending |= exact;
    }

    fn try_send(&mut self, call: &mut Call<'_>) -> std::result::Result<(), LaneError> {
        let map_version = self.map_version;
        let (link, lane) = self.borrowed.parts();
        if !lane.is_connected() {
            link.connect(lane, link.patience())?;
        }
        call.sequence = lane.sequence_for(&call.request);
        let head = lane.head(call.target, map_version, call.sequence, false);
        lane.queue(&link.holds, head, &call.request, call.bulk_out.len())?;
        call.sent = true;
        if !call.bulk_out.is_empty() || lane.queued_bytes() > QUEUE_BYTES {
            lane.flush(call.bulk_out)?;
        }
        Ok(())
    }

    fn flush(&mut self) {
        if self.broken {
            return;
        }
        let (link, lane) = self.borrowed.parts();
        if lane.is_connected() && lane.flush(&[]).is_err() {
            link.disconnect(lane);
            self.broken = true;
        }
    }

    fn collect(&mut self, calls: &mut [Call<'_>], index: usize) {
        let call = &mut calls[index];
        self.pending_bytes = self.pending_bytes.saturating_sub(call.bulk_out.len());
        if self.broken {
            return;
        }
        let (link, lane) = self.borrowed.parts();
        let got = lane.receive(&link.holds, link.engine, call.bulk_in, patience(&call.request));
        if call.sequence > 0 {
            self.exact_pending = false;
        }
        match got {
            Ok(Ok(reply)) => call.result = Some(Ok(reply)),
            // Sent again as the same request, which may have been carried out in part.
            Ok(Err(Status::PeerUnreachable)) => {}
            Ok(Err(status)) => match status.class() {
                StatusClass::Caller | StatusClass::Fatal => call.result = Some(Err(status.into())),
                // It was not carried out: it is sent again as a new request.
                StatusClass::Retry | StatusClass::RefreshMap => call.sequence = 0,
            },
            Err(error) => self.fail(calls, index, error),
        }
    }

    fn fail(&mut self, calls: &mut [Call<'_>], index: usize, error: LaneError) {
        let (link, lane) = self.borrowed.parts();
        if let LaneError::Final(error) = error {
            calls[index].result = Some(Err(error));
        }
        link.disconnect(lane);
        self.broken = true;
    }
}
