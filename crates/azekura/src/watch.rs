//! Keeps an eye on the engines of a pool while a command works with it. Looks from aside, by questions of
//! its own: what the command itself does is neither changed nor waited for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use azekura_client::PoolFile;
use azekura_proto::EngineId;

use crate::{asking, waiting};

/// How long after its start, and how often then, the engines of a command are asked how they are.
const INTERVAL: Duration = Duration::from_secs(2);

/// Whether this process is a command that a person waits for.
static IS_COMMAND: AtomicBool = AtomicBool::new(false);

/// This process is a command that ends soon, and has no log to tell of engines that are silent.
pub(crate) fn this_is_a_command() {
    IS_COMMAND.store(true, Ordering::Relaxed);
}

/// Keeps an eye on the engines of a pool as long as the command works.
pub(crate) fn begin(file: &PoolFile) {
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
                        if asking::ask_engine(map, engine, secret).is_err() {
                            waiting::say_once(&waiting::line_of(map, engine));
                        }
                    });
                }
            });
        }
    });
}
