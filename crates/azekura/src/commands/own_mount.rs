//! The mounts that the process of an engine serves itself, so that what is asked there is a call into the
//! engine and no message. Owns when they begin and end, and that the engine outlives them; how a container is
//! mounted stands in `mount`. Engines of the pool in other processes are asked over sockets, as ever.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura_client::{ClientConfig, ClientError, Pool, PoolFile, SecretSource};
use azekura_engine::{Engine, Watch};
use azekura_fuse::{Mount, Unmounter};
use azekura_posix::MountError;
use azekura_proto::pool_map::PoolMap;
use azekura_proto::{EngineId, PoolId};
use azekura_rpc::transport::{Direct, Sockets};
use parking_lot::{Condvar, Mutex};

use super::mount::{self, MountArgs};
use crate::connect;
use crate::host::records::{self, LocalMount};
use crate::names::DEFAULT_CONTAINER;

/// How long other engines of the pool, which may just be starting too, are waited for.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks whether what was to end has ended.
const PAUSE_AT_END: Duration = Duration::from_millis(5);
/// How long a mount waits for an engine that is starting anew.
const ANEW_TIMEOUT: Duration = Duration::from_secs(15);
/// How long an engine that ends waits for a mount in which something is still open.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Numbers the mounts of this process.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// What is mounted, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish<'a> {
    /// The pool's default container, with the usual options.
    Usual,
    /// As a command line of `azekura mount` says.
    Of(&'a MountArgs),
}

/// The mounts that this process serves beside its engine. The engine itself belongs to somebody else, who
/// says when it is there.
#[derive(Debug)]
pub(crate) struct OwnMounts {
    network: Arc<Direct>,
    secret_file: PathBuf,
    /// Its directory, and those of its targets.
    engine_places: Vec<PathBuf>,
    engine: Mutex<Reach>,
    /// The engine is there again, or nobody need wait for it any more.
    is_there: Condvar,
    mounts: Mutex<Vec<OwnMount>>,
}

/// How the engine is reached.
#[derive(Debug, Default)]
struct Reach {
    /// `None` while it is not there.
    watch: Option<Watch>,
    /// Its pool, as far as anybody has asked.
    pool: Option<PoolId>,
    /// By calls, under this number, since somebody needed it.
    added: Option<EngineId>,
    /// Where mounts are under way.
    beginning: Vec<PathBuf>,
    /// No mount begins any more.
    is_ending: bool,
}

/// A mount that this process serves.
#[derive(Debug)]
struct OwnMount {
    unmounter: Unmounter,
    /// Ends when the mount is gone.
    serving: JoinHandle<()>,
}

impl OwnMounts {
    /// No mount yet.
    pub(crate) fn beside(
        engine: &Engine,
        engine_places: Vec<PathBuf>,
        secret_file: PathBuf,
    ) -> Self {
        let pool = engine.map().map(|map| map.pool);
        let reach = Reach { watch: Some(engine.watch()), pool, ..Reach::default() };
        Self {
            network: Arc::new(Direct::beside(Arc::new(Sockets::default()))),
            secret_file,
            engine_places,
            engine: Mutex::new(reach),
            is_there: Condvar::new(),
            mounts: Mutex::default(),
        }
    }

    /// Whether the engine is of the pool with this id. One that is starting anew is still of its pool.
    pub(crate) fn is_of(&self, pool: &str) -> bool {
        let mut engine = self.engine.lock();
        if let Some((_, map)) = engine.watch.as_ref().and_then(Watch::place) {
            engine.pool = Some(map.pool);
        }
        engine.pool.is_some_and(|own| own.to_string() == pool)
    }

    /// Mounts at `dir`; ready when this returns.
    ///
    /// # Errors
    /// If the engine belongs to no pool, the directory is none to mount at, or the other engines of the
    /// pool do not answer.
    pub(crate) fn begin(&self, dir: &Path, wish: Wish<'_>) -> Result<()> {
        let dir = mount::prepare_dir(dir)?;
        check_apart(&dir, &self.engine_places)?;
        let map = self.reach(&dir)?;
        let begun = self.begin_at(&dir, map, wish);
        self.engine.lock().beginning.retain(|other| *other != dir);
        begun
    }

    fn begin_at(&self, dir: &Path, map: PoolMap, wish: Wish<'_>) -> Result<()> {
        let file = PoolFile { map, secret: SecretSource::File(self.secret_file.clone()) };
        let network = Some(Arc::clone(&self.network) as Arc<_>);
        let pool = Pool::connect(&file, ClientConfig { network, ..ClientConfig::default() })?;
        let mount = self.mount_when_others_are_there(&pool, dir, wish)?;
        let mount = serve(mount, pool, dir)?;
        let mut mounts = self.mounts.lock();
        mounts.retain(|mount| !mount.serving.is_finished());
        mounts.push(mount);
        Ok(())
    }

    fn mount_when_others_are_there(
        &self,
        pool: &Arc<Pool>,
        dir: &Path,
        wish: Wish<'_>,
    ) -> Result<Mount> {
        let deadline = Instant::now() + OTHERS_TIMEOUT;
        loop {
            match mount_once(pool, dir, wish) {
                Err(error)
                    if is_unreached(&error)
                        && Instant::now() < deadline
                        && !self.engine.lock().is_ending =>
                {
                    tracing::info!("waiting for the other engines: {error:#}");
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Sees to it that the engine is reached by calls, gives the pool's map, and notes that a mount begins at
    /// `dir`.
    fn reach(&self, dir: &Path) -> Result<PoolMap> {
        let deadline = Instant::now() + ANEW_TIMEOUT;
        let mut engine = self.engine.lock();
        while engine.watch.is_none() && !engine.is_ending {
            if self.is_there.wait_until(&mut engine, deadline).timed_out() {
                bail!("the engine is starting anew: try again");
            }
        }
        if engine.is_ending {
            bail!("the engine ends");
        }
        let watch = engine.watch.clone();
        let Some((id, map)) = watch.as_ref().and_then(Watch::place) else {
            bail!(
                "the engine belongs to no pool yet, so there is nothing to mount at {}: start it without \
                 --mount, run 'azekura pool create', and start it again with --mount",
                dir.display()
            )
        };
        if engine.beginning.iter().any(|other| other == dir) {
            bail!("{} is being mounted already, which waits for other engines", dir.display());
        }
        if engine.added.is_none()
            && let Some(door) = watch.as_ref().and_then(Watch::door)
        {
            self.network.add(id, door);
            engine.added = Some(id);
        }
        engine.beginning.push(dir.to_owned());
        Ok(map)
    }

    /// Has the mounts do without the engine until [`OwnMounts::go_on`]: what is asked meanwhile waits, as for
    /// an engine that was killed.
    pub(crate) fn pause(&self) {
        let mut engine = self.engine.lock();
        engine.watch = None;
        if let Some(id) = engine.added {
            self.network.remove(id);
        }
    }

    /// The engine is there again.
    pub(crate) fn go_on(&self, started: &Engine) {
        let mut engine = self.engine.lock();
        engine.watch = Some(started.watch());
        if let Some(id) = engine.added {
            self.network.add(id, started.door());
        }
        self.is_there.notify_all();
    }

    /// Takes the mounts away that are still there, and waits a little for those who use them. Whoever has
    /// something open after that gets errors.
    pub(crate) fn end(&self) {
        let deadline = Instant::now() + END_TIMEOUT;
        self.engine.lock().is_ending = true;
        self.is_there.notify_all();
        // One that has just come about would be left behind dead.
        while !self.engine.lock().beginning.is_empty() && Instant::now() < deadline {
            std::thread::sleep(PAUSE_AT_END);
        }
        self.take_away();
        self.pause();
    }

    fn take_away(&self) {
        let mounts = std::mem::take(&mut *self.mounts.lock());
        // One may lie in an older one.
        for mount in mounts.iter().rev() {
            if let Err(error) = mount.unmounter.unmount(true) {
                tracing::error!("{error}");
            }
        }
        let deadline = Instant::now() + END_TIMEOUT;
        for mount in &mounts {
            while !mount.serving.is_finished() && Instant::now() < deadline {
                std::thread::sleep(PAUSE_AT_END);
            }
            if !mount.serving.is_finished() {
                let dir = mount.unmounter.mountpoint().display();
                tracing::warn!("{dir} is still in use: what is open there fails from now on");
            }
        }
    }
}

fn serve(mount: Mount, pool: Arc<Pool>, dir: &Path) -> Result<OwnMount> {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let (pid, dir) = (std::process::id(), dir.to_owned());
    let record = LocalMount { dir, pid, by_engine: true, serial };
    if let Err(error) = records::save(&records::mount_key(&record.dir), &record) {
        tracing::warn!("'azekura umount' will not know who serves the mount: {error:#}");
    }
    tracing::info!(dir = %record.dir.display(), "mounted, and served by the engine's own process");
    let (unmounter, mine) = (mount.unmounter(), record.clone());
    let forget = |record: &LocalMount| {
        if let Err(error) = records::remove_mount(record) {
            tracing::warn!("{error:#}");
        }
    };
    let serving = std::thread::Builder::new().name("own mount".to_owned()).spawn(move || {
        mount.wait();
        // Whoever does not answer is not waited for.
        pool.leave();
        drop((mount, pool));
        forget(&mine);
        tracing::info!(dir = %mine.dir.display(), "unmounted");
    });
    let serving = serving.context("cannot start a thread for the mount");
    Ok(OwnMount { unmounter, serving: serving.inspect_err(|_| forget(&record))? })
}

/// Refuses what would have the engine look for its own files in its own mount.
fn check_apart(dir: &Path, engine_places: &[PathBuf]) -> Result<()> {
    for place in engine_places {
        let place = place.canonicalize().unwrap_or_else(|_| place.clone());
        if place.starts_with(dir) || dir.starts_with(&place) {
            bail!(
                "{} cannot be the mount point of the engine whose files are in {}: choose a directory \
                 apart from that",
                dir.display(),
                place.display()
            );
        }
    }
    Ok(())
}

fn mount_once(pool: &Arc<Pool>, dir: &Path, wish: Wish<'_>) -> Result<Mount> {
    if let Wish::Of(args) = wish {
        return mount::begin_as_said(args, pool, dir);
    }
    if pool.map().engines.len() == 1 {
        connect::make_default_container(pool)?;
    }
    mount::begin(pool, DEFAULT_CONTAINER, connect::behind_kernel(), mount::usual_mount(pool, dir))
}

fn is_unreached(error: &anyhow::Error) -> bool {
    let client = match error.downcast_ref() {
        Some(MountError::Client(error)) => Some(error),
        _ => error.downcast_ref::<ClientError>(),
    };
    client.is_some_and(ClientError::is_unreached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_not_mounted_over_its_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (engine, apart) = (base.join("pool"), base.join("mnt"));
        std::fs::create_dir_all(engine.join("in")).unwrap();
        check_apart(&apart, std::slice::from_ref(&engine)).unwrap();
        for mount in [&base, &engine, &engine.join("in")] {
            let error = check_apart(mount, std::slice::from_ref(&engine)).unwrap_err();
            assert!(error.to_string().contains("apart"), "{error}");
        }
        // A target on another disk.
        std::os::unix::fs::symlink(&apart, engine.join("0")).unwrap();
        std::fs::create_dir(&apart).unwrap();
        assert!(check_apart(&apart, &[engine.clone(), engine.join("0")]).is_err());
    }
}
