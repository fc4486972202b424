//! A worker process: takes orders on standard input, says what it did on standard
//! output. Prepares everything that should not be timed before it says that it is ready.

use std::io::{BufRead as _, Write};
use std::sync::{Arc, mpsc};

use anyhow::{Context as _, Result, bail};

use super::order::{Backend, BatchOrder, BatchStep, IoOrder, MdOrder, Order, Tally, Word};
use super::space::FileSpace as _;
use super::space_path::PathSpace;
use super::space_pool::PoolSpace;
use super::streams::Watch;
use super::{batch, loops, stream};
use crate::report;

/// The hidden command that a worker runs.
pub(crate) const WORKER_COMMAND: &str = "bench-worker";

/// Where this worker has its files.
enum Space {
    Nowhere,
    Path(PathSpace),
    Pool(Box<PoolSpace>),
}

/// Work that is prepared and can start at once.
type Prepared<'a> = Box<dyn FnOnce() -> Result<Tally> + 'a>;

impl Space {
    fn open(backend: &Backend) -> Result<Self> {
        Ok(match backend {
            Backend::Path(dir) => Self::Path(PathSpace::open(dir)?),
            Backend::Pool { pool, container, reading } => {
                Self::Pool(Box::new(PoolSpace::open(pool, container, reading)?))
            }
        })
    }

    fn make_directories(&mut self, dirs: &[String]) -> Result<()> {
        dirs.iter().try_for_each(|dir| match self {
            Self::Nowhere => bail!("the worker has no place to work at"),
            Self::Path(space) => space.make_dir(dir),
            Self::Pool(space) => space.make_dir(dir),
        })
    }

    fn clean_up(&mut self, files: &[String], dirs: &[String]) {
        // What is not there need not be removed.
        for (name, is_dir) in
            files.iter().map(|name| (name, false)).chain(dirs.iter().map(|name| (name, true)))
        {
            let _ = match self {
                Self::Nowhere => Ok(()),
                Self::Path(space) => space.remove(name, is_dir),
                Self::Pool(space) => space.remove(name, is_dir),
            };
        }
    }

    fn io(&mut self, order: IoOrder) -> Result<Prepared<'_>> {
        match self {
            Self::Nowhere => bail!("the worker has no place to work at"),
            Self::Path(space) => loops::prepare_io(space, order),
            Self::Pool(space) => loops::prepare_io(space.as_mut(), order),
        }
    }

    fn batch<'a>(&'a mut self, order: BatchOrder, watch: &'a Watch) -> Result<Prepared<'a>> {
        match self {
            Self::Nowhere => bail!("the worker has no place to work at"),
            Self::Path(space) => batch::prepare(space, order, watch),
            Self::Pool(space) => batch::prepare(space.as_mut(), order, watch),
        }
    }

    /// Removes what a batch has left.
    fn clear_batch(&mut self, order: &BatchOrder) {
        match self {
            Self::Nowhere => {}
            Self::Path(space) => batch::clear(space, order),
            Self::Pool(space) => batch::clear(space.as_mut(), order),
        }
    }

    fn md(&mut self, order: &MdOrder) -> Result<Prepared<'_>> {
        match self {
            Self::Nowhere => bail!("the worker has no place to work at"),
            Self::Path(space) => loops::prepare_md(space, order),
            Self::Pool(space) => loops::prepare_md(space.as_mut(), order),
        }
    }
}

fn prepare<'a>(space: &'a mut Space, order: Order, watch: &'a Watch) -> Result<Prepared<'a>> {
    match order {
        Order::Open(backend) => {
            *space = Space::open(&backend)?;
            Ok(Box::new(|| Ok(Tally::default())))
        }
        Order::MakeDirectories(dirs) => {
            space.make_directories(&dirs)?;
            Ok(Box::new(|| Ok(Tally::default())))
        }
        Order::CleanUp { files, dirs } => {
            space.clean_up(&files, &dirs);
            Ok(Box::new(|| Ok(Tally::default())))
        }
        Order::Io(order) => space.io(order),
        Order::Md(order) => space.md(&order),
        Order::Batch(order) => space.batch(order, watch),
        Order::Pong { socket } => stream::pong(&socket),
        Order::Ping { socket, limit_ms } => stream::ping(&socket, limit_ms),
        Order::SendFile { socket, file, bytes } => stream::send_file(&socket, &file, bytes),
        Order::Drain { socket } => stream::drain(&socket),
        Order::DrainToFile { socket, file } => stream::drain_to_file(&socket, &file),
        Order::Pour { socket, bytes } => stream::pour(&socket, bytes),
    }
}

/// Works until standard input ends. A batch that is not over then is stopped, and its files are removed.
///
/// # Errors
/// If the orders cannot be read or understood; failures of the work itself are answers.
pub(crate) fn work() -> Result<()> {
    let watch = Arc::new(Watch::default());
    let orders = listen(Arc::clone(&watch))?;
    work_and_clear(&orders, &mut std::io::stdout(), &watch)
}

fn work_and_clear(
    orders: &mpsc::Receiver<String>,
    words: &mut dyn Write,
    watch: &Watch,
) -> Result<()> {
    let mut space = Space::Nowhere;
    let mut unfinished = None;
    let worked = work_on(orders, words, &mut space, &mut unfinished, watch);
    if let Some(order) = unfinished {
        space.clear_batch(&order);
    }
    worked
}

/// Lines of standard input; its end is noticed at once, also in the middle of work.
fn listen(watch: Arc<Watch>) -> Result<mpsc::Receiver<String>> {
    // There is an order and a word to begin.
    let (tell, orders) = mpsc::sync_channel(2);
    std::thread::Builder::new().name("orders".to_owned()).spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if tell.send(line).is_err() {
                break;
            }
        }
        watch.end();
    })?;
    Ok(orders)
}

fn work_on(
    orders: &mpsc::Receiver<String>,
    words: &mut dyn Write,
    space: &mut Space,
    unfinished: &mut Option<BatchOrder>,
    watch: &Watch,
) -> Result<()> {
    while let Ok(line) = orders.recv() {
        let order: Order = serde_json::from_str(&line).context("not an order for a worker")?;
        let mut ends_batch = false;
        if let Order::Batch(order) = &order {
            match order.step {
                BatchStep::CheckRoom => {}
                BatchStep::Clear | BatchStep::LetGo => ends_batch = true,
                _ => *unfinished = Some(order.clone()),
            }
        }
        let word = match prepare(space, order, watch) {
            Ok(start) => {
                say(words, &Word::Ready)?;
                if orders.recv().is_err() {
                    return Ok(());
                }
                start().map_or_else(|error| Word::Failed(report::explain(&error)), Word::Done)
            }
            Err(error) => Word::Failed(report::explain(&error)),
        };
        // Not before it was done: somebody who gives up in between does not say "go".
        if ends_batch && matches!(word, Word::Done(_)) {
            *unfinished = None;
        }
        say(words, &word)?;
    }
    Ok(())
}

fn say(words: &mut dyn Write, word: &Word) -> Result<()> {
    writeln!(words, "{}", serde_json::to_string(word)?)?;
    words.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(step: BatchStep) -> Order {
        Order::Batch(BatchOrder {
            step,
            dir: "batch/0".to_owned(),
            files_in: 2,
            files_out: 1,
            round_robin: false,
            records_in: 10,
            records_out: 10,
            record_bytes: 100,
            buffer_bytes: 4096,
            fsync: false,
            processes: 1,
            is_first_of_node: true,
            needs_bytes: 0,
        })
    }

    #[test]
    fn a_batch_that_is_given_up_anywhere_leaves_nothing() {
        let steps = [
            BatchStep::MakeInput,
            BatchStep::Forget,
            BatchStep::Run,
            BatchStep::ClearOutput,
            BatchStep::Clear,
        ];
        for given_up_after in 0..=2 * steps.len() {
            let scratch = tempfile::tempdir().unwrap();
            let place = Backend::Path(scratch.path().to_str().unwrap().to_owned());
            let (tell, orders) = mpsc::channel();
            let mut lines =
                vec![serde_json::to_string(&Order::Open(place)).unwrap(), "go".to_owned()];
            for step in steps {
                lines.extend([serde_json::to_string(&batch(step)).unwrap(), "go".to_owned()]);
            }
            lines.into_iter().take(2 + given_up_after).for_each(|line| tell.send(line).unwrap());
            drop(tell);
            let mut words = Vec::new();
            work_and_clear(&orders, &mut words, &Watch::default()).unwrap();
            let words = String::from_utf8(words).unwrap();
            assert!(!words.contains("Failed"), "{words}");
            let left = std::fs::read_dir(scratch.path()).unwrap().count();
            assert_eq!(left, 0, "given up after {given_up_after} of the batch's lines");
        }
    }
}
