//! The files with writes in flight. Owns the table of them, and the thread that looks after them while
//! the program does something else: it takes in answers, sends again what was lost, and gives back leases
//! that are not used. Nothing waits for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use azekura_client::Pool;
use azekura_platform::SharedPlatform;
use azekura_policy::WritePolicy;
use azekura_proto::limits::CHANGES_IN_FLIGHT_FROM_US;
use azekura_proto::{Attr, Oid, TargetId};
use parking_lot::Mutex;

use super::links::Links;
use super::queue::Queue;
use crate::Result;
use crate::changes::Changes;
use crate::errno::of_client;

/// How often the thread looks: well within a lease, also that of a restarted engine.
const EVERY: Duration = Duration::from_millis(250);
/// Leases that have not been used for this long are given back.
const IDLE: Duration = Duration::from_millis(500);

/// What becomes of the write leases of a file once everything has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteLeases {
    /// They stay: what follows comes from this client.
    Keep,
    /// They are given back.
    Release,
    /// They are given back before anything else happens: other engines take part in what follows.
    ReleaseFirst,
}

/// Says that all that this process has written to a file has arrived. Whatever asks the engines for the
/// file's data, length or times needs it, so that nobody gets to see less than was written.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    oid: Oid,
}

impl Settled {
    /// The file.
    pub(crate) fn oid(self) -> Oid {
        self.oid
    }
}

/// How the files of a file system are written.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(super) links: Links,
    /// Files with leases or writes in flight. In order: what engines are asked follows it, and is to be the same each time.
    queues: Mutex<BTreeMap<Oid, Arc<Queue>>>,
    /// Their number, to be read without the lock.
    count: AtomicUsize,
    has_thread: AtomicBool,
    /// The process is about to end: nothing is answered early any more.
    is_ending: AtomicBool,
}

/// An open file that has writes in flight, or had. Dropping it waits for them.
#[derive(Debug)]
pub(super) struct Attached {
    writing: Arc<Writing>,
    pub(super) queue: Arc<Queue>,
}

impl Attached {
    pub(super) fn new(writing: &Arc<Writing>, oid: Oid) -> Self {
        Writing::start_thread(writing);
        let mut queues = writing.queues.lock();
        let queue = Arc::clone(queues.entry(oid).or_insert_with(|| Arc::new(Queue::new(oid))));
        queue.users.fetch_add(1, Ordering::Relaxed);
        writing.count.store(queues.len(), Ordering::SeqCst);
        Self { writing: Arc::clone(writing), queue }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut queue = self.queue.lock(&self.writing.links);
        queue.finish_or_forget();
        queue.release();
        drop(queue);
        let mut queues = self.writing.queues.lock();
        if self.queue.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            queues.remove(&self.queue.oid);
            self.writing.count.store(queues.len(), Ordering::SeqCst);
        }
    }
}

impl Writing {
    pub(crate) fn new(
        pool: Arc<Pool>,
        policy: WritePolicy,
        changes: Arc<Changes>,
        platform: SharedPlatform,
    ) -> Arc<Self> {
        Arc::new(Self {
            links: Links::new(pool, policy, changes, platform),
            queues: Mutex::default(),
            count: AtomicUsize::new(0),
            has_thread: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        })
    }

    /// How many errors there have been.
    pub(crate) fn errors(&self) -> u64 {
        self.links.errors()
    }

    /// A write through to a target was answered: tells how far it is.
    pub(crate) fn saw_round_trip(&self, target: TargetId, took: Duration) {
        self.links.saw_round_trip(target, took);
    }

    /// Whether changes of names at a target are worth to be answered before they have arrived.
    pub(crate) fn changes_may_fly(&self, target: TargetId) -> bool {
        let is_always = self.links.policy == WritePolicy::Always;
        !self.is_ending()
            && self.links.is_far(target)
            && (is_always
                || self.links.pool().round_trip_us_to(target) >= CHANGES_IN_FLIGHT_FROM_US)
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    /// From now on nothing is answered early, until this is taken back.
    pub(crate) fn set_ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::SeqCst);
    }

    pub(super) fn queue(&self, oid: Oid) -> Option<Arc<Queue>> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.queues.lock().get(&oid).cloned()
    }

    /// Reads at an offset what is in a file, if this process knows it for sure; fewer bytes only at the end.
    pub(crate) fn read_own(&self, oid: Oid, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        self.queue(oid)?.lock(&self.links).read_own(offset, buffer)
    }

    /// The attributes of a file but for its times, if this process knows for sure that they are so.
    pub(crate) fn own_attr(&self, oid: Oid) -> Option<Attr> {
        self.queue(oid)?.lock(&self.links).own_attr()
    }

    /// All attributes of a file, if this process was told them since it last changed the file, and nobody else can have.
    pub(crate) fn attr_as_told(&self, oid: Oid) -> Option<Attr> {
        self.queue(oid)?.lock(&self.links).attr_as_told()
    }

    /// Keeps attributes of a file that an engine has told, after all that was written had arrived. `changes`: the count of
    /// own changes of its attributes before they were asked for.
    pub(crate) fn keep_own_attr(&self, attr: &Attr, changes: u64) {
        if let Some(queue) = self.queue(attr.oid) {
            queue.lock(&self.links).keep_own_attr(attr, changes);
        }
    }

    /// Whether what an engine says of a file may be older than what this process has written.
    pub(crate) fn has_unsettled(&self, oid: Oid) -> bool {
        self.queue(oid).is_some()
    }

    /// Waits until all that this process has written to a file has arrived. To be called before
    /// anything else is done with its data, length or times, or with its locks.
    ///
    /// # Errors
    /// `EIO` if that cannot be brought about now. What the engine refused is not told here but to
    /// those who have the file open.
    pub(crate) fn settle(&self, oid: Oid, leases: WriteLeases) -> Result<Settled> {
        // The file may be one that is on its way itself.
        self.links.pool().arrive_for(oid).map_err(|error| of_client(&error))?;
        self.settle_to_ask(oid, leases)
    }

    /// As [`Writing::settle`], for a question that the pool is asked next: it comes after changes in flight by
    /// itself.
    ///
    /// # Errors
    /// As [`Writing::settle`].
    pub(crate) fn settle_to_ask(&self, oid: Oid, leases: WriteLeases) -> Result<Settled> {
        if let Some(queue) = self.queue(oid) {
            let mut queue = queue.lock(&self.links);
            queue.finish()?;
            match leases {
                WriteLeases::Keep => {}
                WriteLeases::Release => drop(queue.release()),
                WriteLeases::ReleaseFirst => queue.release_now(),
            }
            self.links.outbox.lend_idle();
        }
        Ok(Settled { oid })
    }

    /// The same for whoever is told of errors in another way, and goes on whatever comes of it.
    pub(super) fn settle_or_forget(&self, oid: Oid) -> (Settled, Option<(u64, crate::Errno)>) {
        let error = self.queue(oid).and_then(|queue| {
            let mut queue = queue.lock(&self.links);
            queue.finish_or_forget();
            queue.release();
            queue.error()
        });
        (Settled { oid }, error)
    }

    /// Waits for the writes to all files, and goes on after an error with those that are left.
    ///
    /// # Errors
    /// As [`Writing::settle`].
    pub(crate) fn settle_all(&self, leases: WriteLeases) -> Result<()> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let all: Vec<Oid> = self.queues.lock().keys().copied().collect();
        let settle = |settled: Result<()>, oid| settled.and(self.settle(oid, leases).map(drop));
        all.into_iter().fold(Ok(()), settle)
    }

    /// Closes the connections, which are made again when they are needed.
    pub(crate) fn close(&self) {
        self.links.outbox.close();
    }

    /// Starts the thread if there is none. It ends with the file system. In somebody else's process no
    /// threads are started: there leases run out by themselves.
    fn start_thread(writing: &Arc<Self>) {
        if writing.links.pool().is_guest() || writing.has_thread.swap(true, Ordering::Relaxed) {
            return;
        }
        let (weak, platform) = (Arc::downgrade(writing), Arc::clone(&writing.links.platform));
        let work = move || {
            loop {
                platform.sleep(EVERY);
                let Some(writing) = weak.upgrade() else { return };
                writing.look_after_all();
            }
        };
        if let Err(error) = writing.links.platform.spawn("azekura-writes", Box::new(work)) {
            tracing::warn!("nobody looks after writes in flight: {error}");
        }
    }

    /// What the thread does from time to time.
    pub(crate) fn look_after_all(&self) {
        let queues: Vec<Arc<Queue>> = self.queues.lock().values().cloned().collect();
        for queue in queues {
            self.look_after(&queue);
        }
    }

    fn look_after(&self, queue: &Queue) {
        // Whoever has it looks after it.
        let Some(mut queue) = queue.try_lock(&self.links) else { return };
        if !queue.take_in() && queue.finish().is_err() {
            // Tried again at the next look.
            return;
        }
        queue.make_way();
        if queue.is_idle(IDLE) {
            queue.release();
        }
    }
}
