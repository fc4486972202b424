//! Where the files of a map come from and go to: the directory itself, a directory of a pool, or a service. Owns
//! how that is said, on command lines and in manifests, and opens it; what each of them can do is its source's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use azekura_proto::staging::MapKind;
#[cfg(feature = "services")]
use azekura_services::{self as services, Address};
use azekura_stage::job::MapDescription;
use azekura_stage::source::{Directory, PoolDirectory, Source};

#[cfg(not(feature = "services"))]
use super::without_services::{self as services, Address};
use crate::fs::OpenedOnce;
use crate::names::Location;

/// What a manifest says of the homes for `resume`: this, and the number of the map.
const NOTE: &str = "home.";

/// A map's home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// The mapped directory itself.
    Here,
    Pool(Location),
    Service(Box<Address>),
}

impl Home {
    /// Whether a text has the form of a home.
    pub(super) fn is_meant(text: &str) -> bool {
        Address::is_meant(text) || !matches!(Location::recognise(text), Ok(None))
    }

    /// A home as people write it.
    ///
    /// # Errors
    /// A sentence that says what to write.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // A pool's address is a URL too.
        if Address::is_meant(text) && !text.starts_with("azekura://") {
            return Ok(Self::Service(Box::new(text.parse()?)));
        }
        Ok(Self::Pool(text.parse()?))
    }

    /// The directory of this host, if it is one that the map does not name.
    pub(super) fn local_dir(&self) -> Option<&Path> {
        match self {
            Self::Service(address) => address.local_dir(),
            Self::Here | Self::Pool(_) => None,
        }
    }

    /// Whether two homes have files in common, as far as their texts tell.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Service(one), Self::Service(other)) => {
                one.is_within(other) || other.is_within(one)
            }
            (Self::Pool(one), Self::Pool(other)) => {
                let (a, b) = (Path::new(&one.path), Path::new(&other.path));
                let container = |place: &Location| {
                    (place.container.pool.clone(), place.container.container().to_owned())
                };
                container(one) == container(other) && (a.starts_with(b) || b.starts_with(a))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("the directory itself"),
            Self::Pool(place) => write!(f, "{place}"),
            Self::Service(address) => write!(f, "{address}"),
        }
    }
}

/// Opens the homes of all maps.
///
/// # Errors
/// If one is not there, or does not let us in.
pub(super) fn sources(
    maps: &[MapDescription],
    homes: &[Home],
) -> Result<Vec<(MapDescription, Arc<dyn Source>)>> {
    let mut pools = OpenedOnce::default();
    let mut source = |(map, home): (&MapDescription, &Home)| {
        let source: Arc<dyn Source> = match home {
            Home::Here => {
                let dir = Path::new(OsStr::from_bytes(&map.dir));
                let open = Directory::open(dir);
                Arc::new(open.with_context(|| format!("cannot open {}", dir.display()))?)
            }
            Home::Pool(place) => {
                let names = pools.of(place)?.names;
                let open = PoolDirectory::open(names, place.path.as_bytes());
                Arc::new(open.with_context(|| {
                    format!("cannot use {place}: 'azekura fs mkdir' makes a directory there")
                })?)
            }
            Home::Service(address) => {
                let is_written = map.kind != MapKind::ReadOnly;
                let open = services::open(address, is_written);
                match address.local_dir() {
                    Some(_) => open.with_context(|| format!("cannot open {address}"))?,
                    // Its error is a whole line.
                    None => open.map_err(|error| anyhow!("--map: {error}"))?,
                }
            }
        };
        Ok((map.clone(), source))
    };
    maps.iter().zip(homes).map(&mut source).collect()
}

/// What a manifest has to say of the homes.
pub(super) fn notes(homes: &[Home]) -> impl Iterator<Item = (String, String)> {
    let others = homes.iter().enumerate().filter(|(_, home)| **home != Home::Here);
    others.map(|(index, home)| (format!("{NOTE}{index}"), home.to_string()))
}

/// The homes of so many maps, as a manifest says.
///
/// # Errors
/// If what it says cannot be.
pub(super) fn noted(notes: &BTreeMap<String, String>, maps: usize) -> Result<Vec<Home>> {
    let home = |index: usize| match notes.get(&format!("{NOTE}{index}")) {
        None => Ok(Home::Here),
        Some(text) => {
            Home::parse(text).map_err(|why| anyhow!("the manifest's home of map {index}: {why}"))
        }
    };
    (0..maps).map(home).collect()
}

#[cfg(all(test, feature = "services"))]
mod tests {
    use super::*;

    #[test]
    fn homes_come_back_from_a_manifest() {
        let homes = ["s3://b/p?region=x", "p/c:/runs/a=b", "file:///x"]
            .map(|text| Home::parse(text).unwrap());
        let homes = [&[Home::Here][..], &homes].concat();
        let notes: BTreeMap<_, _> = notes(&homes).collect();
        assert_eq!(notes.len(), 3);
        assert_eq!(noted(&notes, 4).unwrap(), homes);
    }
}
