//! A calibration and jobs for tests, written as a person would write them.

use std::path::Path;

use crate::calibration::{Calibration, Machine};
use crate::job::Job;
use crate::runs::{Run, Runs};

pub(crate) const FS: &str = r#"
format = 1
name = "sample"

[made]
date = "2026-11-23 04:30"
software = "azekura 0.1.0, Linux 6.18"
target = "/data"
file_system = "ext4"
mount_options = "rw,relatime"
record_bytes = 1024
buffer_bytes = 1_048_576
[made.machine]
host = "a"
processor = "Abacus"
processors = 4
memory_bytes = 8_589_934_592

[range]
files = [1, 512]
bytes = [1024, 17_179_869_184]
processes = [1, 8]
nodes = [1, 1]
record_bytes = [1024, 1_048_576]
buffer_bytes = [65_536, 4_194_304]

[sequential]
read_mib_per_s = { value = 200, sd = 4.0, runs = 3 }
write_mib_per_s = { value = 100, sd = 3.0, runs = 3 }
[random]
read_mib_per_s = 50
write_mib_per_s = 25
[metadata]
split_s_per_file = { value = 0.04, sd = 0.002, runs = 3 }
merge_s_per_file = { value = 0.02, sd = 0.001, runs = 3 }
start_s = 0.01
create_s = 0.001
open_s = 0.0005
stat_s = 0.0002
close_s = 0
unlink_s = 0.002

[[streams]]
processes = 1
read_mib_per_s = { value = 200, sd = 4.0, runs = 3 }
write_mib_per_s = { value = 100, sd = 3.0, runs = 3 }
mixed_mib_per_s = { value = 150, sd = 3.0, runs = 3 }
cached_read_mib_per_s = 2000
cached_mixed_mib_per_s = 180
create_per_s = 1000
open_per_s = 2000
[[streams]]
processes = 4
read_mib_per_s = { value = 300, sd = 4.0, runs = 3 }
write_mib_per_s = { value = 150, sd = 3.0, runs = 3 }
mixed_mib_per_s = { value = 240, sd = 3.0, runs = 3 }
cached_read_mib_per_s = 8000
create_per_s = 2000
open_per_s = 8000
[[streams]]
processes = 8
read_mib_per_s = { value = 240, sd = 4.0, runs = 3 }
write_mib_per_s = { value = 120, sd = 3.0, runs = 3 }
mixed_mib_per_s = { value = 180, sd = 3.0, runs = 3 }

[[interleaved]]
files = 1
read_mib_per_s = 200
write_mib_per_s = 100
[[interleaved]]
files = 64
read_mib_per_s = 100
write_mib_per_s = 80

[cache]
node_bytes = 4_294_967_296
"#;

pub(crate) const SIMPLE: [&str; 2] = ["simple", ""];
pub(crate) const SPLIT: [&str; 2] = ["split", "files_out = 100"];
pub(crate) const MERGE: [&str; 2] = ["merge", "files_in = 100"];

pub(crate) fn calibration() -> Calibration {
    Calibration::parse(FS, Path::new("fs.toml")).unwrap_or_else(|error| panic!("{error}"))
}

/// A job of one process that reads and writes 1 GiB.
pub(crate) fn job([pattern, more]: &[&str; 2]) -> Job {
    let text = format!(
        "name = \"sample\"\n[[phase]]\npattern = \"{pattern}\"\nbytes_in = \"1 GiB\"\nratio = 1.0\n\
         record_bytes = 1024\nbuffer_bytes = \"1 MiB\"\n{more}\n"
    );
    Job::parse(&text, Path::new("job.toml")).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs of several kinds, with the seconds that a function gives.
pub(crate) fn runs(seconds: impl Fn(&Job) -> Vec<f64>) -> Runs {
    let mut jobs = vec![job(&SIMPLE), job(&SPLIT), job(&MERGE), job(&SIMPLE), job(&SIMPLE)];
    jobs[3].processes = 4;
    jobs[4].phases[0].ratio = Some(0.0);
    let runs = jobs.into_iter().enumerate().map(|(index, job)| Run {
        name: index.to_string(),
        seconds: seconds(&job),
        job,
        phase_seconds: Vec::new(),
        caches_dropped: true,
    });
    Runs {
        format: 1,
        machine: Machine::default(),
        date: String::new(),
        software: String::new(),
        target: String::new(),
        runs: runs.collect(),
    }
}
