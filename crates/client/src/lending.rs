//! Connections that are kept for one purpose and serve others while they are not in use: to make one takes
//! several round trips. Owns who may be asked for one; whether it can be spared the lender knows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use azekura_proto::EngineId;
use parking_lot::RwLock;

/// Who keeps connections. It is asked by threads that hold none of its locks.
pub(crate) trait Lender: Send + Sync {
    /// Gives away a connection to an engine, if one is not in use.
    fn lend(&self, engine: EngineId);
}

/// Those who keep connections, for as long as they live.
#[derive(Debug, Default)]
pub(crate) struct Lenders {
    all: RwLock<Vec<Weak<dyn Lender>>>,
    /// Whether there are any, to be read without the lock.
    are_there: AtomicBool,
}

impl Lenders {
    /// One more may be asked.
    pub(crate) fn add(&self, lender: Weak<dyn Lender>) {
        let mut all = self.all.write();
        all.retain(|known| known.strong_count() > 0);
        all.push(lender);
        self.are_there.store(true, Ordering::Release);
    }

    /// Whether there is anybody to ask.
    pub(crate) fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Acquire)
    }

    /// Asks for connections to an engine.
    pub(crate) fn ask(&self, engine: EngineId) {
        let Some(all) = self.all.try_read() else { return };
        let all: Vec<Arc<dyn Lender>> = all.iter().filter_map(Weak::upgrade).collect();
        for lender in all {
            lender.lend(engine);
        }
    }
}
