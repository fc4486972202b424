//! `azekura mount`: a container as a directory of this machine. The process that serves the mount
//! goes to the background, and the command returns when the directory can be used.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use azekura_client::Pool;
use azekura_fuse::{CacheMode, Mount, MountConfig};
use azekura_posix::{CachePolicy, FileSystem, FsConfig, Trust};
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

/// What the mount may answer from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cache {
    /// Ask the engines for everything
    None,
    /// Believe attributes and names for a second, and data while a file has not changed
    Auto,
}

/// Which way the kernel's requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// Over io_uring where the kernel offers it, else over /dev/fuse
    Auto,
    /// Over io_uring (Linux 6.14, and switched on), or not at all
    Uring,
    /// Over /dev/fuse
    Device,
}

/// Who reads and writes the data of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Passthrough {
    /// The kernel by itself, where one file of this host has them: for root, with Linux 6.9
    Auto,
    /// Always the mount's process
    Off,
}

/// How names of distant pools are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FarNames {
    /// Each by itself
    Asked,
    /// In listings too, while the engine keeps names as they are: whoever else changes some waits up to a second
    Leased,
    /// In listings too: nobody waits, and what others replaced up to two seconds before may be opened as it was
    Listed,
}

/// A mount option, as `mount(8)` calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MountOption {
    /// Set-user programs, and programs with capabilities, in it count; root only
    Suid,
    /// They do not [the rule]
    Nosuid,
    /// Device nodes in it can be opened; root only
    Dev,
    /// They cannot [the rule]
    Nodev,
    /// Refuse all changes
    Ro,
    /// Do not [the rule]
    Rw,
}

impl MountOption {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// `azekura mount`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura mount default ./mnt\n  \
    azekura mount big/scratch /scratch --cache none --allow-other\n  \
    azekura mount tools /opt/tools -o suid,ro     set-user programs count (root only)\n  \
    azekura mount default ./mnt --with-engine     served by the engine's own process\n\n\
    'azekura umount DIR' takes it away; SIGTERM to its process does the same, but for one that an\n\
    engine serves, which ends with it.")]
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
    /// Mount options, with commas between them; the last one counts
    #[arg(short = 'o', long = "options", value_name = "OPTION", value_enum, value_delimiter = ',')]
    options: Vec<MountOption>,
    /// Threads that serve requests, for each processor with io_uring [default: chosen by the number of
    /// processors, more where the pool is far]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Which way the kernel's requests take
    #[arg(long, value_enum, default_value = "auto")]
    transport: Transport,
    /// Who reads and writes data that lie in one file of this host
    #[arg(long, value_enum, default_value = "auto")]
    passthrough: Passthrough,
    /// How names of distant pools are looked up
    #[arg(long, value_enum, default_value = "leased")]
    far_names: FarNames,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
    /// Have the process of the pool's engine on this host serve the mount itself, by calls and without
    /// messages; a pool of this user that is down is started
    #[arg(long, conflicts_with_all = ["foreground", "trace"])]
    with_engine: bool,
    /// Was started by a command that waits to hear that the mount is ready
    #[arg(long, hide = true)]
    in_background: bool,
}

impl MountArgs {
    /// Whether the process of the pool's engine is to serve the mount.
    pub(crate) fn is_with_engine(&self) -> bool {
        self.with_engine
    }

    /// The container.
    pub(crate) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether this process itself serves the mount.
    pub(crate) fn stays(&self) -> bool {
        self.foreground || self.in_background
    }

    /// Which of two opposite options was given last; `None` if neither was.
    fn chosen(&self, yes: MountOption, no: MountOption) -> Option<bool> {
        let last = self.options.iter().rfind(|option| [yes, no].contains(option))?;
        Some(*last == yes)
    }

    fn allows_suid(&self) -> bool {
        self.chosen(MountOption::Suid, MountOption::Nosuid).unwrap_or(false)
    }

    fn allows_devices(&self) -> bool {
        self.chosen(MountOption::Dev, MountOption::Nodev).unwrap_or(false)
    }

    fn is_read_only(&self) -> bool {
        self.chosen(MountOption::Ro, MountOption::Rw).unwrap_or(self.read_only)
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
    let dir = checked_dir(args)?;
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

/// The words for a process that serves the mount, and its directory, which can be mounted at.
///
/// # Errors
/// As [`prepare_dir`]; if only root may mount so.
pub(crate) fn words_for_server(args: &MountArgs) -> Result<(Vec<OsString>, PathBuf)> {
    let dir = checked_dir(args)?;
    Ok((background_arguments(args, &dir)?, dir))
}

fn checked_dir(args: &MountArgs) -> Result<PathBuf> {
    if (args.allows_suid() || args.allows_devices()) && !rustix::process::geteuid().is_root() {
        bail!("only root can mount with '-o suid' or '-o dev': leave them out, or mount as root");
    }
    prepare_dir(&args.dir)
}

/// Checks the mount point, and cleans up after a mount whose process has died.
///
/// # Errors
/// If there is no such directory, or something of Azekura is mounted there.
pub(crate) fn prepare_dir(dir: &Path) -> Result<PathBuf> {
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
    if let Some(names) = args.far_names.to_possible_value() {
        all.extend(["--far-names".into(), names.get_name().into()]);
    }
    if let Some(way) = args.passthrough.to_possible_value() {
        all.extend(["--passthrough".into(), way.get_name().into()]);
    }
    let transport = args.transport.to_possible_value().map(|value| value.get_name().to_owned());
    all.extend(["--transport".into(), transport.unwrap_or_default().into()]);
    if let Some(threads) = args.threads {
        all.extend(["--threads".into(), threads.to_string().into()]);
    }
    if args.allow_other {
        all.push("--allow-other".into());
    }
    if args.read_only {
        all.push("--read-only".into());
    }
    for option in &args.options {
        all.extend(["-o".into(), option.name().into()]);
    }
    all.extend(args.reading.writing(&args.write).options()?);
    let name = connect::named_from_elsewhere(&args.name)?;
    all.extend(["--".into(), name.to_string().into(), dir.into()]);
    Ok(all)
}

fn start(args: &MountArgs, dir: &Path) -> Result<(Mount, Arc<Pool>)> {
    let pool = connect::pool(&args.name.pool)?;
    Ok((begin_as_said(args, &pool, dir)?, pool))
}

/// Mounts what a command line says, of a pool that is connected already, at `dir`; ready when this returns.
///
/// # Errors
/// As [`begin`].
pub(crate) fn begin_as_said(args: &MountArgs, pool: &Arc<Pool>, dir: &Path) -> Result<Mount> {
    let (policy, cache) = match args.cache {
        Cache::None => (CachePolicy::None, CacheMode::None),
        Cache::Auto => (connect::behind_kernel().cache, CacheMode::Auto),
    };
    let fs = FsConfig { cache: policy, ..connect::behind_kernel() };
    let usual = usual_mount(pool, dir);
    let config = MountConfig {
        cache,
        fsname: mounts::source(&pool.map(), args.name.container()),
        allow_other: args.allow_other || usual.allow_other,
        read_only: args.is_read_only(),
        allow_suid: args.allows_suid(),
        allow_devices: args.allows_devices(),
        threads: args.threads.map(usize::from),
        transport: match args.transport {
            Transport::Auto => azekura_fuse::Transport::Auto,
            Transport::Uring => azekura_fuse::Transport::Uring,
            Transport::Device => azekura_fuse::Transport::Device,
        },
        passthrough: args.passthrough == Passthrough::Auto,
        ..usual
    };
    let mut fs = args.reading.writing(&args.write).apply_to_mount(fs)?;
    (fs.listed_from_us, fs.listed_trust) = match args.far_names {
        FarNames::Asked => (None, Trust::Leased),
        FarNames::Leased => (Some(FsConfig::LISTED_FOR_ALL_FROM_US), Trust::Leased),
        FarNames::Listed => (Some(FsConfig::LISTED_FOR_ALL_FROM_US), Trust::ForAWhile),
    };
    begin(pool, args.name.container(), fs, config)
}

/// How a pool's default container is mounted unless something else is asked for.
pub(crate) fn usual_mount(pool: &Pool, dir: &Path) -> MountConfig {
    MountConfig {
        mountpoint: dir.to_owned(),
        cache: CacheMode::Auto,
        fsname: mounts::source(&pool.map(), DEFAULT_CONTAINER),
        // Root's files are of no use to others if they cannot get in.
        allow_other: rustix::process::geteuid().is_root(),
        read_only: false,
        allow_suid: false,
        allow_devices: false,
        threads: None,
        transport: azekura_fuse::Transport::Auto,
        passthrough: true,
    }
}

/// Mounts a container of the pool; ready when this returns.
///
/// # Errors
/// If there is no such container, the engines cannot be reached, or the kernel refuses.
pub(crate) fn begin(
    pool: &Arc<Pool>,
    container: &str,
    fs: FsConfig,
    config: MountConfig,
) -> Result<Mount> {
    let fs = FileSystem::mount(Arc::clone(pool), container, fs)?;
    Ok(azekura_fuse::mount(fs, config)?)
}

/// Serves the mount until it is unmounted or a signal comes.
fn stay(args: &MountArgs, starting: Starting) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot wait for signals")?;
    let started =
        mounts::canonical_mount_point(&args.dir).and_then(|dir| Ok((start(args, &dir)?, dir)));
    let ((mount, pool), dir) = match started {
        Ok(started) => started,
        Err(error) => return Err(starting.failed(error)),
    };
    let pid = std::process::id();
    let record = LocalMount { dir: dir.clone(), pid, by_engine: false, serial: 0 };
    if let Err(error) = records::save(&records::mount_key(&dir), &record) {
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
    // The process ends now, and need not wait for engines that do not answer.
    pool.leave();
    handle.close();
    // The thread has nothing left to wait for.
    let _ = waiter.join();
    if let Err(error) = records::remove_mount(&record) {
        tracing::warn!("{error:#}");
    }
    tracing::info!(dir = %dir.display(), "unmounted");
    Ok(())
}
