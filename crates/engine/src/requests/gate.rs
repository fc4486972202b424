//! Which connection of a slot may still bring changes. A client that has given a connection up uses a
//! newer one, and what the older one still brings, from a socket's buffer or the middle of a write, would
//! undo what was answered since. Owns the order: what an older connection has under way ends before
//! anything of a newer one begins, and nothing of an older one begins after that.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use azekura_platform::{Platform, Signal};
use parking_lot::{Mutex, MutexGuard};

/// How long the first request of a newer connection waits for those of an older one. Its client has
/// given up by then.
const END_WAIT: Duration = Duration::from_secs(10);

/// The way to end a connection whose thread may be waiting for data.
pub(crate) trait HangUp: Debug + Send + Sync {
    /// Nothing more is read or written there.
    fn hang_up(&self);
}

#[derive(Debug, Default)]
struct State {
    newest: u32,
    /// Requests under way of the newest connection, and of all older ones.
    under_way: u32,
    older_under_way: u32,
    /// The newest connection, to be hung up when it is no longer that.
    line: Option<Arc<dyn HangUp>>,
}

/// The connections of one slot.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    ended: Signal,
}

/// Why a request is not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// A newer connection has taken the place of its own.
    Superseded,
    /// What an older connection has under way does not end.
    Stuck,
}

/// A request that may be carried out; over when dropped.
#[derive(Debug)]
pub(crate) struct Pass<'g> {
    gate: &'g Gate,
    connection: u32,
}

impl Gate {
    /// For a request that comes over a connection, once nothing of an older one is under way.
    pub(crate) fn enter(
        &self,
        platform: &dyn Platform,
        connection: u32,
        line: Option<&Arc<dyn HangUp>>,
    ) -> Result<Pass<'_>, Refused> {
        let mut state = self.state.lock();
        if connection > state.newest {
            state.supersede(connection);
            state.line = line.cloned();
        }
        self.wait_for_older(platform, &mut state)?;
        if connection < state.newest {
            return Err(Refused::Superseded);
        }
        state.under_way += 1;
        Ok(Pass { gate: self, connection })
    }

    /// Lets nothing in any more of this connection and older ones.
    pub(crate) fn close(&self, platform: &dyn Platform, connection: u32) -> Result<(), Refused> {
        let mut state = self.state.lock();
        // Whatever number a client says.
        let next = connection.saturating_add(1);
        if next > state.newest {
            state.supersede(next);
        }
        self.wait_for_older(platform, &mut state)
    }

    fn wait_for_older(
        &self,
        platform: &dyn Platform,
        state: &mut MutexGuard<'_, State>,
    ) -> Result<(), Refused> {
        if state.older_under_way == 0 {
            return Ok(());
        }
        let deadline = platform.now() + END_WAIT;
        while state.older_under_way > 0 {
            let time_is_up = self.ended.wait_until(platform, state, deadline);
            if time_is_up && state.older_under_way > 0 {
                return Err(Refused::Stuck);
            }
        }
        Ok(())
    }
}

impl State {
    fn supersede(&mut self, connection: u32) {
        assert!(connection > self.newest, "connections are numbered upwards");
        self.newest = connection;
        self.older_under_way += std::mem::take(&mut self.under_way);
        if let Some(line) = self.line.take() {
            line.hang_up();
        }
    }
}

impl Pass<'_> {
    /// Whether a newer connection waits for this request to end.
    pub(crate) fn is_superseded(&self) -> bool {
        self.gate.state.lock().newest > self.connection
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        if self.connection == state.newest {
            state.under_way -= 1;
            return;
        }
        state.older_under_way -= 1;
        if state.older_under_way == 0 {
            drop(state);
            self.gate.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use azekura_platform::System;

    use super::*;

    #[derive(Debug, Default)]
    struct Line(AtomicUsize);

    impl HangUp for Line {
        fn hang_up(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_older_connection_is_refused_and_hung_up() {
        let (gate, line) = (Gate::default(), Arc::new(Line::default()));
        let as_line = Arc::clone(&line) as Arc<dyn HangUp>;
        drop(gate.enter(&System, 4, Some(&as_line)).unwrap());
        drop(gate.enter(&System, 4, Some(&as_line)).unwrap());
        assert_eq!(line.0.load(Ordering::Relaxed), 0);
        drop(gate.enter(&System, 5, None).unwrap());
        assert_eq!(line.0.load(Ordering::Relaxed), 1);
        assert_eq!(gate.enter(&System, 4, None).err(), Some(Refused::Superseded));
        gate.close(&System, 3).unwrap();
        drop(gate.enter(&System, 5, None).unwrap());
        gate.close(&System, 5).unwrap();
        assert_eq!(gate.enter(&System, 5, None).err(), Some(Refused::Superseded));
        drop(gate.enter(&System, 6, None).unwrap());
    }

    #[test]
    fn what_is_under_way_ends_before_a_newer_connection_begins() {
        let gate = Gate::default();
        let old = gate.enter(&System, 1, None).unwrap();
        std::thread::scope(|scope| {
            let newer = scope.spawn(|| gate.enter(&System, 2, None).is_ok());
            while !old.is_superseded() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            assert!(!newer.is_finished(), "it waits");
            drop(old);
            assert!(newer.join().unwrap());
        });
    }
}
