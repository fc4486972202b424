//! The standard streams: what is printed on them, and what happens when nobody listens any more. A
//! reader that goes away (`| head`) ends the program quietly.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Prints a line on standard output.
pub fn say(line: impl Display) {
    print_or_leave(format!("{line}\n").as_bytes());
}

/// Prints bytes on standard output as they are.
pub(crate) fn say_bytes(bytes: &[u8]) {
    print_or_leave(bytes);
}

/// Prints a value as JSON on standard output.
///
/// # Errors
/// If the value has no form in JSON.
pub fn say_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    say(serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints a line on standard error.
pub fn note(line: impl Display) {
    // There is nowhere left to say that standard error is gone.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// An error with its causes in one line; a cause that an outer text tells already is left out.
pub fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn print_or_leave(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            note(format!("azekura: cannot write to standard output: {error}"));
        }
        std::process::exit(i32::from(error.kind() != io::ErrorKind::BrokenPipe));
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn causes_are_told_once() {
        let error = anyhow!("disk full").context("f: disk full").context("cannot write");
        assert_eq!(super::explain(&error), "cannot write: f: disk full");
    }
}
