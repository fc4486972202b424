//! Says what a command waits for. An engine that does not answer makes a command stand still for seconds,
//! and a person should know why, and for how long. Asks nobody anything.

use std::collections::BTreeSet;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use azekura_proto::EngineId;
use azekura_proto::pool_map::PoolMap;

use crate::report;

/// An engine that is asked something has this long to answer, at all of its addresses together: as long
/// as an operation waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// Silence that is worth a word.
const PATIENCE: Duration = Duration::from_secs(1);
/// What was said already: once is enough.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// While it lives somebody waits; if that takes long, it is said.
pub(crate) struct Waiting {
    _done: Sender<()>,
}

impl Waiting {
    /// Somebody waits for `what` from now on.
    pub(crate) fn begin(what: String) -> Self {
        let (done, ended) = channel();
        // Without a thread nothing is said, which is no reason not to wait.
        let _ = thread::Builder::new().spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                say_once(&what);
            }
        });
        Self { _done: done }
    }
}

pub(crate) fn say_once(line: &str) {
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(line.to_owned()) {
        report::note(format_args!("azekura: {line}"));
    }
}

/// What is said of an engine that does not answer.
pub(crate) fn line_of(map: &PoolMap, engine: EngineId) -> String {
    let entry = map.engines.get(usize::from(engine.0));
    let addresses = entry.map(|entry| entry.addresses.iter().map(ToString::to_string));
    let addresses: Vec<String> = addresses.into_iter().flatten().collect();
    format!(
        "engine {} of pool '{}' ({}) does not answer: waiting for up to {} s",
        engine.0,
        map.name,
        addresses.join(" "),
        LIMIT.as_secs()
    )
}
