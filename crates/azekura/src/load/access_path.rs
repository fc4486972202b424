//! The access paths by which workers reach a pool. Owns how a worker process is started on each; what
//! `azekura run` does behind its own command line is not known here.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use clap::ValueEnum;

use super::order::Backend;
use crate::names::ContainerName;
use crate::reading::ReadArgs;

/// Where `azekura run` shows the container.
const PREFIX: &str = "/azekura";

/// A way to reach a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum AccessPath {
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

impl AccessPath {
    /// All of them; the one that the others are held against is first.
    pub const ALL: [Self; 4] = [Self::Native, Self::Fuse, Self::FuseData, Self::Preload];

    /// The name as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Fuse => "fuse",
            Self::FuseData => "fuse+data",
            Self::Preload => "preload",
        }
    }

    /// Whether a kernel mount stands in between, which remembers names for a while.
    pub fn has_mount(self) -> bool {
        match self {
            Self::Native | Self::Preload => false,
            Self::Fuse | Self::FuseData => true,
        }
    }

    /// Where a worker on this path finds the container.
    pub(super) fn backend(self, container: &ContainerName, reading: &ReadArgs) -> Backend {
        match self {
            Self::Native => Backend::Pool {
                pool: container.pool.clone(),
                container: container.container().to_owned(),
                reading: reading.clone(),
            },
            Self::Fuse | Self::FuseData | Self::Preload => Backend::Path(PREFIX.to_owned()),
        }
    }

    /// The command that runs what is added to it on this path, with the file of `azekura`; `None`
    /// where it simply runs.
    pub(super) fn command(
        self,
        azekura: &Path,
        container: &ContainerName,
        reading: &ReadArgs,
    ) -> Result<Option<Command>> {
        if self == Self::Native {
            return Ok(None);
        }
        let mut command = Command::new(azekura);
        command.args(["run", "--via", self.name(), "--prefix", PREFIX]);
        command.arg("--pool").arg(container.to_string());
        command.args(reading.options()?).arg("--");
        Ok(Some(command))
    }
}

impl fmt::Display for AccessPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_named_as_they_are_typed() {
        for path in AccessPath::ALL {
            assert_eq!(AccessPath::from_str(path.name(), false), Ok(path));
        }
        assert_eq!(AccessPath::ALL.len(), AccessPath::value_variants().len());
    }

    #[test]
    fn only_the_native_path_needs_no_command() {
        let container: ContainerName = "p/c".parse().unwrap();
        for path in AccessPath::ALL {
            let command =
                path.command(Path::new("azekura"), &container, &ReadArgs::default()).unwrap();
            assert_eq!(command.is_none(), path == AccessPath::Native);
            let Some(command) = command else { continue };
            let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
            let wanted = ["run", "--via", path.name(), "--prefix", PREFIX, "--pool", "p/c", "--"];
            assert_eq!(words, wanted);
        }
    }
}
