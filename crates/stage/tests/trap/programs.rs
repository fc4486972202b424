//! Programs to be run: built from the sources beside this file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trap")
}

/// Runs a compiler, if it is there, unless it has been run since the source changed.
fn build(source: &str, compiler: &str, args: &[&str]) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(source)
        .with_extension(format!("{compiler}.program"));
    let made = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    if made(&path) > made(&sources().join(source)) {
        return Some(path);
    }
    // Another test process may do the same, or run the program.
    let partial = path.with_extension(std::process::id().to_string());
    let mut command = Command::new(compiler);
    command.args(args).arg("-o").arg(&partial).arg(source).current_dir(sources());
    let done = command.env("CGO_ENABLED", "0").output().ok()?;
    if !done.status.success() {
        eprintln!("{compiler}: {}", String::from_utf8_lossy(&done.stderr));
        return None;
    }
    std::fs::rename(partial, &path).ok()?;
    Some(path)
}

fn probe_if_built() -> Option<&'static Path> {
    static PROBE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let args = ["-static", "-O1", "-pthread"];
    PROBE.get_or_init(|| build("probe.c", "cc", &args)).as_deref()
}

/// Whether this machine can link a program statically.
pub(crate) fn has_probe() -> bool {
    let has = probe_if_built().is_some();
    if !has {
        eprintln!("skipped: no static program can be linked here");
    }
    has
}

/// The program of `probe.c`.
pub(crate) fn probe() -> &'static Path {
    probe_if_built().expect("asked for before")
}

/// The program of `probe.go`, if there is a compiler.
pub(crate) fn go() -> Option<&'static Path> {
    static GO: OnceLock<Option<PathBuf>> = OnceLock::new();
    GO.get_or_init(|| build("probe.go", "go", &["build"])).as_deref()
}
