//! Files that people name for results. Owns the look, before anything is measured or run, whether one can be
//! written; leaves no file behind that was not there.

use std::fs::{self, OpenOptions};
use std::path::Path;

use anyhow::{Context as _, Result};

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}: name another file", path.display())
}

/// Whether a file can be written in the end: what cannot is not worth the time.
///
/// # Errors
/// If it cannot.
pub(crate) fn check_result_file(path: &Path) -> Result<()> {
    let kind = fs::metadata(path).map(|found| found.file_type());
    // Who reads from a pipe is not to see its end, and a directory is refused by opening it.
    if kind.as_ref().is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
        return Ok(());
    }
    OpenOptions::new().create(true).append(true).open(path).with_context(|| cannot_write(path))?;
    if kind.is_err() {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Writes a result.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write_result_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| cannot_write(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_known_before_and_a_look_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&old, "kept").unwrap();
        check_result_file(&new).unwrap();
        check_result_file(&old).unwrap();
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
        check_result_file(Path::new("/dev/null")).unwrap();
        for path in [dir.path().to_owned(), dir.path().join("none/new")] {
            let error = check_result_file(&path).unwrap_err().to_string();
            assert!(error.contains("name another file"), "{error}");
        }
    }
}
