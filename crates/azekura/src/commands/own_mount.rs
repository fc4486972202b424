//! The mount that the process of an engine serves itself, so that what is asked there is a call into the
//! engine and no message. Owns when it begins and ends, and that the engine outlives it; how a container is
//! mounted stands in `mount`. Engines of the pool in other processes are asked over sockets, as ever.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura_client::{ClientConfig, ClientError, Pool, PoolFile, SecretSource};
use azekura_engine::Engine;
use azekura_fuse::{Mount, Unmounter};
use azekura_posix::MountError;
use azekura_proto::EngineId;
use azekura_rpc::transport::{Direct, Sockets};

use super::mount;
use crate::connect;
use crate::host::records::{self, LocalMount};
use crate::names::DEFAULT_CONTAINER;

/// How long other engines of the pool, which may just be starting too, are waited for.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// How long an engine that ends waits for a mount in which something is still open.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// A mount that this process serves beside its engine.
#[derive(Debug)]
pub(crate) struct OwnMount {
    network: Arc<Direct>,
    engine: EngineId,
    unmounter: Unmounter,
    /// Ends when the mount is gone.
    serving: JoinHandle<()>,
}

impl OwnMount {
    /// Mounts the default container of the engine's pool at `dir`; ready when this returns.
    ///
    /// # Errors
    /// If the engine belongs to no pool, the directory is none to mount at, or the other engines of the
    /// pool do not answer.
    pub(crate) fn begin(
        engine: &Engine,
        (dir, engine_dir): (&Path, &Path),
        secret_file: PathBuf,
    ) -> Result<Self> {
        let (Some(id), Some(map)) = (engine.id(), engine.map()) else {
            bail!(
                "the engine belongs to no pool yet, so there is nothing to mount at {}: start it without \
                 --mount, run 'azekura pool create', and start it again with --mount",
                dir.display()
            )
        };
        let dir = mount::prepare_dir(dir)?;
        check_apart(&dir, engine_dir)?;
        let network = Arc::new(Direct::beside(Arc::new(Sockets::default())));
        network.add(id, engine.door());
        let file = PoolFile { map, secret: SecretSource::File(secret_file) };
        let begun = Self::serve(&file, &network, &dir);
        if begun.is_err() {
            network.remove(id);
        }
        let (unmounter, serving) = begun?;
        Ok(Self { network, engine: id, unmounter, serving })
    }

    fn serve(
        file: &PoolFile,
        network: &Arc<Direct>,
        dir: &Path,
    ) -> Result<(Unmounter, JoinHandle<()>)> {
        let network = Some(Arc::clone(network) as Arc<_>);
        let pool = Pool::connect(file, ClientConfig { network, ..ClientConfig::default() })?;
        let mount = mount_when_others_are_there(&pool, dir)?;
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
        Ok((unmounter, serving.context("cannot start a thread for the mount")?))
    }

    /// Has the mount do without the engine until [`OwnMount::go_on`]: what is asked meanwhile waits, as for
    /// an engine that was killed.
    pub(crate) fn pause(&self) {
        self.network.remove(self.engine);
    }

    /// The engine is there again.
    pub(crate) fn go_on(&self, engine: &Engine) {
        self.network.add(self.engine, engine.door());
    }

    /// Takes the mount away, if it is still there, and waits a little for those who use it. Whoever has
    /// something open after that gets errors.
    pub(crate) fn end(self) {
        if let Err(error) = self.unmounter.unmount(true) {
            tracing::error!("{error}");
        }
        let deadline = Instant::now() + END_TIMEOUT;
        while !self.serving.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.serving.is_finished() {
            let dir = self.unmounter.mountpoint().display();
            tracing::warn!("{dir} is still in use: what is open there fails from now on");
        }
        self.network.remove(self.engine);
    }
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

fn mount_when_others_are_there(pool: &Arc<Pool>, dir: &Path) -> Result<Mount> {
    let deadline = Instant::now() + OTHERS_TIMEOUT;
    loop {
        match mount_default(pool, dir) {
            Err(error) if is_unreached(&error) && Instant::now() < deadline => {
                tracing::info!("waiting for the other engines: {error:#}");
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

fn mount_default(pool: &Arc<Pool>, dir: &Path) -> Result<Mount> {
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
