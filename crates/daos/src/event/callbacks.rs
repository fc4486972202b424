//! Who wants to be called when the call of an event is over. Owns the list of them, each of which is called
//! once; it never calls one while the lock of the events is held.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use crate::status::Der;
use crate::types::Event;

/// Most of them for an event.
const CALLBACKS_MAX: usize = 64;

/// `daos_event_comp_cb_t`.
pub(super) type Function = unsafe extern "C" fn(*mut c_void, *mut Event, c_int) -> c_int;

/// A function of the caller's with its argument.
pub(super) struct Callback {
    function: Function,
    argument: *mut c_void,
}

// SAFETY: the argument is only passed on, to a function that is called on any thread, by the contract.
unsafe impl Send for Callback {}

/// Those of each event, by its address, in the order in which they came.
#[derive(Default)]
pub(super) struct Callbacks(HashMap<usize, Vec<Callback>>);

impl Callbacks {
    /// One more of an event; `DER_BUSY` where there are too many.
    pub(super) fn add(
        &mut self,
        event: usize,
        function: Function,
        argument: *mut c_void,
    ) -> Result<(), Der> {
        let list = self.0.entry(event).or_default();
        if list.len() >= CALLBACKS_MAX {
            return Err(Der::Busy);
        }
        list.push(Callback { function, argument });
        Ok(())
    }

    /// Takes those of an event out; `None` if there are none.
    pub(super) fn take(&mut self, event: usize) -> Option<Vec<Callback>> {
        if self.0.is_empty() { None } else { self.0.remove(&event) }
    }
}

/// Calls them with the result of the call; `result` becomes the first error of theirs, if it has none.
///
/// # Safety
/// The event is alive, and the lock of the events is not held.
pub(super) unsafe fn call(
    callbacks: Vec<Callback>,
    event: *mut Event,
    rc: c_int,
    result: &mut c_int,
) {
    for Callback { function, argument } in callbacks {
        // SAFETY: a function of the caller's with its argument, by the contract.
        let said = unsafe { function(argument, event, rc) };
        if *result == 0 {
            *result = said;
        }
    }
}
