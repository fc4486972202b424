//! The files of a forecast as they are read, and the machine that they are read on.

use std::path::Path;

use anyhow::{Context as _, Result};
use azekura_forecast::calibration::Machine;
use azekura_forecast::units::Bytes;
use azekura_forecast::{Calibration, FileError};

use crate::host;
use crate::outcome::usage;

/// Reads a file that people write.
///
/// # Errors
/// If it cannot be read, or is not clear.
pub(super) fn read<T>(
    path: &Path,
    parse: impl Fn(&str, &Path) -> Result<T, FileError>,
) -> Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // A file that says nothing clear is as a command line that does not.
    parse(&text, path).map_err(|error| usage(error.to_string()))
}

/// This machine, as calibrations describe theirs.
pub(super) fn machine_here() -> Machine {
    let machine = host::machine::Machine::here();
    Machine {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        processor: machine.processor,
        processors: machine.processors as u32,
        memory_bytes: Bytes(machine.memory_bytes),
    }
}

/// What to say of a calibration that was made on another machine than this one.
pub(super) fn warning_of(
    calibration: &Calibration,
    fs: &Path,
    machine: &Machine,
) -> Option<String> {
    let difference = calibration.made.machine.differs(machine)?;
    Some(format!(
        "{} was calibrated on another machine ({difference}): the forecast is for that one",
        fs.display()
    ))
}
