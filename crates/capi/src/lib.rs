//! The C interface of Azekura, as `include/azekura.h` describes it. Translates C calls into calls of
//! `client` and `posix`; holds no logic of its own.
//!
//! Every exported function is run by [`call::status`] or one of its siblings, so that no panic
//! leaves the library and each failure leaves a message behind. What C hands over comes in through
//! the types of [`pointers`]. The library prints nothing, starts no threads, and touches no signals.

mod array;
mod attr;
mod call;
mod class;
mod container;
mod dir;
mod failure;
mod file;
mod fork;
mod keys;
mod layout;
mod lock;
mod names;
mod object;
mod oid;
mod pointers;
mod pool;
mod records;
mod value;
mod vector;
mod version;
mod xattr;
