//! How commands reach whole pools. What people call them stands in `names`, single questions to single
//! engines in `asking`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use azekura_client::{ClientConfig, ClientError, Pool, PoolFile};
use azekura_posix::{CachePolicy, FileSystem, FsConfig, Trust};
use azekura_proto::attr::Inheritance;
use azekura_proto::message::typed::{ContainerCreate, ContainerList, Report};
use azekura_proto::{EngineId, ObjectClass, TargetId};

use crate::host::places;
use crate::names::{self, ContainerName, DEFAULT_CONTAINER};
use crate::outcome::usage;
use crate::reading::ReadArgs;
use crate::watch;

/// How long a mount believes attributes of directories and names of them.
const CACHE_LIFE: Duration = Duration::from_secs(1);

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

/// A container as it is to be named to another process, which is in another directory.
///
/// # Errors
/// If this process's directory is gone.
pub(crate) fn named_from_elsewhere(name: &ContainerName) -> Result<ContainerName> {
    let mut name = name.clone();
    if name.pool.contains('/') && Path::new(&name.pool).exists() {
        name.pool = places::absolute(Path::new(&name.pool))?.to_string_lossy().into_owned();
    }
    Ok(name)
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

/// Makes the default container of a pool that has none yet.
///
/// # Errors
/// If the pool does not answer.
pub(crate) fn make_default_container(pool: &Pool) -> Result<()> {
    let first = TargetId(0);
    let cannot = || format!("cannot make the default container of pool '{}'", pool.map().name);
    if pool.call(first, ContainerList).with_context(cannot)?.is_empty() {
        let name = DEFAULT_CONTAINER.to_owned();
        let inheritance = usual_inheritance(pool).with_context(cannot)?;
        pool.call(first, ContainerCreate { name, inheritance }).with_context(cannot)?;
    }
    Ok(())
}

/// How files of a pool are laid out unless something else is asked for. To stripe them over targets that share a
/// device gains nothing, and a file that lies in one piece can be used without its engine by programs beside it.
fn usual_inheritance(pool: &Pool) -> Result<Inheritance, ClientError> {
    let usual = Inheritance::default();
    let map = pool.map();
    if map.engines.len() > 1 {
        return Ok(usual);
    }
    let targets = pool.call_engine(EngineId(0), Report)?.targets;
    let mut devices = targets.iter().map(|target| target.space.device);
    let first = devices.next();
    let is_one = devices.all(|device| Some(device) == first);
    Ok(if is_one { Inheritance { file_class: ObjectClass::S1, ..usual } } else { usual })
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

/// How the file system behind a kernel is unless something else is asked for.
pub(crate) fn behind_kernel() -> FsConfig {
    FsConfig {
        cache: CachePolicy::Auto { ttl: CACHE_LIFE },
        // The kernel checks permissions, and knows the caller's groups better.
        check_permissions: false,
        descriptors: false,
        changes_in_flight: true,
        listed_from_us: Some(FsConfig::LISTED_FOR_ALL_FROM_US),
        listed_trust: Trust::Leased,
        ..FsConfig::default()
    }
}
