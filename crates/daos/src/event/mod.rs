//! Events. Owns what stands in the private part of an event, and the states that an event passes
//! through: ready, running, completed, and ready again once somebody was told. Everything about events
//! happens under one lock, which is never held while a call is carried out or somebody is called back.

mod callbacks;
mod calls;
pub(crate) mod queue;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::event::callbacks::Callbacks;
use crate::status::{Der, number_of_der};
use crate::types::Event;
use crate::workers;

/// An argument that is not read.
pub(crate) type Unread = *mut c_void;

/// Stands in events that were initialised.
const MARK: u64 = 0xa2e6_0b5e_55ed_e7e2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum State {
    Ready,
    Running,
    Completed,
}

/// What stands in the private part of an event.
#[repr(C)]
struct Private {
    mark: u64,
    /// The cookie of its queue; 0 for none.
    queue: u64,
    parent: *mut Event,
    /// The first and the last of its children, and the next child of its parent.
    first_child: *mut Event,
    last_child: *mut Event,
    next_sibling: *mut Event,
    /// Children that are running.
    children_running: u32,
    state: State,
    /// A call of its own is not over yet. A parent need not have one.
    own_running: bool,
}

const _: () = assert!(size_of::<Private>() <= size_of::<[u64; 20]>());

/// An event by its address. What it points at is touched under the lock only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct At(*mut Event);

// SAFETY: an address; whoever goes there has the lock, or is the one that completes the event.
unsafe impl Send for At {}

impl At {
    fn address(self) -> usize {
        self.0.addr()
    }

    /// # Safety
    /// The event is one of the caller's that is alive for `'a`, and the lock is held.
    unsafe fn private<'a>(self) -> &'a mut Private {
        // SAFETY: the caller's promise; the private part is large enough and aligned for it.
        unsafe { &mut *(&raw mut (*self.0).private).cast::<Private>() }
    }

    /// # Safety
    /// As [`At::private`].
    unsafe fn checked<'a>(self) -> Result<&'a mut Private, Der> {
        if self.0.is_null() {
            return Err(Der::Inval);
        }
        // SAFETY: the caller's promise.
        unsafe {
            // Only the mark is looked at before it is known that the rest means anything.
            let mark = (&raw const (*self.0).private).cast::<u64>().read();
            if mark == MARK { Ok(self.private()) } else { Err(Der::Inval) }
        }
    }

    /// True if a child has not been launched.
    ///
    /// # Safety
    /// As [`At::private`]; a child is alive as long as it belongs to its parent.
    unsafe fn has_idle_children(self) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let mut child = self.private().first_child;
            while !child.is_null() {
                let below = At(child).private();
                if below.state == State::Ready {
                    return true;
                }
                child = below.next_sibling;
            }
        }
        false
    }
}

/// A queue: events that were started on it, and those of them that are over and not asked for yet.
#[derive(Default)]
struct Queue {
    running: BTreeSet<At>,
    completed: VecDeque<At>,
}

#[derive(Default)]
struct Queues {
    open: HashMap<u64, Queue>,
    last: u64,
    /// Who wants to be called when an event is over.
    callbacks: Callbacks,
}

static QUEUES: LazyLock<Mutex<Queues>> = LazyLock::new(Mutex::default);
/// Some event has completed, or a queue has gone.
static CHANGED: Condvar = Condvar::new();

/// Waits for a change until a time, or for as long as it takes. False if the time is over.
fn wait(queues: &mut MutexGuard<'_, Queues>, until: Option<Instant>) -> bool {
    let Some(until) = until else {
        CHANGED.wait(queues);
        return true;
    };
    !CHANGED.wait_until(queues, until).timed_out()
}

/// The time that a timeout in microseconds means; `None` for a negative one, which has no end.
fn deadline(timeout_us: i64) -> Option<Instant> {
    let timeout = Duration::from_micros(u64::try_from(timeout_us).ok()?);
    Instant::now().checked_add(timeout)
}

impl Queues {
    fn queue(&mut self, cookie: u64) -> Result<&mut Queue, Der> {
        self.open.get_mut(&cookie).ok_or(Der::Nonexist)
    }

    /// A call is about to be carried out for this event.
    ///
    /// # Safety
    /// `event` is null or one of the caller's.
    unsafe fn begin(&mut self, event: At) -> Result<(), Der> {
        // SAFETY: the caller's promise.
        let private = unsafe { event.checked() }?;
        // Of an event of no queue nobody need be told that it has completed.
        let alone = private.queue == 0 && private.parent.is_null();
        let free = private.state == State::Ready || alone && private.state == State::Completed;
        // SAFETY: the caller's promise.
        if !free || unsafe { event.has_idle_children() } {
            return Err(Der::NoPerm);
        }
        if !private.parent.is_null() {
            // SAFETY: a parent outlives its children, by the contract.
            let parent = unsafe { At(private.parent).checked() }?;
            if parent.state != State::Ready {
                return Err(Der::Inval);
            }
            parent.children_running += 1;
        } else if private.queue != 0 {
            self.queue(private.queue)?.running.insert(event);
        }
        private.state = State::Running;
        private.own_running = true;
        if private.first_child.is_null() {
            // SAFETY: the event is the caller's, as its mark has shown.
            unsafe { (*event.0).error = 0 };
        }
        Ok(())
    }

    /// The call of an event, or of the last child that it waits for, is over. Gives the parent that is
    /// over with it, and its result.
    ///
    /// # Safety
    /// The event is running.
    unsafe fn complete(&mut self, event: At, rc: c_int) -> Option<(At, c_int)> {
        // SAFETY: a running event is alive, by the contract.
        let private = unsafe {
            if (*event.0).error == 0 {
                (*event.0).error = rc;
            }
            event.private()
        };
        private.own_running = false;
        if private.children_running > 0 {
            // It is over with the last of them.
            return None;
        }
        private.state = State::Completed;
        CHANGED.notify_all();
        if private.parent.is_null() {
            if let Some(queue) = self.open.get_mut(&private.queue) {
                queue.running.remove(&event);
                queue.completed.push_back(event);
            }
            return None;
        }
        let parent = At(private.parent);
        // SAFETY: a parent outlives its children, by the contract.
        unsafe {
            let family = parent.private();
            family.children_running -= 1;
            if (*parent.0).error == 0 {
                (*parent.0).error = rc;
            }
            let over = family.children_running == 0
                && family.state == State::Running
                && !family.own_running;
            over.then(|| (parent, (*parent.0).error))
        }
    }
}

/// Completes an event that runs: those are called who want to know, then it is over.
fn complete(event: At, rc: c_int) {
    let mut queues = QUEUES.lock();
    let mut next = Some((event, rc));
    while let Some((event, rc)) = next {
        let mut result = rc;
        while let Some(callbacks) = queues.callbacks.take(event.address()) {
            // They may call anything, so not under the lock.
            MutexGuard::unlocked(&mut queues, || {
                // SAFETY: the event runs, so it is alive, by the contract.
                unsafe { callbacks::call(callbacks, event.0, rc, &mut result) };
            });
        }
        // SAFETY: whoever carries a call out completes its event, and nobody else does; a parent that
        // is over with it does not run on either.
        next = unsafe { queues.complete(event, result) };
    }
}

/// Ends a call that was carried out already: its result goes to the event, if there is one.
///
/// # Safety
/// `event` is null or one of the caller's.
pub(crate) unsafe fn finish(event: *mut Event, rc: c_int) -> c_int {
    if event.is_null() {
        return rc;
    }
    // SAFETY: the caller's promise.
    if let Err(der) = unsafe { QUEUES.lock().begin(At(event)) } {
        return number_of_der(der);
    }
    complete(At(event), rc);
    0
}

/// What a call was given: pointers that are good until it is over, by the contract.
struct Theirs<T>(T);

// SAFETY: by the contract nobody but the call touches what they point at until it is over.
unsafe impl<T> Send for Theirs<T> {}

impl<T> Theirs<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

/// Carries a call out: before this returns if there is no event, else in the background. `refused` is the
/// number for an event that cannot be used.
///
/// # Safety
/// `event` is null or one of the caller's; what `given` points at stays until the call is over.
pub(crate) unsafe fn launch<T: 'static>(
    event: *mut Event,
    refused: fn(Der) -> c_int,
    given: T,
    call: fn(&T) -> c_int,
) -> c_int {
    if event.is_null() {
        return call(&given);
    }
    let event = At(event);
    // SAFETY: the caller's promise.
    if let Err(der) = unsafe { QUEUES.lock().begin(event) } {
        return refused(der);
    }
    let given = Theirs(given);
    let job = move || {
        let done = catch_unwind(AssertUnwindSafe(|| call(given.get())));
        complete(event, done.unwrap_or_else(|_| refused(Der::Misc)));
    };
    workers::submit(event.address(), Box::new(job));
    0
}

/// Completes an event whose call nobody has begun with; what was begun goes on.
fn cancel(event: At) {
    if workers::give_up(event.address()) {
        complete(event, number_of_der(Der::Canceled));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::calls::{daos_event_init, daos_event_test};
    use super::*;
    use crate::types::Handle;
    use crate::workers::THREADS_MAX;

    /// Lets nobody pass before all calls are under way.
    static TOGETHER: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(THREADS_MAX));

    #[test]
    fn so_many_calls_are_in_flight_at_a_time() {
        let blank = || Event { error: 0, private: [0; 20], debug: 0 };
        let mut events: Vec<Event> = std::iter::repeat_with(blank).take(THREADS_MAX).collect();
        for (number, event) in events.iter_mut().enumerate() {
            let event: *mut Event = event;
            // SAFETY: the events stay where they are until all have completed.
            unsafe {
                assert_eq!(daos_event_init(event, Handle { cookie: 0 }, std::ptr::null_mut()), 0);
                let call = |number: &usize| {
                    TOGETHER.wait();
                    *number as c_int
                };
                assert_eq!(launch(event, number_of_der, number, call), 0);
            }
        }
        for (number, event) in events.iter_mut().enumerate() {
            let mut over = false;
            // SAFETY: as above.
            assert_eq!(unsafe { daos_event_test(event, -1, &raw mut over) }, 0);
            assert!(over);
            assert_eq!(event.error, number as c_int);
        }
        workers::stop();
    }
}
