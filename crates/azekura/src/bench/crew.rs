//! The bench's worker processes: this program again, each with an ear of its own. They are given an
//! order each, prepare it, and start together. They end when the crew is dropped.
//!
//! Workers behind a door other than the native one have a foreman: one process within that door that
//! starts them all, so that they share one mount as the programs of a job would.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::door::{self, Door};
use super::order::{Order, Tally, Word};
use super::reference::ScratchDir;
use crate::reach::ContainerName;
use crate::reading::ReadArgs;

/// The hidden command that a worker runs.
pub(crate) const WORKER_COMMAND: &str = "bench-worker";
/// The hidden command that a foreman runs.
pub(crate) const FOREMAN_COMMAND: &str = "bench-foreman";

/// Where workers with a foreman come to, in a directory of the crew.
const SOCKET: &str = "workers.sock";
/// A door has this long to open.
const HIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// Workers have this long to go by themselves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// The two ends of the talk with one worker.
struct Worker {
    // Taken away when the worker is to end.
    orders: Option<Box<dyn Write + Send>>,
    words: BufReader<Box<dyn Read + Send>>,
}

impl Worker {
    fn hire() -> Result<(Self, Child)> {
        let program = door::own_program()?;
        let mut child = Command::new(&program)
            .arg(WORKER_COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start a worker ({})", program.display()))?;
        let orders = child.stdin.take().context("a worker has no standard input")?;
        let words = child.stdout.take().context("a worker has no standard output")?;
        Ok((Self::between(Box::new(orders), Box::new(words)), child))
    }

    fn between(orders: Box<dyn Write + Send>, words: Box<dyn Read + Send>) -> Self {
        Self { orders: Some(orders), words: BufReader::new(words) }
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("the worker has been let go")?;
        orders.write_all(format!("{line}\n").as_bytes()).context("a worker went away")
    }

    fn hear(&mut self) -> Result<Word> {
        let mut line = String::new();
        if self.words.read_line(&mut line).context("a worker went away")? == 0 {
            bail!("a worker process ended before it was done");
        }
        serde_json::from_str(&line).context("a worker said something strange")
    }
}

/// Worker processes that start together.
pub(crate) struct Crew {
    workers: Vec<Worker>,
    // The workers themselves, or their foreman.
    children: Vec<Child>,
    // What the foreman's door prints.
    _scratch: Option<ScratchDir>,
}

impl Crew {
    /// Starts that many workers.
    pub(crate) fn hire(workers: usize) -> Result<Self> {
        let mut crew = Self { workers: Vec::new(), children: Vec::new(), _scratch: None };
        for _ in 0..workers {
            let (worker, child) = Worker::hire()?;
            crew.workers.push(worker);
            crew.children.push(child);
        }
        Ok(crew)
    }

    /// Starts that many workers behind a door, and has them work in this container. What a foreman
    /// needs lies in `scratch`.
    ///
    /// # Errors
    /// If the door does not open: what it said last.
    pub(crate) fn hire_via(
        door: Door,
        container: &ContainerName,
        reading: &ReadArgs,
        workers: usize,
        scratch: impl FnOnce() -> Result<ScratchDir>,
    ) -> Result<Self> {
        let mut crew = match door.command(container, reading)? {
            None => Self::hire(workers)?,
            Some(command) => Self::hire_with_foreman(command, door, workers, scratch()?)?,
        };
        crew.run_all(&Order::Settle(door.place(container, reading)))?;
        Ok(crew)
    }

    fn hire_with_foreman(
        mut command: Command,
        door: Door,
        workers: usize,
        scratch: ScratchDir,
    ) -> Result<Self> {
        let socket = scratch.path(SOCKET);
        let log = scratch.path("said");
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("cannot listen at {socket}"))?;
        listener.set_nonblocking(true).context("cannot listen without waiting")?;
        let said = std::fs::File::create(&log).with_context(|| format!("cannot make {log}"))?;
        let child = command
            .arg(door::own_program()?)
            .arg(FOREMAN_COMMAND)
            .args([workers.to_string(), scratch.dir()])
            .stdin(Stdio::null())
            .stdout(said.try_clone().context("cannot keep what the door says")?)
            .stderr(said)
            .spawn()
            .with_context(|| format!("cannot open the door '{door}'"))?;
        let mut crew = Self { workers: Vec::new(), children: vec![child], _scratch: Some(scratch) };
        let deadline = Instant::now() + HIRE_TIMEOUT;
        while crew.workers.len() < workers {
            match listener.accept() {
                Ok((stream, _)) => crew.workers.push(worker_at(stream)?),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let ended = crew.children[0].try_wait().ok().flatten().is_some();
                    if ended || Instant::now() > deadline {
                        bail!("the door '{door}' does not open: {}", last_word(&log));
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error).context("cannot hear the workers"),
            }
        }
        Ok(crew)
    }

    /// Gives worker `i` the order `i`; all prepare, in turn, and then start together.
    ///
    /// # Errors
    /// The first failure of a worker.
    pub(crate) fn run(&mut self, orders: &[Order]) -> Result<Vec<Tally>> {
        for (worker, order) in self.workers.iter_mut().zip(orders) {
            worker.tell(&serde_json::to_string(order)?)?;
            match worker.hear()? {
                Word::Ready => {}
                Word::Failed(why) => bail!(why),
                Word::Done(_) => bail!("a worker was done before it had started"),
            }
        }
        let count = orders.len().min(self.workers.len());
        for worker in &mut self.workers[..count] {
            worker.tell("go")?;
        }
        let words = self.workers[..count].iter_mut().map(Worker::hear).collect::<Vec<_>>();
        let mut tallies = Vec::with_capacity(count);
        for word in words {
            match word? {
                Word::Done(tally) => tallies.push(tally),
                Word::Failed(why) => bail!(why),
                Word::Ready => bail!("a worker was ready twice"),
            }
        }
        Ok(tallies)
    }

    /// Gives all workers the same order, such as where to work.
    pub(crate) fn run_all(&mut self, order: &Order) -> Result<Vec<Tally>> {
        self.run(&vec![order.clone(); self.workers.len()])
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.workers.clear();
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(PAUSE);
            }
            // A worker in the middle of something (after an error elsewhere) is not waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn worker_at(stream: UnixStream) -> Result<Worker> {
    stream.set_nonblocking(false).context("cannot talk to a worker")?;
    let words = stream.try_clone().context("cannot talk to a worker")?;
    Ok(Worker::between(Box::new(stream), Box::new(words)))
}

fn last_word(log: &str) -> String {
    let line = door::last_line(Path::new(log));
    match line.strip_prefix("azekura: ").unwrap_or(&line) {
        "" => format!("no worker appeared within {} s", HIRE_TIMEOUT.as_secs()),
        line => line.to_owned(),
    }
}

/// The foreman's arguments.
#[derive(Debug, Args)]
pub(crate) struct ForemanArgs {
    workers: usize,
    dir: PathBuf,
}

/// The foreman: starts workers that each talk over a connection to the socket in a directory, waits for
/// them, and removes the directory.
///
/// # Errors
/// If a worker cannot be started.
pub(crate) fn lead(args: &ForemanArgs) -> Result<()> {
    let socket = args.dir.join(SOCKET);
    let program = door::own_program()?;
    let mut children = Vec::with_capacity(args.workers);
    for _ in 0..args.workers {
        let stream = UnixStream::connect(&socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        let words = OwnedFd::from(stream.try_clone().context("cannot share a connection")?);
        let child = Command::new(&program)
            .arg(WORKER_COMMAND)
            .stdin(OwnedFd::from(stream))
            .stdout(words)
            .spawn()
            .with_context(|| format!("cannot start a worker ({})", program.display()))?;
        children.push(child);
    }
    for mut child in children {
        // How it ended is known to whoever gave it orders.
        let _ = child.wait();
    }
    // Whoever gave orders may have been killed, and then leaves this to the last one.
    let _ = std::fs::remove_dir_all(&args.dir);
    Ok(())
}
