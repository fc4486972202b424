//! Which of two libraries this source is built as: all of it (`libazekura_preload.so`), or what
//! `azekura profile` needs of it (`libazekura_recorder.so`, built by `crates/recorder`). A build of many short
//! programs pays for every page that the loader touches, so the second serves neither pool nor job: it says
//! no where a hook asks for one, and what nobody reaches then is left out by the linker.
//!
//! For the same reason the variables that nearly every program touches lie side by side (in `.data.hot`, a
//! part of `.data`, whose page the loader has written to already): between the tables, of which a program
//! uses the first entries only, each of them would take a page of its own, and one more after every fork.

/// Whether this library records and does nothing else. The hooks are the same in both: a call that is
/// nobody's passes here as it does there.
pub(crate) const RECORDS_ONLY: bool = cfg!(records_only);
