//! What an experiment is: named points, something that measures one of them, and figures drawn from the
//! results. Owns no experiment; knows nothing of files, pools or the command line.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::chart::Scale;

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
        if self.quick { 1 } else { 3 }
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
    /// Columns with the least and the most of a value, if it is the mean of several runs.
    fn bars(&self, _value: &str) -> Option<[&'static str; 2]> {
        None
    }
    /// Figures of the results.
    fn figures(&self, settings: &Settings) -> Vec<Figure>;
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
    fn settings_shrink_amounts_and_share_time() {
        let settings = Settings { quick: false, scale: 0.5, point_s: 3.0 };
        assert_eq!(settings.scaled(1 << 20, 1), 1 << 19);
        assert_eq!(settings.scaled(10, 8), 8);
        assert_eq!(settings.share_ms(6), 500);
        assert_eq!(settings.share_ms(0), 3000);
    }
}
