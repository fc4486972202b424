//! `azekura serve`: one engine in the foreground. Also what `azekura up` starts in the background.
//! Owns the layout of an engine's directory as far as the command line decides it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura_client::{PoolFile, SecretSource};
use azekura_engine::{Engine, EngineConfig, EngineDir};
use azekura_proto::limits::TARGETS_MAX;
use azekura_proto::pool_map::{Address, EngineEntry, PoolMap};
use azekura_proto::{EngineId, PoolId};
use azekura_wire::Secret;
use clap::Args;
use rustix::fs::Mode;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::mount::MountArgs;
use super::own_engine::OwnEngine;
use super::own_mount::{OwnMounts, Wish};
use super::own_services::OwnServices;
use crate::host::daemon::Starting;
use crate::host::engines::{self, Hearing, Order};
use crate::host::interrupt::{Asked, EndSignals};
use crate::host::{places, process};
use crate::names::check_name;
use crate::report;
use crate::words;

/// Targets of a new engine unless something else is said.
pub(crate) const TARGETS_DEFAULT: u16 = 4;
/// Starts the engine anew, without leaving the process.
const RESTART: i32 = SIGUSR1;
/// Between two looks whether it must be.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// The engine's record of its pool; there from the moment that it belongs to one.
pub(crate) const POOL_RECORD: &str = "pool.json";
/// Files of an engine's directory, what makes it one first; its secret is there if `azekura up` made it.
pub(crate) const OWN_FILES: [&str; 6] = {
    let [pool, formatting, locks, opens] = EngineDir::FILES;
    [pool, "pool.secret", formatting, locks, opens, SOCKET]
};
/// The socket of an engine that `azekura up` starts, in its directory.
pub(crate) const SOCKET: &str = "engine.sock";
/// Where the engine keeps its targets.
pub(crate) const TARGETS_DIR: &str = "targets";

/// `azekura serve`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example, a pool over three engines:\n  \
    azekura serve --dir /data/a --listen 0.0.0.0:7070 --targets 2     (on each host)\n  \
    azekura pool create big --engine host1:7070 --engine host2:7070 --engine host3:7070\n\n\
    All hosts need the same secret file. It is made on the first use; copy it to the others.\n\
    SIGTERM lets requests under way finish, then ends the engine.")]
pub(crate) struct ServeArgs {
    /// Directory of the engine; its targets lie below
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Address to listen at: host:port or unix:/path; may be given several times
    #[arg(long, required = true, value_name = "ADDR")]
    listen: Vec<Address>,
    /// Targets of a new engine [default: 4]; an engine that has some keeps those
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(TARGETS_MAX)))]
    targets: Option<u16>,
    /// File with the secret [default: ~/.config/azekura/site.secret]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Serve metrics (Prometheus text over HTTP) at this address
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Refuse to start if the engine belongs to a pool of another name
    #[arg(long, value_name = "NAME", value_parser = check_name)]
    name: Option<String>,
    /// Make a pool of this engine alone if it belongs to none
    #[arg(long, hide = true, requires = "name")]
    make_pool: bool,
    /// Write the pool file to its usual place
    #[arg(long, hide = true)]
    write_pool_file: bool,
    /// Mount the pool's default container here, served by this process itself
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Was started by a command that waits to hear that the engine is ready
    #[arg(long, hide = true)]
    in_background: bool,
}

/// The site's secret for this user's pools over several engines; made on the first use.
pub(crate) fn site_secret_file(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => places::absolute(path)?,
        None => places::config_dir()?.join("site.secret"),
    };
    if given.is_none() && !path.exists() {
        make_secret(&path)?;
        report::note(format_args!(
            "azekura: made a new secret, {}; engines and clients on other hosts need a copy",
            path.display()
        ));
    }
    Ok(path)
}

/// Makes a secret file that must not be there.
pub(crate) fn make_secret(path: &Path) -> Result<()> {
    if let Some(dir) = path.parent() {
        places::make_private_dir(dir)?;
    }
    Ok(Secret::generate().context("the system has no random bytes")?.save_new(path)?)
}

/// How many targets an engine has on disk; `None` if it belongs to no pool yet.
pub(crate) fn existing_targets(dir: &Path) -> Result<Option<u16>> {
    let place = Engine::read_place(dir)?;
    Ok(place.map(|(engine, map)| map.targets_of(engine).count() as u16))
}

/// How many targets the engine has, or is to have.
fn target_count(dir: &Path, wanted: Option<u16>) -> Result<u16> {
    let Some(existing) = existing_targets(dir)? else {
        return Ok(wanted.unwrap_or(TARGETS_DEFAULT));
    };
    if let Some(wanted) = wanted.filter(|wanted| *wanted != existing) {
        bail!(
            "the engine in {} has {existing} targets, not {wanted}: leave out --targets, or choose \
             another directory",
            dir.display()
        );
    }
    Ok(existing)
}

fn config_of(args: &ServeArgs) -> Result<(EngineConfig, PathBuf)> {
    let dir = places::absolute(&args.dir)?;
    let secret_file = site_secret_file(args.secret_file.as_deref())?;
    let secret = Secret::load(&secret_file)?;
    let target_count = target_count(&dir, args.targets)?;
    let config = EngineConfig {
        dir,
        target_dirs: Vec::new(),
        target_count,
        listen: args.listen.clone(),
        secret,
        metrics_listen: args.metrics.clone(),
    };
    Ok((config, secret_file))
}

fn make_pool(name: &str, config: &EngineConfig) -> Result<()> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("the system has no random bytes")?;
    let engines = vec![EngineEntry { addresses: config.listen.clone() }];
    let map = PoolMap::deal(PoolId(id), name.to_owned(), engines, &[config.target_count]);
    Ok(Engine::format(config, &map, EngineId(0))?)
}

fn write_pool_file(map: &PoolMap, engine: &Engine, secret_file: &Path) -> Result<()> {
    let mut map = map.clone();
    if let [only] = map.engines.as_mut_slice() {
        // Where it listens this time, which is what counts for a pool of this engine alone.
        only.addresses = engine.addresses();
    }
    let path = PoolFile::path_of(&map.name);
    PoolFile { map, secret: SecretSource::File(secret_file.to_owned()) }.save(&path)?;
    Ok(())
}

/// Checks that the engine in `dir` belongs to the pool that is meant.
pub(crate) fn check_pool_name(dir: &Path, found: &str, wanted: &str) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    bail!(
        "{} belongs to the pool '{found}', not '{wanted}': use --name {found}, or another directory",
        dir.display()
    )
}

/// A running engine, and what this process serves beside it.
struct Running {
    engine: Engine,
    beside: Arc<Beside>,
    /// `None` if nobody can ask for more.
    hearing: Option<Hearing>,
}

/// What this process serves beside its engine.
struct Beside {
    own_engine: Arc<OwnEngine>,
    mounts: OwnMounts,
    services: OwnServices,
}

impl Beside {
    fn of(engine: &Engine, dir: &Path, secret_file: PathBuf) -> Self {
        // Targets may be links to other disks.
        let targets = std::fs::read_dir(dir.join(TARGETS_DIR)).into_iter().flatten().flatten();
        let places = targets.map(|target| target.path()).chain([dir.to_owned()]).collect();
        let own_engine = Arc::new(OwnEngine::of(engine, secret_file));
        let mounts = OwnMounts::beside(Arc::clone(&own_engine), places);
        let services = OwnServices::beside(Arc::clone(&own_engine));
        Self { own_engine, mounts, services }
    }

    fn carry_out(&self, order: &Order, line: Option<OwnedFd>) -> Result<()> {
        if let Some(line) = line {
            return self.services.begin(&order.words, line);
        }
        let args: MountArgs = words::read("mount", &order.words)?;
        self.mounts.begin(args.dir(), Wish::Of(&args))
    }

    /// Ends all of it, while the engine still answers.
    fn end(&self) {
        self.own_engine.begin_to_end();
        self.services.end();
        self.mounts.end();
        self.own_engine.pause();
    }
}

/// Starts the engine, serves its mount if it is to have one, and hears what else to serve.
fn start(args: &ServeArgs) -> Result<Running> {
    let (config, secret_file) = config_of(args)?;
    let dir = config.dir.clone();
    let engine = start_engine(args, config, &secret_file)?;
    let beside = Arc::new(Beside::of(&engine, &dir, secret_file));
    let begun = match &args.mount {
        Some(mount) => beside.mounts.begin(mount, Wish::Usual),
        None => Ok(()),
    };
    if let Err(error) = begun {
        beside.end();
        engine.stop();
        return Err(error);
    }
    let (asked, heard) = (Arc::clone(&beside), Arc::clone(&beside));
    let hearing = engines::hear(
        move |pool| asked.own_engine.is_of(pool),
        move |order, line| heard.carry_out(order, line),
    );
    let hearing = hearing.inspect_err(|error| {
        tracing::warn!("'--with-engine' of other commands will not find this engine: {error:#}");
    });
    Ok(Running { engine, beside, hearing: hearing.ok() })
}

fn start_engine(args: &ServeArgs, config: EngineConfig, secret_file: &Path) -> Result<Engine> {
    match (Engine::read_place(&config.dir)?, &args.name) {
        (Some((_, map)), Some(name)) => check_pool_name(&config.dir, &map.name, name)?,
        (None, Some(name)) if args.make_pool => make_pool(name, &config)?,
        _ => {}
    }
    let engine = Engine::start(config)?;
    if let Some(map) = engine.map().filter(|_| args.write_pool_file) {
        write_pool_file(&map, &engine, secret_file)?;
    }
    Ok(engine)
}

/// Runs an engine until a signal ends it.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    // What the pool's users may see is decided by the pool alone: nobody else reads its directories,
    // whatever a shell or a service manager has set.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let starting = Starting::begin(args.in_background)?;
    // From here on a signal waits until the engine can be stopped in good order.
    let mut signals =
        Signals::new([SIGTERM, SIGINT, RESTART]).context("cannot wait for signals")?;
    let Running { mut engine, beside, hearing } = match start(args) {
        Ok(started) => started,
        Err(error) => return Err(starting.failed(error)),
    };
    announce(&engine, args.in_background);
    starting.ready()?;
    loop {
        restart_when_needed(&engine);
        match signals.forever().next() {
            Some(RESTART) => {
                tracing::warn!("starting anew, without the commits that were taken back");
                engine = match restart(engine, &beside.own_engine) {
                    Ok(engine) => engine,
                    Err(error) => {
                        beside.end();
                        return Err(error);
                    }
                };
            }
            signal => {
                tracing::info!(signal, "draining");
                break;
            }
        }
    }
    let mut heard = EndSignals::default();
    heard.heard(Instant::now());
    std::thread::spawn(move || {
        for signal in signals.forever().filter(|signal| *signal != RESTART) {
            if heard.heard(Instant::now()) == Asked::Again {
                tracing::warn!(signal, "ending at once: requests under way are not answered");
                std::process::exit(128 + signal);
            }
        }
    });
    drop(hearing);
    beside.end();
    engine.stop();
    tracing::info!("stopped");
    Ok(())
}

/// Starts the engine anew; what is served beside it waits for it.
fn restart(engine: Engine, own_engine: &OwnEngine) -> Result<Engine> {
    own_engine.pause();
    let engine = engine.restart()?;
    own_engine.go_on(&engine);
    Ok(engine)
}

/// Watches an engine that another one may force to start anew, and says so by a signal.
fn restart_when_needed(engine: &Engine) {
    let watch = engine.watch();
    std::thread::spawn(move || {
        while let Some(is_rolled_back) = watch.is_rolled_back() {
            if is_rolled_back {
                // A signal is what the main thread waits for; it takes it from whoever sends it.
                let _ = signal_hook::low_level::raise(RESTART);
                return;
            }
            std::thread::sleep(WATCH_INTERVAL);
        }
    });
}

fn announce(engine: &Engine, in_background: bool) {
    let addresses: Vec<String> = engine.addresses().iter().map(ToString::to_string).collect();
    let addresses = addresses.join(", ");
    let map = engine.map();
    tracing::info!(
        pool = map.as_ref().map(|map| map.name.as_str()),
        addresses,
        "the engine is ready"
    );
    if in_background {
        return;
    }
    report::say(match map {
        Some(map) => format!("engine of pool '{}' at {addresses}", map.name),
        None => format!(
            "engine of no pool yet at {addresses}; next: azekura pool create NAME --engine ..."
        ),
    });
}

/// The process that a record names, if it still is an engine of this program.
pub(crate) fn running_engine(pid: u32) -> Option<rustix::process::Pid> {
    process::running(pid).filter(|_| process::is_ours(pid, "serve"))
}
