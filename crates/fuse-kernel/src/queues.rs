//! Requests over io_uring: a queue for each processor, which gets what programs on that processor ask
//! for, and threads that serve it. Owns how these begin, grow and end. What the kernel still sends over
//! the device (FORGET, INTERRUPT) is [`crate::session`]'s.
//!
//! Each thread has a ring of its own with one entry: it answers a request and takes the next in one
//! system call, and whatever makes it wait holds up nobody else. An entry carries one request until
//! that is answered. So a request that waits for a lock or an engine keeps its thread, and another thread
//! takes over. The kernel gives a new entry only what comes after it, and what has come before when the
//! next answer is sent. If all others wait there is no next answer, and the unlock may be among what has
//! come before: then a message is provoked, of which the answer sets the queue going.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::affinity::{Affinity, pin};
use crate::dispatch::Dispatcher;
use crate::entry::{Entry, Fetched};
use crate::handler::{Handler, Workers};
use crate::notify::Notifier;
use crate::operation::Operation;
use crate::reply::Way;
use crate::request::{Message, ParseError, parse_ring};
use crate::slot::Slot;
use crate::transport::is_online;

/// Threads that are ready behind the one that takes the next message: one that is only being started has
/// no entry yet, and what comes meanwhile waits for another request's answer.
const SPARE: usize = 1;
/// So often a request that waits looks whether somebody serves the queue.
const RETRY: Duration = Duration::from_secs(1);
/// A queue that the kernel does not have.
const NO_QUEUE: u16 = u16::MAX;

/// How queues are to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuesConfig {
    /// As many as the machine can have processors: the kernel uses none before all are there.
    pub(crate) queues: u16,
    /// Room for the data of a request or an answer, in bytes.
    pub(crate) payload_bytes: usize,
    /// Most threads for a queue, without those whose requests wait.
    pub(crate) threads_max: usize,
}

/// The queues of a mount.
pub(crate) struct Queues<H> {
    dispatcher: Arc<Dispatcher<H>>,
    config: QueuesConfig,
    /// The mount is gone.
    over: Arc<AtomicBool>,
    /// Processors that this process may run on.
    processors: CpuSet,
    loads: Vec<Load>,
    start: Mutex<Start>,
    start_changed: Condvar,
    joins: Mutex<Vec<JoinHandle<()>>>,
}

/// The threads of one queue.
#[derive(Debug, Default)]
struct Load {
    threads: AtomicUsize,
    /// Those that wait for a message, or soon will.
    idle: AtomicUsize,
    /// Nodes of requests that are being dealt with or wait, as far as the kernel surely knows them as
    /// open files: behind such a request others may lie in the kernel's queue.
    held: Mutex<Vec<u64>>,
}

/// How far the beginning has come.
#[derive(Debug, Default)]
struct Start {
    prepared: usize,
    registered: usize,
    failed: Option<String>,
    /// Whether the kernel is asked for requests.
    verdict: Option<bool>,
}

impl<H> std::fmt::Debug for Queues<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queues").field("loads", &self.loads).finish_non_exhaustive()
    }
}

impl<H: Handler> Workers for Queues<H> {
    fn join(&self) {
        loop {
            // A thread puts in the handle of one it starts before it ends itself.
            let Some(join) = self.joins.lock().pop() else { return };
            if join.join().is_err() {
                tracing::error!("a thread of a FUSE queue has panicked");
            }
        }
    }
}

impl<H: Handler> Queues<H> {
    /// Starts a thread for each queue and makes its ring, but asks the kernel for nothing yet: all
    /// that can fail here fails before the kernel is told that rings will be used.
    ///
    /// # Errors
    /// If threads, descriptors or memory have run out, or io_uring is not allowed, or this process
    /// may not run on a processor that programs can run on.
    pub(crate) fn prepare(
        dispatcher: Arc<Dispatcher<H>>,
        config: QueuesConfig,
        over: Arc<AtomicBool>,
    ) -> Result<Arc<Self>, String> {
        raise_descriptor_limit();
        let all = Arc::new(Self {
            dispatcher,
            config,
            over,
            processors: sched_getaffinity(None).map_err(|errno| errno.to_string())?,
            loads: (0..config.queues).map(|_| Load::default()).collect(),
            start: Mutex::default(),
            start_changed: Condvar::new(),
            joins: Mutex::default(),
        });
        for queue in 0..config.queues {
            if let Err(error) = Self::spawn(&all, queue, Self::first) {
                all.close();
                return Err(format!("cannot start a thread: {error}"));
            }
        }
        all.wait_for(|start| start.prepared).inspect_err(|_| all.close())?;
        Ok(all)
    }

    /// Ends the threads of queues that will not be used.
    pub(crate) fn close(&self) {
        self.start.lock().verdict = Some(false);
        self.start_changed.notify_all();
    }

    /// Hands the entries to the kernel, which has agreed to use them. If it takes them not, it is made
    /// to use the device.
    ///
    /// # Errors
    /// If the kernel refuses an entry.
    pub(crate) fn open(&self) -> Result<(), String> {
        self.start.lock().verdict = Some(true);
        self.start_changed.notify_all();
        self.wait_for(|start| start.registered).inspect_err(|_| self.refuse())
    }

    /// Waits until the first threads of all queues have come so far.
    fn wait_for(&self, count: impl Fn(&Start) -> usize) -> Result<(), String> {
        let mut start = self.start.lock();
        loop {
            if let Some(reason) = start.failed.take() {
                return Err(reason);
            }
            if count(&start) == self.loads.len() {
                return Ok(());
            }
            self.start_changed.wait(&mut start);
        }
    }

    fn progress(&self, step: impl FnOnce(&mut Start)) {
        step(&mut self.start.lock());
        self.start_changed.notify_all();
    }

    /// Makes the kernel give up rings on this mount. It does when one is wrong.
    fn refuse(&self) {
        let device = self.dispatcher.channel.device();
        let said = Entry::new(self.config.payload_bytes)
            .and_then(|mut wrong| wrong.register(device, NO_QUEUE));
        tracing::debug!(?said, "the kernel was made to use the device again");
    }

    fn spawn(
        all: &Arc<Self>,
        queue: u16,
        run: impl FnOnce(&Arc<Self>, u16) + Send + 'static,
    ) -> std::io::Result<()> {
        let load = all.load(queue);
        load.threads.fetch_add(1, Ordering::Relaxed);
        load.idle.fetch_add(1, Ordering::Relaxed);
        let worker = Arc::clone(all);
        let mut joins = all.joins.lock();
        let spawned = std::thread::Builder::new()
            .name(format!("fuse-queue-{queue}"))
            .spawn(move || run(&worker, queue));
        match spawned {
            Ok(join) => {
                joins.push(join);
                Ok(())
            }
            Err(error) => {
                load.leave();
                Err(error)
            }
        }
    }

    fn load(&self, queue: u16) -> &Load {
        &self.loads[usize::from(queue)]
    }

    /// The first thread of a queue: it stays on the queue's processor, where whoever asks is too.
    fn first(all: &Arc<Self>, queue: u16) {
        let made = match pin(queue) {
            // It may have to provoke messages there.
            Err(errno) if is_online(queue) => {
                Err(format!("this process may not run on processor {queue}: {errno}"))
            }
            _ => Entry::new(all.config.payload_bytes)
                .map_err(|errno| format!("cannot make rings: {errno}")),
        };
        let mut entry = match made {
            Ok(entry) => entry,
            Err(reason) => return all.progress(|start| start.failed = Some(reason)),
        };
        all.progress(|start| start.prepared += 1);
        let mut start = all.start.lock();
        while start.verdict.is_none() {
            all.start_changed.wait(&mut start);
        }
        let is_wanted = start.verdict == Some(true);
        drop(start);
        if !is_wanted {
            return;
        }
        match entry.register(all.dispatcher.channel.device(), queue) {
            Ok(()) => all.progress(|start| start.registered += 1),
            Err(errno) => {
                let reason = format!("the kernel does not take them: {errno}");
                return all.progress(|start| start.failed = Some(reason));
            }
        }
        Self::serve(all, entry, queue, Affinity::first(queue, &all.processors));
    }

    /// A further thread of a queue.
    fn further(all: &Arc<Self>, queue: u16) {
        let affinity = Affinity::further(queue, &all.processors);
        let entry = Entry::new(all.config.payload_bytes).and_then(|mut entry| {
            entry.register(all.dispatcher.channel.device(), queue)?;
            Ok(entry)
        });
        match entry {
            Ok(entry) => {
                all.provoke(queue, &affinity);
                Self::serve(all, entry, queue, affinity);
            }
            Err(errno) => {
                tracing::warn!(queue, "cannot make another ring for FUSE requests: {errno}");
                all.load(queue).leave();
            }
        }
    }

    /// Sets a queue going whose requests wait, at the latest from now on.
    fn provoke(&self, queue: u16, affinity: &Affinity) {
        let Some(node) = self.load(queue).held.lock().last().copied() else { return };
        let notifier = Notifier::new(Arc::clone(&self.dispatcher.channel));
        if let Err(errno) = affinity.on_queue(|| notifier.provoke(node)) {
            tracing::debug!(queue, "the kernel did not send what was asked for: {errno}");
        }
    }

    fn serve(all: &Arc<Self>, mut entry: Entry, queue: u16, mut affinity: Affinity) {
        let mut is_new = true;
        loop {
            match entry.fetch() {
                Ok(Fetched::Message) => {}
                Ok(Fetched::Unmounted) => {
                    all.over.store(true, Ordering::Release);
                    // Requests may be waiting still, if the kernel was not asked politely.
                    all.dispatcher.handler.destroy();
                    return;
                }
                Err(errno) => {
                    tracing::error!(queue, "a FUSE ring failed, its thread ends: {errno}");
                    all.load(queue).leave();
                    if !is_new && all.load(queue).idle.load(Ordering::Relaxed) == 0 {
                        all.spawn_further(queue);
                    }
                    // The kernel may have its memory still.
                    std::mem::forget(entry);
                    return;
                }
            }
            is_new = false;
            all.arrived(queue);
            all.handle(&mut entry, queue, &mut affinity);
            all.load(queue).idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A message has come: somebody has to wait for the next one, and be there before it comes.
    fn arrived(self: &Arc<Self>, queue: u16) {
        let load = self.load(queue);
        if load.idle.fetch_sub(1, Ordering::Relaxed) <= 1 + SPARE
            && load.threads.load(Ordering::Relaxed) < self.config.threads_max
        {
            self.spawn_further(queue);
        }
    }

    fn spawn_further(self: &Arc<Self>, queue: u16) {
        if let Err(error) = Self::spawn(self, queue, Self::further) {
            tracing::warn!(queue, "cannot start another FUSE thread: {error}");
        }
    }

    /// Deals with the message in `entry`, and puts the answer down.
    fn handle(self: &Arc<Self>, entry: &mut Entry, queue: u16, affinity: &mut Affinity) {
        let slot = entry.slot();
        let message = entry.message();
        // Where nothing of the request lies in the payload, the answer is put there at once.
        let held = (message.payload_bytes > 0).then(|| slot.payload());
        let body =
            held.as_ref().and_then(|payload| payload.as_slice().get(..message.payload_bytes));
        let parsed = parse_ring(&message.header, &message.arguments, body.unwrap_or_default());
        let node = is_of_open_file(message.header.opcode).then_some(message.header.nodeid);
        let load = self.load(queue);
        affinity.note(load.busy(), bytes_of(&parsed));
        load.hold(node);
        let has_answer = self.dispatcher.dispatch(parsed, || Way::Ring(Arc::clone(&slot)));
        drop(held);
        if !has_answer {
            slot.reply([&[], &[]]);
        }
        if !slot.is_answered() {
            self.wait_for_answer(&slot, queue, affinity);
        }
        load.let_go(node);
        entry.put_answer(self.dispatcher.channel.device(), queue);
    }

    /// Stays with a request that waits. Somebody else has to serve the queue.
    fn wait_for_answer(self: &Arc<Self>, slot: &Slot, queue: u16, affinity: &Affinity) {
        let load = self.load(queue);
        load.threads.fetch_sub(1, Ordering::Relaxed);
        if load.idle.load(Ordering::Relaxed) == 0 {
            self.spawn_further(queue);
        } else {
            // Whoever is idle may have come too late to see what came before.
            self.provoke(queue, affinity);
        }
        while !slot.wait_for(RETRY) {
            // There was no thread or no ring to be had, and the answer may depend on one.
            if load.idle.load(Ordering::Relaxed) == 0 {
                self.spawn_further(queue);
            }
        }
        load.threads.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a request is about a file that is open, of which the kernel can be asked for pages.
fn is_of_open_file(opcode: u32) -> bool {
    use crate::abi::opcode as of;
    [of::READ, of::WRITE, of::FLUSH, of::FSYNC, of::SETLK, of::SETLKW].contains(&opcode)
}

/// How many bytes of a file a request moves.
fn bytes_of(parsed: &Result<Message<'_>, ParseError>) -> usize {
    let Ok(Message::Request(request)) = parsed else { return 0 };
    match &request.operation {
        Operation::Read { size, .. } => *size as usize,
        Operation::Write(write) => write.data.len(),
        _ => 0,
    }
}

impl Load {
    /// Threads that deal with a request.
    fn busy(&self) -> usize {
        let threads = self.threads.load(Ordering::Relaxed);
        threads.saturating_sub(self.idle.load(Ordering::Relaxed))
    }

    fn hold(&self, node: Option<u64>) {
        if let Some(node) = node {
            self.held.lock().push(node);
        }
    }

    fn let_go(&self, node: Option<u64>) {
        let Some(node) = node else { return };
        let mut held = self.held.lock();
        if let Some(place) = held.iter().position(|other| *other == node) {
            held.swap_remove(place);
        }
    }

    /// A thread that waited for messages does not any more.
    fn leave(&self) {
        self.idle.fetch_sub(1, Ordering::Relaxed);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Each ring is a descriptor.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(errno) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays as it is: {errno}");
    }
}
