//! Two hosts with a link between them: a pool and a server of sftp on the one, programs on the
//! other. Owns what runs where, and how one run of a program is measured; knows no experiment.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::ScratchDir;
use azekura_netlab::{Change, Lab, Topology};
use azekura_proto::pool_map::Address;

use super::door::{self, Door, Words};
use super::installed::PATH;
use super::material::{Material, Part};
use super::mounted::Mounted;
use super::outcome::Outcome;
use super::program::Program;
use super::run::{End, within_limit};
use super::sftp::SftpServer;
use crate::experiment::frame::Settings;
use crate::experiment::scratch_pool::EngineProcesses;
use crate::experiment::wan::congestion_control;

const CLIENT: &str = "client";
const SERVER: &str = "server";
const LINK: &str = "far";
/// Of all engines together.
pub(super) const TARGETS: u16 = 4;
const PORT: u16 = 7070;
/// What goes before and after a program has this long.
const SETUP_LIMIT: Duration = Duration::from_secs(90);
/// How often a mount is asked whether it has sent everything.
const PAUSE: Duration = Duration::from_millis(20);
const DIRECTORIES: [&str; 5] =
    ["HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"];
const EMPTY: &str = r#"rm -rf "$FAR/new" && mkdir "$FAR/new""#;

/// The hosts, and what runs on them.
pub(super) struct FarHosts {
    // What runs goes before the directory, and that before the engines, and all of it before the
    // hosts.
    sftp: Option<SftpServer>,
    material: Material,
    scratch: ScratchDir,
    engines: EngineProcesses,
    lab: Lab,
    azekura: String,
    has_container: bool,
    in_pool: Vec<Part>,
    runs: u32,
}

fn topology() -> String {
    format!(
        "hosts = ['{CLIENT}', '{SERVER}']\n[tcp]\ncongestion = '{}'\n[[links]]\nname = '{LINK}'\n\
         between = ['{CLIENT}', '{SERVER}']\nrate = '1gbit'\nqueue = 'auto'\n",
        congestion_control()
    )
}

/// One run: where its files are.
struct Run {
    door: Door,
    /// Where the program finds what lies far away.
    far: String,
    /// What programs keep for a user; new for each run, so that none knows what another has
    /// learned.
    state: PathBuf,
}

impl FarHosts {
    /// Makes hosts and link, and starts that many engines.
    ///
    /// # Errors
    /// If this process may not, or an engine does not start.
    pub(super) fn start(settings: &Settings, engines: u16) -> Result<Self> {
        let lab = Lab::up(&Topology::parse(&topology(), "experiment")?)?;
        let host = lab.address(SERVER)?;
        let addresses: Vec<_> =
            (0..engines).map(|number| Address::Tcp(format!("{host}:{}", PORT + number))).collect();
        // In the host's network only: engines outlive the host for a moment, and remove what they
        // have made.
        let engines = EngineProcesses::start(&addresses, TARGETS / engines, |_, command| {
            Ok(lab.within(SERVER, || command.spawn())??)
        })?;
        let scratch = ScratchDir::make_in(engines.dir().dir().as_ref(), "mount")?;
        let material = Material::in_dir(scratch.path("material").into(), settings)?;
        let azekura = programs::beside("azekura")?.to_string_lossy().into_owned();
        let (in_pool, has_container) = (Vec::new(), false);
        let (sftp, runs) = (None, 0);
        Ok(Self { sftp, material, scratch, engines, lab, azekura, has_container, in_pool, runs })
    }

    /// Bytes that have to pass the link for a program.
    ///
    /// # Errors
    /// If its material has not been made.
    pub(super) fn useful_bytes(&self, program: &Program) -> Result<u64> {
        self.material.bytes_of(program.useful)
    }

    /// Runs a program so many times, as [`FarHosts::measure`] does. No further run begins when one was ended, or when they
    /// have taken as long as one may.
    ///
    /// # Errors
    /// Those of [`FarHosts::measure`].
    pub(super) fn measure_rounds(
        &mut self,
        program: &Program,
        way: (Door, u64),
        limit: Duration,
        rounds: usize,
    ) -> Result<Vec<Outcome>> {
        let (begun, mut runs) = (Instant::now(), Vec::new());
        while runs.len() < rounds {
            let run = self.measure(program, way, limit)?;
            runs.push(run);
            // What takes long does not differ much.
            if run.end == End::CutShort || begun.elapsed() > limit {
                break;
            }
        }
        Ok(runs)
    }

    /// Runs a program once, through a door that is opened for it, over that round trip.
    ///
    /// # Errors
    /// What did not start, or what the program said.
    pub(super) fn measure(
        &mut self,
        program: &Program,
        (door, round_trip_ms): (Door, u64),
        limit: Duration,
    ) -> Result<Outcome> {
        let run = self.new_run(door)?;
        self.prepare(program, &run)?;
        let delay = format!("delay={}us", round_trip_ms * 500);
        self.lab.set(LINK, &Change::parse(&[delay])?)?;
        let outcome = self.open(&run).and_then(|mut mounted| {
            let outcome = self.run_program(program, &run, mounted.as_mut(), limit);
            // What is left of a program that was ended is not waited for.
            let is_in_order = matches!(&outcome, Ok(it) if it.end != End::CutShort);
            mounted.map_or(Ok(()), |mounted| self.close(&run, mounted, is_in_order))?;
            outcome
        });
        self.lab.set(LINK, &Change::parse(&["delay=0us"])?)?;
        // What cannot be removed now goes with the directory above.
        let _ = std::fs::remove_dir_all(&run.state);
        let _ = std::fs::remove_dir(&run.far);
        outcome
    }

    fn new_run(&mut self, door: Door) -> Result<Run> {
        self.runs += 1;
        let state = PathBuf::from(self.scratch.path(&format!("s{}", self.runs)));
        std::fs::create_dir(&state).with_context(|| format!("cannot make {}", state.display()))?;
        Ok(Run { door, far: self.scratch.path(&format!("far{}", self.runs)), state })
    }

    /// A command with the variables that programs are told what is where by.
    fn command(&self, words: &[String], run: &Run) -> Result<Command> {
        let (program, rest) = words.split_first().context("there is no command")?;
        let mut command = Command::new(program);
        command.args(rest).envs(DIRECTORIES.map(|name| (name, &run.state)));
        command.env("PATH", PATH).env("LC_ALL", "C").env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("NEAR", self.material.dir()).env("FAR", &run.far);
        Ok(command)
    }

    fn at_within(&self, host: &str, words: &[String], run: &Run, limit: Duration) -> Result<End> {
        let mut command = self.command(words, run)?;
        let spawn = |command: &mut Command| Ok(self.lab.spawn(host, command)?);
        let release = || self.tear_away(run);
        within_limit(&mut command, limit, &run.state.join("log"), spawn, release)
    }

    /// Runs a command on a host to its end.
    fn at(&self, host: &str, words: &[String], run: &Run) -> Result<()> {
        match self.at_within(host, words, run, SETUP_LIMIT)? {
            End::Done(_) => Ok(()),
            End::CutShort => {
                let name = words.first().map_or("a command", String::as_str);
                bail!("{name} did not end within {} s", SETUP_LIMIT.as_secs())
            }
        }
    }

    /// A shell command that finds the pool at `$FAR`, on the pool's own host.
    fn in_pool(&self, script: &str, run: &Run) -> Result<()> {
        let pool = self.engines.pool_name();
        let shell = ["sh", "-c", script];
        self.at(SERVER, &door::run(&self.azekura, Door::Preload, &pool, &run.far, &shell), run)
    }

    /// Puts everything where the program looks for it, without the link.
    fn prepare(&mut self, program: &Program, run: &Run) -> Result<()> {
        for part in program.far.iter().chain(program.near) {
            self.material.make(*part)?;
        }
        if !run.door.leads_to_pool() {
            if self.sftp.is_none() {
                let (lab, dir) = (&self.lab, self.material.dir());
                self.sftp = Some(SftpServer::start(lab, SERVER, &self.scratch, dir)?);
            }
            return if program.writes {
                make_empty(&self.material.dir().join("new"))
            } else {
                Ok(())
            };
        }
        if !self.has_container {
            let pool = self.engines.pool_name();
            let words = [&self.azekura, "container", "create", "default", "--pool", &pool];
            self.at(SERVER, &words.map(str::to_owned), run).context("cannot make a container")?;
            self.has_container = true;
        }
        for part in program.far {
            if !self.in_pool.contains(part) {
                let script = format!(r#"cp -a "$NEAR/{}" "$FAR/""#, part.path());
                self.in_pool(&script, run)?;
                self.in_pool.push(*part);
            }
        }
        if program.writes { self.in_pool(EMPTY, run) } else { Ok(()) }
    }

    /// Opens the door; that of `azekura run` has nothing that stays open, but what its first program has found out.
    fn open(&self, run: &Run) -> Result<Option<Mounted>> {
        let place = || self.sftp.as_ref().map(SftpServer::place).context("there is no server");
        if run.door != Door::Preload {
            std::fs::create_dir(&run.far).with_context(|| format!("cannot make {}", run.far))?;
        }
        let words: Words = match run.door {
            Door::Preload | Door::Run => {
                // As the mounts have been asked once before the program begins.
                let words = ["stat", run.far.as_str()];
                let pool = self.engines.pool_name();
                let words = door::run(&self.azekura, run.door, &pool, &run.far, &words);
                self.at(CLIENT, &words, run)?;
                return Ok(None);
            }
            Door::Mount => door::mount(&self.azekura, &[], &self.engines.pool_name(), &run.far),
            Door::MountListed => {
                let options = ["--far-names", "listed"];
                door::mount(&self.azekura, &options, &self.engines.pool_name(), &run.far)
            }
            Door::Sshfs => door::sshfs(place()?, &run.far),
            Door::Rclone => door::rclone(place()?, &run.state.join("cache"), &run.far),
        };
        let log = run.state.join("mount.log");
        let said = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let mut command = self.command(&words, run)?;
        // What ends this process by a key ends the point at hand first.
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).process_group(0);
        let process = self.lab.spawn(CLIENT, &mut command)?;
        let mounted = Mounted::by(process, &run.far, &log, SETUP_LIMIT)?;
        // sshfs mounts before it connects: a mount is there when it has answered.
        self.at(CLIENT, &["stat".to_owned(), run.far.clone()], run)?;
        Ok(Some(mounted))
    }

    /// Takes a mount away, if it is still there.
    fn close(&self, run: &Run, mut mounted: Mounted, is_in_order: bool) -> Result<()> {
        if mounted.has_ended(Instant::now())? {
            return Ok(());
        }
        let away = door::take_away(run.door, &self.azekura, &run.far);
        let is_gone = is_in_order && self.at(CLIENT, &away, run).is_ok();
        if !is_gone || !mounted.has_ended(Instant::now() + SETUP_LIMIT)? {
            self.tear_away(run);
        }
        Ok(())
    }

    /// Takes a mount away in any case; its process is killed later, whatever it still has to do.
    fn tear_away(&self, run: &Run) {
        // It may be away already.
        let _ = self
            .command(&door::tear_away(&run.far), run)
            .map(|mut command| self.lab.exec(CLIENT, &mut command));
    }

    /// Runs the program, until all that it has written has arrived.
    fn run_program(
        &self,
        program: &Program,
        run: &Run,
        mounted: Option<&mut Mounted>,
        limit: Duration,
    ) -> Result<Outcome> {
        let shell = ["sh", "-c", program.script];
        let words = match run.door {
            Door::Preload | Door::Run => {
                let pool = self.engines.pool_name();
                door::run(&self.azekura, run.door, &pool, &run.far, &shell)
            }
            Door::Mount | Door::MountListed | Door::Sshfs | Door::Rclone => {
                shell.map(str::to_owned).into()
            }
        };
        let before = self.link_bytes()?;
        let begun = Instant::now();
        let mut end = self.at_within(CLIENT, &words, run, limit)?;
        if let Some(mounted) = mounted
            && program.writes
            && end != End::CutShort
        {
            let is_settled = self.settle(run, mounted, begun + limit)?;
            let seconds = begun.elapsed().as_secs_f64();
            end = if is_settled { End::Done(seconds) } else { End::CutShort };
        }
        Ok(Outcome { end, link_bytes: self.link_bytes()?.saturating_sub(before) })
    }

    /// Takes the mount away when all has been sent: whether that was by then.
    fn settle(&self, run: &Run, mounted: &mut Mounted, deadline: Instant) -> Result<bool> {
        // It would end without having sent everything.
        if run.door == Door::Rclone && !self.has_sent_all(run, deadline)? {
            return Ok(false);
        }
        let away = door::take_away(run.door, &self.azekura, &run.far);
        let left = deadline.saturating_duration_since(Instant::now());
        let end = self.at_within(CLIENT, &away, run, left)?;
        Ok(end != End::CutShort && mounted.has_ended(deadline)?)
    }

    /// Waits until a mount of rclone has sent all that was written: whether that was by then.
    fn has_sent_all(&self, run: &Run, deadline: Instant) -> Result<bool> {
        while Instant::now() < deadline {
            let mut command = self.command(&door::ask_rclone(), run)?;
            if door::has_sent_all(&self.lab.exec(CLIENT, &mut command)?.stdout) {
                return Ok(true);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(false)
    }

    fn link_bytes(&self) -> Result<u64> {
        let status = self.lab.status()?;
        let directions = status.links.iter().flat_map(|link| &link.directions);
        Ok(directions.map(|direction| direction.counters.wire_bytes).sum())
    }
}

fn make_empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    std::fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_are_well_described() {
        let topology = Topology::parse(&topology(), "experiment").unwrap();
        assert!(topology.host(CLIENT).is_some() && topology.link(LINK).is_some());
    }

    #[test]
    fn directories_are_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new");
        for _ in 0..2 {
            make_empty(&new).unwrap();
            std::fs::write(new.join("file"), "x").unwrap();
        }
        make_empty(&new).unwrap();
        assert_eq!(std::fs::read_dir(&new).unwrap().count(), 0);
    }
}
