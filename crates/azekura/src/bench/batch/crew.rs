//! The processes of batches: workers on each node, which stay while one batch after the other is measured.
//! Owns the directory of their files, which goes with them whatever happens, and what the time of a run is:
//! from where all begin to where the last one ends.

use std::ffi::OsString;

use anyhow::{Context as _, Result};
use azekura_forecast::Spent;
use azekura_forecast::job::{Caches, Pattern};

use super::case::Case;
use crate::host::interrupt::Interrupt;
use crate::host::programs;
use crate::load::{
    Backend, BatchOrder, BatchStep, CachesDropped, IoOrder, MdKind, MdOrder, Motion, Order,
    RemoteWorker, Speed, Tally, WORKER_COMMAND, WorkerPool,
};
use crate::report;
use crate::stage::Launcher;

/// Workers that run batches.
pub(crate) struct Crew {
    workers: WorkerPool,
    // How each is started, for one in the place of one that was killed.
    commands: Vec<RemoteWorker>,
    backend: Backend,
    nodes: u32,
    dir: String,
    // What workers have begun and not cleared, by their numbers.
    unfinished: Vec<(usize, BatchOrder)>,
}

/// A measured run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// From the start of all processes to the end of the last one.
    pub(crate) seconds: f64,
    /// Where a process was meanwhile, the mean of all.
    pub(crate) spent: Spent,
}

/// Seconds of operations on names, of all processes for each.
#[derive(Clone, Copy, Debug, PartialEq)]
// With their unit, as all that is measured.
#[allow(clippy::struct_field_names)]
pub(crate) struct Names {
    /// Creating a file, and closing it.
    pub(crate) create_s: f64,
    /// Asking for attributes.
    pub(crate) stat_s: f64,
    /// Opening a file, and closing it.
    pub(crate) open_s: f64,
    /// Removing a file.
    pub(crate) unlink_s: f64,
}

/// A name that no other batch has, on any host that sees the same directory.
fn unique_name() -> Result<String> {
    let mut random = [0u8; 6];
    getrandom::fill(&mut random).context("the system has no random bytes")?;
    let number = random.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    Ok(format!("azekura-batch-{number:012x}"))
}

impl Crew {
    /// Starts so many workers on each node, or on this one where there are no `hosts`.
    ///
    /// # Errors
    /// If one cannot be started or does not find the place.
    pub(crate) fn start(
        backend: &Backend,
        hosts: &[String],
        launcher: &Launcher,
        processes: u32,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let command = [programs::own()?.into_os_string(), OsString::from(WORKER_COMMAND)];
        let mut workers = Vec::new();
        for _ in 0..processes {
            if hosts.is_empty() {
                let name = "a worker process".to_owned();
                workers.push(RemoteWorker { name, words: command.to_vec() });
            }
            for host in hosts {
                let name = format!("host '{host}': a worker process");
                workers.push(RemoteWorker { name, words: launcher.words(host, &command) });
            }
        }
        Ok(Self {
            workers: WorkerPool::start_remote(&workers, backend, interrupt)?,
            commands: workers,
            backend: backend.clone(),
            nodes: u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1),
            dir: unique_name()?,
            unfinished: Vec::new(),
        })
    }

    /// Ends the workers, which clear what they have begun; of those that were killed others clear it. Adds to why
    /// `what` is given up what has become of its files.
    ///
    /// # Errors
    /// That of `measured`.
    pub(crate) fn end<T>(self, what: &str, measured: Result<T>) -> Result<T> {
        let files = match self.end_and_clear() {
            Ok(()) => "its files are removed".to_owned(),
            Err(why) => report::explain(&why),
        };
        measured.with_context(|| format!("{what} is given up, and {files}"))
    }

    fn end_and_clear(self) -> Result<()> {
        let lost = self.workers.end();
        for (number, order) in self.unfinished {
            if !lost.contains(&number) {
                continue;
            }
            let stays =
                format!("the files in {} stay, which have to be removed by hand", order.dir);
            let command = &self.commands[number..=number];
            let clear = Order::Batch(BatchOrder { step: BatchStep::Clear, ..order });
            WorkerPool::start_remote(command, &self.backend, &Interrupt::default())
                .and_then(|mut worker| worker.run(&[clear]))
                .context(stays)?;
        }
        Ok(())
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Where the files of the newest batch are, below the place.
    pub(crate) fn dir(&self) -> &str {
        &self.dir
    }

    fn step(&mut self, case: &Case, step: BatchStep) -> Result<Vec<Tally>> {
        let orders = self.numbered(case.nodes, case.orders(step, &self.dir));
        self.unfinished.clone_from(&orders);
        let orders: Vec<(usize, Order)> =
            orders.into_iter().map(|(number, order)| (number, Order::Batch(order))).collect();
        let tallies = self.workers.run_on(&orders)?;
        if matches!(step, BatchStep::Clear | BatchStep::LetGo) {
            self.unfinished.clear();
        }
        Ok(tallies)
    }

    /// Has orders done that are for so many nodes.
    fn run(&mut self, nodes: u32, orders: impl Iterator<Item = Order>) -> Result<Vec<Tally>> {
        let orders = self.numbered(nodes, orders.collect());
        self.workers.run_on(&orders)
    }

    /// Orders with their workers, for so many nodes, which may be fewer than there are: node after node for the
    /// first process of each, then for the second.
    fn numbered<T>(&self, nodes: u32, orders: Vec<T>) -> Vec<(usize, T)> {
        let number = |index| worker_of(index, nodes as usize, self.nodes as usize);
        orders.into_iter().enumerate().map(|(index, order)| (number(index), order)).collect()
    }

    /// Makes the input of a batch.
    ///
    /// # Errors
    /// If there is no room for the batch, or it cannot be written.
    pub(crate) fn make_input(&mut self, case: &Case) -> Result<()> {
        // One that was removed a moment ago may still be what other clients of a pool know by its name.
        self.dir = unique_name()?;
        self.step(case, BatchStep::MakeInput).map(drop)
    }

    /// Drops caches where the batch wants it, whose input is there. Says how, if so.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub(crate) fn prepare(&mut self, case: &Case) -> Result<Option<CachesDropped>> {
        if case.caches == Caches::Warm {
            return Ok(None);
        }
        let tallies = self.step(case, BatchStep::Forget)?;
        // The first process of each node has asked the kernel.
        let firsts = tallies.iter().take(case.nodes as usize);
        let by_kernel =
            firsts.into_iter().all(|tally| tally.caches_dropped == Some(CachesDropped::ByKernel));
        Ok(Some(if by_kernel { CachesDropped::ByKernel } else { CachesDropped::ByAdvice }))
    }

    /// Runs a batch whose input is there, and removes its output.
    ///
    /// # Errors
    /// If an operation fails.
    pub(crate) fn measure(&mut self, case: &Case) -> Result<Measurement> {
        let measurement = self.measure_and_keep(case)?;
        self.step(case, BatchStep::ClearOutput)?;
        Ok(measurement)
    }

    /// The same, and its output stays.
    ///
    /// # Errors
    /// If an operation fails.
    pub(crate) fn measure_and_keep(&mut self, case: &Case) -> Result<Measurement> {
        let tallies = self.step(case, BatchStep::Run)?;
        Ok(Measurement {
            seconds: seconds_of(&tallies, case.nodes as usize),
            spent: spent_of(&tallies),
        })
    }

    /// Looks whether there is room for a batch, and gives all that there is, in bytes.
    ///
    /// # Errors
    /// If there is not.
    pub(crate) fn check_room(&mut self, case: &Case) -> Result<u64> {
        let mut order = case.orders(BatchStep::CheckRoom, &self.dir);
        order.truncate(1);
        let tallies = self.run(1, order.into_iter().map(Order::Batch))?;
        Ok(tallies.iter().map(|tally| tally.bytes).sum())
    }

    /// Throughputs of one process that reads and writes buffers at random places of the usual batch's
    /// files, whose input is there and not in memory: MiB/s, if there is more than one buffer.
    ///
    /// # Errors
    /// If an operation fails.
    pub(crate) fn random(&mut self, case: &Case) -> Result<(Option<f64>, Option<f64>)> {
        let transfer_bytes = case.buffer_bytes.min(case.read_bytes() / 2);
        let speed = |tallies: &[Tally]| Some(Speed::of(tallies).mib_per_s);
        let order = |file: &str, write: bool, motion: Motion| {
            Order::Io(IoOrder {
                file: format!("{}/0/{file}", self.dir),
                write,
                motion,
                fresh: write && motion == Motion::Sequential,
                offset: 0,
                bytes: case.read_bytes(),
                transfer_bytes,
                limit_ms: u64::MAX,
                fsync: false,
                seed: 0x9e37_79b9_7f4a_7c15,
            })
        };
        let (read, fill, write) = (
            order("in.0", false, Motion::Random),
            order("out.0", true, Motion::Sequential),
            order("out.0", true, Motion::Random),
        );
        let read = speed(&self.workers.run(&[read])?);
        self.workers.run(&[fill])?;
        let write = speed(&self.workers.run(&[write])?);
        self.step(case, BatchStep::ClearOutput)?;
        Ok((read, write))
    }

    /// Operations on names by all processes of a batch together, each in its own directory beside its
    /// files: seconds of all for each.
    ///
    /// # Errors
    /// If an operation fails.
    pub(crate) fn names(&mut self, case: &Case, files: u64) -> Result<Names> {
        // Names as of outputs, all of which go if the work is stopped.
        let all = Case { pattern: Pattern::Split, files, ..case.clone() };
        let kinds = [MdKind::Create, MdKind::Stat, MdKind::OpenClose, MdKind::Remove];
        let mut seconds = [0.0; 4];
        self.step(&all, BatchStep::ClearOutput)?;
        for (kind, seconds) in kinds.into_iter().zip(&mut seconds) {
            let order = |process| {
                Order::Md(MdOrder {
                    kind,
                    dir: format!("{}/{process}", self.dir),
                    prefix: "out.".to_owned(),
                    files,
                    limit_ms: u64::MAX,
                })
            };
            let orders: Vec<Order> = (0..case.all()).map(order).collect();
            let tallies = self.run(case.nodes, orders.into_iter())?;
            *seconds = 1.0 / Speed::of(&tallies).operations_per_s;
        }
        let [create_s, stat_s, open_s, unlink_s] = seconds;
        Ok(Names { create_s, stat_s, open_s, unlink_s })
    }

    /// Leaves the files of a batch where they are.
    ///
    /// # Errors
    /// If a worker is gone.
    pub(crate) fn let_go(&mut self, case: &Case) -> Result<()> {
        self.step(case, BatchStep::LetGo).map(drop)
    }

    /// Removes all files of a batch.
    ///
    /// # Errors
    /// If a worker is gone.
    pub(crate) fn clear(&mut self, case: &Case) -> Result<()> {
        self.step(case, BatchStep::Clear).map(drop)
    }
}

/// The number of the worker that has an order for so many of all nodes: the workers of all nodes come first, one
/// of each, then the second ones.
fn worker_of(index: usize, nodes: usize, all_nodes: usize) -> usize {
    let nodes = nodes.max(1);
    index / nodes * all_nodes + index % nodes
}

/// The longest of the nodes' times: each has a clock of its own, and begins when it is told to.
fn seconds_of(tallies: &[Tally], nodes: usize) -> f64 {
    let of_node = |node: usize| {
        let of_it = || tallies.iter().skip(node).step_by(nodes);
        let start = of_it().map(|tally| tally.start_ns).min().unwrap_or(0);
        let end = of_it().map(|tally| tally.end_ns).max().unwrap_or(0);
        end.saturating_sub(start).max(1) as f64 / 1e9
    };
    (0..nodes).map(of_node).fold(0.0, f64::max)
}

fn spent_of(tallies: &[Tally]) -> Spent {
    let mean = |what: fn(&Tally) -> u64| {
        tallies.iter().map(|tally| what(tally) as f64 / 1e9).sum::<f64>()
            / tallies.len().max(1) as f64
    };
    Spent {
        open_s: mean(|tally| tally.spent.open_ns),
        create_s: mean(|tally| tally.spent.create_ns),
        read_s: mean(|tally| tally.spent.read_ns),
        write_s: mean(|tally| tally.spent.write_ns),
        flush_s: mean(|tally| tally.spent.flush_ns),
        sync_s: mean(|tally| tally.spent.sync_ns),
        close_s: mean(|tally| tally.spent.close_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_fewer_nodes_stay_on_those() {
        let workers = |nodes| (0..4).map(|index| worker_of(index, nodes, 2)).collect::<Vec<_>>();
        assert_eq!(workers(2), [0, 1, 2, 3]);
        assert_eq!(workers(1), [0, 2, 4, 6], "all of the first node");
    }

    #[test]
    fn a_run_ends_with_the_last_process_of_the_slowest_node() {
        let tally = |start_ns, end_ns| Tally { start_ns, end_ns, ..Tally::default() };
        // Two nodes whose clocks have nothing to do with each other.
        let tallies = [
            tally(0, 2_000_000_000),
            tally(900, 1_000),
            tally(1_000_000_000, 3_000_000_000),
            tally(0, 5),
        ];
        assert!((seconds_of(&tallies, 2) - 3.0).abs() < 1e-9);
        assert!((seconds_of(&tallies[..1], 1) - 2.0).abs() < 1e-9);
    }
}
