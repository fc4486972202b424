//! What a path leads to, through symlinks and dots, over the names of all maps. Owns that walk and its
//! bounds; what stands at a name it is told by [`Names`]. Above the maps it goes through the host's own
//! file system, as the kernel would.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use azekura_proto::FileKind;
use azekura_proto::limits::{PATH_BYTES_MAX, SYMLINKS_MAX};
use azekura_proto::staging::Attributes;
use rustix::io::Errno;

use crate::message::Place;

/// What stands at the places of the maps.
pub(crate) trait Names {
    /// What stands at a place; `None` for nothing. The error is a number of errno.
    fn look(&self, place: &Place) -> Result<Option<Attributes>, i32>;
}

/// Where a path leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Led {
    /// To a place of a map, whether or not something stands there.
    Inside(Place, Option<Attributes>),
    /// Out of all maps, to this path.
    Outside(Vec<u8>),
}

/// Follows an absolute path. `dirs`: the directories of the maps.
pub(crate) fn resolve(
    path: &[u8],
    follow: bool,
    dirs: &[Vec<u8>],
    names: &impl Names,
) -> Result<Led, i32> {
    if path.first() != Some(&b'/') {
        return Err(Errno::NOENT.raw_os_error());
    }
    let mut walk = Walk { at: Vec::new(), left: VecDeque::new(), links: 0, dirs };
    walk.push(path)?;
    // A slash at the end asks for a directory, through whatever symlink.
    let wants_directory = path.len() > 1 && path.ends_with(b"/");
    let follow = follow || wants_directory;
    while let Some(name) = walk.left.pop_front() {
        walk.step(name, follow, names)?;
    }
    let Some(place) = walk.place() else { return Ok(Led::Outside(walk.path())) };
    let found = names.look(&place)?;
    match &found {
        Some(found) if wants_directory && found.kind != FileKind::Directory => {
            Err(Errno::NOTDIR.raw_os_error())
        }
        _ => Ok(Led::Inside(place, found)),
    }
}

struct Walk<'a> {
    /// The names from the root to where the walk stands, no symlink among them.
    at: Vec<Vec<u8>>,
    /// Names that are still to be followed.
    left: VecDeque<Vec<u8>>,
    links: u32,
    dirs: &'a [Vec<u8>],
}

impl Walk<'_> {
    /// Puts a path before what is left.
    fn push(&mut self, path: &[u8]) -> Result<(), i32> {
        let left: usize = self.left.iter().map(|name| name.len() + 1).sum();
        if path.len() + left > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.raw_os_error());
        }
        for name in path.split(|byte| *byte == b'/').rev() {
            if !name.is_empty() && name != b"." {
                self.left.push_front(name.to_vec());
            }
        }
        Ok(())
    }

    fn step(&mut self, name: Vec<u8>, follow: bool, names: &impl Names) -> Result<(), i32> {
        if name == b".." {
            self.at.pop();
            return Ok(());
        }
        self.at.push(name);
        let is_last = self.left.is_empty();
        if is_last && !follow {
            return Ok(());
        }
        let Some(place) = self.place() else {
            // Not a symlink, or nothing at all: whoever makes the call will meet it.
            return match std::fs::read_link(OsStr::from_bytes(&self.path())) {
                Ok(text) => self.follow(&text.into_os_string().into_vec()),
                Err(_) => Ok(()),
            };
        };
        match names.look(&place)? {
            Some(found) if found.kind == FileKind::Symlink => self.follow(&found.link),
            _ if is_last => Ok(()),
            Some(found) if found.kind == FileKind::Directory => Ok(()),
            Some(_) => Err(Errno::NOTDIR.raw_os_error()),
            None => Err(Errno::NOENT.raw_os_error()),
        }
    }

    fn follow(&mut self, text: &[u8]) -> Result<(), i32> {
        self.links += 1;
        if self.links > SYMLINKS_MAX {
            return Err(Errno::LOOP.raw_os_error());
        }
        if text.first() == Some(&b'/') {
            self.at.clear();
        } else {
            self.at.pop();
        }
        self.push(text)
    }

    fn path(&self) -> Vec<u8> {
        if self.at.is_empty() {
            return b"/".to_vec();
        }
        self.at.iter().flat_map(|name| [b"/", &name[..]].concat()).collect()
    }

    /// The place in the innermost map; none outside.
    fn place(&self) -> Option<Place> {
        let path = self.path();
        let below = |dir: &[u8]| match path.strip_prefix(dir) {
            Some(b"") => Some(Vec::new()),
            Some([b'/', rest @ ..]) => Some(rest.to_vec()),
            _ => None,
        };
        let maps = self.dirs.iter().enumerate();
        let (map, _, path) = maps
            .filter_map(|(map, dir)| Some((map, dir.len(), below(dir)?)))
            .max_by_key(|(_, length, _)| *length)?;
        Some(Place { map: map as u16, path })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use azekura_proto::Timestamp;

    use super::*;

    type Name = (u16, &'static [u8]);
    type Found = (FileKind, &'static [u8]);
    struct Table(HashMap<Name, Found>);

    impl Names for Table {
        fn look(&self, place: &Place) -> Result<Option<Attributes>, i32> {
            let found = self.0.iter().find(|(key, _)| key.0 == place.map && key.1 == place.path);
            let root = (FileKind::Directory, &b""[..]);
            let found = found.map(|(_, found)| *found);
            let found = if place.path.is_empty() { Some(root) } else { found };
            Ok(found.map(|(kind, link)| Attributes {
                kind,
                mode: 0o644,
                size: 0,
                mtime: Timestamp { secs: 0, nanos: 0 },
                link: link.to_vec(),
            }))
        }
    }

    fn led(path: &str, follow: bool) -> Result<String, i32> {
        use FileKind::{Directory, Regular, Symlink};
        let dirs = [b"/no-such/data".to_vec(), b"/no-such/data/out".to_vec()];
        let names: [(Name, Found); 10] = [
            ((0, b"f"), (Regular, b"")),
            ((0, b"d"), (Directory, b"")),
            ((0, b"d/g"), (Regular, b"")),
            ((0, b"d/up"), (Symlink, b"../f")),
            ((0, b"away"), (Symlink, b"/elsewhere/x")),
            ((0, b"to-d"), (Symlink, b"d")),
            ((0, b"loop"), (Symlink, b"loop")),
            ((0, b"to-out"), (Symlink, b"/no-such/data/out/r")),
            ((1, b"r"), (Regular, b"")),
            ((0, b"nowhere"), (Symlink, b"new")),
        ];
        let led = resolve(path.as_bytes(), follow, &dirs, &Table(names.into_iter().collect()))?;
        Ok(match led {
            Led::Outside(path) => String::from_utf8(path).unwrap(),
            Led::Inside(place, found) => {
                let name = String::from_utf8(place.path).unwrap();
                let mark = if found.is_some() { "" } else { "?" };
                format!("{}:{name}{mark}", place.map)
            }
        })
    }

    #[test]
    fn paths_lead_where_the_kernel_would_go() {
        let leads = |path: &str, to: &str| assert_eq!(led(path, true).as_deref(), Ok(to), "{path}");
        leads("/no-such/data", "0:");
        leads("/no-such//data/./d/g", "0:d/g");
        leads("/no-such/data/d/../f", "0:f");
        leads("/no-such/data/d/up", "0:f");
        leads("/no-such/data/to-d/up", "0:f");
        leads("/no-such/data/to-d/", "0:d");
        leads("/no-such/data/away", "/elsewhere/x");
        leads("/no-such/data/../y", "/no-such/y");
        leads("/no-such/data/missing", "0:missing?");
        leads("/no-such/data/nowhere", "0:new?");
        leads("/no-such/data/to-out", "1:r");
        leads("/no-such/data/out/r", "1:r");
        leads("/no-such/database", "/no-such/database");
        leads("/..", "/");
        assert_eq!(led("/no-such/data/to-d", false).as_deref(), Ok("0:to-d"));
        assert_eq!(led("/no-such/data/to-d/", false).as_deref(), Ok("0:d"));
        assert_eq!(led("/no-such/data/to-d/up", false).as_deref(), Ok("0:d/up"));
    }

    #[test]
    fn what_leads_nowhere_fails_as_with_the_kernel() {
        let fails = |path: &str, errno: Errno| {
            assert_eq!(led(path, true), Err(errno.raw_os_error()), "{path}");
        };
        fails("/no-such/data/loop", Errno::LOOP);
        fails("/no-such/data/f/x", Errno::NOTDIR);
        fails("/no-such/data/f/", Errno::NOTDIR);
        fails("/no-such/data/missing/x", Errno::NOENT);
        fails(&format!("/no-such/data/{}", "x/".repeat(3000)), Errno::NAMETOOLONG);
        fails("relative", Errno::NOENT);
    }
}
