//! `exports.toml`. Owns its form and every complaint about it: each names the file, the line, and what
//! to write instead. What does not say exactly what it means is refused, for a mistake here opens
//! files to strangers.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azekura_proto::ContainerId;
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::export::{Export, Flavour, Squash};
use super::groups::GroupCache;
use crate::handle::ExportId;

/// `nobody` and `nogroup` nearly everywhere.
const NOBODY: u32 = 65534;

/// All exports of a gateway.
#[derive(Clone, Debug)]
pub struct Exports(Vec<Export>);

/// Why the exports cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExportsError {
    /// The file cannot be read.
    #[error("cannot read the exports in {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// It does not say what is exported to whom.
    #[error("{}{}: {what}", path.display(), Line(*line))]
    Refused {
        /// The file.
        path: PathBuf,
        /// Its line, counted from 1, if one is to blame.
        line: Option<usize>,
        /// What is wrong, and what to write.
        what: String,
    },
}

struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    #[serde(default)]
    export: Vec<ExportOnDisk>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportOnDisk {
    path: Spanned<String>,
    clients: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    squash: Squash,
    #[serde(default = "nobody")]
    anonymous_uid: u32,
    #[serde(default = "nobody")]
    anonymous_gid: u32,
    #[serde(default = "by_sys")]
    auth: Vec<Flavour>,
    #[serde(default)]
    server_groups: bool,
}

fn nobody() -> u32 {
    NOBODY
}

fn by_sys() -> Vec<Flavour> {
    vec![Flavour::Sys]
}

/// What is wrong, and where in the text.
struct Complaint {
    at: Option<Range<usize>>,
    what: String,
}

impl Complaint {
    fn at(at: Range<usize>, what: String) -> Self {
        Self { at: Some(at), what }
    }
}

impl Exports {
    /// Reads the exports of a container from a file.
    ///
    /// # Errors
    /// If it cannot be read, or says anything that is not clear.
    pub fn load(path: &Path, container: ContainerId) -> Result<Self, ExportsError> {
        let io = |source| ExportsError::Io { path: path.to_owned(), source };
        Self::parse(&std::fs::read_to_string(path).map_err(io)?, path, container)
    }

    /// Takes the text of `file`, which complaints name.
    ///
    /// # Errors
    /// If it says anything that is not clear.
    pub fn parse(text: &str, file: &Path, container: ContainerId) -> Result<Self, ExportsError> {
        Self::read(text, container).map_err(|complaint| ExportsError::Refused {
            path: file.to_owned(),
            line: complaint.at.map(|at| line_of(text, at.start)),
            what: complaint.what,
        })
    }

    /// The container's root, for this host alone: what is exported unless something else is said. Its
    /// users are who the kernel says.
    pub fn whole_container_to_loopback(container: ContainerId) -> Self {
        let loopback = ["127.0.0.0/8", "::1/128"];
        Self(vec![Export {
            id: ExportId::of(container, "/"),
            path: "/".to_owned(),
            clients: loopback.iter().filter_map(|network| network.parse().ok()).collect(),
            read_only: false,
            squash: Squash::Owner,
            anonymous: (NOBODY, NOBODY),
            flavours: by_sys(),
            server_groups: Some(Arc::new(GroupCache::of_host())),
        }])
    }

    /// All of them, as MOUNT's EXPORT procedure lists them.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.0.iter()
    }

    /// The export that the path belongs to: the innermost one, if one lies in another. The path need
    /// not be normalised; one that climbs belongs to none.
    pub fn find(&self, path: &str) -> Option<&Export> {
        let path = normalised(path)?;
        let holding = self.0.iter().filter(|export| export.holds(&path));
        holding.max_by_key(|export| export.path.len())
    }

    /// The export that a handle names; `None` if it is not exported any more.
    pub fn by_id(&self, id: ExportId) -> Option<&Export> {
        self.0.iter().find(|export| export.id == id)
    }

    fn read(text: &str, container: ContainerId) -> Result<Self, Complaint> {
        let disk: OnDisk = toml::from_str(text)
            .map_err(|error| Complaint { at: error.span(), what: error.message().to_owned() })?;
        // One for all exports: they ask the same host.
        let host = Arc::new(GroupCache::of_host());
        let mut exports: Vec<Export> = Vec::with_capacity(disk.export.len());
        for entry in disk.export {
            let at = entry.path.span();
            let export = entry.into_export(container, &host)?;
            if exports.iter().any(|other| other.id == export.id) {
                let what = format!(
                    "{} is exported twice: write one [[export]] for it that lists all its clients",
                    export.path
                );
                return Err(Complaint::at(at, what));
            }
            exports.push(export);
        }
        if exports.is_empty() {
            let what = "nothing is exported: write an [[export]] with a path and clients";
            return Err(Complaint { at: None, what: what.to_owned() });
        }
        Ok(Self(exports))
    }
}

impl ExportOnDisk {
    fn into_export(
        self,
        container: ContainerId,
        host: &Arc<GroupCache>,
    ) -> Result<Export, Complaint> {
        let at = self.path.span();
        let path = normalised(self.path.get_ref()).ok_or_else(|| {
            let what = format!(
                "'{}' is no path in the container: write one that begins with / and has no '..'",
                self.path.get_ref()
            );
            Complaint::at(at.clone(), what)
        })?;
        if self.clients.get_ref().is_empty() {
            let what = format!(
                "{path} is exported to nobody: write networks or addresses, as \"10.1.0.0/16\""
            );
            return Err(Complaint::at(self.clients.span(), what));
        }
        if self.auth.is_empty() {
            let what = format!("{path} takes no credentials: write auth = [\"sys\"]");
            return Err(Complaint::at(at, what));
        }
        let clients = self.clients.into_inner().iter().map(network).collect::<Result<_, _>>()?;
        Ok(Export {
            id: ExportId::of(container, &path),
            path,
            clients,
            read_only: self.read_only,
            squash: self.squash,
            anonymous: (self.anonymous_uid, self.anonymous_gid),
            flavours: self.auth,
            server_groups: (self.server_groups || self.squash == Squash::Owner)
                .then(|| Arc::clone(host)),
        })
    }
}

/// A network, or a single address. Networks inside IPv4-mapped addresses would match nobody, since
/// clients are compared by their plain address.
fn network(text: &Spanned<String>) -> Result<IpNet, Complaint> {
    let written = text.get_ref();
    let parsed = match written.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address.to_canonical())),
        Err(_) => written.parse::<IpNet>().ok(),
    };
    let is_mapped = |network: &IpNet| network.network() != network.network().to_canonical();
    parsed.filter(|network| !is_mapped(network)).ok_or_else(|| {
        let what = format!(
            "'{written}' is neither an address nor a network: write \"10.1.2.3\", \"10.1.0.0/16\" \
             or \"fd00::/8\" (names are not looked up)"
        );
        Complaint::at(text.span(), what)
    })
}

/// The path with one slash before each name and none at the end; `None` if it is relative, climbs, or
/// holds what no name may hold.
fn normalised(path: &str) -> Option<String> {
    if !path.starts_with('/') || path.contains('\0') {
        return None;
    }
    let mut clean = String::with_capacity(path.len());
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            return None;
        }
        clean.push('/');
        clean.push_str(name);
    }
    Some(if clean.is_empty() { "/".to_owned() } else { clean })
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}
