//! Asking before something is done that cannot be undone. A person at a terminal is asked; a script has
//! said so beforehand, or is refused.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Result, bail};

use crate::outcome::usage;

/// Goes on if `yes` was said on the command line, or a person says so now.
///
/// # Errors
/// If nobody said so: nothing is to be done then.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(usage(format!(
            "this would {what}; nobody can be asked here, so nothing was done: add --yes if it is \
             meant"
        )));
    }
    let mut screen = io::stderr().lock();
    write!(screen, "This will {what}. Type 'yes' to go on: ")?;
    screen.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "yes") {
        return Ok(());
    }
    bail!("nothing was done")
}
