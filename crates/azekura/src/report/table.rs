//! Plain tables: aligned columns, no lines drawn, so that `awk` reads them too. Never cuts a cell.

use std::fmt;

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// Rows under a heading.
pub struct Table {
    headings: Vec<String>,
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings; one that starts with `>` stands over numbers, to the right.
    pub fn new(headings: &[&str]) -> Self {
        let align = |heading: &&str| match heading.strip_prefix('>') {
            Some(text) => (text.to_owned(), Align::Right),
            None => ((*heading).to_owned(), Align::Left),
        };
        let (headings, aligns) = headings.iter().map(align).unzip();
        Self { headings, aligns, rows: Vec::new() }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: &str| text.chars().count();
        let mut widths: Vec<usize> = self.headings.iter().map(|text| width(text)).collect();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate().take(widths.len()) {
                widths[column] = widths[column].max(width(cell));
            }
        }
        for (index, row) in std::iter::once(&self.headings).chain(&self.rows).enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate().take(widths.len()) {
                if column > 0 {
                    line.push_str("  ");
                }
                let padding = " ".repeat(widths[column] - width(cell));
                match self.aligns[column] {
                    Align::Left => line.extend([cell.as_str(), &padding]),
                    Align::Right => line.extend([padding.as_str(), cell]),
                }
            }
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = Table::new(&["what", ">MiB/s"]);
        table.row(["read".to_owned(), "7".to_owned()]);
        table.row(["x".to_owned(), "1234567".to_owned()]);
        assert_eq!(table.to_string(), "what    MiB/s\nread        7\nx     1234567");
    }
}
