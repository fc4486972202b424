//! What a service has answered that is not what was asked for, in words: which service, what was asked, what it
//! answered, what to check. Owns that nothing secret is said: of an error of `opendal` its message and its
//! first cause are repeated, and never the request.

use std::error::Error as _;
use std::io;

use opendal::{Error, ErrorKind};
use rustix::io::Errno;

use crate::address::{self, Kind};

/// An answer has so many bytes at most.
const ANSWER_BYTES_MAX: usize = 300;

/// What a service is called in messages.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) kind: Kind,
    pub(crate) address: String,
}

impl Called {
    /// The whole line.
    pub(crate) fn line(&self, doing: &str, error: &Error) -> String {
        let answer = answer_of(error);
        let check = self.check(error, &answer);
        format!("{} ({}): cannot {doing}: {answer}{check}", self.kind.name(), self.address)
    }

    /// An error that people see as it is: a program gets `EIO`.
    pub(crate) fn told(&self, doing: &str, error: &Error) -> io::Error {
        io::Error::other(self.line(doing, error))
    }

    /// An error that programs get; people see the line, unless it is about a name that is not there.
    pub(crate) fn errno(&self, doing: &str, error: &Error) -> io::Error {
        let errno = match error.kind() {
            ErrorKind::NotFound => return Errno::NOENT.into(),
            ErrorKind::NotADirectory => Errno::NOTDIR,
            ErrorKind::IsADirectory => Errno::ISDIR,
            ErrorKind::PermissionDenied => Errno::ACCESS,
            _ => Errno::IO,
        };
        tracing::error!("{}", self.line(doing, error));
        errno.into()
    }

    fn check(&self, error: &Error, answer: &str) -> String {
        let kind = error.kind();
        // Of some services the library tells this in its own notes only.
        let notes = error.to_string();
        let is_refused = kind == ErrorKind::PermissionDenied
            || ["status: 401", "status: 403"].iter().any(|status| notes.contains(status))
            || ["credential", "401", "403", "Authentication", "denied"]
                .iter()
                .any(|word| answer.contains(word));
        match (is_refused, self.kind) {
            (true, Kind::Sftp) => {
                "; 'ssh -o BatchMode=yes' to that host has to work, with that user and key"
                    .to_owned()
            }
            (true, kind) => {
                let anonymous =
                    if kind == Kind::S3 { ", or ?anonymous=true for a public bucket" } else { "" };
                format!("; {}{anonymous}", address::in_environment(kind))
            }
            (false, _) if kind == ErrorKind::ConfigInvalid => {
                "; are the name, the endpoint and the region right?".to_owned()
            }
            (false, _) if kind == ErrorKind::NotFound => String::new(),
            (false, _) if error_is_of_network(answer) => "; is the service up and reachable from \
                 here?"
                .to_owned(),
            (false, _) => String::new(),
        }
    }
}

fn error_is_of_network(answer: &str) -> bool {
    ["refused", "timed out", "reset", "closed", "resolve", "unreachable", "sending request"]
        .iter()
        .any(|word| answer.contains(word))
}

fn answer_of(error: &Error) -> String {
    let mut answer = match (error.kind(), error.message().trim()) {
        (ErrorKind::Unexpected, "") => "an answer that is not understood".to_owned(),
        (ErrorKind::Unexpected, message) => message.to_owned(),
        (kind, "") => words_of(kind),
        (kind, message) => format!("{}: {message}", words_of(kind)),
    };
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    if let Some(cause) = cause {
        let cause = cause.to_string();
        if !answer.contains(&cause) {
            answer = format!("{answer}: {cause}");
        }
    }
    let mut end = answer.len().min(ANSWER_BYTES_MAX);
    while !answer.is_char_boundary(end) {
        end -= 1;
    }
    answer.truncate(end);
    // What comes from elsewhere must not draw on the terminal.
    answer.replace(char::is_control, " ")
}

fn words_of(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::NotFound => "not found".to_owned(),
        ErrorKind::ConfigInvalid => "a setting is wrong".to_owned(),
        ErrorKind::RateLimited => "too many requests at once".to_owned(),
        ErrorKind::ConditionNotMatch => "it has changed meanwhile".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_service_request_answer_and_what_to_check() {
        let called = Called { kind: Kind::S3, address: "s3://b/p".to_owned() };
        let error = Error::new(ErrorKind::PermissionDenied, "AccessDenied")
            .with_context("authorization", "geheim")
            .set_source(io::Error::other("no\nway"));
        let line = called.line("read 'x'", &error);
        for part in ["S3 (s3://b/p)", "cannot read 'x'", "AccessDenied", "no way", "AWS_SECRET"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains("geheim"));
    }
}
