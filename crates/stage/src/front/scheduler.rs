//! The one thread that knows the state of a job: which files are wanted by whom, which contents travel on
//! which routes, which nodes live. It never waits for anything but the next word.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use azekura_proto::staging::NodeId;
use rustix::io::Errno;

use crate::front::event::Event;
use crate::front::plan::{Known, Plan};
use crate::front::route::Route;
use crate::front::word::Word;
use crate::front::workers::Workers;
use crate::message::{
    BUNDLE_BYTES_MAX, BUNDLE_NAMES_BYTES_MAX, ContentDescription, ContentId, PARTS_MAX,
    PLACE_BYTES, Place, SMALL_BYTES_MAX, Supplier, ToAgent, ToFront,
};
use crate::outbox::Outbox;
use crate::stock::{Audience, Bundled, Stock};

/// Large files that travel at once: more would only make each of them later.
const LARGE_MAX: usize = 4;
/// Bundles that travel at once; the nodes hold them in memory.
const BUNDLES_MAX: usize = 16;
/// Bundles that are read at once. Files that are wanted meanwhile wait, and travel together.
const READING_MAX: usize = 2;
/// A file that changes whenever it is read is given up after so many times.
const TRIES_MAX: u32 = 5;
/// A node that loses so many suppliers of one content does not get it.
const LOSSES_MAX: u32 = 64;

/// To which nodes a file comes that one of them wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipients {
    /// To all.
    All,
    /// To those that ask for it.
    Requesters,
}

/// The state of a job.
pub(crate) struct Scheduler {
    pub(crate) recipients: Recipients,
    pub(crate) links: Known,
    /// The nodes that live.
    pub(crate) agents: BTreeMap<NodeId, Outbox<ToAgent>>,
    pub(crate) stock: Arc<Stock>,
    pub(crate) workers: Workers,
    pub(crate) words: Sender<Word>,
    pub(crate) events: Sender<Event>,
    pub(crate) state: State,
}

#[derive(Default)]
pub(crate) struct State {
    files: HashMap<Place, Wanted>,
    contents: HashMap<ContentId, Travelling>,
    small: VecDeque<Place>,
    large: VecDeque<Place>,
    reading: usize,
    opening: usize,
    /// Contents that have not come to all nodes.
    under_way: HashSet<ContentId>,
}

/// A file that somebody has asked for.
#[derive(Default)]
struct Wanted {
    bytes: u64,
    /// Nodes that get it once its content is known.
    by: BTreeSet<NodeId>,
    content: Option<ContentId>,
    is_queued: bool,
    tries: u32,
}

struct Travelling {
    description: Arc<ContentDescription>,
    plan: Plan,
    route: Route,
}

impl Scheduler {
    pub(crate) fn run(mut self, words: &Receiver<Word>) {
        while let Ok(word) = words.recv() {
            if !self.hear(word) {
                return;
            }
            // What is here already is heard before anything is begun: small files travel together.
            while let Ok(word) = words.try_recv() {
                if !self.hear(word) {
                    return;
                }
            }
            self.begin_waiting();
        }
    }

    fn hear(&mut self, word: Word) -> bool {
        match word {
            Word::Said(node, message) if self.agents.contains_key(&node) => {
                self.said(node, message);
            }
            Word::Said(..) => {}
            Word::Gone(node, why) => self.node_gone(node, why),
            Word::Opened { place, opened } => {
                self.state.opening -= 1;
                match opened {
                    Ok(content) => self.begin(content),
                    Err(errno) => self.refuse(&place, errno, "it cannot be opened"),
                }
            }
            Word::Bundled(bundled) => self.bundled(bundled),
            Word::Changed(id) => self.changed(id),
            Word::Unreadable(id, errno) => self.unreadable(id, errno),
            Word::Prefetch(files) => {
                for (place, bytes) in files {
                    for node in self.agents.keys().copied().collect::<Vec<_>>() {
                        self.want(node, place.clone(), bytes);
                    }
                }
            }
            Word::End => return false,
        }
        true
    }

    fn said(&mut self, node: NodeId, message: ToFront) {
        match message {
            // Heard where they come in.
            ToFront::Beat | ToFront::List { .. } | ToFront::Out(_) => {}
            ToFront::Want { files } => {
                for (place, bytes) in files {
                    self.want(node, place, bytes);
                }
            }
            ToFront::Arrived { content, bytes_per_second } => {
                self.arrived(node, content, bytes_per_second);
            }
            ToFront::SupplierLost { content, supplier, at_piece } => {
                self.supplier_lost(node, content, supplier, at_piece);
            }
            ToFront::WrongPiece { content, index, culprit } => {
                self.tell(Event::WrongPiece { content: content.0, index, node, culprit });
            }
            ToFront::Failed { content, errno: _, why } => self.node_failed(node, content, why),
        }
    }

    fn tell(&self, event: Event) {
        // Nobody needs to listen.
        let _ = self.events.send(event);
    }

    fn say(&self, node: NodeId, message: ToAgent) {
        if let Some(outbox) = self.agents.get(&node)
            && !outbox.say(message)
        {
            // It hears nothing any more; the thread that listens to it finds that out too.
            tracing::warn!("node {} does not take what it is told", node.0);
        }
    }

    fn want(&mut self, node: NodeId, place: Place, bytes: u64) {
        let wanted = self.state.files.entry(place.clone()).or_default();
        if let Some(content) = wanted.content {
            return self.join(node, content);
        }
        wanted.by.insert(node);
        if !wanted.is_queued {
            wanted.is_queued = true;
            wanted.bytes = bytes;
            self.queue(place, bytes);
        }
    }

    fn queue(&mut self, place: Place, bytes: u64) {
        let is_small = bytes <= SMALL_BYTES_MAX;
        let queue = if is_small { &mut self.state.small } else { &mut self.state.large };
        queue.push_back(place);
    }

    /// Begins what may begin.
    fn begin_waiting(&mut self) {
        let large = |state: &State| {
            let is_large = |id: &&ContentId| {
                state.contents.get(id).is_some_and(|content| !content.description.is_small())
            };
            state.under_way.iter().filter(is_large).count()
        };
        let travelling = large(&self.state);
        let bundles = self.state.under_way.len() - travelling;
        while travelling + self.state.opening < LARGE_MAX
            && let Some(place) = self.state.large.pop_front()
        {
            self.state.opening += 1;
            let audience = self.audience(&place);
            let (stock, words) = (Arc::clone(&self.stock), self.words.clone());
            self.workers.give(move || {
                let opened = stock.open(&place, audience).map_err(|error| {
                    Errno::from_io_error(&error).unwrap_or(Errno::IO).raw_os_error()
                });
                // If nobody listens the job is over.
                let _ = words.send(Word::Opened { place, opened });
            });
        }
        while bundles + self.state.reading < BUNDLES_MAX
            && self.state.reading < READING_MAX
            && !self.state.small.is_empty()
        {
            let places = self.gather();
            let Some(first) = places.first() else { return };
            let audience = self.audience(first);
            self.state.reading += 1;
            let (stock, words) = (Arc::clone(&self.stock), self.words.clone());
            self.workers.give(move || {
                let _ = words.send(Word::Bundled(stock.bundle(places, audience)));
            });
        }
    }

    /// To how many nodes a file goes.
    fn audience(&self, place: &Place) -> Audience {
        let nodes = match self.recipients {
            Recipients::All => self.agents.len(),
            Recipients::Requesters => {
                self.state.files.get(place).map_or(0, |wanted| wanted.by.len())
            }
        };
        Audience { nodes, links: self.links }
    }

    /// Small files that the same nodes want, as many as go into one content.
    fn gather(&mut self) -> Vec<Place> {
        let State { files, small, .. } = &mut self.state;
        let mut gathered = Vec::new();
        let (mut bytes, mut names) = (0, 0);
        let mut by = None;
        while let Some(place) = small.front() {
            let Some(wanted) = files.get(place) else {
                small.pop_front();
                continue;
            };
            bytes += wanted.bytes;
            names += place.path.len() + PLACE_BYTES;
            let others_want_it = by.as_ref().is_some_and(|by| *by != wanted.by);
            let is_full = bytes > BUNDLE_BYTES_MAX || names > BUNDLE_NAMES_BYTES_MAX;
            if gathered.len() >= PARTS_MAX || !gathered.is_empty() && (is_full || others_want_it) {
                break;
            }
            by.get_or_insert_with(|| wanted.by.clone());
            gathered.extend(small.pop_front());
        }
        gathered
    }

    fn bundled(&mut self, bundled: Bundled) {
        self.state.reading -= 1;
        for (place, errno) in bundled.failed {
            self.refuse(&place, errno, "it cannot be read");
        }
        self.state.large.extend(bundled.grown);
        if let Some(content) = bundled.content {
            self.begin(content);
        }
    }

    /// A content is known: the nodes are told to fetch it.
    fn begin(&mut self, description: Arc<ContentDescription>) {
        let id = description.id;
        let mut takers = BTreeSet::new();
        for part in &description.parts {
            let wanted = self.state.files.entry(part.place.clone()).or_default();
            takers.append(&mut wanted.by);
            wanted.is_queued = false;
            wanted.content = Some(id);
        }
        if self.recipients == Recipients::All {
            takers.extend(self.agents.keys());
        }
        takers.retain(|node| self.agents.contains_key(node));
        let takers: Vec<_> = takers.into_iter().collect();
        let plan = self.links.plan(description.bytes(), &takers);
        self.tell(Event::ContentBegun {
            content: id.0,
            path: path_of(&description),
            files: description.parts.len(),
            bytes: description.bytes(),
            nodes: takers.len(),
            fan_out: plan.fan_out(),
            piece_bytes: description.piece_bytes,
        });
        for (node, supplier) in &plan.suppliers {
            let content = (*description).clone();
            self.say(*node, ToAgent::Take { content, supplier: *supplier });
        }
        let route = Route::new(&plan.suppliers);
        self.state.contents.insert(id, Travelling { description, plan, route });
        self.state.under_way.insert(id);
        self.check_settled(id);
    }

    /// A node wants what is known already.
    fn join(&mut self, node: NodeId, id: ContentId) {
        let front_has = self.stock.has(id);
        let Some(content) = self.state.contents.get_mut(&id) else { return };
        if content.route.taker(node).is_some_and(|taker| !taker.has) {
            return;
        }
        let Some(supplier) = content.route.choose(node, None, front_has) else {
            return self.restart(id, Some(node));
        };
        content.route.set(node, supplier);
        self.state.under_way.insert(id);
        let content = (*content.description).clone();
        self.say(node, ToAgent::Take { content, supplier });
    }

    fn arrived(&mut self, node: NodeId, id: ContentId, bytes_per_second: u64) {
        let Some(content) = self.state.contents.get_mut(&id) else { return };
        // One that has lost its supplier has another by now than the plan says.
        if let Some(taker) = content.route.taker(node).filter(|taker| taker.losses == 0) {
            let bytes = content.description.bytes();
            self.links.measured(&content.plan, taker.supplier, bytes, bytes_per_second);
        }
        content.route.arrived(node);
        let event = Event::ContentArrived {
            content: id.0,
            node,
            files: content.description.parts.len(),
            bytes: content.description.bytes(),
        };
        self.tell(event);
        self.check_settled(id);
    }

    fn check_settled(&mut self, id: ContentId) {
        let State { files, contents, under_way, .. } = &mut self.state;
        let Some(content) = contents.get(&id).filter(|content| content.route.is_settled()) else {
            return;
        };
        for part in &content.description.parts {
            if let Some(wanted) = files.get_mut(&part.place) {
                wanted.tries = 0;
            }
        }
        under_way.remove(&id);
        self.stock.settle(id);
    }

    fn supplier_lost(&mut self, node: NodeId, id: ContentId, lost: Supplier, at_piece: u32) {
        let Some(content) = self.state.contents.get(&id) else { return };
        // If it is another by now, the node has been told.
        let waits = |taker: super::route::Taker| !taker.has && taker.supplier == lost;
        if !content.route.taker(node).is_some_and(waits) {
            return;
        }
        self.tell(Event::SupplierLost { content: id.0, node, supplier: lost, at_piece });
        self.resupply(node, id, lost);
    }

    /// Finds another supplier for a node.
    fn resupply(&mut self, node: NodeId, id: ContentId, lost: Supplier) {
        let front_has = self.stock.has(id);
        let Some(content) = self.state.contents.get_mut(&id) else { return };
        if let Supplier::Node(lost) = lost {
            content.route.forget_holder(lost);
        }
        let Some(supplier) = content.route.replace(node, lost, front_has) else {
            return self.restart(id, None);
        };
        if content.route.set(node, supplier) > LOSSES_MAX {
            return self.node_failed(node, id, "every supplier of it was lost".to_owned());
        }
        self.say(node, ToAgent::Resupply { content: id, supplier });
    }

    /// A node takes part in a content no more.
    fn take_out(&mut self, node: NodeId, id: ContentId) {
        let Some(content) = self.state.contents.get_mut(&id) else { return };
        let lost = Supplier::Node(node);
        let at = content.route.taker(node).map(|taker| taker.supplier);
        let (orphans, _) = content.route.remove(node);
        for orphan in orphans {
            self.tell(Event::SupplierLost {
                content: id.0,
                node: orphan,
                supplier: lost,
                at_piece: 0,
            });
            // What supplied the lost one goes on with the one behind it.
            match at.filter(|at| self.may_supply(*at, id)) {
                Some(supplier) => {
                    if let Some(content) = self.state.contents.get_mut(&id) {
                        content.route.set(orphan, supplier);
                    }
                    self.say(orphan, ToAgent::Resupply { content: id, supplier });
                }
                None => self.resupply(orphan, id, lost),
            }
        }
        self.check_settled(id);
    }

    fn may_supply(&self, supplier: Supplier, id: ContentId) -> bool {
        match supplier {
            Supplier::Front => self.stock.has(id),
            Supplier::Node(node) => {
                let content = self.state.contents.get(&id);
                content.is_some_and(|content| content.route.taker(node).is_some())
            }
        }
    }

    fn node_gone(&mut self, node: NodeId, why: String) {
        if self.agents.remove(&node).is_none() {
            return;
        }
        tracing::warn!("node {} takes part no more: {why}", node.0);
        self.tell(Event::NodeGone { node, why });
        for wanted in self.state.files.values_mut() {
            wanted.by.remove(&node);
        }
        let has_it = |(id, content): (&ContentId, &Travelling)| {
            content.route.taker(node).is_some().then_some(*id)
        };
        let contents: Vec<ContentId> = self.state.contents.iter().filter_map(has_it).collect();
        for id in contents {
            self.take_out(node, id);
        }
    }

    fn node_failed(&mut self, node: NodeId, id: ContentId, why: String) {
        let Some(content) = self.state.contents.get(&id) else { return };
        let path = path_of(&content.description);
        for part in &content.description.parts {
            let place = part.place.clone();
            self.say(node, ToAgent::Refuse { place, errno: Errno::IO.raw_os_error() });
        }
        self.say(node, ToAgent::Abandon { content: id });
        self.tell(Event::Failed { path, node: Some(node), why });
        self.take_out(node, id);
    }

    /// A file is not what it was. Whoever has all of it keeps it, and gives it to the others.
    fn changed(&mut self, id: ContentId) {
        let Some(content) = self.state.contents.get(&id) else { return };
        if !content.route.nodes().any(|(_, taker)| taker.has) {
            return self.restart(id, None);
        }
        let from_front = |(node, taker): (NodeId, super::route::Taker)| {
            (!taker.has && taker.supplier == Supplier::Front).then_some(node)
        };
        for node in content.route.nodes().filter_map(from_front).collect::<Vec<_>>() {
            self.resupply(node, id, Supplier::Front);
        }
    }

    /// Begins the files of a content anew.
    fn restart(&mut self, id: ContentId, also: Option<NodeId>) {
        let Some(content) = self.state.contents.remove(&id) else { return };
        self.state.under_way.remove(&id);
        self.stock.forget(id);
        let waiting = content.route.waiting();
        for node in &waiting {
            self.say(*node, ToAgent::Abandon { content: id });
        }
        for part in &content.description.parts {
            let Some(wanted) = self.state.files.get_mut(&part.place) else { continue };
            wanted.content = None;
            wanted.by.extend(waiting.iter().copied().chain(also));
            wanted.tries += 1;
            wanted.bytes = part.attributes.size;
            if wanted.tries >= TRIES_MAX {
                let why = "it changes whenever it is read: stage it when nobody writes to it";
                self.refuse(&part.place, Errno::IO.raw_os_error(), why);
                continue;
            }
            wanted.is_queued = true;
            self.queue(part.place.clone(), part.attributes.size);
            self.tell(Event::Restarted { path: text_of(&part.place) });
        }
    }

    fn unreadable(&mut self, id: ContentId, errno: i32) {
        let Some(content) = self.state.contents.remove(&id) else { return };
        self.state.under_way.remove(&id);
        let waiting = content.route.waiting();
        for part in &content.description.parts {
            if let Some(wanted) = self.state.files.get_mut(&part.place) {
                wanted.content = None;
                wanted.by.extend(&waiting);
            }
            self.refuse(&part.place, errno, "it cannot be read");
        }
        for node in waiting {
            self.say(node, ToAgent::Abandon { content: id });
        }
    }

    /// A file does not come. Who asks for it later, has it tried again.
    fn refuse(&mut self, place: &Place, errno: i32, why: &str) {
        let Some(wanted) = self.state.files.remove(place) else { return };
        for node in wanted.by {
            self.say(node, ToAgent::Refuse { place: place.clone(), errno });
        }
        let error = std::io::Error::from_raw_os_error(errno);
        let why = format!("{why}: {error}");
        self.tell(Event::Failed { path: text_of(place), node: None, why });
    }
}

/// A path as text, for messages.
fn text_of(place: &Place) -> String {
    String::from_utf8_lossy(&place.path).into_owned()
}

fn path_of(content: &ContentDescription) -> String {
    content.parts.first().map(|part| text_of(&part.place)).unwrap_or_default()
}
