//! `azekura-lab experiment`: measurements in many points, with tables and plots of the same axes as the
//! papers that Azekura follows. Each experiment starts the pools it needs, in memory, and removes them.

mod claims;
mod daos;
mod far_programs;
mod forecast;
mod frame;
mod nfs;
mod page;
mod published;
mod results;
mod runner;
#[cfg(test)]
mod sample;
mod scratch_pool;
mod selection;
mod session;
mod spread;
mod staging;
mod twin;
mod wan;

use std::path::{Path, PathBuf};

use anyhow::Result;
use azekura::host::machine::Machine;
use azekura::outcome::{Verdict, usage};
use azekura::report::{self, Table};
use clap::{Args, Subcommand};

pub(crate) use scratch_pool::{ENGINE_COMMAND, EngineArgs, run_engine};
pub(crate) use wan::{READER_COMMAND, ReaderArgs, read as run_reader};

use frame::{Experiment, Settings};
use results::{Before, RunRecord};
use runner::Interruption;
use selection::Selection;
use session::Session;

/// Where results go, unless something else is said.
const DEFAULT_OUT: &str = "azekura-experiments";
/// Seconds of a point, unless something else is said.
const POINT_S: f64 = 6.0;
const QUICK_POINT_S: f64 = 0.1;
const QUICK_SCALE: f64 = 1.0 / 64.0;

/// `azekura-lab experiment`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExperimentCommand {
    /// List the experiments
    #[command(after_long_help = "Example:\n  azekura-lab experiment list")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run experiments: CSV, a page and plots for each
    Run(RunArgs),
    /// Make the pages and plots of results anew; nothing is measured
    #[command(after_long_help = "Example:\n  \
        azekura-lab experiment pages --out docs/experiments")]
    Pages(KeptArgs),
    /// Hold every sentence of the pages against the table beside it
    #[command(after_long_help = "Example:\n  \
        azekura-lab experiment check-claims 'daos-*' --out docs/experiments\n\n\
        claims.toml, beside each page, has its sentences, each with an expression in jq over the rows of \
        results.csv.")]
    CheckClaims(KeptArgs),
}

/// Which results that are there already.
#[derive(Debug, Args)]
pub(crate) struct KeptArgs {
    /// Names of experiments; '*' stands for any letters [default: all that are there]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Directory of the results; each experiment has its own in it
    #[arg(long, value_name = "DIR", default_value = DEFAULT_OUT)]
    out: PathBuf,
}

/// `azekura-lab experiment run`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura-lab experiment run daos-transfer\n  \
    azekura-lab experiment run 'daos-*' --out results --seconds-per-point 1\n  \
    azekura-lab experiment run 'daos-*' --out results --seconds-per-point 1 --resume\n  \
    azekura-lab experiment run wan-policies --only random-8M --delay 0,100 --policy predictive\n  \
    azekura-lab experiment run far-programs --only find,tar-c --policy preload,sshfs\n\n\
    Results are kept point by point: a run that was interrupted goes on with --resume.")]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line are independent of each other.
pub(crate) struct RunArgs {
    /// Names of experiments; '*' stands for any letters
    #[arg(required_unless_present = "check_claims", value_name = "NAME")]
    names: Vec<String>,
    /// Measure nothing: hold the pages that are there against their tables, as check-claims does
    #[arg(long, conflicts_with_all = ["quick", "scale", "seconds_per_point", "resume", "overwrite"])]
    check_claims: bool,
    /// Few points and little data: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Factor on amounts of data and numbers of files [default: 1]
    #[arg(long, value_name = "F", value_parser = parse_positive)]
    scale: Option<f64>,
    /// About how long one point may take [default: 6, or as long as its phases need]
    #[arg(long, value_name = "S", value_parser = parse_positive)]
    seconds_per_point: Option<f64>,
    /// Directory of the results; each experiment has its own in it
    #[arg(long, value_name = "DIR", default_value = DEFAULT_OUT)]
    out: PathBuf,
    /// Keep the points that were measured before, and measure the others
    #[arg(long)]
    resume: bool,
    /// Measure everything anew, also where results are there
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    #[command(flatten)]
    selection: Selection,
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 1e6 => Ok(value),
        _ => Err(format!("'{text}' is not a number above 0")),
    }
}

impl RunArgs {
    fn settings(&self, experiment: &dyn Experiment) -> Settings {
        let (scale, point_s) = if self.quick {
            (QUICK_SCALE, QUICK_POINT_S)
        } else {
            (1.0, POINT_S.max(experiment.least_point_s()))
        };
        Settings {
            quick: self.quick,
            scale: self.scale.unwrap_or(scale),
            point_s: self.seconds_per_point.unwrap_or(point_s),
        }
    }

    fn before(&self) -> Before {
        match (self.resume, self.overwrite) {
            (true, _) => Before::Resume,
            (false, true) => Before::Overwrite,
            (false, false) => Before::Refuse,
        }
    }
}

/// Every experiment there is.
fn every() -> Vec<Box<dyn Experiment>> {
    daos::every()
        .into_iter()
        .chain(wan::every())
        .chain(far_programs::every())
        .chain(nfs::every())
        .chain(staging::every())
        .chain(forecast::every())
        .collect()
}

/// Whether a name fits a pattern in which `*` stands for any letters.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| fits(tail, &rest[at..]))
        }),
    }
}

fn chosen(patterns: &[String]) -> Result<Vec<Box<dyn Experiment>>> {
    let known: Vec<&str> = every().iter().map(|experiment| experiment.name()).collect();
    for pattern in patterns {
        if !known.iter().any(|name| fits(pattern, name)) {
            return Err(usage(format!(
                "there is no experiment '{pattern}': there are {}",
                known.join(", ")
            )));
        }
    }
    let mut experiments = every();
    experiments
        .retain(|experiment| patterns.iter().any(|pattern| fits(pattern, experiment.name())));
    Ok(experiments)
}

/// Runs the command.
///
/// # Errors
/// If a name is not known, or results cannot be kept.
pub(crate) fn run(command: &ExperimentCommand) -> Result<Verdict> {
    match command {
        ExperimentCommand::List { json } => list(*json).map(|()| Verdict::Good),
        ExperimentCommand::Run(args) if args.check_claims => check_claims(&args.names, &args.out),
        ExperimentCommand::Run(args) => run_all(args),
        ExperimentCommand::Pages(args) => make_pages(&args.names, &args.out),
        ExperimentCommand::CheckClaims(args) => check_claims(&args.names, &args.out),
    }
}

/// The experiments of these names, or all, that have results in a directory.
fn kept(names: &[String], out: &Path) -> Result<Vec<(Box<dyn Experiment>, PathBuf)>> {
    let experiments = if names.is_empty() { every() } else { chosen(names)? };
    let at = |experiment: Box<dyn Experiment>| {
        let dir = out.join(experiment.name());
        (experiment, dir)
    };
    let mut found: Vec<_> = experiments.into_iter().map(at).collect();
    // A name that was given in full has to be there.
    found.retain(|(experiment, dir)| {
        page::is_begun(dir) || names.iter().any(|name| name == experiment.name())
    });
    if found.is_empty() {
        return Err(usage(format!(
            "there are no results in {}: name them with --out",
            out.display()
        )));
    }
    Ok(found)
}

fn make_pages(names: &[String], out: &Path) -> Result<Verdict> {
    let mut verdict = Verdict::Good;
    for (experiment, dir) in kept(names, out)? {
        let made = results::kept(&dir, experiment.as_ref())
            .and_then(|(run, rows)| page::write(&dir, experiment.as_ref(), &run, &rows));
        match made {
            Ok(()) => report::say(dir.join(page::PAGE_FILE).display()),
            // Results of an older form of one experiment do not keep the others from their pages.
            Err(error) => {
                let why = report::explain(&error);
                report::say(format_args!("{}: no page: {why}", experiment.name()));
                verdict = Verdict::Bad;
            }
        }
    }
    Ok(verdict)
}

fn check_claims(names: &[String], out: &Path) -> Result<Verdict> {
    let mut verdict = Verdict::Good;
    for (experiment, dir) in kept(names, out)? {
        let checked = claims::check(&dir)?;
        for failure in &checked.failures {
            report::say(format_args!("{}: {failure}", experiment.name()));
            verdict = Verdict::Bad;
        }
        let (claims, failures) = (checked.claims, checked.failures.len());
        report::say(format_args!("{}: {claims} claims, {failures} failures", experiment.name()));
    }
    Ok(verdict)
}

fn list(json: bool) -> Result<()> {
    if json {
        let all: Vec<_> = every()
            .iter()
            .map(|experiment| {
                serde_json::json!({ "name": experiment.name(), "about": experiment.about() })
            })
            .collect();
        return report::say_json(&all);
    }
    let mut table = Table::new(&["name", "what it shows"]);
    for experiment in every() {
        table.row([experiment.name().to_owned(), experiment.about().to_owned()]);
    }
    report::say(table);
    Ok(())
}

/// The command as people type it, without the place where the program lies.
fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=,+:".contains(c));
        if plain && !word.is_empty() { word } else { format!("'{word}'") }
    });
    std::iter::once("azekura-lab".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn run_all(args: &RunArgs) -> Result<Verdict> {
    let experiments = chosen(&args.names)?;
    args.selection.check(&experiments, |experiment| args.settings(experiment))?;
    let stop = Interruption::listen()?;
    let mut verdict = Verdict::Good;
    for experiment in &experiments {
        let dir = args.out.join(experiment.name());
        let settings = args.settings(experiment.as_ref());
        let session = Session::begin(command_line(), azekura::host::date::now());
        if session.load_before.is_busy() {
            report::note(format_args!(
                "{}: the machine is busy with other work (processors {:.0} %): what is measured now \
                 may be too low",
                experiment.name(),
                session.load_before.busy_percent
            ));
        }
        let record = RunRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: session.command_line.clone(),
            begun: session.begun.clone(),
            quick: settings.quick,
            scale: settings.scale,
            point_s: settings.point_s,
            machine: Machine::here(),
            sessions: vec![session],
            method: experiment.method(&settings),
        };
        let outcome = runner::run(
            experiment.as_ref(),
            record,
            &dir,
            (args.before(), &args.selection),
            &stop,
        )?;
        if outcome.failed > 0 {
            verdict = Verdict::Bad;
        }
        let page = dir.join("README.md");
        report::say(format_args!("{}: {outcome}; see {}", experiment.name(), page.display()));
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_by_name() {
        for (pattern, name, is_fit) in [
            ("daos-chunk", "daos-chunk", true),
            ("daos-*", "daos-chunk", true),
            ("*", "daos-chunk", true),
            ("*-ch*k", "daos-chunk", true),
            ("daos-c", "daos-chunk", false),
            ("wan-*", "daos-chunk", false),
            ("*x*", "daos-chunk", false),
        ] {
            assert_eq!(fits(pattern, name), is_fit, "{pattern} {name}");
        }
    }

    #[test]
    fn names_that_do_not_exist_are_answered_with_those_that_do() {
        let error = chosen(&["daos-*".to_owned(), "nosuch".to_owned()]).err().unwrap();
        for word in ["nosuch", "daos-transfer", "daos-metadata"] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn every_experiment_is_sound() {
        let mut names: Vec<&str> = Vec::new();
        for experiment in every() {
            assert!(!names.contains(&experiment.name()), "{} twice", experiment.name());
            names.push(experiment.name());
            for settings in [
                Settings { quick: true, scale: QUICK_SCALE, point_s: QUICK_POINT_S },
                Settings { quick: false, scale: 1.0, point_s: POINT_S },
            ] {
                let points = experiment.points(&settings);
                for (index, point) in points.iter().enumerate() {
                    assert_eq!(point.0.len(), experiment.parameters().len());
                    assert!(!points[..index].contains(point), "{point:?} twice");
                    assert!(point.0.iter().all(|cell| !cell.contains([',', '"', '\n'])));
                }
                for figure in experiment.figures(&settings) {
                    let names: Vec<_> = experiment.parameters().iter().map(|p| p.name).collect();
                    assert!(names.contains(&figure.x), "{}", figure.x);
                    for line in &figure.lines {
                        assert!(experiment.values().iter().any(|v| v.name == line.value));
                        let fits = |cells: &frame::Point| {
                            line.only.iter().all(|(name, cell)| {
                                let column = names.iter().position(|n| n == name).unwrap();
                                cells.0[column] == *cell
                            })
                        };
                        assert!(points.iter().any(fits), "{} has no points", line.title);
                    }
                }
            }
        }
    }
}
