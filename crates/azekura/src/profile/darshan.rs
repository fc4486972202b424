//! What Darshan has recorded of a job. Its logs are read by its own Python package, in a small program that
//! stands in this one; what comes back is checked as any file from elsewhere.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::usage::Usage;

/// The program.
const READER: &str = include_str!("read_darshan.py");
/// Its exit code where the package is not there.
const NO_PACKAGE: i32 = 3;
/// Names the Python to use.
const PYTHON: &str = "AZEKURA_PYTHON";

/// Reads a log.
///
/// # Errors
/// If Python or its package is not there, or the file is no log that it reads.
pub(super) fn read(log: &Path) -> Result<Usage> {
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| "python3".into());
    let result = Command::new(&python)
        .args(["-c", READER])
        .arg(log)
        .stdin(Stdio::null())
        .output()
        .with_context(|| {
            format!("cannot run {}, which reads Darshan's logs: install Python 3", python.display())
        })?;
    let said = String::from_utf8_lossy(&result.stderr);
    let said = said.trim().lines().last().unwrap_or_default();
    match result.status.code() {
        Some(0) => {}
        Some(NO_PACKAGE) => bail!(
            "{} has no package 'darshan', which reads the logs: '{} -m pip install darshan', or name the \
             Python that has it in {PYTHON}",
            python.display(),
            python.display()
        ),
        _ => bail!("cannot read the Darshan log {}: {said}", log.display()),
    }
    parse(&result.stdout).with_context(|| {
        format!("what was read of the Darshan log {} makes no sense", log.display())
    })
}

fn parse(json: &[u8]) -> Result<Usage> {
    Ok(serde_json::from_slice(json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_reader_prints_is_taken_whole_or_not_at_all() {
        let text = serde_json::to_string(&Usage::default()).unwrap();
        parse(text.as_bytes()).unwrap();
        let broken = [
            text.replace("\"lost\":0", "\"lost\":-1"),
            text.replace("\"lost\"", "\"last\""),
            text[..text.len() - 1].to_owned(),
            text.replace("[]", "[7]"),
        ];
        for text in broken {
            parse(text.as_bytes()).unwrap_err();
        }
    }
}
