//! The mounts that the process of an engine serves itself, so that what is asked there is a call into the
//! engine and no message. Owns when they begin and end, and that the engine outlives them; how a container is
//! mounted stands in `mount`. Engines of the pool in other processes are asked over sockets, as ever.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura_client::{ClientConfig, ClientError, Pool, PoolFile, SecretSource};
use azekura_engine::{Engine, Watch};
use azekura_fuse::{Mount, Unmounter};
use azekura_posix::MountError;
use azekura_proto::EngineId;
use azekura_proto::pool_map::PoolMap;
use azekura_rpc::transport::{Direct, Sockets};
use parking_lot::Mutex;

use super::mount::{self, MountArgs};
use crate::connect;
use crate::host::records::{self, LocalMount};
use crate::names::DEFAULT_CONTAINER;

/// How long other engines of the pool, which may just be starting too, are waited for.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// How long an engine that ends waits for a mount in which something is still open.
const END_TIMEOUT: Duration = Duration::from_secs(3);

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
    engine_dir: PathBuf,
    engine: Mutex<Reach>,
    mounts: Mutex<Vec<OwnMount>>,
}

/// How the engine is reached.
#[derive(Debug, Default)]
struct Reach {
    /// `None` while it is not there.
    watch: Option<Watch>,
    /// By calls, under this number, since somebody needed it.
    added: Option<EngineId>,
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
    pub(crate) fn beside(engine: &Engine, engine_dir: PathBuf, secret_file: PathBuf) -> Self {
        let reach = Reach { watch: Some(engine.watch()), ..Reach::default() };
        Self {
            network: Arc::new(Direct::beside(Arc::new(Sockets::default()))),
            secret_file,
            engine_dir,
            engine: Mutex::new(reach),
            mounts: Mutex::default(),
        }
    }

    /// Whether the engine is of the pool with this id.
    pub(crate) fn is_of(&self, pool: &str) -> bool {
        let watch = self.engine.lock().watch.clone();
        let place = watch.and_then(|watch| watch.place());
        place.is_some_and(|(_, map)| map.pool.to_string() == pool)
    }

    /// Mounts at `dir`; ready when this returns.
    ///
    /// # Errors
    /// If the engine belongs to no pool, the directory is none to mount at, or the other engines of the
    /// pool do not answer.
    pub(crate) fn begin(&self, dir: &Path, wish: Wish<'_>) -> Result<()> {
        let dir = mount::prepare_dir(dir)?;
        check_apart(&dir, &self.engine_dir)?;
        let map = self.reach(&dir)?;
        let file = PoolFile { map, secret: SecretSource::File(self.secret_file.clone()) };
        let mount = serve(&file, &self.network, &dir, wish)?;
        let mut mounts = self.mounts.lock();
        mounts.retain(|mount| !mount.serving.is_finished());
        mounts.push(mount);
        let is_late = self.engine.lock().is_ending;
        drop(mounts);
        if is_late {
            self.take_away();
            bail!("the engine ends");
        }
        Ok(())
    }

    /// Sees to it that the engine is reached by calls, and gives the pool's map.
    fn reach(&self, dir: &Path) -> Result<PoolMap> {
        let mut engine = self.engine.lock();
        if engine.is_ending {
            bail!("the engine ends");
        }
        let place = engine.watch.as_ref().and_then(Watch::place);
        let Some((id, map)) = place else {
            bail!(
                "the engine belongs to no pool yet, so there is nothing to mount at {}: start it without \
                 --mount, run 'azekura pool create', and start it again with --mount",
                dir.display()
            )
        };
        if engine.added.is_none()
            && let Some(door) = engine.watch.as_ref().and_then(Watch::door)
        {
            self.network.add(id, door);
            engine.added = Some(id);
        }
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
    }

    /// Takes the mounts away that are still there, and waits a little for those who use them. Whoever has
    /// something open after that gets errors.
    pub(crate) fn end(&self) {
        self.engine.lock().is_ending = true;
        self.take_away();
        self.pause();
    }

    fn take_away(&self) {
        let mounts = std::mem::take(&mut *self.mounts.lock());
        for mount in &mounts {
            // What was unmounted before is not there to be unmounted.
            if !mount.serving.is_finished()
                && let Err(error) = mount.unmounter.unmount(true)
            {
                tracing::error!("{error}");
            }
        }
        let deadline = Instant::now() + END_TIMEOUT;
        for mount in &mounts {
            while !mount.serving.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !mount.serving.is_finished() {
                let dir = mount.unmounter.mountpoint().display();
                tracing::warn!("{dir} is still in use: what is open there fails from now on");
            }
        }
    }
}

fn serve(file: &PoolFile, network: &Arc<Direct>, dir: &Path, wish: Wish<'_>) -> Result<OwnMount> {
    let network = Some(Arc::clone(network) as Arc<_>);
    let pool = Pool::connect(file, ClientConfig { network, ..ClientConfig::default() })?;
    let mount = mount_when_others_are_there(&pool, dir, wish)?;
    let key = records::mount_key(dir);
    let record = LocalMount { dir: dir.to_owned(), pid: std::process::id(), by_engine: true };
    if let Err(error) = records::save(&key, &record) {
        tracing::warn!("'azekura umount' will not know who serves the mount: {error:#}");
    }
    tracing::info!(dir = %dir.display(), "mounted, and served by the engine's own process");
    let (unmounter, dir) = (mount.unmounter(), dir.to_owned());
    let serving = std::thread::Builder::new().name("own mount".to_owned()).spawn(move || {
        mount.wait();
        // Whoever does not answer is not waited for.
        pool.leave();
        drop((mount, pool));
        if let Err(error) = records::remove::<LocalMount>(&key) {
            tracing::warn!("{error:#}");
        }
        tracing::info!(dir = %dir.display(), "unmounted");
    });
    Ok(OwnMount { unmounter, serving: serving.context("cannot start a thread for the mount")? })
}

/// Refuses what would have the engine look for its own files in its own mount.
fn check_apart(dir: &Path, engine_dir: &Path) -> Result<()> {
    let engine_dir = engine_dir.canonicalize().unwrap_or_else(|_| engine_dir.to_owned());
    if engine_dir.starts_with(dir) || dir.starts_with(&engine_dir) {
        bail!(
            "{} cannot be the mount point of the engine whose files are in {}: choose a directory apart \
             from that",
            dir.display(),
            engine_dir.display()
        );
    }
    Ok(())
}

fn mount_when_others_are_there(pool: &Arc<Pool>, dir: &Path, wish: Wish<'_>) -> Result<Mount> {
    let deadline = Instant::now() + OTHERS_TIMEOUT;
    loop {
        match mount_once(pool, dir, wish) {
            Err(error) if is_unreached(&error) && Instant::now() < deadline => {
                tracing::info!("waiting for the other engines: {error:#}");
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

fn mount_once(pool: &Arc<Pool>, dir: &Path, wish: Wish<'_>) -> Result<Mount> {
    if let Wish::Of(args) = wish {
        return mount::begin_as_said(args, pool, dir);
    }
    if pool.map().engines.len() == 1 {
        connect::make_default_container(pool)?;
    }
    mount::begin(pool, DEFAULT_CONTAINER, mount::usual_file_system(), mount::usual_mount(pool, dir))
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
        check_apart(&apart, &engine).unwrap();
        for mount in [&base, &engine, &engine.join("in")] {
            let error = check_apart(mount, &engine).unwrap_err();
            assert!(error.to_string().contains("apart"), "{error}");
        }
    }
}
