//! Which connections a pipeline makes: the first one to an engine, and further ones where its link is worth them, one of
//! which is kept for others. The scheduler is told of all that are about to be made, so that none is made twice.

use azekura_proto::{EngineId, TargetId};

use super::scheduler::Scheduler;

/// Connections to an engine that are about to be made, which the scheduler knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) engine: EngineId,
    /// Any target of the engine.
    pub(super) target: TargetId,
    /// So many, one at least.
    pub(super) count: usize,
    /// One of them is for others: the pipeline has taken the session's first one, and while all are busy with data
    /// whoever asks for something else would have to make one.
    pub(super) keeps_one: bool,
}

impl Opening {
    /// The first one to an engine, unless there is one or somebody makes it.
    pub(super) fn first(
        scheduler: &mut Scheduler,
        (engine, target): (EngineId, TargetId),
    ) -> Option<Self> {
        let is_wanted = scheduler.channels_of(engine) == 0 && scheduler.way(engine).opening == 0;
        is_wanted.then(|| Self { engine, target, count: 1, keeps_one: false }.announced(scheduler))
    }

    /// As many as the engine's link is worth beside those that there are.
    pub(super) fn further(
        scheduler: &mut Scheduler,
        (engine, target): (EngineId, TargetId),
    ) -> Option<Self> {
        let count = scheduler.missing(engine);
        let keeps_one = !scheduler.keeps_one(engine);
        let opening = Self { engine, target, count: count + usize::from(keeps_one), keeps_one };
        (count > 0).then(|| opening.announced(scheduler))
    }

    fn announced(self, scheduler: &mut Scheduler) -> Self {
        scheduler.way(self.engine).opening += self.count;
        self
    }
}
