//! Which connections a pipeline makes: the first one to an engine, and further ones where its link is worth them. The
//! scheduler is told of all that are about to be made, so that none is made twice.

use azekura_proto::{EngineId, TargetId};

use super::scheduler::Scheduler;

/// Connections that are made for others, whenever some are made beside what goes on: the pipeline has taken the
/// session's first one, and while all are busy with data whoever asks for something else would have to make one.
const SPARE: usize = 1;

/// Connections to an engine that are about to be made, which the scheduler knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) engine: EngineId,
    /// Any target of the engine.
    pub(super) target: TargetId,
    /// So many for the pipeline, one at least.
    pub(super) count: usize,
    /// So many for others.
    pub(super) spare: usize,
}

impl Opening {
    /// The first one to an engine, unless there is one or somebody makes it.
    pub(super) fn first(
        scheduler: &mut Scheduler,
        (engine, target): (EngineId, TargetId),
    ) -> Option<Self> {
        let is_wanted = scheduler.channels_of(engine) == 0 && scheduler.way(engine).opening == 0;
        is_wanted.then(|| Self { engine, target, count: 1, spare: 0 }.announced(scheduler))
    }

    /// As many as the engine's link is worth beside those that there are.
    pub(super) fn further(
        scheduler: &mut Scheduler,
        (engine, target): (EngineId, TargetId),
    ) -> Option<Self> {
        let count = scheduler.missing(engine);
        let opening = Self { engine, target, count, spare: SPARE };
        (count > 0).then(|| opening.announced(scheduler))
    }

    fn announced(self, scheduler: &mut Scheduler) -> Self {
        scheduler.way(self.engine).opening += self.count;
        self
    }
}
