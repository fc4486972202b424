//! Paths in containers, taken apart and put together as text.

/// A path split into the directory above and the last name. `None` for the root.
pub(crate) fn split_last(path: &str) -> Option<(&str, &str)> {
    let path = path.trim_end_matches('/');
    let (above, name) = path.rsplit_once('/')?;
    Some((if above.is_empty() { "/" } else { above }, name))
}

/// The path of `name` in the directory `dir`.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_apart_and_together() {
        assert_eq!(split_last("/a/b/"), Some(("/a", "b")));
        assert_eq!(split_last("/a"), Some(("/", "a")));
        assert_eq!(split_last("/"), None);
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
    }
}
