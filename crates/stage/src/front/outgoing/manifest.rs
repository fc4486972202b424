//! The record of a stage-out: lines of JSON, written as it goes on, from which what did not come home is sent
//! later. Owns the form: a header, what is to be sent, what became of it, a summary; a job that sends several
//! times adds to the end. Paths keep all their bytes: what is no text, control characters and `%` are `%XX`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use azekura_proto::staging::{JobId, MapKind, NodeId};
use serde::{Deserialize, Serialize};

use crate::front::outgoing::compare::{Job, Task};
use crate::front::outgoing::report::OutReport;
use crate::job::MapDescription;

const FORMAT: u32 = 1;

/// A manifest as it was read.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The job.
    pub job: JobId,
    /// Its nodes, and their names in the list of hosts.
    pub nodes: Vec<(NodeId, String)>,
    /// Its maps.
    pub maps: Vec<MapDescription>,
    /// What whoever started the job wrote down to start it again.
    pub note: BTreeMap<String, String>,
    /// What has not come home.
    pub(crate) unsent: Vec<Unsent>,
    /// Nodes that were lost before they said what they have to send.
    unlisted: BTreeSet<NodeId>,
    /// How long it is without a last line that was cut, in bytes.
    whole_bytes: u64,
}

/// Something that has not come home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unsent {
    pub(crate) map: u16,
    pub(crate) path: Vec<u8>,
    pub(crate) node: NodeId,
    pub(crate) kind: Kind,
    pub(crate) at: Vec<u8>,
}

/// What has not come home, with the line that says it was to.
type Open = HashMap<(u16, Vec<u8>, NodeId, Kind), (usize, Unsent)>;

/// Why a manifest is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It cannot be read, or not be added to.
    #[error("cannot use the manifest {}: {source}", path.display())]
    Io {
        /// Where it is.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It is not a manifest, or was changed.
    #[error("{} is not a manifest of a stage-out: line {line}: {why}", path.display())]
    Wrong {
        /// Where it is.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// It is that of another job.
    #[error("the manifest {} is of another job: {why}", path.display())]
    OtherJob {
        /// Where it is.
        path: PathBuf,
        /// What differs.
        why: String,
    },
}

/// What something is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    Removal,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum Line {
    Header(Header),
    /// Nodes have said what they have, but for these. The last such line holds.
    Listed {
        missing: BTreeSet<NodeId>,
    },
    ToSend(Entry),
    Sent(Entry),
    Deleted(Entry),
    Failed(Entry),
    Summary {
        files: u64,
        bytes: u64,
        failed: usize,
        conflicts: usize,
        right: bool,
        seconds: f64,
    },
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    job: String,
    /// Seconds since 1970.
    begun: u64,
    hosts: Vec<(u16, String)>,
    maps: Vec<(String, MapKind)>,
    note: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    map: String,
    path: String,
    node: u16,
    kind: Kind,
    /// Where it stands at home, if that is another path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// XXH3-64 of the file's bytes, as `xxhsum -H3` gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// What became of something.
pub(crate) enum Outcome<'a> {
    Sent { bytes: Option<u64>, digest: Option<u64> },
    Deleted,
    Failed(&'a str),
}

/// What a manifest says of its job.
pub(crate) struct About<'a> {
    pub(crate) job: JobId,
    pub(crate) hosts: &'a BTreeMap<NodeId, String>,
    pub(crate) maps: &'a [MapDescription],
    pub(crate) note: &'a BTreeMap<String, String>,
}

/// A manifest that is being written.
pub(crate) struct Writer {
    file: File,
    maps: Vec<String>,
    unlisted: BTreeSet<NodeId>,
}

impl Writer {
    /// Begins a manifest, or goes on with the one of this job.
    pub(crate) fn open(path: &Path, about: &About) -> Result<Self, ManifestError> {
        let failed = |source| ManifestError::Io { path: path.to_owned(), source };
        let maps = about.maps.iter().map(|map| encode(&map.dir)).collect::<Vec<_>>();
        let is_there = std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
        if is_there {
            let manifest = Manifest::read(path)?;
            manifest.check(path, about)?;
            let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
            file.set_len(manifest.whole_bytes).map_err(failed)?;
            return Ok(Self { file, maps, unlisted: manifest.unlisted });
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let mut writer = Self { file, maps, unlisted: BTreeSet::new() };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let kinds = about.maps.iter().map(|map| map.kind);
        let header = Header {
            format: FORMAT,
            job: about.job.to_hex(),
            begun: since.map_or(0, |since| since.as_secs()),
            hosts: about.hosts.iter().map(|(node, host)| (node.0, host.clone())).collect(),
            maps: writer.maps.iter().cloned().zip(kinds).collect(),
            note: about.note.clone(),
        };
        writer.write(&[Line::Header(header)]).map_err(failed)?;
        Ok(writer)
    }

    /// All nodes have said what they have, but for these.
    pub(crate) fn listed(&mut self, missing: BTreeSet<NodeId>) -> io::Result<()> {
        if missing == self.unlisted {
            return Ok(());
        }
        self.unlisted.clone_from(&missing);
        self.write(&[Line::Listed { missing }])
    }

    /// What is to be sent.
    pub(crate) fn plan<'a>(&mut self, tasks: impl Iterator<Item = &'a Task>) -> io::Result<()> {
        let lines: Vec<_> = tasks.map(|task| Line::ToSend(self.entry(task))).collect();
        self.write(&lines)
    }

    /// What became of something.
    pub(crate) fn record(&mut self, task: &Task, outcome: &Outcome) -> io::Result<()> {
        let mut entry = self.entry(task);
        let line = match outcome {
            Outcome::Sent { bytes, digest } => {
                entry.bytes = *bytes;
                entry.digest = digest.map(|digest| format!("{digest:016x}"));
                Line::Sent(entry)
            }
            Outcome::Deleted => Line::Deleted(entry),
            Outcome::Failed(why) => {
                entry.why = Some((*why).to_owned());
                Line::Failed(entry)
            }
        };
        self.write(&[line])
    }

    /// The end of a stage-out.
    pub(crate) fn end(&mut self, report: &OutReport) -> io::Result<()> {
        self.write(&[Line::Summary {
            files: report.files,
            bytes: report.bytes,
            failed: report.failed.len(),
            conflicts: report.conflicts.len(),
            right: report.is_right(),
            seconds: report.seconds,
        }])?;
        self.file.sync_all()
    }

    fn entry(&self, task: &Task) -> Entry {
        let bytes = match task.job {
            Job::File { bytes, .. } => Some(bytes),
            _ => None,
        };
        Entry {
            map: self.maps[usize::from(task.place.map)].clone(),
            path: encode(&task.place.path),
            node: task.node.0,
            kind: Kind::of(&task.job),
            at: (task.at != task.place.path).then(|| encode(&task.at)),
            bytes,
            digest: None,
            why: None,
        }
    }

    fn write(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)
    }
}

impl Kind {
    pub(crate) fn of(job: &Job) -> Self {
        match job {
            Job::File { .. } | Job::Linked { .. } => Self::File,
            Job::Directory { .. } => Self::Directory,
            Job::Link { .. } => Self::Link,
            Job::Remove => Self::Removal,
        }
    }
}

impl Manifest {
    /// Reads a manifest. A last line that was cut when it was written is left out.
    ///
    /// # Errors
    /// If it cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        let text = std::fs::read(path)
            .map_err(|source| ManifestError::Io { path: path.to_owned(), source })?;
        let whole_bytes = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole_bytes].split(|byte| *byte == b'\n').enumerate();
        let wrong = |line: usize, why: String| {
            let path = path.to_owned();
            ManifestError::Wrong { path, line: line + 1, why }
        };
        let first = lines.next().map(|(_, line)| line).unwrap_or_default();
        let mut manifest = Self::begin(first).map_err(|why| wrong(0, why))?;
        manifest.whole_bytes = whole_bytes as u64;
        let mut unsent = Open::new();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            manifest.hear(line, number, &mut unsent).map_err(|why| wrong(number, why))?;
        }
        let mut unsent: Vec<_> = unsent.into_iter().collect();
        unsent.sort_unstable_by_key(|(_, (number, _))| *number);
        manifest.unsent = unsent.into_iter().map(|(_, (_, unsent))| unsent).collect();
        Ok(manifest)
    }

    /// How much has not come home: files, directories, symlinks and removed names.
    pub fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Nodes that were lost before they said what their programs wrote, with their hosts: nothing of that can
    /// be sent later, as nobody knows what it is.
    pub fn unlisted(&self) -> impl Iterator<Item = &(NodeId, String)> {
        self.nodes.iter().filter(|(node, _)| self.unlisted.contains(node))
    }

    fn begin(line: &[u8]) -> Result<Self, String> {
        let Ok(Line::Header(header)) = serde_json::from_slice(line) else {
            return Err("it does not begin with a manifest's header".to_owned());
        };
        if header.format != FORMAT {
            return Err(format!("format {} is not known; {FORMAT} is", header.format));
        }
        let job = JobId::from_hex(&header.job).ok_or("the job is not 32 hexadecimal digits")?;
        let map = |(dir, kind): (String, MapKind)| {
            Ok::<_, String>(MapDescription { dir: decode(&dir)?, kind })
        };
        let maps = header.maps.into_iter().map(map).collect::<Result<Vec<_>, _>>()?;
        let nodes = header.hosts.into_iter().map(|(node, host)| (NodeId(node), host)).collect();
        Ok(Self {
            job,
            nodes,
            maps,
            note: header.note,
            unsent: Vec::new(),
            unlisted: BTreeSet::new(),
            whole_bytes: 0,
        })
    }

    fn hear(&mut self, line: &[u8], number: usize, unsent: &mut Open) -> Result<(), String> {
        let line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let (entry, is_done) = match line {
            Line::Header(_) => return Err("a second header".to_owned()),
            Line::Summary { .. } => return Ok(()),
            Line::Listed { missing } => {
                self.unlisted = missing;
                return Ok(());
            }
            Line::ToSend(entry) => {
                let entry = self.understand(&entry)?;
                let key = (entry.map, entry.path.clone(), entry.node, entry.kind);
                unsent.insert(key, (number, entry));
                return Ok(());
            }
            Line::Sent(entry) | Line::Deleted(entry) => (entry, true),
            Line::Failed(entry) => (entry, false),
        };
        let Unsent { map, path, node, kind, .. } = self.understand(&entry)?;
        let key = (map, path, node, kind);
        if !unsent.contains_key(&key) {
            return Err("it tells of something that was never to be sent".to_owned());
        }
        if is_done {
            unsent.remove(&key);
        }
        Ok(())
    }

    fn understand(&self, entry: &Entry) -> Result<Unsent, String> {
        let dir = decode(&entry.map)?;
        let map = self.maps.iter().position(|map| map.dir == dir).ok_or("no map of the job")?;
        let node = NodeId(entry.node);
        if !self.nodes.iter().any(|(known, _)| *known == node) {
            return Err(format!("node {} is none of the job", entry.node));
        }
        let path = decode_path(&entry.path)?;
        let at = entry.at.as_ref().map_or_else(|| Ok(path.clone()), |at| decode_path(at))?;
        Ok(Unsent { map: map as u16, path, node, kind: entry.kind, at })
    }

    /// Whether it is of this job.
    pub(crate) fn check(&self, path: &Path, about: &About) -> Result<(), ManifestError> {
        let other = |why: &str| {
            let why = why.to_owned();
            Err(ManifestError::OtherJob { path: path.to_owned(), why })
        };
        if self.job != about.job {
            return other("its number differs; name a file that is not there yet");
        }
        if self.maps != about.maps {
            return other("its maps differ");
        }
        Ok(())
    }
}

/// A path as text.
fn encode(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    let escape = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a string never fails.
            let _ = write!(text, "%{byte:02X}");
        }
    };
    for chunk in path.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '%' || letter.is_control() {
                escape(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(letter);
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn decode(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("'{text}' has a % without two digits"))?);
        rest = &rest[2..];
    }
    Ok(bytes)
}

/// A path below a map.
fn decode_path(text: &str) -> Result<Vec<u8>, String> {
    let path = decode(text)?;
    let is_wrong =
        |name: &[u8]| name.is_empty() || name == b"." || name == b".." || name.contains(&0);
    if path.split(|byte| *byte == b'/').any(is_wrong) {
        return Err(format!("'{text}' is no path below a map"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_all_their_bytes() {
        let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        for path in
            [&b"a/b"[..], "\u{65e5}\u{672c} %41\n\t\u{85}".as_bytes(), b"\xff\xfe\xe6\x97", &all]
        {
            let text = encode(path);
            assert!(!text.contains(char::is_control));
            assert_eq!(decode_path(&text).as_deref(), Ok(path));
        }
        assert_eq!(encode("\u{e9}a b".as_bytes()), "\u{e9}a b");
        for wrong in ["", "/a", "a/", "a//b", "../a", "a/./b", "%2", "%zz", "a%00", "a/%2e%2e"] {
            assert!(decode_path(wrong).is_err(), "{wrong}");
        }
    }
}
