//! The agent of a node: takes in what comes, gives it to others, and answers the node's programs. Owns the
//! control connection and the end: once the front is gone, nobody waits any more and nothing stays.

mod answer;
mod arriving;
mod at_home;
mod bring;
mod closing;
mod content;
mod direct;
mod disk;
mod eviction;
mod incoming;
mod keeping;
mod listings;
mod lists;
mod local;
mod names;
mod outdated;
mod outgoing;
mod partial;
mod progress;
mod reading;
mod succession;
mod tree;
mod walk;
mod wants;
mod window;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azekura_proto::frame;
use azekura_proto::staging::{MapKind, NodeId};
use azekura_wire::{Connection, FrameReader, Secret, Socket};
use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;

use crate::agent::answer::Answers;
use crate::agent::arriving::Arriving;
use crate::agent::bring::Bring;
use crate::agent::incoming::Incoming;
use crate::agent::listings::Listings;
use crate::agent::local::Programs;
use crate::agent::names::Seen;
use crate::agent::outgoing::{Outgoing, Shelves};
use crate::agent::tree::Tree;
use crate::agent::wants::Wants;
use crate::doors::{Door, OpenSockets, Pass, spawn};
use crate::error::Error;
use crate::fetch::Fetcher;
use crate::job::{AgentDescription, MapDescription};
use crate::message::{Opening, Order, Supplier, ToAgent, ToFront};
use crate::outbox::{Outbox, SILENCE};
use crate::piece::Buffers;
use crate::supply;

/// An agent that no front has called for so long ends.
const LONELY: Duration = Duration::from_secs(60);

/// A running agent. It goes on when this is dropped, until the front ends it or is gone.
pub struct Agent {
    node: Arc<Node>,
    port: u16,
}

/// Where the others of the job listen.
#[derive(Default)]
struct Others {
    front: Option<String>,
    nodes: Vec<(NodeId, String)>,
}

struct Node {
    keeps_cache: bool,
    /// Files have still to go home.
    has_unsent: AtomicBool,
    open: Arc<OpenSockets>,
    programs: Arc<Programs>,
    door: Arc<Door>,
    tree: Arc<Tree>,
    wants: Arc<Wants>,
    seen: Arc<Seen>,
    incoming: Arc<Incoming>,
    arriving: Option<Arc<Arriving>>,
    outgoing: Arc<Outgoing>,
    outbox: Outbox<ToFront>,
    others: Arc<Mutex<Others>>,
    end: Mutex<End>,
    ended: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Running,
    Ending,
    Over,
}

impl Agent {
    /// Starts an agent: makes its directories, listens to programs, the front and other agents.
    ///
    /// # Errors
    /// If the cache cannot be used, or another agent of the job stands on this node.
    pub fn start(description: AgentDescription) -> Result<Self, Error> {
        let secret = Secret::from_hex(&description.secret).ok_or(Error::Secret)?;
        let pass = Pass { job: description.job, secret };
        let name = description.job.socket_name() + &description.socket_suffix;
        // First of all: it says whether another agent of the job stands here.
        let programs = local::listen(&name).map_err(Error::system("listen to local programs"))?;
        let number = description.node;
        let node = Arc::new(Node::new(description, pass)?);
        let started = node.start(programs, number);
        started.inspect_err(|_| node.end())?;
        let port = node.door.port().map_err(Error::system("listen to other nodes"))?;
        Ok(Self { node, port })
    }

    /// The TCP port at which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until it has ended, all threads that write done and its directory removed.
    pub fn wait(&self) {
        let mut end = self.node.end.lock();
        while *end != End::Over {
            self.node.ended.wait(&mut end);
        }
    }

    /// Ends it at once.
    pub fn stop(&self) {
        self.node.end();
        self.wait();
    }
}

impl Node {
    fn new(description: AgentDescription, pass: Pass) -> Result<Self, Error> {
        let job = format!("azekura-stage-{}", description.job.to_hex());
        let path = description.cache.join(job).join(description.node.0.to_string());
        let tree = Tree::create(path.clone(), description.maps.len());
        let tree = Arc::new(tree.map_err(|source| Error::Cache { path, source })?);
        let open = Arc::new(OpenSockets::default());
        let door =
            Door::open(pass.clone(), &open).map_err(Error::system("listen to other nodes"))?;
        let (outbox, buffers) = (Outbox::new(), Buffers::default());
        let others: Arc<Mutex<Others>> = Arc::default();
        let known = Arc::clone(&others);
        let dial = Box::new(move |supplier| {
            let address = known.lock().address(supplier).ok_or("its address is not known")?;
            pass.dial(&address, &Opening::Fetch).map_err(|error| error.to_string())
        });
        let fetcher = Fetcher::new(dial, buffers.clone(), Arc::clone(&open));
        let wants: Arc<Wants> = Arc::default();
        let (direct, out) = (description.keeping.direct, outbox.clone());
        let dirs = description.maps.iter().map(|map| map.dir.clone()).collect();
        let (its_tree, its_wants) = (Arc::clone(&tree), Arc::clone(&wants));
        let incoming = Incoming::new(its_tree, its_wants, out, buffers, fetcher, direct, dirs);
        let incoming = incoming.map_err(Error::system("start a thread"))?;
        let arriving = arriving(&incoming, &description);
        let listings = Listings::new(outbox.clone());
        let seen = Arc::new(Seen::new(description.maps, Arc::clone(&tree), listings));
        let outgoing = Outgoing::new(Arc::clone(&seen), outbox.clone());
        let outgoing = outgoing.map_err(Error::system("open the tree"))?;
        Ok(Self {
            keeps_cache: description.keeps_cache,
            has_unsent: AtomicBool::new(false),
            open,
            programs: Arc::default(),
            door,
            tree,
            wants,
            seen,
            incoming,
            arriving,
            outgoing: Arc::new(outgoing),
            outbox,
            others,
            end: Mutex::new(End::Running),
            ended: Condvar::new(),
        })
    }

    fn start(self: &Arc<Self>, programs: OwnedFd, node: NodeId) -> Result<(), Error> {
        let (seen, wants) = (Arc::clone(&self.seen), Arc::clone(&self.wants));
        let bring = Bring { seen, wants, outbox: self.outbox.clone() };
        let (answers, prefetches) = Answers::new(node, bring.clone(), self.arriving.clone());
        spawn("prefetch", move || prefetches.run(&bring))
            .map_err(Error::system("start a thread"))?;
        self.programs
            .serve(programs, answers)
            .map_err(Error::system("listen to local programs"))?;
        self.outgoing.start().map_err(Error::system("start a thread"))?;
        let serving = Arc::clone(self);
        self.door
            .let_in(move |connection, opening| serving.serve(connection, opening))
            .map_err(Error::system("listen to other nodes"))?;
        let waiting = Arc::clone(self);
        spawn("lonely", move || waiting.end_if_lonely()).map_err(Error::system("start a thread"))
    }

    fn serve(self: &Arc<Self>, connection: Connection, opening: Opening) {
        match opening {
            Opening::Fetch => {
                let (incoming, outgoing) = (Arc::clone(&self.incoming), Arc::clone(&self.outgoing));
                supply::serve(connection, &Arc::new(Shelves { incoming, outgoing }));
            }
            Opening::Control { nodes, front_port } => {
                let Some(mouth) = self.outbox.mouth() else { return };
                let Some(host) = peer_of(&connection) else { return self.end() };
                let front = SocketAddr::new(host, front_port).to_string();
                *self.others.lock() = Others { front: Some(front), nodes };
                let (writer, reader) = connection.split();
                let socket = Arc::clone(reader.socket());
                let timed = socket.set_write_timeout(Some(SILENCE));
                if timed.is_ok() && spawn("say", move || mouth.run(writer, &ToFront::Beat)).is_ok()
                {
                    self.listen(reader);
                }
                socket.shut_down();
                self.end();
            }
        }
    }

    /// Does what the front says, until it ends the job or is gone.
    fn listen(&self, mut reader: FrameReader) {
        if reader.socket().set_read_timeout(Some(SILENCE)).is_err() {
            return;
        }
        loop {
            let message = match reader.recv() {
                Ok((_, body)) => frame::decode(body),
                Err(error) => {
                    tracing::error!("the front of the job is gone: {error}");
                    return;
                }
            };
            match message {
                Ok(ToAgent::Beat) => {}
                Ok(ToAgent::Listing { place, page, is_last }) => {
                    self.seen.listings.page(place, page, is_last);
                }
                Ok(ToAgent::Take { content, .. }) if !content.is_sound(self.seen.maps.len()) => {
                    tracing::error!("the front gives what cannot be: {content:?}");
                    return;
                }
                Ok(ToAgent::Take { content, supplier }) => self.incoming.take(content, supplier),
                Ok(ToAgent::Resupply { content, supplier }) => {
                    self.incoming.resupply(content, supplier);
                }
                Ok(ToAgent::Abandon { content }) => self.incoming.abandon(content),
                Ok(ToAgent::Refuse { place, errno }) => {
                    self.wants.decide(&place, Err(errno));
                    self.incoming.end_successions(&place);
                }
                Ok(ToAgent::Out(Order::Keep { keeps })) => {
                    self.has_unsent.store(keeps, Ordering::Release);
                }
                Ok(ToAgent::Out(order)) => self.outgoing.order(order),
                Ok(ToAgent::End) => return,
                Err(error) => {
                    tracing::error!("the front says what nobody understands: {error}");
                    return;
                }
            }
        }
    }

    fn end_if_lonely(&self) {
        let deadline = Instant::now() + LONELY;
        let mut end = self.end.lock();
        while *end == End::Running && self.others.lock().front.is_none() {
            if self.ended.wait_until(&mut end, deadline).timed_out() {
                drop(end);
                if self.others.lock().front.is_none() {
                    tracing::error!("no front has called: the agent ends");
                    self.end();
                }
                return;
            }
        }
    }

    /// Ends everything: programs that wait get errors, and nothing of the job stays on the node.
    fn end(&self) {
        let mut end = self.end.lock();
        if *end != End::Running {
            return;
        }
        *end = End::Ending;
        drop(end);
        self.ended.notify_all();
        self.wants.end();
        if let Some(arriving) = &self.arriving {
            arriving.end();
        }
        self.seen.listings.end();
        self.open.close();
        self.door.close();
        self.programs.end();
        self.incoming.end();
        if let Some(arriving) = &self.arriving {
            arriving.linger();
        }
        if !self.keeps_cache
            && !self.has_unsent.load(Ordering::Acquire)
            && let Err(error) = self.tree.remove()
        {
            let root = self.tree.root().display();
            tracing::warn!("cannot remove {root}: {error}; remove it by hand");
        }
        *self.end.lock() = End::Over;
        self.ended.notify_all();
    }
}

impl Others {
    fn address(&self, supplier: Supplier) -> Option<String> {
        match supplier {
            Supplier::Front => self.front.clone(),
            Supplier::Node(node) => {
                let known = self.nodes.iter().find(|(other, _)| *other == node);
                known.map(|(_, address)| address.clone())
            }
        }
    }
}

/// Where programs read files as they come, unless they are to wait for all of a file or the machine does not
/// let it be.
fn arriving(incoming: &Arc<Incoming>, description: &AgentDescription) -> Option<Arc<Arriving>> {
    if description.keeping.whole {
        return None;
    }
    match Arriving::mount(incoming) {
        Ok(arriving) => {
            let is_readable = |map: &MapDescription| map.kind == MapKind::ReadOnly;
            incoming.may_be_read(description.maps.iter().map(is_readable).collect());
            Some(Arc::new(arriving))
        }
        Err(error) => {
            tracing::info!(
                "programs wait for all of a file when they open it: a FUSE file system cannot be mounted in \
                 a user name space here: {error}"
            );
            None
        }
    }
}

fn peer_of(connection: &Connection) -> Option<IpAddr> {
    match connection.socket() {
        Socket::Tcp(stream) => Some(stream.peer_addr().ok()?.ip().to_canonical()),
        Socket::Unix(_) => None,
    }
}
