//! What is measured beside the runs of the batch I/O program, as numbers. Knows nothing of what becomes of them.

/// What cannot be in a run of the batch I/O program, measured beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// `T_RR` and `T_RW`, in MiB/s.
    pub random_read: Vec<f64>,
    /// The same for writing.
    pub random_write: Vec<f64>,
    /// Loops over names.
    pub loops: Vec<Loops>,
    /// What goes on to the storage once memory takes in no more, in MiB/s.
    pub sustained_write: Vec<f64>,
    /// MiB that a node's memory takes in before that.
    pub taken_in_mib: Option<f64>,
}

/// Loops over names of so many processes: seconds of all together for each operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loops {
    /// Nodes, and processes of each.
    pub crew: (u32, u32),
    /// Creating and closing a file.
    pub create_s: Vec<f64>,
    /// Asking for attributes.
    pub stat_s: Vec<f64>,
    /// Opening and closing a file.
    pub open_s: Vec<f64>,
    /// Removing a file.
    pub unlink_s: Vec<f64>,
}

impl Beside {
    /// Those of so many nodes and processes of each.
    pub(super) fn of(&self, nodes: u32, processes: u32) -> Option<&Loops> {
        self.loops.iter().find(|loops| loops.crew == (nodes, processes))
    }
}
