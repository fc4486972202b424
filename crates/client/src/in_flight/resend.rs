//! What is done when a connection is lost, or an engine has refused a change for the moment: everything from
//! the first lost change on is sent again, in order, under the lease if it still holds. The first of them goes by an
//! ordinary request, the others over a new stream behind it.

use std::time::Duration;

use azekura_proto::Status;
use azekura_proto::limits::RELAY_SLOT;
use azekura_proto::message::typed::{self, LeaseWrite};
use azekura_proto::message::{Reply, Request, ShardRef, TypedRequest as _};

use super::change::{Leased, Posted};
use super::stream::Stream;
use super::{Locked, epoch_for, half_of};
use crate::error::{ClientError, Result};
use crate::retry::Exchange;

/// What has not arrived for so long is sent again only if nobody else has been there since.
const GIVE_UP: Duration = Duration::from_secs(20);

impl Locked<'_> {
    /// Sends again what is in flight, and waits until it has arrived.
    ///
    /// # Errors
    /// If the engine cannot be reached. What it has not got is kept.
    pub(super) fn send_again(&mut self) -> Result<()> {
        // What may still be on its way over the old connection is not carried out any more once the next one
        // is there: see `Request::is_fenced`.
        self.give_stream_up();
        if self.state.posted.is_empty() {
            return Ok(());
        }
        self.fence()?;
        self.ask_for_leases_again()?;
        tracing::debug!("{} changes are sent again", self.state.posted.len());
        self.give_up_the_late();
        let mut engines_reach_each_other = true;
        while !self.state.posted.is_empty() {
            self.send_oldest_again()?;
            if engines_reach_each_other {
                engines_reach_each_other = self.send_others_again()?;
            }
        }
        Ok(())
    }

    /// Sends the oldest change again by itself, with all the patience that any request has.
    fn send_oldest_again(&mut self) -> Result<()> {
        let Some(posted) = self.state.posted.front() else { return Ok(()) };
        let request = posted.request(epoch_for(self.session, &self.state.leases, posted));
        let bulk_out = posted.change.bytes();
        let mut exchange = Exchange { bulk_out, ..Exchange::new(posted.target, &request) };
        match self.session.call(&mut exchange) {
            Ok(_) => {
                let answered = self.state.posted.pop_front();
                self.state.done.extend(answered.and_then(|posted| posted.reference));
            }
            Err(error) if error.is_unreached() => return Err(error),
            Err(ClientError::Status(Status::ConditionFailed)) if !self.state.leases.is_empty() => {
                // The lease has run out meanwhile, and others have been there. Whether what the change was judged
                // by still holds is told without one.
                self.give_leases_up();
            }
            Err(error) => self.fail_oldest(error),
        }
        Ok(())
    }

    /// Sends all that is left again over a new stream, until something goes wrong there too: then what is not there is
    /// still the last part, and its oldest comes next. Tells whether engines reach each other, as far as it shows.
    fn send_others_again(&mut self) -> Result<bool> {
        let Some(target) = self.state.posted.front().map(|posted| posted.target) else {
            return Ok(true);
        };
        self.open_stream(target)?;
        let (mut under_way, mut are_apart) = (0, false);
        let mut is_whole = self.state.stream.is_some();
        while is_whole && !self.state.posted.is_empty() {
            while is_whole && under_way < self.state.posted.len() && self.has_room_for(under_way) {
                is_whole = self.send(under_way);
                under_way += usize::from(is_whole);
            }
            if under_way == 0 {
                break;
            }
            let answer = self.state.stream.as_mut().map(Stream::wait);
            are_apart = matches!(answer, Some(Ok(Err(Status::PeerUnreachable))));
            let is_noted = answer.is_some_and(|answer| answer.is_ok_and(|it| self.note(it)));
            is_whole = is_whole && is_noted;
            under_way -= 1;
        }
        if !is_whole {
            self.give_stream_up();
            self.fence()?;
        }
        Ok(!are_apart)
    }

    /// The stream is of no further use. What is under way over it may still come to engines through the one of the
    /// connection, whatever becomes of it here. Where there is but that one it is the connection that is fenced.
    fn give_stream_up(&mut self) {
        let map = self.session.map();
        if self.state.stream.take().is_none() || map.engines.len() == 1 {
            return;
        }
        let super::State { posted, to_fence, .. } = &mut *self.state;
        let with_engine = |posted: &Posted| Some((map.engine_of(posted.target)?, posted.target));
        to_fence.extend(posted.iter().filter_map(with_engine));
    }

    /// What engines still have under way of streams that were given up is not carried out from now on.
    pub(super) fn fence(&mut self) -> Result<()> {
        if self.state.to_fence.is_empty() {
            return Ok(());
        }
        let request = Request::Fence { slots: vec![(RELAY_SLOT, self.state.streams)] };
        let targets = self.state.to_fence.values();
        let mut exchanges: Vec<_> =
            targets.map(|target| Exchange::new(*target, &request)).collect();
        self.session.fan_out(&mut exchanges).into_iter().try_for_each(|fenced| fenced.map(drop))?;
        self.state.to_fence.clear();
        Ok(())
    }

    /// Takes the leases up again before they run out, with nothing under way.
    pub(crate) fn renew_leases(&mut self) -> Result<()> {
        self.arrive()?;
        self.make_way()?;
        if self.state.leases.is_empty() { Ok(()) } else { self.ask_for_leases_again() }
    }

    /// Takes the leases up again under new epochs; if others have been there since, there are none any more.
    fn ask_for_leases_again(&mut self) -> Result<()> {
        // They are asked for over its connection: to make another takes several round trips.
        self.close();
        let asked = self.now();
        let leases: Vec<(Leased, super::Lease)> =
            self.state.leases.iter().map(|(leased, lease)| (*leased, *lease)).collect();
        let requests: Vec<_> = leases
            .iter()
            .map(|((oid, shard), lease)| {
                let data = ShardRef { oid: *oid, shard: *shard, is_file: false };
                LeaseWrite { data, instead_of: Some(lease.epoch) }.into_request()
            })
            .collect();
        let mut exchanges: Vec<_> = leases
            .iter()
            .zip(&requests)
            .map(|((_, lease), request)| Exchange::new(lease.target, request))
            .collect();
        let replies: Vec<Result<Reply>> = self.session.fan_out(&mut exchanges);
        let mut all = true;
        for (reply, (leased, _)) in replies.into_iter().zip(leases) {
            match reply.map(LeaseWrite::read) {
                Ok(Some(typed::Leased { lease_ms, version })) if lease_ms > 0 => {
                    if let Some(lease) = self.state.leases.get_mut(&leased) {
                        lease.epoch = version;
                        lease.may_answer_until = half_of(asked, lease_ms);
                    }
                }
                Err(error) if error.is_unreached() => return Err(error),
                _ => all = false,
            }
        }
        if !all {
            self.give_leases_up();
        }
        Ok(())
    }

    /// There are no leases any more. Those that were given run out by themselves: nobody renews them.
    fn give_leases_up(&mut self) {
        self.state.leases.clear();
        self.begin_generation();
        self.refuse();
    }

    /// What others may have taken the place of is not written over any more.
    fn give_up_the_late(&mut self) {
        let now = self.now();
        while let Some(oldest) = self.state.posted.front()
            && !self.state.leases.contains_key(&oldest.root)
            && now.saturating_duration_since(oldest.sent) >= GIVE_UP
        {
            self.fail_oldest(Status::Io.into());
        }
    }
}
