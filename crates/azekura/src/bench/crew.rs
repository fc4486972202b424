//! The bench's worker processes: this program again, each with an ear on standard input. They are
//! given an order each, prepare it, and start together. They end when the crew is dropped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::order::{Order, Tally, Word};

/// The hidden command that a worker runs.
pub(crate) const WORKER_COMMAND: &str = "bench-worker";

struct Worker {
    child: Child,
    // Taken away when the worker is to end.
    orders: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

impl Worker {
    fn hire() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut child = Command::new(&program)
            .arg(WORKER_COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start a worker ({})", program.display()))?;
        let orders = child.stdin.take();
        let words = child.stdout.take().context("a worker has no standard output")?;
        Ok(Self { child, orders, words: BufReader::new(words) })
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
}

impl Crew {
    /// Starts that many workers.
    pub(crate) fn hire(workers: usize) -> Result<Self> {
        Ok(Self { workers: (0..workers).map(|_| Worker::hire()).collect::<Result<_>>()? })
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
        for worker in &mut self.workers {
            drop(worker.orders.take());
        }
        for worker in &mut self.workers {
            // A worker in the middle of something (after an error elsewhere) is not waited for.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}
