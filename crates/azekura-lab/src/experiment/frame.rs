//! What an experiment is: named points, something that measures one of them, and figures drawn from the
//! results. Owns no experiment; knows nothing of files, pools or the command line.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::chart::Scale;

/// Repetitions of which the mean is taken, unless a run is quick.
pub(crate) const ROUNDS: usize = 3;

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Few points and little data: shows that it works, not how fast.
    pub(crate) quick: bool,
    /// Factor on amounts of data and numbers of files.
    pub(crate) scale: f64,
    /// About how long the measuring of one point may take, in seconds.
    pub(crate) point_s: f64,
}

impl Settings {
    /// An amount, scaled, but no less than `least`.
    pub(crate) fn scaled(&self, amount: u64, least: u64) -> u64 {
        ((amount as f64 * self.scale) as u64).max(least)
    }

    /// A share of the time of a point, in milliseconds.
    pub(crate) fn share_ms(&self, parts: usize) -> u64 {
        ((self.point_s * 1000.0 / parts.max(1) as f64) as u64).max(1)
    }

    /// Repetitions of which the mean is taken.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { ROUNDS }
    }

    /// What a figure is the mean of, as a sentence for a page.
    pub(crate) fn repetition(&self) -> String {
        match self.rounds() {
            1 => "Each figure is of one run.".to_owned(),
            rounds => format!("Each figure is the mean of {rounds} runs."),
        }
    }
}

/// What stands in a parameter's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cells {
    /// Words or numbers, shown as they are.
    Plain,
    /// Numbers of bytes.
    Bytes,
}

/// A column that says which point it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    /// In the CSV; a unit comes last.
    pub(crate) name: &'static str,
    /// Over the table.
    pub(crate) title: &'static str,
    /// How its cells are shown.
    pub(crate) cells: Cells,
}

/// A column with figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    /// In the CSV; the unit comes last.
    pub(crate) name: &'static str,
    /// Over the table, with its unit.
    pub(crate) title: &'static str,
}

/// How the titles of lines with the values of a paper begin.
pub(crate) const PAPERS: &str = "paper's ";

/// Endings of the columns that hold the least and the most of the runs of which another column is the mean:
/// `x_min` and `x_max` go with `x`. They are drawn as bars and told in its cells, never as columns of their own.
const RANGE: [&str; 2] = ["_min", "_max"];

/// The value whose least or most a column holds.
pub(crate) fn ranged(values: &[Value], column: &str) -> Option<usize> {
    let of = RANGE.iter().find_map(|ending| column.strip_suffix(ending))?;
    values.iter().position(|value| value.name == of)
}

/// The columns with the least and the most of a value, if both are there.
pub(crate) fn range_of(values: &[Value], value: &str) -> Option<(usize, usize)> {
    let column = |ending: &str| values.iter().position(|v| v.name == format!("{value}{ending}"));
    let [least, most] = RANGE;
    Some((column(least)?, column(most)?))
}

/// The cells of the parameters, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point(pub(crate) Vec<String>);

impl Point {
    /// A point from its cells.
    pub(crate) fn of<const N: usize>(cells: [String; N]) -> Self {
        Self(cells.into())
    }

    /// Its cells.
    ///
    /// # Errors
    /// If there are not that many.
    pub(crate) fn cells<const N: usize>(&self) -> Result<[&str; N]> {
        let cells: Vec<&str> = self.0.iter().map(String::as_str).collect();
        cells.try_into().ok().context("the point has other parameters than its experiment")
    }
}

/// A line of a figure: one value of the rows that have these cells.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// In the legend.
    pub(crate) title: String,
    /// Name of the value.
    pub(crate) value: &'static str,
    /// Names of parameters with the cell that they must have.
    pub(crate) only: Vec<(&'static str, String)>,
}

/// A plot of values over a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Name of its file, without the ending.
    pub(crate) file: &'static str,
    /// Over it.
    pub(crate) title: &'static str,
    /// Name of the parameter along the x axis.
    pub(crate) x: &'static str,
    /// Under the x axis.
    pub(crate) x_title: &'static str,
    /// How the x axis is divided.
    pub(crate) x_scale: Scale,
    /// Beside the y axis, with its unit.
    pub(crate) y_title: &'static str,
    /// How the y axis is divided.
    pub(crate) y_scale: Scale,
    /// What is drawn.
    pub(crate) lines: Vec<Line>,
}

/// Measures points, one after the other, and takes everything down when it is dropped. Gives the values
/// of a point in the order of the experiment's value columns, or says why it cannot be measured; others
/// are tried all the same.
pub(crate) type Measure = Box<dyn FnMut(&Point) -> Result<Vec<f64>>>;

/// Where a point's values come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// They are measured.
    Measured,
    /// They are known without measuring.
    Known(Vec<f64>),
    /// They follow from other results, which are not there.
    Missing,
}

/// An experiment.
pub(crate) trait Experiment {
    /// Its name on the command line.
    fn name(&self) -> &'static str;
    /// What it asks, in one line.
    fn about(&self) -> &'static str;
    /// How it is done, as a paragraph for its page.
    fn method(&self, settings: &Settings) -> String;
    /// The columns that say which point it is.
    fn parameters(&self) -> &'static [Parameter];
    /// The columns that are measured.
    fn values(&self) -> &'static [Value];
    /// What is to be measured, in the best order.
    fn points(&self, settings: &Settings) -> Vec<Point>;
    /// Figures of the results.
    fn figures(&self, settings: &Settings) -> Vec<Figure>;
    /// Whether a line shows what a paper has published, and not what was measured or computed here.
    fn is_published(&self, line: &Line) -> bool {
        line.title.starts_with(PAPERS)
    }
    /// What a table says of a value in place of its figure, where that alone would mislead;
    /// `values` are all of the point.
    fn words(&self, _point: &Point, _value: &str, _values: &[f64]) -> Option<String> {
        None
    }
    /// About how long a point has to take at least, in seconds, so that its phases are long enough.
    fn least_point_s(&self) -> f64 {
        0.0
    }
    /// Where a point's values come from; `dir` has the results of this experiment, and its parent
    /// those of others.
    fn source(&self, _point: &Point, _settings: &Settings, _dir: &Path) -> Source {
        Source::Measured
    }
    /// Sets up what measuring takes.
    fn start(&self, settings: &Settings) -> Result<Measure>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_with_their_mean() {
        let value = |name| Value { name, title: name };
        let values = [value("a"), value("a_min"), value("a_max"), value("b"), value("b_min")];
        assert_eq!(range_of(&values, "a"), Some((1, 2)));
        assert_eq!(range_of(&values, "b"), None);
        assert_eq!(ranged(&values, "a_max"), Some(0));
        assert_eq!(ranged(&values, "a"), None);
        assert_eq!(ranged(&values[1..3], "a_max"), None);
    }

    #[test]
    fn settings_shrink_amounts_and_share_time() {
        let settings = Settings { quick: false, scale: 0.5, point_s: 3.0 };
        assert_eq!(settings.scaled(1 << 20, 1), 1 << 19);
        assert_eq!(settings.scaled(10, 8), 8);
        assert_eq!(settings.share_ms(6), 500);
        assert_eq!(settings.share_ms(0), 3000);
    }
}
