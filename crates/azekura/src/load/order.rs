//! What is asked of worker processes, and what they answer: one JSON line each way, with
//! a `ready` and a `go` in between, so that all workers start together.

use serde::{Deserialize, Serialize};

use crate::reading::ReadArgs;

/// Where the files of a load are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Backend {
    /// A directory of this machine.
    Path(String),
    /// A container of a pool, through the native path.
    Pool {
        /// Name, file or URL of the pool.
        pool: String,
        /// The container's name.
        container: String,
        /// How its files are read.
        reading: ReadArgs,
    },
}

/// Order in which a file's pieces are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Motion {
    /// Pieces side by side, from the front.
    Sequential,
    /// Every fourth piece from the front.
    Stride,
    /// Every piece at most once, in no order that could be foreseen.
    Random,
}

/// Read or write pieces of one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IoOrder {
    /// The file, below the backend.
    pub file: String,
    /// Write instead of read.
    pub write: bool,
    /// In which order.
    pub motion: Motion,
    /// Make the file empty first, which is not timed.
    pub fresh: bool,
    /// Offset of this worker's part, in bytes.
    pub offset: u64,
    /// Length of this worker's part, in bytes.
    pub bytes: u64,
    /// Length of a piece, in bytes.
    pub transfer_bytes: u64,
    /// Stop after this time even if pieces are left, in milliseconds.
    pub limit_ms: u64,
    /// Make it durable, within the time that counts.
    pub fsync: bool,
    /// Seed of the random order.
    pub seed: u64,
}

/// What is done with each of many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MdKind {
    /// Make an empty file and close it.
    Create,
    /// Ask for its attributes.
    Stat,
    /// Open it for reading and close it.
    OpenClose,
    /// Remove it.
    Remove,
}

/// Do one thing with each of many files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MdOrder {
    /// What.
    pub kind: MdKind,
    /// The directory, below the backend.
    pub dir: String,
    /// In front of each file's number.
    pub prefix: String,
    /// How many files.
    pub files: u64,
    /// Stop after this time even if files are left, in milliseconds.
    pub limit_ms: u64,
}

/// A step of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchStep {
    /// Look whether there is room, and say how much, as bytes of the tally.
    CheckRoom,
    /// Do that, and make the files that are read, all the way to the storage.
    MakeInput,
    /// Remove what was written.
    ClearOutput,
    /// Have the input come from the storage again.
    Forget,
    /// Read records and write records.
    Run,
    /// Leave everything where it is.
    LetGo,
    /// Remove everything.
    Clear,
}

/// What one process of a batch does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BatchOrder {
    /// Which step of it.
    pub step: BatchStep,
    /// Its directory, below the backend; the one above is the batch's.
    pub dir: String,
    /// Files that it reads.
    pub files_in: u64,
    /// Files that it writes.
    pub files_out: u64,
    /// To the next file with each record, instead of when one is done.
    pub round_robin: bool,
    /// Records that it reads.
    pub records_in: u64,
    /// Records that it writes, as evenly as it reads.
    pub records_out: u64,
    /// Length of a record.
    pub record_bytes: u64,
    /// Length of the buffer of each file.
    pub buffer_bytes: u64,
    /// Make each file durable before it is closed.
    pub fsync: bool,
    /// How many do the same on this node.
    pub processes: u64,
    /// Whether it drops the caches of its node.
    pub is_first_of_node: bool,
    /// What all of them need, if this one is to look whether there is room; 0 otherwise.
    pub needs_bytes: u64,
}

/// One thing for a worker to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Work with files at this place from now on.
    Open(Backend),
    /// Make these directories, those above first.
    MakeDirectories(Vec<String>),
    /// Remove these files and then these directories; what is not there is fine.
    CleanUp {
        /// The files.
        files: Vec<String>,
        /// The directories, those below first.
        dirs: Vec<String>,
    },
    /// Move data.
    Io(IoOrder),
    /// Work on many files.
    Md(MdOrder),
    /// Do a step of a batch.
    Batch(BatchOrder),
    /// Answer small messages at this socket until the other side closes.
    Pong {
        /// The socket's path.
        socket: String,
    },
    /// Send small messages to this socket, each after the answer to the one before.
    Ping {
        /// The socket's path.
        socket: String,
        /// For how long, in milliseconds.
        limit_ms: u64,
    },
    /// Send this file to the socket with `sendfile`, once, in pieces of 1 MiB.
    SendFile {
        /// The socket's path.
        socket: String,
        /// A file of a memory-backed file system; made with this length if it is not there.
        file: String,
        /// Its length in bytes.
        bytes: u64,
    },
    /// Read a stream from this socket into a buffer until it ends.
    Drain {
        /// The socket's path.
        socket: String,
    },
    /// Read a stream from this socket, writing pieces of 1 MiB to a new file until it ends.
    DrainToFile {
        /// The socket's path.
        socket: String,
        /// The file, made anew.
        file: String,
    },
    /// Write a stream of that many bytes to this socket in pieces of 1 MiB.
    Pour {
        /// The socket's path.
        socket: String,
        /// How many bytes.
        bytes: u64,
    },
}

/// Where a process of a batch was, in nanoseconds; what is left of its time it computed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
// With their unit, as all that is measured.
#[allow(clippy::struct_field_names)]
pub struct Spent {
    /// In opening files to read.
    pub open_ns: u64,
    /// In making files to write.
    pub create_ns: u64,
    /// In requests that read.
    pub read_ns: u64,
    /// In requests that wrote full buffers.
    pub write_ns: u64,
    /// In requests that wrote what was left in buffers.
    pub flush_ns: u64,
    /// In making files durable.
    pub sync_ns: u64,
    /// In closing.
    pub close_ns: u64,
}

/// How input was made to come from the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CachesDropped {
    /// The kernel dropped all that it keeps.
    ByKernel,
    /// It was advised to keep nothing of the files.
    ByAdvice,
}

/// What a worker did. Times are of the machine's monotonic clock, the same for all processes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Operations, messages or pieces.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// When it began, in nanoseconds.
    pub start_ns: u64,
    /// When it ended, in nanoseconds.
    pub end_ns: u64,
    /// Of a batch: where it was meanwhile.
    #[serde(default)]
    pub spent: Spent,
    /// Of a batch: how caches were dropped, if that was asked for.
    #[serde(default)]
    pub caches_dropped: Option<CachesDropped>,
}

/// A worker's answer to an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// Everything is at hand; it waits for `go`.
    Ready,
    /// It is done.
    Done(Tally),
    /// It went wrong.
    Failed(String),
}

/// The machine's monotonic clock, in nanoseconds.
pub(super) fn clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Operations and bytes per second of workers that ran side by side.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Operations per second.
    pub operations_per_s: f64,
    /// MiB per second.
    pub mib_per_s: f64,
}

impl Speed {
    /// All they did, over the time from the first start to the last end.
    pub fn of(tallies: &[Tally]) -> Self {
        let start = tallies.iter().map(|tally| tally.start_ns).min().unwrap_or(0);
        let end = tallies.iter().map(|tally| tally.end_ns).max().unwrap_or(0);
        let seconds = (end.saturating_sub(start).max(1)) as f64 / 1e9;
        let sum = |what: fn(&Tally) -> u64| tallies.iter().map(what).sum::<u64>() as f64;
        Self {
            operations_per_s: sum(|tally| tally.operations) / seconds,
            mib_per_s: sum(|tally| tally.bytes) / seconds / (1024.0 * 1024.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_by_side_counts_once() {
        let tally = |start_ns, end_ns| Tally {
            operations: 5,
            bytes: 1 << 20,
            start_ns,
            end_ns,
            ..Tally::default()
        };
        let speed = Speed::of(&[tally(0, 500_000_000), tally(500_000_000, 1_000_000_000)]);
        assert!((speed.operations_per_s - 10.0).abs() < 1e-9);
        assert!((speed.mib_per_s - 2.0).abs() < 1e-9);
    }
}
