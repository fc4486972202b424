//! Event queues: where completed events wait to be asked for.

use std::ffi::{c_int, c_uint};

use crate::event::{At, CHANGED, QUEUES, Queue, Queues, State, cancel, deadline, wait};
use crate::handles::check_started;
use crate::status::{Der, call_or, daos_call, number_of_der};
use crate::types::{Event, Handle, place};

/// Destroy a queue with events in it.
const FORCE: c_int = 1;
/// Which events are asked for.
const COMPLETED: c_uint = 1;
const WAITING: c_uint = 2;
/// The cookies of queues begin here, so that no other handle is taken for one.
const COOKIES: u64 = 1 << 62;
/// Most queues of a process.
const QUEUES_MAX: usize = 65_536;

/// Forgets all queues. No event is running any more.
pub(crate) fn close_all() {
    QUEUES.lock().open.clear();
    CHANGED.notify_all();
}

/// Runs a body that gives a number of events or an error.
fn counted(body: impl FnOnce() -> Result<usize, Der>) -> c_int {
    let done = call_or(Err(Der::Misc), body);
    done.map_or_else(number_of_der, |count| c_int::try_from(count).unwrap_or(c_int::MAX))
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_eq_create(handle: *mut Handle) -> c_int {
    daos_call(|| {
        check_started()?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        let mut queues = QUEUES.lock();
        if queues.open.len() >= QUEUES_MAX {
            return Err(Der::Busy);
        }
        queues.last += 1;
        let cookie = COOKIES | queues.last;
        queues.open.insert(cookie, Queue::default());
        *handle = Handle { cookie };
        Ok(())
    })
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn daos_eq_destroy(handle: Handle, flags: c_int) -> c_int {
    daos_call(|| {
        let mut queues = QUEUES.lock();
        let queue = queues.queue(handle.cookie)?;
        let empty = queue.running.is_empty() && queue.completed.is_empty();
        if !empty && flags & FORCE == 0 {
            return Err(Der::Busy);
        }
        let running: Vec<At> = queue.running.iter().copied().collect();
        drop(queues);
        // Those that nobody has begun with never will be; for the others their memory has to stay.
        for event in running {
            cancel(event);
        }
        let mut queues = QUEUES.lock();
        while queues.open.get(&handle.cookie).is_some_and(|queue| !queue.running.is_empty()) {
            wait(&mut queues, None);
        }
        queues.open.remove(&handle.cookie);
        CHANGED.notify_all();
        Ok(())
    })
}

/// Takes completed events out of a queue.
///
/// # Safety
/// There is room for all that are asked for.
unsafe fn take(
    queues: &mut Queues,
    cookie: u64,
    wanted: usize,
    events: *mut *mut Event,
) -> Result<usize, Der> {
    let queue = queues.queue(cookie)?;
    let count = wanted.min(queue.completed.len());
    for (index, event) in queue.completed.drain(..count).enumerate() {
        // SAFETY: the caller's promise; a completed event is alive until it was asked for.
        unsafe {
            event.private().state = State::Ready;
            events.add(index).write(event.0);
        }
    }
    Ok(count)
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_eq_poll(
    handle: Handle,
    wait_running: c_int,
    timeout_us: i64,
    wanted: c_uint,
    events: *mut *mut Event,
) -> c_int {
    counted(|| {
        if wanted == 0 || events.is_null() {
            return Err(Der::Inval);
        }
        let until = deadline(timeout_us);
        let mut queues = QUEUES.lock();
        loop {
            // SAFETY: the caller gives room for so many, by the contract.
            let count = unsafe { take(&mut queues, handle.cookie, wanted as usize, events) }?;
            let idle = wait_running != 0 && queues.queue(handle.cookie)?.running.is_empty();
            if count > 0 || idle || timeout_us == 0 || !wait(&mut queues, until) {
                return Ok(count);
            }
        }
    })
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_eq_query(
    handle: Handle,
    query: c_uint,
    wanted: c_uint,
    events: *mut *mut Event,
) -> c_int {
    counted(|| {
        let mut queues = QUEUES.lock();
        let queue = queues.queue(handle.cookie)?;
        let completed = queue.completed.iter().filter(|_| query & COMPLETED != 0);
        let found = completed.chain(queue.running.iter().filter(|_| query & WAITING != 0));
        if wanted == 0 || events.is_null() {
            return Ok(found.count());
        }
        let mut count = 0;
        for event in found.take(wanted as usize) {
            // SAFETY: the caller gives room for so many, by the contract.
            unsafe { events.add(count).write(event.0) };
            count += 1;
        }
        Ok(count)
    })
}
