//! The pool map: which targets a pool has, at which engines, and where those listen. Owns the order
//! of targets, on which placement rests. A map, once published under a version, never changes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{EngineId, PoolId, TargetId};
use crate::limits::{ENGINES_MAX, TARGETS_MAX};

/// Where an engine listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// A UNIX socket on the engine's host. Written `unix:/path`.
    Unix(PathBuf),
    /// A TCP host and port. Written `tcp:host:port`.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_port) => write!(f, "tcp:{host_port}"),
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let host_port = text.strip_prefix("tcp:").unwrap_or(text);
        match host_port.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(host_port.to_owned()))
            }
            _ => Err(format!("'{text}' is not an address: write host:port or unix:/path")),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// One engine of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EngineEntry {
    /// Where it listens; clients take the first that works for them.
    pub addresses: Vec<Address>,
}

/// The map of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolMap {
    /// The pool.
    pub pool: PoolId,
    /// The name that people call it by.
    pub name: String,
    /// Grows with each change of the map.
    pub version: u32,
    /// The engines; an [`EngineId`] is a place in this list.
    pub engines: Vec<EngineEntry>,
    /// The engine of each target; a [`TargetId`] is a place in this list. Engines alternate, so
    /// that neighbouring shards lie on different engines.
    pub targets: Vec<EngineId>,
}

impl PoolMap {
    /// A first map: engine `i` gets `targets_per_engine[i]` targets, dealt in turn.
    pub fn deal(
        pool: PoolId,
        name: String,
        engines: Vec<EngineEntry>,
        targets_per_engine: &[u16],
    ) -> Self {
        let mut left = targets_per_engine.to_vec();
        let mut targets = Vec::new();
        while left.iter().any(|&count| count > 0) {
            for (index, count) in left.iter_mut().enumerate() {
                if *count > 0 {
                    *count -= 1;
                    targets.push(EngineId(index as u16));
                }
            }
        }
        Self { pool, name, version: 1, engines, targets }
    }

    /// What is wrong with the map, if anything: an engine would index by it.
    pub fn validate(&self) -> Result<(), String> {
        if self.engines.is_empty() || self.engines.len() > usize::from(ENGINES_MAX) {
            return Err(format!("a pool has 1 to {ENGINES_MAX} engines"));
        }
        if self.targets.is_empty() || self.targets.len() > usize::from(TARGETS_MAX) {
            return Err(format!("a pool has 1 to {TARGETS_MAX} targets"));
        }
        if self.targets.iter().any(|engine| usize::from(engine.0) >= self.engines.len()) {
            return Err("the map puts a target on an engine that it does not list".to_owned());
        }
        Ok(())
    }

    /// Number of targets.
    pub fn target_count(&self) -> u16 {
        self.targets.len() as u16
    }

    /// The engine of a target; `None` if the pool has no such target.
    pub fn engine_of(&self, target: TargetId) -> Option<EngineId> {
        self.targets.get(usize::from(target.0)).copied()
    }

    /// The targets of an engine, in order.
    pub fn targets_of(&self, engine: EngineId) -> impl Iterator<Item = TargetId> {
        self.targets
            .iter()
            .enumerate()
            .filter(move |(_, owner)| **owner == engine)
            .map(|(index, _)| TargetId(index as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_dealt_in_turn() {
        let engines = vec![EngineEntry { addresses: Vec::new() }; 2];
        let map = PoolMap::deal(PoolId([1; 16]), "p".to_owned(), engines, &[3, 1]);
        let dealt: Vec<u16> = map.targets.iter().map(|engine| engine.0).collect();
        assert_eq!(dealt, [0, 1, 0, 0]);
        assert_eq!(map.targets_of(EngineId(1)).collect::<Vec<_>>(), [TargetId(1)]);
        assert!(map.validate().is_ok());
    }

    #[test]
    fn addresses_read_as_they_are_written() {
        for text in ["unix:/run/a.sock", "tcp:host:80", "tcp:[::1]:9"] {
            assert_eq!(text.parse::<Address>().map(|a| a.to_string()), Ok(text.to_owned()));
        }
        assert!("host".parse::<Address>().is_err());
        assert!("host:99999".parse::<Address>().is_err());
    }
}
