//! One history: a seed, what the clients do, and whether every answer is one that they may get. Owns
//! the end of each: nothing goes wrong any more, all is read, and nothing is left in the middle.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use azekura_posix::{FileKind, OFlags};

use super::faults::{Faults, KnownDefect};
use super::history::History;
use super::pool::Pool;
use super::possible::Possible;
use super::users::Users;
use super::workload::{draw, slots_of};
use crate::Random;
use crate::model::{Answer, Op};

/// What a history is made of.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Engines of the pool.
    pub engines: u16,
    /// Targets of each.
    pub targets_each: u16,
    /// Sessions that take turns.
    pub clients: usize,
    /// Operations of all of them together.
    pub operations: usize,
    /// What goes wrong.
    pub faults: Faults,
}

impl Setting {
    /// What every change of the pool has to stand: short, with much happening.
    pub const SHORT: Self =
        Self { engines: 2, targets_each: 2, clients: 2, operations: 40, faults: Faults::USUAL };
}

/// A history in which something came out as it never may.
#[derive(Debug)]
pub struct Violation {
    /// The seed, which gives the same history again.
    pub seed: u64,
    /// What came out.
    pub what: String,
    /// What happened up to then.
    pub history: History,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}AZEKURA_SEED={}: {}", self.history, self.seed, self.what)
    }
}

struct Run {
    pool: Arc<Pool>,
    users: Users,
    random: Random,
    possible: Possible,
}

/// Plays the history of a seed.
///
/// # Errors
///
/// Something came out that may not be.
pub fn run(seed: u64, setting: &Setting) -> Result<History, Box<Violation>> {
    // Two sequences, so that another fault does not make the clients do other things.
    let mut random = Random::new(seed);
    let pool = Pool::start(setting.engines, setting.targets_each, random.next_u64());
    let played = catch_unwind(AssertUnwindSafe(|| {
        let users = Users::new(&pool, setting.clients);
        let possible = Possible::new();
        let mut run = Run { pool: Arc::clone(&pool), users, random, possible };
        run.play(setting).and_then(|()| run.end())
    }));
    let history = pool.history();
    match played {
        Ok(Ok(())) => Ok(history),
        Ok(Err(what)) => Err(Box::new(Violation { seed, what, history })),
        Err(cause) => {
            let said = cause.downcast_ref::<String>().cloned();
            let said = said.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let what = format!("panicked: {}", said.unwrap_or_default());
            Err(Box::new(Violation { seed, what, history }))
        }
    }
}

impl Run {
    fn play(&mut self, setting: &Setting) -> Result<(), String> {
        self.pool.set_faults(setting.faults);
        let slots: Vec<Vec<usize>> =
            (0..setting.clients).map(|client| slots_of(client, setting.clients)).collect();
        for _ in 0..setting.operations {
            let client = self.random.below(setting.clients as u64) as usize;
            if self.random.one_in(80) {
                self.replace(client, &slots[client]);
            }
            let op = draw(&mut self.random, &slots[client]);
            self.step(client, &op)?;
            if self.random.one_in(6) {
                let pause = Duration::from_millis(self.random.below(400));
                self.pool.sleep(pause);
            }
        }
        Ok(())
    }

    /// A client ends, and another takes its place.
    fn replace(&mut self, client: usize, slots: &[usize]) {
        self.pool.note(format!("client {client} is gone"));
        self.users.replace(client);
        self.possible.close(slots);
    }

    fn step(&mut self, client: usize, op: &Op) -> Result<Option<Answer>, String> {
        if !self.pool.shows(KnownDefect::ReadBeforeCommit) {
            self.pool.rest()?;
        }
        let outcome = self.users.apply(client, op);
        self.pool.note(format!("client {client}: {} -> {outcome:?}", crate::model::shown(op)));
        match self.possible.observe(op, &outcome) {
            Ok(()) => Ok(outcome.ok()),
            Err(wanted) => Err(format!("{outcome:?} is none of {wanted:?}")),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.pool.settle();
        self.read_all(b".")?;
        self.pool.rest()
    }

    /// Looks at everything below a directory, as one of the clients.
    fn read_all(&mut self, path: &[u8]) -> Result<(), String> {
        let client = self.random.below(self.users.count() as u64) as usize;
        let listed = self.step(client, &Op::List { path: path.to_vec() })?;
        let Some(Answer::Names(names)) = listed else { return Err("cannot be listed".to_owned()) };
        for (name, kind) in names {
            let below = if path == b"." { name } else { [path, &name].join(&b'/') };
            self.step(client, &Op::Stat { path: below.clone(), follow: true })?;
            if kind == FileKind::Directory {
                self.read_all(&below)?;
                continue;
            }
            let slot = client;
            self.step(client, &Op::Open { slot, path: below, flags: OFlags::RDWR, mode: 0 })?;
            self.step(client, &Op::Read { slot, offset: 0, bytes: 1 << 16 })?;
            self.step(client, &Op::Close { slot })?;
        }
        Ok(())
    }
}
