//! Names that people type: `POOL[/CONTAINER][:/PATH]`. Owns their syntax; knows nothing of whether
//! what they name is there.

use std::fmt;
use std::str::FromStr;

/// The container that every pool is made with.
pub(crate) const DEFAULT_CONTAINER: &str = "default";
/// Longest name of a pool or container, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Checks the name of a pool or container.
///
/// # Errors
/// A sentence that says which names there are.
pub(crate) fn check_name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        && text.as_bytes()[0].is_ascii_alphanumeric();
    if fits {
        return Ok(text.to_owned());
    }
    Err(format!(
        "'{text}' is not a name: up to {NAME_BYTES_MAX} letters, digits, '_', '-' and '.', a \
         letter or digit first"
    ))
}

/// A container as people name it: `POOL` or `POOL/CONTAINER`, where `POOL` is a name, the path of
/// a pool file (`.toml`) or a URL (its container then stands behind `#`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerName {
    /// Name, file or URL of the pool.
    pub pool: String,
    container: Option<String>,
}

impl ContainerName {
    /// The container's name.
    pub(crate) fn container(&self) -> &str {
        self.container.as_deref().unwrap_or(DEFAULT_CONTAINER)
    }

    /// Another container of the same pool.
    #[must_use]
    pub(crate) fn with_container(self, name: String) -> Self {
        Self { container: Some(name), ..self }
    }
}

impl FromStr for ContainerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pool, container) = if text.starts_with("azekura://") {
            text.split_once('#').map_or((text, None), |(pool, name)| (pool, Some(name)))
        } else if let Some((file, rest)) = text.split_once(".toml") {
            if !rest.is_empty() && !rest.starts_with('/') {
                return Err(format!("'{text}' is neither a pool nor a pool file"));
            }
            (&text[..file.len() + ".toml".len()], rest.strip_prefix('/'))
        } else {
            let (pool, container) =
                text.split_once('/').map_or((text, None), |(pool, name)| (pool, Some(name)));
            check_name(pool).map_err(|wrong| instead_of_place(text).unwrap_or(wrong))?;
            (pool, container)
        };
        let container = container.map(check_name).transpose();
        let container = container.map_err(|wrong| instead_of_place(text).unwrap_or(wrong))?;
        Ok(Self { pool: pool.to_owned(), container })
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pool)?;
        match &self.container {
            Some(name) if self.pool.starts_with("azekura://") => write!(f, "#{name}"),
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}

/// What to write instead of a place in a container where a pool or container is meant; `None` if the
/// text does not look like a place.
pub(crate) fn instead_of_place(text: &str) -> Option<String> {
    let (container, path) = text.split_once(':').filter(|_| !text.starts_with("azekura://"))?;
    container.parse::<ContainerName>().ok()?;
    let path = path.trim_start_matches('/');
    Some(format!(
        "'{text}' is a place in a container, and the container alone is meant: write '{container}' \
         (the commands of 'azekura fs' work on {container}:/{path})"
    ))
}

/// A place in a container: `POOL[/CONTAINER]:/PATH`. Without `:` it is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The container.
    pub(crate) container: ContainerName,
    /// Absolute path in it.
    pub(crate) path: String,
}

impl Location {
    /// Splits a text that has the form of a location. `None` for anything else, such as a local
    /// path: those start with `/` or `.`, or have no `:/` in them.
    fn split(text: &str) -> Option<(&str, &str)> {
        let scheme = if text.starts_with("azekura://") { "azekura://".len() } else { 0 };
        let rest = &text[scheme..];
        let at = match rest.find(":/") {
            Some(at) => at,
            None => rest.strip_suffix(':')?.len(),
        };
        let (container, path) = (&text[..scheme + at], &text[scheme + at + 1..]);
        let is_local = text.starts_with(['/', '.']) && !container.contains(".toml");
        (!is_local && !container.is_empty()).then_some((container, path))
    }

    /// A location if the text has the form of one; `None` for a local path.
    ///
    /// # Errors
    /// If it has the form but a name in it is wrong.
    pub(crate) fn recognise(text: &str) -> Result<Option<Self>, String> {
        let Some((container, path)) = Self::split(text) else { return Ok(None) };
        let path = if path.is_empty() { "/" } else { path };
        Ok(Some(Self { container: container.parse()?, path: path.to_owned() }))
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Self::recognise(text)? {
            Some(location) => Ok(location),
            None if text.starts_with(['/', '.']) && !text.contains(".toml") => Err(format!(
                "'{text}' is a path of this machine: write POOL:/path, such as default:{}",
                if text.starts_with('/') { text } else { "/dir" }
            )),
            None => match text.split_once(':') {
                Some((container, path)) if container.parse::<ContainerName>().is_ok() => Err(
                    format!("'{text}' is not a place in a container: write {container}:/{path}"),
                ),
                _ => Ok(Self { container: text.parse()?, path: "/".to_owned() }),
            },
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.container, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_named_in_every_form() {
        for (text, pool, container) in [
            ("default", "default", "default"),
            ("p/c", "p", "c"),
            ("./pool.toml", "./pool.toml", "default"),
            ("/etc/pool.toml/c", "/etc/pool.toml", "c"),
            ("azekura://h:1/p?secret_file=/s", "azekura://h:1/p?secret_file=/s", "default"),
            ("azekura://h:1/p#c", "azekura://h:1/p", "c"),
        ] {
            let name: ContainerName = text.parse().unwrap();
            assert_eq!((name.pool.as_str(), name.container()), (pool, container), "{text}");
            assert_eq!(name.to_string(), text);
        }
        for text in ["", "a/b/c", "-x", "a b", "x/"] {
            assert!(text.parse::<ContainerName>().is_err(), "{text}");
        }
    }

    #[test]
    fn locations_are_told_from_local_paths() {
        let location: Location = "p/c:/a b:/d".parse().unwrap();
        assert_eq!(location.container.to_string(), "p/c");
        assert_eq!(location.path, "/a b:/d");
        assert_eq!("p".parse::<Location>().unwrap().path, "/");
        assert_eq!("p:".parse::<Location>().unwrap().path, "/");
        assert_eq!("azekura://h:1/p:/x".parse::<Location>().unwrap().path, "/x");
        assert_eq!("/etc/p.toml:/x".parse::<Location>().unwrap().container.pool, "/etc/p.toml");
        for local in ["/a", "./a:/b", "a", "dir/a", "C", "/a:/b"] {
            assert_eq!(Location::recognise(local), Ok(None), "{local}");
        }
        assert!("/a".parse::<Location>().is_err());
    }

    #[test]
    fn a_wrong_form_is_answered_with_the_right_one() {
        let wrong = |text: &str| text.parse::<ContainerName>().unwrap_err();
        for text in ["p:/dir", "p:", "p:file"] {
            assert!(wrong(text).contains("write 'p'"), "{}", wrong(text));
        }
        assert!(wrong("p/c:/dir").contains("write 'p/c'"));
        assert!(wrong("p q").contains("is not a name"));
        assert!("p:dir/f".parse::<Location>().unwrap_err().contains("write p:/dir/f"));
        assert_eq!(instead_of_place("azekura://h:1/p"), None);
        assert_eq!(instead_of_place("/dir/pool.toml"), None);
    }
}
