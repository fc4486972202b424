//! The one thread that knows the state of a job: which files are wanted by whom, which contents travel on
//! which routes, which nodes live. It never waits for anything but the next word, and a moment for that while
//! something is under way that may stall.

mod bundling;
mod losses;
mod reading;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use azekura_proto::staging::NodeId;

use crate::front::event::Event;
use crate::front::pace::Pace;
use crate::front::plan::{Known, Plan};
use crate::front::route::Route;
use crate::front::scheduler::bundling::Bundling;
use crate::front::word::Word;
use crate::message::{ContentDescription, ContentId, Place, ToAgent, ToFront};
use crate::outbox::Outbox;
use crate::stock::{Cut, Stock};
use crate::workers::Workers;

/// How often it is looked what stalls.
const LOOK: Duration = Duration::from_millis(100);

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
    /// Bundles that are being read, by their numbers.
    reading: HashMap<u64, Arc<Bundling>>,
    next_bundle: u64,
    /// Files that are being opened, since when.
    opening: HashMap<Place, Instant>,
    /// Contents that have not come to all nodes.
    under_way: HashSet<ContentId>,
    looked: Option<Instant>,
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
    /// Of the version that it had when it began to come and changed.
    before: Option<Cut>,
}

struct Travelling {
    description: Arc<ContentDescription>,
    plan: Plan,
    route: Route,
    pace: Pace,
}

impl Scheduler {
    pub(crate) fn run(mut self, words: &Receiver<Word>) {
        loop {
            let goes_on = match self.next(words) {
                Ok(word) => self.hear(word),
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            if !goes_on {
                return;
            }
            // What is here already is heard before anything is begun: small files travel together.
            while let Ok(word) = words.try_recv() {
                if !self.hear(word) {
                    return;
                }
            }
            self.look_at_the_clock();
            self.begin_waiting();
        }
    }

    fn next(&self, words: &Receiver<Word>) -> Result<Word, RecvTimeoutError> {
        let State { reading, opening, under_way, .. } = &self.state;
        if reading.is_empty() && opening.is_empty() && under_way.is_empty() {
            return words.recv().map_err(|_| RecvTimeoutError::Disconnected);
        }
        words.recv_timeout(LOOK)
    }

    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        if self.state.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK) {
            self.state.looked = Some(now);
            self.split_stalled();
            self.splice_out_stalled(now);
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
                self.state.opening.remove(&place);
                match opened {
                    Ok(content) => self.begin(content),
                    Err(errno) => self.refuse(&place, errno, "it cannot be opened"),
                }
            }
            Word::Bundled(number, bundled) => {
                self.state.reading.remove(&number);
                self.bundled(bundled);
            }
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
            ToFront::Beat | ToFront::List { .. } | ToFront::Closed | ToFront::Out(_) => {}
            ToFront::Want { files } => {
                for (place, bytes) in files {
                    self.want(node, place, bytes);
                }
            }
            ToFront::Progress { pieces } => {
                for (id, pieces) in pieces {
                    if let Some(content) = self.state.contents.get_mut(&id) {
                        content.pace.came(node, pieces);
                        let whole = content.description.bytes();
                        let bytes = content.description.offset_of(pieces).min(whole);
                        if !content.description.is_small() && bytes < whole {
                            self.tell(Event::ContentComing { content: id.0, node, bytes });
                        }
                    }
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
            ToFront::ReadThrough { content, why } => self.read_through(node, content, why),
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
        let beside = if description.is_small() { self.small_bytes_beside() } else { 0 };
        let plan = self.links.plan(description.bytes(), beside, &takers);
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
        let (route, pace) = (Route::new(&plan.suppliers), Pace::default());
        self.state.contents.insert(id, Travelling { description, plan, route, pace });
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
}

/// A path as text, for messages.
fn text_of(place: &Place) -> String {
    String::from_utf8_lossy(&place.path).into_owned()
}

fn path_of(content: &ContentDescription) -> String {
    content.parts.first().map(|part| text_of(&part.place)).unwrap_or_default()
}
