//! The pool and its container, reached when a call first needs them, on the thread that made the
//! call. Owns what happens when they cannot be reached: the call fails with `EIO`, the report gets a
//! line, and the next call after a moment tries again; and what of them is handed on to programs that are
//! started from here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use azekura_client::{ClientConfig, PoolFile};
use azekura_posix::{
    BelievedWay, Credentials, Errno, FileSystem, FsConfig, Namespace, Oid, Pool, Result, Trace,
};
use azekura_proto::{HandedDirectory, HandedOn, HandedWay, PoolId, handed_on};
use parking_lot::RwLock;

use crate::descriptors::reserve;
use crate::report;
use crate::settings::{self, Settings};

/// For this long after a failure calls fail at once.
const PAUSE: Duration = Duration::from_secs(1);

enum State {
    Unopened,
    Open(Namespace),
    Failed(Instant),
}

static STATE: RwLock<State> = RwLock::new(State::Unopened);
/// Permission bits that new files do not get (`umask`).
static UMASK: AtomicU32 = AtomicU32::new(0o022);
/// Whether the process has had children: what they do it has to see at once.
static HAS_CHILDREN: AtomicBool = AtomicBool::new(false);

/// What the program that started this one has handed on, if it is about the same container of this pool.
fn received(settings: &Settings, pool: PoolId) -> Option<&'static HandedOn> {
    static RECEIVED: OnceLock<Option<HandedOn>> = OnceLock::new();
    let receive = || HandedOn::from_text(&settings::variable(handed_on::VARIABLE)?);
    let received = RECEIVED.get_or_init(receive).as_ref()?;
    let is_ours = received.pool == pool && received.container.name == settings.container;
    is_ours.then_some(received)
}

/// The working directory with its path, as the program that started this one has handed it on.
pub(crate) fn received_directory() -> Option<HandedDirectory> {
    let settings = settings::get()?;
    let file = PoolFile::find(&settings.pool).ok()?;
    received(settings, file.map.pool)?.directory.clone()
}

/// What a program that is started from here need not ask for again, as text for its environment. `directory`: the
/// working directory with its path, if it lies in the container and is known.
pub(crate) fn known(directory: Option<(Oid, Vec<u8>)>) -> Option<Vec<u8>> {
    let State::Open(root) = &*STATE.read() else { return None };
    let directory = directory.map(|(oid, path)| {
        let way = root.filesystem().believed_way(&path).map(|way| handed(&way));
        HandedDirectory { oid, path, way }
    });
    let (fs, pool) = (root.filesystem(), root.filesystem().pool());
    let handed_on = HandedOn {
        pool: pool.map().pool,
        container: fs.container().clone(),
        round_trip_us: pool.round_trip_us(),
        directory,
    };
    handed_on.to_text()
}

fn connect(settings: &Settings, path: &[u8]) -> std::result::Result<Arc<FileSystem>, String> {
    let file = PoolFile::find(&settings.pool).map_err(|error| error.to_string())?;
    let config = ClientConfig {
        settle_descriptor: Some(reserve::move_away),
        is_guest: true,
        ..ClientConfig::default()
    };
    let pool = Pool::connect(&file, config).map_err(|error| error.to_string())?;
    let trace = settings
        .trace
        .as_deref()
        .map(|path| Trace::append_to(Path::new(OsStr::from_bytes(path)), Some(reserve::move_away)));
    // A trace that cannot be written is no reason for the program to fail.
    let trace = trace.and_then(|opened| opened.map_err(|e| report::trouble(&e.to_string())).ok());
    let (read_policy, write_policy) = (settings.read_policy.clone(), settings.write_policy);
    let listed_from_us =
        (!HAS_CHILDREN.load(Ordering::Relaxed)).then_some(FsConfig::LISTED_FROM_US);
    let config = FsConfig {
        read_policy,
        write_policy,
        descriptors: settings.descriptors,
        listed_from_us,
        changes_in_flight: true,
        trace,
        ..FsConfig::default()
    };
    if let Some(received) = received(settings, file.map.pool) {
        pool.suppose_round_trip_us(received.round_trip_us);
        let fs = FileSystem::of_container(pool, received.container.clone(), config);
        take_over(&fs, received);
        return Ok(fs);
    }
    let mounted = FileSystem::mount_towards(pool, &settings.container, config, path);
    mounted.map_err(|error| error.to_string())
}

/// Microseconds of the clock that all processes of the host share.
fn host_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32).as_micros() as u64
}

fn handed(way: &BelievedWay) -> HandedWay {
    let age_us = way.asked.elapsed().as_micros() as u64;
    HandedWay { dirs: way.dirs.clone(), asked_us: host_us().saturating_sub(age_us) }
}

/// Believes what has been handed on of the way to the working directory.
fn take_over(fs: &FileSystem, received: &HandedOn) {
    let Some(HandedDirectory { path, way: Some(way), .. }) = &received.directory else { return };
    let asked = host_us()
        .checked_sub(way.asked_us)
        .and_then(|age_us| Instant::now().checked_sub(Duration::from_micros(age_us)));
    if let Some(asked) = asked {
        fs.take_over_way(path, &BelievedWay { dirs: way.dirs.clone(), asked });
    }
}

/// The container's name space as this process's user sees it, standing at the prefix.
pub(crate) fn root() -> Result<Namespace> {
    root_towards(b"")
}

/// The same, for a call about a path from there on: if this is the first, where that leads comes along.
pub(crate) fn root_towards(path: &[u8]) -> Result<Namespace> {
    match &*STATE.read() {
        State::Open(root) => return Ok(root.clone()),
        State::Failed(since) if since.elapsed() < PAUSE => return Err(Errno::IO),
        State::Failed(_) | State::Unopened => {}
    }
    let settings = settings::get().ok_or(Errno::IO)?;
    let mut state = STATE.write();
    if let State::Open(root) = &*state {
        return Ok(root.clone());
    }
    match connect(settings, path) {
        Ok(fs) => {
            let root = namespace(&fs, settings);
            *state = State::Open(root.clone());
            Ok(root)
        }
        Err(why) => {
            report::trouble(&why);
            *state = State::Failed(Instant::now());
            Err(Errno::IO)
        }
    }
}

fn namespace(fs: &Arc<FileSystem>, settings: &Settings) -> Namespace {
    Namespace::new(Arc::clone(fs), Credentials::of_process()).standing_at(&settings.prefix)
}

fn drain_by(how: fn(&FileSystem) -> Result<()>) {
    if let State::Open(root) = &*STATE.read()
        && let Err(errno) = how(root.filesystem())
    {
        report::trouble(&format!(
            "something that was written or made, and answered, has not arrived: {errno}; with AZEKURA_WRITE_POLICY=through each call waits for it"
        ));
    }
}

/// The process is about to fork or to start a program: what it has written arrives.
pub(crate) fn drain() {
    HAS_CHILDREN.store(true, Ordering::Relaxed);
    drain_by(FileSystem::drain);
}

/// The process is about to become another program, or to end: what it has written arrives, and from now
/// on every write waits for its answer.
pub(crate) fn drain_for_good() {
    drain_by(FileSystem::drain_for_good);
}

/// The process has not become another program.
pub(crate) fn resume() {
    if let State::Open(root) = &*STATE.read() {
        root.filesystem().resume();
    }
}

/// The process is about to end.
pub(crate) fn leave() {
    drain_for_good();
    if let State::Open(root) = &*STATE.read() {
        root.filesystem().leave();
    }
}

/// The process has become another user.
pub(crate) fn renew_user() {
    if let (State::Open(root), Some(settings)) = (&mut *STATE.write(), settings::get()) {
        *root = namespace(&Arc::clone(root.filesystem()), settings);
    }
}

/// Learns the umask.
pub(crate) fn set_umask(mask: u32) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}

/// The mode of a new file.
pub(crate) fn masked(mode: u32) -> u32 {
    mode & 0o7777 & !UMASK.load(Ordering::Relaxed)
}
