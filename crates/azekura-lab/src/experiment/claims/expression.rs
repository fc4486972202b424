//! Expressions over a table: jq, with a few definitions of our own in front. Owns how results become what jq
//! works on; which sentences they are about is not known here.

use anyhow::{Context as _, Result, bail};
use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::Val;
use serde_json::{Map, Value};

const PRELUDE: &str = include_str!("prelude.jq");

/// The rows of a CSV file, each an object of its cells.
pub(super) struct Table(Val);

impl Table {
    /// Reads a table; cells that are numbers become numbers.
    ///
    /// # Errors
    /// If a row has more or fewer cells than the heading.
    pub(super) fn of_csv(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let row = |(index, line): (usize, &str)| {
            let cells: Vec<&str> = line.split(',').collect();
            if cells.len() != names.len() {
                bail!("line {}: {} cells under {} names", index + 2, cells.len(), names.len());
            }
            let value = |cell: &str| match (cell.parse::<i64>(), cell.parse::<f64>()) {
                (Ok(whole), _) => Value::from(whole),
                (_, Ok(number)) if number.is_finite() => Value::from(number),
                _ => Value::from(cell),
            };
            let cell = |(name, cell): (&&str, &str)| ((*name).to_owned(), value(cell));
            Ok(Value::Object(names.iter().zip(cells).map(cell).collect::<Map<_, _>>()))
        };
        let rows = lines.enumerate().map(row).collect::<Result<Vec<Value>>>()?;
        let text = Value::Array(rows).to_string();
        jaq_json::read::parse_single(text.as_bytes())
            .map(Self)
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// The one value of an expression.
    ///
    /// # Errors
    /// If it is not jq, fails, or has no or several values.
    pub(super) fn value_of(&self, expression: &str) -> Result<Value> {
        let code = format!("{PRELUDE}\n{expression}");
        let defined = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let known = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let arena = Arena::default();
        let modules = Loader::new(defined)
            .load(&arena, File { code: code.as_str(), path: () })
            .map_err(|errors| anyhow::anyhow!("not jq: {:?}", what(errors)))?;
        let filter = Compiler::default()
            .with_funs(known)
            .compile(modules)
            .map_err(|errors| anyhow::anyhow!("not jq: {:?}", what(errors)))?;
        let context = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
        let mut values = filter.id.run((context, self.0.clone())).map(unwrap_valr);
        match (values.next(), values.next()) {
            (Some(Ok(value)), None) => {
                serde_json::from_str(&value.to_string()).context("not a value of JSON")
            }
            (Some(Err(error)), _) | (_, Some(Err(error))) => bail!("{error}"),
            (None, _) => bail!("it has no value"),
            (Some(_), Some(_)) => bail!("it has several values"),
        }
    }
}

/// The errors alone, without the text that they are about.
fn what<F, E>(errors: Vec<(F, E)>) -> Vec<E> {
    errors.into_iter().map(|(_, error)| error).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "path,size,read\nnative,1,10\nnative,2,20\nfuse,1,5\nfuse,2,30\n";

    #[test]
    fn tables_are_asked() {
        let table = Table::of_csv(CSV).unwrap();
        for (expression, value) in [
            ("length", "4"),
            ("most(.read) / least(.read)", "6"),
            (r#"at(.path == "fuse" and .size == 2; .read)"#, "30"),
            (r#"where(.path == "native") | rises(.size; .read)"#, "true"),
            ("where(.size == 1) | rises(.path; .read)", "true"),
            ("where(.size == 2) | rises(.path; .read)", "false"),
            ("where(.size == 2) | falls(.path; .read)", "true"),
            ("middle(.read)", "15"),
            ("within(.read; 0.5)", "10"),
            ("within(.read; 1)", "30"),
            ("count(.read > 9)", "3"),
            ("mean(.read)", "16.25"),
            ("apart(10; 8)", "0.2"),
            ("where(.size == 1) | keyed(.path) | .native.read / .fuse.read", "2"),
        ] {
            let found = table.value_of(expression).unwrap();
            let wanted: Value = serde_json::from_str(value).unwrap();
            assert_eq!(found.as_f64(), wanted.as_f64(), "{expression}: {found}");
            assert_eq!(found.as_bool(), wanted.as_bool(), "{expression}: {found}");
        }
    }

    #[test]
    fn what_cannot_be_decided_is_no_value() {
        let table = Table::of_csv(CSV).unwrap();
        for (expression, why) in [
            ("where(.size == 7) | all(.read > 0)", "no row fits"),
            ("at(.size == 1; .read)", "2 rows fit"),
            ("where(", "not jq"),
            ("nosuch(.read)", "not jq"),
            (".[].read", "several"),
            ("empty", "no value"),
        ] {
            let error = table.value_of(expression).unwrap_err().to_string();
            assert!(error.contains(why), "{expression}: {error}");
        }
        assert!(Table::of_csv("a,b\n1\n").is_err());
    }
}
