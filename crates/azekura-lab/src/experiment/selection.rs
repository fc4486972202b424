//! Which points of experiments are to be measured, where not all are. Owns the options for it; the other
//! points stay missing, and a later run adds them.

use anyhow::Result;
use azekura::outcome::usage;
use clap::Args;

use super::frame::{Experiment, Point, Settings};

/// Points by their cells.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only these patterns, or these programs of far-programs
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these round trips, in milliseconds
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    delay: Vec<String>,
    /// Only these policies, or these doors of far-programs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    policy: Vec<String>,
}

impl Selection {
    /// Options with the columns that each is about, and the cells that it admits.
    fn options(&self) -> impl Iterator<Item = (&'static str, &'static [&'static str], &[String])> {
        let all: [(&str, &[&str], &Vec<String>); 3] = [
            ("--only", &["pattern", "program"], &self.only),
            ("--delay", &["round_trip_ms"], &self.delay),
            ("--policy", &["policy", "door"], &self.policy),
        ];
        all.into_iter()
            .filter(|(.., cells)| !cells.is_empty())
            .map(|(option, columns, cells)| (option, columns, cells.as_slice()))
    }

    /// Whether a point is to be measured. An experiment without a column is not chosen from by it.
    pub(crate) fn admits(&self, experiment: &dyn Experiment, point: &Point) -> bool {
        self.options().all(|(_, columns, cells)| {
            cell(experiment, point, columns).is_none_or(|cell| cells.iter().any(|c| c == cell))
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
        for (option, columns, cells) in self.options() {
            let mut known: Vec<String> = Vec::new();
            for experiment in experiments {
                for point in experiment.points(&settings(experiment.as_ref())) {
                    if let Some(cell) = cell(experiment.as_ref(), &point, columns)
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

/// What a point has in the first of these columns that its experiment has.
fn cell<'p>(experiment: &dyn Experiment, point: &'p Point, columns: &[&str]) -> Option<&'p str> {
    let is_meant = |name: &str| columns.contains(&name);
    let at = experiment.parameters().iter().position(|parameter| is_meant(parameter.name))?;
    point.0.get(at).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::super::{far_programs, wan};
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
    fn programs_and_doors_are_chosen_as_patterns_and_policies_are() {
        let policy = vec!["mount".to_owned()];
        let chosen = Selection { policy, ..selection("find", "10") };
        let [programs, _] = far_programs::every();
        let points = programs.points(&SETTINGS);
        let admitted: Vec<_> =
            points.iter().filter(|point| chosen.admits(programs.as_ref(), point)).collect();
        assert_eq!(admitted.len(), 1);
        assert_eq!(admitted[0].0, ["find", "10", "mount"]);
        assert!(chosen.check(&[programs], |_| SETTINGS).is_ok());
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
