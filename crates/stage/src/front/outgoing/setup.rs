//! What all that brings files home works with: the job, its homes and agents, and the ways to tell somebody.
//! Decides nothing.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;

use azekura_proto::staging::{JobId, NodeId};

use crate::doors::{OpenSockets, Pass};
use crate::fetch::Fetcher;
use crate::front::event::Event;
use crate::front::outgoing::arrivals::Arrivals;
use crate::front::outgoing::manifest::About;
use crate::front::outgoing::post::Post;
use crate::job::MapDescription;
use crate::message::{Opening, Order, Place, Supplier, ToAgent};
use crate::outbox::Outbox;
use crate::piece::Buffers;
use crate::source::Source;

/// How files go home.
#[derive(Clone, Debug)]
pub struct OutOptions {
    /// Nodes that send at once; 1 is one after the other.
    pub concurrency: usize,
    /// Files that programs have written go home when they are closed, and not at the end alone.
    pub on_close: bool,
    /// Where it is written down what was sent, and what has still to be: what does not come home then stays on
    /// its node, for [`Front::resume`](crate::front::Front::resume).
    pub manifest: Option<PathBuf>,
    /// What whoever resumes the job has to know; written into the manifest as it is.
    pub note: BTreeMap<String, String>,
}

impl Default for OutOptions {
    fn default() -> Self {
        Self { concurrency: 4, on_close: false, manifest: None, note: BTreeMap::new() }
    }
}

/// An agent, as far as it sends files home.
pub(crate) struct Agent {
    pub(crate) host: String,
    /// Where it gives contents.
    pub(crate) address: SocketAddr,
    pub(crate) outbox: Outbox<ToAgent>,
}

/// What brings files home has to know this of its job.
pub(crate) struct OutParts {
    pub(crate) maps: Vec<MapDescription>,
    pub(crate) sources: Vec<Arc<dyn Source>>,
    pub(crate) nodes: BTreeMap<NodeId, Agent>,
    pub(crate) post: Arc<Post>,
    pub(crate) events: Sender<Event>,
    pub(crate) options: OutOptions,
}

/// What brings files home works with this.
pub(crate) struct Setup {
    parts: OutParts,
    job: JobId,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) arrivals: Arc<Arrivals>,
    next_ask: AtomicU32,
}

impl Deref for Setup {
    type Target = OutParts;

    fn deref(&self) -> &OutParts {
        &self.parts
    }
}

impl Setup {
    /// The fetching ends when the sockets are closed.
    pub(crate) fn new(parts: OutParts, pass: Pass, open: Arc<OpenSockets>) -> Self {
        let address = |(node, agent): (&NodeId, &Agent)| (*node, agent.address.to_string());
        let addresses: HashMap<_, _> = parts.nodes.iter().map(address).collect();
        let job = pass.job;
        let dial = Box::new(move |supplier| {
            let address = match supplier {
                Supplier::Node(node) => addresses.get(&node),
                Supplier::Front => None,
            };
            let address = address.ok_or("its address is not known")?;
            pass.dial(address, &Opening::Fetch).map_err(|error| error.to_string())
        });
        let arrivals = Arrivals::new(Arc::clone(&parts.post), parts.events.clone());
        Self {
            parts,
            job,
            fetcher: Fetcher::new(dial, Buffers::default(), open),
            arrivals: Arc::new(arrivals),
            next_ask: AtomicU32::new(0),
        }
    }

    /// A number for what an agent is asked, so that no late answer is taken for another.
    pub(crate) fn next_ask(&self) -> u32 {
        self.next_ask.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn hosts(&self) -> BTreeMap<NodeId, String> {
        self.nodes.iter().map(|(node, agent)| (*node, agent.host.clone())).collect()
    }

    pub(crate) fn about<'a>(&'a self, hosts: &'a BTreeMap<NodeId, String>) -> About<'a> {
        About { job: self.job, hosts, maps: &self.maps, note: &self.options.note }
    }

    /// Tells an agent to do something; if it is lost, whoever waits for the answer hears of that.
    pub(crate) fn order(&self, node: NodeId, order: Order) {
        if let Some(agent) = self.nodes.get(&node) {
            agent.outbox.say(ToAgent::Out(order));
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        // Nobody needs to listen.
        let _ = self.events.send(event);
    }

    /// A place as programs name it, for messages.
    pub(crate) fn text_of(&self, place: &Place) -> String {
        let dir = self.maps.get(usize::from(place.map)).map_or(&b""[..], |map| &map.dir);
        String::from_utf8_lossy(&[dir, b"/", &place.path].concat()).into_owned()
    }
}
