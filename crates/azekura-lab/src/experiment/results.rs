//! The results of a run on disk: `results.csv`, one line a point, and `run.json`, which says how and
//! where they were measured. Points are added one by one, so that a run that was cut short goes on
//! where it was. Owns both formats.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use azekura::host::machine::Machine;
use azekura::outcome::usage;
use serde::{Deserialize, Serialize};

use super::frame::{Experiment, Point, Settings, Value, ranged};
use super::session::{Load, Session};

pub(crate) const CSV_FILE: &str = "results.csv";
const RUN_FILE: &str = "run.json";

/// How and where a run was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// Version of this program.
    pub(crate) version: String,
    /// The command as it was typed.
    pub(crate) command_line: String,
    /// When it was begun: date and time, UTC.
    pub(crate) begun: String,
    /// Few points and little data.
    pub(crate) quick: bool,
    /// Factor on amounts.
    pub(crate) scale: f64,
    /// Bound of a point, in seconds.
    pub(crate) point_s: f64,
    /// The machine.
    pub(crate) machine: Machine,
    /// The sittings in which it was measured; none in records of earlier versions.
    #[serde(default)]
    pub(crate) sessions: Vec<Session>,
    /// How it was done, as the experiment said then; empty in older records.
    #[serde(default)]
    pub(crate) method: String,
}

impl RunRecord {
    /// The settings of the run.
    pub(crate) fn settings(&self) -> Settings {
        Settings { quick: self.quick, scale: self.scale, point_s: self.point_s }
    }
}

/// What to do with results that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Stop, and say so.
    Refuse,
    /// Keep them, and measure what is missing.
    Resume,
    /// Measure everything anew.
    Overwrite,
}

/// One measured point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Which.
    pub(crate) point: Point,
    /// Its values.
    pub(crate) values: Vec<f64>,
}

/// Rows in a file that grows.
pub(crate) struct Results {
    file: File,
    run_file: PathBuf,
    /// What is known so far.
    pub(crate) rows: Vec<Row>,
    /// How it was measured.
    pub(crate) run: RunRecord,
}

impl Results {
    /// Opens the results of an experiment in its directory, which is made if need be.
    ///
    /// # Errors
    /// If results are there that must not be touched, or do not go with this run.
    pub(crate) fn open(
        dir: &Path,
        experiment: &dyn Experiment,
        run: RunRecord,
        before: Before,
    ) -> Result<Self> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        let (csv, run_file) = (dir.join(CSV_FILE), dir.join(RUN_FILE));
        if csv.exists() {
            match before {
                Before::Resume => return Self::resume(&csv, &run_file, experiment, &run),
                Before::Refuse => bail!(usage(format!(
                    "{} is there already: --resume measures what is missing in it, --overwrite \
                     measures everything anew",
                    csv.display()
                ))),
                Before::Overwrite => {}
            }
        }
        write_whole(&csv, &heading(experiment))?;
        let results = Self { file: open_end(&csv)?, run_file, rows: Vec::new(), run };
        results.keep_record()?;
        Ok(results)
    }

    fn resume(
        csv: &Path,
        run_file: &Path,
        experiment: &dyn Experiment,
        now: &RunRecord,
    ) -> Result<Self> {
        let text = std::fs::read_to_string(run_file)
            .with_context(|| format!("cannot read {}", run_file.display()))?;
        let mut run: RunRecord = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged: use --overwrite", run_file.display()))?;
        if run.settings() != now.settings() || run.machine.processor != now.machine.processor {
            bail!(usage(format!(
                "{} was measured {}--scale {} --seconds-per-point {} on '{}': go on the same way, \
                 or use --overwrite",
                csv.display(),
                if run.quick { "with --quick and " } else { "with " },
                run.scale,
                run.point_s,
                run.machine.processor
            )));
        }
        let mut file = open_end(csv)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| format!("cannot read {}", csv.display()))?;
        if !text.starts_with(&heading(experiment)) {
            bail!(usage(format!(
                "{}: the columns are not those of this experiment: use --overwrite",
                csv.display()
            )));
        }
        let (rows, whole_bytes) =
            parse(&text, experiment).with_context(|| csv.display().to_string())?;
        // A line that was being written when the run was cut short is measured again.
        file.set_len(whole_bytes).with_context(|| format!("cannot cut {}", csv.display()))?;
        file.seek(SeekFrom::End(0))?;
        run.sessions.extend(now.sessions.iter().cloned());
        let results = Self { file, run_file: run_file.to_owned(), rows, run };
        results.keep_record()?;
        Ok(results)
    }

    fn keep_record(&self) -> Result<()> {
        write_whole(&self.run_file, &format!("{}\n", serde_json::to_string_pretty(&self.run)?))
    }

    /// Notes how busy the machine is at the end of this sitting.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub(crate) fn end_session(&mut self, load: Load) -> Result<()> {
        if let Some(session) = self.run.sessions.last_mut() {
            session.load_after = Some(load);
        }
        self.keep_record()
    }

    /// Whether a point has been measured.
    pub(crate) fn has(&self, point: &Point) -> bool {
        self.rows.iter().any(|row| row.point == *point)
    }

    /// Adds a point, for good.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn add(&mut self, point: &Point, values: Vec<f64>) -> Result<()> {
        let cells = point.0.iter().cloned().chain(values.iter().map(|value| format_value(*value)));
        let line = cells.collect::<Vec<_>>().join(",") + "\n";
        self.file.write_all(line.as_bytes()).context("cannot write results")?;
        self.file.sync_data().context("cannot write results")?;
        self.rows.push(Row { point: point.clone(), values });
        Ok(())
    }
}

/// Enough digits for any figure, and no noise.
fn format_value(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn heading(experiment: &dyn Experiment) -> String {
    let parameters = experiment.parameters().iter().map(|parameter| parameter.name);
    let values = experiment.values().iter().map(|value| value.name);
    parameters.chain(values).collect::<Vec<_>>().join(",") + "\n"
}

/// Where each value stands in a line; `None` for the range of a mean, where it was not kept.
fn columns(heading: &str, experiment: &dyn Experiment) -> Option<Vec<Option<usize>>> {
    let names: Vec<&str> = heading.split(',').collect();
    let parameters = experiment.parameters();
    let is_same =
        parameters.iter().map(|p| p.name).eq(names.iter().copied().take(parameters.len()));
    let values = experiment.values();
    let column = |value: &Value| {
        let found = names.iter().position(|name| *name == value.name);
        (found.is_some() || ranged(values, value.name).is_some()).then_some(found)
    };
    let columns: Vec<Option<usize>> = values.iter().map(column).collect::<Option<_>>()?;
    let known = parameters.len() + columns.iter().flatten().count();
    (is_same && known == names.len()).then_some(columns)
}

/// The rows, and how many bytes of the text are whole lines. Results from before ranges were kept have none:
/// not a number stands in their place.
fn parse(text: &str, experiment: &dyn Experiment) -> Result<(Vec<Row>, u64)> {
    let whole_bytes = text.rfind('\n').map_or(0, |at| at + 1);
    let mut lines = text[..whole_bytes].lines();
    let Some(columns) = lines.next().and_then(|line| columns(line, experiment)) else {
        bail!(usage("the columns are not those of this experiment: use --overwrite"));
    };
    let parameters = experiment.parameters().len();
    let width = parameters + columns.iter().flatten().count();
    let mut rows = Vec::new();
    for (index, line) in lines.enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let figure = |column: &Option<usize>| match column {
            Some(column) => cells.get(*column)?.parse().ok(),
            None => Some(f64::NAN),
        };
        match columns.iter().map(figure).collect::<Option<Vec<f64>>>() {
            Some(values) if cells.len() == width => rows.push(Row {
                point: Point(cells[..parameters].iter().map(ToString::to_string).collect()),
                values,
            }),
            _ => bail!("line {} is damaged: remove it, or use --overwrite", index + 2),
        }
    }
    Ok((rows, whole_bytes as u64))
}

/// The rows of an experiment's results in a directory; `None` if there are none that fit.
pub(crate) fn rows(dir: &Path, experiment: &dyn Experiment) -> Option<Vec<Row>> {
    let text = std::fs::read_to_string(dir.join(CSV_FILE)).ok()?;
    parse(&text, experiment).ok().map(|(rows, _)| rows)
}

/// How the results in a directory were measured; `None` if that is not known.
pub(crate) fn settings(dir: &Path) -> Option<Settings> {
    let text = std::fs::read_to_string(dir.join(RUN_FILE)).ok()?;
    serde_json::from_str(&text).ok().map(|run: RunRecord| run.settings())
}

/// What was kept in a directory: how it was measured, and its rows.
///
/// # Errors
/// If there are no results of this experiment.
pub(crate) fn kept(dir: &Path, experiment: &dyn Experiment) -> Result<(RunRecord, Vec<Row>)> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let run = serde_json::from_str(&read(RUN_FILE)?)
        .with_context(|| format!("{} is damaged", dir.join(RUN_FILE).display()))?;
    let (rows, _) = parse(&read(CSV_FILE)?, experiment)
        .with_context(|| dir.join(CSV_FILE).display().to_string())?;
    Ok((run, rows))
}

fn open_end(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Replaces a file in one step.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    std::fs::write(&aside, text)
        .and_then(|()| std::fs::rename(&aside, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, point, record};
    use super::*;

    #[test]
    fn results_go_on_where_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let open = |before| Results::open(dir.path(), &Sample, record(), before);
        let mut results = open(Before::Refuse).unwrap();
        results.add(&point("a", 1024), vec![1.5, 20_000.4]).unwrap();
        results.add(&point("b", 1024), vec![0.25, 3.0]).unwrap();
        drop(results);
        assert!(open(Before::Refuse).is_err());

        let csv = dir.path().join(CSV_FILE);
        let text = std::fs::read_to_string(&csv).unwrap();
        assert_eq!(
            text,
            "kind,size_bytes,read_mib_per_s,rate_per_s\na,1024,1.500,20000\nb,1024,0.250,3.000\n"
        );
        std::fs::write(&csv, format!("{text}a,20")).unwrap();
        let mut results = open(Before::Resume).unwrap();
        assert!(results.has(&point("a", 1024)) && results.has(&point("b", 1024)));
        assert!(!results.has(&point("a", 2048)));
        results.add(&point("a", 2048), vec![9.0, 9.0]).unwrap();
        assert_eq!(
            std::fs::read_to_string(&csv).unwrap(),
            format!("{text}a,2048,9.000,9.000\n"),
            "half a line is gone"
        );
        let mut results = open(Before::Resume).unwrap();
        assert_eq!(results.rows.len(), 3);
        results.end_session(Load::default()).unwrap();
        let run = open(Before::Resume).unwrap().run;
        let ended: Vec<bool> =
            run.sessions.iter().map(|session| session.load_after.is_some()).collect();
        assert_eq!(ended, [false, false, true, false], "every sitting is kept");
        assert!(open(Before::Overwrite).unwrap().rows.is_empty());
    }

    #[test]
    fn results_of_another_kind_are_not_mixed() {
        let dir = tempfile::tempdir().unwrap();
        drop(Results::open(dir.path(), &Sample, record(), Before::Refuse).unwrap());
        let larger = RunRecord { scale: 2.0, ..record() };
        let error = Results::open(dir.path(), &Sample, larger, Before::Resume).err().unwrap();
        assert!(error.to_string().contains("--scale 1"), "{error}");
        for text in [
            "x,y\n",
            "",
            "kind,size_bytes,rate_per_s\n",
            "kind,size_bytes,read_mib_per_s,rate_per_s\na,1,2,x\n",
        ] {
            std::fs::write(dir.path().join(CSV_FILE), text).unwrap();
            assert!(
                Results::open(dir.path(), &Sample, record(), Before::Resume).is_err(),
                "{text:?}"
            );
        }
    }
}
