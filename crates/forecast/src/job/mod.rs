//! What is to be forecast: the contents of `JOB.toml`, a batch of processes that read files and write
//! files, in one phase after the other. Owns its keys and which of their values contradict each other.

mod write;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::complaint::{Contradiction, FileError, parse, require};
use crate::units::{Bytes, Seconds};

/// The only format there is.
pub const FORMAT: u32 = 1;

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`FORMAT`].
    #[serde(default = "format")]
    pub format: u32,
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// Processes of each node (`N_P`).
    #[serde(default = "one")]
    pub processes: u32,
    /// Nodes (`N_N`).
    #[serde(default = "one")]
    pub nodes: u32,
    /// What is done, one after the other.
    #[serde(rename = "phase", default)]
    pub phases: Vec<Phase>,
}

fn format() -> u32 {
    FORMAT
}

fn one() -> u32 {
    1
}

fn one_file() -> u64 {
    1
}

/// What a phase does with its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each process reads one file and writes one.
    Simple,
    /// Each process reads one file and writes many.
    Split,
    /// Each process reads many files and writes one.
    Merge,
    /// Anything else; its operations on names are counted in the job.
    Other,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simple => "simple",
            Self::Split => "split",
            Self::Merge => "merge",
            Self::Other => "other",
        })
    }
}

/// How a process goes through many files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// One after the other.
    #[default]
    Sequential,
    /// To the next with each record.
    RoundRobin,
}

/// Where requests fall within a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// One behind the other.
    #[default]
    Sequential,
    /// Anywhere.
    Random,
}

/// What is in the nodes' memory when a phase begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// Nothing of its input.
    #[default]
    Cold,
    /// All of its input that fits.
    Warm,
}

/// Whom numbers of files and operations belong to; bytes are always those of the whole phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Each process has as many.
    #[default]
    Process,
    /// All processes together have as many.
    Job,
}

/// A part of a job that ends before the next begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it does with its files.
    pub pattern: Pattern,
    /// How each process goes through many files.
    #[serde(default)]
    pub order: Order,
    /// Bytes that all processes read together (`F_I`).
    pub bytes_in: Bytes,
    /// Bytes that all processes write together (`F_O`); this or `ratio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<Bytes>,
    /// `F_O` over `F_I`; this or `bytes_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Files read (`N_MF` of a merge).
    #[serde(default = "one_file")]
    pub files_in: u64,
    /// Files written (`N_SF` of a split).
    #[serde(default = "one_file")]
    pub files_out: u64,
    /// Whose files and operations these are.
    #[serde(default)]
    pub files_per: Per,
    /// Size of a record.
    pub record_bytes: Bytes,
    /// Size of the application's buffer, of each file.
    pub buffer_bytes: Bytes,
    /// Where requests fall.
    #[serde(default)]
    pub access: Access,
    /// What is in memory at its beginning.
    #[serde(default)]
    pub caches: Caches,
    /// Seconds that the application computes for each byte read (written, where nothing is read).
    #[serde(default)]
    pub compute_s_per_byte: Seconds,
    /// Seconds that the application computes for each record read (written, where nothing is read).
    #[serde(default)]
    pub compute_s_per_record: Seconds,
    /// Operations on names of the pattern `other`; others follow from their files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
}

/// Numbers of operations on names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Operations {
    /// Files created.
    pub create: u64,
    /// Files opened that were there.
    pub open: u64,
    /// Attributes asked for by name.
    pub stat: u64,
    /// Files closed.
    pub close: u64,
    /// Names removed.
    pub unlink: u64,
}

impl Phase {
    /// Bytes that all processes write together.
    pub fn written(&self) -> Bytes {
        self.bytes_out.unwrap_or_else(|| {
            Bytes((self.bytes_in.0 as f64 * self.ratio.unwrap_or(0.0)).round() as u64)
        })
    }

    /// Records of a number of bytes.
    pub fn records(&self, bytes: Bytes) -> f64 {
        bytes.0 as f64 / self.record_bytes.0 as f64
    }

    /// A number of files or operations, of each of `processes`.
    pub fn of_each(&self, number: u64, processes: f64) -> f64 {
        match self.files_per {
            Per::Process => number as f64,
            Per::Job => number as f64 / processes,
        }
    }

    fn check(&self, index: usize, processes: f64) -> Result<(), Contradiction> {
        let key = |name: &str| format!("phase[{index}].{name}");
        for (name, bytes) in
            [("record_bytes", self.record_bytes), ("buffer_bytes", self.buffer_bytes)]
        {
            require(bytes.0 > 0, key(name), || {
                "0 cannot be: write a size in bytes, or as \"1 KiB\"".to_owned()
            })?;
        }
        require(!(self.ratio.is_some() && self.bytes_out.is_some()), key("ratio"), || {
            "bytes_out says already how much is written: write one of them".to_owned()
        })?;
        require(self.ratio.is_some() || self.bytes_out.is_some(), key("bytes_out"), || {
            "how much is written is missing: write bytes_out, or ratio (of output to input)"
                .to_owned()
        })?;
        let ratio = self.ratio.unwrap_or(0.0);
        require(ratio >= 0.0 && ratio.is_finite(), key("ratio"), || {
            format!("{ratio} cannot be: write 0 or more")
        })?;
        for (name, time) in [
            ("compute_s_per_byte", self.compute_s_per_byte),
            ("compute_s_per_record", self.compute_s_per_record),
        ] {
            require(time.0 >= 0.0 && time.0.is_finite(), key(name), || {
                format!("{} cannot be: write 0 or more, in s", time.0)
            })?;
        }
        let written = self.written();
        let idle = self.bytes_in.0 == 0 && written.0 == 0 && self.operations.is_none();
        require(!idle, key("bytes_in"), || {
            "nothing is read and nothing is written: write how many bytes are".to_owned()
        })?;
        let reads = self.pattern != Pattern::Other;
        require(!reads || self.bytes_in.0 > 0 || self.ratio.is_none(), key("bytes_in"), || {
            "0 with a ratio writes nothing: write bytes_out".to_owned()
        })?;
        self.check_files("in", self.files_in, self.bytes_in, processes, index)?;
        self.check_files("out", self.files_out, written, processes, index)?;
        self.check_pattern(index)
    }

    fn check_files(
        &self,
        way: &str,
        files: u64,
        bytes: Bytes,
        processes: f64,
        index: usize,
    ) -> Result<(), Contradiction> {
        let key = format!("phase[{index}].files_{way}");
        require(files > 0 || bytes.0 == 0, key.as_str(), || {
            format!("0 files cannot hold {} bytes: write how many there are", bytes.0)
        })?;
        let all = self.of_each(files, processes) * processes;
        let records = self.records(bytes).ceil();
        // Files that get no record are made all the same where nothing is moved.
        let many = files > 1 && bytes.0 > 0 && self.pattern != Pattern::Other;
        require(!many || all <= records, key.as_str(), || {
            format!(
                "{all} files in all are more than the {records} records in them: write fewer files, \
                 or more bytes"
            )
        })?;
        require(
            bytes.0 == 0 || self.record_bytes <= bytes,
            format!("phase[{index}].record_bytes"),
            || format!("{} is more than the {} bytes {way}", self.record_bytes.0, bytes.0),
        )
    }

    fn check_pattern(&self, index: usize) -> Result<(), Contradiction> {
        let key = |name: &str| format!("phase[{index}].{name}");
        let each = self.files_per == Per::Process;
        let one_in = matches!(self.pattern, Pattern::Simple | Pattern::Split);
        require(!(each && one_in && self.files_in > 1), key("files_in"), || {
            format!(
                "a process of the pattern '{}' reads one file, not {}: write 'merge' or 'other'",
                self.pattern, self.files_in
            )
        })?;
        let one_out = matches!(self.pattern, Pattern::Simple | Pattern::Merge);
        require(!(each && one_out && self.files_out > 1), key("files_out"), || {
            format!(
                "a process of the pattern '{}' writes one file, not {}: write 'split' or 'other'",
                self.pattern, self.files_out
            )
        })?;
        let counted = self.operations.is_some();
        require(!counted || self.pattern == Pattern::Other, key("operations"), || {
            format!(
                "the operations of the pattern '{}' follow from its files: leave them out, or write \
                 'other'",
                self.pattern
            )
        })
    }
}

impl Job {
    /// Takes the text of `file`, which complaints name.
    ///
    /// # Errors
    /// If a key is missing or unknown, a value cannot be, or values contradict each other.
    pub fn parse(text: &str, file: &Path) -> Result<Self, FileError> {
        parse(text, file, Self::check)
    }

    /// Holds its values against each other.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), Contradiction> {
        require(self.format == FORMAT, "format", || {
            format!("{} is not known: this program reads format {FORMAT}", self.format)
        })?;
        for (key, number) in [("processes", self.processes), ("nodes", self.nodes)] {
            require(number > 0, key, || "0 cannot be: write 1 or more".to_owned())?;
        }
        require(!self.phases.is_empty(), "phase", || {
            "there is none: write one [[phase]] at least".to_owned()
        })?;
        let processes = f64::from(self.processes) * f64::from(self.nodes);
        let mut phases = self.phases.iter().enumerate();
        phases.try_for_each(|(index, phase)| phase.check(index, processes))
    }
}
