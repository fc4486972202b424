//! Which programs this machine has. Owns where they are looked for; starts none but the one
//! question to python.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where programs are looked for: those of the system, and not what stands before them in
/// somebody's path.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What stands for python's reader of columns among programs.
pub(super) const PYARROW: &str = "pyarrow";

/// Where a program lies.
pub(super) fn found(program: &str) -> Option<PathBuf> {
    PATH.split(':').map(|dir| Path::new(dir).join(program)).find(|path| path.is_file())
}

/// The first of these that is not there.
pub(super) fn first_missing(needs: &'static [&'static str]) -> Option<&'static str> {
    needs.iter().copied().find(|need| match *need {
        PYARROW => !has_pyarrow(),
        program => found(program).is_none(),
    })
}

/// Whether python can read tables by column; asked once, since that takes a moment.
fn has_pyarrow() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let mut python = Command::new("python3");
        python.args(["-c", "import pyarrow.parquet"]).env("PATH", PATH);
        let quiet = python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_system_has_is_found() {
        assert!(found("sh").is_some() && found("no-such-program").is_none());
        assert_eq!(first_missing(&["sh", "cat"]), None);
        assert_eq!(first_missing(&["sh", "no-such-program", "neither"]), Some("no-such-program"));
    }
}
