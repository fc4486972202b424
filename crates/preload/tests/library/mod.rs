//! The library under test.

use std::path::PathBuf;
use std::process::Command;

/// The library as it is now: cargo builds no shared library for a test by itself. `AZEKURA_PRELOAD_UNDER_TEST` names one
/// that somebody has just built, and building another one would take minutes.
pub(crate) fn library() -> PathBuf {
    if let Some(built) = std::env::var_os("AZEKURA_PRELOAD_UNDER_TEST") {
        return built.into();
    }
    let program = std::env::current_exe().unwrap();
    let built = program.parent().unwrap().with_file_name("libazekura_preload.so");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "azekura-preload"]);
    // As this test was built: the directory has the name of the profile.
    match built.parent().unwrap().file_name().unwrap().to_str().unwrap() {
        "debug" => {}
        profile => drop(cargo.args(["--profile", profile])),
    }
    assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    assert!(built.is_file(), "{} is missing", built.display());
    built
}
