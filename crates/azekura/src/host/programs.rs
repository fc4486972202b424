//! The files of the programs that were installed together: `azekura`, and `azekura-lab` beside it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

/// The file of this program.
///
/// # Errors
/// If the system does not know it.
pub fn own() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// The file of another program, which lies in this one's directory.
///
/// # Errors
/// If it is not there.
pub fn beside(name: &str) -> Result<PathBuf> {
    let own = own()?;
    let path = own.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let dir = own.parent().unwrap_or(&own);
    bail!("{name} is not in {}: 'make install' puts both programs there", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_directory_of_this_one() {
        let own = own().unwrap();
        assert_eq!(beside(own.file_name().unwrap().to_str().unwrap()).unwrap(), own);
        assert!(beside("no-such-program").unwrap_err().to_string().contains("make install"));
    }
}
