//! The NFS client of these experiments: a C program on libnfs, compiled when an experiment starts, since
//! no other program of the project speaks the client's side of NFS. Owns how it is built and started on
//! several hosts together, and what it tells.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use azekura::load::{ScratchDir, last_line};
use azekura_netlab::Lab;
use serde::Deserialize;

const SOURCES: [(&str, &str); 5] = [
    ("load.c", include_str!("../../../../../tests/material/nfs_load/load.c")),
    ("phases.c", include_str!("../../../../../tests/material/nfs_load/phases.c")),
    ("phases.h", include_str!("../../../../../tests/material/nfs_load/phases.h")),
    ("connection.c", include_str!("../../../../../tests/material/nfs_load/connection.c")),
    ("connection.h", include_str!("../../../../../tests/material/nfs_load/connection.h")),
];
const NEEDED: &str = "a C compiler and libnfs with its headers (Debian: gcc, libnfs-dev)";

/// What a phase came to.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Phase {
    #[serde(default)]
    pub(super) bytes: u64,
    pub(super) operations: u64,
    pub(super) seconds: f64,
    pub(super) latency_us: Latency,
}

/// Of single requests, in microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
}

#[derive(Deserialize)]
struct Report {
    phases: Vec<Phase>,
}

/// What all clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    /// Names of the program's phases, with block sizes.
    pub(super) phases: &'a [String],
    pub(super) file_bytes: u64,
    pub(super) files: u64,
    pub(super) in_flight: u16,
}

/// The program, compiled. It lies in memory, for nobody would remove its file if this process were
/// killed.
pub(super) struct LoadClient(Vec<u8>);

/// The program where it can be started: in the directory of a pool, whose engines remove it.
pub(super) struct PlacedClient<'a> {
    program: PathBuf,
    dir: &'a ScratchDir,
}

/// One that runs.
struct Running {
    child: Child,
    orders: ChildStdin,
    words: BufReader<ChildStdout>,
    log: PathBuf,
}

impl LoadClient {
    /// Compiles it.
    ///
    /// # Errors
    /// If that takes what is not installed: the message says what.
    pub(super) fn compile() -> Result<Self> {
        let scratch = ScratchDir::make("client")?;
        for (name, text) in SOURCES {
            std::fs::write(scratch.path(name), text).context("cannot write the client's source")?;
        }
        let program = PathBuf::from(scratch.path("nfs_load"));
        let done = Command::new("cc")
            .args(["-D_GNU_SOURCE", "-O2", "-pthread", "-o"])
            .arg(&program)
            .args(["load.c", "phases.c", "connection.c", "-lnfs"])
            .current_dir(scratch.dir())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run cc; the NFS client takes {NEEDED}"))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let first = said.lines().find(|line| line.contains("error")).unwrap_or_default();
            bail!("cannot compile the NFS client, which takes {NEEDED}: {first}");
        }
        std::fs::read(&program).map(Self).context("cannot read the compiled client")
    }

    /// Puts the program into a directory, where its clients have their logs too.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn place<'a>(&self, dir: &'a ScratchDir) -> Result<PlacedClient<'a>> {
        let program = PathBuf::from(dir.path("nfs_load"));
        if !program.exists() {
            std::fs::write(&program, &self.0).context("cannot write the client")?;
            let executable = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(&program, executable).context("cannot write the client")?;
        }
        Ok(PlacedClient { program, dir })
    }
}

impl PlacedClient<'_> {
    /// Has one client on each host work on the server of its URL; all begin each phase together. Gives
    /// each phase of each client.
    ///
    /// # Errors
    /// What the first client that failed said.
    pub(super) fn run(
        &self,
        lab: &Lab,
        clients: &[(String, String)],
        load: Load<'_>,
    ) -> Result<Vec<Vec<Phase>>> {
        let start = |(host, url): &(String, String)| self.start(lab, host, url, load);
        let mut running = clients.iter().map(start).collect::<Result<Vec<_>>>()?;
        for _ in load.phases {
            running.iter_mut().try_for_each(Running::await_ready)?;
            running.iter_mut().try_for_each(Running::go)?;
        }
        running.into_iter().map(Running::report).collect()
    }

    fn start(&self, lab: &Lab, host: &str, url: &str, load: Load<'_>) -> Result<Running> {
        let log = PathBuf::from(self.dir.path(host));
        let said = std::fs::File::create(&log).context("cannot make a client's log")?;
        let mut command = Command::new(&self.program);
        command
            .args(["--stepped", "--phases", &load.phases.join(",")])
            .args(["--directory", host, "--size", &load.file_bytes.to_string()])
            .args(["--files", &load.files.to_string()])
            .args(["--in-flight", &load.in_flight.to_string(), url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said);
        let mut child = lab.spawn(host, &mut command)?;
        let orders = child.stdin.take().context("a client has no standard input")?;
        let words = child.stdout.take().context("a client has no standard output")?;
        Ok(Running { child, orders, words: BufReader::new(words), log })
    }
}

impl Running {
    fn await_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        self.words.read_line(&mut line).context("cannot hear a client")?;
        if line.starts_with("ready ") { Ok(()) } else { self.failed() }
    }

    fn go(&mut self) -> Result<()> {
        self.orders.write_all(b"go\n").context("cannot talk to a client")
    }

    fn report(mut self) -> Result<Vec<Phase>> {
        let mut text = String::new();
        self.words.read_to_string(&mut text).context("cannot hear a client")?;
        if !self.child.wait().context("cannot wait for a client")?.success() {
            return self.failed();
        }
        let report: Report = serde_json::from_str(&text).context("cannot understand a client")?;
        Ok(report.phases)
    }

    fn failed<T>(&mut self) -> Result<T> {
        let _ = self.child.wait();
        // Its last line says only that there are others.
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let first = said.lines().next().map_or_else(|| last_line(&self.log), str::to_owned);
        bail!("an NFS client failed: {first}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is not disturbed by this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What several clients moved in a phase that they began together, in MB/s (10^6 bytes).
pub(super) fn mb_per_s(clients: &[Vec<Phase>], phase: usize) -> f64 {
    let of = || clients.iter().filter_map(|phases| phases.get(phase));
    let bytes: u64 = of().map(|phase| phase.bytes).sum();
    let seconds = of().map(|phase| phase.seconds).fold(0.0, f64::max);
    bytes as f64 / 1e6 / seconds.max(1e-9)
}
