//! `azekura up`: a pool of one engine on this machine, made the first time and started again after
//! that. Returns when the pool answers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use azekura_client::{PoolFile, PoolFileError};
use azekura_engine::Engine;
use azekura_proto::limits::TARGETS_MAX;
use azekura_proto::pool_map::Address;
use azekura_proto::{EngineId, PoolId};
use azekura_wire::SecretError;
use clap::Args;

use super::serve::{self, TARGETS_DIR};
use super::{down, mount};
use crate::host::daemon::{self, NotReady};
use crate::host::mounts::MountEntry;
use crate::host::records::{self, LocalPool, PoolLock};
use crate::host::{engines, mounts, places, process, unit};
use crate::names::check_name;
use crate::outcome::usage;
use crate::report;
use crate::{asking, connect};

/// A large pool may have much to recover.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// An engine of a new pool has nothing to drain.
const UNDO_TIMEOUT: Duration = Duration::from_secs(20);

/// `azekura up`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura up                                    pool 'default' in ~/.local/share/azekura\n  \
    azekura up --memory --name fast --targets 8   in memory: gone after a reboot\n  \
    azekura up --dir /data/pool --name big        in a directory of your choice\n  \
    azekura up --mount ~/mnt                      mounted too, by the engine itself\n\n\
    The same command starts the pool again after 'azekura down', a crash or a reboot.")]
pub(crate) struct UpArgs {
    /// Keep the pool in memory-backed storage (/dev/shm): fast, and gone after a reboot
    #[arg(long, conflicts_with = "dir")]
    memory: bool,
    /// Directory of the pool [default: ~/.local/share/azekura/NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Name of the pool
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = check_name)]
    name: String,
    /// Targets of a new pool [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(TARGETS_MAX)))]
    targets: Option<u16>,
    /// Also write a systemd unit of the user that runs the pool, and say how to enable it
    #[arg(long, conflicts_with = "memory")]
    unit: bool,
    /// Mount the default container here, served by the engine's own process
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Also listen on TCP [default address: 127.0.0.1:0, a free port]
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
    listen: Option<Address>,
}

/// Where the pool lies, from the command line and from where it lay before.
fn place_of(args: &UpArgs, before: Option<&LocalPool>) -> Result<(PathBuf, bool)> {
    let asked = match (&args.dir, args.memory) {
        (Some(dir), _) => Some((places::absolute(dir)?, false)),
        (None, true) => Some((places::memory_dir()?.join(&args.name), true)),
        (None, false) => None,
    };
    match (asked, before) {
        (Some((dir, _)), Some(before)) if dir != before.dir && before.dir.exists() => bail!(
            "pool '{}' lies in {} already: choose another --name, or remove it with \
             'azekura down {} --destroy'",
            args.name,
            before.dir.display(),
            args.name
        ),
        (Some(place), _) => Ok(place),
        (None, Some(before)) => Ok((before.dir.clone(), before.in_memory)),
        (None, None) => Ok((places::data_dir()?.join(&args.name), false)),
    }
}

/// Whether the pool is to be made; checks that making it would not hide one that was there.
fn is_new(args: &UpArgs, dir: &Path, before: Option<&LocalPool>) -> Result<bool> {
    if let Some((engine, map)) = Engine::read_place(dir)? {
        serve::check_pool_name(dir, &map.name, &args.name)?;
        if map.engines.len() > 1 {
            bail!(
                "{} is an engine of the pool '{}' over several engines: start it with \
                 'azekura serve'",
                dir.display(),
                map.name
            );
        }
        let targets = map.targets_of(engine).count() as u16;
        if let Some(wanted) = args.targets.filter(|wanted| *wanted != targets) {
            bail!(
                "pool '{}' in {} has {targets} targets, not {wanted}: leave out --targets to \
                 start it, or choose another --name for a new pool",
                args.name,
                dir.display()
            );
        }
        return Ok(false);
    }
    if Engine::is_half_formatted(dir) {
        return Ok(true);
    }
    if let Some(before) = before.filter(|before| before.dir == dir && !before.in_memory) {
        bail!(
            "pool '{}' was in {}, but is not there now: is a disk not mounted? If it is lost, \
             run 'azekura pool forget {}' and then this command again",
            args.name,
            before.dir.display(),
            args.name
        );
    }
    if dir.join(TARGETS_DIR).exists() {
        bail!(
            "{} has targets but no record of a pool; remove it if nothing in it is needed, or \
             choose another directory",
            dir.display()
        );
    }
    if let Some(name) = foreign_name(dir)? {
        bail!(
            "{} is not empty (there is '{}' in it) and is no pool's: choose an empty directory, or one \
             that is not there yet",
            dir.display(),
            name.display()
        );
    }
    Ok(true)
}

/// Something in the directory that no engine has put there.
fn foreign_name(dir: &Path) -> Result<Option<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot use {}", dir.display())),
    };
    // A disk that is mounted there may bring one along.
    let is_own = |name: &OsString| {
        serve::OWN_FILES.into_iter().chain([TARGETS_DIR, "lost+found"]).any(|own| own == name)
    };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    Ok(names.find(|name| !is_own(name)).map(PathBuf::from))
}

/// The pool's engine as it answers now, if it does.
fn answering(name: &str, dir: &Path) -> Result<Option<u32>> {
    let path = PoolFile::path_of(name);
    if !path.exists() {
        return Ok(None);
    }
    let file = match PoolFile::load(&path) {
        // The secret lies with the pool: without one there is no other.
        Err(PoolFileError::Secret(SecretError::Io { .. })) => return Ok(None),
        other => other?,
    };
    if file.map.engines.len() != 1 {
        bail!(
            "'{name}' is a pool over several engines: start those with 'azekura serve', or \
             choose another --name"
        );
    }
    let Ok((_, report)) = asking::ask_engine(&file.map, EngineId(0), &file.secret()?) else {
        return Ok(None);
    };
    let is_here = report.targets.iter().all(|target| Path::new(&target.path).starts_with(dir));
    if !is_here {
        bail!("a pool '{name}' runs already, and not in {}: choose another --name", dir.display());
    }
    Ok(Some(report.pid))
}

/// Runs the command.
///
/// # Errors
/// If the pool cannot be made or started.
pub(crate) fn run(args: &UpArgs) -> Result<()> {
    let name = &args.name;
    let _lock = PoolLock::take(name)?;
    let before: Option<LocalPool> = records::load(name)?;
    let (dir, in_memory) = place_of(args, before.as_ref())?;
    let new = is_new(args, &dir, before.as_ref())?;
    if let Some(pid) = answering(name, &dir)? {
        report::say(format_args!("pool '{name}' runs already (process {pid})"));
        if let Some(dir) = &args.mount {
            have_mounted(name, pid, dir)?;
        }
        return if args.unit { write_unit(args, before.as_ref()) } else { Ok(()) };
    }
    let mount = args.mount.as_deref().map(mount::prepare_dir).transpose()?;
    let had_dir = dir.exists();
    let place = (dir.as_path(), in_memory);
    let pid = match bring_up(args, place, new, before.as_ref(), mount.as_deref()) {
        Ok(pid) => pid,
        Err((pid, error)) if new => {
            undo(name, &dir, had_dir, pid, before.is_none());
            return Err(error);
        }
        Err((_, error)) => return Err(error),
    };
    if new && before.is_some_and(|before| before.in_memory && in_memory) {
        report::say(format_args!("the pool '{name}' before was in memory, and is gone"));
    }
    tell(name, place, new, pid, mount.as_deref())?;
    tell_of_dead_mounts(name)?;
    if args.unit { write_unit(args, records::load(name)?.as_ref()) } else { Ok(()) }
}

/// Sees to it that the engine that runs serves the mount that is asked for.
fn have_mounted(name: &str, pid: u32, dir: &Path) -> Result<()> {
    let dir = mounts::canonical_mount_point(dir)?;
    let shown = dir.display();
    let is_default = |mount: &MountEntry| mount.dir == dir && mount.container.is_none();
    let is_it = mounts::of_named(name)?.iter().any(is_default)
        && mounts::engine_of(&dir).is_some_and(|found| found.as_raw_pid() == pid.cast_signed());
    if !is_it {
        let map = PoolFile::load(&PoolFile::path_of(name))?.map;
        let words = ["mount".into(), "--".into(), name.into(), dir.clone().into()];
        if engines::ask_to_mount(map.pool, words.to_vec())?.is_none() {
            bail!(
                "process {pid} serves pool '{name}' but cannot be asked to mount: run 'azekura down {name}' \
                 and then this command again"
            );
        }
    }
    report::say(format_args!("it is mounted at {shown}"));
    Ok(())
}

/// Starts a pool of this user that is down. False if it is none that `azekura up` has made here, or not down.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start_again(name: &str, pool: PoolId) -> Result<bool> {
    // What is no name is a pool file or a URL, and no pool that was started by it.
    let Ok(name) = check_name(name) else { return Ok(false) };
    let Some(record) = records::load::<LocalPool>(&name)? else { return Ok(false) };
    let place = Engine::read_place(&record.dir)?;
    if place.is_none_or(|(_, map)| map.pool != pool) || serve::running_engine(record.pid).is_some()
    {
        return Ok(false);
    }
    let (memory, unit) = (false, false);
    run(&UpArgs { memory, dir: None, name, targets: None, unit, mount: None, listen: None })?;
    Ok(true)
}

/// What an engine that was killed has left of its mount.
fn tell_of_dead_mounts(name: &str) -> Result<()> {
    for mount in mounts::of_named(name)?.iter().filter(|mount| mounts::is_dead(&mount.dir)) {
        let dir = mount.dir.display();
        report::note(format_args!(
            "azekura: the process of the mount at {dir} has died: 'azekura umount {dir}' takes it away"
        ));
    }
    Ok(())
}

/// Writes a unit that runs the pool's engine as `azekura up` does, but in the foreground.
fn write_unit(args: &UpArgs, record: Option<&LocalPool>) -> Result<()> {
    let name = &args.name;
    let Some(record) = record.filter(|record| !record.in_memory) else {
        bail!("pool '{name}' lies in memory: after a reboot there is nothing for a unit to start");
    };
    let dir = &record.dir;
    // The runtime directory of a login is no place for what runs without one.
    let socket = Some(dir.join(serve::SOCKET)).filter(|path| path.exists());
    let socket = socket.map_or_else(|| places::socket_path(name), Ok)?;
    let listen = std::iter::once(Address::Unix(socket).to_string()).chain(record.listen.clone());
    let mut arguments: Vec<OsString> = ["serve", "--write-pool-file"].map(OsString::from).into();
    let mut add = |flag: &str, value: OsString| arguments.extend([OsString::from(flag), value]);
    add("--name", name.into());
    add("--dir", dir.into());
    add("--secret-file", dir.join("pool.secret").into());
    listen.for_each(|address| add("--listen", address.into()));
    if let Some(mount) = &args.mount {
        add("--mount", mounts::canonical_mount_point(mount)?.into());
    }
    let (unit, path) = unit::write(name, &arguments)?;
    report::say(format_args!(
        "unit {} written; to have systemd run the pool from now on:\n  \
         azekura down {name} && systemctl --user daemon-reload && systemctl --user enable --now {unit}\n  \
         loginctl enable-linger        so that it also runs while you are not logged in",
        path.display()
    ));
    Ok(())
}

/// Starts the engine and sees to it that the pool can be used. An error comes with the process, if
/// there is one by then.
fn bring_up(
    args: &UpArgs,
    (dir, in_memory): (&Path, bool),
    new: bool,
    before: Option<&LocalPool>,
    mount: Option<&Path>,
) -> Result<u32, (Option<u32>, anyhow::Error)> {
    let name = &args.name;
    let listen = tcp_listen(args, before).map_err(|error| (None, error))?;
    let pid = start(args, (dir, mount), new, &listen, before).map_err(|error| {
        let pid = error.downcast_ref::<NotReady>().map(|still| still.pid);
        (pid, error)
    })?;
    let listen = listen.iter().map(ToString::to_string).collect();
    let record = LocalPool { dir: dir.to_owned(), in_memory, listen, pid };
    let usable = records::save(name, &record).and_then(|()| ensure_default_container(name));
    usable.map(|()| pid).map_err(|error| (Some(pid), error))
}

/// Takes away what a failed start of a new pool has left: nothing of it is of use to anybody, and it
/// would stand in the way of the next try.
fn undo(name: &str, dir: &Path, had_dir: bool, pid: Option<u32>, unknown: bool) {
    if let Some(pid) = pid.and_then(serve::running_engine) {
        let what = format!("stopping pool '{name}' again");
        let _ = process::ask_to_end(pid);
        if !process::wait_until_gone(pid, UNDO_TIMEOUT, &what) {
            // Its directory stays, since it may still write there.
            return;
        }
    }
    // The failure that led here is what people want to hear of; what cannot be removed is seen by the
    // next try.
    let _ = down::empty_pool_dir(dir);
    if !had_dir {
        let _ = std::fs::remove_dir(dir);
    }
    if unknown {
        let _ = down::forget(name);
    }
}

/// The TCP address to listen at; one that a system-chosen port was taken for before stays.
fn tcp_listen(args: &UpArgs, before: Option<&LocalPool>) -> Result<Vec<Address>> {
    match &args.listen {
        Some(Address::Unix(_)) => {
            Err(usage("--listen takes host:port; the UNIX socket is there anyway"))
        }
        Some(address) => Ok(vec![address.clone()]),
        None => Ok(before
            .map(|before| before.listen.iter().filter_map(|text| text.parse().ok()).collect())
            .unwrap_or_default()),
    }
}

/// Where the engine listens on this machine. A socket in the runtime directory goes when that does, as at
/// the end of a login, and the one beside the targets stays; but not every file system has sockets.
fn sockets(name: &str, dir: &Path) -> Result<Vec<Address>> {
    let stays = Some(dir.join(serve::SOCKET)).filter(|path| places::takes_socket(path));
    let goes = match (places::socket_path(name), &stays) {
        (Ok(path), _) => Some(path),
        (Err(_), Some(_)) => None,
        (Err(error), None) => return Err(error),
    };
    Ok(goes.into_iter().chain(stays).map(Address::Unix).collect())
}

fn start(
    args: &UpArgs,
    (dir, mount): (&Path, Option<&Path>),
    new: bool,
    listen: &[Address],
    before: Option<&LocalPool>,
) -> Result<u32> {
    let name = &args.name;
    if let Some(pid) = before.and_then(|before| serve::running_engine(before.pid)) {
        if let Ok(file) = PoolFile::load(&PoolFile::path_of(name))
            && let Some(gone) = asking::without_sockets(&file.map, EngineId(0))
        {
            bail!(
                "process {} serves pool '{name}' but cannot be reached: {gone}; run 'azekura down {name}' \
                 and then this command again",
                pid.as_raw_pid()
            );
        }
        bail!(
            "process {} serves pool '{name}' but does not answer: it may still be recovering; \
             look at {}, or end it with 'kill {}'",
            pid.as_raw_pid(),
            places::log_file(name)?.display(),
            pid.as_raw_pid()
        );
    }
    places::make_private_dir(dir)?;
    let secret_file = dir.join("pool.secret");
    if !secret_file.exists() {
        serve::make_secret(&secret_file)?;
    }
    let sockets = sockets(name, dir)?;
    let mut arguments: Vec<OsString> =
        ["serve", "--in-background", "--write-pool-file"].into_iter().map(OsString::from).collect();
    let mut add = |flag: &str, value: OsString| arguments.extend([OsString::from(flag), value]);
    add("--name", name.into());
    add("--dir", dir.into());
    add("--secret-file", secret_file.into());
    for address in sockets.iter().chain(listen) {
        add("--listen", address.to_string().into());
    }
    if let Some(mount) = mount {
        add("--mount", mount.into());
    }
    if let Some(targets) = args.targets {
        add("--targets", targets.to_string().into());
    }
    if new {
        arguments.push("--make-pool".into());
    }
    let what = format!("starting pool '{name}'");
    daemon::launch(&arguments, &places::log_file(name)?, START_TIMEOUT, &what)
}

/// Makes the default container of a pool that has none yet.
///
/// # Errors
/// If the pool does not answer.
pub(crate) fn ensure_default_container(pool: &str) -> Result<()> {
    let client = connect::pool(pool)?;
    connect::make_default_container(&client)
}

fn tell(
    name: &str,
    (dir, in_memory): (&Path, bool),
    new: bool,
    pid: u32,
    mount: Option<&Path>,
) -> Result<()> {
    let targets = serve::existing_targets(dir)?.unwrap_or_default();
    let done = if new { "made and started" } else { "started" };
    report::say(format_args!(
        "pool '{name}' {done}: {targets} targets in {} (process {pid})",
        dir.display()
    ));
    if let Some(mount) = mount {
        report::say(format_args!("it is mounted at {}", mount.display()));
    } else if new {
        report::say(format_args!("use it:   azekura mount {name} DIR"));
    }
    if new {
        report::say(format_args!("stop it:  azekura down {name}"));
    }
    if in_memory {
        report::say(format_args!(
            "it lies in memory: a reboot loses it, 'azekura down {name} --destroy' frees it"
        ));
    }
    Ok(())
}
