//! Pool files: what a client has to know to reach a pool. Owns where they lie, their TOML form, and
//! the rule that a file with a secret in it is its owner's alone.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use azekura_proto::PoolId;
use azekura_proto::message::typed::Map;
use azekura_proto::pool_map::{Address, PoolMap};
use azekura_rpc::Dialogue;
use azekura_wire::{ConnectError, Secret};
use serde::{Deserialize, Serialize};

use crate::error::PoolFileError;

/// How long the engine named in a URL may take to be reached.
const URL_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the pool's secret stands.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In a file of its own, mode 0600.
    File(PathBuf),
    /// In the pool file, as 64 hex digits; the pool file then has mode 0600.
    Inline(String),
}

impl std::fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Inline(_) => f.write_str("Inline(..)"),
        }
    }
}

/// What a client has to know to reach a pool: its map and its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolFile {
    /// The pool map: name, id, engines with their addresses, targets.
    pub map: PoolMap,
    /// Where the secret stands.
    pub secret: SecretSource,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    name: String,
    pool: String,
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    targets: Vec<u16>,
    engines: Vec<EngineOnDisk>,
}

#[derive(Serialize, Deserialize)]
struct EngineOnDisk {
    addresses: Vec<Address>,
}

/// The directory of the pool files that go by name: `$XDG_STATE_HOME/azekura/pools`, with
/// `~/.local/state` where the variable is not set.
pub fn pools_dir() -> PathBuf {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let state = state.unwrap_or_else(|| {
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        home.join(".local/state")
    });
    state.join("azekura/pools")
}

/// Writes a file that its user alone may read in one step, making its directory if need be: whoever reads finds the
/// old text or the new one. `finish` is done with what was written before it takes the place of the old.
///
/// # Errors
/// If the directory or file cannot be written; nothing of it is left then.
pub(crate) fn replace(
    path: &Path,
    text: &str,
    finish: impl FnOnce(&File) -> std::io::Result<()>,
) -> std::io::Result<()> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.new", std::process::id()));
    let draft = PathBuf::from(draft);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options
        .open(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| finish(&file)))
        .and_then(|()| std::fs::rename(&draft, path));
    written.inspect_err(|_| {
        // The draft may not be there; what counts is the first error.
        let _ = std::fs::remove_file(&draft);
    })
}

impl PoolFile {
    /// The pool that a person means by `text`: a URL, the path of a pool file (it has a slash or
    /// ends in `.toml`), or a name.
    ///
    /// # Errors
    /// [`PoolFileError`], which says what to do.
    pub fn find(text: &str) -> Result<Self, PoolFileError> {
        if text.starts_with("azekura://") {
            return Self::from_url(text);
        }
        let is_path = text.contains('/')
            || Path::new(text).extension().is_some_and(|extension| extension == "toml");
        if is_path {
            return Self::load(Path::new(text));
        }
        let path = Self::path_of(text);
        match Self::load(&path) {
            Err(PoolFileError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                let path = path.display().to_string();
                Err(PoolFileError::Unknown { name: text.to_owned(), path })
            }
            other => other,
        }
    }

    /// Where the file of the pool `name` lies.
    pub fn path_of(name: &str) -> PathBuf {
        pools_dir().join(format!("{name}.toml"))
    }

    /// Reads a pool file. A relative `secret_file` in it counts from the file's own directory.
    ///
    /// # Errors
    /// If it is missing, damaged, or holds a secret that others can read.
    pub fn load(path: &Path) -> Result<Self, PoolFileError> {
        let shown = || path.display().to_string();
        let io = |source| PoolFileError::Io { path: shown(), source };
        let damaged = |what| PoolFileError::Damaged { path: shown(), what };
        let text = std::fs::read_to_string(path).map_err(io)?;
        let disk: OnDisk =
            toml::from_str(&text).map_err(|error| damaged(error.message().to_owned()))?;
        let secret = match (disk.secret, disk.secret_file) {
            (Some(hex), None) => {
                let mode = std::fs::metadata(path).map_err(io)?.permissions().mode() & 0o777;
                if mode & 0o077 != 0 {
                    return Err(PoolFileError::Exposed { path: shown(), mode });
                }
                SecretSource::Inline(hex)
            }
            (None, Some(file)) => {
                SecretSource::File(path.parent().unwrap_or(Path::new(".")).join(file))
            }
            _ => return Err(damaged("it must have one of 'secret' and 'secret_file'".to_owned())),
        };
        let pool: PoolId = disk.pool.parse().map_err(|what: &str| damaged(what.to_owned()))?;
        let map = PoolMap {
            pool,
            name: disk.name,
            version: disk.version,
            engines: disk
                .engines
                .into_iter()
                .map(|engine| azekura_proto::pool_map::EngineEntry { addresses: engine.addresses })
                .collect(),
            targets: disk.targets.into_iter().map(azekura_proto::EngineId).collect(),
        };
        map.validate().map_err(damaged)?;
        let file = Self { map, secret };
        file.secret()?;
        Ok(file)
    }

    /// Writes the pool file (mode 0600) in one step, making its directory if need be. An older
    /// file of that name is replaced.
    ///
    /// # Errors
    /// If the directory or file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), PoolFileError> {
        let shown = || path.display().to_string();
        let io = |source| PoolFileError::Io { path: shown(), source };
        let (secret, secret_file) = match &self.secret {
            SecretSource::Inline(hex) => (Some(hex.clone()), None),
            SecretSource::File(file) => (None, Some(file.clone())),
        };
        let disk = OnDisk {
            name: self.map.name.clone(),
            pool: self.map.pool.to_string(),
            version: self.map.version,
            secret_file,
            secret,
            targets: self.map.targets.iter().map(|engine| engine.0).collect(),
            engines: self
                .map
                .engines
                .iter()
                .map(|engine| EngineOnDisk { addresses: engine.addresses.clone() })
                .collect(),
        };
        let mut text =
            String::from("# How clients reach this pool. Written by azekura; do not edit.\n");
        let body = toml::to_string(&disk)
            .map_err(|error| PoolFileError::Damaged { path: shown(), what: error.to_string() })?;
        text.push_str(&body);
        replace(path, &text, File::sync_all).map_err(io)
    }

    /// The pool's secret.
    ///
    /// # Errors
    /// If its file is missing, damaged or open to others.
    pub fn secret(&self) -> Result<Secret, PoolFileError> {
        match &self.secret {
            SecretSource::File(path) => Ok(Secret::load(path)?),
            SecretSource::Inline(hex) => {
                Secret::from_hex(hex).ok_or_else(|| PoolFileError::Damaged {
                    path: Self::path_of(&self.map.name).display().to_string(),
                    what: "the secret must be 64 hex digits".to_owned(),
                })
            }
        }
    }

    /// Asks the engine named in a URL `azekura://HOST:PORT/NAME?secret_file=PATH` for the map.
    /// Where no `secret_file` is given, `~/.config/azekura/NAME.secret` is read.
    ///
    /// # Errors
    /// If the URL is malformed, the secret cannot be read, or the engine does not answer.
    pub(crate) fn from_url(url: &str) -> Result<Self, PoolFileError> {
        let parts = UrlParts::parse(url)?;
        let secret = Secret::load(&parts.secret_file)?;
        let map = fetch_map(&parts, &secret).map_err(|source| PoolFileError::Connect {
            name: parts.name.clone(),
            address: parts.address.to_string(),
            source,
        })?;
        if map.name != parts.name {
            return Err(PoolFileError::OtherPool {
                name: parts.name,
                address: parts.address.to_string(),
                found: map.name,
            });
        }
        Ok(Self { map, secret: SecretSource::File(parts.secret_file) })
    }
}

struct UrlParts {
    address: Address,
    name: String,
    pool: PoolId,
    secret_file: PathBuf,
}

impl UrlParts {
    fn parse(url: &str) -> Result<Self, PoolFileError> {
        let wrong = |what: &str| PoolFileError::Url { url: url.to_owned(), what: what.to_owned() };
        let rest = url.strip_prefix("azekura://").ok_or_else(|| wrong("it has another scheme"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host_port, name) =
            place.split_once('/').ok_or_else(|| wrong("the pool name is missing"))?;
        if name.is_empty() || name.contains('/') {
            return Err(wrong("the pool name is missing or has a slash"));
        }
        let address = format!("tcp:{host_port}").parse().map_err(|what: String| wrong(&what))?;
        let mut parts = Self {
            address,
            name: name.to_owned(),
            pool: PoolId::NONE,
            secret_file: PathBuf::new(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("secret_file", path)) => {
                    parts.secret_file = PathBuf::from(
                        unescape(path).ok_or_else(|| wrong("a %XX in it is not text"))?,
                    );
                }
                Some(("pool", id)) => parts.pool = id.parse().map_err(|what: &str| wrong(what))?,
                _ => return Err(wrong(&format!("it has no option '{pair}'"))),
            }
        }
        if parts.secret_file.as_os_str().is_empty() {
            let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
            let config = config.filter(|path| path.is_absolute()).unwrap_or_else(|| {
                PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".config")
            });
            parts.secret_file = config.join("azekura").join(format!("{name}.secret"));
        }
        Ok(parts)
    }
}

/// Percent-decoding, for paths in a URL.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

fn fetch_map(parts: &UrlParts, secret: &Secret) -> Result<PoolMap, ConnectError> {
    let said = |text: String| ConnectError::Io(std::io::Error::other(text));
    let platform = &*azekura_platform::system();
    let mut dialogue = Dialogue::open(&parts.address, parts.pool, secret, URL_TIMEOUT, platform)?;
    let answer = dialogue.ask(Map).map_err(|failure| said(failure.to_string()))?;
    let map = answer.map_err(|status| said(format!("the engine said: {status}")))?;
    map.validate().map_err(said)?;
    Ok(map)
}
