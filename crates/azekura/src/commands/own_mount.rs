//! The mounts that the process of an engine serves itself. Owns when they begin and end, and that the engine
//! outlives them; how a container is mounted stands in `mount`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura_client::{ClientError, Pool};
use azekura_fuse::{Mount, Unmounter};
use azekura_posix::MountError;
use parking_lot::Mutex;

use super::mount::{self, MountArgs};
use super::own_engine::OwnEngine;
use crate::connect;
use crate::host::records::{self, LocalMount};
use crate::names::DEFAULT_CONTAINER;

/// How long other engines of the pool, which may just be starting too, are waited for.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two looks whether what was to end has ended.
const PAUSE_AT_END: Duration = Duration::from_millis(5);
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

/// The mounts that this process serves beside its engine.
#[derive(Debug)]
pub(crate) struct OwnMounts {
    engine: Arc<OwnEngine>,
    /// The engine's directory, and those of its targets.
    engine_places: Vec<PathBuf>,
    mounts: Mutex<Vec<OwnMount>>,
    /// Where mounts are under way.
    beginning: Mutex<Vec<PathBuf>>,
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
    pub(crate) fn beside(engine: Arc<OwnEngine>, engine_places: Vec<PathBuf>) -> Self {
        let (mounts, beginning) = (Mutex::default(), Mutex::default());
        Self { engine, engine_places, mounts, beginning }
    }

    /// Mounts at `dir`; ready when this returns.
    ///
    /// # Errors
    /// If the engine belongs to no pool, the directory is none to mount at, or the other engines of the
    /// pool do not answer.
    pub(crate) fn begin(&self, dir: &Path, wish: Wish<'_>) -> Result<()> {
        let dir = mount::prepare_dir(dir)?;
        check_apart(&dir, &self.engine_places)?;
        self.note_beginning(&dir)?;
        let begun = self.begin_at(&dir, wish);
        self.beginning.lock().retain(|other| *other != dir);
        begun
    }

    fn note_beginning(&self, dir: &Path) -> Result<()> {
        let mut beginning = self.beginning.lock();
        if beginning.iter().any(|other| other == dir) {
            bail!("{} is being mounted already, which waits for other engines", dir.display());
        }
        beginning.push(dir.to_owned());
        Ok(())
    }

    fn begin_at(&self, dir: &Path, wish: Wish<'_>) -> Result<()> {
        let cannot = || format!("cannot mount at {}", dir.display());
        let (_, pool) = self.engine.connect().with_context(cannot)?;
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
                        && !self.engine.is_ending() =>
                {
                    tracing::info!("waiting for the other engines: {error:#}");
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    /// The engine ends: takes the mounts away that are still there, and waits a little for those who use them.
    /// Whoever has something open after that gets errors.
    pub(crate) fn end(&self) {
        let deadline = Instant::now() + END_TIMEOUT;
        // One that has just come about would be left behind dead.
        while !self.beginning.lock().is_empty() && Instant::now() < deadline {
            std::thread::sleep(PAUSE_AT_END);
        }
        self.take_away();
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
