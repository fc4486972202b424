//! `libazekura_preload.so`: interposition of the C library's calls, so that an unchanged dynamic
//! program finds a container at a path of its own tree. Each hook decides whose call it is and
//! translates it into calls of `posix`; there is no file system logic here. The library lives in
//! somebody else's process: it must never exit, print, start a thread, or let a panic out.

mod calls; //       the hooks, one module per family of calls
mod descriptors; // descriptor numbers that stand for files of the pool
mod gate; //        going in and out of our code: recursion, signals, forks, panics
mod host; //        the C library's own functions
mod launch; //      starting programs
mod paths; //       whose path is it
mod report; //      what was intercepted, and what could not be served
mod service; //     the pool and its container, reached when first needed
mod settings; //    what the environment says
mod start; //       the library's beginning and end
mod stdio; //       streams of the C library on files of the pool

/// The host's allocator may be in any state when a signal handler of the host calls us, so ours is a
/// separate one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
