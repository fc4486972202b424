//! What was measured: the contents of `RUN.json`, which `azekura bench batch --json` prints. Owns its
//! keys; each run names the job that it was, with the keys of `JOB.toml`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::calibration::Machine;
use crate::complaint::{Contradiction, FileError, require};
use crate::job::Job;

/// The only format there is.
const FORMAT: u32 = 1;

/// Measured runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// 1, the only format there is.
    pub format: u32,
    /// The machine that they were done on.
    pub machine: Machine,
    /// Date and time, UTC, as `2026-11-23 04:30`.
    #[serde(default)]
    pub date: String,
    /// Program and kernel with their versions.
    #[serde(default)]
    pub software: String,
    /// The directory or pool.
    #[serde(default)]
    pub target: String,
    /// The runs.
    pub runs: Vec<Run>,
}

/// One job, measured once or more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// What was done.
    pub job: Job,
    /// From the barrier to the end of the last process, of each repetition, in seconds.
    pub seconds: Vec<f64>,
    /// The same of each phase (outer) and repetition (inner), where it was measured; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase_seconds: Vec<Vec<f64>>,
    /// Whether caches were dropped before each repetition, as a job with cold caches wants it.
    #[serde(default)]
    pub caches_dropped: bool,
}

impl Run {
    /// The mean of the repetitions, in seconds.
    pub fn mean(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len().max(1) as f64
    }
}

impl Runs {
    /// Takes the text of `file`, which complaints name.
    ///
    /// # Errors
    /// If it is no JSON, a key is missing or unknown, or values contradict each other.
    pub fn parse(text: &str, file: &Path) -> Result<Self, FileError> {
        let refuse = |line, key, what| FileError { file: file.to_owned(), line, key, what };
        let runs: Self = serde_json::from_str(text).map_err(|error| {
            let line = Some(error.line()).filter(|line| *line > 0);
            refuse(line, String::new(), error.to_string())
        })?;
        match runs.check() {
            Ok(()) => Ok(runs),
            Err(Contradiction { key, what }) => Err(refuse(None, key, what)),
        }
    }

    fn check(&self) -> Result<(), Contradiction> {
        require(self.format == FORMAT, "format", || {
            format!("{} is not known: this program reads format {FORMAT}", self.format)
        })?;
        require(!self.runs.is_empty(), "runs", || "there are none".to_owned())?;
        for (index, run) in self.runs.iter().enumerate() {
            run.job.check().map_err(|Contradiction { key, what }| Contradiction {
                key: format!("runs[{index}].job.{key}"),
                what,
            })?;
            let key = format!("runs[{index}].seconds");
            require(!run.seconds.is_empty(), key.as_str(), || "there are none".to_owned())?;
            let wrong =
                run.seconds.iter().find(|seconds| !(seconds.is_finite() && **seconds > 0.0));
            require(wrong.is_none(), key, || {
                format!(
                    "{} cannot be: a run takes more than 0 s",
                    wrong.copied().unwrap_or_default()
                )
            })?;
        }
        Ok(())
    }
}
