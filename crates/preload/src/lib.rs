//! `libazekura_preload.so`: interposition of the C library's calls, so that an unchanged dynamic
//! program finds a container at a path of its own tree. Each hook decides whose call it is and
//! translates it into calls of `posix`; there is no file system logic here. The library lives in
//! somebody else's process: it must never exit, print, start a thread, or let a panic out.

// What each of them owns stands at its head.
#[cfg(not(records_only))]
mod allocator;
#[cfg(records_only)]
mod blocks;
mod calls;
mod descriptors;
mod guard;
mod handlers;
mod hook;
mod host;
mod host_walk;
mod launch;
mod paths;
mod pointers;
mod recording;
mod report;
mod scope;
mod service;
mod settings;
mod staging;
mod start;
mod stdio;

#[cfg(not(records_only))]
#[global_allocator]
static ALLOCATOR: allocator::Guarded = allocator::Guarded;
#[cfg(records_only)]
#[global_allocator]
static ALLOCATOR: blocks::Blocks = blocks::Blocks::new();
