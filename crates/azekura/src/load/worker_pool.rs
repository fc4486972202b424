//! The worker processes of a load, as seen by who gives the orders. Workers are given an order each,
//! prepare it, and start together. They end when the pool is dropped.
//!
//! Workers on an access path other than the native one are started by a coordinator: one process on
//! that path that starts them all, so that they share one mount as the programs of a job would.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::access_path::AccessPath;
use super::coordinator::{COORDINATOR_COMMAND, SOCKET};
use super::order::{Order, Tally, Word};
use super::scratch_dir::ScratchDir;
use super::worker::WORKER_COMMAND;
use crate::names::ContainerName;
use crate::reading::ReadArgs;

/// A coordinator has this long to bring its workers.
const START_TIMEOUT: Duration = Duration::from_secs(30);
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
    fn start(program: &Path) -> Result<(Self, Child)> {
        let mut child = Command::new(program)
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
pub struct WorkerPool {
    workers: Vec<Worker>,
    // The workers themselves, or their coordinator.
    children: Vec<Child>,
    // What the coordinator prints.
    _scratch: Option<ScratchDir>,
}

impl WorkerPool {
    /// Starts that many workers, which run the file of `azekura`.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn start(azekura: &Path, workers: usize) -> Result<Self> {
        let mut pool = Self { workers: Vec::new(), children: Vec::new(), _scratch: None };
        for _ in 0..workers {
            let (worker, child) = Worker::start(azekura)?;
            pool.workers.push(worker);
            pool.children.push(child);
        }
        Ok(pool)
    }

    /// Starts that many workers on an access path, and has them work in this container. What a
    /// coordinator needs lies in `scratch`.
    ///
    /// # Errors
    /// If there is no way on that path: what was said last.
    pub fn start_via(
        azekura: &Path,
        access: AccessPath,
        container: &ContainerName,
        reading: &ReadArgs,
        workers: usize,
        scratch: impl FnOnce() -> Result<ScratchDir>,
    ) -> Result<Self> {
        let mut pool = match access.command(azekura, container, reading)? {
            None => Self::start(azekura, workers)?,
            Some(mut command) => {
                command.arg(azekura);
                Self::start_with_coordinator(command, access, workers, scratch()?)?
            }
        };
        pool.run_all(&Order::Open(access.backend(container, reading)))?;
        Ok(pool)
    }

    fn start_with_coordinator(
        mut command: Command,
        access: AccessPath,
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
            .arg(COORDINATOR_COMMAND)
            .args([workers.to_string(), scratch.dir()])
            .stdin(Stdio::null())
            .stdout(said.try_clone().context("cannot keep what is said")?)
            .stderr(said)
            .spawn()
            .with_context(|| format!("cannot start workers via {access}"))?;
        let mut pool = Self { workers: Vec::new(), children: vec![child], _scratch: Some(scratch) };
        let deadline = Instant::now() + START_TIMEOUT;
        while pool.workers.len() < workers {
            match listener.accept() {
                Ok((stream, _)) => pool.workers.push(worker_at(stream)?),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let ended = pool.children[0].try_wait().ok().flatten().is_some();
                    if ended || Instant::now() > deadline {
                        bail!("no workers via {access}: {}", last_word(&log));
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error).context("cannot hear the workers"),
            }
        }
        Ok(pool)
    }

    /// Gives worker `i` the order `i`; all prepare, in turn, and then start together.
    ///
    /// # Errors
    /// The first failure of a worker.
    pub fn run(&mut self, orders: &[Order]) -> Result<Vec<Tally>> {
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
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub(crate) fn run_all(&mut self, order: &Order) -> Result<Vec<Tally>> {
        self.run(&vec![order.clone(); self.workers.len()])
    }
}

impl Drop for WorkerPool {
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
    let line = last_line(Path::new(log));
    match line.strip_prefix("azekura: ").unwrap_or(&line) {
        "" => format!("no worker appeared within {} s", START_TIMEOUT.as_secs()),
        line => line.to_owned(),
    }
}

/// The last line that a program left in a file; empty if it left none.
pub fn last_line(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}
