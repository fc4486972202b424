//! Sentences of a page held against the table beside them. `claims.toml`, beside each page, has the sentences,
//! each with an expression over the rows of `results.csv` that decides it; so a run whose figures no longer
//! support a sentence is noticed. Owns that format; changes nothing.

mod expression;

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::page::{DISCUSSION_FILE, PAGE_FILE};
use super::results::CSV_FILE;
use azekura::report::explain;
use expression::Table;

const CLAIMS_FILE: &str = "claims.toml";

/// What stands in `claims.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    /// Sentences with figures that are not of this table: a paper's, or those of the method.
    #[serde(default)]
    remarks: Vec<String>,
    #[serde(default, rename = "claim")]
    claims: Vec<Claim>,
}

/// A sentence, or a part of one, and what decides it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    /// As it stands on the page.
    text: String,
    /// Over the rows of the table, in jq.
    expression: String,
    /// What it has to give; without it, the expression has to be true.
    value: Option<f64>,
    /// How far it may be off, as a share of `value`.
    #[serde(default)]
    tolerance: f64,
}

/// What came out for one page.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Claims that were looked at.
    pub(super) claims: usize,
    /// What is wrong, one line each.
    pub(super) failures: Vec<String>,
}

impl Claim {
    /// Why it does not hold, if so.
    fn failure(&self, table: &Table) -> Option<String> {
        let Self { text, value, tolerance, .. } = self;
        let expression = &even(&self.expression);
        let found = match table.value_of(expression) {
            Ok(found) => found,
            Err(error) => return Some(format!("'{text}': {expression}: {}", explain(&error))),
        };
        let wanted = match value {
            None => "true".to_owned(),
            Some(value) if *tolerance > 0.0 => {
                format!("{value} to within {:.3} %", tolerance * 100.0)
            }
            Some(value) => value.to_string(),
        };
        let holds = match value {
            None => found == Value::Bool(true),
            Some(value) => {
                // What is printed with all its digits is that value and no noise of its sum.
                let room = (value * tolerance).abs().max(1e-9);
                found.as_f64().is_some_and(|found| (found - value).abs() <= room)
            }
        };
        (!holds).then(|| format!("'{text}': {expression} is {found}, not {wanted}"))
    }
}

/// Text with its words apart by one space each, so that where lines end does not count.
fn even(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The sentences of a text without its tables.
fn sentences(text: &str) -> Vec<String> {
    let prose: Vec<&str> = text.lines().filter(|line| !line.starts_with(['|', '#', '!'])).collect();
    let prose = even(&prose.join("\n"));
    let mut found = Vec::new();
    let mut rest = prose.as_str();
    while let Some(end) = rest.find(". ") {
        let (sentence, after) = rest.split_at(end + 1);
        found.push(sentence.trim().to_owned());
        rest = after;
    }
    found.push(rest.trim().to_owned());
    found
}

/// What the claims do not cover: sentences of the discussion with figures of which nobody says what decides
/// them.
fn undecided(claims: &Claims, discussion: &str) -> Vec<String> {
    let covers = |sentence: &str| {
        let texts = claims.claims.iter().map(|claim| &claim.text).chain(&claims.remarks);
        texts.map(|text| even(text)).any(|text| sentence.contains(&text) || text.contains(sentence))
    };
    let has_figure = |sentence: &&String| sentence.contains(|c: char| c.is_ascii_digit());
    let open = sentences(discussion).into_iter();
    open.filter(|sentence| has_figure(&sentence) && !covers(sentence)).collect()
}

/// Holds the page of a directory against its table.
///
/// # Errors
/// If the page, its table or its claims cannot be read.
pub(super) fn check(dir: &Path) -> Result<Checked> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (page, csv) = (even(&read(PAGE_FILE)?), read(CSV_FILE)?);
    let claims: Claims = toml::from_str(&read(CLAIMS_FILE)?)
        .with_context(|| format!("cannot understand {}", dir.join(CLAIMS_FILE).display()))?;
    let table = Table::of_csv(&csv).with_context(|| dir.join(CSV_FILE).display().to_string())?;
    let mut failures: Vec<String> =
        claims.claims.iter().filter_map(|claim| claim.failure(&table)).collect();
    let texts = claims.claims.iter().map(|claim| &claim.text).chain(&claims.remarks);
    for text in texts.filter(|text| !page.contains(&even(text))) {
        failures.push(format!("'{text}' is not on the page"));
    }
    let discussion = read(DISCUSSION_FILE).unwrap_or_default();
    for sentence in undecided(&claims, &discussion) {
        failures.push(format!("'{sentence}' has figures, and no claim or remark"));
    }
    Ok(Checked { claims: claims.claims.len(), failures })
}

#[cfg(test)]
mod tests {
    use super::super::page::is_begun;
    use super::*;

    const PAGE: &str =
        "# t\n\nReading doubles from 1 to 2 KiB.\nThe paper has\n1.5 times there. More.\n";
    const CSV: &str = "size,read\n1,10\n2,20\n";
    const GOOD: &str = "remarks = ['The paper has 1.5 times there.']\n[[claim]]\n\
        text = 'Reading doubles from 1 to 2 KiB'\nvalue = 2\ntolerance = 0.1\n\
        expression = 'at(.size == 2; .read) / at(.size == 1; .read)'\n";

    fn checked(csv: &str, claims: &str) -> Result<Checked> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in
            [(PAGE_FILE, PAGE), (DISCUSSION_FILE, PAGE), (CSV_FILE, csv), (CLAIMS_FILE, claims)]
        {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        check(dir.path())
    }

    #[test]
    fn a_sentence_that_its_table_supports_passes() {
        let checked = checked(CSV, GOOD).unwrap();
        assert_eq!(checked.failures, Vec::<String>::new());
        assert_eq!(checked.claims, 1);
    }

    #[test]
    fn a_sentence_that_its_table_does_not_support_fails_with_its_value() {
        let failures = checked("size,read\n1,10\n2,30\n", GOOD).unwrap().failures;
        assert_eq!(failures.len(), 1);
        for part in ["Reading doubles", "at(.size == 2", "is 3.0, not 2 to within 10"] {
            assert!(failures[0].contains(part), "{}", failures[0]);
        }
    }

    #[test]
    fn what_is_not_on_the_page_or_not_decided_fails() {
        let absent = GOOD.replace("doubles from", "trebles from");
        let failures = checked(CSV, &absent).unwrap().failures;
        assert!(failures.iter().any(|f| f.contains("trebles") && f.contains("not on the page")));
        assert!(failures.iter().any(|f| f.contains("doubles") && f.contains("no claim")));
        let open = GOOD.replace("remarks = ['The paper has 1.5 times there.']", "");
        let failures = checked(CSV, &open).unwrap().failures;
        assert!(failures[0].contains("The paper has 1.5 times there."), "{failures:?}");
    }

    #[test]
    fn a_page_without_claims_fails() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(PAGE_FILE), PAGE).unwrap();
        std::fs::write(dir.path().join(CSV_FILE), CSV).unwrap();
        assert!(check(dir.path()).unwrap_err().to_string().contains(CLAIMS_FILE));
        assert!(checked(CSV, "[[claim]]\ntext = 'x'\n").is_err());
    }

    #[test]
    fn the_pages_of_this_repository_are_supported_by_their_tables() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments");
        let mut failures = Vec::new();
        for entry in std::fs::read_dir(&pages).unwrap() {
            let dir = entry.unwrap().path();
            if is_begun(&dir) {
                let name = dir.file_name().unwrap().to_string_lossy().into_owned();
                let found = check(&dir).unwrap_or_else(|error| panic!("{name}: {error:#}"));
                failures.extend(found.failures.iter().map(|failure| format!("{name}: {failure}")));
            }
        }
        assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    }
}
