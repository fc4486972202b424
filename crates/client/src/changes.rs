//! The calls of a pool about changes that are answered before they have arrived. Owns that everything else the
//! session asks comes after them; how they travel is the business of [`crate::in_flight`].

use std::sync::Arc;
use std::time::Instant;

use azekura_proto::message::{Reply, Request};
use azekura_proto::{Oid, TargetId};

use crate::error::Result;
use crate::in_flight::{Change, FailedChange, Held, Leased, Locked, Posted};
use crate::open::OpenReference;
use crate::pool::Pool;

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method by its path is one of a single lifetime"
)]
impl Pool {
    fn in_flight<T>(&self, act: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        self.changes.with(self.session(), act)
    }

    /// Whether there are changes in flight.
    pub fn has_changes_in_flight(&self) -> bool {
        !self.changes.are_none()
    }

    /// Waits until the changes in flight have arrived.
    ///
    /// # Errors
    /// If the engine cannot be reached. What it has not got is kept, and sent when this is called again. What
    /// it refuses is no error here: see [`Pool::take_failed_change`].
    pub fn arrive(&self) -> Result<()> {
        if self.changes.are_none() { Ok(()) } else { self.in_flight(|locked| locked.arrive()) }
    }

    /// The same, but only if a change in flight is one of this object, or shows in this directory.
    ///
    /// # Errors
    /// As [`Pool::arrive`].
    pub fn arrive_for(&self, object: Oid) -> Result<()> {
        if self.changes.concern(object) { self.arrive() } else { Ok(()) }
    }

    /// Whether a request has to come after the changes in flight: who only looks at something else would see
    /// the same.
    pub(crate) fn comes_after_changes(&self, request: &Request<'_>) -> bool {
        !self.changes.are_none()
            && request.looks_at().is_none_or(|object| self.changes.concern(object))
    }

    /// Takes in the answers to changes in flight that have come, sends again what was lost, and lets others at
    /// what they wait for: for a process that asks for nothing itself.
    ///
    /// # Errors
    /// As [`Pool::arrive`].
    pub fn look_after_changes(&self) -> Result<()> {
        self.in_flight(|locked| locked.look_after())
    }

    /// The reply to a request that goes over the connection of the changes in flight, if there are any and it
    /// can go there.
    pub(crate) fn ask_behind_changes(
        &self,
        target: TargetId,
        request: &Request<'_>,
        bulk_in: &mut [u8],
    ) -> Option<Result<Reply>> {
        let may_go = !self.changes.are_none()
            && !request.needs_exact_retry()
            && !request.may_be_slow()
            && !matches!(request, Request::LockAcquire { .. })
            && request.has_reply();
        let ask = |locked: &mut Locked<'_>| {
            if locked.is_under_way_to(target) { locked.ask(target, request, bulk_in) } else { None }
        };
        if may_go { self.in_flight(ask) } else { None }
    }

    /// Grows whenever leases of names are lost or given back: what relied on them is over.
    pub fn names_generation(&self) -> u64 {
        self.changes.generation()
    }

    /// Whether no lease of names is to be asked for, since others were there a moment ago.
    pub fn names_are_refused(&self) -> bool {
        self.in_flight(|locked| locked.is_refused())
    }

    /// Takes up a lease that an engine has given, of these milliseconds from when it was asked for.
    pub fn hold_names(
        &self,
        leased: Leased,
        target: TargetId,
        epoch: u64,
        asked: Instant,
        lease_ms: u32,
    ) {
        self.in_flight(|locked| locked.hold(leased, target, epoch, (asked, lease_ms)));
    }

    /// Whether names are leased, with time left: then what this session knows of them is so, and of all below
    /// that it has made under this lease.
    pub fn holds_names(&self, leased: Leased) -> bool {
        self.in_flight(|locked| locked.may_answer(leased))
    }

    /// Sends a change, which shows in these directories, under a lease of names. When this returns true the change
    /// may be answered to the program; when false it has not been sent, since the lease is over.
    ///
    /// # Errors
    /// If the engine cannot be reached: the change is not sent again then. A status, if the engine has refused
    /// the change, or an earlier one of its object.
    pub fn post_change(
        &self,
        change: Change,
        (dirs, root): ([Oid; 2], Leased),
        reference: Option<Arc<OpenReference>>,
    ) -> Result<bool> {
        let target = match &change {
            Change::Create { oid, .. }
            | Change::SetAttr { oid, .. }
            | Change::SettleTimes { oid, .. } => oid.home(),
            Change::Write { data, .. } => self.placement().shard_target(data.oid, data.shard),
        };
        let sent = self.platform().now();
        let reference = reference.map(|reference| reference as Held);
        let concern = self.changes.begin(change.oid(), dirs);
        let posted = Posted { change, target, root, reference, sent, concern };
        self.in_flight(|locked| locked.post(posted))
    }

    /// Lets everything arrive and gives all leases of names back, so that nobody waits for them.
    ///
    /// # Errors
    /// As [`Pool::arrive`]; then the leases run out by themselves.
    pub fn publish(&self) -> Result<()> {
        self.in_flight(|locked| locked.publish())
    }

    /// Lets everything arrive and takes the leases of names up anew, so that they serve for longer: what is known of
    /// the names stays so unless somebody else has waited for them, who has them then.
    ///
    /// # Errors
    /// As [`Pool::arrive`].
    pub fn renew_names(&self) -> Result<()> {
        self.in_flight(|locked| locked.renew_leases())
    }

    /// Asks for no lease of names for a while.
    pub fn refuse_names(&self) {
        self.in_flight(|locked| locked.refuse());
    }

    /// Closes the stream, to be made again when it is needed. Nothing should be in flight.
    pub fn close_changes(&self) {
        self.in_flight(|locked| locked.close());
    }

    /// A change of this object, or the making of one in this directory, that was answered to the program and
    /// has failed. Each is told once.
    pub fn take_failed_change(&self, oid: Oid) -> Option<FailedChange> {
        if self.changes.have_failed() {
            self.in_flight(|locked| locked.take_failed(oid))
        } else {
            None
        }
    }

    /// All failures that nobody has been told.
    pub fn take_failed_changes(&self) -> Vec<FailedChange> {
        self.in_flight(|locked| std::mem::take(locked.failed()))
    }
}
