//! The page of an experiment: Markdown with its plots and its table, made from the results alone, so
//! that it can be made again at any time. What people wrote about the results stands in a file of its
//! own, `discussion.md`, and is taken over as it is.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use azekura::report::{format_bytes, format_rate};

use super::frame::{Cells, Experiment, Figure};
use super::results::{Results, Row, write_whole};
use super::session::Session;
use crate::chart::{self, Chart, Curve};

const PAGE_FILE: &str = "README.md";
const DISCUSSION_FILE: &str = "discussion.md";

/// Writes the page and its plots into the directory of the results.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn write(dir: &Path, experiment: &dyn Experiment, results: &Results) -> Result<()> {
    let figures = experiment.figures(&results.run.settings());
    for figure in &figures {
        let svg = chart::draw(&chart_of(figure, experiment, &results.rows))?;
        write_whole(&dir.join(format!("{}.svg", figure.file)), &svg)?;
    }
    let discussion = std::fs::read_to_string(dir.join(DISCUSSION_FILE)).ok();
    let page = page(experiment, results, &figures, discussion.as_deref());
    write_whole(&dir.join(PAGE_FILE), &page)
}

fn column_of(experiment: &dyn Experiment, name: &str) -> Option<usize> {
    experiment.parameters().iter().position(|parameter| parameter.name == name)
}

fn chart_of<'a>(figure: &'a Figure, experiment: &dyn Experiment, rows: &[Row]) -> Chart<'a> {
    let x = column_of(experiment, figure.x);
    let curves = figure.lines.iter().map(|line| {
        let value = experiment.values().iter().position(|value| value.name == line.value);
        let fits = |row: &&Row| {
            line.only.iter().all(|(name, cell)| {
                column_of(experiment, name).is_some_and(|column| row.point.0[column] == *cell)
            })
        };
        let place = |row: &Row| Some((row.point.0[x?].parse().ok()?, row.values[value?]));
        let mut ordered: Vec<(&Row, (f64, f64))> =
            rows.iter().filter(fits).filter_map(|row| Some((row, place(row)?))).collect();
        ordered.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
        let ends = experiment.bars(line.value).map(|names| {
            names.map(|name| experiment.values().iter().position(|value| value.name == name))
        });
        let bars = match ends {
            Some([Some(low), Some(high)]) => {
                ordered.iter().map(|(row, _)| (row.values[low], row.values[high])).collect()
            }
            _ => Vec::new(),
        };
        let points = ordered.into_iter().map(|(_, place)| place).collect();
        Curve { title: line.title.clone(), points, bars }
    });
    Chart {
        title: figure.title,
        x_title: figure.x_title,
        x_scale: figure.x_scale,
        y_title: figure.y_title,
        y_scale: figure.y_scale,
        curves: curves.collect(),
    }
}

fn page(
    experiment: &dyn Experiment,
    results: &Results,
    figures: &[Figure],
    discussion: Option<&str>,
) -> String {
    let run = &results.run;
    let mut text = format!(
        "# {}\n\n{}.\n\n{}\n\n",
        experiment.name(),
        experiment.about(),
        experiment.method(&run.settings())
    );
    for figure in figures {
        // Text in a string always has room.
        let _ = writeln!(text, "![{}]({}.svg)\n", figure.title, figure.file);
    }
    if run.sessions.iter().any(Session::was_busy) {
        text.push_str(
            "**Other work ran on the machine beside this run: the figures may be too low.**\n\n",
        );
    }
    if let Some(discussion) = discussion {
        let _ = writeln!(text, "{}\n", discussion.trim());
    }
    let points = experiment.points(&run.settings());
    let missing = points.iter().filter(|point| !results.has(point)).count();
    text.push_str("## Figures in numbers\n\n");
    if missing > 0 {
        let _ = writeln!(text, "{missing} of {} points are missing.\n", points.len());
    }
    text.push_str(&table(experiment, results));
    let _ = write!(
        text,
        "\nThe same as [CSV](results.csv).\n\n## The run\n\n\
         | | |\n|---|---|\n\
         | machine | {} |\n| date | {} |\n| version | azekura {} |\n| command | `{}` |\n\
         | scale | {} |\n| seconds per point | {} |\n",
        run.machine.described(),
        run.begun,
        run.version,
        run.command_line,
        run.scale,
        run.point_s,
    );
    for (number, session) in run.sessions.iter().enumerate() {
        if number > 0 {
            let _ = writeln!(text, "| went on | {}, `{}` |", session.begun, session.command_line);
        }
        let _ = writeln!(text, "| commit | {} |", session.described());
        let _ = writeln!(text, "| load | {} |", session.load_described());
    }
    text
}

/// The rows in the order of the experiment's points.
fn table(experiment: &dyn Experiment, results: &Results) -> String {
    let parameters = experiment.parameters();
    let mut text = String::from("|");
    for title in parameters.iter().map(|parameter| parameter.title) {
        let _ = write!(text, " {title} |");
    }
    for title in experiment.values().iter().map(|value| value.title) {
        let _ = write!(text, " {title} |");
    }
    let rule = "---|".repeat(parameters.len()) + &"---:|".repeat(experiment.values().len());
    let _ = writeln!(text, "\n|{rule}");
    for point in experiment.points(&results.run.settings()) {
        let Some(row) = results.rows.iter().find(|row| row.point == point) else { continue };
        text.push('|');
        for (parameter, cell) in parameters.iter().zip(&row.point.0) {
            let _ = match (parameter.cells, cell.parse()) {
                (Cells::Bytes, Ok(bytes)) => write!(text, " {} |", format_bytes(bytes)),
                (Cells::Bytes, Err(_)) | (Cells::Plain, _) => write!(text, " {cell} |"),
            };
        }
        for value in &row.values {
            let _ = write!(text, " {} |", format_rate(*value));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::Before;
    use super::super::sample::{Sample, point, record};
    use super::*;

    #[test]
    fn a_page_has_plots_table_machine_and_what_people_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = Results::open(dir.path(), &Sample, record(), Before::Refuse).unwrap();
        // Measured in another order than the table has.
        for (kind, bytes) in [("b", 4096), ("a", 1024), ("b", 1024)] {
            results.add(&point(kind, bytes), vec![12.5, 123_456.0]).unwrap();
        }
        std::fs::write(dir.path().join(DISCUSSION_FILE), "It agrees.\n\n").unwrap();
        for _ in 0..2 {
            write(dir.path(), &Sample, &results).unwrap();
        }
        let page = std::fs::read_to_string(dir.path().join(PAGE_FILE)).unwrap();
        for text in [
            "# sample\n",
            "![Reading](read.svg)",
            "\nIt agrees.\n",
            "3 of 6 points are missing.",
            "| kind | size | read, MiB/s | rate, 1/s |\n|---|---|---:|---:|\n",
            "| a | 1 KiB | 12.5 | 123,456 |\n| b | 1 KiB | 12.5 | 123,456 |\n| b | 4 KiB |",
            "2 processors (Abacus), 8 GiB of memory, Linux 6.0",
            "azekura 1.2.3",
            "`azekura-lab experiment run sample`",
            "| commit | c0ffee, with changes that are not committed |",
            "| load | processors busy 50 % before, cut short |",
            "**Other work ran on the machine",
        ] {
            assert!(page.contains(text), "{text:?} is missing in\n{page}");
        }
        let svg = std::fs::read_to_string(dir.path().join("read.svg")).unwrap();
        assert!(svg.contains("kind &lt;b&gt;"));
    }

    #[test]
    fn curves_take_their_rows_in_order_of_x() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = Results::open(dir.path(), &Sample, record(), Before::Refuse).unwrap();
        results.add(&point("b", 4096), vec![2.0, 0.0]).unwrap();
        results.add(&point("b", 1024), vec![1.0, 0.0]).unwrap();
        results.add(&point("a", 1024), vec![7.0, 0.0]).unwrap();
        let figure = &Sample.figures(&record().settings())[0];
        let chart = chart_of(figure, &Sample, &results.rows);
        assert_eq!(chart.curves[0].points, [(1024.0, 7.0)]);
        assert_eq!(chart.curves[1].points, [(1024.0, 1.0), (4096.0, 2.0)]);
    }
}
