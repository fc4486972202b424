//! Where a job's files come from and go to: the [`Source`] of each map. Owns nothing but the kinds that there
//! are.

mod directory;
mod home;
mod pool;

pub use directory::Directory;
pub use home::{FileState, NewFile, Source, SourceFile};
pub(crate) use home::{kind_of, system_time};
pub use pool::PoolDirectory;
