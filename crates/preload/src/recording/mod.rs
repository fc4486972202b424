//! The recording mode: the I/O of a program on files of the host is counted while `azekura profile` watches
//! it. Owns the counters, which lie in a file that all processes of the command map, so that those of a
//! killed one are there too; the hooks tell what they pass on. Nothing here may change what a call does,
//! allocate, take a lock, or cost more than a look at a variable where nothing is recorded. The fork of a
//! process begins anew; the child of a `vfork`, which has its parent's memory, counts nothing.

mod area;
mod data;
mod ending;
mod files;
mod kept;
mod life;
mod look;
mod names;
mod paths;
mod process;
mod programs;
mod slots;
mod streams;
#[cfg(test)]
mod tests;
mod true_names;

pub(crate) use data::{
    Direction, closing, closing_range, copied, duplicated, mapped, moved, seeking,
};
pub(crate) use ending::end;
pub(crate) use life::{after_fork_in_child, before_fork, start};
pub(crate) use names::{Kind, named, opening};
pub(crate) use paths::changed_directory;
pub(crate) use process::{HAS_VFORKED, is_on, is_recording};
pub(crate) use programs::starting;
pub(crate) use slots::{has_files, renewed};
pub(crate) use streams::{closing_stream, flushing, opening_stream, record, seeking_stream};
