//! What is in a record, once it was read.

use super::layout;

/// Sizes and how often each occurred; the commonest are there, their counts are estimates (of the
/// space-saving algorithm of Metwally et al.) once there were more sizes than places.
pub type Sizes = Vec<(u64, u64)>;

/// All that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The processes that could be seen, one for each program that a process has run.
    pub processes: Vec<Process>,
    /// Starts of programs that the library cannot be in: static ones, those of Go, those with the rights of
    /// another user.
    pub unseen_programs: u64,
    /// Starts of programs whose environment had another `LD_PRELOAD`, or no room for this one.
    pub unseen_environments: u64,
    /// Files, processes or calls that there was no room for.
    pub lost: u64,
}

/// How a process, or its program, ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It did not say: killed, or running still.
    #[default]
    Unknown,
    /// It ended by itself.
    Exit,
    /// It became another program.
    Exec,
}

/// One program that a process has run. Times are nanoseconds of the machine's monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u64,
    /// That of its parent.
    pub parent: u64,
    /// The start of its program's name, as the kernel has it.
    pub name: Vec<u8>,
    /// When it began.
    pub started: u64,
    /// When it ended; its last recorded call if it did not say so.
    pub ended: u64,
    /// How it ended.
    pub end: End,
    /// Its calls about names, in the order of [`layout::CALLS`].
    pub calls: [u64; layout::CALLS.len()],
    /// Time in these, in nanoseconds.
    pub call_nanos: u64,
    /// Records that were read, and written, over all files.
    pub records: [u64; 2],
    /// How often one of them was of another file than the one before.
    pub switches: [u64; 2],
    /// Its files.
    pub files: Vec<File>,
}

/// What a process did with one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Its absolute path, without symlinks.
    pub path: Vec<u8>,
    /// Times that it was opened.
    pub opens: u64,
    /// Times that this made it.
    pub creates: u64,
    /// When it was opened first.
    pub opened: u64,
    /// When it was closed last; 0 if never.
    pub closed: u64,
    /// Its length when it was opened first, in bytes.
    pub size_before: u64,
    /// The end of what was written, in bytes.
    pub end: u64,
    /// The buffer of the stream on it, in bytes; 0 without one.
    pub buffer: u64,
    /// Mappings of it to memory.
    pub maps: u64,
    /// Bytes of the file that lie in these.
    pub mapped: u64,
    /// Changes of the position.
    pub seeks: u64,
    /// What was read.
    pub read: Transfers,
    /// What was written.
    pub written: Transfers,
}

/// Reading or writing of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Requests to the kernel that moved something.
    pub requests: u64,
    /// What they moved.
    pub bytes: u64,
    /// Those of them that went on where the last one had ended.
    pub sequential: u64,
    /// Time in them, in nanoseconds.
    pub nanos: u64,
    /// What the requests asked for.
    pub sizes: Sizes,
    /// Bytes among `bytes` whose requests no hook has seen: their number was derived from the buffer.
    pub derived: u64,
    /// Records that the program itself moved: requests, or calls of a stream.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Their sizes.
    pub record_sizes: Sizes,
}
