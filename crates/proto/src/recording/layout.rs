//! Where each number of a record lies. Indices count words of eight bytes from the start of the header, of
//! a chunk, or of an entry.

/// The first word of the file; the byte order shows in it.
pub const MAGIC: u64 = u64::from_le_bytes(*b"azk-prof");
/// Form of all that follows.
pub const VERSION: u64 = 1;
/// The header, in bytes: a page.
pub const HEADER_BYTES: usize = 4096;
/// A chunk, in bytes.
pub const CHUNK_BYTES: usize = 32 << 10;
/// Words of a chunk.
pub const CHUNK_WORDS: usize = CHUNK_BYTES / 8;
/// Chunks of a file at most.
pub const CHUNKS_MAX: u64 = 1 << 20;
/// Length of a file with room for all of them, most of which stay holes.
pub const FILE_BYTES: u64 = HEADER_BYTES as u64 + CHUNKS_MAX * CHUNK_BYTES as u64;
/// The longest path that is kept, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;

/// Words of the header.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// Chunks that were given out.
    pub const CHUNKS: usize = 2;
    /// Starts of programs that the library cannot be in.
    pub const UNSEEN_PROGRAMS: usize = 3;
    /// Starts of programs whose environment does not let the library in.
    pub const UNSEEN_ENVIRONMENTS: usize = 4;
    /// What there was no room for.
    pub const LOST: usize = 5;
    /// Bytes of the directories that follow.
    pub const UNDER_BYTES: usize = 6;
    /// Absolute paths of the directories that are recorded, each ended by a zero byte; none for all.
    pub const UNDER: usize = 7;
    /// Room for them, in bytes.
    pub const UNDER_BYTES_MAX: usize = super::HEADER_BYTES - 8 * UNDER;
}

/// Words of a chunk.
pub mod chunk {
    /// [`super::MAGIC`], once the chunk is in use.
    pub const MAGIC: usize = 0;
    /// Number of the chunk in which the process's own entry lies.
    pub const PROCESS: usize = 1;
    /// Words in use, with these; may be more than there are.
    pub const USED: usize = 2;
    /// The first entry.
    pub const ENTRIES: usize = 3;
}

/// Kind of an entry: the upper half of its first word, whose lower half is its length in words.
pub const PROCESS: u64 = 1;
/// A file of the process.
pub const FILE: u64 = 2;

/// The first word of an entry.
pub const fn head(kind: u64, words: usize) -> u64 {
    kind << 32 | words as u64
}

/// Calls about names that are counted.
pub const CALLS: [&str; 9] = [
    "opens",
    "failed_opens",
    "creates",
    "looks",
    "makes",
    "removes",
    "changes",
    "renames",
    "lists",
];

/// What [`CALLS`] are at.
pub mod call {
    /// Opens of files and directories.
    pub const OPENS: usize = 0;
    /// Opens that failed.
    pub const FAILED_OPENS: usize = 1;
    /// Opens that made the file.
    pub const CREATES: usize = 2;
    /// `stat`, `access`, `readlink` and their relatives.
    pub const LOOKS: usize = 3;
    /// `mkdir`, `symlink`, `mknod`.
    pub const MAKES: usize = 4;
    /// `unlink`, `rmdir`.
    pub const REMOVES: usize = 5;
    /// `chmod`, `chown`, `utimens`, `truncate`.
    pub const CHANGES: usize = 6;
    /// `rename`, `link`.
    pub const RENAMES: usize = 7;
    /// `opendir`, `chdir`.
    pub const LISTS: usize = 8;
}

/// Words of a process's entry.
pub mod process {
    /// Number.
    pub const PID: usize = 1;
    /// That of the parent.
    pub const PARENT: usize = 2;
    /// When it began.
    pub const STARTED: usize = 3;
    /// When it ended; 0 while it runs.
    pub const ENDED: usize = 4;
    /// [`EXIT`] or [`EXEC`].
    pub const END: usize = 5;
    /// Its last call.
    pub const LAST: usize = 6;
    /// The name, in two words.
    pub const NAME: usize = 7;
    /// [`super::CALLS`].
    pub const CALLS: usize = 9;
    /// Time in them.
    pub const CALL_NANOS: usize = CALLS + super::CALLS.len();
    /// Records read, and written.
    pub const RECORDS: usize = CALL_NANOS + 1;
    /// Switches of files between records that were read, and written.
    pub const SWITCHES: usize = RECORDS + 2;
    /// The file of the last record read, and written: any number that stands for it.
    pub const LAST_FILE: usize = SWITCHES + 2;
    /// Words in all.
    pub const WORDS: usize = LAST_FILE + 2;
    /// Ended by itself.
    pub const EXIT: u64 = 1;
    /// Became another program.
    pub const EXEC: u64 = 2;
}

/// Words of a file's entry. The path follows them.
pub mod file {
    /// Length of the path in bytes.
    pub const PATH_BYTES: usize = 1;
    /// Device.
    pub const DEVICE: usize = 2;
    /// Number on it.
    pub const INODE: usize = 3;
    /// Times opened.
    pub const OPENS: usize = 4;
    /// Times made.
    pub const CREATES: usize = 5;
    /// First opened.
    pub const OPENED: usize = 6;
    /// Last closed.
    pub const CLOSED: usize = 7;
    /// Length at first.
    pub const SIZE_BEFORE: usize = 8;
    /// End of what was written.
    pub const END: usize = 9;
    /// Buffer of its stream.
    pub const BUFFER: usize = 10;
    /// Mappings.
    pub const MAPS: usize = 11;
    /// Bytes of the file in them.
    pub const MAPPED: usize = 12;
    /// Changes of position.
    pub const SEEKS: usize = 13;
    /// Reading, and then writing.
    pub const TRANSFERS: usize = 14;
    /// Words in all, without the path.
    pub const WORDS: usize = TRANSFERS + 2 * super::transfers::WORDS;
}

/// Words of a direction in a file's entry.
pub mod transfers {
    /// Requests.
    pub const REQUESTS: usize = 0;
    /// Bytes.
    pub const BYTES: usize = 1;
    /// Requests that went on.
    pub const SEQUENTIAL: usize = 2;
    /// Time.
    pub const NANOS: usize = 3;
    /// Sizes, and then their counts.
    pub const SIZES: usize = 4;
    /// Bytes whose requests were derived.
    pub const DERIVED: usize = SIZES + 2 * SIZES_MAX;
    /// Records.
    pub const RECORDS: usize = DERIVED + 1;
    /// Their bytes.
    pub const RECORD_BYTES: usize = RECORDS + 1;
    /// Their sizes, and then the counts.
    pub const RECORD_SIZES: usize = RECORD_BYTES + 1;
    /// Words in all.
    pub const WORDS: usize = RECORD_SIZES + 2 * SIZES_MAX;
    /// Sizes that are kept.
    pub const SIZES_MAX: usize = 4;
}
