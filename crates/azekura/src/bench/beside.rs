//! Workers that do the same elsewhere at the same time of a run: on other access paths of the pool, or
//! on libfuse's example. Owns how they are told apart in results; what they do is the business of each
//! bench.

use anyhow::Result;
use rustix::process::{Resource, getrlimit};

use super::cpu::CpuMeter;
use super::passthrough::{MODES, PROGRAM, Passthrough, program};
use super::sheet::{Series, median};
use super::site::Site;
use crate::host::programs;
use crate::load::{AccessPath, Backend, Order, WorkerPool};
use crate::report;

/// Descriptors that libfuse's example takes for itself, and to be on the safe side.
const DESCRIPTORS_BESIDE: u64 = 256;

/// Such workers.
pub(super) struct Beside {
    /// Stands before the names of their rows.
    pub(super) label: String,
    /// How what they use was set up, if there is a choice.
    mode: Option<&'static str>,
    /// Whether a kernel mount stands in between, which remembers names for a while.
    pub(super) has_mount: bool,
    pub(super) workers: WorkerPool,
    // After the workers, which have files open on it.
    mount: Option<Passthrough>,
}

impl Beside {
    /// All that a bench is held against besides its references. `files`: how many there will be at a time.
    ///
    /// # Errors
    /// If workers cannot be started on an access path of the pool.
    pub(super) fn start_all(site: &Site, files: u64) -> Result<Vec<Self>> {
        let on_path = |(access, workers): (AccessPath, WorkerPool)| Self {
            label: access.to_string(),
            mode: None,
            has_mount: access.has_mount(),
            workers,
            mount: None,
        };
        let mut all: Vec<Self> = site.start_beside()?.into_iter().map(on_path).collect();
        if matches!(site.backend, Backend::Path(_)) {
            all.extend(start_examples(site.processes, files)?);
        }
        Ok(all)
    }

    /// The directory, below their backend, that they work in.
    pub(super) fn work_dir(&self) -> String {
        format!("{}-{}", super::site::work_dir(), self.label)
    }

    /// Rows that stand beside those of the bench.
    pub(super) fn series(&self, all: &[Series]) -> Vec<Series> {
        all.iter().map(|ours| Series::beside(&self.label, self.mode, ours)).collect()
    }

    /// Whose processor time is counted with theirs, if that of the bench is.
    pub(super) fn meter(&self, ours: Option<&CpuMeter>) -> Option<CpuMeter> {
        match &self.mount {
            Some(mount) => ours.map(|_| CpuMeter::of_workers(&[mount.process()])),
            None => ours.cloned(),
        }
    }
}

/// libfuse's example in each mode, if it is there and can keep so many files, for each of which it holds a
/// descriptor.
fn start_examples(processes: usize, files: u64) -> Result<Vec<Beside>> {
    let Some(program) = program() else { return Ok(Vec::new()) };
    let descriptors_max = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if files > descriptors_max.saturating_sub(DESCRIPTORS_BESIDE) {
        report::note(format_args!(
            "azekura: without {}: it holds a descriptor for each of {files} files, and may have \
             {descriptors_max}; take fewer --files, or raise the limit (ulimit -Hn)",
            program.display()
        ));
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    let mut why_not = None;
    for mode in MODES {
        let mount = match Passthrough::start(&program, mode) {
            Ok(mount) => mount,
            Err(error) => {
                why_not = Some(error);
                continue;
            }
        };
        let mut workers = WorkerPool::start(&programs::own()?, processes)?;
        let dir = mount.mount_point().to_string_lossy().into_owned();
        workers.run_all(&Order::Open(Backend::Path(dir)))?;
        all.push(Beside {
            label: PROGRAM.to_owned(),
            mode: Some(mode.name),
            has_mount: true,
            workers,
            mount: Some(mount),
        });
    }
    if let (true, Some(error)) = (all.is_empty(), why_not) {
        report::note(format_args!("azekura: without {}: {error:#}", program.display()));
    }
    Ok(all)
}

/// Of rows with the same name, which differ by mode, the best one.
pub(super) fn best_of_modes(all: Vec<Series>) -> Vec<Series> {
    let mut best: Vec<Series> = Vec::with_capacity(all.len());
    for series in all {
        match best.iter_mut().find(|other| other.name == series.name) {
            Some(other) if median(&other.values) < median(&series.values) => *other = series,
            Some(_) => {}
            None => best.push(series),
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::Unit;

    #[test]
    fn the_best_mode_of_each_row_is_kept() {
        let ours =
            |name: &str| Series::new(name.to_owned(), Unit::Operations, "ref", Unit::Operations);
        let row = |name: &str, mode, values: &[f64]| Series {
            values: values.to_vec(),
            ..Series::beside("example", mode, &ours(name))
        };
        let best = best_of_modes(vec![
            row("create", Some("one"), &[1.0, 9.0, 2.0]),
            row("stat", Some("one"), &[5.0]),
            row("create", Some("two"), &[3.0, 3.0, 3.0]),
            row("stat", Some("two"), &[4.0]),
        ]);
        let found: Vec<_> = best.iter().map(|row| (row.name.as_str(), row.mode)).collect();
        assert_eq!(found, [("example:create", Some("two")), ("example:stat", Some("one"))]);
    }
}
