//! `azekura forecast`: how long a batch will take on a calibrated file system, what binds it, and how many
//! processes it should use. Reads the files and prints; what they say and what follows from it is the
//! forecast crate's, drawing is `azekura-lab`'s.

mod check;
mod files;
mod options;
mod show;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use azekura_forecast::units::Seconds;
use azekura_forecast::{Calibration, Job, Model, forecast, remarks, sweep};
use clap::{Args, ValueEnum};

use self::files::{machine_here, read, warning_of};
use crate::commands::lab;
use crate::outcome::usage;
use crate::report;

/// `azekura forecast`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura forecast JOB.toml --fs FS.toml\n  \
    azekura forecast JOB.toml --fs FS.toml --deadline 02:00 --sweep 1..16\n  \
    azekura forecast --check RUN.json --fs FS.toml\n\n\
    Low and high hold 90 % of single runs. What lies outside of the calibrated range is listed, with a \
    wider interval. Without --sweep the choice is among numbers that were calibrated.")]
pub(crate) struct ForecastArgs {
    /// The job
    #[arg(value_name = "JOB.toml", required_unless_present = "check")]
    job: Option<PathBuf>,
    /// The calibrated file system
    #[arg(long, value_name = "FS.toml")]
    fs: PathBuf,
    /// How to forecast: the project's model, the paper's equations, or its equation (1) alone
    #[arg(long, value_enum, default_value_t = ModelName::Full)]
    model: ModelName,
    /// When the job has to have ended: 90s, 15m, 2h, or hours and minutes as 02:00
    #[arg(long, value_name = "TIME", value_parser = options::parse_time, conflicts_with = "check")]
    deadline: Option<Seconds>,
    /// Numbers of processes of each node to try, as 1,2,4 or 1..16; of nodes with nodes=1,2
    #[arg(long, value_name = "NUMBERS", value_parser = options::parse_numbers, conflicts_with = "check")]
    sweep: Vec<options::Numbers>,
    /// Write time and throughput of all numbers tried into this file, as CSV
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    csv: Option<PathBuf>,
    /// Draw time and throughput by processes into this directory, with azekura-lab
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    plot: Option<PathBuf>,
    /// Hold forecasts against measured runs instead, as 'azekura bench batch --json' prints them
    #[arg(long, value_name = "RUN.json", conflicts_with = "job")]
    check: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A model, as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModelName {
    /// Equation (1): what was used before the paper
    Conventional,
    /// Equations (1) to (9)
    Paper,
    /// The project's own
    Full,
}

impl From<ModelName> for Model {
    fn from(name: ModelName) -> Self {
        match name {
            ModelName::Conventional => Self::Conventional,
            ModelName::Paper => Self::Paper,
            ModelName::Full => Self::Full,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be read or is not clear, nothing follows from the calibration, or a result cannot be
/// written.
pub(crate) fn run(args: &ForecastArgs) -> Result<()> {
    let calibration = read(&args.fs, Calibration::parse)?;
    match (&args.check, &args.job) {
        (Some(runs), _) => check::run(&calibration, &args.fs, runs, args.model.into(), args.json),
        (None, Some(path)) => forecast_job(args, &calibration, path),
        (None, None) => Err(usage("name the job: azekura forecast JOB.toml --fs FS.toml")),
    }
}

fn forecast_job(args: &ForecastArgs, calibration: &Calibration, path: &Path) -> Result<()> {
    let job = read(path, Job::parse)?;
    let model = args.model.into();
    let about = || format!("{} on {}", path.display(), args.fs.display());
    let own = forecast(calibration, &job, model).with_context(about)?;
    let candidates = options::candidates(&args.sweep, calibration, &job);
    let swept = sweep(calibration, &job, model, &candidates, args.deadline).with_context(about)?;
    let mut warnings: Vec<String> =
        warning_of(calibration, &args.fs, &machine_here()).into_iter().collect();
    warnings.extend(remarks(calibration, &job));
    if args.json {
        report::say_json(&show::json(&own, &swept, &job, calibration, args.deadline, &warnings))?;
    } else {
        show::all(&own, &swept, &job, calibration, args.deadline);
    }
    for warning in &warnings {
        report::note(format_args!("azekura: {warning}"));
    }
    if let Some(csv) = &args.csv {
        std::fs::write(csv, show::csv(&swept))
            .with_context(|| format!("cannot write {}", csv.display()))?;
    }
    if let Some(dir) = &args.plot {
        let csv = dir.join("forecast.csv");
        std::fs::create_dir_all(dir)
            .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        std::fs::write(&csv, show::csv(&swept))
            .with_context(|| format!("cannot write {}", csv.display()))?;
        lab::draw_forecast(&csv, dir)?;
        report::note(format_args!(
            "azekura: time.svg and throughput.svg drawn in {}",
            dir.display()
        ));
    }
    Ok(())
}
