//! The maps of the job, and which paths lie below one as far as their text tells. Pure: looks at no file.

use azekura_proto::staging::MapKind;
use azekura_proto::staging::local::LocalMap;

/// A map on this node.
pub(crate) struct Map {
    /// The directory that programs name: absolute, without dots, repeated or trailing slashes.
    pub(super) dir: Vec<u8>,
    /// What may be done in it.
    pub(super) kind: MapKind,
    /// The directory on this node that has what has come, and what programs write.
    pub(super) tree: Vec<u8>,
    /// The directory above all that is made to be listed.
    lists: Vec<u8>,
    /// The device number of the tree.
    pub(super) device: u64,
    /// Whether another map lies below this one.
    has_maps_below: bool,
}

/// All maps.
pub(super) struct Maps {
    /// Those that lie in others come first.
    all: Vec<Map>,
}

/// Where a path lies.
#[derive(Clone, Copy)]
pub(super) struct Below {
    /// The map.
    pub(super) map: &'static Map,
    /// Bytes of the path up to the map's directory.
    pub(super) cut: usize,
    /// Whether `..` may lead out of the map, so that the kernel must not follow the path in the tree.
    pub(super) climbs: bool,
}

/// Skips slashes, and dots that stand for nothing; none if the next name does not begin here.
fn skip_slashes(path: &[u8]) -> Option<&[u8]> {
    let mut rest = path.strip_prefix(b"/")?;
    loop {
        rest = match rest {
            [b'/', after @ ..] => after,
            [b'.'] | [b'.', b'/', ..] => &rest[1..],
            _ => return Some(rest),
        };
    }
}

/// What follows the directory in a path below it: nothing, or something that begins with a slash.
fn after<'a>(dir: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = path;
    for name in dir.split(|byte| *byte == b'/').skip(1) {
        rest = skip_slashes(rest)?.strip_prefix(name)?;
        if !matches!(rest, [] | [b'/', ..]) {
            return None;
        }
    }
    Some(rest)
}

/// What follows the directory in a path that is written as the kernel writes it.
fn after_exactly<'a>(dir: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(dir).filter(|rest| matches!(rest, [] | [b'/', ..]))
}

/// Whether there is a `..` in the path.
pub(super) fn has_parent(path: &[u8]) -> bool {
    path.windows(2).enumerate().any(|(at, pair)| {
        pair == b".."
            && (at == 0 || path[at - 1] == b'/')
            && path.get(at + 2).is_none_or(|byte| *byte == b'/')
    })
}

/// Whether `..` leads above the directory that the path counts from, at its end or on its way.
fn leads_above(path: &[u8]) -> bool {
    let mut depth = 0_i32;
    path.split(|byte| *byte == b'/').any(|name| {
        match name {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        depth < 0
    })
}

/// The path without dots, as if no symlink were in it.
pub(super) fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            _ => names.push(name),
        }
    }
    names.iter().flat_map(|name| [b"/", *name].concat()).collect()
}

impl Maps {
    /// The maps as the agent tells them; `device` tells the device number of a directory.
    pub(super) fn new(told: Vec<LocalMap>, device: impl Fn(&[u8]) -> u64) -> Self {
        let dirs: Vec<Vec<u8>> = told.iter().map(|map| map.dir.clone()).collect();
        let mut all: Vec<Map> = told
            .into_iter()
            .map(|map| Map {
                kind: map.kind,
                device: device(&map.tree),
                has_maps_below: dirs
                    .iter()
                    .any(|dir| *dir != map.dir && after_exactly(&map.dir, dir).is_some()),
                dir: map.dir,
                tree: map.tree,
                lists: map.lists,
            })
            .collect();
        all.sort_by_key(|map| std::cmp::Reverse(map.dir.len()));
        Self { all }
    }

    /// The device number of the trees, which stand in one directory.
    pub(super) fn device(&self) -> u64 {
        self.all.first().map_or(0, |map| map.device)
    }

    /// Where an absolute path lies, if below a map by its text.
    pub(super) fn find(&'static self, path: &[u8]) -> Option<Below> {
        let (map, rest) = self.all.iter().find_map(|map| Some((map, after(&map.dir, path)?)))?;
        let climbs = has_parent(rest) && (map.has_maps_below || leads_above(rest));
        Some(Below { map, cut: path.len() - rest.len(), climbs })
    }

    /// The map of a path that names one of the agent's own directories, and where in the path that ends.
    pub(super) fn find_own(&self, path: &[u8]) -> Option<(&Map, usize)> {
        self.all.iter().find_map(|map| {
            let rest =
                after_exactly(&map.tree, path).or_else(|| after_exactly(&map.lists, path))?;
            Some((map, path.len() - rest.len()))
        })
    }

    /// Whether a path, as the kernel writes it, names something that is made to be listed.
    pub(super) fn is_list(&self, path: &[u8]) -> bool {
        self.all.iter().any(|map| after_exactly(&map.lists, path).is_some())
    }

    /// Whether an absolute path names a map or one of the agent's own directories by its text.
    pub(super) fn are_named_by(&self, path: &[u8]) -> bool {
        self.all.iter().any(|map| after(&map.dir, path).is_some()) || self.find_own(path).is_some()
    }

    /// Whether this is the directory of a map.
    pub(super) fn has_at(&self, dir: &[u8]) -> bool {
        self.all.iter().any(|map| map.dir == dir)
    }

    /// Whether there is a map below this directory.
    pub(super) fn has_below(&self, dir: &[u8]) -> bool {
        let dir = dir.strip_suffix(b"/").unwrap_or(dir);
        self.all.iter().any(|map| map.dir != dir && after_exactly(dir, &map.dir).is_some())
    }

    /// Whether the path of a map has a directory of this name.
    pub(super) fn have_component(&self, name: &[u8]) -> bool {
        self.all.iter().any(|map| map.dir.split(|byte| *byte == b'/').any(|part| part == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps() -> &'static Maps {
        let map = |dir: &[u8], number: u8| LocalMap {
            dir: dir.to_vec(),
            kind: MapKind::ReadOnly,
            tree: [&b"/cache/tree/"[..], &[number]].concat(),
            lists: [&b"/cache/lists/"[..], &[number]].concat(),
        };
        let told = vec![map(b"/a/data", b'0'), map(b"/a/data/in/out", b'1'), map(b"/b", b'2')];
        Box::leak(Box::new(Maps::new(told, |_| 7)))
    }

    fn found(path: &[u8]) -> Option<(&'static [u8], Vec<u8>, bool)> {
        let below = maps().find(path)?;
        Some((&below.map.dir, path[below.cut..].to_vec(), below.climbs))
    }

    #[test]
    fn a_path_lies_in_the_innermost_map_that_its_text_names() {
        assert_eq!(found(b"/a/data"), Some((&b"/a/data"[..], b"".to_vec(), false)));
        assert_eq!(found(b"//a/.//data/x"), Some((&b"/a/data"[..], b"/x".to_vec(), false)));
        assert_eq!(
            found(b"/a/data/in/out/y"),
            Some((&b"/a/data/in/out"[..], b"/y".to_vec(), false))
        );
        for other in
            [&b"/a/database"[..], b"/a", b"/", b"a/data", b"/a/.data", b"/a/data.", b"/a/../b/x"]
        {
            assert_eq!(found(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_path_that_climbs_is_told() {
        assert!(!found(b"/b/x/../y").unwrap().2);
        assert!(!found(b"/b/x/..y/..").unwrap().2);
        assert!(found(b"/b/x/../../y").unwrap().2);
        assert!(found(b"/b/..").unwrap().2);
        // Here the kernel would pass by the map that lies within.
        assert!(found(b"/a/data/x/../in").unwrap().2);
    }

    #[test]
    fn the_agents_directories_and_those_above_a_map_are_known() {
        let (map, cut) = maps().find_own(b"/cache/lists/2/x").unwrap();
        assert_eq!((map.dir.as_slice(), cut), (&b"/b"[..], b"/cache/lists/2".len()));
        assert!(maps().find_own(b"/cache/tree/20").is_none());
        assert!(maps().is_list(b"/cache/lists/1") && !maps().is_list(b"/cache/tree/1"));
        assert!(
            maps().has_below(b"/a") && maps().has_below(b"/") && maps().has_below(b"/a/data/in")
        );
        assert!(!maps().has_below(b"/b") && !maps().has_below(b"/c"));
    }

    #[test]
    fn dots_are_taken_out_of_a_text() {
        assert_eq!(without_dots(b"/a/./b//../c/"), b"/a/c");
        assert_eq!(without_dots(b"/../.."), b"");
        assert!(has_parent(b"../x") && has_parent(b"/x/..") && !has_parent(b"/x..y/...z"));
    }
}
