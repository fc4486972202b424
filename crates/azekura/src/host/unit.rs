//! systemd units of the user: a pool that is started at boot or login, and again if its engine fails.
//! Owns how a command line stands in a unit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::{places, programs, records};

/// Writes the unit of a pool, which runs this program with `arguments`; gives its name and its file.
///
/// # Errors
/// If it cannot be written, or a path in it cannot stand in a unit.
pub(crate) fn write(pool: &str, arguments: &[OsString]) -> Result<(String, PathBuf)> {
    let name = format!("azekura-{pool}.service");
    let dir = places::config_dir()?.with_file_name("systemd").join("user");
    let path = dir.join(&name);
    let program = programs::own()?;
    let text = text(pool, &program, arguments)?;
    records::write_whole(&path, text.as_bytes())?;
    Ok((name, path))
}

fn text(pool: &str, program: &Path, arguments: &[OsString]) -> Result<String> {
    let mut line = quoted(program.to_str())?;
    for argument in arguments {
        line.push(' ');
        line.push_str(&quoted(argument.to_str())?);
    }
    Ok(format!(
        "# Written by 'azekura up --unit', which writes it anew.\n\
         [Unit]\n\
         Description=Azekura pool {pool}\n\
         \n\
         [Service]\n\
         ExecStart={line}\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         # Requests under way are answered before it ends.\n\
         TimeoutStopSec=100\n\
         LimitNOFILE=infinity\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    ))
}

/// A word of a command line in a unit, where `%` and `$` mean something.
fn quoted(word: Option<&str>) -> Result<String> {
    let word = word.context("a path that is not UTF-8 cannot stand in a unit")?;
    if word.contains('\n') {
        bail!("'{word}' has a line break and cannot stand in a unit");
    }
    let mut text = String::from("\"");
    for letter in word.chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            '%' | '$' => text.extend([letter, letter]),
            _ => text.push(letter),
        }
    }
    text.push('"');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_in_a_unit_as_they_are() {
        assert_eq!(quoted(Some("/a b/100%$x\"\\")).unwrap(), r#""/a b/100%%$$x\"\\""#);
        assert!(quoted(Some("a\nb")).is_err());
        assert!(quoted(None).is_err());
    }
}
