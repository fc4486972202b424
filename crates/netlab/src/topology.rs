//! The hosts and links of a lab, as a TOML file says them. Checks all of it, so that nothing is made
//! from a file with a mistake; makes nothing itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::quantity;
use crate::shape::Shape;

/// Hosts of one lab at most.
pub const HOSTS_MAX: usize = 64;
/// Links of one lab at most.
pub const LINKS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 32;
/// Room for a link with a round trip of 400 ms at 1 Gbit/s, and as much again.
const TCP_BUFFER_BYTES: u64 = 128 << 20;
const MTU_BYTES: u32 = 1500;

/// The file or the change is not right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TopologyError(String);

fn wrong<T>(text: impl Into<String>) -> Result<T, TopologyError> {
    Err(TopologyError(text.into()))
}

/// A cable between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Indices of the hosts at its two ends.
    pub ends: [usize; 2],
    /// How it behaves, the same in both directions at first.
    pub shape: Shape,
    /// Largest IP packet.
    pub mtu_bytes: u32,
}

/// A whole lab.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The lab's name.
    pub name: String,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// The links.
    pub links: Vec<Link>,
    /// Kernel settings of every host, such as `net.ipv4.tcp_rmem`, to their values.
    pub sysctl: BTreeMap<String, String>,
    /// What loss, jitter and reordering are drawn from.
    pub seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    name: Option<String>,
    between: [String; 2],
    delay: Option<String>,
    jitter: Option<String>,
    rate: Option<String>,
    loss: Option<String>,
    reorder: Option<String>,
    queue: Option<String>,
    lump: Option<String>,
    mtu: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TcpEntry {
    buffer: Option<String>,
    congestion: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: Option<String>,
    hosts: Vec<String>,
    #[serde(default)]
    links: Vec<LinkEntry>,
    #[serde(default)]
    tcp: TcpEntry,
    #[serde(default)]
    sysctl: BTreeMap<String, String>,
    #[serde(default)]
    seed: u64,
}

/// Checks a name of a lab, host or link.
///
/// # Errors
/// A sentence that says how names look.
pub fn check_name(name: &str) -> Result<(), TopologyError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    let good = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= NAME_BYTES_MAX
        && name.chars().all(plain);
    if good {
        return Ok(());
    }
    wrong(format!(
        "'{name}' cannot be a name: use a letter or digit, then letters, digits, '-', '_' and '.', \
         at most {NAME_BYTES_MAX}"
    ))
}

impl LinkEntry {
    fn resolve(self, hosts: &[String]) -> Result<Link, TopologyError> {
        let name = self.name.unwrap_or_else(|| self.between.join("-"));
        check_link_name(&name)?;
        let at = |host: &String| {
            hosts.iter().position(|known| known == host).ok_or_else(|| {
                TopologyError(format!("link '{name}': there is no host '{host}' in 'hosts'"))
            })
        };
        let ends = [at(&self.between[0])?, at(&self.between[1])?];
        if ends[0] == ends[1] {
            return wrong(format!("link '{name}' joins '{}' to itself", self.between[0]));
        }
        let mut shape = Shape::default();
        let settings = [
            ("delay", self.delay),
            ("jitter", self.jitter),
            ("rate", self.rate),
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("queue", self.queue),
            ("lump", self.lump),
        ];
        for (key, value) in settings {
            if let Some(value) = value {
                shape
                    .set(key, &value)
                    .map_err(|why| TopologyError(format!("link '{name}', {key}: {why}")))?;
            }
        }
        let mtu_bytes = self.mtu.unwrap_or(MTU_BYTES);
        if !(576..=65_000).contains(&mtu_bytes) {
            return wrong(format!("link '{name}', mtu: {mtu_bytes} is not from 576 to 65000"));
        }
        Ok(Link { name, ends, shape, mtu_bytes })
    }
}

/// A link may be named after two hosts, so its name may be twice as long.
fn check_link_name(name: &str) -> Result<(), TopologyError> {
    name.splitn(2, '-').try_for_each(check_name)
}

fn check_distinct<'a>(
    what: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), TopologyError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return wrong(format!("there are two {what} with the name '{name}'"));
        }
    }
    Ok(())
}

fn settings_of(
    tcp: &TcpEntry,
    more: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, TopologyError> {
    let buffer = match &tcp.buffer {
        None => TCP_BUFFER_BYTES,
        Some(text) => quantity::parse_bytes(text)
            .map_err(|why| TopologyError(format!("tcp.buffer: {why}")))?,
    };
    if !(65_536..=1 << 30).contains(&buffer) {
        return wrong("tcp.buffer: from 64KiB to 1GiB");
    }
    let mut sysctl = BTreeMap::from([
        ("net.ipv4.tcp_rmem".to_owned(), format!("4096 131072 {buffer}")),
        ("net.ipv4.tcp_wmem".to_owned(), format!("4096 65536 {buffer}")),
        // What one connection learned about a path must not change the next measurement.
        ("net.ipv4.tcp_no_metrics_save".to_owned(), "1".to_owned()),
    ]);
    if let Some(congestion) = &tcp.congestion {
        sysctl.insert("net.ipv4.tcp_congestion_control".to_owned(), congestion.clone());
    }
    for (key, value) in more {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !key.starts_with("net.") || !key.chars().all(plain) || key.contains("..") {
            return wrong(format!(
                "sysctl: '{key}' is not a setting of a host's network, such as net.ipv4.tcp_rmem"
            ));
        }
        sysctl.insert(key, value);
    }
    Ok(sysctl)
}

impl Topology {
    /// Reads a lab from TOML text; `name` is its name if the text gives none.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str, name: &str) -> Result<Self, TopologyError> {
        let document: Document =
            toml::from_str(text).map_err(|error| TopologyError(error.to_string()))?;
        let name = document.name.unwrap_or_else(|| name.to_owned());
        check_name(&name)?;
        let hosts = document.hosts;
        hosts.iter().try_for_each(|host| check_name(host))?;
        check_distinct("hosts", hosts.iter())?;
        if hosts.is_empty() || hosts.len() > HOSTS_MAX {
            return wrong(format!("a lab has from 1 to {HOSTS_MAX} hosts, not {}", hosts.len()));
        }
        if document.links.len() > LINKS_MAX {
            return wrong(format!("a lab has at most {LINKS_MAX} links"));
        }
        let links: Vec<Link> = document
            .links
            .into_iter()
            .map(|entry| entry.resolve(&hosts))
            .collect::<Result<_, _>>()?;
        check_distinct("links", links.iter().map(|link| &link.name))?;
        let sysctl = settings_of(&document.tcp, document.sysctl)?;
        Ok(Self { name, hosts, links, sysctl, seed: document.seed })
    }

    /// Reads a lab from a file, which also gives the name if it says none.
    ///
    /// # Errors
    /// What is wrong with the file, and where.
    pub fn load(path: &Path) -> Result<Self, TopologyError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| TopologyError(format!("cannot read {}: {error}", path.display())))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&text, &stem)
            .map_err(|error| TopologyError(format!("{}: {error}", path.display())))
    }

    /// The index of a host.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host == name)
    }

    /// The index of a link.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }
}

/// A change of a link, from words such as `delay=50ms`, `loss=0`, `down`, `from=client`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Only the direction from this host on; none: both.
    pub from: Option<String>,
    /// Up again, or down.
    pub up: Option<bool>,
    settings: Vec<(String, String)>,
}

impl Change {
    /// Reads the words of a change.
    ///
    /// # Errors
    /// A sentence that says which word is wrong.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, TopologyError> {
        let mut change = Self::default();
        for word in words {
            match word.as_ref().split_once('=') {
                Some(("from", host)) => change.from = Some(host.to_owned()),
                Some((key, value)) => {
                    Shape::default().set(key, value).map_err(TopologyError)?;
                    change.settings.push((key.to_owned(), value.to_owned()));
                }
                None if word.as_ref() == "up" => change.up = Some(true),
                None if word.as_ref() == "down" => change.up = Some(false),
                None => {
                    return wrong(format!(
                        "'{}' is not a change: write KEY=VALUE (keys: {}), up or down",
                        word.as_ref(),
                        Shape::KEYS.join(", ")
                    ));
                }
            }
        }
        if change.up.is_none() && change.settings.is_empty() {
            return wrong("nothing to change: write for example delay=50ms, or down");
        }
        Ok(change)
    }

    /// The shape after the change.
    pub(crate) fn applied(&self, shape: &Shape) -> Shape {
        let mut shape = shape.clone();
        for (key, value) in &self.settings {
            // Was tried when the change was read.
            let _ = shape.set(key, value);
        }
        shape
    }

    /// Whether a direction's shape changes.
    pub(crate) fn shapes(&self) -> bool {
        !self.settings.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        hosts = ["client", "server"]
        [[links]]
        name = "wan"
        between = ["client", "server"]
        delay = "50ms"
        rate = "1gbit"
        loss = "0.1%"
        [tcp]
        buffer = "64MiB"
        [sysctl]
        "net.ipv4.tcp_sack" = "0"
    "#;

    #[test]
    fn a_file_says_hosts_and_links() {
        let lab = Topology::parse(GOOD, "lab").unwrap();
        assert_eq!((lab.name.as_str(), lab.hosts.len()), ("lab", 2));
        let link = &lab.links[lab.link("wan").unwrap()];
        assert_eq!((link.ends, link.mtu_bytes), ([0, 1], 1500));
        assert_eq!(link.shape.delay_ns, 50_000_000);
        assert_eq!(lab.sysctl["net.ipv4.tcp_rmem"], "4096 131072 67108864");
        assert_eq!(lab.sysctl["net.ipv4.tcp_sack"], "0");
        assert_eq!(lab.host("server"), Some(1));
    }

    #[test]
    fn links_are_named_after_their_ends() {
        let text = "hosts = ['a', 'b']\nlinks = [{ between = ['a', 'b'] }]";
        assert_eq!(Topology::parse(text, "x").unwrap().links[0].name, "a-b");
    }

    #[test]
    fn mistakes_are_told() {
        for (text, says) in [
            ("hosts = 3", "hosts"),
            ("hosts = []", "1 to 64"),
            ("hosts = ['a', 'a']", "two hosts"),
            ("hosts = ['a b']", "'a b'"),
            ("hosts = ['a']\nlinks = [{ between = ['a', 'b'] }]", "no host 'b'"),
            ("hosts = ['a']\nlinks = [{ between = ['a', 'a'] }]", "itself"),
            (
                "hosts = ['a','b']\nlinks = [{ between = ['a','b'], delay = '5' }]",
                "link 'a-b', delay",
            ),
            ("hosts = ['a','b']\nlinks = [{ between = ['a','b'], latency = '5ms' }]", "latency"),
            ("hosts = ['a','b']\nlinks = [{ between = ['a','b'], mtu = 7 }]", "576"),
            ("hosts = ['a']\n[sysctl]\n'kernel.x' = '1'", "kernel.x"),
            ("hosts = ['a']\n[tcp]\nbuffer = '1x'", "tcp.buffer"),
            ("hosts = ['a'", "TOML"),
        ] {
            let error = Topology::parse(text, "x").unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn changes_are_words() {
        let change = Change::parse(&["delay=5ms", "loss=1%", "from=a", "up"]).unwrap();
        assert_eq!((change.from.as_deref(), change.up), (Some("a"), Some(true)));
        let shape = change.applied(&Shape::default());
        assert_eq!((shape.delay_ns, shape.loss), (5_000_000, 0.01));
        for words in [&["delay"][..], &["delay=5"], &["speed=1gbit"], &[], &["from=a"]] {
            assert!(Change::parse(words).is_err(), "{words:?}");
        }
    }
}
