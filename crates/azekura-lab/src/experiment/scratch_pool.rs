//! A pool for the length of an experiment: one engine process over memory-backed storage. The engine
//! ends when its standard input does, and takes its directory with it, so that nothing is left behind
//! by a run that was killed either.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::{ScratchDir, last_line};
use azekura::names::ContainerName;
use azekura::{connect, report};
use azekura_client::{Pool, PoolFile, SecretSource};
use azekura_engine::{Engine, EngineConfig};
use azekura_proto::attr::Inheritance;
use azekura_proto::message::typed::ContainerCreate;
use azekura_proto::pool_map::{Address, EngineEntry, PoolMap};
use azekura_proto::{EngineId, ObjectClass, PoolId, TargetId};
use azekura_wire::Secret;
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The hidden command that the engine process runs.
pub(crate) const ENGINE_COMMAND: &str = "experiment-engine";
const POOL_FILE: &str = "pool.toml";
const SECRET_FILE: &str = "pool.secret";
const LOG_FILE: &str = "log";
/// An engine has this long to drain and to remove its files.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// The hidden command's arguments.
#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    dir: PathBuf,
    targets: u16,
    /// Where clients call it, in place of a UNIX socket in the directory
    #[arg(long)]
    listen: Option<Address>,
}

/// An engine of a new pool, in a process of its own.
pub(crate) struct EngineProcess {
    engine: Child,
    scratch: ScratchDir,
}

impl EngineProcess {
    /// Starts an engine with that many targets, by way of `spawn`, at an address or at a UNIX socket
    /// in its directory.
    ///
    /// # Errors
    /// If it does not start: what it said last.
    pub(crate) fn start(
        targets: u16,
        listen: Option<&Address>,
        spawn: impl FnOnce(&mut Command) -> Result<Child>,
    ) -> Result<Self> {
        let scratch = ScratchDir::make("pool")?;
        let log = scratch.path(LOG_FILE);
        let said = std::fs::File::create(&log).with_context(|| format!("cannot make {log}"))?;
        let mut command = Command::new(programs::own()?);
        command
            .arg(ENGINE_COMMAND)
            .args([scratch.dir(), targets.to_string()])
            .args(listen.map(|address| format!("--listen={address}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said);
        let engine = spawn(&mut command).context("cannot start an engine")?;
        let mut process = Self { engine, scratch };
        let words = process.engine.stdout.take().context("the engine has no standard output")?;
        let mut line = String::new();
        BufReader::new(words).read_line(&mut line).context("cannot hear the engine")?;
        if line.is_empty() {
            bail!("the engine does not start: {}", last_line(Path::new(&log)));
        }
        Ok(process)
    }

    /// What clients call the pool.
    pub(crate) fn pool_name(&self) -> String {
        self.scratch.path(POOL_FILE)
    }

    /// A directory for what goes with the pool: the engine removes it too, whatever happens.
    pub(crate) fn scratch(&self) -> Result<ScratchDir> {
        ScratchDir::make_in(Path::new(&self.scratch.dir()), "mount")
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        drop(self.engine.stdin.take());
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.engine.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Nothing can be done about one that is gone already.
        let _ = self.engine.kill();
        let _ = self.engine.wait();
    }
}

/// A pool of its own.
pub(crate) struct ScratchPool {
    // Says goodbye before the engine is gone.
    pool: Arc<Pool>,
    engine: EngineProcess,
    containers: Vec<String>,
}

impl ScratchPool {
    /// Starts an engine with that many targets.
    ///
    /// # Errors
    /// If it does not start: what it said last.
    pub(crate) fn start(targets: u16) -> Result<Self> {
        let engine = EngineProcess::start(targets, None, |command| Ok(command.spawn()?))?;
        let pool = connect::pool(&engine.pool_name())?;
        Ok(Self { pool, engine, containers: Vec::new() })
    }

    /// A directory for what goes with the pool: the engine removes it too, whatever happens.
    pub(crate) fn scratch(&self) -> Result<ScratchDir> {
        self.engine.scratch()
    }

    /// A container whose files have this class and chunk size; made if it is not there yet.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn container(
        &mut self,
        file_class: ObjectClass,
        chunk_bytes: u32,
    ) -> Result<ContainerName> {
        let name = format!("{file_class}-{chunk_bytes}");
        if !self.containers.contains(&name) {
            let inheritance = Inheritance { file_class, chunk_bytes, ..Inheritance::default() };
            let request = ContainerCreate { name: name.clone(), inheritance };
            self.pool.call(TargetId(0), request).context("cannot make a container")?;
            self.containers.push(name.clone());
        }
        format!("{}/{name}", self.engine.pool_name()).parse().map_err(anyhow::Error::msg)
    }
}

/// The engine process: serves a new pool in a directory until standard input ends, then removes the
/// directory.
///
/// # Errors
/// If the engine cannot be started.
pub(crate) fn run_engine(args: &EngineArgs) -> Result<()> {
    // Whoever holds the other end of standard input says when it is over, also after a signal to
    // all processes of a terminal.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("cannot take signals")?;
    }
    let served = start(args).map(|engine| {
        report::say("ready");
        // An error ends it as well.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        engine.stop();
    });
    // Nobody is left to be told.
    let _ = std::fs::remove_dir_all(&args.dir);
    served
}

fn start(args: &EngineArgs) -> Result<Engine> {
    let secret_file = args.dir.join(SECRET_FILE);
    let secret = Secret::generate().context("the system has no random bytes")?;
    secret.save_new(&secret_file)?;
    let config = EngineConfig {
        dir: args.dir.clone(),
        target_dirs: Vec::new(),
        target_count: args.targets,
        listen: vec![
            args.listen.clone().unwrap_or_else(|| Address::Unix(args.dir.join("engine.sock"))),
        ],
        secret,
        metrics_listen: None,
    };
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("the system has no random bytes")?;
    let engines = vec![EngineEntry { addresses: config.listen.clone() }];
    let map = PoolMap::deal(PoolId(id), "experiment".to_owned(), engines, &[args.targets]);
    Engine::format(&config, &map, EngineId(0))?;
    let engine = Engine::start(config)?;
    PoolFile { map, secret: SecretSource::File(secret_file) }.save(&args.dir.join(POOL_FILE))?;
    Ok(engine)
}
