//! Measures the references beside the figures: the same number of bare processes, at the same time,
//! on the same machine.

use anyhow::Result;

use super::cpu::{CpuMeter, run_counted};
use super::sheet::{CpuPerOperation, Series, Unit, figure};
use crate::host::programs;
use crate::load::{Backend, Order, ScratchDir, Speed, WorkerPool};

/// What a figure of the native path is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bare {
    /// Small messages to and fro.
    PingPong,
    /// A file sent with `sendfile` to a reader.
    SendfileStream,
    /// A stream read and written to a file.
    SocketToFileStream,
}

impl Bare {
    /// The name of its row.
    fn name(self) -> &'static str {
        match self {
            Self::PingPong => "ref_ping_pong",
            Self::SendfileStream => "ref_sendfile_stream",
            Self::SocketToFileStream => "ref_socket_to_file_stream",
        }
    }

    /// What it is counted in.
    fn unit(self) -> Unit {
        match self {
            Self::PingPong => Unit::RoundTrips,
            Self::SendfileStream | Self::SocketToFileStream => Unit::Mib,
        }
    }
}

/// Pairs of bare processes.
pub(super) struct References {
    workers: WorkerPool,
    scratch: ScratchDir,
    pairs: usize,
    bytes: u64,
    limit_ms: u64,
}

impl References {
    /// As many pairs as the bench has processes; streams of `bytes` in all.
    fn start(pairs: usize, bytes: u64, limit_ms: u64) -> Result<Self> {
        Ok(Self {
            workers: WorkerPool::start(&programs::own()?, 2 * pairs)?,
            scratch: ScratchDir::make("reference")?,
            pairs,
            bytes: bytes / pairs as u64,
            limit_ms,
        })
    }

    /// Measures one; in its own unit.
    ///
    /// # Errors
    /// If a process fails.
    fn measure(&mut self, bare: Bare, with_cpu: bool) -> Result<(f64, Option<CpuPerOperation>)> {
        let mut orders = Vec::with_capacity(2 * self.pairs);
        for pair in 0..self.pairs {
            let socket = self.scratch.path(&format!("{pair}.sock"));
            let [listening, calling] = match bare {
                Bare::PingPong => [
                    Order::Pong { socket: socket.clone() },
                    Order::Ping { socket, limit_ms: self.limit_ms },
                ],
                Bare::SendfileStream => [
                    Order::Drain { socket: socket.clone() },
                    Order::SendFile {
                        socket,
                        file: self.scratch.path(&format!("{pair}.source")),
                        bytes: self.bytes,
                    },
                ],
                Bare::SocketToFileStream => [
                    Order::DrainToFile {
                        socket: socket.clone(),
                        file: self.scratch.path(&format!("{pair}.sink")),
                    },
                    Order::Pour { socket, bytes: self.bytes },
                ],
            };
            orders.extend([listening, calling]);
        }
        let engine = match bare {
            Bare::PingPong | Bare::SocketToFileStream => 0,
            Bare::SendfileStream => 1,
        };
        let meter = with_cpu.then(|| CpuMeter::of_pairs(&self.workers, engine));
        let (tallies, cpu) = run_counted(meter.as_ref(), &mut self.workers, &orders)?;
        // The side that ends last knows how long it took.
        let first = match bare {
            Bare::PingPong => 1,
            Bare::SendfileStream | Bare::SocketToFileStream => 0,
        };
        let counted: Vec<_> = tallies.iter().skip(first).step_by(2).copied().collect();
        let speed = Speed::of(&counted);
        let figure = match bare {
            Bare::PingPong => speed.operations_per_s,
            Bare::SendfileStream | Bare::SocketToFileStream => speed.mib_per_s,
        };
        Ok((figure, cpu.map(|taken| taken.per_operation(&counted))))
    }
}

/// What the figures of a run are held against: bare processes where it measures a pool, and memory
/// where it measures a directory.
pub(super) enum Baseline {
    Bare(References),
    Memory { workers: WorkerPool, _scratch: ScratchDir },
}

impl Baseline {
    /// Starts as many processes as the run has; `dirs` are those that it works in.
    pub(super) fn start(
        backend: &Backend,
        processes: usize,
        dirs: Vec<String>,
        stream_bytes: u64,
        limit_ms: u64,
    ) -> Result<Self> {
        Ok(match backend {
            Backend::Pool { .. } => {
                Self::Bare(References::start(processes, stream_bytes, limit_ms)?)
            }
            Backend::Path(_) => {
                let scratch = ScratchDir::make("memory")?;
                let mut workers = WorkerPool::start(&programs::own()?, processes)?;
                workers.run_all(&Order::Open(Backend::Path(scratch.dir())))?;
                workers.run(&[Order::MakeDirectories(dirs)])?;
                Self::Memory { workers, _scratch: scratch }
            }
        })
    }

    /// An empty row, with what it will be held against.
    pub(super) fn series(&self, name: String, unit: Unit, bare: Bare) -> Series {
        let (reference_name, reference_unit) = match self {
            Self::Bare(_) => (bare.name().to_owned(), bare.unit()),
            Self::Memory { .. } => (format!("ref_{name}"), unit),
        };
        Series::new(name, unit, &reference_name, reference_unit)
    }

    /// Measures what figures of these orders are held against, and puts it beside them.
    pub(super) fn measure(
        &mut self,
        bare: Bare,
        orders: &[Order],
        with_cpu: bool,
        series: &mut Series,
    ) -> Result<()> {
        let (value, cpu) = match self {
            Self::Bare(references) => references.measure(bare, with_cpu)?,
            Self::Memory { workers, .. } => {
                let meter = with_cpu.then(|| CpuMeter::of_workers(&[]));
                let (tallies, cpu) = run_counted(meter.as_ref(), workers, orders)?;
                let value = figure(Speed::of(&tallies), series.unit);
                (value, cpu.map(|taken| taken.per_operation(&tallies)))
            }
        };
        series.references.push(value);
        series.reference_cpu.extend(cpu);
        Ok(())
    }

    /// Does what is not measured, but has to be done before.
    pub(super) fn prepare(&mut self, orders: &[Order]) -> Result<()> {
        if let Self::Memory { workers, .. } = self {
            workers.run(orders)?;
        }
        Ok(())
    }
}
