//! How commands reach pools: the names that people type, connections to whole pools, and single
//! questions to single engines. Owns the syntax `POOL[/CONTAINER][:/PATH]`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use azekura_client::{ClientConfig, Pool, PoolFile};
use azekura_posix::{CachePolicy, FileSystem, FsConfig};
use azekura_proto::message::{Answer, EngineReport, Reply, Request, RequestHead, Role};
use azekura_proto::pool_map::{Address, PoolMap};
use azekura_proto::{EngineId, PoolId, SessionId, TargetId, frame};
use azekura_wire::{Connection, Secret};

use crate::reading::ReadArgs;

/// The container that every pool is made with.
pub(crate) const DEFAULT_CONTAINER: &str = "default";
/// Longest name of a pool or container, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// An engine that is asked how it is has this long to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks the name of a pool or container.
///
/// # Errors
/// A sentence that says which names there are.
pub(crate) fn check_name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        && text.as_bytes()[0].is_ascii_alphanumeric();
    if fits {
        return Ok(text.to_owned());
    }
    Err(format!(
        "'{text}' is not a name: up to {NAME_BYTES_MAX} letters, digits, '_', '-' and '.', a \
         letter or digit first"
    ))
}

/// A container as people name it: `POOL` or `POOL/CONTAINER`, where `POOL` is a name, the path of
/// a pool file (`.toml`) or a URL (its container then stands behind `#`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerName {
    /// Name, file or URL of the pool.
    pub(crate) pool: String,
    container: Option<String>,
}

impl ContainerName {
    /// The container's name.
    pub(crate) fn container(&self) -> &str {
        self.container.as_deref().unwrap_or(DEFAULT_CONTAINER)
    }

    /// Another container of the same pool.
    #[must_use]
    pub(crate) fn with_container(self, name: String) -> Self {
        Self { container: Some(name), ..self }
    }
}

impl FromStr for ContainerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pool, container) = if text.starts_with("azekura://") {
            text.split_once('#').map_or((text, None), |(pool, name)| (pool, Some(name)))
        } else if let Some((file, rest)) = text.split_once(".toml") {
            if !rest.is_empty() && !rest.starts_with('/') {
                return Err(format!("'{text}' is neither a pool nor a pool file"));
            }
            (&text[..file.len() + ".toml".len()], rest.strip_prefix('/'))
        } else {
            let (pool, container) =
                text.split_once('/').map_or((text, None), |(pool, name)| (pool, Some(name)));
            check_name(pool)?;
            (pool, container)
        };
        let container = container.map(check_name).transpose()?;
        Ok(Self { pool: pool.to_owned(), container })
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pool)?;
        match &self.container {
            Some(name) if self.pool.starts_with("azekura://") => write!(f, "#{name}"),
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}

/// A place in a container: `POOL[/CONTAINER]:/PATH`. Without `:` it is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The container.
    pub(crate) container: ContainerName,
    /// Absolute path in it.
    pub(crate) path: String,
}

impl Location {
    /// Splits a text that has the form of a location. `None` for anything else, such as a local
    /// path: those start with `/` or `.`, or have no `:/` in them.
    fn split(text: &str) -> Option<(&str, &str)> {
        let scheme = if text.starts_with("azekura://") { "azekura://".len() } else { 0 };
        let rest = &text[scheme..];
        let at = match rest.find(":/") {
            Some(at) => at,
            None => rest.strip_suffix(':')?.len(),
        };
        let (container, path) = (&text[..scheme + at], &text[scheme + at + 1..]);
        let is_local = text.starts_with(['/', '.']) && !container.contains(".toml");
        (!is_local && !container.is_empty()).then_some((container, path))
    }

    /// A location if the text has the form of one; `None` for a local path.
    ///
    /// # Errors
    /// If it has the form but a name in it is wrong.
    pub(crate) fn recognise(text: &str) -> Result<Option<Self>, String> {
        let Some((container, path)) = Self::split(text) else { return Ok(None) };
        let path = if path.is_empty() { "/" } else { path };
        Ok(Some(Self { container: container.parse()?, path: path.to_owned() }))
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Self::recognise(text)? {
            Some(location) => Ok(location),
            None if text.starts_with(['/', '.']) && !text.contains(".toml") => Err(format!(
                "'{text}' is a path of this machine: write POOL:/path, such as default:{}",
                if text.starts_with('/') { text } else { "/dir" }
            )),
            None => Ok(Self { container: text.parse()?, path: "/".to_owned() }),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.container, self.path)
    }
}

/// Connects to a pool given by name, file or URL.
///
/// # Errors
/// If it is not known or its engines cannot be reached.
pub(crate) fn connect(pool: &str) -> Result<Arc<Pool>> {
    let file = PoolFile::find(pool)?;
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

/// One connection to one engine, outside of any pool session: for questions about the engine.
pub(crate) struct EngineLine {
    connection: Connection,
    head: RequestHead,
    engine: EngineId,
}

impl EngineLine {
    /// Calls an engine of a pool; without a map, one that belongs to no pool yet.
    ///
    /// # Errors
    /// If nobody answers there, or not as an engine of this pool.
    pub(crate) fn dial(address: &Address, map: Option<&PoolMap>, secret: &Secret) -> Result<Self> {
        let mut session = [0; 16];
        getrandom::fill(&mut session).context("the system has no random bytes")?;
        let pool = map.map_or(PoolId::NONE, |map| map.pool);
        let call = || {
            let socket = azekura_wire::dial(address, ASK_TIMEOUT)?;
            azekura_wire::connect(socket, pool, SessionId(session), Role::Client, secret)
        };
        let (connection, welcome) = call().map_err(|error| anyhow!("{address}: {error}"))?;
        connection.socket().set_read_timeout(Some(ASK_TIMEOUT))?;
        // Questions to an engine go to any target that it has.
        let target = map.and_then(|map| map.targets_of(welcome.engine).next());
        let head = RequestHead {
            target: target.unwrap_or(TargetId(0)),
            map_version: welcome.map_version,
            slot: 0,
            sequence: 0,
            resent: false,
        };
        Ok(Self { connection, head, engine: welcome.engine })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// If the engine refuses it or does not answer in time.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Result<Reply> {
        self.connection.queue(&(self.head, request), 0)?;
        self.connection.flush(&[])?;
        let answer = frame::decode::<Answer>(self.connection.recv()?.1)?;
        answer.map_err(|status| anyhow!("the engine answered '{}': {status}", request.name()))
    }

    /// What the engine says of itself.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub(crate) fn report(&mut self) -> Result<EngineReport> {
        match self.ask(&Request::Report)? {
            Reply::Report(report) => Ok(*report),
            other => bail!("the engine answered a report with {other:?}"),
        }
    }
}

impl Drop for EngineLine {
    fn drop(&mut self) {
        // So that the engine need not remember a session that never comes back.
        let _ = self.ask(&Request::Goodbye);
    }
}

/// Asks an engine of a pool how it is, at the first of its addresses where it answers.
///
/// # Errors
/// What went wrong at the last address.
pub(crate) fn ask_engine(
    map: &PoolMap,
    engine: EngineId,
    secret: &Secret,
) -> Result<(Address, EngineReport)> {
    let mut last = anyhow!("the engine has no address");
    let entry = map.engines.get(usize::from(engine.0));
    for address in entry.map(|entry| entry.addresses.as_slice()).unwrap_or_default() {
        let report = || {
            let mut line = EngineLine::dial(address, Some(map), secret)?;
            if line.engine != engine {
                bail!("{address}: engine {} of the pool listens there", line.engine.0);
            }
            line.report()
        };
        match report() {
            Ok(report) => return Ok((address.clone(), report)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_named_in_every_form() {
        for (text, pool, container) in [
            ("default", "default", "default"),
            ("p/c", "p", "c"),
            ("./pool.toml", "./pool.toml", "default"),
            ("/etc/pool.toml/c", "/etc/pool.toml", "c"),
            ("azekura://h:1/p?secret_file=/s", "azekura://h:1/p?secret_file=/s", "default"),
            ("azekura://h:1/p#c", "azekura://h:1/p", "c"),
        ] {
            let name: ContainerName = text.parse().unwrap();
            assert_eq!((name.pool.as_str(), name.container()), (pool, container), "{text}");
            assert_eq!(name.to_string(), text);
        }
        for text in ["", "a/b/c", "-x", "a b", "x/"] {
            assert!(text.parse::<ContainerName>().is_err(), "{text}");
        }
    }

    #[test]
    fn locations_are_told_from_local_paths() {
        let location: Location = "p/c:/a b:/d".parse().unwrap();
        assert_eq!(location.container.to_string(), "p/c");
        assert_eq!(location.path, "/a b:/d");
        assert_eq!("p".parse::<Location>().unwrap().path, "/");
        assert_eq!("p:".parse::<Location>().unwrap().path, "/");
        assert_eq!("azekura://h:1/p:/x".parse::<Location>().unwrap().path, "/x");
        assert_eq!("/etc/p.toml:/x".parse::<Location>().unwrap().container.pool, "/etc/p.toml");
        for local in ["/a", "./a:/b", "a", "dir/a", "C", "/a:/b"] {
            assert_eq!(Location::recognise(local), Ok(None), "{local}");
        }
        assert!("/a".parse::<Location>().is_err());
    }
}
