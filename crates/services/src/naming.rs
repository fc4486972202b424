//! Paths of a job as paths of a service. Owns which names a service can have at all: `opendal` cuts blanks off
//! the ends of a path, which would lead to another file, and knows text only.

use rustix::io::Errno;

/// The path in the service of a path in the map.
///
/// # Errors
/// `EILSEQ` if it is not UTF-8, `EINVAL` if it holds names that a service cannot have.
pub(crate) fn path_of(base: &str, path: &[u8]) -> Result<String, Errno> {
    let path = std::str::from_utf8(path).map_err(|_| Errno::ILSEQ)?;
    if path.is_empty() {
        return Ok(base.to_owned());
    }
    if !path.split('/').all(is_name) {
        return Err(Errno::INVAL);
    }
    let whole = if base.is_empty() { path.to_owned() } else { format!("{base}/{path}") };
    if whole.trim() == whole { Ok(whole) } else { Err(Errno::INVAL) }
}

/// The same as a directory: with a slash at its end.
pub(crate) fn dir_of(path: &str) -> String {
    if path.is_empty() { "/".to_owned() } else { format!("{path}/") }
}

/// Whether a file of a POSIX directory can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    const NAME_BYTES_MAX: usize = 255;
    !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX && !name.contains(['/', '\0'])
}

/// The path of a file that is not whole yet, beside the one that it becomes.
pub(crate) fn partial_of(path: &str, mark: u32) -> String {
    /// So many bytes of the name are kept.
    const KEPT_NAME_BYTES: usize = 200;
    let (above, name) = path.rsplit_once('/').map_or(("", path), |(above, name)| (above, name));
    let end = (0..=name.len().min(KEPT_NAME_BYTES)).rev().find(|end| name.is_char_boundary(*end));
    let partial = format!(".{}.azekura-{mark:08x}", &name[..end.unwrap_or_default()]);
    if above.is_empty() { partial } else { format!("{above}/{partial}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_service_cannot_have_are_refused() {
        assert_eq!(path_of("p q", b"a b/c").unwrap(), "p q/a b/c");
        assert_eq!(path_of("", b"").unwrap(), "");
        for path in [&b"a/../b"[..], b"a//b", b"x ", b"x\n", b".", b"a\0b"] {
            assert_eq!(path_of("p", path), Err(Errno::INVAL), "{path:?}");
        }
        assert_eq!(path_of("", b" x"), Err(Errno::INVAL));
        assert_eq!(path_of("p", b" x").unwrap(), "p/ x");
        assert_eq!(path_of("p", b"\xff"), Err(Errno::ILSEQ));
    }

    #[test]
    fn partial_names_fit_and_stand_beside() {
        assert_eq!(partial_of("a/b", 1), "a/.b.azekura-00000001");
        let long = "ö".repeat(127);
        let partial = partial_of(&long, 1);
        assert!(partial.len() <= 255 && partial.starts_with(".ö"), "{partial}");
    }
}
