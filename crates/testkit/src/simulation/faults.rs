//! What goes wrong in a simulation, and how often. Owns the list of faults under which a pool is not
//! right yet: each has a switch that is off unless a test asks for it.

/// A fault under which a history may go wrong. What is to be mended there is said beside each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KnownDefect {
    /// A `Commit` is lost, and nobody waits until its engine has heard of the decision some other way:
    /// attributes are read there as they were before, though the change has been answered.
    ReadBeforeCommit,
    /// An append to a striped file makes it longer, and before the place is on record its engine ends or
    /// does not hear the answer. Sent again it gets a place behind that, and a gap of zeros stays.
    AppendLeavesGap,
}

/// How often what goes wrong: once in so many occasions, 0 for never.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A request does not arrive, and its connection breaks.
    pub request_lost: u64,
    /// A change does not arrive before its connection breaks, and all the same much later.
    pub request_late: u64,
    /// A request is done, and its connection breaks before the answer is here.
    pub answer_lost: u64,
    /// A request that is on record as carried out arrives once more, much later.
    pub late_repeat: u64,
    /// An engine ends before or after a request of a client, without loss of what it has written.
    pub killed: u64,
    /// An engine ends while it waits for another one.
    pub killed_inside: u64,
    /// An engine does not reach another one, or does not hear its answer.
    pub peer_lost: u64,
    /// What an engine asks another one is done twice.
    pub peer_repeat: u64,
    /// An engine is stopped and started in good order.
    pub stopped: u64,
    /// The machine of an engine loses its power soon, and its disk what was not synced, or a part of
    /// it. The history ends with a look at what is left.
    pub power_cut: u64,
    /// A defect that is known, to be shown on every other occasion.
    pub known_defect: Option<KnownDefect>,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        request_lost: 0,
        request_late: 0,
        answer_lost: 0,
        late_repeat: 0,
        killed: 0,
        killed_inside: 0,
        peer_lost: 0,
        peer_repeat: 0,
        stopped: 0,
        power_cut: 0,
        known_defect: None,
    };

    /// All under which every history has to be right.
    pub const USUAL: Self = Self {
        request_lost: 25,
        request_late: 25,
        answer_lost: 25,
        late_repeat: 25,
        killed: 120,
        killed_inside: 60,
        peer_lost: 30,
        peer_repeat: 30,
        stopped: 400,
        power_cut: 0,
        known_defect: None,
    };

    /// The same with a defect that is known.
    #[must_use]
    pub const fn with(self, defect: KnownDefect) -> Self {
        Self { known_defect: Some(defect), ..self }
    }
}
