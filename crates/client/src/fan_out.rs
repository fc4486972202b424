//! Several requests at once. Owns pipelining: everything is sent first, engine by engine over one
//! connection each, and the replies are collected in order. What fails on the way is left to
//! [`crate::retry`], one request after another.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_platform::Platform;
use azekura_proto::message::{Reply, Request, TypedRequest};
use azekura_proto::status::StatusClass;
use azekura_proto::{EngineId, Status, TargetId};
use azekura_rpc::{Attempt, Attempts, Channel, Destination, Failure, Outgoing};

use crate::error::{ClientError, Result};
use crate::link::{Borrowed, Link, connect_all};
use crate::retry::Exchange;
use crate::session::Session;

/// One request of a fan-out.
#[derive(Debug)]
pub struct Call<'a, R> {
    /// The target.
    pub target: TargetId,
    /// Where bulk data of the reply go. More data than fit are a breach of the protocol.
    pub bulk_in: &'a mut [u8],
    request: Request<'a>,
    bulk_out: &'a [u8],
    is_ordered: bool,
    kind: PhantomData<fn() -> R>,
}

impl<'a, R: TypedRequest<'a>> Call<'a, R> {
    /// A request without bulk data.
    pub fn new(target: TargetId, request: R) -> Self {
        Self {
            target,
            bulk_in: &mut [],
            request: request.into_request(),
            bulk_out: &[],
            is_ordered: false,
            kind: PhantomData,
        }
    }

    /// A write that comes after those before it among the calls to its engine, also where some
    /// have to be repeated. Once one of them has not reached the engine, later ones are not sent again:
    /// they share its error, though they may have been carried out.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.is_ordered = true;
        self
    }

    /// A request that sends bulk data.
    pub fn sending(target: TargetId, request: R, bulk_out: &'a [u8]) -> Self {
        Self { bulk_out, ..Self::new(target, request) }
    }

    /// A request that fetches bulk data.
    pub fn fetching(target: TargetId, request: R, bulk_in: &'a mut [u8]) -> Self {
        Self { bulk_in, ..Self::new(target, request) }
    }
}

impl<'a, R> Call<'a, R> {
    /// The same among requests of other kinds.
    pub(crate) fn untyped(self) -> Call<'a, ()> {
        let Self { target, bulk_in, request, bulk_out, is_ordered, .. } = self;
        Call { target, bulk_in, request, bulk_out, is_ordered, kind: PhantomData }
    }

    pub(crate) fn exchange(&mut self) -> Exchange<'_, 'a> {
        Exchange {
            target: self.target,
            request: &self.request,
            bulk_out: self.bulk_out,
            bulk_in: self.bulk_in,
            is_ordered: self.is_ordered,
        }
    }
}

/// Since when nothing has come. One bound for all calls, however many engines are silent; but as long as
/// answers come, a fan-out may take as long as its data need.
struct Pace<'p> {
    platform: &'p dyn Platform,
    since: Cell<Instant>,
}

impl<'p> Pace<'p> {
    fn new(platform: &'p dyn Platform) -> Self {
        Self { platform, since: Cell::new(platform.now()) }
    }

    fn since(&self) -> Instant {
        self.since.get()
    }

    fn gone(&self) -> Duration {
        self.platform.elapsed(self.since.get())
    }

    fn note_progress(&self) {
        self.since.set(self.platform.now());
    }
}

/// How far a call has come.
#[derive(Default)]
struct Progress {
    result: Option<Result<Reply>>,
    sequence: u64,
    sent: bool,
}

/// The way to an engine that takes part.
struct Stream {
    engine: EngineId,
    map_version: u32,
    way: Way,
    /// Its requests are carried out by the thread that sends them.
    is_called: bool,
    /// The engine was silent for all of the time: what had no answer gets none.
    is_late: bool,
    /// Ordered calls are being repeated.
    repeats: bool,
    /// Why one of them has not reached the engine: those behind it must not be tried.
    failure: Option<ClientError>,
}

#[expect(clippy::large_enum_variant, reason = "one for each engine, and the large one is the rule")]
enum Way {
    /// Calls are in flight by their index.
    Channel(Channel<Borrowed, usize>),
    /// There is no connection: one at a time.
    Single(Borrowed),
}

impl Session {
    /// Sends all calls, then collects their answers.
    pub(crate) fn fan_out(&self, calls: &mut [Exchange<'_, '_>]) -> Vec<Result<Reply>> {
        self.fan_out_once(calls).0
    }

    /// As [`Session::fan_out`]. Tells whether none of the calls had to be repeated.
    pub(crate) fn fan_out_once(
        &self,
        calls: &mut [Exchange<'_, '_>],
    ) -> (Vec<Result<Reply>>, bool) {
        if let [call] = calls {
            // There is no other that it could have come behind.
            return (vec![self.call(call)], true);
        }
        let pace = Pace::new(&*self.identity().platform);
        let begun = pace.since();
        let mut progress: Vec<Progress> = calls.iter().map(|_| Progress::default()).collect();
        let mut streams = self.open_streams(calls, &mut progress, &pace);
        // What this thread carries out itself begins when the others have theirs.
        for is_called in [false, true] {
            self.send_all(&mut streams, is_called, calls, &mut progress, &pace);
        }
        for stream in &mut streams {
            while stream.collect(calls, &mut progress, &pace) {}
        }
        if calls.iter().any(Exchange::has_data) {
            for stream in &mut streams {
                stream.look_at_distance(begun);
            }
        }
        let is_once = progress.iter().all(|progress| progress.result.is_some());
        let replies = calls
            .iter_mut()
            .zip(progress)
            .map(|(call, progress)| self.complete(&mut streams, call, progress, &pace))
            .collect();
        (replies, is_once)
    }

    /// Sends the calls that go over streams of this kind.
    fn send_all(
        &self,
        streams: &mut [Stream],
        is_called: bool,
        calls: &mut [Exchange<'_, '_>],
        progress: &mut [Progress],
        pace: &Pace<'_>,
    ) {
        if streams.iter().all(|stream| stream.is_called != is_called) {
            return;
        }
        for index in 0..calls.len() {
            if progress[index].result.is_none()
                && let Some(stream) = self.stream_of(streams, &calls[index])
                && stream.is_called == is_called
            {
                stream.send(calls, progress, index, pace);
            }
        }
        for stream in streams.iter_mut().filter(|stream| stream.is_called == is_called) {
            stream.flush();
        }
    }

    /// A fan-out of two.
    #[expect(clippy::expect_used, reason = "each call has its reply")]
    pub(crate) fn both(
        &self,
        one: Exchange<'_, '_>,
        other: Exchange<'_, '_>,
    ) -> (Result<Reply>, Result<Reply>) {
        let replies = self.fan_out(&mut [one, other]);
        <[_; 2]>::try_from(replies).expect("as many replies as calls").into()
    }

    /// The result of a call, which is repeated if it has none.
    fn complete(
        &self,
        streams: &mut [Stream],
        call: &mut Exchange<'_, '_>,
        mut progress: Progress,
        pace: &Pace<'_>,
    ) -> Result<Reply> {
        let is_behind = call.is_ordered && self.follows_a_repeated_one(streams, call);
        if is_behind {
            // What is repeated may have written over it, or is what it could not be done without.
            progress.result = None;
        }
        if let Some(result) = progress.result {
            return result;
        }
        let Some(stream) = self.stream_of(streams, call) else {
            // A new map came in between.
            return self.call(call);
        };
        stream.repeats |= call.is_ordered;
        let result = match &stream.failure {
            Some(error) if call.is_ordered => Err(error.clone()),
            _ => self.redo(stream, call, &progress, pace),
        };
        if let Err(error) = &result
            && call.is_ordered
            && error.is_unreached()
        {
            stream.failure.get_or_insert_with(|| error.clone());
        }
        result
    }

    /// A stream to each engine that takes part, borrowed in the order of the engines, so that two
    /// fan-outs never wait for each other.
    fn open_streams(
        &self,
        calls: &[Exchange<'_, '_>],
        progress: &mut [Progress],
        pace: &Pace<'_>,
    ) -> Vec<Stream> {
        let mut links: Vec<(Arc<Link>, u32)> = Vec::new();
        for (call, progress) in calls.iter().zip(&mut *progress) {
            match self.link(call.target) {
                Ok(found) => {
                    if links.iter().all(|(link, _)| link.engine != found.0.engine) {
                        links.push(found);
                    }
                }
                Err(error) => progress.result = Some(Err(error)),
            }
        }
        links.sort_by_key(|(link, _)| link.engine);
        let mut borrowed = Vec::with_capacity(links.len());
        for (link, map_version) in links {
            let engine = link.engine;
            match self.borrow(link) {
                Ok(slot) => borrowed.push((slot, map_version)),
                Err(error) => {
                    for (call, progress) in calls.iter().zip(&mut *progress) {
                        if self.link(call.target).is_ok_and(|(link, _)| link.engine == engine) {
                            progress.result = Some(Err(error.clone()));
                        }
                    }
                }
            }
        }
        connect_all(borrowed.iter_mut().map(|(slot, _)| slot), pace.gone());
        let streams = borrowed.into_iter().map(|(borrowed, map_version)| Stream {
            engine: borrowed.link.engine,
            is_called: borrowed.link.is_called,
            map_version,
            way: Way::of(borrowed, map_version, pace.gone()),
            is_late: false,
            repeats: false,
            failure: None,
        });
        streams.collect()
    }

    /// Whether an ordered call to the same engine has been repeated.
    fn follows_a_repeated_one(&self, streams: &[Stream], call: &Exchange<'_, '_>) -> bool {
        let mut repeated = streams.iter().filter(|stream| stream.repeats).peekable();
        repeated.peek().is_some()
            && self
                .link(call.target)
                .is_ok_and(|(link, _)| repeated.any(|stream| stream.engine == link.engine))
    }

    /// The stream that a call goes over; `None` if its engine was none of those of the calls when they
    /// were opened.
    fn stream_of<'s>(
        &self,
        streams: &'s mut [Stream],
        call: &Exchange<'_, '_>,
    ) -> Option<&'s mut Stream> {
        let engine = self.link(call.target).ok()?.0.engine;
        streams.iter_mut().find(|stream| stream.engine == engine)
    }

    /// One call again, after its stream broke or the engine wanted it repeated.
    fn redo(
        &self,
        stream: &mut Stream,
        call: &mut Exchange<'_, '_>,
        progress: &Progress,
        pace: &Pace<'_>,
    ) -> Result<Reply> {
        let map_version = stream.map_version;
        let borrowed = stream.way.slot();
        if stream.is_late {
            return Err(self.failed(&borrowed.link, &Failure::Late));
        }
        let attempt = match progress.sequence {
            0 => Attempt { sequence: borrowed.sequence_for(call.request), resent: false },
            sequence => Attempt { sequence, resent: progress.sent },
        };
        let attempts = Attempts::new(attempt, call.request, pace.since());
        let reply = self.drive(borrowed, call, attempts, map_version);
        if reply.is_ok() {
            pace.note_progress();
        }
        reply
    }
}

impl Way {
    fn of(mut borrowed: Borrowed, map_version: u32, gone: Duration) -> Self {
        let (link, slot) = borrowed.parts();
        if slot.is_connected()
            && let Err(failure) = link.reach(slot, map_version, true, gone)
        {
            slot.disconnect();
            tracing::debug!("no connection for several requests: {failure}");
        }
        match Channel::open(borrowed) {
            Ok(channel) => Self::Channel(channel),
            Err(borrowed) => Self::Single(borrowed),
        }
    }

    /// The slot, once nothing is wanted any more of what was in flight.
    fn slot(&mut self) -> &mut Borrowed {
        match self {
            Self::Channel(channel) => channel.close(),
            Self::Single(borrowed) => borrowed,
        }
    }
}

impl Stream {
    fn channel(&mut self) -> Option<&mut Channel<Borrowed, usize>> {
        match &mut self.way {
            Way::Channel(channel) if channel.is_whole() => Some(channel),
            Way::Channel(_) | Way::Single(_) => None,
        }
    }

    fn send(
        &mut self,
        calls: &mut [Exchange<'_, '_>],
        progress: &mut [Progress],
        index: usize,
        pace: &Pace<'_>,
    ) {
        let map_version = self.map_version;
        loop {
            let Some(channel) = self.channel() else { return };
            let Exchange { request, bulk_out, .. } = &calls[index];
            if channel.has_room(request, bulk_out) {
                break;
            }
            self.flush();
            self.collect(calls, progress, pace);
        }
        let Some(channel) = self.channel() else { return };
        let Exchange { target, request, bulk_out, bulk_in, .. } = &calls[index];
        let sequence = channel.slot().sequence_for(request);
        let to = Destination { target: *target, map_version };
        let outgoing = Outgoing { to, request, bulk: bulk_out, reply_bytes_max: bulk_in.len() };
        let sent = channel.submit(outgoing, Attempt { sequence, resent: false }, index);
        progress[index].sequence = sequence;
        progress[index].sent = !matches!(sent, Err(Failure::TooLarge));
        match sent {
            Err(failure) => self.fail(&mut progress[index], &failure),
            // It has been answered already, and took what it took: others have their time from now on.
            Ok(()) if self.is_called => pace.note_progress(),
            Ok(()) => {}
        }
    }

    /// All has come that was asked for then, some of it data.
    fn look_at_distance(&mut self, begun: Instant) {
        let map_version = self.map_version;
        if let Some(channel) = self.channel()
            && channel.slot().link.doubts_distance(begun)
        {
            let (link, slot) = channel.close().parts();
            link.ask_distance(slot, map_version);
        }
    }

    fn flush(&mut self) {
        if let Some(channel) = self.channel()
            && channel.flush().is_err()
        {
            channel.end();
        }
    }

    /// Takes in the answer to the oldest call; false if nothing is in flight any more.
    fn collect(
        &mut self,
        calls: &mut [Exchange<'_, '_>],
        progress: &mut [Progress],
        pace: &Pace<'_>,
    ) -> bool {
        let Some(channel) = self.channel() else { return false };
        let Some(&mut oldest) = channel.oldest() else { return false };
        let progress = &mut progress[oldest];
        let answer = channel.wait(calls[oldest].bulk_in, pace.gone()).map(|(_, answer)| answer);
        if answer.is_ok() {
            channel.slot().link.note_up();
            pace.note_progress();
        }
        match answer {
            Ok(Ok(reply)) => progress.result = Some(Ok(reply)),
            // Sent again as the same request, which may have been carried out in part.
            Ok(Err(Status::PeerUnreachable)) => {
                if progress.sequence > 0 {
                    // Nothing with a higher number may come before it.
                    channel.end();
                }
            }
            Ok(Err(status)) => match status.class() {
                StatusClass::Caller | StatusClass::Fatal => {
                    progress.result = Some(Err(status.into()));
                }
                // It was not carried out: it is sent again as a new request.
                StatusClass::Retry | StatusClass::RefreshMap => progress.sequence = 0,
            },
            Err(failure) => self.fail(progress, &failure),
        }
        true
    }

    /// The connection is of no further use; a call that it is to blame for has its result.
    fn fail(&mut self, progress: &mut Progress, failure: &Failure) {
        progress.result = match failure {
            Failure::TooLarge => Some(Err(ClientError::TooLarge)),
            Failure::Protocol(what) => {
                Some(Err(ClientError::Protocol { engine: self.engine, what }))
            }
            Failure::Broken(_) | Failure::Late => None,
        };
        self.is_late |= matches!(failure, Failure::Late);
        if let Some(channel) = self.channel() {
            channel.end();
        }
    }
}
