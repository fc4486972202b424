//! A worker process: takes orders on standard input, says what it did on standard
//! output. Prepares everything that should not be timed before it says that it is ready.

use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result, bail};

use super::order::{Backend, IoOrder, MdOrder, Order, Tally, Word};
use super::space::FileSpace as _;
use super::space_path::PathSpace;
use super::space_pool::PoolSpace;
use super::{loops, stream};
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

    fn md(&mut self, order: &MdOrder) -> Result<Prepared<'_>> {
        match self {
            Self::Nowhere => bail!("the worker has no place to work at"),
            Self::Path(space) => loops::prepare_md(space, order),
            Self::Pool(space) => loops::prepare_md(space.as_mut(), order),
        }
    }
}

fn prepare(space: &mut Space, order: Order) -> Result<Prepared<'_>> {
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
        Order::Pong { socket } => stream::pong(&socket),
        Order::Ping { socket, limit_ms } => stream::ping(&socket, limit_ms),
        Order::SendFile { socket, file, bytes } => stream::send_file(&socket, &file, bytes),
        Order::Drain { socket } => stream::drain(&socket),
        Order::DrainToFile { socket, file } => stream::drain_to_file(&socket, &file),
        Order::Pour { socket, bytes } => stream::pour(&socket, bytes),
    }
}

/// Works until standard input ends.
///
/// # Errors
/// If the orders cannot be read or understood; failures of the work itself are answers.
pub(crate) fn work() -> Result<()> {
    let mut orders = std::io::stdin().lock();
    let mut space = Space::Nowhere;
    let mut line = String::new();
    loop {
        line.clear();
        if orders.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let order: Order = serde_json::from_str(&line).context("not an order for a worker")?;
        let word = match prepare(&mut space, order) {
            Ok(start) => {
                say(&Word::Ready)?;
                line.clear();
                if orders.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                start().map_or_else(|error| Word::Failed(report::explain(&error)), Word::Done)
            }
            Err(error) => Word::Failed(report::explain(&error)),
        };
        say(&word)?;
    }
}

fn say(word: &Word) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(word)?)?;
    out.flush()?;
    Ok(())
}
