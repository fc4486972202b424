//! The environment that the preload library reads, and where the library lies. Owns the names of
//! the variables; `crates/preload` reads the same ones.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use azekura_client::PoolFile;

use super::args::RunArgs;
use crate::host::{places, programs};
use crate::names::ContainerName;

pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";
const POOL: &str = "AZEKURA_POOL";
const CONTAINER: &str = "AZEKURA_CONTAINER";
const PREFIX: &str = "AZEKURA_PREFIX";
const REPORT: &str = "AZEKURA_REPORT";
const INTERCEPT: &str = "AZEKURA_INTERCEPT";
const READ_POLICY: &str = "AZEKURA_READ_POLICY";
const WRITE_POLICY: &str = "AZEKURA_WRITE_POLICY";
const DESCRIPTORS: &str = "AZEKURA_DESCRIPTORS";
const TRACE: &str = "AZEKURA_TRACE";
pub(crate) const BINARY: &str = "AZEKURA_BIN";

const LIBRARY: &str = "libazekura_preload.so";
/// The part of it that records, for programs that need no more.
const RECORDER: &str = "libazekura_recorder.so";
/// Where a library may lie, from the directory of this program on: beside it in a build, below
/// `lib` in an installation.
const LIBRARY_DIRS: [&str; 3] = ["", "../lib", "../lib/azekura"];

/// Which calls the library takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intercept {
    /// Everything below the prefix.
    All,
    /// Reading and writing of files that a mount has opened.
    Data,
}

/// Variables to set, or to remove where there is no value.
pub(crate) type Variables = Vec<(&'static str, Option<OsString>)>;

/// The environment with which a program finds a container below the prefix.
///
/// # Errors
/// If the library is not where it should be.
pub(super) fn for_preload(
    name: &ContainerName,
    args: &RunArgs,
    intercept: Intercept,
) -> Result<Variables> {
    let binary = programs::own()?;
    let preload = preloaded()?;
    let report = args.report.as_deref().map(report_file).transpose()?;
    let intercept = match intercept {
        Intercept::All => "all",
        Intercept::Data => "data",
    };
    let mut variables = vec![
        (LD_PRELOAD, Some(preload)),
        (POOL, Some(pool_reference(name)?)),
        (CONTAINER, Some(name.container().into())),
        (PREFIX, Some(args.prefix.clone().into())),
        (REPORT, report.map(Into::into)),
        (INTERCEPT, Some(intercept.into())),
        (BINARY, Some(binary.into())),
    ];
    // What the caller's environment says holds where no option does.
    if let Some(policy) = args.reading.policy_text() {
        variables.push((READ_POLICY, Some(policy.into())));
    }
    if let Some(policy) = args.write.policy_text() {
        variables.push((WRITE_POLICY, Some(policy.into())));
    }
    if let Some(descriptors) = args.reading.descriptors() {
        variables.push((DESCRIPTORS, Some(descriptors.text().into())));
    }
    if let Some(trace) = args.reading.trace_file()? {
        variables.push((TRACE, Some(trace.into())));
    }
    Ok(variables)
}

/// `LD_PRELOAD` of this process with the library that belongs to this program.
///
/// # Errors
/// If the library is not where it should be.
pub(crate) fn preloaded() -> Result<OsString> {
    Ok(prepend(&own_library()?, std::env::var_os(LD_PRELOAD).as_deref()))
}

/// `LD_PRELOAD` of this process with a library that records: the recorder, unless the library is there already,
/// which records too.
///
/// # Errors
/// If the library is not where it should be.
pub(crate) fn recording() -> Result<OsString> {
    let others = std::env::var_os(LD_PRELOAD).unwrap_or_default();
    let recorder = find_library(&programs::own()?, RECORDER)?;
    let full = recorder.with_file_name(LIBRARY);
    let is_there = parts(&others).any(|other| other == full.as_os_str().as_encoded_bytes());
    Ok(if is_there { others } else { prepend(&recorder, Some(&others)) })
}

/// `LD_PRELOAD` of this process without the library that belongs to this program; `None` if nothing is left.
///
/// # Errors
/// If the library is not where it should be.
pub(crate) fn not_preloaded() -> Result<Option<OsString>> {
    let library = own_library()?;
    let value = prepend(&library, std::env::var_os(LD_PRELOAD).as_deref());
    let others = value.as_encoded_bytes().get(library.as_os_str().len() + 1..);
    Ok(others.map(OsStr::from_bytes).map(OsStr::to_owned))
}

/// The file for the report. The library writes it when all is over and cannot complain then.
fn report_file(path: &Path) -> Result<PathBuf> {
    let path = places::absolute(path)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    if !dir.is_dir() {
        bail!("cannot write the report {}: make the directory first", path.display());
    }
    Ok(path)
}

/// The preload library that belongs to this program.
///
/// # Errors
/// If it is not where it is looked for.
pub(super) fn own_library() -> Result<PathBuf> {
    find_library(&programs::own()?, LIBRARY)
}

fn find_library(binary: &Path, name: &str) -> Result<PathBuf> {
    let above = binary.parent().unwrap_or(Path::new("/"));
    let places: Vec<PathBuf> = LIBRARY_DIRS.iter().map(|dir| above.join(dir).join(name)).collect();
    for place in &places {
        let Ok(path) = std::fs::canonicalize(place) else { continue };
        if path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
            bail!(
                "the preload library lies at '{}', and LD_PRELOAD has no way to name a path with a \
                 blank or colon: install azekura elsewhere, or use --via fuse",
                path.display()
            );
        }
        return Ok(path);
    }
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    bail!(
        "the preload library is not there; looked for {}: build and install all of azekura with \
         'make install', or use --via fuse",
        places.join(", ")
    )
}

/// The libraries that a value of `LD_PRELOAD` names.
fn parts(value: &OsStr) -> impl Iterator<Item = &[u8]> {
    let parts = value.as_encoded_bytes().split(|byte| *byte == b':' || *byte == b' ');
    parts.filter(|part| !part.is_empty())
}

/// `LD_PRELOAD` with the library in front, and neither it nor the recorder behind: a program with both would
/// be counted twice.
fn prepend(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    let own = [library.to_owned(), library.with_file_name(RECORDER)];
    for other in parts(others.unwrap_or_default()) {
        if !own.iter().any(|own| other == own.as_os_str().as_encoded_bytes()) {
            value.push(":");
            value.push(OsStr::from_bytes(other));
        }
    }
    value
}

/// The pool in a form that stays true in another working directory and with other `XDG` variables.
/// The pool itself is not asked.
///
/// # Errors
/// If there is no such pool file, or it cannot be used.
pub(super) fn pool_reference(name: &ContainerName) -> Result<OsString> {
    let pool = name.pool.as_str();
    if pool.starts_with("azekura://") {
        return Ok(pool.into());
    }
    PoolFile::find(pool)?;
    let is_path = pool.contains('/') || Path::new(pool).extension().is_some_and(|e| e == "toml");
    let path = if is_path { PathBuf::from(pool) } else { PoolFile::path_of(pool) };
    Ok(places::absolute(&path)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_preloaded_libraries_stay_behind() {
        let library = Path::new("/lib/azekura.so");
        assert_eq!(prepend(library, None), "/lib/azekura.so");
        assert_eq!(
            prepend(library, Some(OsStr::new("/a.so /b.so:/lib/azekura.so"))),
            "/lib/azekura.so:/a.so:/b.so"
        );
        let others = OsStr::new("/lib/libazekura_recorder.so:/a.so");
        assert_eq!(prepend(library, Some(others)), "/lib/azekura.so:/a.so");
    }

    #[test]
    fn the_library_is_found_beside_the_program_and_below_lib() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let binary = root.join("bin/azekura");
        for place in ["bin", "lib/azekura"] {
            std::fs::create_dir_all(root.join(place)).unwrap();
        }
        let error = find_library(&binary, LIBRARY).unwrap_err().to_string();
        assert!(error.contains("../lib/azekura/libazekura_preload.so"), "{error}");
        let blank = root.join("with blank");
        std::fs::create_dir(&blank).unwrap();
        std::fs::write(blank.join(LIBRARY), "").unwrap();
        let error = find_library(&blank.join("azekura"), LIBRARY).unwrap_err().to_string();
        assert!(error.contains("blank or colon"), "{error}");
        for place in ["lib/azekura", "lib", "bin"] {
            let library = root.join(place).join(LIBRARY);
            std::fs::write(&library, "").unwrap();
            assert_eq!(find_library(&binary, LIBRARY).unwrap(), library);
        }
    }
}
