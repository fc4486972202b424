//! Bringing home what programs have written. Owns the order of a stage-out: all nodes say what they have, that
//! is compared, directories are made, files come, and only then is removed what was removed on a node whose
//! files have all come. Nothing gets its name at home before all of it is there.

mod arrival;
mod arrivals;
mod closing;
mod compare;
mod homewards;
mod manifest;
mod naming;
mod post;
mod report;
mod round;
mod setup;
mod transfer;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::path::Path;

use azekura_proto::Timestamp;
use azekura_proto::staging::{MapKind, NodeId};
use parking_lot::Mutex;

use crate::front::event::Event;
use crate::front::outgoing::compare::{Job, Memory, Plan, Task};
use crate::front::outgoing::manifest::{Kind, Unsent, Writer};
use crate::front::outgoing::round::{Came, Round};
use crate::front::outgoing::transfer::{ANSWER_TIME, Transfer};
use crate::message::{Answer, Home, Leaving, Listing, Order, Place, What};

pub(crate) use crate::front::outgoing::post::{Note, Post};
pub use manifest::{Manifest, ManifestError};
pub use report::{Conflict, NotSent, OutReport};
pub use setup::OutOptions;
pub(crate) use setup::{Agent, OutParts, Setup};

/// Names that one node may have to send at once; with more, it is to be done more often.
const NAMES_MAX: usize = 4 << 20;
/// Of what is not there.
const NO_TIME: Timestamp = Timestamp { secs: 0, nanos: 0 };

/// What brings files home.
pub(crate) struct Outgoing {
    setup: Setup,
    memory: Mutex<Memory>,
    /// One stage-out at a time.
    one: Mutex<()>,
    /// Between two of them.
    manifest: Mutex<Option<Writer>>,
}

/// What nodes have.
type Listed = Vec<(NodeId, Vec<Leaving>)>;

impl Outgoing {
    pub(crate) fn new(setup: Setup) -> Self {
        Self { setup, memory: Mutex::default(), one: Mutex::new(()), manifest: Mutex::new(None) }
    }

    /// Brings home all that is new or changed on the nodes.
    pub(crate) fn stage_out(&self) -> OutReport {
        let _one = self.one.lock();
        if self.maps.iter().all(|map| map.kind == MapKind::ReadOnly) {
            return OutReport::default();
        }
        self.tell(Event::OutAsked);
        let hosts = self.hosts();
        // Whether it still is one is looked at each time that somebody asks for this.
        *self.manifest.lock() = None;
        let (manifest, wrong) = self.open_manifest(&hosts);
        let round = Round::new(&self.setup, &self.memory, manifest);
        let lists = self.collect(&round, self.nodes.keys().copied().collect());
        let said: BTreeSet<_> = lists.iter().map(|(node, _)| *node).collect();
        let missing = self.nodes.keys().copied().filter(|node| !said.contains(node)).collect();
        round.write(|manifest| manifest.listed(missing));
        let plan = self.plan(lists, &hosts);
        self.finish(round, &plan, wrong)
    }

    /// The manifest as the last round has left it, or opened; or why there is none.
    fn open_manifest(&self, hosts: &BTreeMap<NodeId, String>) -> (Option<Writer>, Option<String>) {
        if let Some(open) = self.manifest.lock().take() {
            return (Some(open), None);
        }
        let opened =
            self.options.manifest.as_ref().map(|path| Writer::open(path, &self.about(hosts)));
        match opened.transpose() {
            Ok(manifest) => (manifest, None),
            Err(error) => (None, Some(error.to_string())),
        }
    }

    /// What is to be done about what the nodes have.
    fn plan(&self, mut lists: Listed, hosts: &BTreeMap<NodeId, String>) -> Plan {
        for (_, list) in &mut lists {
            list.retain(|leaving| !self.is_at_home(leaving));
        }
        let stands = |place: &Place| {
            let home = &*self.sources[usize::from(place.map)];
            home.attributes(&place.path).is_ok()
        };
        let mut plan = Plan::new(lists, hosts, &mut self.memory.lock(), &stands);
        let home = |task: &Task| &*self.sources[usize::from(task.place.map)];
        plan.directories.retain(|task| !homewards::has_dir(home(task), &task.at));
        plan
    }

    /// Does it.
    fn finish(&self, round: Round, plan: &Plan, wrong: Option<String>) -> OutReport {
        if let Some(why) = wrong {
            round.without_manifest(why);
        }
        round.write(|manifest| manifest.plan(plan.tasks()));
        self.tell_of(&round, plan);
        self.execute(&round, plan);
        let (report, manifest) = round.end();
        *self.manifest.lock() = manifest;
        report
    }

    /// Brings home what a manifest says has not come.
    pub(crate) fn resume(&self, path: &Path) -> Result<OutReport, ManifestError> {
        let _one = self.one.lock();
        let hosts = self.hosts();
        let about = self.about(&hosts);
        let manifest = Manifest::read(path)?;
        manifest.check(path, &about)?;
        let round = Round::new(&self.setup, &self.memory, Some(Writer::open(path, &about)?));
        let is_ours = |node: &NodeId| self.nodes.contains_key(node);
        let nodes: BTreeSet<_> = manifest.unsent.iter().map(|unsent| unsent.node).collect();
        let mut found = HashMap::new();
        for (node, list) in self.collect(&round, nodes.into_iter().filter(is_ours).collect()) {
            found.extend(list.into_iter().map(|leaving| ((node, leaving.place), leaving.what)));
        }
        let mut plan = Plan::default();
        for unsent in manifest.unsent {
            self.plan_again(unsent, &found, &round, &mut plan);
        }
        self.tell_of(&round, &plan);
        self.execute(&round, &plan);
        Ok(round.end().0)
    }

    fn plan_again(
        &self,
        unsent: Unsent,
        found: &HashMap<(NodeId, Place), What>,
        round: &Round,
        plan: &mut Plan,
    ) {
        let Unsent { map, path, node, kind, at } = unsent;
        let place = Place { map, path };
        let key = (node, place);
        let (job, is_here) = match (kind, found.get(&key)) {
            (Kind::Removal, _) => (Job::Remove, true),
            (Kind::File, Some(What::File { bytes, inode, home })) => {
                (Job::File { bytes: *bytes, inode: *inode, home: *home }, true)
            }
            (Kind::Directory, Some(What::Directory { mode, mtime })) => {
                (Job::Directory { mode: *mode, mtime: *mtime }, true)
            }
            (Kind::Link, Some(What::Link { text, home })) => {
                (Job::Link { text: text.clone(), home: *home }, true)
            }
            (Kind::File, _) => (Job::File { bytes: 0, inode: 0, home: Home::Some }, false),
            (Kind::Directory, _) => (Job::Directory { mode: 0, mtime: NO_TIME }, false),
            (Kind::Link, _) => (Job::Link { text: Vec::new(), home: Home::Some }, false),
        };
        let place = key.1;
        if at != place.path {
            plan.conflicts.push((place.clone(), vec![at.clone()]));
        }
        let task = Task { place, node, job, at, before: None };
        if !is_here {
            let why = if self.nodes.contains_key(&node) {
                "it is not in the cache of its node any more"
            } else {
                "its node takes no part: name the hosts of the job that wrote it"
            };
            return round.failed(&task, why);
        }
        match kind {
            Kind::File => plan.files.push(task),
            Kind::Directory => plan.directories.push(task),
            Kind::Link => plan.links.push(task),
            Kind::Removal => plan.removals.push(task),
        }
    }

    fn is_at_home(&self, leaving: &Leaving) -> bool {
        let Leaving { place, what: What::Link { text, .. }, is_home: false } = leaving else {
            return false;
        };
        homewards::has_link(&*self.sources[usize::from(place.map)], &place.path, text)
    }

    /// What the nodes have. A node that does not say is in the report.
    fn collect(&self, round: &Round, nodes: Vec<NodeId>) -> Listed {
        let lists: Vec<_> = std::thread::scope(|scope| {
            let ask = |node| scope.spawn(move || (node, self.list(node, Listing::All)));
            let asked: Vec<_> = nodes.into_iter().map(ask).collect();
            // A panic has been reported.
            asked.into_iter().filter_map(|list| list.join().ok()).collect()
        });
        let mut said = Vec::new();
        for (node, list) in lists {
            match list {
                Ok(list) => said.push((node, list)),
                Err(why) => {
                    round.fail(String::new(), Some(node), why);
                }
            }
        }
        said
    }

    fn list(&self, node: NodeId, of: Listing) -> Result<Vec<Leaving>, String> {
        let notes = self.post.open(node);
        let mut list = Vec::new();
        let ask = self.next_ask();
        self.order(node, Order::List { ask, of });
        loop {
            match notes.recv_timeout(ANSWER_TIME) {
                // A page of an earlier list, for which nobody waited any more, is none of this one.
                Ok(Note::Answer(Answer::Page { ask: of, entries, is_last })) if of == ask => {
                    // What comes from another process is not believed.
                    let sources = self.sources.len();
                    let is_ours = |leaving: &Leaving| usize::from(leaving.place.map) < sources;
                    list.extend(entries.into_iter().filter(is_ours));
                    if is_last {
                        return Ok(list);
                    }
                    if list.len() > NAMES_MAX {
                        return Err(format!("it has more than {NAMES_MAX} names to send"));
                    }
                    self.order(node, Order::More { ask });
                }
                Ok(Note::Gone) => return Err("the node is lost".to_owned()),
                Ok(_) => {}
                Err(_) => return Err("its agent does not answer".to_owned()),
            }
        }
    }

    /// Says what is about to happen.
    fn tell_of(&self, round: &Round, plan: &Plan) {
        if round.keeps_unsent() {
            let nodes: BTreeSet<_> = plan.tasks().map(|task| task.node).collect();
            for node in nodes {
                // Should this process die now, the rest can be sent later.
                self.order(node, Order::Keep { keeps: true });
            }
        }
        let bytes = |task: &Task| match task.job {
            Job::File { bytes, .. } => bytes,
            _ => 0,
        };
        self.tell(Event::OutBegun {
            files: plan.files.len(),
            bytes: plan.files.iter().map(bytes).sum(),
        });
        for (place, kept) in &plan.conflicts {
            let kept =
                kept.iter().map(|path| self.text_of(&Place { map: place.map, path: path.clone() }));
            let conflict = Conflict { path: self.text_of(place), kept: kept.collect() };
            self.tell(Event::Conflict { path: conflict.path.clone(), kept: conflict.kept.clone() });
            round.note(|report| report.conflicts.push(conflict));
        }
        for (place, node, kind) in &plan.odd {
            let why = format!("{kind:?} is nothing that another host can have");
            let left = NotSent { path: self.text_of(place), node: Some(*node), why };
            round.note(|report| report.left.push(left));
        }
        for (place, node, errno) in &plan.unreadable {
            let error = std::io::Error::from_raw_os_error(*errno);
            let why = format!("the directory cannot be read: {error}");
            round.fail(self.text_of(place), Some(*node), why);
        }
    }

    fn execute(&self, round: &Round, plan: &Plan) {
        for task in &plan.removals_before {
            self.do_here(round, task);
        }
        let made: Vec<_> =
            plan.directories.iter().filter(|task| self.do_here(round, task)).collect();
        self.bring(round, &plan.files);
        self.link(round, &plan.hard_links);
        for task in &plan.links {
            self.do_here(round, task);
        }
        for task in &plan.removals {
            if round.has_failed(task.node) {
                round.failed(task, "it stays, as not all files of the node have come");
            } else {
                self.do_here(round, task);
            }
        }
        // What is in them had to be made first.
        let mut made: Vec<_> = made.into_iter().chain(&plan.settled).collect();
        made.sort_by(|one, other| other.place.cmp(&one.place));
        for task in made {
            if let Job::Directory { mode, mtime } = task.job
                && let Err(error) =
                    homewards::settle_dir(&**round.source(&task.place), &task.at, mode, mtime)
            {
                let why = format!("its mode and time cannot be set: {error}");
                round.fail(self.text_of(&task.place), Some(task.node), why);
            }
        }
    }

    /// Gives files that have come their other names. Where that cannot be, they come once more.
    fn link(&self, round: &Round, links: &[Task]) {
        let mut files = Vec::new();
        for task in links {
            let Job::Linked { bytes, home: version, to } = &task.job else { continue };
            let home = &**round.source(&task.place);
            // A link to what stood there before would have the old bytes for ever.
            let has_come = !round.is_missing(task.node, task.place.map, to);
            if has_come && homewards::hard_link(home, to, &task.at).is_ok() {
                let came = Came { bytes: 0, digest: None, home: *version };
                let files = vec![round.came(task, &came)];
                self.order(task.node, Order::AtHome { files });
            } else {
                let job = Job::File { bytes: *bytes, inode: 0, home: *version };
                files.push(Task { job, ..task.clone() });
            }
        }
        self.bring(round, &files);
    }

    /// Does what takes no bytes of a node; whether it is done.
    fn do_here(&self, round: &Round, task: &Task) -> bool {
        let home = &**round.source(&task.place);
        let (done, state) = match &task.job {
            // Others write into it while it is filled.
            Job::Directory { mode, .. } => (home.make_dir(&task.at, mode | 0o700), Home::Some),
            Job::Link { text, home: state } => (homewards::make_link(home, &task.at, text), *state),
            Job::Remove => (homewards::remove(home, &task.at).map(drop), Home::Nothing),
            Job::File { .. } | Job::Linked { .. } => return false,
        };
        match done {
            Ok(()) => {
                let came = Came { bytes: 0, digest: None, home: state };
                let files = vec![round.came(task, &came)];
                self.order(task.node, Order::AtHome { files });
                true
            }
            Err(error) => {
                round.failed(task, &format!("it cannot be done at home: {error}"));
                false
            }
        }
    }

    /// Has files come, of some nodes at a time.
    fn bring(&self, round: &Round, files: &[Task]) {
        let mut nodes: BTreeMap<NodeId, Vec<&Task>> = BTreeMap::new();
        for task in files {
            nodes.entry(task.node).or_default().push(task);
        }
        let threads = self.options.concurrency.clamp(1, nodes.len().max(1));
        let nodes = Mutex::new(nodes);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let next = nodes.lock().pop_first();
                        let Some((node, tasks)) = next else { return };
                        Transfer::new(round, node, &tasks).run();
                    }
                });
            }
        });
    }
}

impl Deref for Outgoing {
    type Target = Setup;

    fn deref(&self) -> &Setup {
        &self.setup
    }
}
