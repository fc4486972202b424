//! What is to be done so that what the nodes have is at home. Owns the rule that what two nodes have written at
//! one path is never merged: each goes home under a name of its own. Knows nothing of files or sockets.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use azekura_proto::staging::NodeId;
use azekura_proto::{FileKind, Timestamp};

use crate::message::{Home, Leaving, Place, What};

/// What was done at home in this job.
#[derive(Default)]
pub(crate) struct Memory {
    /// Paths that several nodes have written: they stay so, whoever writes them later.
    pub(crate) contested: BTreeSet<Place>,
    /// Where a node's file stands at home, if that is not where it stands on the node.
    pub(crate) sent_as: HashMap<(Place, NodeId), Vec<u8>>,
    /// The nodes whose files stand at home under their own names.
    pub(crate) owner: HashMap<Place, NodeId>,
    /// Directories that were made.
    pub(crate) made: HashSet<Place>,
}

impl Memory {
    /// Something has been done at home at a place's own name.
    pub(crate) fn own(&mut self, task: &Task) {
        if task.at != task.place.path {
            return;
        }
        match task.job {
            Job::File { .. } | Job::Linked { .. } | Job::Link { .. } => {
                self.owner.insert(task.place.clone(), task.node);
            }
            Job::Remove => {
                self.owner.remove(&task.place);
                self.made.remove(&task.place);
            }
            Job::Directory { .. } => _ = self.made.insert(task.place.clone()),
        }
    }

    /// Whether a node that says nothing of a place has sent the file that stands there at home.
    fn is_anothers(&self, place: &Place, writers: &Writers) -> bool {
        self.owner.get(place).is_some_and(|owner| !writers.has(*owner))
    }
}

/// Something to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Task {
    pub(crate) place: Place,
    pub(crate) node: NodeId,
    pub(crate) job: Job,
    /// The path at home.
    pub(crate) at: Vec<u8>,
    /// Where an earlier version stands at home, which is to go.
    pub(crate) before: Option<Vec<u8>>,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    File {
        bytes: u64,
        inode: u64,
        home: Home,
    },
    /// A further name of a file that stands at home as `to`, or will when its turn comes.
    Linked {
        bytes: u64,
        home: Home,
        to: Vec<u8>,
    },
    Directory {
        mode: u32,
        mtime: Timestamp,
    },
    Link {
        text: Vec<u8>,
        home: Home,
    },
    Remove,
}

impl Job {
    /// The file's number on its node, if that is known for certain.
    fn inode(&self) -> Option<u64> {
        match self {
            Self::File { inode, .. } if *inode != 0 => Some(*inode),
            _ => None,
        }
    }
}

/// All that is to be done, in this order.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// What is in the way of something of another kind.
    pub(crate) removals_before: Vec<Task>,
    pub(crate) directories: Vec<Task>,
    pub(crate) files: Vec<Task>,
    pub(crate) hard_links: Vec<Task>,
    pub(crate) links: Vec<Task>,
    pub(crate) removals: Vec<Task>,
    /// Directories that were made earlier, to get their modes and times again.
    pub(crate) settled: Vec<Task>,
    /// Paths that several nodes have written, each with its names at home.
    pub(crate) conflicts: Vec<(Place, Vec<Vec<u8>>)>,
    /// What cannot be sent.
    pub(crate) odd: Vec<(Place, NodeId, FileKind)>,
    /// Directories that cannot be read; the number of errno.
    pub(crate) unreadable: Vec<(Place, NodeId, i32)>,
}

/// Those who have something at a place.
#[derive(Default)]
struct Writers {
    files: Vec<(NodeId, Job, bool)>,
    directories: Vec<(NodeId, u32, Timestamp, bool)>,
    removers: Vec<(NodeId, bool)>,
}

impl Plan {
    pub(crate) fn new(
        lists: Vec<(NodeId, Vec<Leaving>)>,
        hosts: &BTreeMap<NodeId, String>,
        memory: &mut Memory,
        stands: &dyn Fn(&Place) -> bool,
    ) -> Self {
        let mut plan = Self::default();
        let mut places: BTreeMap<Place, Writers> = BTreeMap::new();
        for (node, list) in lists {
            for Leaving { place, what, is_home } in list {
                if let Some(place) = plan.set_aside(place, node, &what) {
                    places.entry(place).or_default().add(node, what, is_home);
                }
            }
        }
        let mut names = Names { hosts, places: &places, given: BTreeSet::new(), stands };
        for (place, writers) in &places {
            plan.add(place, writers, memory, &mut names);
        }
        plan.find_hard_links(&places, memory);
        // What is below is removed first.
        plan.removals.reverse();
        plan.removals_before.reverse();
        plan
    }

    /// Of the names of one file, all but the first are linked to it, or all to one that is at home.
    fn find_hard_links(&mut self, places: &BTreeMap<Place, Writers>, memory: &Memory) {
        let mut first: HashMap<(NodeId, u16, u64), Vec<u8>> = HashMap::new();
        for (place, writers) in places {
            for (node, job, is_home) in &writers.files {
                let is_there = *is_home && memory.owner.get(place) == Some(node);
                if let (true, Some(inode)) = (is_there, job.inode()) {
                    first.entry((*node, place.map, inode)).or_insert_with(|| place.path.clone());
                }
            }
        }
        for mut task in std::mem::take(&mut self.files) {
            let key = task.job.inode().map(|inode| (task.node, task.place.map, inode));
            // What stands under another name at home may be renamed yet.
            let key = key.filter(|_| task.at == task.place.path && task.before.is_none());
            if let (Some(key), Job::File { bytes, home, .. }) = (key, &task.job) {
                if let Some(to) = first.get(&key) {
                    task.job = Job::Linked { bytes: *bytes, home: *home, to: to.clone() };
                    self.hard_links.push(task);
                    continue;
                }
                first.insert(key, task.at.clone());
            }
            self.files.push(task);
        }
    }

    fn set_aside(&mut self, place: Place, node: NodeId, what: &What) -> Option<Place> {
        match what {
            What::Odd { kind } => self.odd.push((place, node, *kind)),
            What::Unreadable { errno } => self.unreadable.push((place, node, *errno)),
            _ => return Some(place),
        }
        None
    }

    fn add(&mut self, place: &Place, writers: &Writers, memory: &mut Memory, names: &mut Names) {
        let task =
            |node, job, at: Vec<u8>| Task { place: place.clone(), node, job, at, before: None };
        if let Some((node, mode, mtime, _)) = writers.directories.first() {
            let job = Job::Directory { mode: *mode, mtime: *mtime };
            if memory.made.contains(place) {
                self.settled.push(task(*node, job, place.path.clone()));
            } else if writers.directories.iter().all(|(.., is_home)| !is_home) {
                self.directories.push(task(*node, job, place.path.clone()));
            }
        }
        let is_contested = writers.files.len() > 1
            || !writers.files.is_empty() && !writers.directories.is_empty()
            || !writers.files.is_empty() && memory.contested.contains(place);
        // Its node is lost, or is asked only later.
        let is_anothers = !writers.files.is_empty() && memory.is_anothers(place, writers);
        let is_contested = is_contested || is_anothers;
        let mut kept: Vec<_> = is_anothers.then(|| place.path.clone()).into_iter().collect();
        for (node, job, is_home) in &writers.files {
            let key = (place.clone(), *node);
            let stands = memory.sent_as.get(&key).unwrap_or(&place.path);
            let at = match is_contested {
                true if *stands != place.path => stands.clone(),
                true => names.of(place, *node, memory),
                false => place.path.clone(),
            };
            kept.push(at.clone());
            if *is_home && *stands == at {
                continue;
            }
            // Also what its node has changed since it was sent.
            let has_sent_it = *is_home || memory.owner.get(place) == Some(node);
            let before = (has_sent_it && *stands != at).then(|| stands.clone());
            let mut sent = task(*node, job.clone(), at);
            sent.before = before;
            let list =
                if matches!(job, Job::Link { .. }) { &mut self.links } else { &mut self.files };
            list.push(sent);
        }
        if is_contested {
            memory.contested.insert(place.clone());
            self.conflicts.push((place.clone(), kept));
        }
        let is_written = !writers.files.is_empty() || !writers.directories.is_empty();
        for (node, is_replaced) in &writers.removers {
            let stands = memory.sent_as.get(&(place.clone(), *node)).unwrap_or(&place.path);
            let removal = task(*node, Job::Remove, stands.clone());
            if *is_replaced {
                self.removals_before.push(removal);
            } else if !is_written || *stands != place.path {
                self.removals.push(removal);
            }
        }
    }

    /// All tasks, in order.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Task> {
        let Self { removals_before, directories, files, hard_links, links, removals, .. } = self;
        [removals_before, directories, files, hard_links, links, removals].into_iter().flatten()
    }
}

impl Writers {
    fn has(&self, node: NodeId) -> bool {
        self.files.iter().any(|(writer, ..)| *writer == node)
            || self.directories.iter().any(|(writer, ..)| *writer == node)
            || self.removers.iter().any(|(remover, _)| *remover == node)
    }

    fn add(&mut self, node: NodeId, what: What, is_home: bool) {
        match what {
            What::File { bytes, inode, home } => {
                self.files.push((node, Job::File { bytes, inode, home }, is_home));
            }
            What::Link { text, home } => {
                self.files.push((node, Job::Link { text, home }, is_home));
            }
            What::Directory { mode, mtime } => {
                self.directories.push((node, mode, mtime, is_home));
            }
            What::Removed { is_replaced } => self.removers.push((node, is_replaced)),
            What::Odd { .. } | What::Unreadable { .. } => {}
        }
    }
}

/// Names for what several nodes have written at one path.
struct Names<'a> {
    hosts: &'a BTreeMap<NodeId, String>,
    places: &'a BTreeMap<Place, Writers>,
    given: BTreeSet<Place>,
    /// Whether something stands at a place at home.
    stands: &'a dyn Fn(&Place) -> bool,
}

impl Names<'_> {
    /// The path with the name of the host behind it, or the number of the node if that is no name of its own;
    /// and then with a number, if something has that name already, as from an earlier job.
    fn of(&mut self, place: &Place, node: NodeId, memory: &Memory) -> Vec<u8> {
        let host = self.hosts.get(&node).filter(|host| {
            self.hosts.values().filter(|other| other == host).count() == 1 && !host.contains('/')
        });
        let number = node.0.to_string();
        let first = [&place.path, &b"."[..], host.unwrap_or(&number).as_bytes()].concat();
        let mut name = Place { map: place.map, path: first.clone() };
        let mut count = 1;
        while self.places.contains_key(&name)
            || memory.owner.contains_key(&name)
            || (self.stands)(&name)
            || !self.given.insert(name.clone())
        {
            count += 1;
            name.path = [&first, format!(".{count}").as_bytes()].concat();
        }
        name.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Timestamp = Timestamp { secs: 0, nanos: 0 };

    fn place(path: &str) -> Place {
        Place { map: 0, path: path.as_bytes().to_vec() }
    }

    fn file(path: &str, is_home: bool) -> Leaving {
        Leaving {
            place: place(path),
            what: What::File { bytes: 1, inode: 0, home: Home::Some },
            is_home,
        }
    }

    fn leaving(path: &str, what: What) -> Leaving {
        Leaving { place: place(path), what, is_home: false }
    }

    fn plan(lists: &[&[Leaving]], hosts: &[&str], memory: &mut Memory) -> Plan {
        let node = |number: usize| NodeId(number as u16);
        let lists = lists.iter().enumerate().map(|(number, list)| (node(number), list.to_vec()));
        let hosts = hosts.iter().enumerate().map(|(number, host)| (node(number), (*host).into()));
        Plan::new(lists.collect(), &hosts.collect(), memory, &|_| false)
    }

    fn names(tasks: &[Task]) -> Vec<(u16, &str)> {
        tasks.iter().map(|task| (task.node.0, std::str::from_utf8(&task.at).unwrap())).collect()
    }

    #[test]
    fn what_two_nodes_have_written_gets_names_of_its_own() {
        let mut memory = Memory::default();
        let both = [file("x", false)];
        let made = plan(&[&both, &both, &[file("y", false)]], &["a", "b", "c"], &mut memory);
        assert_eq!(names(&made.files), [(0, "x.a"), (1, "x.b"), (2, "y")]);
        assert_eq!(made.conflicts, [(place("x"), vec![b"x.a".to_vec(), b"x.b".to_vec()])]);
        let later = plan(&[&both, &[]], &["a", "b"], &mut memory);
        assert_eq!(names(&later.files), [(0, "x.a")], "a contested path stays so");
    }

    #[test]
    fn hosts_of_one_name_and_names_that_are_taken_are_told_apart() {
        let mut memory = Memory::default();
        let both = [file("x", false)];
        let made = plan(&[&both, &both], &["a", "a"], &mut memory);
        assert_eq!(names(&made.files), [(0, "x.0"), (1, "x.1")]);
        let taken = [file("z", false), file("z.a", false)];
        let made = plan(&[&taken, &[file("z", false)]], &["a", "b"], &mut memory);
        assert_eq!(names(&made.files), [(0, "z.a.2"), (1, "z.b"), (0, "z.a")]);
    }

    #[test]
    fn what_stands_at_home_keeps_its_name() {
        let both = [(NodeId(0), vec![file("x", false)]), (NodeId(1), vec![file("x", false)])];
        let hosts = BTreeMap::from([(NodeId(0), "a".to_owned()), (NodeId(1), "b".to_owned())]);
        let stands = |found: &Place| [place("x.a"), place("x.a.2"), place("x.b")].contains(found);
        let mut memory = Memory::default();
        let made = Plan::new(both.to_vec(), &hosts, &mut memory, &stands);
        assert_eq!(names(&made.files), [(0, "x.a.3"), (1, "x.b.2")]);
        assert_eq!(made.conflicts, [(place("x"), vec![b"x.a.3".to_vec(), b"x.b.2".to_vec()])]);
        // What a node has sent itself is replaced by what it sends later.
        memory.sent_as.insert((place("x"), NodeId(0)), b"x.a.3".to_vec());
        let made = Plan::new(both[..1].to_vec(), &hosts, &mut memory, &|_| true);
        assert_eq!(names(&made.files), [(0, "x.a.3")]);
    }

    #[test]
    fn what_was_sent_before_another_node_wrote_it_is_renamed() {
        let mut memory = Memory::default();
        let made = plan(&[&[file("x", true)], &[file("x", false)]], &["a", "b"], &mut memory);
        assert_eq!(names(&made.files), [(0, "x.a"), (1, "x.b")]);
        assert_eq!(made.files[0].before, Some(b"x".to_vec()));
        memory.sent_as.insert((place("x"), NodeId(0)), b"x.a".to_vec());
        memory.sent_as.insert((place("x"), NodeId(1)), b"x.b".to_vec());
        let again = plan(&[&[file("x", true)], &[file("x", true)]], &["a", "b"], &mut memory);
        assert_eq!(again.tasks().count(), 0);
        assert_eq!(again.conflicts.len(), 1, "it is still not right");
    }

    #[test]
    fn what_was_sent_before_others_wrote_it_too_does_not_stay_beside_theirs() {
        let mut memory = Memory::default();
        memory.owner.insert(place("x"), NodeId(0));
        let made = plan(&[&[file("x", false)], &[file("x", false)]], &["a", "b"], &mut memory);
        assert_eq!(names(&made.files), [(0, "x.a"), (1, "x.b")]);
        assert_eq!(made.files[0].before, Some(b"x".to_vec()));
        assert_eq!(made.files[1].before, None);
    }

    #[test]
    fn what_a_lost_node_has_sent_is_never_replaced() {
        let mut memory = Memory::default();
        memory.owner.insert(place("x"), NodeId(0));
        let made = plan(&[&[], &[file("x", false)]], &["a", "b"], &mut memory);
        assert_eq!(names(&made.files), [(1, "x.b")]);
        assert_eq!(made.conflicts, [(place("x"), vec![b"x".to_vec(), b"x.b".to_vec()])]);
        // Its own node may write it again, and others once it is removed there.
        let mut memory = Memory::default();
        memory.owner.insert(place("x"), NodeId(0));
        let made = plan(&[&[file("x", false)]], &["a"], &mut memory);
        assert_eq!((names(&made.files), made.conflicts.len()), (vec![(0, "x")], 0));
        let gone = [leaving("x", What::Removed { is_replaced: false })];
        let made = plan(&[&gone, &[file("x", false)]], &["a", "b"], &mut memory);
        assert_eq!((names(&made.files), made.conflicts.len()), (vec![(1, "x")], 0));
    }

    #[test]
    fn directories_are_made_once_and_names_removed_from_below() {
        let dir = leaving("d", What::Directory { mode: 0o750, mtime: TIME });
        let gone = |path| leaving(path, What::Removed { is_replaced: false });
        let one = [dir.clone(), gone("e/f"), gone("e"), gone("w")];
        let other = [dir, file("w", false)];
        let made = plan(&[&one, &other], &["a", "b"], &mut Memory::default());
        assert_eq!(names(&made.directories), [(0, "d")]);
        assert_eq!(names(&made.removals), [(0, "e/f"), (0, "e")]);
        assert_eq!(names(&made.files), [(1, "w")]);
        assert!(made.conflicts.is_empty());
    }

    #[test]
    fn a_file_and_a_directory_of_one_name_are_a_conflict() {
        let dir = leaving("d", What::Directory { mode: 0o755, mtime: TIME });
        let made = plan(&[&[dir], &[file("d", false)]], &["a", "b"], &mut Memory::default());
        assert_eq!(
            (names(&made.directories), names(&made.files)),
            (vec![(0, "d")], vec![(1, "d.b")])
        );
        assert_eq!(made.conflicts.len(), 1);
    }
}
