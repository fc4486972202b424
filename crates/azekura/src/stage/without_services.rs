//! What stands in the place of services where this program was built without them: their addresses are known for
//! what they are, and refused.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use azekura_stage::source::Source;

/// There is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Address {}

impl Address {
    pub(super) fn is_meant(text: &str) -> bool {
        text.contains("://")
    }

    pub(super) fn local_dir(&self) -> Option<&Path> {
        match *self {}
    }

    pub(super) fn is_within(&self, _other: &Self) -> bool {
        match *self {}
    }
}

impl fmt::Display for Address {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split("://").next().unwrap_or_default();
        Err(format!(
            "{scheme}:// cannot be a home: this program was built without services; build it with the feature \
             'services', or name a place in a pool, POOL:/path"
        ))
    }
}

pub(super) fn open(address: &Address, _is_written: bool) -> io::Result<Arc<dyn Source>> {
    match *address {}
}
