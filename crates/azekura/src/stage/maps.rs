//! The mapped directories: from `DIR=ro|out|rw` to what the job is told. Never lets one map lie in another:
//! which of them a path belongs to would be a matter of order.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use azekura_proto::staging::MapKind;
use azekura_stage::job::MapDescription;

use crate::outcome::usage;

/// Maps of a job at most.
const MAPS_MAX: usize = 256;

/// Reads all maps of a command line.
///
/// # Errors
/// If one cannot be, or two do not go together.
pub(super) fn parse(texts: &[OsString]) -> Result<Vec<MapDescription>> {
    if texts.len() > MAPS_MAX {
        return Err(usage(format!("more than {MAPS_MAX} maps")));
    }
    let maps = texts.iter().map(|text| parse_one(text)).collect::<Result<Vec<_>>>()?;
    for (index, map) in maps.iter().enumerate() {
        for other in &maps[..index] {
            refuse_both(Path::new(shown(map)), Path::new(shown(other)))?;
        }
    }
    Ok(maps)
}

fn shown(map: &MapDescription) -> &OsStr {
    OsStr::from_bytes(&map.dir)
}

fn refuse_both(one: &Path, other: &Path) -> Result<()> {
    if one == other {
        return Err(usage(format!("--map: {} is mapped twice", one.display())));
    }
    let (inner, outer) = if one.starts_with(other) { (one, other) } else { (other, one) };
    if inner.starts_with(outer) {
        return Err(usage(format!(
            "--map: {} lies in {}, which is mapped too: maps may not lie in each other",
            inner.display(),
            outer.display()
        )));
    }
    // Programs reach the same files by both paths, and each node would have them twice.
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if let (Some(a), Some(b)) = (real(one), real(other))
        && (a.starts_with(&b) || b.starts_with(&a))
    {
        return Err(usage(format!(
            "--map: {} and {} lead to the same files: map one of them",
            one.display(),
            other.display()
        )));
    }
    Ok(())
}

fn parse_one(text: &OsStr) -> Result<MapDescription> {
    let form = || usage(format!("--map '{}' is not DIR=ro, DIR=out or DIR=rw", text.display()));
    let bytes = text.as_bytes();
    // A directory's name may hold '='.
    let at = bytes.iter().rposition(|byte| *byte == b'=').ok_or_else(form)?;
    let kind = match &bytes[at + 1..] {
        b"ro" => MapKind::ReadOnly,
        b"out" => MapKind::Out,
        b"rw" => MapKind::ReadWrite,
        _ => return Err(form()),
    };
    let given = Path::new(OsStr::from_bytes(&bytes[..at]));
    if given.as_os_str().is_empty() {
        return Err(form());
    }
    let dir = plain(given)?;
    if dir.parent().is_none() {
        return Err(usage("--map: / cannot be mapped: map the directories that are needed"));
    }
    match std::fs::metadata(&dir) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(usage(format!("--map: {} is not a directory", dir.display()))),
        Err(error) => {
            return Err(usage(format!("--map: cannot use {}: {error}", dir.display())));
        }
    }
    Ok(MapDescription { dir: dir.into_os_string().into_vec(), kind })
}

/// The path as programs will name it: absolute, without dots and repeated slashes; symlinks stay.
fn plain(given: &Path) -> Result<PathBuf> {
    let full = std::path::absolute(given)
        .map_err(|error| usage(format!("--map: {}: {error}", given.display())))?;
    if full.components().any(|part| part == Component::ParentDir) {
        // What '..' means depends on symlinks in front of it.
        return std::fs::canonicalize(&full)
            .map_err(|error| usage(format!("--map: cannot use {}: {error}", given.display())));
    }
    Ok(full.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dir: &Path, texts: &[&str]) -> Result<Vec<MapDescription>> {
        let texts: Vec<OsString> =
            texts.iter().map(|text| OsString::from(format!("{}/{text}", dir.display()))).collect();
        parse(&texts)
    }

    fn refused(dir: &Path, texts: &[&str]) -> String {
        of(dir, texts).unwrap_err().to_string()
    }

    #[test]
    fn maps_are_directories_by_plain_paths() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["a", "b=c", "ab"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let maps = of(&root, &["./a//=ro", "b=c=rw", "ab/../ab=out"]).unwrap();
        let dirs: Vec<_> = maps.iter().map(|map| PathBuf::from(shown(map))).collect();
        assert_eq!(dirs, [root.join("a"), root.join("b=c"), root.join("ab")]);
        let kinds: Vec<_> = maps.iter().map(|map| map.kind).collect();
        assert_eq!(kinds, [MapKind::ReadOnly, MapKind::ReadWrite, MapKind::Out]);
    }

    #[test]
    fn maps_that_cannot_be_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(root.join("a/in")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink("a", root.join("link")).unwrap();
        assert!(refused(&root, &["a"]).contains("DIR=ro"));
        assert!(refused(&root, &["a=wo"]).contains("DIR=ro"));
        assert!(refused(&root, &["none=ro"]).contains("No such file"));
        assert!(refused(&root, &["file=ro"]).contains("not a directory"));
        assert!(refused(&root, &["a=ro", "./a/=rw"]).contains("twice"));
        assert!(refused(&root, &["a/in=ro", "a=rw"]).contains("lies in"));
        assert!(refused(&root, &["a=rw", "a/in=ro"]).contains("lies in"));
        assert!(refused(&root, &["a=rw", "link=ro"]).contains("same files"));
        assert!(parse(&["/=ro".into()]).unwrap_err().to_string().contains("/ cannot"));
        assert!(parse(&["=ro".into()]).unwrap_err().to_string().contains("DIR=ro"));
    }
}
