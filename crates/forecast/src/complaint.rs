//! What is wrong with a file, and where: its name, line and key. Owns the way from a place in a TOML text
//! to the key that stands there, and back.

use std::fmt;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {}{what}", file.display(), Line(*line), Key(key))]
pub struct FileError {
    /// The file, as the caller names it.
    pub file: PathBuf,
    /// Its line, counted from 1, if one is to blame.
    pub line: Option<usize>,
    /// The key, as `streams[2].read_mib_per_s`; empty if none is to blame.
    pub key: String,
    /// What is wrong, and what to write.
    pub what: String,
}

struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

struct Key<'a>(&'a str);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

/// A contradiction between values, and the key to blame for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The key, as in [`FileError::key`].
    pub key: String,
    /// What contradicts what, and what to write.
    pub what: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Key(&self.key), self.what)
    }
}

/// Fails with a contradiction unless something holds.
pub(crate) fn require(
    holds: bool,
    key: impl Into<String>,
    what: impl FnOnce() -> String,
) -> Result<(), Contradiction> {
    if holds { Ok(()) } else { Err(Contradiction { key: key.into(), what: what() }) }
}

/// Reads a TOML text strictly, and holds what it says against `check`.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    file: &Path,
    check: impl FnOnce(&T) -> Result<(), Contradiction>,
) -> Result<T, FileError> {
    let refuse = |line, key, what| FileError { file: file.to_owned(), line, key, what };
    let value: T = toml::from_str(text).map_err(|error| {
        let span = error.span();
        let key = span.as_ref().map(|span| key_at(text, span)).unwrap_or_default();
        let line = span.map(|span| line_of(text, span.start));
        refuse(line, key, in_words(error.message()))
    })?;
    match check(&value) {
        Ok(()) => Ok(value),
        Err(Contradiction { key, what }) => Err(refuse(line_of_key(text, &key), key, what)),
    }
}

/// What the reader of TOML says, without the names that types have in this program.
fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 4] = [
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number of 0 or more"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list: a header in two brackets begins an item"),
    ];
    let said = WORDS.into_iter().find(|(name, _)| message.contains(name));
    said.map_or_else(|| message.to_owned(), |(name, words)| message.replace(name, words))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// The innermost key that a place belongs to; empty if the text is no TOML.
fn key_at(text: &str, place: &Range<usize>) -> String {
    let mut key = String::new();
    if let Ok(table) = DeTable::parse(text) {
        descend_table(table.get_ref(), place, &mut key);
    }
    key
}

fn holds(span: &Range<usize>, place: &Range<usize>) -> bool {
    span.start <= place.start && place.start < span.end.max(span.start + 1)
}

fn descend_table(table: &DeTable<'_>, place: &Range<usize>, key: &mut String) {
    // A table is also found by a key that stands outside its span, below a header.
    let found = table.iter().find(|(name, value)| {
        holds(&name.span(), place) || holds(&value.span(), place) || within(value, place)
    });
    let Some((name, value)) = found else { return };
    if !key.is_empty() {
        key.push('.');
    }
    key.push_str(name.get_ref());
    descend(value, place, key);
}

fn descend(value: &Spanned<DeValue<'_>>, place: &Range<usize>, key: &mut String) {
    match value.get_ref() {
        DeValue::Table(table) => descend_table(table, place, key),
        DeValue::Array(items) => {
            let found =
                items.iter().position(|item| holds(&item.span(), place) || within(item, place));
            if let Some(index) = found {
                // Text in a string always has room.
                let _ = write!(key, "[{index}]");
                descend(&items[index], place, key);
            }
        }
        _ => {}
    }
}

fn within(value: &Spanned<DeValue<'_>>, place: &Range<usize>) -> bool {
    match value.get_ref() {
        DeValue::Table(table) => table.iter().any(|(name, value)| {
            holds(&name.span(), place) || holds(&value.span(), place) || within(value, place)
        }),
        DeValue::Array(items) => {
            items.iter().any(|item| holds(&item.span(), place) || within(item, place))
        }
        _ => false,
    }
}

/// The line of a key like `streams[2].read_mib_per_s`, or of the nearest table around it that is there.
fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = document.get_ref();
    let mut line = None;
    for step in key.split('.') {
        let (name, index) = match step.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (step, None),
        };
        let Some((found, value)) = table.iter().find(|(key, _)| key.get_ref() == name) else {
            break;
        };
        line = Some(line_of(text, found.span().start));
        let mut value = value.get_ref();
        if let Some(item) = index.and_then(|index| value.get(index)) {
            line = Some(line_of(text, item.span().start));
            value = item.get_ref();
        }
        let Some(inner) = value.as_table() else { break };
        table = inner;
    }
    line
}
