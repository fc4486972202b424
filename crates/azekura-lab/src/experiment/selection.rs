//! Which points of experiments are to be measured, where not all are. Owns the options for it; the other
//! points stay missing, and a later run adds them.

use anyhow::Result;
use azekura::outcome::usage;
use clap::Args;

use super::frame::{Experiment, Point, Settings};

/// Points by their cells.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only these patterns
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these round trips, in milliseconds
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    delay: Vec<String>,
    /// Only these policies
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    policy: Vec<String>,
}

impl Selection {
    /// Options with the column that each is about, and the cells that it admits.
    fn columns(&self) -> impl Iterator<Item = (&'static str, &'static str, &[String])> {
        let all = [
            ("--only", "pattern", &self.only),
            ("--delay", "round_trip_ms", &self.delay),
            ("--policy", "policy", &self.policy),
        ];
        all.into_iter()
            .filter(|(.., cells)| !cells.is_empty())
            .map(|(option, column, cells)| (option, column, cells.as_slice()))
    }

    /// Whether a point is to be measured. An experiment without a column is not chosen from by it.
    pub(crate) fn admits(&self, experiment: &dyn Experiment, point: &Point) -> bool {
        self.columns().all(|(_, column, cells)| {
            cell(experiment, point, column).is_none_or(|cell| cells.iter().any(|c| c == cell))
        })
    }

    /// Looks whether everything that is named is there.
    ///
    /// # Errors
    /// If not: what there is.
    pub(crate) fn check(
        &self,
        experiments: &[Box<dyn Experiment>],
        settings: impl Fn(&dyn Experiment) -> Settings,
    ) -> Result<()> {
        for (option, column, cells) in self.columns() {
            let mut known: Vec<String> = Vec::new();
            for experiment in experiments {
                for point in experiment.points(&settings(experiment.as_ref())) {
                    if let Some(cell) = cell(experiment.as_ref(), &point, column)
                        && !known.iter().any(|other| other == cell)
                    {
                        known.push(cell.to_owned());
                    }
                }
            }
            if let Some(unknown) = cells.iter().find(|cell| !known.contains(cell)) {
                let known = if known.is_empty() {
                    "these experiments have nothing of the kind".to_owned()
                } else {
                    format!("there are {}", known.join(", "))
                };
                return Err(usage(format!("{option} {unknown}: {known}")));
            }
        }
        Ok(())
    }
}

fn cell<'p>(experiment: &dyn Experiment, point: &'p Point, column: &str) -> Option<&'p str> {
    let at = experiment.parameters().iter().position(|parameter| parameter.name == column)?;
    point.0.get(at).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::super::wan;
    use super::*;

    const SETTINGS: Settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };

    fn selection(only: &str, delay: &str) -> Selection {
        let list = |text: &str| text.split_terminator(',').map(ToOwned::to_owned).collect();
        Selection { only: list(only), delay: list(delay), policy: Vec::new() }
    }

    #[test]
    fn points_are_chosen_by_their_cells() {
        let chosen = selection("random-8M", "10,50");
        let experiments = wan::every();
        let sizes = experiments.iter().find(|one| one.name() == "wan-policies").unwrap();
        let points = sizes.points(&SETTINGS);
        let admitted: Vec<_> =
            points.iter().filter(|point| chosen.admits(sizes.as_ref(), point)).collect();
        assert!(!admitted.is_empty() && admitted.len() < points.len() / 9);
        assert!(admitted.iter().all(|point| point.0[0] == "random-8M" && point.0[1] != "0"));
        let all = Selection::default();
        assert!(points.iter().all(|point| all.admits(sizes.as_ref(), point)));
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let experiments = wan::every();
        assert!(selection("random-8M", "10").check(&experiments, |_| SETTINGS).is_ok());
        let error = selection("random-9M", "").check(&experiments, |_| SETTINGS).unwrap_err();
        assert!(error.to_string().contains("random-8M"), "{error}");
        let error = selection("", "11").check(&experiments, |_| SETTINGS).unwrap_err();
        assert!(error.to_string().contains("--delay 11"), "{error}");
    }
}
