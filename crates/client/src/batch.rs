//! Requests of several kinds that go out at once. Owns that each answer is read as that of its own
//! request. How they travel is the business of [`crate::fan_out`].

use std::marker::PhantomData;

use azekura_proto::TargetId;
use azekura_proto::message::{Reply, TypedRequest};

use crate::error::Result;
use crate::fan_out::Call;
use crate::pool::Pool;

/// Requests that are sent together.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    calls: Vec<Call<'a, ()>>,
}

/// Which answer of a batch belongs to a request.
#[derive(Debug)]
pub struct Ticket<R> {
    place: usize,
    target: TargetId,
    kind: PhantomData<fn() -> R>,
}

/// The answers to a batch.
#[derive(Debug)]
pub struct BatchReplies<'p> {
    pool: &'p Pool,
    replies: Vec<Option<Result<Reply>>>,
    are_in_order: bool,
}

impl<'a> Batch<'a> {
    /// One with room for so many requests.
    pub fn with_capacity(requests: usize) -> Self {
        Self { calls: Vec::with_capacity(requests) }
    }

    /// Adds a request; its target does it after those of its engine that were added before.
    pub fn add<R: TypedRequest<'a>>(&mut self, call: Call<'a, R>) -> Ticket<R> {
        let (place, target) = (self.calls.len(), call.target);
        self.calls.push(call.untyped());
        Ticket { place, target, kind: PhantomData }
    }
}

impl BatchReplies<'_> {
    /// Whether it is certain that requests to one engine were carried out in the order in which they were
    /// added: none had to be repeated.
    pub fn are_in_order(&self) -> bool {
        self.are_in_order
    }

    /// The answer to a request of the batch.
    ///
    /// # Errors
    /// As [`Pool::call`].
    ///
    /// # Panics
    /// If the ticket is of another batch.
    #[expect(clippy::expect_used, clippy::needless_pass_by_value, reason = "a ticket is used up")]
    pub fn take<'a, R: TypedRequest<'a>>(&mut self, ticket: Ticket<R>) -> Result<R::Reply> {
        let Ticket { place, target, .. } = ticket;
        let reply = self.replies.get_mut(place).and_then(Option::take);
        self.pool.typed::<R>(target, reply.expect("the ticket is of this batch"))
    }
}

impl Pool {
    /// Sends all requests of a batch at once. Those to one engine are carried out in the order in which
    /// they were added, but for those that have to be repeated.
    pub fn call_batch(&self, mut batch: Batch<'_>) -> BatchReplies<'_> {
        let mut exchanges: Vec<_> = batch.calls.iter_mut().map(Call::exchange).collect();
        let (replies, are_in_order) = self.fan_out(&mut exchanges);
        let replies = replies.into_iter().map(Some).collect();
        BatchReplies { pool: self, replies, are_in_order }
    }
}
