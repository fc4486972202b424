//! What is exported to whom. Owns `exports.toml` and the rules of each export: which clients may come,
//! and as whom the file system sees them. It never asks the pool anything.

mod export;
#[cfg(test)]
mod exports_tests;
mod file;
mod groups;

pub use export::{Export, Flavour, Squash};
pub use file::{Exports, ExportsError};
