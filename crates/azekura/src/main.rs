//! Azekura, the program. Its table of contents is the library's.

use std::process::ExitCode;

/// Creating a file makes a dozen small allocations; with the C library's allocator they cost as much
/// as storing it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    azekura::main()
}
