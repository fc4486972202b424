//! What people and programs read: tables, sizes, progress bars, JSON. Owns the standard streams:
//! nothing else prints.

mod confirm;
mod progress;
mod streams;
mod table;
mod units;

pub(crate) use confirm::confirm;
pub use progress::Progress;
pub(crate) use streams::say_bytes;
pub use streams::{explain, note, say, say_json};
pub use table::Table;
pub use units::{format_bytes, format_duration_s, format_rate};
pub(crate) use units::{parse_bytes, parse_size_u32};
