//! How commands reach whole pools. What people call them stands in `names`, single questions to single
//! engines in `asking`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use azekura_client::{ClientConfig, Pool, PoolFile};
use azekura_posix::{CachePolicy, FileSystem, FsConfig};

use crate::names;
use crate::outcome::usage;
use crate::reading::ReadArgs;
use crate::watch;

/// The pool file that a person means by a name, a file or a URL.
///
/// # Errors
/// If there is none; for a place in a pool, what to write instead.
pub(crate) fn pool_file(name: &str) -> Result<PoolFile> {
    match names::instead_of_place(name) {
        Some(instead) if !Path::new(name).exists() => Err(usage(instead)),
        _ => Ok(PoolFile::find(name)?),
    }
}

/// Connects to a pool given by name, file or URL.
///
/// # Errors
/// If it is not known or its engines cannot be reached.
pub fn pool(name: &str) -> Result<Arc<Pool>> {
    let file = pool_file(name)?;
    watch::begin(&file);
    Ok(Pool::connect(&file, ClientConfig::default())?)
}

/// Opens a container as a file system for use within this process.
///
/// # Errors
/// If there is no such container, the engines cannot be reached, or the trace cannot be written.
pub(crate) fn file_system(
    pool: Arc<Pool>,
    container: &str,
    cache: CachePolicy,
    reading: &ReadArgs,
) -> Result<Arc<FileSystem>> {
    let config = FsConfig { cache, check_permissions: true, ..FsConfig::default() };
    Ok(FileSystem::mount(pool, container, reading.apply(config)?)?)
}
