//! The part of the DAOS interface that I/O programs use, on an Azekura pool: `libdaos.so`, which also
//! stands in for `libdfs.so`, `libduns.so` and `libgurt.so`. The headers are in `include/`; what each
//! function does is said there.
//!
//! Translates calls, and holds no logic of its own. It prints nothing, starts threads for nothing but
//! calls with an event, and lets no panic out into the program that it is loaded in.
//!
//! Rules of the whole library, which the `SAFETY` comments refer to as the contract: pointers that a
//! caller gives are null where the headers allow it, or point at what the headers say, for as long as
//! the call lasts, which with an event is until that has completed; objects come from this library and
//! have not been released yet.

mod attr;
mod attributes;
mod class;
mod connect;
mod container;
mod data;
mod directory;
mod event;
mod global;
mod handles;
mod hash;
mod lent;
mod mount;
mod murmur;
mod names;
mod object;
mod objects;
mod pool;
mod prop;
mod readdir;
mod shown;
mod stat;
mod status;
mod sys;
mod types;
mod uns;
mod versions;
mod workers;
