//! What processes did with files, in a form that does not depend on who recorded it: the preload library, or
//! Darshan. Owns the names that people find in the JSON. Times are seconds, sizes bytes.

use azekura_proto::recording::layout::call;
use azekura_proto::recording::{End, File, Process, Recording, Sizes, Transfers};
use serde::{Deserialize, Serialize};

/// All that was recorded of a command.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Usage {
    /// What was recorded.
    pub(super) command: String,
    /// Who recorded it.
    pub(super) recorder: String,
    /// Processes that ran at a time, where the recorder tells it.
    pub(super) at_a_time: Option<u32>,
    pub(super) processes: Vec<ProcessUsage>,
    /// Starts of programs that could not be recorded: static, of Go, with another user's rights.
    pub(super) unseen_programs: u64,
    /// Starts of programs with another `LD_PRELOAD`.
    pub(super) unseen_environments: u64,
    /// What there was no room for.
    pub(super) lost: u64,
}

/// One program that a process has run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessUsage {
    pub(super) pid: u64,
    pub(super) parent: u64,
    pub(super) name: String,
    /// `exit`, `exec`, or `unknown`: killed, or running still.
    pub(super) end: String,
    /// When it began, since the first of all.
    pub(super) start_s: f64,
    pub(super) wall_s: f64,
    /// Time in calls that read, write, or are about names.
    pub(super) io_s: f64,
    /// All other time.
    pub(super) compute_s: f64,
    pub(super) names: Names,
    /// Records that were read, and written.
    pub(super) records: [u64; 2],
    /// How often one of them was of another file than the one before.
    pub(super) switches: [u64; 2],
    pub(super) files: Vec<FileUsage>,
}

/// Calls about names.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Names {
    pub(super) opens: u64,
    pub(super) failed_opens: u64,
    pub(super) creates: u64,
    /// `stat`, `access`, `readlink`.
    pub(super) looks: u64,
    /// `mkdir`, `symlink`.
    pub(super) makes: u64,
    /// `unlink`, `rmdir`.
    pub(super) removes: u64,
    /// `chmod`, `utimens`, `truncate`.
    pub(super) changes: u64,
    /// `rename`, `link`.
    pub(super) renames: u64,
    /// `opendir`, `chdir`.
    pub(super) lists: u64,
    pub(super) seconds: f64,
}

/// One file of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileUsage {
    pub(super) path: String,
    pub(super) opens: u64,
    pub(super) creates: u64,
    /// Its length when it was opened first.
    pub(super) size_before: u64,
    /// The end of what was written.
    pub(super) end: u64,
    /// Buffer of the stream on it; 0 without one.
    pub(super) stream_buffer: u64,
    pub(super) seeks: u64,
    /// Bytes that were mapped to memory, and read at most.
    pub(super) mapped_bytes: u64,
    pub(super) read: Moved,
    pub(super) written: Moved,
}

/// What was read or written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) requests: u64,
    /// Requests that went on where the last had ended.
    pub(super) sequential: u64,
    pub(super) seconds: f64,
    /// Sizes of requests and how many there were, the commonest first.
    pub(super) sizes: Sizes,
    /// Bytes whose requests were derived from the buffer of a stream.
    pub(super) derived_bytes: u64,
    /// Records of the program.
    pub(super) records: u64,
    pub(super) record_bytes: u64,
    pub(super) record_sizes: Sizes,
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}

impl Usage {
    /// What the preload library has recorded.
    pub(super) fn of(recording: &Recording, command: String) -> Self {
        let first = recording.processes.iter().map(|process| process.started).min().unwrap_or(0);
        Self {
            command,
            recorder: "azekura".to_owned(),
            at_a_time: None,
            processes: recording.processes.iter().map(|one| process(one, first)).collect(),
            unseen_programs: recording.unseen_programs,
            unseen_environments: recording.unseen_environments,
            lost: recording.lost,
        }
    }
}

fn process(process: &Process, first: u64) -> ProcessUsage {
    let wall_s = seconds(process.ended.saturating_sub(process.started));
    let moving: u64 = process.files.iter().map(|file| file.read.nanos + file.written.nanos).sum();
    // Threads may be in calls at the same time.
    let io_s = seconds(moving + process.call_nanos).min(wall_s);
    let calls = &process.calls;
    ProcessUsage {
        pid: process.pid,
        parent: process.parent,
        name: String::from_utf8_lossy(&process.name).into_owned(),
        end: match process.end {
            End::Exit => "exit",
            End::Exec => "exec",
            End::Unknown => "unknown",
        }
        .to_owned(),
        start_s: seconds(process.started.saturating_sub(first)),
        wall_s,
        io_s,
        compute_s: wall_s - io_s,
        names: Names {
            opens: calls[call::OPENS],
            failed_opens: calls[call::FAILED_OPENS],
            creates: calls[call::CREATES],
            looks: calls[call::LOOKS],
            makes: calls[call::MAKES],
            removes: calls[call::REMOVES],
            changes: calls[call::CHANGES],
            renames: calls[call::RENAMES],
            lists: calls[call::LISTS],
            seconds: seconds(process.call_nanos),
        },
        records: process.records,
        switches: process.switches,
        files: process.files.iter().map(file).collect(),
    }
}

fn file(file: &File) -> FileUsage {
    FileUsage {
        path: String::from_utf8_lossy(&file.path).into_owned(),
        opens: file.opens,
        creates: file.creates,
        size_before: file.size_before,
        end: file.end,
        stream_buffer: file.buffer,
        seeks: file.seeks,
        mapped_bytes: file.mapped,
        read: moved(&file.read),
        written: moved(&file.written),
    }
}

fn moved(transfers: &Transfers) -> Moved {
    Moved {
        bytes: transfers.bytes,
        requests: transfers.requests,
        sequential: transfers.sequential,
        seconds: seconds(transfers.nanos),
        sizes: transfers.sizes.clone(),
        derived_bytes: transfers.derived,
        records: transfers.records,
        record_bytes: transfers.record_bytes,
        record_sizes: transfers.record_sizes.clone(),
    }
}

impl FileUsage {
    /// Bytes that came out of it; of a mapping all that lies in it.
    pub(super) fn bytes_in(&self) -> u64 {
        self.read.bytes + self.mapped_bytes
    }
}
