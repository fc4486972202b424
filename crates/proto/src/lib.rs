//! The language of Azekura: ids, limits, object classes, placement, the status table, messages and
//! the frame codec. It owns every fact that a client and an engine have to agree on. It never does
//! I/O, never looks at a clock and never starts a thread.

pub mod attr;
pub mod class;
pub mod dependence;
pub mod frame;
pub mod geometry;
pub mod handed_on;
mod hex;
pub mod ids;
pub mod layout;
pub mod limits;
pub mod message;
pub mod placement;
pub mod pool_map;
pub mod recording;
pub mod staging;
pub mod status;
pub mod transaction;

pub use attr::{Attr, FileKind, Timestamp};
pub use class::ObjectClass;
pub use dependence::{Dependence, Dependences};
pub use geometry::Geometry;
pub use handed_on::{HandedDirectory, HandedOn, HandedWay};
pub use ids::{ContainerId, EngineId, Incarnation, Oid, PoolId, SessionId, TargetId};
pub use layout::Layout;
pub use placement::Placement;
pub use pool_map::PoolMap;
pub use status::Status;
