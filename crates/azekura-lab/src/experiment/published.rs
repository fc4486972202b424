//! Values that a paper has printed, beside the results that are held against them: `published.csv`, written by
//! hand, one line a value with the place of the paper where it stands. Owns this format; values that can only
//! be guessed from a drawing do not belong in it.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::chart::Published;

pub(crate) const FILE: &str = "published.csv";
const HEADING: &str = "figure,line,x,y,source";

/// One value of a paper.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PublishedValue {
    /// File of the picture that it belongs on, without the ending.
    figure: String,
    /// The line that it is held against, or a name of its own.
    line: String,
    x: f64,
    y: f64,
    /// Where it stands.
    source: String,
}

fn value(line: &str) -> Option<PublishedValue> {
    let mut cells = line.splitn(5, ',');
    let mut text = || cells.next().map(str::to_owned);
    let (figure, line) = (text()?, text()?);
    let (x, y) = (text()?.parse().ok()?, text()?.parse().ok()?);
    Some(PublishedValue { figure, line, x, y, source: text()? })
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

/// The values of a picture, by their lines.
pub(super) fn of_figure(values: &[PublishedValue], figure: &str) -> Vec<Published> {
    let mut found: Vec<Published> = Vec::new();
    for value in values.iter().filter(|value| value.figure == figure) {
        let point = (value.x, value.y);
        match found.iter_mut().find(|published| published.curve == value.line) {
            Some(published) => published.points.push(point),
            None => found.push(Published { curve: value.line.clone(), points: vec![point] }),
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
        let PublishedValue { figure, line, x, y, source } = value;
        format!("| {figure} | {line} | {x} | {y} | {source} |\n")
    };
    let rows: String = values.iter().map(row).collect();
    format!(
        "## What the paper prints\n\nHollow marks in the pictures.\n\n\
         | picture | line | x | y | where |\n|---|---|---:|---:|---|\n{rows}\n"
    )
}

#[cfg(test)]
mod tests {
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
        assert_eq!(of_figure(&values, "read")[0].points, [(1024.0, 9.5)]);
        for text in ["x\n".to_owned(), format!("{HEADING}\nread,N-N,a,1,b\n")] {
            std::fs::write(&path, text).unwrap();
            assert!(read(dir.path()).is_err());
        }
    }
}
