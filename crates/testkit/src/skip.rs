//! How a test says that it could not run here. Owns the line that `scripts/test.py` takes for a
//! skipped test; a test that returns early without it would count as passed.

use std::io::Write as _;

/// Says that the calling test ends here, and why. `cargo test` has no word for it and lists the test
/// among those that passed; `scripts/test.py` counts it as skipped.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    // Not `eprintln`, whose text nobody sees when the test does not fail. One write, so that lines of
    // tests beside it do not come between.
    let line = format!("skipped: {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Whether this process may mount file systems of its own; if not, the calling test is skipped.
pub fn mounts_are_possible() -> bool {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        skip(&format!("/dev/fuse cannot be opened: {error}"));
        return false;
    }
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("mounting needs root");
    }
    root
}
