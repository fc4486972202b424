//! What has to be there after a loss of power: what was synced and has not been touched since. Owns what
//! counts as synced, and the look at a container of which nothing else is known any more.

use std::collections::BTreeMap;

use azekura_posix::{FileKind, OFlags};

use super::possible::Possible;
use super::users::Users;
use super::workload::XATTR;
use crate::model::{Answer, Op};

/// Files that are made after a loss of power, and bytes of each.
const NEW_FILES: u8 = 6;
const NEW_BYTES: usize = 20;

/// Names and contents that were synced and are as they were then.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// Paths, and the numbers of what they lead to.
    names: BTreeMap<Vec<u8>, u64>,
    /// The data of files, by number.
    contents: BTreeMap<u64, Vec<u8>>,
    /// Their extended attributes, by number.
    xattrs: BTreeMap<u64, Vec<u8>>,
    /// The data of files by the paths from which they were removed: they may be back, as they were.
    removed: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Durable {
    /// The whole container was synced: all that is known of it for certain.
    pub(crate) fn sync_all(&mut self, possible: &Possible) {
        let Some(tree) = possible.trees().first() else { return };
        self.names = tree.paths();
        let files = self.names.values().filter_map(|node| Some((*node, tree.contents(*node)?)));
        self.contents = files.map(|(node, data)| (node, data.to_vec())).collect();
        let xattrs = self.names.values().filter_map(|node| Some((*node, tree.xattr(*node)?)));
        self.xattrs = xattrs.map(|(node, value)| (node, value.to_vec())).collect();
        self.removed.clear();
        self.narrow(possible);
    }

    /// A file was synced.
    pub(crate) fn sync_file(&mut self, slot: usize, possible: &Possible) {
        let Some(tree) = possible.trees().first() else { return };
        if let Some(node) = tree.node_in(slot)
            && let Some(data) = tree.contents(node)
        {
            self.contents.insert(node, data.to_vec());
            self.xattrs.extend(tree.xattr(node).map(|value| (node, value.to_vec())));
            self.narrow(possible);
        }
    }

    /// Forgets what may have been touched. To be called after every operation, so that what is
    /// changed twice is not taken for what it was.
    pub(crate) fn narrow(&mut self, possible: &Possible) {
        for tree in possible.trees() {
            let paths = tree.paths();
            let removed = self.names.iter().filter(|(_, node)| !tree.has(**node));
            let removed = removed
                .filter_map(|(path, node)| Some((path.clone(), self.contents.get(node)?.clone())));
            self.removed.extend(removed.collect::<Vec<_>>());
            self.removed.retain(|path, _| !paths.contains_key(path));
            self.names.retain(|path, node| paths.get(path) == Some(node));
            self.contents.retain(|node, data| tree.contents(*node) == Some(&**data));
            self.xattrs.retain(|node, value| tree.xattr(*node) == Some(&**value));
        }
    }

    /// What is not as it has to be.
    pub(crate) fn compare(&self, found: &Found) -> Vec<String> {
        let mut problems = Vec::new();
        for (path, node) in &self.names {
            let shown = String::from_utf8_lossy(path);
            match (found.entries.get(path), self.contents.get(node)) {
                (None, _) => problems.push(format!("{shown} was synced and is lost")),
                (Some(Some(data)), Some(synced)) if data != synced => {
                    problems.push(format!("the data of {shown} were synced and are others"));
                }
                (Some(None), Some(_)) => problems.push(format!("{shown} is a directory now")),
                _ => {}
            }
            if self.xattrs.get(node).is_some_and(|value| found.xattrs.get(path) != Some(value)) {
                problems.push(format!("the attribute of {shown} was synced and is another"));
            }
        }
        for (path, synced) in &self.removed {
            if found.entries.get(path).is_some_and(|data| data.as_ref() != Some(synced)) {
                let shown = String::from_utf8_lossy(path);
                problems.push(format!("{shown} was removed and is back without its data"));
            }
        }
        problems
    }
}

/// What a container holds after a loss of power.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Directories, and files with their data.
    entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Extended attributes of both.
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What nothing that was promised explains.
    problems: Vec<String>,
}

impl Found {
    /// Reads everything, as a client that has just come.
    pub(crate) fn by(users: &mut Users, client: usize) -> Self {
        let mut found = Self::default();
        found.read_directory(users, client, b".");
        found
    }

    /// What is wrong with it, and with new files: they must be none that is there already.
    pub(crate) fn problems(mut self, users: &mut Users, client: usize) -> Vec<String> {
        for number in 0..NEW_FILES {
            let path = format!("new{number}").into_bytes();
            self.write_file(users, client, &path, vec![number + 1; NEW_BYTES]);
        }
        let now = Self::by(users, client);
        self.problems.extend(now.problems.iter().map(|problem| format!("then {problem}")));
        for (path, data) in &now.entries {
            if self.entries.get(path) != Some(data) {
                let shown = String::from_utf8_lossy(path);
                let kind = match (self.entries.get(path), data) {
                    (None, _) => "leads to one of the next files that are made",
                    (Some(_), Some(data)) if data.len() > NEW_BYTES => {
                        "has data of an earlier file"
                    }
                    _ => "changes with the next files that are made",
                };
                self.problems.push(format!("{shown} {kind}"));
            }
        }
        let lost = self.entries.keys().filter(|path| !now.entries.contains_key(*path));
        let lost = lost.map(|path| String::from_utf8_lossy(path).into_owned()).collect::<Vec<_>>();
        if !lost.is_empty() {
            self.problems.push(format!("{lost:?} are gone with the next files that are made"));
        }
        self.problems
    }

    fn write_file(&mut self, users: &mut Users, client: usize, path: &[u8], data: Vec<u8>) {
        let slot = client;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.ask(users, client, &Op::Open { slot, path: path.to_vec(), flags, mode: 0o755 });
        self.ask(users, client, &Op::Write { slot, offset: 0, data: data.clone() });
        self.ask(users, client, &Op::Close { slot });
        self.entries.insert(path.to_vec(), Some(data));
    }

    fn read_directory(&mut self, users: &mut Users, client: usize, path: &[u8]) {
        let Some(Answer::Names(names)) = self.ask(users, client, &Op::List { path: path.to_vec() })
        else {
            return;
        };
        for (name, kind) in names {
            let below = if path == b"." { name } else { [path, &name].join(&b'/') };
            let stat = Op::Stat { path: below.clone(), follow: true };
            if self.ask(users, client, &stat).is_none() {
                continue;
            }
            let data = if kind == FileKind::Directory {
                self.read_directory(users, client, &below);
                None
            } else {
                self.read_file(users, client, &below)
            };
            let get = Op::GetXattr { path: below.clone(), name: XATTR.to_vec() };
            if let Ok(Answer::Data(value)) = users.apply(client, &get) {
                self.xattrs.insert(below.clone(), value);
            }
            self.entries.insert(below, data);
        }
    }

    fn read_file(&mut self, users: &mut Users, client: usize, path: &[u8]) -> Option<Vec<u8>> {
        let slot = client;
        let open = Op::Open { slot, path: path.to_vec(), flags: OFlags::RDONLY, mode: 0 };
        self.ask(users, client, &open)?;
        let read = self.ask(users, client, &Op::Read { slot, offset: 0, bytes: 1 << 16 });
        self.ask(users, client, &Op::Close { slot });
        match read {
            Some(Answer::Data(data)) => Some(data),
            _ => None,
        }
    }

    fn ask(&mut self, users: &mut Users, client: usize, op: &Op) -> Option<Answer> {
        let outcome = users.apply(client, op);
        if let Err(error) = outcome {
            self.problems.push(format!("{} gives {error:?}", crate::model::shown(op)));
        }
        outcome.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::possible::Links;
    use super::*;

    fn create(name: &str) -> Op {
        let flags = OFlags::RDWR | OFlags::CREATE;
        Op::Open { slot: 0, path: name.into(), flags, mode: 0o755 }
    }

    #[test]
    fn what_was_synced_and_not_touched_has_to_be_there() {
        let mut possible = Possible::new(Links::Exact);
        let mut durable = Durable::default();
        let mut done = |op: &Op, durable: &mut Durable| {
            possible.observe(op, &Ok(Answer::Done)).unwrap();
            durable.narrow(&possible);
            possible.clone()
        };
        done(&create("a"), &mut durable);
        let before = done(&create("b"), &mut durable);
        durable.sync_all(&before);
        assert_eq!(durable.names.len(), 2);
        // Away and back again: nobody knows what the disk has of it.
        done(&Op::Unlink { path: b"b".to_vec() }, &mut durable);
        done(&create("b"), &mut durable);
        assert_eq!(durable.names.len(), 1);
        let mut found = Found::default();
        assert_eq!(durable.compare(&found), ["a was synced and is lost"]);
        found.entries.insert(b"a".to_vec(), Some(b"x".to_vec()));
        assert_eq!(durable.compare(&found), ["the data of a were synced and are others"]);
        found.entries.insert(b"a".to_vec(), Some(Vec::new()));
        assert!(durable.compare(&found).is_empty());
    }
}
