//! The mapped directories: from `DIR=ro|out|rw`, with `@` and the home where that is not the directory itself,
//! to what the job is told. Never lets one map lie in another: which of them a path belongs to would be a
//! matter of order.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use azekura_proto::staging::MapKind;
use azekura_stage::job::MapDescription;

use super::homes::Home;
use crate::outcome::usage;

/// Maps of a job at most.
const MAPS_MAX: usize = 256;

/// What can be said.
const FORM: &str = "DIR=ro, DIR=out or DIR=rw, or with another home DIR=ro@s3://BUCKET/PREFIX (webdav://, \
    webdavs://, sftp://, webhdfs://, swebhdfs://, file:///PATH) or DIR=ro@POOL:/path";
const KINDS: [(&[u8], MapKind); 3] =
    [(b"ro", MapKind::ReadOnly), (b"out", MapKind::Out), (b"rw", MapKind::ReadWrite)];

/// A map with where its files come from and go to.
pub(super) type Mapped = (MapDescription, Home);

/// Reads all maps of a command line.
///
/// # Errors
/// If one cannot be, or two do not go together.
pub(super) fn parse(texts: &[OsString]) -> Result<Vec<Mapped>> {
    if texts.len() > MAPS_MAX {
        return Err(usage(format!("more than {MAPS_MAX} maps")));
    }
    let maps = texts.iter().map(|text| parse_one(text)).collect::<Result<Vec<_>>>()?;
    for (index, (map, home)) in maps.iter().enumerate() {
        for (other, others_home) in &maps[..index] {
            refuse_both(Path::new(shown(map)), Path::new(shown(other)))?;
            if home.overlaps(others_home) {
                return Err(same_files(home, others_home));
            }
            if let (Some(one), Some(other)) = (dir_of(map, home), dir_of(other, others_home)) {
                refuse_same(one, other)?;
            }
        }
    }
    Ok(maps)
}

/// The directory of this host in which the files are.
fn dir_of<'a>(map: &'a MapDescription, home: &'a Home) -> Option<&'a Path> {
    if *home == Home::Here { Some(Path::new(shown(map))) } else { home.local_dir() }
}

fn same_files(one: impl fmt::Display, other: impl fmt::Display) -> anyhow::Error {
    usage(format!("--map: {one} and {other} lead to the same files: map one of them"))
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
    Ok(())
}

/// Programs reach the same files by both paths, and each node would have them twice.
fn refuse_same(one: &Path, other: &Path) -> Result<()> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if let (Some(a), Some(b)) = (real(one), real(other))
        && (a.starts_with(&b) || b.starts_with(&a))
    {
        return Err(same_files(one.display(), other.display()));
    }
    Ok(())
}

/// Refuses a cache that lies in a map: what comes would be part of what it comes from, without end.
///
/// # Errors
/// If it does, by its path or through symlinks of this host.
pub(super) fn refuse_cache(maps: &[Mapped], cache: &Path) -> Result<()> {
    let dirs = maps.iter().flat_map(|(map, home)| {
        [Some(Path::new(shown(map))), home.local_dir()].into_iter().flatten()
    });
    for map in dirs {
        let is_real = std::fs::canonicalize(map).is_ok_and(|map| real(cache).starts_with(map));
        if is_real || cache.starts_with(map) {
            return Err(usage(format!(
                "--cache: {} lies in {}, which is mapped: name a directory outside of all maps",
                cache.display(),
                map.display()
            )));
        }
    }
    Ok(())
}

/// The path without symlinks, as far as it is there.
fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| {
        let below = path.strip_prefix(above).ok()?;
        Some(std::fs::canonicalize(above).ok()?.join(below))
    });
    found.unwrap_or_else(|| path.to_owned())
}

fn parse_one(text: &OsStr) -> Result<Mapped> {
    let form = || usage(format!("--map '{}' is not {FORM}", text.display()));
    let (given, kind, home) = split(text.as_bytes()).ok_or_else(form)?;
    let given = Path::new(OsStr::from_bytes(given));
    if given.as_os_str().is_empty() {
        return Err(form());
    }
    let home = match home {
        None => Home::Here,
        Some(home) => Home::parse(home).map_err(|why| usage(format!("--map: {why}")))?,
    };
    let dir = plain(given)?;
    if dir.parent().is_none() {
        return Err(usage("--map: / cannot be mapped: map the directories that are needed"));
    }
    if matches!(home, Home::Here) {
        check_directory(&dir)?;
    }
    Ok((MapDescription { dir: dir.into_os_string().into_vec(), kind }, home))
}

/// The directory, the kind and the home. What ends with a kind is all directory before that, as names may hold
/// any letter; else the home begins behind the last `=KIND@` that a home can follow.
fn split(text: &[u8]) -> Option<(&[u8], MapKind, Option<&str>)> {
    if let Some(at) = text.iter().rposition(|byte| *byte == b'=')
        && let Some((_, kind)) = KINDS.iter().find(|(name, _)| *name == &text[at + 1..])
    {
        return Some((&text[..at], *kind, None));
    }
    let places = (0..text.len()).rev().filter(|at| text[*at] == b'=');
    places.flat_map(|at| KINDS.iter().map(move |kind| (at, kind))).find_map(|(at, (name, kind))| {
        let home = text[at + 1..].strip_prefix(*name)?.strip_prefix(b"@")?;
        let home = std::str::from_utf8(home).ok()?;
        Home::is_meant(home).then_some((&text[..at], *kind, Some(home)))
    })
}

fn check_directory(dir: &Path) -> Result<()> {
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(usage(format!("--map: {} is not a directory", dir.display()))),
        Err(error) => Err(usage(format!("--map: cannot use {}: {error}", dir.display()))),
    }
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

    fn of(dir: &Path, texts: &[&str]) -> Result<Vec<Mapped>> {
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
        let dirs: Vec<_> = maps.iter().map(|(map, _)| PathBuf::from(shown(map))).collect();
        assert_eq!(dirs, [root.join("a"), root.join("b=c"), root.join("ab")]);
        let kinds: Vec<_> = maps.iter().map(|(map, _)| map.kind).collect();
        assert_eq!(kinds, [MapKind::ReadOnly, MapKind::ReadWrite, MapKind::Out]);
    }

    #[cfg(feature = "services")]
    #[test]
    fn maps_have_other_homes() {
        let said = |text: &str| {
            let (dir, kind, home) = split(text.as_bytes()).unwrap();
            (String::from_utf8_lossy(dir).into_owned(), kind, home.map(ToOwned::to_owned))
        };
        for (text, dir, kind, home) in [
            (
                "/d=ro@s3://b/p?endpoint=http://h",
                "/d",
                MapKind::ReadOnly,
                "s3://b/p?endpoint=http://h",
            ),
            ("/a=b@c=out@sftp://me@h/x", "/a=b@c", MapKind::Out, "sftp://me@h/x"),
            ("/a=ro@x/y=rw@pool:/runs", "/a=ro@x/y", MapKind::ReadWrite, "pool:/runs"),
            ("/d=rw@pool:/a=ro@b", "/d", MapKind::ReadWrite, "pool:/a=ro@b"),
            ("/d=ro@p/c:/x/kind=ro/", "/d", MapKind::ReadOnly, "p/c:/x/kind=ro/"),
        ] {
            assert_eq!(said(text), (dir.to_owned(), kind, Some(home.to_owned())));
        }
        assert_eq!(said("/d=ro@s3:=ro").2, None);
        assert_eq!(split(b"/d=ro@nothing"), None);
        let wrong = |texts: &[&str]| {
            let texts: Vec<OsString> = texts.iter().map(OsString::from).collect();
            parse(&texts).unwrap_err().to_string()
        };
        assert!(wrong(&["/d=ro@nothing"]).contains("DIR=ro@POOL:/path"));
        assert!(wrong(&["/d=ro@gs://b"]).contains("s3, webdav"));
        assert!(wrong(&["/d=ro@s3://b/x", "/e=rw@s3://b"]).contains("same files"));
        assert!(wrong(&["/d=ro@p:/x", "/e=rw@p/default:/x/y"]).contains("same files"));
        assert!(wrong(&["/d=ro@file:///tmp", "/tmp=rw"]).contains("same files"));
        let maps = parse(&["/no/d=ro@file:///srv/files".into()]).unwrap();
        assert!(refuse_cache(&maps, Path::new("/srv/files/x")).is_err());
    }

    #[test]
    fn a_cache_lies_in_no_map() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(root.join("a/in")).unwrap();
        std::os::unix::fs::symlink("a/in", root.join("link")).unwrap();
        let maps = of(&root, &["a=ro"]).unwrap();
        for cache in ["a", "a/in", "a/none/x", "link", "link/none", "link/.."] {
            let refused = refuse_cache(&maps, &root.join(cache)).unwrap_err().to_string();
            assert!(refused.contains("lies in"), "{cache}: {refused}");
        }
        for cache in ["", "ab", "none"] {
            refuse_cache(&maps, &root.join(cache)).unwrap();
        }
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
