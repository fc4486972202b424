//! The worker processes of a load, as seen by who gives the orders. Workers are given an order each,
//! prepare it, and start together. They end when the pool is dropped.
//!
//! Workers on an access path other than the native one are started by a coordinator: one process on
//! that path that starts them all, so that they share one mount as the programs of a job would.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::access_path::AccessPath;
use super::coordinator::{COORDINATOR_COMMAND, SOCKET};
use super::order::{Backend, Order, Tally, Word};
use super::scratch_dir::ScratchDir;
use super::worker::WORKER_COMMAND;
use crate::host::interrupt::Interrupt;
use crate::names::ContainerName;
use crate::reading::ReadArgs;

/// A coordinator has this long to bring its workers.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Workers have this long to go by themselves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Workers that may have many files to remove have this long.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);
/// So often somebody who waits for a worker looks whether the command was told to end.
const LOOK: Duration = Duration::from_millis(50);
/// What hosts may say when somebody logs in, in lines.
const STRANGE_LINES_MAX: usize = 100;

/// The two ends of the talk with one worker.
struct Worker {
    // What is said of it when it goes away.
    name: String,
    // Taken away when the worker is to end.
    orders: Option<Box<dyn Write + Send>>,
    words: Receiver<String>,
}

impl Worker {
    fn start(name: String, mut command: Command) -> Result<(Self, Child)> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().with_context(|| {
                format!("cannot start {name} ({})", command.get_program().display())
            })?;
        let orders = child.stdin.take().context("a worker has no standard input")?;
        let words = child.stdout.take().context("a worker has no standard output")?;
        Ok((Self::between(name, Box::new(orders), words)?, child))
    }

    fn between(
        name: String,
        orders: Box<dyn Write + Send>,
        words: impl Read + Send + 'static,
    ) -> Result<Self> {
        // There is one word at a time.
        let (tell, heard) = sync_channel(1);
        std::thread::Builder::new().name("words".to_owned()).spawn(move || {
            for line in BufReader::new(words).lines() {
                if line.is_err() || line.is_ok_and(|line| tell.send(line).is_err()) {
                    break;
                }
            }
        })?;
        Ok(Self { name, orders: Some(orders), words: heard })
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let orders = self.orders.as_mut().context("the worker has been let go")?;
        orders
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("{} went away", self.name))
    }

    fn hear(&mut self, interrupt: &Interrupt) -> Result<Word> {
        for _ in 0..STRANGE_LINES_MAX {
            let line = loop {
                // Before every word: those of short steps come sooner than the wait for one ends.
                if interrupt.came() {
                    bail!("interrupted");
                }
                match self.words.recv_timeout(LOOK) {
                    Ok(line) => break line,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        bail!("{} ended before it was done", self.name)
                    }
                }
            };
            if let Ok(word) = serde_json::from_str(&line) {
                return Ok(word);
            }
        }
        bail!("{} said nothing but strange things", self.name)
    }
}

/// A worker that is started by a command of its own, on whatever host that starts it.
#[derive(Clone)]
pub(crate) struct RemoteWorker {
    /// What is said of it in errors.
    pub(crate) name: String,
    /// The words that run [`WORKER_COMMAND`] there.
    pub(crate) words: Vec<std::ffi::OsString>,
}

/// Worker processes that start together.
pub struct WorkerPool {
    workers: Vec<Worker>,
    // The workers themselves, or their coordinator.
    children: Vec<Child>,
    // What the coordinator prints.
    _scratch: Option<ScratchDir>,
    // Whether this command was told to end, where it wants to know.
    interrupt: Interrupt,
    leave_timeout: Duration,
}

impl WorkerPool {
    /// Starts that many workers, which run the file of `azekura`.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn start(azekura: &Path, workers: usize) -> Result<Self> {
        let mut pool = Self::empty();
        for _ in 0..workers {
            let mut command = Command::new(azekura);
            command.arg(WORKER_COMMAND);
            let (worker, child) = Worker::start("a worker process".to_owned(), command)?;
            pool.workers.push(worker);
            pool.children.push(child);
        }
        Ok(pool)
    }

    fn empty() -> Self {
        Self::with(None)
    }

    fn with(scratch: Option<ScratchDir>) -> Self {
        Self {
            workers: Vec::new(),
            children: Vec::new(),
            _scratch: scratch,
            interrupt: Interrupt::default(),
            leave_timeout: LEAVE_TIMEOUT,
        }
    }

    /// Starts workers by commands of their own, one after the other since a host lets only so many log
    /// in at once, and has them work at `backend`. They are not reached by what a terminal sends:
    /// `interrupt` ends the waiting for them, and they end with the pool.
    ///
    /// # Errors
    /// If one cannot be started or cannot work there.
    pub(crate) fn start_remote(
        workers: &[RemoteWorker],
        backend: &Backend,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let mut pool = Self::empty();
        pool.interrupt = interrupt.clone();
        pool.leave_timeout = CLEAR_TIMEOUT;
        let open = Order::Open(backend.clone());
        for RemoteWorker { name, words } in workers {
            let (program, arguments) = words.split_first().context("an empty command")?;
            let mut command = Command::new(program);
            command.args(arguments).process_group(0);
            let (worker, child) = Worker::start(name.clone(), command)?;
            pool.workers.push(worker);
            pool.children.push(child);
            let newest = pool.workers.len() - 1;
            pool.run_from(newest, std::slice::from_ref(&open))?;
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
        let mut pool = Self::with(Some(scratch));
        pool.children.push(child);
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
        self.run_from(0, orders)
    }

    /// The same for the workers from `first` on.
    fn run_from(&mut self, first: usize, orders: &[Order]) -> Result<Vec<Tally>> {
        let orders: Vec<(usize, Order)> =
            (first..self.workers.len()).zip(orders.iter().cloned()).collect();
        self.run_on(&orders)
    }

    /// The same for the workers with these numbers, each once; others have nothing to do meanwhile.
    ///
    /// # Errors
    /// As for [`Self::run`], or if there is no such worker.
    pub(crate) fn run_on(&mut self, orders: &[(usize, Order)]) -> Result<Vec<Tally>> {
        self.run_on_marked(orders, &mut || ())
    }

    /// As [`Self::run`]; `mark` is called when all are prepared, and again when all are done.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub(crate) fn run_marked(
        &mut self,
        orders: &[Order],
        mark: &mut dyn FnMut(),
    ) -> Result<Vec<Tally>> {
        let orders: Vec<(usize, Order)> =
            (0..self.workers.len()).zip(orders.iter().cloned()).collect();
        self.run_on_marked(&orders, mark)
    }

    /// The processes that were started: the workers, or those that started them.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    fn run_on_marked(
        &mut self,
        orders: &[(usize, Order)],
        mark: &mut dyn FnMut(),
    ) -> Result<Vec<Tally>> {
        for (number, order) in orders {
            let interrupt = &self.interrupt;
            let worker = self.workers.get_mut(*number).context("there are too few workers")?;
            worker.tell(&serde_json::to_string(order)?)?;
            match worker.hear(interrupt)? {
                Word::Ready => {}
                Word::Failed(why) => bail!(why),
                Word::Done(_) => bail!("a worker was done before it had started"),
            }
        }
        mark();
        for (number, _) in orders {
            self.workers[*number].tell("go")?;
        }
        let mut words = Vec::with_capacity(orders.len());
        for (number, _) in orders {
            words.push(self.workers[*number].hear(&self.interrupt));
        }
        mark();
        let mut tallies = Vec::with_capacity(words.len());
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

    /// Ends the processes that were started, and gives the numbers of those that did not end well: what they have
    /// made may still be there.
    pub(crate) fn end(mut self) -> Vec<usize> {
        self.leave()
    }

    fn leave(&mut self) -> Vec<usize> {
        self.workers.clear();
        let deadline = Instant::now() + self.leave_timeout;
        let mut lost = Vec::new();
        for (number, child) in self.children.iter_mut().enumerate() {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(PAUSE);
            }
            // A worker in the middle of something (after an error elsewhere) is not waited for.
            let _ = child.kill();
            if !child.wait().is_ok_and(|status| status.success()) {
                lost.push(number);
            }
        }
        lost
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.leave();
    }
}

fn worker_at(stream: UnixStream) -> Result<Worker> {
    stream.set_nonblocking(false).context("cannot talk to a worker")?;
    let words = stream.try_clone().context("cannot talk to a worker")?;
    Worker::between("a worker process".to_owned(), Box::new(stream), words)
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
