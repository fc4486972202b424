//! The calls about single events, and about parents with their children.

use std::ffi::{c_int, c_void};

use crate::event::callbacks::Function;
use crate::event::{At, MARK, Private, QUEUES, State, cancel, complete, deadline, wait};
use crate::status::{Der, call_or, daos_call};
use crate::types::{Event, Handle, put};

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_init(
    event: *mut Event,
    queue: Handle,
    parent: *mut Event,
) -> c_int {
    daos_call(|| {
        if event.is_null() {
            return Err(Der::Inval);
        }
        let mut queues = QUEUES.lock();
        let mut private = Private {
            mark: MARK,
            queue: queue.cookie,
            parent,
            first_child: std::ptr::null_mut(),
            last_child: std::ptr::null_mut(),
            next_sibling: std::ptr::null_mut(),
            children_running: 0,
            state: State::Ready,
            own_running: false,
        };
        if !parent.is_null() {
            // SAFETY: an event of the caller's, by the contract.
            let above = unsafe { At(parent).checked() }?;
            if above.state != State::Ready {
                return Err(Der::Inval);
            }
            if !above.parent.is_null() {
                return Err(Der::NoPerm);
            }
            private.queue = above.queue;
            let before = std::mem::replace(&mut above.last_child, event);
            if before.is_null() {
                above.first_child = event;
                // A result of children that it had before is none of these.
                // SAFETY: the event is the caller's, as its mark has shown.
                unsafe { (*parent).error = 0 };
            } else {
                // SAFETY: a child is alive as long as it belongs to its parent, by the contract.
                unsafe { At(before).private() }.next_sibling = event;
            }
        } else if queue.cookie != 0 {
            queues.queue(queue.cookie)?;
        }
        // What was in this memory before was never ended.
        drop(queues.callbacks.take(event.addr()));
        // SAFETY: not null, so the caller's to write to, by the contract; the private part is large
        // enough and aligned.
        unsafe {
            event.write(Event { error: 0, private: [0; 20], debug: 0 });
            (&raw mut (*event).private).cast::<Private>().write(private);
        }
        Ok(())
    })
}

/// Takes a child out of its family, none of which may be running.
///
/// # Safety
/// The event and its family are the caller's, and the lock is held.
unsafe fn leave_parent(event: At, private: &mut Private) -> Result<(), Der> {
    if private.parent.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise; the links of a family lead from child to child.
    unsafe {
        let above = At(private.parent).private();
        if above.state != State::Ready {
            return Err(Der::Inval);
        }
        let mut before = std::ptr::null_mut();
        let mut child = above.first_child;
        while !child.is_null() && child != event.0 {
            before = child;
            child = At(child).private().next_sibling;
        }
        if child.is_null() {
            return Ok(());
        }
        if before.is_null() {
            above.first_child = private.next_sibling;
        } else {
            At(before).private().next_sibling = private.next_sibling;
        }
        if above.last_child == event.0 {
            above.last_child = before;
        }
    }
    Ok(())
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_fini(event: *mut Event) -> c_int {
    daos_call(|| {
        let event = At(event);
        let mut queues = QUEUES.lock();
        // SAFETY: an event of the caller's, by the contract.
        let private = unsafe { event.checked() }?;
        if private.state == State::Running || private.children_running > 0 {
            return Err(Der::Busy);
        }
        // SAFETY: by the contract.
        unsafe { leave_parent(event, private) }?;
        let mut child = private.first_child;
        while !child.is_null() {
            // SAFETY: a child is alive as long as it belongs to its parent, by the contract.
            let below = unsafe { At(child).private() };
            below.mark = 0;
            drop(queues.callbacks.take(child.addr()));
            child = below.next_sibling;
        }
        if let Ok(queue) = queues.queue(private.queue) {
            queue.completed.retain(|other| *other != event);
        }
        private.mark = 0;
        // Who wanted to know of a call that never was is not called.
        drop(queues.callbacks.take(event.address()));
        Ok(())
    })
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_next(
    parent: *mut Event,
    child: *mut Event,
) -> *mut Event {
    let null = std::ptr::null_mut();
    call_or(null, || {
        let _queues = QUEUES.lock();
        // SAFETY: events of the caller's, by the contract.
        unsafe {
            if child.is_null() {
                At(parent).checked().map_or(null, |private| private.first_child)
            } else {
                At(child).checked().map_or(null, |private| private.next_sibling)
            }
        }
    })
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_test(
    event: *mut Event,
    timeout_us: i64,
    flag: *mut bool,
) -> c_int {
    daos_call(|| {
        let event = At(event);
        let until = deadline(timeout_us);
        let mut queues = QUEUES.lock();
        loop {
            // SAFETY: an event of the caller's, by the contract.
            let private = unsafe { event.checked() }?;
            if !private.parent.is_null() {
                return Err(Der::NoPerm);
            }
            if private.queue != 0 {
                queues.queue(private.queue)?;
            }
            let over = private.state != State::Running;
            if over {
                private.state = State::Ready;
                if let Ok(queue) = queues.queue(private.queue) {
                    queue.completed.retain(|other| *other != event);
                }
            }
            if over || timeout_us == 0 || !wait(&mut queues, until) {
                // SAFETY: null or the caller's to write to, by the contract.
                unsafe { put(flag, over) };
                return Ok(());
            }
        }
    })
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_register_comp_cb(
    event: *mut Event,
    function: Option<Function>,
    argument: *mut c_void,
) -> c_int {
    daos_call(|| {
        let function = function.ok_or(Der::Inval)?;
        let mut queues = QUEUES.lock();
        // SAFETY: an event of the caller's, by the contract.
        if unsafe { At(event).checked() }?.state == State::Completed {
            return Err(Der::NoPerm);
        }
        queues.callbacks.add(event.addr(), function, argument)
    })
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_parent_barrier(event: *mut Event) -> c_int {
    daos_call(|| {
        let event = At(event);
        let mut queues = QUEUES.lock();
        // SAFETY: an event of the caller's, by the contract.
        let private = unsafe { event.checked() }?;
        if private.first_child.is_null() {
            return Err(Der::Inval);
        }
        // SAFETY: the event and its children are the caller's, by the contract.
        if private.state != State::Ready || unsafe { event.has_idle_children() } {
            return Err(Der::NoPerm);
        }
        if !private.parent.is_null() {
            return Err(Der::NoPerm);
        }
        if private.queue != 0 {
            queues.queue(private.queue)?.running.insert(event);
        }
        private.state = State::Running;
        if private.children_running == 0 {
            drop(queues);
            // SAFETY: it runs since a moment ago, and is alive, by the contract.
            complete(event, unsafe { (*event.0).error });
        }
        Ok(())
    })
}

/// See `daos_event.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_event_abort(event: *mut Event) -> c_int {
    daos_call(|| {
        let mut running = Vec::new();
        {
            let _queues = QUEUES.lock();
            // SAFETY: an event of the caller's with its children, by the contract.
            unsafe {
                let private = At(event).checked()?;
                if private.state != State::Running && private.children_running == 0 {
                    return Err(Der::NoPerm);
                }
                running.push(At(event));
                let mut child = private.first_child;
                while !child.is_null() {
                    running.push(At(child));
                    child = At(child).private().next_sibling;
                }
            }
        }
        running.into_iter().for_each(cancel);
        Ok(())
    })
}
