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
/// What the directory of an engine among several is for.
const MEMBER: &str = "engine";
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
    /// Its number in a pool of several engines, whose file lies in the directory above
    #[arg(long)]
    number: Option<u16>,
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
        Self::start_in(ScratchDir::make("pool")?, targets, listen, None, spawn)
    }

    fn start_in(
        scratch: ScratchDir,
        targets: u16,
        listen: Option<&Address>,
        number: Option<u16>,
        spawn: impl FnOnce(&mut Command) -> Result<Child>,
    ) -> Result<Self> {
        let log = scratch.path(LOG_FILE);
        let said = std::fs::File::create(&log).with_context(|| format!("cannot make {log}"))?;
        let mut command = Command::new(programs::own()?);
        command
            .arg(ENGINE_COMMAND)
            .args([scratch.dir(), targets.to_string()])
            .args(listen.map(|address| format!("--listen={address}")))
            .args(number.map(|number| format!("--number={number}")))
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

    /// Its process id.
    fn pid(&self) -> u32 {
        self.engine.id()
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

/// Engines of one new pool, each in a process of its own.
pub(crate) struct EngineProcesses {
    // The engines go before the directory around theirs.
    engines: Vec<EngineProcess>,
    scratch: ScratchDir,
}

impl EngineProcesses {
    /// Starts an engine at each of the addresses, by way of `spawn`, which is told the engine's number.
    ///
    /// # Errors
    /// If one does not start: what it said last.
    pub(crate) fn start(
        addresses: &[Address],
        targets_per_engine: u16,
        spawn: impl Fn(usize, &mut Command) -> Result<Child>,
    ) -> Result<Self> {
        let scratch = ScratchDir::make("pool")?;
        let secret_file = PathBuf::from(scratch.path(SECRET_FILE));
        new_secret(&secret_file)?;
        let map = new_map(addresses.iter().map(|one| vec![one.clone()]), targets_per_engine)?;
        let secret = SecretSource::File(secret_file);
        PoolFile { map, secret }.save(scratch.path(POOL_FILE).as_ref())?;
        let mut processes = Self { engines: Vec::new(), scratch };
        for (number, address) in addresses.iter().enumerate() {
            let own = ScratchDir::make_in(processes.scratch.dir().as_ref(), MEMBER)?;
            let (targets, nth) = (targets_per_engine, Some(number as u16));
            processes.engines.push(EngineProcess::start_in(
                own,
                targets,
                Some(address),
                nth,
                |command| spawn(number, command),
            )?);
        }
        Ok(processes)
    }

    /// What clients call the pool.
    pub(crate) fn pool_name(&self) -> String {
        self.scratch.path(POOL_FILE)
    }

    /// A directory for what goes with the pool.
    pub(crate) fn dir(&self) -> &ScratchDir {
        &self.scratch
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

    /// The process id of its engine.
    pub(crate) fn engine_pid(&self) -> u32 {
        self.engine.pid()
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
    if let (Some(_), Some(around)) = (args.number, args.dir.parent()) {
        remove_behind_the_last(around);
    }
    served
}

/// Removes the directory of a pool of several engines when the last of them has removed its own: whoever
/// has made it may have been killed.
fn remove_behind_the_last(dir: &Path) {
    let is_member = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains(MEMBER))
    };
    if std::fs::read_dir(dir).is_ok_and(|mut entries| !entries.any(is_member)) {
        let _ = std::fs::remove_dir_all(dir);
    }
}

fn new_secret(file: &Path) -> Result<Secret> {
    let secret = Secret::generate().context("the system has no random bytes")?;
    secret.save_new(file)?;
    Ok(secret)
}

/// The map of a new pool of engines that listen there.
fn new_map(listen: impl Iterator<Item = Vec<Address>>, targets_per_engine: u16) -> Result<PoolMap> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("the system has no random bytes")?;
    let engines: Vec<_> = listen.map(|addresses| EngineEntry { addresses }).collect();
    let targets = vec![targets_per_engine; engines.len()];
    Ok(PoolMap::deal(PoolId(id), "experiment".to_owned(), engines, &targets))
}

fn start(args: &EngineArgs) -> Result<Engine> {
    let member = match args.number {
        Some(number) => {
            let around = args.dir.parent().context("the directory has none above")?;
            Some((PoolFile::load(&around.join(POOL_FILE))?, EngineId(number)))
        }
        None => None,
    };
    let secret_file = args.dir.join(SECRET_FILE);
    let secret = match &member {
        Some((pool, _)) => pool.secret()?,
        None => new_secret(&secret_file)?,
    };
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
    if let Some((pool, number)) = member {
        Engine::format(&config, &pool.map, number)?;
        return Ok(Engine::start(config)?);
    }
    let map = new_map(std::iter::once(config.listen.clone()), args.targets)?;
    Engine::format(&config, &map, EngineId(0))?;
    let engine = Engine::start(config)?;
    PoolFile { map, secret: SecretSource::File(secret_file) }.save(&args.dir.join(POOL_FILE))?;
    Ok(engine)
}
