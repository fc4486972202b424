//! What a model answers besides a time: what binds it, or why nothing follows.

use std::fmt;

use serde::Serialize;

/// What binds a phase: with more of it, it would be faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// How fast so many processes read.
    Reading,
    /// How fast so many processes write.
    Writing,
    /// The bandwidth of the way to the storage.
    Path,
    /// The storage, which more processes get no more from.
    Server,
    /// Operations on names.
    Metadata,
    /// The application's processors.
    Compute,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "reading",
            Self::Writing => "writing",
            Self::Path => "path",
            Self::Server => "server",
            Self::Metadata => "metadata",
            Self::Compute => "compute",
        })
    }
}

/// Why there is no forecast: the calibration has nothing that it could follow from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no forecast: {needs}")]
pub struct Unforeseen {
    /// What is missing.
    pub needs: String,
}
