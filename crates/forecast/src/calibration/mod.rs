//! What is known of a file system: the contents of `FS.toml`. Owns its keys, their units, and which values
//! contradict each other; the crate's page says which measured runs give each of them. Nothing here is a
//! default: what was not measured is absent, and a forecast that needs it says so.

mod check;
mod lookup;
mod write;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) use lookup::{At, Column};

use crate::complaint::{FileError, parse};
use crate::job::Pattern;
use crate::measured::Measured;
use crate::units::{Bytes, Mebibytes, MibPerSecond, Overlap, PerSecond, Seconds, Slope};

/// The only format there is.
pub const FORMAT: u32 = 1;

/// A calibrated file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// [`FORMAT`].
    pub format: u32,
    /// What people call it.
    pub name: String,
    /// Where, when and with what it was measured.
    pub made: Made,
    /// What the measured runs covered; a forecast beyond it says so.
    pub range: Ranges,
    /// `T_SR` and `T_SW`: one process, one file in and one out.
    pub sequential: Throughput,
    /// `T_RR` and `T_RW`: requests of one buffer at random places, one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random: Option<Throughput>,
    /// What files cost.
    #[serde(default)]
    pub metadata: Metadata,
    /// Bandwidths of the way to the storage.
    #[serde(default)]
    pub path: Paths,
    /// The paper's fits of throughput over parallelism.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parallel: Vec<Parallel>,
    /// What records and requests cost the application's processors.
    #[serde(default)]
    pub cpu: Cpu,
    /// What goes on at the same time.
    #[serde(default)]
    pub overlap: Overlaps,
    /// Writes that are taken into memory at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back: Option<WriteBack>,
    /// Memory that files are kept in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Throughput by processes and nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Streams>,
    /// What files cost beside their data, by their size and by processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileCosts>,
    /// Throughput of one process that goes round its files, by their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interleaved: Vec<Interleaved>,
    /// How well the model fits its own runs.
    #[serde(default)]
    pub model: Model,
}

/// Where, when and with what a calibration was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// The machine.
    pub machine: Machine,
    /// Date and time, UTC, as `2026-11-23 04:30`.
    pub date: String,
    /// Program and kernel with their versions.
    pub software: String,
    /// The directory or pool.
    pub target: String,
    /// Type of the file system, as the mount table names it.
    pub file_system: String,
    /// Its mount options.
    #[serde(default)]
    pub mount_options: String,
    /// Size of a record in the runs, unless a run varied it.
    pub record_bytes: Bytes,
    /// Size of the application's buffer in the runs.
    pub buffer_bytes: Bytes,
}

/// The machine that runs were done on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name of the host.
    pub host: String,
    /// Model of the processor.
    pub processor: String,
    /// Processors of one node.
    pub processors: u32,
    /// Memory of one node.
    pub memory_bytes: Bytes,
}

impl Machine {
    /// How this machine differs from another in what makes forecasts; `None` if it does not.
    pub fn differs(&self, other: &Self) -> Option<String> {
        let mut parts = Vec::new();
        let mut part = |name: &str, here: String, there: String| {
            if here != there {
                parts.push(format!("{name} {here} there, {there} here"));
            }
        };
        part("host", self.host.clone(), other.host.clone());
        part("processor", self.processor.clone(), other.processor.clone());
        part("processors", self.processors.to_string(), other.processors.to_string());
        // Kernels keep a few MiB more or less for themselves.
        if self.memory_bytes.0.abs_diff(other.memory_bytes.0) > self.memory_bytes.0 / 50 {
            let mib = |bytes: Bytes| format!("{:.0} MiB", bytes.mib());
            part("memory", mib(self.memory_bytes), mib(other.memory_bytes));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// From the least to the most, both measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 2]", into = "[u64; 2]")]
pub struct Span {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl From<[u64; 2]> for Span {
    fn from([least, most]: [u64; 2]) -> Self {
        Self { least, most }
    }
}

impl From<Span> for [u64; 2] {
    fn from(span: Span) -> Self {
        [span.least, span.most]
    }
}

impl Span {
    /// How many doublings a number lies beyond the span; 0 within.
    pub fn doublings_beyond(self, number: u64) -> f64 {
        if number > self.most {
            (number as f64 / self.most as f64).log2()
        } else if number < self.least {
            (self.least as f64 / number.max(1) as f64).log2()
        } else {
            0.0
        }
    }
}

/// What the measured runs covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    /// Files of one process in one run, split into or merged from.
    pub files: Span,
    /// Bytes of one run, in and out, of all its processes together.
    pub bytes: Span,
    /// Processes of one node.
    pub processes: Span,
    /// Nodes.
    pub nodes: Span,
    /// Sizes of records.
    pub record_bytes: Span,
    /// Sizes of the application's buffer.
    pub buffer_bytes: Span,
}

/// Throughputs of reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// Reading.
    pub read_mib_per_s: Measured<MibPerSecond>,
    /// Writing.
    pub write_mib_per_s: Measured<MibPerSecond>,
}

/// What files cost, in seconds of one process alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metadata {
    /// `C_C`: each file that is split into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_s_per_file: Option<Measured<Seconds>>,
    /// `C_O`: each file that is merged from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_s_per_file: Option<Measured<Seconds>>,
    /// Beginning and ending a run, whatever it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_s: Option<Measured<Seconds>>,
    /// Creating a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_s: Option<Measured<Seconds>>,
    /// Opening a file that is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_s: Option<Measured<Seconds>>,
    /// Asking for a file's attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat_s: Option<Measured<Seconds>>,
    /// Closing a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_s: Option<Measured<Seconds>>,
    /// Removing a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlink_s: Option<Measured<Seconds>>,
}

/// Bandwidths of the way between processes and storage. What is absent does not bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Paths {
    /// `B_P`: of the whole way, where there is one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_mib_per_s: Option<Measured<MibPerSecond>>,
    /// `B_CP`: of each compute node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_compute_node_mib_per_s: Option<Measured<MibPerSecond>>,
    /// `B_SP`: of each storage node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_storage_node_mib_per_s: Option<Measured<MibPerSecond>>,
    /// `N_SN`: storage nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_nodes: Option<u32>,
}

/// The throughput of a pattern over parallelism x, all processes of all nodes: y = a/x + b.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parallel {
    /// What the runs did.
    pub pattern: Pattern,
    /// a.
    pub a_mib_per_s: Measured<Slope>,
    /// b; where it is absent, the line goes through the throughput of one process, as in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b_mib_per_s: Option<Measured<MibPerSecond>>,
}

/// What the application's side costs a processor. It is part of every measured throughput, at the
/// calibration's record and buffer size; these tell what other sizes cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cpu {
    /// Each record read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_read_s: Option<Measured<Seconds>>,
    /// Each record written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_written_s: Option<Measured<Seconds>>,
    /// Each request to the file system that reads a buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_read_s: Option<Measured<Seconds>>,
    /// Each request to the file system that writes a buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_written_s: Option<Measured<Seconds>>,
}

/// What goes on at the same time. How reading and writing overlap is in [`Streams`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overlaps {
    /// Of computing with reading and writing; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<Measured<Overlap>>,
    /// Of metadata of some processes with data of others, with more than one process; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Measured<Overlap>>,
    /// Of reading with what memory passes on once it is full of writes; absent: that of reading and
    /// writing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_back: Option<Measured<Overlap>>,
}

/// Writes that are taken into memory until it is full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteBack {
    /// MiB that a node takes in before writing slows down.
    pub node_mib: Measured<Mebibytes>,
    /// What goes on to the storage all the time, from all nodes together.
    pub sustained_mib_per_s: Measured<MibPerSecond>,
}

/// Memory that files are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// The most that was found there, of one node.
    pub node_bytes: Bytes,
}

/// Throughputs of a number of processes together, one file in and one out each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Nodes.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Processes of each node.
    pub processes: u32,
    /// Only reading, nothing in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_mib_per_s: Option<Measured<MibPerSecond>>,
    /// Only writing, no more than [`WriteBack`] takes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_mib_per_s: Option<Measured<MibPerSecond>>,
    /// As many bytes out as in, counted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_mib_per_s: Option<Measured<MibPerSecond>>,
    /// Only reading what is in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read_mib_per_s: Option<Measured<MibPerSecond>>,
    /// As many bytes out as in, input in memory, counted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_mixed_mib_per_s: Option<Measured<MibPerSecond>>,
    /// Files created (and closed) a second by all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_per_s: Option<Measured<PerSecond>>,
    /// Files opened (and closed) a second by all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_per_s: Option<Measured<PerSecond>>,
}

fn one() -> u32 {
    1
}

/// By how much each further file makes a run longer that splits into such files, or merges from them, one
/// after the other. It grows with the size of the file as long as storage is asked ahead for more of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCosts {
    /// Nodes.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Processes of each node.
    pub processes: u32,
    /// Size of the files.
    pub file_bytes: Bytes,
    /// Each file split into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_s_per_file: Option<Measured<Seconds>>,
    /// Each file merged from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_s_per_file: Option<Measured<Seconds>>,
}

/// Throughputs of one process that goes from file to file with each record.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interleaved {
    /// Files open at a time.
    pub files: u64,
    /// Reading from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_mib_per_s: Option<Measured<MibPerSecond>>,
    /// Writing to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_mib_per_s: Option<Measured<MibPerSecond>>,
}

/// How well the model fits its own runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// Root mean square of ln(measured / forecast) over the runs of the calibration; it widens every
    /// interval.
    pub residual: f64,
}

impl Calibration {
    /// Takes the text of `file`, which complaints name.
    ///
    /// # Errors
    /// If a key is missing or unknown, a value cannot be, or values contradict each other.
    pub fn parse(text: &str, file: &Path) -> Result<Self, FileError> {
        parse(text, file, Self::check)
    }
}
