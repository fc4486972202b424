//! The page of an experiment: Markdown with its plots and its table, made from the results alone, so
//! that it can be made again at any time. What people wrote about the results stands in a file of its
//! own, `discussion.md`, and is taken over as it is; so are the values of a paper in `published.csv`.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use azekura::report::{format_bytes, format_rate};

use super::frame::{Cells, Experiment, Figure, Line, PAPERS, Parameter, Value, range_of, ranged};
use super::published::{self, PublishedValue};
use super::results::{CSV_FILE, Row, RunRecord, write_whole};
use super::session::Session;
use super::twin;
use crate::chart::{self, Chart, Curve, Place, Published};

pub(crate) const PAGE_FILE: &str = "README.md";
pub(crate) const DISCUSSION_FILE: &str = "discussion.md";

/// What a page is made of.
struct Source<'a> {
    experiment: &'a dyn Experiment,
    run: &'a RunRecord,
    rows: &'a [Row],
    published: Vec<PublishedValue>,
}

/// Writes the page and its plots into the directory of the results.
///
/// # Errors
/// If a file cannot be written, or what was published cannot be read.
pub(crate) fn write(
    dir: &Path,
    experiment: &dyn Experiment,
    run: &RunRecord,
    rows: &[Row],
) -> Result<()> {
    let source = Source { experiment, run, rows, published: published::read(dir)? };
    let figures = experiment.figures(&run.settings());
    for figure in &figures {
        let title = twin::picture(experiment.name(), figure.file, figure.title);
        let svg = chart::draw(&source.chart(figure, &title))?;
        write_whole(&dir.join(format!("{}.svg", figure.file)), &svg)?;
    }
    let discussion = std::fs::read_to_string(dir.join(DISCUSSION_FILE)).ok();
    write_whole(&dir.join(PAGE_FILE), &source.page(&figures, discussion.as_deref()))
}

/// Whether a directory has a page, or results for one. What a paper prints may be there before either.
pub(crate) fn is_begun(dir: &Path) -> bool {
    [PAGE_FILE, CSV_FILE].iter().any(|name| dir.join(name).exists())
}

fn column_of(experiment: &dyn Experiment, name: &str) -> Option<usize> {
    experiment.parameters().iter().position(|parameter| parameter.name == name)
}

impl Source<'_> {
    fn curve(&self, figure: &Figure, line: &Line) -> Curve {
        let (experiment, values) = (self.experiment, self.experiment.values());
        let x = column_of(experiment, figure.x);
        let value = values.iter().position(|value| value.name == line.value);
        let fits = |row: &&Row| {
            line.only.iter().all(|(name, cell)| {
                column_of(experiment, name).is_some_and(|column| row.point.0[column] == *cell)
            })
        };
        let place = |row: &Row| Some((row.point.0[x?].parse().ok()?, row.values[value?]));
        let rows: Vec<&Row> = self.rows.iter().filter(fits).collect();
        let mut points: Vec<(f64, f64)> = rows.iter().filter_map(|row| place(row)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let range = range_of(values, line.value);
        let bar = |row: &&Row| {
            let (least, most) = range?;
            let bar = (place(row)?.0, row.values[least], row.values[most]);
            (bar.1.is_finite() && bar.2.is_finite()).then_some(bar)
        };
        let ranges = rows.iter().filter_map(bar).collect();
        Curve { title: line.title.clone(), points, ranges }
    }

    fn chart<'a>(&self, figure: &'a Figure, title: &'a str) -> Chart<'a> {
        let of_paper = |line: &&Line| self.experiment.is_published(line);
        // Older results have not all lines of today: what has no points has no place in the legend either.
        let drawn = |lines: Vec<&Line>| {
            let curves = lines.into_iter().map(|line| self.curve(figure, line));
            curves.filter(|curve| !curve.points.is_empty()).collect::<Vec<Curve>>()
        };
        let (theirs, ours) = figure.lines.iter().partition(of_paper);
        let theirs = drawn(theirs).into_iter().map(|curve| Published {
            curve: curve.title.trim_start_matches(PAPERS).to_owned(),
            places: curve.points.into_iter().map(Place::from).collect(),
        });
        Chart {
            title,
            x_title: figure.x_title,
            x_scale: figure.x_scale,
            y_title: figure.y_title,
            y_scale: figure.y_scale,
            curves: drawn(ours),
            published: theirs.chain(published::of_figure(&self.published, figure.file)).collect(),
        }
    }

    fn page(&self, figures: &[Figure], discussion: Option<&str>) -> String {
        let (experiment, run) = (self.experiment, self.run);
        let name = experiment.name();
        let twin = twin::page(name);
        let title = twin.map_or(name, |twin| twin.title);
        let mut text = format!("# {title}\n\n`{name}`: {}.", experiment.about());
        // Text in a string always has room.
        if let Some(of) = twin.and_then(twin::Twin::of) {
            let _ = write!(text, " {of}.");
        }
        // A later version of the experiment may do it in another way.
        let method = Some(run.method.clone()).filter(|method| !method.is_empty());
        let method = method.unwrap_or_else(|| experiment.method(&run.settings()));
        let _ = write!(text, "\n\n{method}\n\n");
        for figure in figures {
            let title = twin::picture(name, figure.file, figure.title);
            let _ = writeln!(text, "![{title}]({}.svg)\n", figure.file);
        }
        if run.sessions.iter().any(Session::was_busy) {
            text.push_str(
                "**Other work ran on the machine beside this run: the figures may be too low.**\n\n",
            );
        }
        if let Some(discussion) = discussion {
            let _ = writeln!(text, "{}\n", discussion.trim());
        }
        text.push_str(&published::table(&self.published));
        let points = experiment.points(&run.settings());
        let is_missing = |point: &&_| !self.rows.iter().any(|row| row.point == **point);
        let missing = points.iter().filter(is_missing).count();
        text.push_str("## Figures in numbers\n\n");
        if missing > 0 {
            let _ = writeln!(text, "{missing} of {} points are missing.\n", points.len());
        }
        text.push_str(&self.table());
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
                let _ =
                    writeln!(text, "| went on | {}, `{}` |", session.begun, session.command_line);
            }
            let _ = writeln!(text, "| commit | {} |", session.described());
            let _ = writeln!(text, "| load | {} |", session.load_described());
        }
        text
    }

    /// The rows in the order of the experiment's points; means with the least and the most in brackets.
    fn table(&self) -> String {
        let (parameters, values) = (self.experiment.parameters(), self.experiment.values());
        let shown: Vec<usize> =
            (0..values.len()).filter(|at| ranged(values, values[*at].name).is_none()).collect();
        let mut text = String::from("|");
        for title in parameters.iter().map(|parameter| parameter.title) {
            let _ = write!(text, " {title} |");
        }
        for at in &shown {
            let _ = write!(text, " {} |", values[*at].title);
        }
        let rule = "---|".repeat(parameters.len()) + &"---:|".repeat(shown.len());
        let _ = writeln!(text, "\n|{rule}");
        for point in self.experiment.points(&self.run.settings()) {
            let Some(row) = self.rows.iter().find(|row| row.point == point) else { continue };
            text.push('|');
            for (parameter, cell) in parameters.iter().zip(&row.point.0) {
                let _ = write!(text, " {} |", shown_cell(*parameter, cell));
            }
            for at in &shown {
                let words = self.experiment.words(&point, values[*at].name, &row.values);
                let _ = write!(text, " {}", words.unwrap_or_else(|| figure(values, row, *at)));
                text.push_str(" |");
            }
            text.push('\n');
        }
        text
    }
}

/// A value as a table has it: a mean with the least and the most in brackets.
fn figure(values: &[Value], row: &Row, at: usize) -> String {
    let mean = format_rate(row.values[at]);
    let range = range_of(values, values[at].name)
        .map(|(least, most)| (row.values[least], row.values[most]))
        .filter(|(least, most)| least.is_finite() && most.is_finite());
    match range {
        Some((least, most)) => {
            format!("{mean} ({} to {})", format_rate(least), format_rate(most))
        }
        None => mean,
    }
}

fn shown_cell(parameter: Parameter, cell: &str) -> String {
    match (parameter.cells, cell.parse()) {
        (Cells::Bytes, Ok(bytes)) => format_bytes(bytes),
        (Cells::Bytes, Err(_)) | (Cells::Plain, _) => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::{Before, Results};
    use super::super::sample::{Sample, point, record};
    use super::*;

    #[test]
    fn a_page_has_plots_table_machine_and_what_people_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let marks = "figure,line,x,y,source\nread,kind <b>,4096,99,section 4\n";
        std::fs::write(dir.path().join(published::FILE), marks).unwrap();
        assert!(!is_begun(dir.path()), "what a paper prints is no page yet");
        let mut results = Results::open(dir.path(), &Sample, record(), Before::Refuse).unwrap();
        assert!(is_begun(dir.path()));
        // Measured in another order than the table has.
        for (kind, bytes) in [("b", 4096), ("a", 1024), ("b", 1024)] {
            results.add(&point(kind, bytes), vec![12.5, 123_456.0]).unwrap();
        }
        std::fs::write(dir.path().join(DISCUSSION_FILE), "It agrees.\n\n").unwrap();
        for _ in 0..2 {
            write(dir.path(), &Sample, &results.run, &results.rows).unwrap();
        }
        let page = std::fs::read_to_string(dir.path().join(PAGE_FILE)).unwrap();
        for text in [
            "# sample\n\n`sample`: Read speed by size.\n",
            "| read | kind <b> | 4096 | 99 | section 4 |",
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
        assert!(svg.contains("kind &lt;b&gt;") && svg.contains("paper: kind &lt;b&gt;"));
    }

    #[test]
    fn curves_take_their_rows_in_order_of_x() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = Results::open(dir.path(), &Sample, record(), Before::Refuse).unwrap();
        results.add(&point("b", 4096), vec![2.0, 0.0]).unwrap();
        results.add(&point("b", 1024), vec![1.0, 0.0]).unwrap();
        results.add(&point("a", 1024), vec![7.0, 0.0]).unwrap();
        let figure = &Sample.figures(&record().settings())[0];
        let run = &results.run;
        let rows = &results.rows;
        let source = Source { experiment: &Sample, run, rows, published: Vec::new() };
        let chart = source.chart(figure, figure.title);
        assert!(chart.published.is_empty());
        let mut more = figure.clone();
        more.lines.push(Line { only: vec![("kind", "c".to_owned())], ..more.lines[0].clone() });
        let drawn = source.chart(&more, "x");
        assert_eq!(drawn.curves.len(), chart.curves.len(), "a line without points is not drawn");
        let mut theirs = figure.clone();
        theirs.lines[0].title = format!("{PAPERS}a");
        let drawn = source.chart(&theirs, "x");
        assert_eq!(drawn.published[0].curve, "a");
        assert_eq!(drawn.curves.len() + 1, chart.curves.len());
        assert_eq!(chart.curves[0].points, [(1024.0, 7.0)]);
        assert_eq!(chart.curves[1].points, [(1024.0, 1.0), (4096.0, 2.0)]);
    }
}
