//! Addresses of services, as people type them: URLs. Owns their syntax, and the rule that nothing secret is
//! part of one: addresses stand on command lines, in messages and in manifests.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use url::Url;

/// Settings that only the environment may have.
const SECRETS: [&str; 6] =
    ["access_key_id", "secret_access_key", "session_token", "password", "token", "delegation"];

/// A kind of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A directory of this host.
    Local,
    /// A bucket of S3 or of what speaks like it.
    S3,
    /// A WebDAV server.
    WebDav,
    /// A host's files by ssh.
    Sftp,
    /// HDFS through the HTTP interface of its name node.
    WebHdfs,
}

impl Kind {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local files",
            Self::S3 => "S3",
            Self::WebDav => "WebDAV",
            Self::Sftp => "SFTP",
            Self::WebHdfs => "WebHDFS",
        }
    }

    fn form(self) -> &'static str {
        match self {
            Self::Local => "file:///PATH",
            Self::S3 => "s3://BUCKET/PREFIX",
            Self::WebDav => "webdav://HOST[:PORT]/PATH or webdavs://...",
            Self::Sftp => "sftp://[USER@]HOST[:PORT]/PATH",
            Self::WebHdfs => "webhdfs://HOST:PORT/PATH or swebhdfs://...",
        }
    }

    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Local => &[],
            Self::S3 => {
                &["endpoint", "region", "virtual_host", "anonymous", "checksum", "storage_class"]
            }
            Self::WebDav | Self::WebHdfs => &["user"],
            Self::Sftp => &["key", "known_hosts"],
        }
    }
}

/// Where a service is, and what is meant there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    text: String,
    pub(crate) kind: Kind,
    /// Whether an HTTP service is reached by TLS.
    pub(crate) is_tls: bool,
    /// The bucket or the host.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) user: Option<String>,
    /// The path without slashes around it.
    pub(crate) base: String,
    settings: BTreeMap<String, String>,
    /// Of local files, whose names are any bytes.
    dir: Option<PathBuf>,
}

impl Address {
    /// Whether a text is an address rather than something else: it has the form `SCHEME://`.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty()
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
        })
    }

    /// The directory, if it is one of this host.
    pub fn local_dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Whether what is at this address is part of what is at another, or the same.
    pub fn is_within(&self, other: &Self) -> bool {
        let place = |address: &Self| {
            (address.kind, address.host.clone(), address.port, address.setting("endpoint"))
        };
        let below = self.base.strip_prefix(&other.base);
        place(self) == place(other)
            && self.dir.is_none()
            && below.is_some_and(|rest| {
                other.base.is_empty() || rest.is_empty() || rest.starts_with('/')
            })
    }

    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        self.settings.get(name).cloned()
    }

    /// A setting that is yes or no.
    pub(crate) fn is_set(&self, name: &str) -> Result<bool, String> {
        match self.settings.get(name).map(String::as_str) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(other) => {
                Err(format!("{name}={other} in {self} means nothing: write true or false"))
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The kind of service that a scheme names, and whether it is reached by TLS.
fn kind_of(scheme: &str) -> Result<(Kind, bool), String> {
    Ok(match scheme {
        "file" | "fs" => (Kind::Local, false),
        "s3" => (Kind::S3, true),
        "webdav" => (Kind::WebDav, false),
        "webdavs" => (Kind::WebDav, true),
        "sftp" => (Kind::Sftp, true),
        "webhdfs" => (Kind::WebHdfs, false),
        "swebhdfs" => (Kind::WebHdfs, true),
        "hdfs" => {
            return Err(
                "hdfs:// needs Java and libhdfs, which are not part of this program: write \
                 webhdfs://HOST:PORT/PATH with the HTTP port of the name node (usually 9870)"
                    .to_owned(),
            );
        }
        "http" | "https" => {
            return Err(format!(
                "{scheme}:// lists no directories: for a WebDAV server write webdav{}://",
                &scheme[4..]
            ));
        }
        _ => {
            return Err(format!(
                "{scheme}:// is no service that is known here: there are s3, webdav, webdavs, sftp, \
                 webhdfs, swebhdfs and file; a place in a pool is POOL:/path"
            ));
        }
    })
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let (kind, is_tls) = kind_of(scheme)?;
        // What is behind an '@' may be wrong, and what is before it secret: such a text is not repeated.
        let url = Url::parse(text).map_err(|error| {
            format!("a {scheme}:// address is {}, and this one is not: {error}", kind.form())
        })?;
        if url.password().is_some() {
            return Err(format!(
                "a password stands in the {scheme}:// address, where everybody sees it: {}",
                in_environment(kind)
            ));
        }
        if url.fragment().is_some() {
            return Err(format!("'#' in {text} has to be written as %23"));
        }
        let settings = settings_of(kind, &url)?;
        let host = decoded(url.host_str().unwrap_or_default(), text)?;
        let wrong = || format!("{text}: this kind of address is {}", kind.form());
        let mut address = Self {
            text: text.to_owned(),
            kind,
            is_tls,
            host,
            port: url.port(),
            user: Some(decoded(url.username(), text)?).filter(|user| !user.is_empty()),
            base: String::new(),
            settings,
            dir: None,
        };
        if kind == Kind::Local {
            let path = percent_decode_str(url.path()).collect();
            let path = PathBuf::from(OsString::from_vec(path));
            let is_plain = path.components().all(|part| part != Component::ParentDir);
            if !address.host.is_empty() || !path.is_absolute() || !is_plain {
                return Err(wrong());
            }
            address.dir = Some(path.components().collect());
            return Ok(address);
        }
        if address.host.is_empty() || (kind == Kind::S3 && address.user.is_some()) {
            return Err(wrong());
        }
        let path = decoded(url.path(), text)?;
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        address.base = parts.join("/");
        if address.base.trim() != address.base {
            return Err(format!("{text}: a path that begins or ends with a blank is not possible"));
        }
        Ok(address)
    }
}

fn decoded(text: &str, whole: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| format!("{whole}: what its %.. mean is not UTF-8"))
}

fn settings_of(kind: Kind, url: &Url) -> Result<BTreeMap<String, String>, String> {
    let mut settings = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        let scheme = url.scheme();
        if SECRETS.contains(&name.as_ref()) {
            return Err(format!(
                "'{name}' is a secret and cannot stand in a {scheme}:// address: {}",
                in_environment(kind)
            ));
        }
        if !kind.settings().contains(&name.as_ref()) {
            let known = match kind.settings() {
                [] => "none".to_owned(),
                known => known.join(", "),
            };
            return Err(format!(
                "'{name}' is no setting of {scheme}:// addresses; there are: {known} ('?' in a path \
                 has to be written as %3F)"
            ));
        }
        settings.insert(name.into_owned(), value.into_owned());
    }
    Ok(settings)
}

/// Where a service's secrets are to be put.
pub(crate) fn in_environment(kind: Kind) -> &'static str {
    match kind {
        Kind::Local => "local files need none",
        Kind::S3 => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN where it is \
             needed), or AWS_PROFILE"
        }
        Kind::WebDav => "set WEBDAV_USERNAME and WEBDAV_PASSWORD, or WEBDAV_TOKEN",
        Kind::Sftp => "use a key: an ssh agent's, one of ~/.ssh/config, or ?key=FILE",
        Kind::WebHdfs => "set HADOOP_USER_NAME, or WEBHDFS_DELEGATION to a delegation token",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn wrong(text: &str) -> String {
        text.parse::<Address>().unwrap_err()
    }

    #[test]
    fn addresses_have_hosts_paths_and_settings() {
        let s3 = address("s3://bucket/a%20b//c%25/?endpoint=http://h:9000&region=x");
        assert_eq!((s3.kind, s3.host.as_str(), s3.base.as_str()), (Kind::S3, "bucket", "a b/c%"));
        assert_eq!(s3.setting("endpoint").unwrap(), "http://h:9000");
        let sftp = address("sftp://me@host:2222/data/@x=1");
        assert_eq!((sftp.user.as_deref(), sftp.port), (Some("me"), Some(2222)));
        assert_eq!(sftp.base, "data/@x=1");
        assert_eq!(address("webdavs://h/").base, "");
        assert_eq!(address("file:///a%20b/").local_dir(), Some(Path::new("/a b")));
        assert!(Address::is_meant("nope://x") && !Address::is_meant("default:/x"));
    }

    #[test]
    fn what_cannot_be_says_what_to_write() {
        assert!(wrong("hdfs://h/x").contains("webhdfs://"));
        assert!(wrong("https://h/x").contains("webdavs://"));
        assert!(wrong("gs://b/x").contains("s3, webdav"));
        assert!(wrong("s3:///x").contains("s3://BUCKET/PREFIX"));
        assert!(wrong("s3://b/x?regoin=y").contains("endpoint, region"));
        assert!(wrong("s3://b/x#y").contains("%23"));
        assert!(wrong("file://host/x").contains("file:///PATH"));
        assert!(wrong("webdav://h/%ff").contains("UTF-8"));
    }

    #[test]
    fn secrets_are_refused_and_not_repeated() {
        for text in ["webdav://me:geheim@h/x", "s3://b/x?secret_access_key=geheim"] {
            let wrong = wrong(text);
            assert!(wrong.contains("set ") && !wrong.contains("geheim"), "{wrong}");
        }
    }

    #[test]
    fn addresses_lie_in_each_other() {
        let outer = address("s3://b/a");
        assert!(address("s3://b/a/x").is_within(&outer) && outer.is_within(&address("s3://b")));
        for other in ["s3://b/ab", "s3://c/a/x", "s3://b/a?endpoint=http://h", "webdav://b/a"] {
            assert!(!address(other).is_within(&outer), "{other}");
        }
    }
}
