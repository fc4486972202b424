//! One history: a seed, what the clients do, and whether every answer is one that they may get. Owns
//! the end of each: nothing goes wrong any more, all is read, and nothing is left in the middle.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use azekura_posix::{Errno, FileKind, OFlags};

use super::faults::{Faults, KnownDefect};
use super::history::History;
use super::platform::World as _;
use super::pool::Pool;
use super::possible::{Links, Possible};
use super::power::{Durable, Found};
use super::users::Users;
use super::workload::{draw, draw_of_data, slots_of};
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
    /// About how long files get, in bytes. Chunks have 4096.
    pub file_bytes: u64,
    /// Whether extended attributes are set, too.
    pub xattrs: bool,
    /// Whether the clients are far away: they are answered early, and believe what leases allow.
    pub is_far: bool,
    /// What goes wrong.
    pub faults: Faults,
}

impl Setting {
    /// What every change of the pool has to stand: short, with much happening.
    pub const SHORT: Self = Self {
        engines: 2,
        targets_each: 2,
        clients: 2,
        operations: 40,
        file_bytes: 600,
        xattrs: false,
        is_far: false,
        faults: Faults::USUAL,
    };

    /// The same with files that lie on several targets.
    pub const STRIPED: Self = Self { file_bytes: 20_000, ..Self::SHORT };

    /// Clients that are far from one engine: names and writes in flight, and leases of everything.
    pub const FAR: Self =
        Self { engines: 1, targets_each: 4, operations: 80, is_far: true, ..Self::SHORT };

    /// The same from several engines, each of which has some names of a directory.
    pub const FAR_FROM_SEVERAL: Self = Self { engines: 2, targets_each: 2, ..Self::FAR };

    /// Several engines and near clients, where the power goes as well. What was synced has to survive that, and what else is
    /// left has to be whole.
    pub const POWER: Self =
        Self { faults: Faults { power_cut: 40, ..Faults::USUAL }, ..Self::SHORT };

    /// All that programs do, on one engine whose power goes, and nothing else goes wrong.
    pub const POWER_OF_ONE: Self = Self {
        engines: 1,
        targets_each: 4,
        xattrs: true,
        faults: Faults { power_cut: 40, ..Faults::NONE },
        ..Self::STRIPED
    };

    /// The same on three engines.
    pub const POWER_OF_THREE: Self = Self { engines: 3, targets_each: 2, ..Self::POWER_OF_ONE };
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

/// A client that is far away goes on by itself for about twice so many operations: leases are worth something then.
const IN_A_ROW: u64 = 8;
/// Now and then nothing is done for so long, at most.
const PAUSE_MS_MAX: u64 = 400;
/// The same of clients that are far away, at times: engines that have refused leases give them again.
const LONG_PAUSE_MS_MAX: u64 = 8_000;
/// What clients that are far away have in flight for so long they may give up, and tell so later. Engines are away
/// for as long only where they wait for each other in the midst of it.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(20);

struct Run {
    pool: Arc<Pool>,
    users: Users,
    random: Random,
    possible: Possible,
    /// What has to survive a loss of power.
    durable: Durable,
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
        let users = Users::new(&pool, setting.clients, setting.is_far);
        let links = if setting.is_far { Links::MayBeOld } else { Links::Exact };
        let (possible, durable) = (Possible::new(links), Durable::default());
        let pool = Arc::clone(&pool);
        let mut run = Run { pool, users, random, possible, durable };
        match run.play(setting)? {
            Played::ToTheEnd => run.end(),
            Played::UntilGivenUp => Ok(()),
        }
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

/// How far a history was played.
enum Played {
    ToTheEnd,
    /// Engines were not there for so long that a client may have given up what it was answered for.
    UntilGivenUp,
}

impl Run {
    fn play(&mut self, setting: &Setting) -> Result<Played, String> {
        let loses_power = setting.faults.power_cut > 0;
        if loses_power {
            // The container, to begin with.
            self.sync_all(0)?;
        }
        self.pool.set_faults(setting.faults);
        let slots: Vec<Vec<usize>> =
            (0..setting.clients).map(|client| slots_of(client, setting.clients)).collect();
        let mut client = 0;
        for _ in 0..setting.operations {
            let begun = self.pool.elapsed();
            if self.pool.power_cuts() > 0 {
                break;
            }
            if !setting.is_far || self.random.one_in(IN_A_ROW) {
                client = self.random.below(setting.clients as u64) as usize;
            }
            if loses_power {
                self.sync_something(client, &slots[client])?;
            }
            if self.random.one_in(80) {
                self.replace(client, &slots[client]);
            }
            let (random, own) = (&mut self.random, &slots[client]);
            let op = if setting.is_far {
                draw_of_data(random, own, setting.file_bytes)
            } else {
                draw(random, own, setting.file_bytes, setting.xattrs)
            };
            self.step(client, &op)?;
            if self.random.one_in(6) {
                let is_long = setting.is_far && self.random.one_in(4);
                let pause = if is_long { LONG_PAUSE_MS_MAX } else { PAUSE_MS_MAX };
                let pause = Duration::from_millis(self.random.below(pause));
                self.pool.sleep(pause);
            }
            if setting.is_far && self.pool.elapsed().saturating_sub(begun) >= GIVEN_UP_AFTER {
                return Ok(Played::UntilGivenUp);
            }
        }
        Ok(Played::ToTheEnd)
    }

    /// A client ends, and another takes its place.
    fn replace(&mut self, client: usize, slots: &[usize]) {
        self.pool.note(format!("client {client} is gone"));
        self.users.replace(client);
        self.possible.close(slots);
    }

    fn sync_something(&mut self, client: usize, slots: &[usize]) -> Result<(), String> {
        if self.random.one_in(8) {
            self.sync_all(client)?;
        }
        if self.random.one_in(6) {
            let slot = self.random.pick(slots);
            if self.step(client, &Op::Sync { slot })? == Some(Answer::Done) {
                self.durable.sync_file(slot, &self.possible);
            }
        }
        Ok(())
    }

    fn sync_all(&mut self, client: usize) -> Result<(), String> {
        self.pool.rest()?;
        let outcome = self.users.sync_all(client);
        self.pool.note(format!("client {client}: syncs all -> {outcome:?}"));
        if outcome.is_ok() && self.pool.power_cuts() == 0 {
            self.durable.sync_all(&self.possible);
        }
        Ok(())
    }

    fn step(&mut self, client: usize, op: &Op) -> Result<Option<Answer>, String> {
        if !self.pool.shows(KnownDefect::ReadBeforeCommit) {
            self.pool.rest()?;
        }
        let outcome = self.users.apply(client, op);
        self.pool.note(format!("client {client}: {} -> {outcome:?}", crate::model::shown(op)));
        // What is seen after a loss of power may be anything that was not synced.
        let seen = if self.pool.power_cuts() > 0 { Err(Errno::IO) } else { outcome };
        let observed = self.possible.observe(op, &seen);
        self.durable.narrow(&self.possible);
        match observed {
            Ok(()) => Ok(seen.ok()),
            Err(wanted) => Err(format!("{seen:?} is none of {wanted:?}")),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.pool.settle();
        if self.pool.power_cuts() > 0 {
            return self.look_at_what_is_left();
        }
        self.read_all(b".")?;
        self.pool.rest()?;
        let container = self.users.container();
        let mut problems = self.pool.lost_data(container)?;
        problems.extend(self.pool.misfits(container)?);
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    fn look_at_what_is_left(&mut self) -> Result<(), String> {
        self.users.replace(0);
        let found = Found::by(&mut self.users, 0);
        let mut problems = self.durable.compare(&found);
        let container = self.users.container();
        problems.extend(self.pool.lost_data(container)?);
        problems.extend(self.pool.unreadable_data(container)?);
        problems.extend(self.pool.rest().err());
        problems.extend(self.pool.misfits(container)?);
        problems.extend(found.problems(&mut self.users, 0));
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
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
