//! What a command came to, and what its exit code means: 0 done, 1 failed, 2 not understood; what
//! `azekura run` has run decides for itself.

use std::fmt;
use std::process::ExitCode;

use azekura_posix::Errno;

use crate::report;

/// What a command came to, where it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Good,
    /// The command has shown something that is not: a damaged container, an engine that is down.
    Bad,
    /// Another program was run, and this is its exit code.
    Ended(u8),
}

/// The command line cannot mean anything, as found out only while running.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// An error that ends the program with the exit code for usage.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(UsageError(message.into()))
}

/// What stands behind an input/output error of the calling thread: which engine did not answer, and what
/// to do.
pub(crate) fn cause_of(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let is_io = match (error.downcast_ref::<Errno>(), error.downcast_ref::<std::io::Error>()) {
        (Some(errno), _) => *errno == Errno::IO,
        (_, Some(error)) => error.raw_os_error() == Some(Errno::IO.raw_os_error()),
        _ => false,
    };
    is_io.then(azekura_posix::errno::take_cause).flatten().map(|cause| cause.to_string())
}

/// The exit code of a result of `program`; an error is shown on standard error first.
pub fn exit_code(program: &str, result: anyhow::Result<Verdict>) -> ExitCode {
    match result {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::FAILURE,
        Ok(Verdict::Ended(code)) => ExitCode::from(code),
        Err(error) => {
            let mut text = report::explain(&error);
            let cause = error.chain().find_map(cause_of);
            if let Some(cause) = cause.filter(|cause| !text.contains(cause)) {
                text = format!("{text}: {cause}");
            }
            report::note(format_args!("{program}: {text}"));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_errors_are_told_from_failures() {
        assert!(usage("x").is::<UsageError>());
        assert!(usage("x").context("while doing y").is::<UsageError>());
    }
}
