//! Tells the program which commit it was built from, so that results can say so.

use std::process::Command;

/// What git says, if it is there and this is a work tree.
fn git(arguments: &[&str]) -> Option<String> {
    let done = Command::new("git").args(arguments).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]).unwrap_or_default();
    println!("cargo::rustc-env=AZEKURA_COMMIT={commit}");
    println!("cargo::rustc-env=AZEKURA_DIRTY={}", !changes.is_empty());
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=..");
}
