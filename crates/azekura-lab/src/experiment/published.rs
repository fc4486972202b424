//! Values that a paper has printed, beside the results that are held against them: `published.csv`, written by
//! hand, one line a value with the place of the paper where it stands. Where the paper gives one number of a
//! point alone, the cell of the other is empty. Owns this format; values that can only be guessed from a drawing
//! do not belong in it.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::chart::{Place, Published};

pub(crate) const FILE: &str = "published.csv";
const HEADING: &str = "figure,line,x,y,source";

/// One value of a paper.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PublishedValue {
    /// File of the picture that it belongs on, without the ending.
    figure: String,
    /// The line that it is held against, or a name of its own.
    line: String,
    place: Place,
    /// Where it stands.
    source: String,
}

/// The number in a cell; none where it is empty.
///
/// # Errors
/// If what stands there is no number.
fn number(cell: &str) -> Result<Option<f64>> {
    if cell.is_empty() {
        return Ok(None);
    }
    let number: f64 = cell.parse()?;
    ensure!(number.is_finite(), "a mark has to have a place");
    Ok(Some(number))
}

fn value(line: &str) -> Option<PublishedValue> {
    let mut cells = line.splitn(5, ',');
    let mut text = || cells.next().map(str::to_owned);
    let (figure, line) = (text()?, text()?);
    let place = Place::of(number(&text()?).ok()?, number(&text()?).ok()?)?;
    Some(PublishedValue { figure, line, place, source: text()? })
}

/// The values beside some results; none where there is no such file.
///
/// # Errors
/// If a line of the file is no value.
pub(crate) fn read(dir: &Path) -> Result<Vec<PublishedValue>> {
    let path = dir.join(FILE);
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(Vec::new()) };
    let mut lines = text.lines();
    if lines.next() != Some(HEADING) {
        bail!("{} does not begin with {HEADING}", path.display());
    }
    lines
        .enumerate()
        .map(|(index, line)| {
            value(line).with_context(|| format!("{}:{}: no value", path.display(), index + 2))
        })
        .collect()
}

/// The values of a picture, by their lines. Those of which one number is known stand apart from the others.
pub(super) fn of_figure(values: &[PublishedValue], figure: &str) -> Vec<Published> {
    let mut found: Vec<Published> = Vec::new();
    for value in values.iter().filter(|value| value.figure == figure) {
        let place = value.place;
        let goes_with = |published: &&mut Published| {
            published.curve == value.line && published.places.iter().all(|p| p.is_like(place))
        };
        match found.iter_mut().find(goes_with) {
            Some(published) => published.places.push(place),
            None => found.push(Published { curve: value.line.clone(), places: vec![place] }),
        }
    }
    found
}

/// The values as a section of a page; nothing where there are none.
pub(super) fn table(values: &[PublishedValue]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let row = |value: &PublishedValue| {
        let PublishedValue { figure, line, place, source } = value;
        let cell = |number: Option<f64>| number.map_or_else(String::new, |n| n.to_string());
        let (x, y) = (cell(place.x()), cell(place.y()));
        format!("| {figure} | {line} | {x} | {y} | {source} |\n")
    };
    let rows: String = values.iter().map(row).collect();
    let is_partial = |value: &PublishedValue| !matches!(value.place, Place::At(..));
    let partial = if values.iter().any(is_partial) {
        " Where the paper gives one of the two numbers alone, the mark stands on the axis of that number."
    } else {
        ""
    };
    format!(
        "## What the paper prints\n\nHollow marks in the pictures.{partial}\n\n\
         | picture | line | x | y | where |\n|---|---|---:|---:|---|\n{rows}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::frame::Settings;
    use super::*;

    #[test]
    fn values_are_read_and_go_to_their_pictures() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_empty() && table(&[]).is_empty());
        let path = dir.path().join(FILE);
        std::fs::write(&path, format!("{HEADING}\nread,N-N,1024,9.5,4.3, text\n")).unwrap();
        let values = read(dir.path()).unwrap();
        assert_eq!(values[0].source, "4.3, text");
        assert!(of_figure(&values, "write").is_empty());
        assert_eq!(of_figure(&values, "read")[0].places, [Place::At(1024.0, 9.5)]);
        assert!(table(&values).contains("in the pictures.\n"));
        let unfit = ["read,N-N,a,1,b", "read,N-N,,,b", "read,N-N,inf,1,b", "read,N-N,1,2"];
        let unfit = unfit.map(|line| format!("{HEADING}\n{line}\n"));
        for text in unfit.into_iter().chain(["x\n".to_owned()]) {
            std::fs::write(&path, &text).unwrap();
            assert!(read(dir.path()).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_that_stand_alone_are_kept_apart() {
        let dir = tempfile::tempdir().unwrap();
        let lines = "p,0 ms,2,33,a\np,0 ms,,30,b\np,0 ms,8,,c\np,0 ms,,31.8,d\np,0 ms,16,35.5,e\n";
        std::fs::write(dir.path().join(FILE), format!("{HEADING}\n{lines}")).unwrap();
        let values = read(dir.path()).unwrap();
        let found: Vec<Vec<Place>> =
            of_figure(&values, "p").into_iter().map(|published| published.places).collect();
        assert_eq!(
            found,
            [
                vec![Place::At(2.0, 33.0), Place::At(16.0, 35.5)],
                vec![Place::Y(30.0), Place::Y(31.8)],
                vec![Place::X(8.0)],
            ]
        );
        let table = table(&values);
        for text in ["| p | 0 ms |  | 30 | b |", "| p | 0 ms | 8 |  | c |", "on the axis of that"] {
            assert!(table.contains(text), "{text:?} is missing in\n{table}");
        }
    }

    #[test]
    fn the_values_of_this_repository_have_their_pictures() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments");
        let mut with_values = Vec::new();
        for experiment in super::super::every() {
            let name = experiment.name();
            let values = read(&pages.join(name)).unwrap();
            if values.is_empty() {
                continue;
            }
            with_values.push(name);
            let figures = experiment.figures(&settings);
            for value in &values {
                let found = figures.iter().any(|figure| figure.file == value.figure);
                assert!(found, "{name} has no picture {}", value.figure);
                assert!(!value.source.is_empty(), "{name}: {value:?}");
            }
        }
        for name in ["daos-transfer", "wan-fixed", "wan-p", "wan-trace"] {
            assert!(with_values.contains(&name), "{name}");
        }
    }
}
