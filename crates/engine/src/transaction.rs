//! Coordinating an operation that touches several targets: two-phase commit with presumed abort.
//! The coordinator's own part, its decision and the recorded answer are one atomic batch. Owns the
//! loop of trying again when another transaction is in the way.

use std::time::{Duration, Instant};

use azekura_proto::message::Request;
use azekura_proto::transaction::{Action, TransactionId};
use azekura_proto::{Status, TargetId, Timestamp};
use azekura_store::Space;

use crate::action::Actor;
use crate::key_locks::{Wanted, keys_of_all};
use crate::node::Node;
use crate::participant::{ask_homes, check};
use crate::record::decided_key;
use crate::retry::{Caller, FirstAnswer};
use crate::target::Target;
use crate::update::Update;

/// How long an operation tries to get past others.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an operation does, target by target.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    parts: Vec<(TargetId, Vec<Action>)>,
}

impl Plan {
    pub(crate) fn add(&mut self, target: TargetId, action: Action) {
        match self.parts.iter_mut().find(|(known, _)| *known == target) {
            Some((_, actions)) => actions.push(action),
            None => self.parts.push((target, vec![action])),
        }
    }

    fn take_own(&mut self, own: TargetId) -> Vec<Action> {
        match self.parts.iter().position(|(target, _)| *target == own) {
            Some(index) => self.parts.swap_remove(index).1,
            None => Vec::new(),
        }
    }
}

/// Runs an operation: builds its plan from what is there, carries it out, and starts again when
/// something changed or was locked meanwhile. `tree` is locked before the plan is built. Answers the
/// time that the target's own part was stamped with.
pub(crate) fn run(
    node: &Node,
    target: &Target,
    caller: &Caller,
    tree: Option<azekura_proto::Oid>,
    mut build: impl FnMut() -> Result<Plan, Status>,
) -> Result<Timestamp, Status> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(200);
    loop {
        let mut attempt = Attempt::new(node, target);
        let result = attempt.try_once(caller, tree, &mut build);
        let result = match result {
            Ok(stamp) => return Ok(stamp),
            Err(status) => {
                attempt.give_up();
                status
            }
        };
        let passing = matches!(result, Status::Busy | Status::ConditionFailed);
        if !passing || Instant::now() > deadline {
            // A condition that keeps failing is a race that is lost again and again.
            return Err(if result == Status::ConditionFailed { Status::Busy } else { result });
        }
        // Two that meet must not stay in step.
        let jitter_us = u64::from(fine_clock_ns()) % 300;
        std::thread::sleep(pause + Duration::from_micros(jitter_us));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn fine_clock_ns() -> u32 {
    rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec as u32
}

/// Whether all shards that entries go into are known to be there.
fn shards_known(target: &Target, actions: &[Action]) -> bool {
    actions.iter().all(|action| match action {
        Action::InsertEntry { dir, .. } => {
            matches!(target.dir_shards.get(&target.store, *dir), Ok(Some(_)))
        }
        _ => true,
    })
}

/// One try at a transaction.
pub(crate) struct Attempt<'a> {
    node: &'a Node,
    target: &'a Target,
    id: TransactionId,
    prepared: Vec<TargetId>,
    own_keys: Vec<Wanted>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(node: &'a Node, target: &'a Target) -> Self {
        let id = target.draw_transaction();
        Self { node, target, id, prepared: Vec::new(), own_keys: Vec::new() }
    }

    /// Carries a plan out up to a step, for tests of what a crash leaves behind: 1 prepares, 2
    /// decides too, but tells nobody.
    #[cfg(test)]
    pub(crate) fn stop_after(mut self, mut plan: Plan, steps: u32) -> Result<(), Status> {
        let own = plan.take_own(self.target.id);
        self.announce();
        self.take_own_keys(&own)?;
        for (target, actions) in &plan.parts {
            self.prepare(*target, actions)?;
        }
        if steps > 1 {
            self.decide(&Caller::engine(), &own)?;
        }
        Ok(())
    }

    fn try_once(
        &mut self,
        caller: &Caller,
        tree: Option<azekura_proto::Oid>,
        build: &mut impl FnMut() -> Result<Plan, Status>,
    ) -> Result<Timestamp, Status> {
        if let Some(root) = tree {
            self.announce();
            self.prepare(root.home(), &[Action::LockTree { root }])?;
        }
        let mut plan = build()?;
        let own = plan.take_own(self.target.id);
        if plan.parts.is_empty() && self.prepared.is_empty() {
            return self.commit_alone(caller, &own);
        }
        self.announce();
        self.take_own_keys(&own)?;
        ask_homes(self.node, self.target, &own)?;
        check(self.node, self.target, &own)?;
        for (target, actions) in &plan.parts {
            self.prepare(*target, actions)?;
        }
        let stamp = self.decide(caller, &own)?;
        self.finish();
        Ok(stamp)
    }

    /// From now on nobody may be told that the transaction is aborted because nothing is known.
    fn announce(&self) {
        self.node.undecided.lock().insert(self.id, Instant::now());
    }

    fn prepare(&mut self, target: TargetId, actions: &[Action]) -> Result<(), Status> {
        // Also a part whose answer is lost has to be aborted.
        if !self.prepared.contains(&target) {
            self.prepared.push(target);
        }
        let request = Request::Prepare { id: self.id, actions: actions.to_vec() };
        self.node.call(target, &request).map(drop)
    }

    fn take_own_keys(&mut self, own: &[Action]) -> Result<(), Status> {
        let keys = keys_of_all(own);
        let mut state = self.target.lock();
        self.target.take_keys(&mut state, self.id, &keys)?;
        self.own_keys = keys;
        Ok(())
    }

    /// Everything is here: one batch, no intents.
    fn commit_alone(&mut self, caller: &Caller, own: &[Action]) -> Result<Timestamp, Status> {
        if !shards_known(self.target, own) {
            // The shards have to stay while their homes are asked.
            self.take_own_keys(own)?;
            ask_homes(self.node, self.target, own)?;
            let state = self.target.lock();
            let stamp = self.apply_own(caller, own, &[])?;
            drop(state);
            self.release_own_keys();
            return Ok(stamp);
        }
        let state = self.target.lock_free(&keys_of_all(own))?;
        // The shard may have been sealed between the look and the lock.
        if !shards_known(self.target, own) {
            return Err(Status::Busy);
        }
        let stamp = self.apply_own(caller, own, &[])?;
        drop(state);
        Ok(stamp)
    }

    /// The point of no return.
    fn decide(&mut self, caller: &Caller, own: &[Action]) -> Result<Timestamp, Status> {
        let state = self.target.lock();
        let stamp = self.apply_own(caller, own, &self.prepared)?;
        drop(state);
        self.node.undecided.lock().remove(&self.id);
        self.release_own_keys();
        Ok(stamp)
    }

    fn apply_own(
        &self,
        caller: &Caller,
        own: &[Action],
        others: &[TargetId],
    ) -> Result<Timestamp, Status> {
        let actor = Actor::new(self.target, &self.node.sessions);
        let mut update = Update::new(self.target);
        for action in own {
            actor.apply(&mut update, action)?;
        }
        if !others.is_empty() {
            update.put(Space::Transaction, &decided_key(self.id), &others.to_vec());
        }
        caller.record(&mut update, FirstAnswer::Done);
        self.target.removed(update.commit()?);
        Ok(actor.changed)
    }

    /// Lets the others do their parts. Who cannot be reached is told later by recovery.
    fn finish(&self) {
        if tell_commit(self.node, self.id, &self.prepared) {
            forget_decision(self.target, self.id);
        }
    }

    fn release_own_keys(&mut self) {
        if !self.own_keys.is_empty() {
            let keys = std::mem::take(&mut self.own_keys);
            let mut state = self.target.lock();
            self.target.give_back_keys(&mut state, self.id, &keys);
        }
    }

    fn give_up(&mut self) {
        self.release_own_keys();
        // Removed first: a participant that asks now must hear that it is aborted.
        self.node.undecided.lock().remove(&self.id);
        for target in std::mem::take(&mut self.prepared) {
            // One that cannot be reached will ask, and hear that nothing is known.
            let _ = self.node.call(target, &Request::Abort { id: self.id });
        }
    }
}

/// Tells the participants of a decided transaction; whether all have heard.
pub(crate) fn tell_commit(node: &Node, id: TransactionId, participants: &[TargetId]) -> bool {
    let mut all = true;
    for target in participants {
        all &= node.call(*target, &Request::Commit { id }).is_ok();
    }
    all
}

/// Every participant is done: nobody will ask about the transaction any more.
pub(crate) fn forget_decision(target: &Target, id: TransactionId) {
    let mut update = Update::new(target);
    update.delete(Space::Transaction, &decided_key(id));
    if let Err(status) = update.commit() {
        tracing::warn!(?id, "a finished transaction stays on record: {status}");
    }
}
