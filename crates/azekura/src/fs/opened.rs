//! How the containers of a command are opened: each once, for the user of this process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use azekura_posix::{CachePolicy, Credentials, FileSystem, Namespace};

use crate::connect;
use crate::names::{ContainerName, Location};
use crate::reading::ReadArgs;

/// A container in use by a command.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) name: ContainerName,
    pub(crate) fs: Arc<FileSystem>,
    pub(crate) names: Namespace,
    pub(crate) caller: Credentials,
}

/// Commands are short, and walk the same directories again and again.
const CACHE_LIFE: Duration = Duration::from_secs(1);

impl Opened {
    /// Opens a container for the user of this process.
    pub(crate) fn open(name: &ContainerName, reading: &ReadArgs) -> Result<Self> {
        let pool = connect::pool(&name.pool)?;
        let cache = CachePolicy::Auto { ttl: CACHE_LIFE };
        let fs = connect::file_system(pool, name.container(), cache, reading)?;
        let caller = Credentials::of_process();
        let names = Namespace::new(Arc::clone(&fs), caller.clone());
        Ok(Self { name: name.clone(), fs, names, caller })
    }
}

/// Containers that the places of one command lie in, each opened once.
#[derive(Default)]
pub(crate) struct OpenedOnce {
    opened: Vec<Opened>,
    reading: ReadArgs,
}

impl OpenedOnce {
    /// Containers whose files are read as these options say.
    pub(crate) fn reading(reading: &ReadArgs) -> Self {
        Self { opened: Vec::new(), reading: reading.clone() }
    }

    /// The container of a place.
    pub(crate) fn of(&mut self, place: &Location) -> Result<Opened> {
        if let Some(opened) = self.opened.iter().find(|opened| opened.name == place.container) {
            return Ok(opened.clone());
        }
        let opened = Opened::open(&place.container, &self.reading)?;
        self.opened.push(opened.clone());
        Ok(opened)
    }
}
