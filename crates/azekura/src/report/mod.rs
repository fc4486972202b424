//! What people and programs read: tables, sizes, progress bars, JSON, files of results. Owns the standard
//! streams: nothing else prints.

mod confirm;
mod progress;
mod result_file;
mod streams;
mod table;
mod units;

pub(crate) use confirm::confirm;
pub use progress::Progress;
pub(crate) use result_file::{check_result_file, write_result_file};
pub(crate) use streams::say_bytes;
pub use streams::{explain, note, say, say_json};
pub use table::Table;
pub use units::{format_bytes, format_duration_s, format_rate};
pub(crate) use units::{parse_bytes, parse_size_u32};
