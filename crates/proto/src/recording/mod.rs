//! The record of a program's I/O: what the preload library counts while `azekura profile` watches a command,
//! and what the command reads afterwards. One file that all processes of the command map: a header, then
//! chunks, each of one process, filled with entries of 64-bit words in the byte order of the machine. Owns
//! the layout and the reading of it; counts are what the writers left, so a reader believes no length here.
//! Writers may be killed between any two words: an entry without its first word ends its chunk.

mod decode;
pub mod layout;
mod record;

pub use decode::{Damage, decode};
pub use record::{End, File, Process, Recording, Sizes, Transfers};

/// The variable that names the record file to the preload library.
pub const VARIABLE: &str = "AZEKURA_PROFILE";
