//! Runs one experiment: measures the points that are missing, adds each to the results as soon as it
//! is known, and makes the page. A point that cannot be measured does not stop the others.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use azekura::host::interrupt::on_end_signals;
use azekura::report::{Progress, explain};

use super::frame::{Experiment, Point, Settings, Source};
use super::page;
use super::results::{Before, Results, RunRecord};
use super::selection::Selection;
use super::session::Load;

/// Somebody wants the run to end early.
#[derive(Clone, Default)]
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Listens for signals: the first ends the run after the point at hand, the second at once.
    pub(crate) fn listen() -> Result<Self> {
        let stop = Self::default();
        let shared = Arc::clone(&stop.0);
        on_end_signals(move |_| shared.store(true, Ordering::Relaxed))?;
        Ok(stop)
    }

    fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Points measured in this run.
    pub(crate) measured: usize,
    /// Points that were there before.
    pub(crate) kept: usize,
    /// Points that could not be measured.
    pub(crate) failed: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} points measured", self.measured)?;
        if self.kept > 0 {
            write!(f, ", {} kept", self.kept)?;
        }
        if self.failed > 0 {
            write!(f, ", {} could not be measured", self.failed)?;
        }
        Ok(())
    }
}

/// The points that are to be measured, of those that were selected. Those that are known without are added to the results, and
/// those for which other results are missing are left for another run.
fn to_measure<'a>(
    experiment: &dyn Experiment,
    settings: &Settings,
    points: &'a [Point],
    (dir, selection): (&Path, &Selection),
    results: &mut Results,
) -> Result<Vec<&'a Point>> {
    let mut missing = Vec::new();
    for point in points {
        if results.has(point) || !selection.admits(experiment, point) {
            continue;
        }
        match experiment.source(point, settings, dir) {
            Source::Measured => missing.push(point),
            Source::Known(values) => results.add(point, values)?,
            Source::Missing => {}
        }
    }
    Ok(missing)
}

/// Runs an experiment with its results in `dir`.
///
/// # Errors
/// If results cannot be kept, or the run was interrupted.
pub(crate) fn run(
    experiment: &dyn Experiment,
    record: RunRecord,
    dir: &Path,
    (before, selection): (Before, &Selection),
    stop: &Interruption,
) -> Result<Outcome> {
    let settings = record.settings();
    let mut results = Results::open(dir, experiment, record, before)?;
    let points = experiment.points(&settings);
    let kept = points.iter().filter(|point| results.has(point)).count();
    let missing = to_measure(experiment, &settings, &points, (dir, selection), &mut results)?;
    let mut outcome = Outcome { measured: 0, kept, failed: 0 };
    if !missing.is_empty() {
        let mut progress = Progress::count(experiment.name(), points.len() as u64);
        progress.advance((points.len() - missing.len()) as u64);
        let mut last_failure = String::new();
        // Dropped before the page is written, so that its processes are gone by then.
        let mut measure = experiment.start(&settings)?;
        for point in missing {
            let measured = if stop.came() { None } else { Some(measure(point)) };
            match measured {
                Some(Ok(values)) => {
                    results.add(point, values)?;
                    outcome.measured += 1;
                }
                // An interruption reaches the workers too: that is no result.
                Some(Err(_)) | None if stop.came() => {
                    bail!(
                        "interrupted: {} of {} points of {} are in {}; the same command with \
                         --resume goes on",
                        results.rows.len(),
                        points.len(),
                        experiment.name(),
                        dir.display()
                    );
                }
                Some(Err(error)) => {
                    outcome.failed += 1;
                    let why = explain(&error);
                    let named = format!("azekura-lab: {} {}", experiment.name(), point.0.join(" "));
                    if why == last_failure {
                        progress.note(&format!("{named}: the same"));
                    } else {
                        progress.note(&format!("{named}: {why}"));
                    }
                    last_failure = why;
                }
                None => {}
            }
            progress.advance(1);
        }
    }
    results.end_session(Load::now())?;
    page::write(dir, experiment, &results.run, &results.rows)?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Figure, Measure, Parameter, Value};
    use super::super::sample::{Sample, record};
    use super::*;

    /// The sample, some points of which need not be measured, and some cannot be.
    struct Derived;

    impl Experiment for Derived {
        fn name(&self) -> &'static str {
            "derived"
        }
        fn about(&self) -> &'static str {
            Sample.about()
        }
        fn method(&self, settings: &Settings) -> String {
            Sample.method(settings)
        }
        fn parameters(&self) -> &'static [Parameter] {
            Sample.parameters()
        }
        fn values(&self) -> &'static [Value] {
            Sample.values()
        }
        fn points(&self, settings: &Settings) -> Vec<Point> {
            Sample.points(settings)
        }
        fn figures(&self, settings: &Settings) -> Vec<Figure> {
            Sample.figures(settings)
        }
        fn source(&self, point: &Point, _settings: &Settings, dir: &Path) -> Source {
            match point.0[0].as_str() {
                "a" => Source::Known(vec![1.0, 2.0]),
                "broken" if !dir.join("other").exists() => Source::Missing,
                _ => Source::Measured,
            }
        }
        fn start(&self, settings: &Settings) -> Result<Measure> {
            Sample.start(settings)
        }
    }

    #[test]
    fn what_is_known_is_not_measured_and_what_cannot_be_known_yet_waits() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Interruption::default();
        let go = |before| {
            run(&Derived, record(), dir.path(), (before, &Selection::default()), &stop).unwrap()
        };
        assert_eq!(go(Before::Refuse), Outcome { measured: 2, kept: 0, failed: 0 });
        let page = std::fs::read_to_string(dir.path().join("README.md")).unwrap();
        assert!(page.contains("2 of 6 points are missing."), "{page}");
        std::fs::write(dir.path().join("other"), "").unwrap();
        assert_eq!(go(Before::Resume), Outcome { measured: 0, kept: 4, failed: 2 });
    }

    #[test]
    fn a_point_that_fails_does_not_stop_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Interruption::default();
        let go = |before| {
            run(&Sample, record(), dir.path(), (before, &Selection::default()), &stop).unwrap()
        };
        assert_eq!(go(Before::Refuse), Outcome { measured: 4, kept: 0, failed: 2 });
        assert_eq!(
            go(Before::Resume),
            Outcome { measured: 0, kept: 4, failed: 2 },
            "what failed is tried again, and nothing else"
        );
        assert_eq!(go(Before::Overwrite), Outcome { measured: 4, kept: 0, failed: 2 });
    }

    #[test]
    fn an_interrupted_run_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let stop = Interruption::default();
        stop.0.store(true, Ordering::Relaxed);
        let all = Selection::default();
        let go = |before| run(&Sample, record(), dir.path(), (before, &all), &stop);
        let error = go(Before::Refuse).unwrap_err();
        assert!(error.to_string().contains("--resume"), "{error}");
        stop.0.store(false, Ordering::Relaxed);
        let outcome = go(Before::Resume).unwrap();
        assert_eq!(outcome.measured, 4);
    }
}
