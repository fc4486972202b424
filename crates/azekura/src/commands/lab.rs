//! What `azekura-lab` does, the second program, which lies beside this one: whole command lines that
//! people type here are handed over to it, and it draws what this program shows. Nothing else here may
//! depend on it being there.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::host::programs;
use crate::outcome::{Verdict, usage};

const LAB: &str = "azekura-lab";

/// The rest of a command line of `azekura-lab`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `azekura-lab COMMAND ...`.
///
/// # Errors
/// If it is not installed, or cannot be run.
pub(crate) fn hand_over(command: &str, args: &LabArgs, verbose: u8) -> Result<Verdict> {
    let Ok(program) = programs::beside(LAB) else {
        return Err(usage(format!(
            "'azekura {command}' is '{LAB} {command}' now, and {LAB} does not lie beside this \
             program: 'make install' puts it there"
        )));
    };
    let mut lab = Command::new(program);
    lab.args(std::iter::repeat_n("-v", usize::from(verbose))).arg(command).args(&args.arguments);
    Err(lab.exec()).context("cannot run azekura-lab")
}

/// Draws a trace of far reads.
///
/// # Errors
/// If `azekura-lab` is not there, or cannot draw it.
pub(crate) fn draw(trace: &Path, svg: &Path) -> Result<()> {
    let status = call("draw", trace, svg)?;
    if !status.success() {
        bail!("cannot draw {}: azekura-lab ended with {status}", svg.display());
    }
    Ok(())
}

/// Draws forecasts by processes into a directory.
///
/// # Errors
/// If `azekura-lab` is not there, or cannot draw them.
pub(crate) fn draw_forecast(csv: &Path, dir: &Path) -> Result<()> {
    let status = call("draw-forecast", csv, dir)?;
    if !status.success() {
        bail!("cannot draw into {}: azekura-lab ended with {status}", dir.display());
    }
    Ok(())
}

fn call(command: &str, from: &Path, to: &Path) -> Result<ExitStatus> {
    let mut lab = Command::new(programs::beside(LAB)?);
    let status = lab.args([command, "--"]).arg(from).arg(to).status();
    status.context("cannot run azekura-lab")
}
