//! Directories of a service. Owns what is shown of names that a POSIX directory cannot have, or has once only:
//! nothing, and a line that says so.

use std::collections::BTreeMap;
use std::io;

use azekura_proto::FileKind;
use azekura_proto::staging::Attributes;
use futures_util::TryStreamExt as _;
use opendal::{Entry, ErrorKind};
use rustix::io::Errno;

use crate::link::{Link, attributes_of};
use crate::naming::{dir_of, is_name};

/// Names of a directory at most.
const NAMES_MAX: usize = 1 << 20;
/// Lines about names at most, for a directory.
const LINES_MAX: usize = 5;

type Names = BTreeMap<String, Attributes>;
type Listed = Vec<(Vec<u8>, Attributes)>;

/// Whether anything is below a directory.
pub(crate) fn has_any(link: &Link, path: &str) -> opendal::Result<bool> {
    let dir = dir_of(path);
    let mut lister = link.wait(0, async { link.operator.lister_with(&dir).limit(2).await })?;
    while let Some(entry) = link.wait(0, lister.try_next())? {
        if rest_of(&entry, &dir).is_some_and(|rest| !rest.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names in a directory; none if the service knows nothing of it, not even itself.
pub(crate) fn list(link: &Link, path: &str) -> io::Result<Option<Listed>> {
    let dir = dir_of(path);
    let trouble = |error| link.called.errno(&format!("list '{path}'"), &error);
    let lister = link.wait(0, link.operator.lister(&dir));
    let mut lister = match lister {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        lister => lister.map_err(trouble)?,
    };
    let (mut names, mut hidden, mut is_known) = (Names::new(), Vec::new(), false);
    while let Some(entry) = link.wait(0, lister.try_next()).map_err(trouble)? {
        is_known = true;
        let Some(rest) = rest_of(&entry, &dir) else {
            hidden.push(format!("'{}' is not in it", entry.path()));
            continue;
        };
        if rest.is_empty() {
            continue;
        }
        let name = rest.strip_suffix('/').unwrap_or(rest);
        let is_dir = rest.ends_with('/');
        if !is_name(name) || (!is_dir && name.trim_end() != name) {
            hidden.push(format!("'{rest}' is no name of a file"));
            continue;
        }
        let Some(attributes) = attributes(link, &entry).map_err(trouble)? else { continue };
        if let Some(reason) = add(&mut names, name, attributes) {
            hidden.push(reason);
        }
        if names.len() > NAMES_MAX {
            tracing::error!("{}: '{path}' has more than {NAMES_MAX} names", link.called.address);
            return Err(Errno::OVERFLOW.into());
        }
    }
    for reason in hidden.iter().take(LINES_MAX) {
        tracing::error!("{}: of '{path}' is not shown: {reason}", link.called.address);
    }
    if hidden.len() > LINES_MAX {
        let more = hidden.len() - LINES_MAX;
        tracing::error!("{}: of '{path}' {more} more are not shown", link.called.address);
    }
    let names = names.into_iter().map(|(name, attributes)| (name.into_bytes(), attributes));
    Ok(is_known.then(|| names.collect()))
}

/// Adds a name; if it is there already, why one of the two is hidden. A file is what looking at it finds.
fn add(names: &mut Names, name: &str, attributes: Attributes) -> Option<String> {
    let is_file = attributes.kind == FileKind::Regular;
    match names.get(name) {
        Some(other) if (other.kind == FileKind::Regular) == is_file => None,
        Some(_) => {
            if is_file {
                names.insert(name.to_owned(), attributes);
            }
            Some(format!("what is below '{name}', which is a file too"))
        }
        None => {
            names.insert(name.to_owned(), attributes);
            None
        }
    }
}

/// The path of an entry below its directory.
fn rest_of<'a>(entry: &'a Entry, dir: &str) -> Option<&'a str> {
    let path = entry.path();
    if dir == "/" { Some(path.strip_prefix('/').unwrap_or(path)) } else { path.strip_prefix(dir) }
}

/// The attributes of an entry: where the listing does not say what it is, by looking at it.
fn attributes(link: &Link, entry: &Entry) -> opendal::Result<Option<Attributes>> {
    let known = entry.metadata();
    if known.is_file() || known.is_dir() {
        return Ok(Some(attributes_of(known)));
    }
    match link.look(entry.path()) {
        Ok(found) if found.is_file() || found.is_dir() => Ok(Some(attributes_of(&found))),
        Ok(_) => Ok(None),
        // A symlink that leads nowhere.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::Timestamp;

    use super::*;

    #[test]
    fn of_a_file_and_a_directory_with_one_name_the_file_is_shown() {
        let of = |kind| Attributes {
            kind,
            mode: 0,
            size: 0,
            mtime: Timestamp { secs: 0, nanos: 0 },
            link: Vec::new(),
        };
        for kinds in
            [[FileKind::Regular, FileKind::Directory], [FileKind::Directory, FileKind::Regular]]
        {
            let mut names = Names::new();
            assert_eq!(add(&mut names, "x", of(kinds[0])), None);
            assert!(add(&mut names, "x", of(kinds[1])).is_some());
            assert_eq!(names["x"].kind, FileKind::Regular);
        }
    }
}
