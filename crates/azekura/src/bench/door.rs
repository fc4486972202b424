//! The ways by which workers reach a pool. Owns how a worker process is started for each; what
//! `azekura run` does behind its own command line is not known here.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::order::Place;
use crate::reach::ContainerName;
use crate::reading::ReadArgs;

/// Where `azekura run` shows the container.
const PREFIX: &str = "/azekura";

/// A way to reach a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Door {
    /// The library itself, within the worker
    Native,
    /// A FUSE mount in a namespace of the workers' own
    Fuse,
    /// Such a mount, with data calls that bypass it
    #[value(name = "fuse+data")]
    FuseData,
    /// Every call of the worker intercepted
    Preload,
}

impl Door {
    /// All of them; the one that the others are held against is first.
    pub(crate) const ALL: [Self; 4] = [Self::Native, Self::Fuse, Self::FuseData, Self::Preload];

    /// The name as it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Fuse => "fuse",
            Self::FuseData => "fuse+data",
            Self::Preload => "preload",
        }
    }

    /// Whether a kernel mount stands in between, which remembers names for a while.
    pub(crate) fn has_mount(self) -> bool {
        match self {
            Self::Native | Self::Preload => false,
            Self::Fuse | Self::FuseData => true,
        }
    }

    /// Where a worker behind this door finds the container.
    pub(crate) fn place(self, container: &ContainerName, reading: &ReadArgs) -> Place {
        match self {
            Self::Native => Place::Pool {
                pool: container.pool.clone(),
                container: container.container().to_owned(),
                reading: reading.clone(),
            },
            Self::Fuse | Self::FuseData | Self::Preload => Place::Path(PREFIX.to_owned()),
        }
    }

    /// The command that runs `program` behind this door; `None` where it simply runs.
    pub(crate) fn command(
        self,
        container: &ContainerName,
        reading: &ReadArgs,
    ) -> Result<Option<Command>> {
        if self == Self::Native {
            return Ok(None);
        }
        let mut command = Command::new(own_program()?);
        command.args(["run", "--via", self.name(), "--prefix", PREFIX]);
        command.arg("--pool").arg(container.to_string());
        command.args(reading.options()?).arg("--");
        Ok(Some(command))
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The file of this program.
pub(crate) fn own_program() -> Result<std::path::PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// The last line that a program left in a file; empty if it left none.
pub(crate) fn last_line(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_named_as_they_are_typed() {
        for door in Door::ALL {
            assert_eq!(Door::from_str(door.name(), false), Ok(door));
        }
        assert_eq!(Door::ALL.len(), Door::value_variants().len());
    }

    #[test]
    fn only_the_native_door_needs_no_command() {
        let container: ContainerName = "p/c".parse().unwrap();
        for door in Door::ALL {
            let command = door.command(&container, &ReadArgs::default()).unwrap();
            assert_eq!(command.is_none(), door == Door::Native);
            let Some(command) = command else { continue };
            let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
            let wanted = ["run", "--via", door.name(), "--prefix", PREFIX, "--pool", "p/c", "--"];
            assert_eq!(words, wanted);
        }
    }
}
