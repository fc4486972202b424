//! Coordinating an operation that touches several targets: two-phase commit with presumed abort.
//! The coordinator's own part, its decision and the recorded answer are one atomic batch. Owns the
//! loop of trying again when another transaction is in the way.

use std::time::Duration;

use azekura_platform::Platform;
use azekura_proto::limits::TRANSACTION_TRIES_MS;
use azekura_proto::message::{Reply, Request};
use azekura_proto::transaction::{Action, TransactionId};
use azekura_proto::{Oid, Status, TargetId, Timestamp};
use azekura_store::Space;

use crate::node::Node;
use crate::records::record::decided_key;
use crate::records::update::Update;
use crate::requests::retry::{Caller, FirstAnswer};
use crate::target::Target;
use crate::transaction::action::Actor;
use crate::transaction::key_locks::{Wanted, keys_of_all};
use crate::transaction::participant::{ask_homes, check};
use crate::transaction::relied_names::keep_from_leases;

/// The pauses between two tries differ by up to this, in microseconds.
const JITTER_US: u64 = 300;

/// What an operation does, target by target. The coordinator takes its own part out first.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    by_target: Vec<(TargetId, Vec<Action>)>,
}

impl Parts {
    pub(crate) fn add(&mut self, target: TargetId, action: Action) {
        match self.by_target.iter_mut().find(|(known, _)| *known == target) {
            Some((_, actions)) => actions.push(action),
            None => self.by_target.push((target, vec![action])),
        }
    }

    fn take_own(&mut self, own: TargetId) -> Vec<Action> {
        match self.by_target.iter().position(|(target, _)| *target == own) {
            Some(index) => self.by_target.swap_remove(index).1,
            None => Vec::new(),
        }
    }
}

/// What an operation turns out to take, once it has looked at what is there.
pub(crate) enum Need {
    /// These changes.
    Changes(Parts),
    /// Another look, with the shape of the tree below this root locked.
    TreeLock(Oid),
}

/// What came of a try.
enum Tried {
    /// It is done; the target's own part was stamped with this time.
    Done(Timestamp),
    /// Nothing was done: this tree has to be locked first.
    TreeLock(Oid),
}

/// Runs an operation: builds its parts from what is there, carries them out, and starts again when
/// something changed or was locked meanwhile. Answers the time that the target's own part was stamped
/// with.
pub(crate) fn run(
    node: &Node,
    target: &Target,
    caller: &Caller,
    mut build: impl FnMut() -> Result<Parts, Status>,
) -> Result<Timestamp, Status> {
    run_with_tree(node, target, caller, |_| build().map(Need::Changes))
}

/// The same for an operation that may need a tree locked. `build` is told whether it is.
pub(crate) fn run_with_tree(
    node: &Node,
    target: &Target,
    caller: &Caller,
    mut build: impl FnMut(bool) -> Result<Need, Status>,
) -> Result<Timestamp, Status> {
    let node = &node.on_behalf_of(caller.client());
    let mut tree = None;
    let deadline = node.platform.now() + Duration::from_millis(TRANSACTION_TRIES_MS);
    let mut pause = Duration::from_micros(200);
    loop {
        let mut attempt = Attempt::new(node, target);
        let result = match attempt.try_once(caller, tree, &mut build) {
            Ok(Tried::Done(stamp)) => return Ok(stamp),
            Ok(Tried::TreeLock(root)) => {
                assert!(tree.is_none(), "a tree that is locked is not asked for again");
                tree = Some(root);
                continue;
            }
            Err(status) => {
                attempt.give_up();
                status
            }
        };
        let passing = matches!(result, Status::Busy | Status::ConditionFailed);
        if !passing || node.platform.now() > deadline {
            // A condition that keeps failing is a race that is lost again and again.
            return Err(if result == Status::ConditionFailed { Status::Busy } else { result });
        }
        // Two that meet must not stay in step.
        node.platform.sleep(pause + jitter(&*node.platform));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn jitter(platform: &dyn Platform) -> Duration {
    let mut random = [0; 2];
    // Without random numbers the pauses are those of everybody; the next try may still succeed.
    let _ = platform.fill_random(&mut random);
    Duration::from_micros(u64::from(u16::from_le_bytes(random)) % JITTER_US)
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

    /// Carries parts out up to a step, for tests of what a crash leaves behind: 1 prepares, 2
    /// decides too, but tells nobody.
    #[cfg(test)]
    pub(crate) fn stop_after(mut self, mut parts: Parts, steps: u32) -> Result<(), Status> {
        let own = parts.take_own(self.target.id);
        self.announce();
        self.take_own_keys(&Caller::engine(), &own)?;
        self.prepare(parts.by_target)?;
        if steps > 1 {
            self.decide(&Caller::engine(), &own)?;
        }
        Ok(())
    }

    fn try_once(
        &mut self,
        caller: &Caller,
        tree: Option<Oid>,
        build: &mut impl FnMut(bool) -> Result<Need, Status>,
    ) -> Result<Tried, Status> {
        if let Some(root) = tree {
            self.announce();
            self.prepare(vec![(root.home(), vec![Action::LockTree { root }])])?;
        }
        let mut parts = match build(tree.is_some())? {
            Need::Changes(parts) => parts,
            Need::TreeLock(root) => return Ok(Tried::TreeLock(root)),
        };
        let own = parts.take_own(self.target.id);
        if parts.by_target.is_empty() && self.prepared.is_empty() {
            return self.commit_alone(caller, &own).map(Tried::Done);
        }
        self.announce();
        self.take_own_keys(caller, &own)?;
        ask_homes(self.node, self.target, &own)?;
        check(self.node, self.target, &own)?;
        self.prepare(parts.by_target)?;
        let stamp = self.decide(caller, &own)?;
        self.finish();
        Ok(Tried::Done(stamp))
    }

    /// From now on nobody may be told that the transaction is aborted because nothing is known.
    fn announce(&self) {
        self.node.undecided.lock().insert(self.id);
    }

    /// Asks all parts at once. If some refuse, what the first of them says counts. The decision relies
    /// on what they have prepared.
    fn prepare(&mut self, parts: Vec<(TargetId, Vec<Action>)>) -> Result<(), Status> {
        let id = self.id;
        let mut wanted = Vec::with_capacity(parts.len());
        for (target, actions) in parts {
            // Also a part that refuses, or whose answer is lost, has to be aborted.
            if !self.prepared.contains(&target) {
                self.prepared.push(target);
            }
            let request = Request::Prepare { id, actions };
            if self.node.is_alone() {
                // Nobody works meanwhile: nothing is prepared behind a part that refuses.
                let answer = self.node.call(target, &request)?;
                rely_on(self.target, &answer)?;
            } else {
                wanted.push((target, request));
            }
        }
        let answers = self.node.call_all(&wanted);
        answers.into_iter().try_for_each(|answer| rely_on(self.target, &answer?))
    }

    fn take_own_keys(&mut self, caller: &Caller, own: &[Action]) -> Result<(), Status> {
        assert!(self.own_keys.is_empty(), "keys are taken once");
        let keys = keys_of_all(own);
        let mut state = self.target.lock();
        self.target.take_keys(&mut state, self.id, &keys)?;
        self.own_keys = keys;
        drop(state);
        // From here on whoever looks the names up waits for the keys.
        keep_from_leases(self.node, self.target, caller.client(), own).map(drop)
    }

    /// Everything is here: one batch, no intents.
    fn commit_alone(&mut self, caller: &Caller, own: &[Action]) -> Result<Timestamp, Status> {
        if !shards_known(self.target, own) {
            // The shards have to stay while their homes are asked.
            self.take_own_keys(caller, own)?;
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
        let names = keep_from_leases(self.node, self.target, caller.client(), own)?;
        let stamp = self.apply_own(caller, own, &[])?;
        drop(names);
        drop(state);
        Ok(stamp)
    }

    /// The point of no return.
    fn decide(&mut self, caller: &Caller, own: &[Action]) -> Result<Timestamp, Status> {
        let state = self.target.lock();
        let stamp = self.apply_own(caller, own, &self.prepared)?;
        drop(state);
        let was_open = self.node.undecided.lock().remove(&self.id);
        assert!(was_open, "who asked about it until now was told to wait");
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
        self.target.removed(&update.commit()?);
        Ok(actor.changed)
    }

    /// Lets the others do their parts. Who cannot be reached is told later by recovery.
    fn finish(&self) {
        assert!(self.own_keys.is_empty(), "the own part is done before others are told");
        if tell_commit(self.node, self.target, self.id, &self.prepared) {
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
        let aborts =
            to_each(&std::mem::take(&mut self.prepared), || Request::Abort { id: self.id });
        // One that cannot be reached will ask, and hear that nothing is known.
        self.node.call_all(&aborts);
    }
}

/// Tells the participants of a transaction that `target` has decided; whether all have heard. That the
/// decision may be forgotten then relies on what they have committed.
pub(crate) fn tell_commit(
    node: &Node,
    target: &Target,
    id: TransactionId,
    participants: &[TargetId],
) -> bool {
    let after = target.store.position();
    let commits = to_each(participants, || Request::Commit { id, after: after.clone() });
    let answers = node.call_all(&commits);
    answers.into_iter().all(|answer| answer.and_then(|reply| rely_on(target, &reply)).is_ok())
}

/// What `target` commits from now on relies on what it has been told.
fn rely_on(target: &Target, reply: &Reply) -> Result<(), Status> {
    match reply {
        Reply::DoneAfter(after) => target.rely_on(after),
        _ => Err(Status::Damaged),
    }
}

fn to_each(
    targets: &[TargetId],
    request: impl Fn() -> Request<'static>,
) -> Vec<(TargetId, Request<'static>)> {
    targets.iter().map(|target| (*target, request())).collect()
}

/// Every participant is done: nobody will ask about the transaction any more.
pub(crate) fn forget_decision(target: &Target, id: TransactionId) {
    let mut update = Update::new(target);
    update.delete(Space::Transaction, &decided_key(id));
    if let Err(status) = update.commit() {
        tracing::warn!(?id, "a finished transaction stays on record: {status}");
    }
}
