//! Whether a path is one of a map. Owns the directories that stand for a map's own one: its tree, its lists
//! and, where the map's directory is there under another name, that one. Decides by the text alone, as all
//! calls of the programs pay for it: that a symlink elsewhere leads into a map is not seen.

/// A path in a map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Which map.
    pub(super) map: usize,
    /// The path below the map's directory: as the program has it, but for slashes at its beginning.
    pub(super) below: Vec<u8>,
}

/// The directories of all maps.
#[derive(Default)]
pub(super) struct Places {
    /// With the longest first.
    prefixes: Vec<(Vec<u8>, usize)>,
}

impl Places {
    /// What is in `dir` is in a map from now on.
    pub(super) fn add(&mut self, dir: &[u8], map: usize) {
        if dir.len() > 1 && !self.prefixes.iter().any(|(path, _)| path == dir) {
            self.prefixes.push((dir.to_vec(), map));
            self.prefixes.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        }
    }

    /// Looks an absolute path up.
    pub(super) fn find(&self, path: &[u8]) -> Option<Place> {
        let is_plain = !path.windows(2).any(|two| two == b"//" || two == b"/.");
        if !is_plain {
            return self.find_by_steps(path);
        }
        self.prefixes.iter().find_map(|(prefix, map)| {
            let below = path.strip_prefix(prefix.as_slice())?;
            (below.is_empty() || below[0] == b'/').then(|| Place::new(*map, below))
        })
    }

    /// Goes along a path until it is in a map. What `..` means in there is the agent's business, since a
    /// symlink may stand before it.
    fn find_by_steps(&self, path: &[u8]) -> Option<Place> {
        let mut so_far = Vec::with_capacity(path.len());
        let mut found = None;
        let mut at = 0;
        while at < path.len() {
            let end =
                path[at..].iter().position(|byte| *byte == b'/').map_or(path.len(), |n| at + n);
            match &path[at..end] {
                b"" | b"." => {}
                b".." if found.is_some() => break,
                b".." => {
                    let last = so_far.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    so_far.truncate(last);
                }
                name => {
                    so_far.push(b'/');
                    so_far.extend_from_slice(name);
                    if let Some((_, map)) = self.prefixes.iter().find(|(dir, _)| *dir == so_far) {
                        found = Some((*map, end));
                    }
                }
            }
            at = end + 1;
        }
        found.map(|(map, end)| Place::new(map, &path[end..]))
    }
}

impl Place {
    fn new(map: usize, below: &[u8]) -> Self {
        let start = below.iter().position(|byte| *byte != b'/').unwrap_or(below.len());
        Self { map, below: below[start..].to_vec() }
    }

    /// The path as the program means it.
    pub(super) fn path(&self, dir: &[u8]) -> Vec<u8> {
        if self.below.is_empty() { dir.to_vec() } else { [dir, b"/", &self.below].concat() }
    }

    /// The path for a call that starts from a directory which stands for the map's own.
    pub(super) fn relative(&self) -> &[u8] {
        if self.below.is_empty() { b"." } else { &self.below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_in_a_map_by_its_text() {
        let mut places = Places::default();
        places.add(b"/h/data", 0);
        places.add(b"/h/data/out", 1);
        places.add(b"/cache/tree/0", 0);
        places.add(b"/", 2);
        let find = |path: &str| {
            let found = places.find(path.as_bytes());
            found.map(|place| (place.map, String::from_utf8(place.below).unwrap()))
        };
        let is = |map, below: &str| Some((map, below.to_owned()));
        assert_eq!(find("/h/data"), is(0, ""));
        assert_eq!(find("/h/data/"), is(0, ""));
        assert_eq!(find("/h/data/f"), is(0, "f"));
        assert_eq!(find("/h/data/d/"), is(0, "d/"));
        assert_eq!(find("/h/data/out/f"), is(1, "f"));
        assert_eq!(find("/cache/tree/0/f"), is(0, "f"));
        assert_eq!(find("/h//data///f"), is(0, "f"));
        assert_eq!(find("/h/./data/./out/f"), is(1, "f"));
        assert_eq!(find("/x/../h/data/f"), is(0, "f"));
        assert_eq!(find("/../h/data/f"), is(0, "f"));
        assert_eq!(find("/h/data/../e"), is(0, "../e"));
        assert_eq!(find("/h/data/.f"), is(0, ".f"));
        assert_eq!(find("/h/data2/f"), None);
        assert_eq!(find("/h/dat"), None);
        assert_eq!(find("/h"), None);
        assert_eq!(find("/h/x/../dat/f"), None);
        assert_eq!(find("/etc/passwd"), None);
        assert_eq!(find("h/data/f"), None);
    }
}
