//! Says what a command waits for. An engine that does not answer makes a command stand still for seconds,
//! and a person should know why, and for how long. Looks from aside, by questions of its own: what the
//! command itself does is neither changed nor waited for.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use azekura_client::PoolFile;
use azekura_proto::EngineId;
use azekura_proto::pool_map::PoolMap;

use crate::{connect, report};

/// Silence that is worth a word.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after its start, and how often then, the engines of a command are asked how they are.
const INTERVAL: Duration = Duration::from_secs(2);

/// Whether this process is a command that a person waits for.
static IS_COMMAND: AtomicBool = AtomicBool::new(false);
/// What was said already: once is enough.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// This process is a command that ends soon, and has no log to tell of engines that are silent.
pub(crate) fn this_is_a_command() {
    IS_COMMAND.store(true, Ordering::Relaxed);
}

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

fn say_once(line: &str) {
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
        connect::ASK_TIMEOUT.as_secs()
    )
}

/// Keeps an eye on the engines of a pool as long as the command works.
pub(crate) fn watch(file: &PoolFile) {
    if !IS_COMMAND.load(Ordering::Relaxed) {
        return;
    }
    let file = file.clone();
    let _ = thread::Builder::new().spawn(move || {
        let Ok(secret) = file.secret() else { return };
        loop {
            thread::sleep(INTERVAL);
            thread::scope(|scope| {
                for engine in (0..file.map.engines.len() as u16).map(EngineId) {
                    let (map, secret) = (&file.map, &secret);
                    scope.spawn(move || {
                        if connect::ask_engine(map, engine, secret).is_err() {
                            say_once(&line_of(map, engine));
                        }
                    });
                }
            });
        }
    });
}
