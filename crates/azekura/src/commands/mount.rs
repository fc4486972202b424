//! `azekura mount`: a container as a directory of this machine. The process that serves the mount
//! goes to the background, and the command returns when the directory can be used.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use azekura_fuse::{CacheMode, Mount, MountConfig};
use azekura_posix::{CachePolicy, FileSystem, FsConfig};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::connect;
use crate::host::daemon::{self, Starting};
use crate::host::records::{self, LocalMount};
use crate::host::{mounts, places};
use crate::names::{ContainerName, DEFAULT_CONTAINER};
use crate::reading::{ReadArgs, WriteArgs};
use crate::report;

/// Connecting to engines that are just starting may take a while.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long attributes of directories and names of them are believed.
const CACHE_LIFE: Duration = Duration::from_secs(1);

/// What the mount may answer from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cache {
    /// Ask the engines for everything
    None,
    /// Believe attributes and names for a second, and data while a file has not changed
    Auto,
}

/// `azekura mount`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura mount default ./mnt\n  \
    azekura mount big/scratch /scratch --cache none --allow-other\n\n\
    'azekura umount DIR' takes it away; SIGTERM to its process does the same.")]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line are independent of each other.
pub(crate) struct MountArgs {
    /// Container: POOL or POOL/CONTAINER
    #[arg(value_name = "POOL[/CONTAINER]")]
    name: ContainerName,
    /// The directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// What may be answered from memory
    #[arg(long, value_enum, default_value = "auto")]
    cache: Cache,
    /// Stay in the foreground
    #[arg(long, short)]
    foreground: bool,
    /// Let other users in; for root that is the rule
    #[arg(long)]
    allow_other: bool,
    /// Refuse all changes
    #[arg(long)]
    read_only: bool,
    /// Threads that serve requests [default: chosen by the number of processors, more where the pool is far]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
    /// Was started by a command that waits to hear that the mount is ready
    #[arg(long, hide = true)]
    in_background: bool,
}

impl MountArgs {
    /// Whether this process itself serves the mount.
    pub(crate) fn stays(&self) -> bool {
        self.foreground || self.in_background
    }
}

/// Runs the command.
///
/// # Errors
/// If the directory cannot be mounted at, or the pool does not answer.
pub(crate) fn run(args: &MountArgs) -> Result<()> {
    if args.in_background {
        return stay(args, Starting::begin(true)?);
    }
    let dir = prepare_dir(&args.dir)?;
    if args.foreground {
        report::note(format_args!(
            "azekura: {} at {}; Ctrl-C or 'azekura umount {}' ends it",
            args.name,
            dir.display(),
            dir.display()
        ));
        return stay(args, Starting::begin(false)?);
    }
    let log = places::mount_log(&dir)?;
    let what = format!("mounting {} at {}", args.name, dir.display());
    let pid = daemon::launch(&background_arguments(args, &dir)?, &log, READY_TIMEOUT, &what)?;
    report::say(format_args!("{} mounted at {} (process {pid})", args.name, dir.display()));
    Ok(())
}

/// Checks the mount point, and cleans up after a mount whose process has died.
fn prepare_dir(dir: &Path) -> Result<PathBuf> {
    let dir = mounts::canonical_mount_point(dir)
        .with_context(|| format!("cannot mount at {}: make the directory first", dir.display()))?;
    if let Some(mount) = mounts::at(&dir)? {
        if mounts::is_dead(&dir) {
            report::note(format_args!(
                "azekura: the process of the mount at {} had died: cleaning up",
                dir.display()
            ));
            mounts::detach(&dir, true)?;
        } else {
            bail!(
                "pool '{}' is mounted at {} already: unmount it first with 'azekura umount {}'",
                mount.pool,
                dir.display(),
                dir.display()
            );
        }
    }
    if !dir.is_dir() {
        bail!("{} is not a directory", dir.display());
    }
    Ok(dir)
}

fn background_arguments(args: &MountArgs, dir: &Path) -> Result<Vec<OsString>> {
    let mut all: Vec<OsString> = vec!["mount".into(), "--in-background".into()];
    let cache = args.cache.to_possible_value().map(|value| value.get_name().to_owned());
    all.extend(["--cache".into(), cache.unwrap_or_default().into()]);
    if let Some(threads) = args.threads {
        all.extend(["--threads".into(), threads.to_string().into()]);
    }
    if args.allow_other {
        all.push("--allow-other".into());
    }
    if args.read_only {
        all.push("--read-only".into());
    }
    all.extend(args.reading.writing(&args.write).options()?);
    let mut name = args.name.clone();
    if std::path::Path::new(&name.pool).exists() && name.pool.contains('/') {
        // A pool file; the process leaves this directory.
        name.pool = places::absolute(Path::new(&name.pool))?.to_string_lossy().into_owned();
    }
    all.extend(["--".into(), name.to_string().into(), dir.into()]);
    Ok(all)
}

fn start(args: &MountArgs, dir: &Path) -> Result<Mount> {
    let pool = connect::pool(&args.name.pool)?;
    let fsname = match args.name.container() {
        DEFAULT_CONTAINER => format!("{}{}", mounts::SOURCE_PREFIX, pool.map().name),
        other => format!("{}{}/{other}", mounts::SOURCE_PREFIX, pool.map().name),
    };
    let (policy, cache) = match args.cache {
        Cache::None => (CachePolicy::None, CacheMode::None),
        Cache::Auto => (CachePolicy::Auto { ttl: CACHE_LIFE }, CacheMode::Auto),
    };
    // The kernel checks permissions, and knows the caller's groups better.
    let config = FsConfig { cache: policy, check_permissions: false, ..FsConfig::default() };
    let fs = FileSystem::mount(
        pool,
        args.name.container(),
        args.reading.writing(&args.write).apply_to_mount(config)?,
    )?;
    let config = MountConfig {
        mountpoint: dir.to_owned(),
        cache,
        fsname,
        // Root's files are of no use to others if they cannot get in.
        allow_other: args.allow_other || rustix::process::geteuid().is_root(),
        read_only: args.read_only,
        threads: args.threads.map(usize::from),
    };
    Ok(azekura_fuse::mount(fs, config)?)
}

/// Serves the mount until it is unmounted or a signal comes.
fn stay(args: &MountArgs, starting: Starting) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot wait for signals")?;
    let started =
        mounts::canonical_mount_point(&args.dir).and_then(|dir| Ok((start(args, &dir)?, dir)));
    let (mount, dir) = match started {
        Ok(started) => started,
        Err(error) => return Err(starting.failed(error)),
    };
    let key = records::mount_key(&dir);
    let record = LocalMount { dir: dir.clone(), pid: std::process::id() };
    if let Err(error) = records::save(&key, &record) {
        tracing::warn!("'azekura umount' will not wait for this process: {error:#}");
    }
    tracing::info!(container = %args.name, dir = %dir.display(), "mounted");
    starting.ready()?;
    let handle = signals.handle();
    let unmounter = mount.unmounter();
    let waiter = std::thread::spawn(move || {
        for signal in &mut signals {
            tracing::info!(signal, "unmounting");
            // Whoever still uses it keeps what is open; nobody gets in any more.
            if let Err(error) = unmounter.unmount(true) {
                tracing::error!("{error}");
            }
        }
    });
    mount.wait();
    handle.close();
    // The thread has nothing left to wait for.
    let _ = waiter.join();
    if let Err(error) = records::remove::<LocalMount>(&key) {
        tracing::warn!("{error:#}");
    }
    tracing::info!(dir = %dir.display(), "unmounted");
    Ok(())
}
