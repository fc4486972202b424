//! The processor time that operations cost: on the side of those who ask for them, and in engines.
//! Owns whose time is counted; the kernel counts it.

use anyhow::{Context as _, Result};
use azekura_proto::EngineId;
use azekura_proto::pool_map::Address;

use super::sheet::{CpuPerOperation, Series, figure};
use super::site::Site;
use crate::host::cpu_time::{CpuTimes, with_descendants};
use crate::host::{mounts, places};
use crate::load::{Backend, Order, Speed, Tally, WorkerPool};
use crate::{asking, connect};

/// Whose time is counted while workers run.
#[derive(Clone, Debug)]
pub(super) struct CpuMeter {
    // Processes that serve the workers without having been started by them, or by which they were.
    serving: Vec<u32>,
    engines: Option<Vec<u32>>,
}

impl CpuMeter {
    /// For a bench: its pool's engines, or the mount that its directory is in and what is behind that.
    ///
    /// # Errors
    /// If the pool's engines do not answer.
    pub(super) fn of(site: &Site) -> Result<Self> {
        match &site.backend {
            Backend::Pool { pool, .. } => {
                Ok(Self { serving: Vec::new(), engines: engines_of(pool)? })
            }
            Backend::Path(dir) => {
                let Some(mount) = mounts::above(&places::absolute(dir.as_ref())?)? else {
                    return Ok(Self::of_workers(&[]));
                };
                let serving: Vec<u32> = mounts::server_of(&mount.dir).into_iter().collect();
                let engines = engines_of(&mount.pool)?;
                Ok(Self { serving, engines })
            }
        }
    }

    /// For workers that no engine serves, and processes that do.
    pub(super) fn of_workers(serving: &[u32]) -> Self {
        Self { serving: serving.to_vec(), engines: None }
    }

    /// For pairs of workers that talk to each other, of which one does an engine's part: the first or
    /// the second one.
    pub(super) fn of_pairs(workers: &WorkerPool, engine: usize) -> Self {
        let engines = workers.processes().into_iter().skip(engine).step_by(2).collect();
        Self { serving: Vec::new(), engines: Some(engines) }
    }

    /// Runs orders as [`WorkerPool::run`] does, and counts from when all are prepared until all are done.
    ///
    /// # Errors
    /// The first failure of a worker.
    pub(super) fn run(
        &self,
        workers: &mut WorkerPool,
        orders: &[Order],
    ) -> Result<(Vec<Tally>, CpuTaken)> {
        let engines = self.engines.clone().unwrap_or_default();
        let mut clients = with_descendants(&workers.processes());
        clients.extend(&self.serving);
        clients.retain(|process| !engines.contains(process));
        let mut marks = Vec::with_capacity(2);
        let tallies = workers.run_marked(orders, &mut || {
            marks.push((CpuTimes::of(&clients), CpuTimes::of(&engines)));
        })?;
        let [before, after] = marks.as_slice() else { anyhow::bail!("workers did not begin") };
        let engine_ns = self.engines.as_ref().map(|_| after.1.since_ns(&before.1));
        Ok((tallies, CpuTaken { client_ns: after.0.since_ns(&before.0), engine_ns }))
    }
}

/// Processor time that both sides have taken, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuTaken {
    client_ns: u64,
    engine_ns: Option<u64>,
}

impl CpuTaken {
    /// For each operation of these workers.
    pub(super) fn per_operation(self, tallies: &[Tally]) -> CpuPerOperation {
        let operations = tallies.iter().map(|tally| tally.operations).sum::<u64>().max(1) as f64;
        let us = |taken_ns: u64| taken_ns as f64 / 1000.0 / operations;
        CpuPerOperation { client_us: us(self.client_ns), engine_us: self.engine_ns.map(us) }
    }
}

/// Runs orders, and counts where a meter is there.
///
/// # Errors
/// The first failure of a worker.
pub(super) fn run_counted(
    meter: Option<&CpuMeter>,
    workers: &mut WorkerPool,
    orders: &[Order],
) -> Result<(Vec<Tally>, Option<CpuTaken>)> {
    Ok(match meter {
        Some(meter) => {
            let (tallies, cpu) = meter.run(workers, orders)?;
            (tallies, Some(cpu))
        }
        None => (workers.run(orders)?, None),
    })
}

/// Does one round of a row; gives back its figure.
///
/// # Errors
/// The first failure of a worker.
pub(super) fn measure_round(
    series: &mut Series,
    meter: Option<&CpuMeter>,
    workers: &mut WorkerPool,
    orders: &[Order],
) -> Result<f64> {
    let (tallies, cpu) = run_counted(meter, workers, orders)?;
    let value = figure(Speed::of(&tallies), series.unit);
    series.values.push(value);
    series.cpu.extend(cpu.map(|taken| taken.per_operation(&tallies)));
    Ok(value)
}

/// The processes of a pool's engines; `None` if one of them is not on this host.
fn engines_of(pool: &str) -> Result<Option<Vec<u32>>> {
    let file = connect::pool_file(pool)?;
    let secret = file.secret()?;
    let mut processes = Vec::with_capacity(file.map.engines.len());
    for engine in 0..file.map.engines.len() {
        let engine = EngineId(u16::try_from(engine).context("too many engines")?);
        match asking::ask_engine(&file.map, engine, &secret)? {
            (Address::Unix(_), report) => processes.push(report.pid),
            (Address::Tcp(_), _) => return Ok(None),
        }
    }
    Ok(Some(processes))
}
