//! The front of a job: the one server, beside the files. Owns the control connections to the agents, what
//! they ask of the source, and the end of the job. All decisions are the scheduler's.

mod event;
mod listings;
mod outgoing;
mod pace;
pub(crate) mod plan;
mod route;
mod scheduler;
mod word;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use azekura_proto::frame;
use azekura_proto::staging::{JobId, NodeId};
use azekura_wire::{Connection, FrameReader, Secret};
use parking_lot::{Condvar, Mutex};

use crate::doors::{Door, OpenSockets, Pass, spawn};
use crate::error::Error;
use crate::front::listings::Listings;
use crate::front::outgoing::{Agent, Note, OutParts, Outgoing, Post, Setup};
use crate::front::plan::Known;
use crate::front::scheduler::Scheduler;
use crate::front::word::Word;
use crate::job::MapDescription;
use crate::message::{ContentId, Opening, Order, ToAgent, ToFront};
use crate::outbox::{Outbox, SILENCE};
use crate::source::Source;
use crate::stock::{Spoilt, Stock};
use crate::supply;
use crate::workers::Workers;

pub use crate::front::event::Event;
pub use crate::front::outgoing::{
    Conflict, Manifest, ManifestError, NotSent, OutOptions, OutReport,
};
pub use crate::front::scheduler::Recipients;
pub use crate::message::Supplier;

/// How long agents may take to end.
const END_TIME: Duration = Duration::from_secs(3);

/// What a front has to know.
pub struct FrontOptions {
    /// The job.
    pub job: JobId,
    /// What its processes know and nobody else, as hexadecimal digits.
    pub secret: String,
    /// The directories, each with where its files come from: the same as the agents have, in that order.
    pub maps: Vec<(MapDescription, Arc<dyn Source>)>,
    /// To which nodes files come.
    pub recipients: Recipients,
    /// How files go home.
    pub out: OutOptions,
}

/// An agent that has started.
#[derive(Clone, Debug)]
pub struct AgentAt {
    /// Its node.
    pub node: NodeId,
    /// The node's name in the list of hosts.
    pub host: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A running front. Dropped, it is gone at once, and the agents end.
pub struct Front {
    words: Sender<Word>,
    events: Sender<Event>,
    outboxes: BTreeMap<NodeId, Outbox<ToAgent>>,
    door: Arc<Door>,
    inner: Arc<Inner>,
    /// The directories of the maps.
    dirs: Vec<Vec<u8>>,
    outgoing: Arc<Outgoing>,
}

/// What the threads of a front share.
struct Inner {
    open: Arc<OpenSockets>,
    listings: Listings,
    workers: Workers,
    words: Sender<Word>,
    post: Arc<Post>,
    /// Who is told that a node's programs have closed files.
    closed: Sender<NodeId>,
    /// How many agents have not ended.
    connected: Mutex<usize>,
    ended: Condvar,
}

impl Front {
    /// Calls all agents, and serves them.
    ///
    /// # Errors
    /// If one of them does not answer, or the system refuses a thread or a socket.
    pub fn start(
        options: FrontOptions,
        agents: Vec<AgentAt>,
        events: Sender<Event>,
    ) -> Result<Self, Error> {
        let secret = Secret::from_hex(&options.secret).ok_or(Error::Secret)?;
        let pass = Pass { job: options.job, secret };
        let open = Arc::new(OpenSockets::default());
        let listen = "listen to agents";
        let door = Door::open(pass.clone(), &open).map_err(Error::system(listen))?;
        let front_port = door.port().map_err(Error::system(listen))?;
        let (words, heard) = channel();
        let workers = Workers::start().map_err(Error::system("start a thread"))?;
        let (maps, sources): (Vec<_>, Vec<_>) = options.maps.into_iter().unzip();
        let dirs = maps.iter().map(|map: &MapDescription| map.dir.clone()).collect();
        let heard_of = words.clone();
        let tell = Box::new(move |id, spoilt| {
            // If nobody listens the job is over.
            let _ = heard_of.send(match spoilt {
                Spoilt::Changed => Word::Changed(id),
                Spoilt::Unreadable(errno) => Word::Unreadable(id, errno),
            });
        });
        let stock = Stock::new(sources.clone(), ContentId(1), workers.clone(), tell);
        let outboxes: BTreeMap<_, _> =
            agents.iter().map(|agent| (agent.node, Outbox::new())).collect();
        let post: Arc<Post> = Arc::default();
        let parts = OutParts {
            maps,
            sources: sources.clone(),
            nodes: out_agents(&agents, &outboxes),
            post: Arc::clone(&post),
            events: events.clone(),
            options: options.out.clone(),
        };
        let out = Setup::new(parts, pass.clone(), Arc::clone(&open));
        let outgoing = Arc::new(Outgoing::new(out));
        let (closed, told) = channel();
        let inner = Arc::new(Inner {
            open,
            listings: Listings::new(sources),
            workers: workers.clone(),
            words: words.clone(),
            post,
            closed,
            connected: Mutex::new(0),
            ended: Condvar::new(),
        });
        let front = Self { words, events: events.clone(), outboxes, door, inner, dirs, outgoing };
        let shelf = Arc::clone(&stock);
        let serve = move |connection, opening| {
            // Nobody controls the front.
            if matches!(opening, Opening::Fetch) {
                supply::serve(connection, &shelf);
            }
        };
        front.door.let_in(serve).map_err(Error::system(listen))?;
        let round_trip = front.connect(&pass, agents, front_port, &events)?;
        if options.out.on_close {
            let outgoing = Arc::clone(&front.outgoing);
            for outbox in front.outboxes.values() {
                outbox.say(ToAgent::Out(Order::Watch));
            }
            spawn("closed", move || outgoing.follow(&told))
                .map_err(Error::system("start a thread"))?;
        }
        let scheduler = Scheduler {
            recipients: options.recipients,
            links: Known::with_round_trip(round_trip),
            agents: front.outboxes.clone(),
            stock,
            workers,
            words: front.words.clone(),
            events,
            state: scheduler::State::default(),
        };
        spawn("scheduler", move || scheduler.run(&heard))
            .map_err(Error::system("start a thread"))?;
        Ok(front)
    }

    /// Calls all agents at once: one that does not answer must not make the others late. Gives the time to the
    /// nearest and back.
    fn connect(
        &self,
        pass: &Pass,
        agents: Vec<AgentAt>,
        front_port: u16,
        events: &Sender<Event>,
    ) -> Result<Duration, Error> {
        let nodes: Vec<_> =
            agents.iter().map(|agent| (agent.node, agent.address.to_string())).collect();
        let opening = Opening::Control { nodes, front_port };
        let dialled: Vec<_> = std::thread::scope(|scope| {
            let dial = |agent: &AgentAt| pass.dial_timed(&agent.address.to_string(), &opening);
            let calls: Vec<_> =
                agents.iter().map(|agent| scope.spawn(move || dial(agent))).collect();
            calls.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let mut round_trip = SILENCE;
        for (agent, dialled) in agents.into_iter().zip(dialled) {
            let AgentAt { node, host, address } = agent;
            // A panic has been reported.
            let Ok(dialled) = dialled else { continue };
            let (connection, took) =
                dialled.map_err(|source| Error::Agent { host: host.clone(), address, source })?;
            // Who answers late is busy: the way itself takes no more than the shortest time.
            round_trip = round_trip.min(took);
            self.inner
                .attach(node, connection, &self.outboxes[&node])
                .map_err(Error::system("keep a connection to an agent"))?;
            // Nobody needs to listen.
            let _ = events.send(Event::NodeUp { node, host });
        }
        Ok(round_trip)
    }

    /// A node is known to be lost, before its connection shows it.
    pub fn node_is_gone(&self, node: NodeId) {
        self.inner.post.gone(node);
        self.tell(Word::Gone(node, "its agent has ended".to_owned()));
    }

    /// Has files come to all nodes before anybody asks: absolute paths, as programs name them; directories
    /// with all that is in them. A name that leads nowhere costs nothing.
    pub fn prefetch(&self, paths: Vec<Vec<u8>>) {
        // Nobody needs to listen.
        let _ = self.events.send(Event::InAsked { paths: paths.len() });
        let (inner, dirs) = (Arc::clone(&self.inner), self.dirs.clone());
        self.inner.workers.give(move || {
            for path in paths {
                inner.listings.walk(&path, &dirs, &mut |files| {
                    // Without a scheduler there is nothing left to be done.
                    let _ = inner.words.send(Word::Prefetch(files));
                });
            }
        });
    }

    /// Brings home what programs have written since it was last done, and waits for that; also while they
    /// run. What they write meanwhile comes the next time.
    pub fn stage_out(&self) -> OutReport {
        self.outgoing.stage_out()
    }

    /// Brings home what a manifest of this job says has not come, out of caches that were kept.
    ///
    /// # Errors
    /// If the manifest is none, or that of another job.
    pub fn resume(&self, manifest: &Path) -> Result<OutReport, ManifestError> {
        self.outgoing.resume(manifest)
    }

    /// Ends the job: the agents end, and this waits a moment for them.
    pub fn end(self) {
        for outbox in self.outboxes.values() {
            outbox.say(ToAgent::End);
        }
        let deadline = Instant::now() + END_TIME;
        let mut connected = self.inner.connected.lock();
        while *connected > 0 {
            if self.inner.ended.wait_until(&mut connected, deadline).timed_out() {
                tracing::warn!("{} agents have not ended in time", *connected);
                return;
            }
        }
    }

    fn tell(&self, word: Word) {
        // Without a scheduler there is nothing left to be done.
        let _ = self.words.send(word);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.tell(Word::End);
        self.inner.open.close();
        self.door.close();
    }
}

impl Inner {
    fn attach(
        self: &Arc<Self>,
        node: NodeId,
        connection: Connection,
        outbox: &Outbox<ToAgent>,
    ) -> std::io::Result<()> {
        let entered = self.open.enter(&connection)?;
        connection.socket().set_write_timeout(Some(SILENCE))?;
        connection.socket().set_read_timeout(Some(SILENCE))?;
        let (writer, reader) = connection.split();
        let socket = Arc::clone(reader.socket());
        let mouth = outbox.mouth();
        spawn("say", move || {
            if let Some(mouth) = mouth {
                mouth.run(writer, &ToAgent::Beat);
            }
            socket.shut_down();
        })?;
        let (inner, answers) = (Arc::clone(self), outbox.clone());
        *self.connected.lock() += 1;
        spawn("hear", move || {
            let _entered = entered;
            let why = inner.hear(node, reader, &answers);
            inner.post.gone(node);
            // Without a scheduler nobody needs to know.
            let _ = inner.words.send(Word::Gone(node, why));
            *inner.connected.lock() -= 1;
            inner.ended.notify_all();
        })
    }

    /// Hears an agent until it is gone, and says why it is.
    fn hear(
        self: &Arc<Self>,
        node: NodeId,
        mut reader: FrameReader,
        answers: &Outbox<ToAgent>,
    ) -> String {
        loop {
            let message = match reader.recv() {
                Ok((_, body)) => frame::decode::<ToFront>(body),
                Err(error) => return error.to_string(),
            };
            match message {
                Ok(ToFront::Beat) => {}
                Ok(ToFront::List { place }) => {
                    let (inner, answers) = (Arc::clone(self), answers.clone());
                    self.workers.give(move || inner.listings.tell(&place, &answers));
                }
                // Nobody follows it if that was not asked for.
                Ok(ToFront::Closed) => _ = self.closed.send(node),
                Ok(ToFront::Out(answer)) => self.post.send(node, Note::Answer(answer)),
                Ok(message) => {
                    if self.words.send(Word::Said(node, message)).is_err() {
                        return "the job is over".to_owned();
                    }
                }
                Err(error) => return error.to_string(),
            }
        }
    }
}

/// The agents, as far as they send files home.
fn out_agents(
    agents: &[AgentAt],
    outboxes: &BTreeMap<NodeId, Outbox<ToAgent>>,
) -> BTreeMap<NodeId, Agent> {
    let agent = |at: &AgentAt| {
        let (host, address) = (at.host.clone(), at.address);
        let outbox = outboxes[&at.node].clone();
        (at.node, Agent { host, address, outbox })
    };
    agents.iter().map(agent).collect()
}
