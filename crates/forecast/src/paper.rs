//! Equations (1) to (9) of Kashiya, Hanai and Suzuki's grid-batch forecasting, as they are published, and
//! the forecast that follows from them. Owns nothing of the project's own model; constants come from a
//! calibration. Their "MB" are MiB.
//!
//! The paper prints (8) and (9) with a division by (1 - 1/N); only the product of (7) gives one process
//! its sequential throughput, and only that fits its figures, so it is what stands here.

use crate::bottleneck::{Bottleneck, Unforeseen};
use crate::calibration::Calibration;
use crate::job::{Pattern, Phase};
use crate::units::{Bytes, MibPerSecond, Seconds};

/// (1) `t_C`: the conventional estimate. `path` is `B_P`, or what takes its place in (8).
pub fn conventional(
    input: Bytes,
    output: Bytes,
    read: MibPerSecond,
    write: MibPerSecond,
    path: MibPerSecond,
) -> Seconds {
    input / read.min(path) + output / write.min(path)
}

/// (2) `F_I + F_O`, from the input and output of one process.
pub fn total_bytes(input: Bytes, output: Bytes, nodes: u32, processes: u32) -> Bytes {
    Bytes((input + output).0 * u64::from(nodes) * u64::from(processes))
}

/// (3) `N_F`, from the files of one process.
pub fn total_files(files: u64, nodes: u32, processes: u32) -> u64 {
    files * u64::from(nodes) * u64::from(processes)
}

/// (4) `t_S`, and with `C_O` and the files merged (5) `t_M`: metadata add to the conventional estimate.
pub fn with_files(conventional: Seconds, seconds_per_file: Seconds, files: f64) -> Seconds {
    conventional + seconds_per_file * files
}

/// `(F_I + F_O) / t`; (6) `T_RP` if the time is (1) with random throughputs.
pub fn throughput(input: Bytes, output: Bytes, time: Seconds) -> MibPerSecond {
    (input + output) / time
}

/// (7), (8), (9): throughput of `parallelism` processes in all, of which each finds the block beside its
/// last with the probability 1/N.
pub fn of_processes(
    sequential: MibPerSecond,
    random: MibPerSecond,
    parallelism: f64,
) -> MibPerSecond {
    let adjoining = 1.0 / parallelism;
    MibPerSecond(sequential.0 * adjoining + random.0 * (1.0 - adjoining))
}

/// What takes the place of `B_P` in (8): `min(B_CP N_CN, B_SP N_SN)`.
pub fn path_of_nodes(
    per_compute_node: MibPerSecond,
    compute_nodes: u32,
    per_storage_node: MibPerSecond,
    storage_nodes: u32,
) -> MibPerSecond {
    (per_compute_node * f64::from(compute_nodes)).min(per_storage_node * f64::from(storage_nodes))
}

/// The curve that the paper fits to measured throughputs: y = a/x + b.
pub fn fitted(a: f64, b: f64, parallelism: f64) -> f64 {
    a / parallelism + b
}

/// b of a curve with this a through the throughput of one process.
pub fn fitted_through(a: f64, alone: MibPerSecond) -> f64 {
    alone.0 - a
}

/// What the paper forecasts for a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Of the whole phase.
    pub seconds: Seconds,
    /// In and out together.
    pub throughput: MibPerSecond,
    /// What metadata have of one process's time alone, 0 to 1.
    pub metadata_share: f64,
    /// What reading has of that time, 0 to 1.
    pub reading_share: f64,
    /// Whether the path binds rather than the storage.
    pub path_binds: bool,
}

impl Estimate {
    /// What writing has of one process's time alone, 0 to 1.
    pub(crate) fn writing_share(&self) -> f64 {
        (1.0 - self.metadata_share - self.reading_share).max(0.0)
    }

    /// What has most of that time.
    pub(crate) fn bottleneck(&self) -> Bottleneck {
        let writing = self.writing_share();
        if self.metadata_share > self.reading_share.max(writing) {
            Bottleneck::Metadata
        } else if self.path_binds {
            Bottleneck::Path
        } else if self.reading_share > writing {
            Bottleneck::Reading
        } else {
            Bottleneck::Writing
        }
    }
}

/// Seconds for each file, and how many files one process has, as (4), (5) count them.
fn files_of(calibration: &Calibration, phase: &Phase, parallelism: f64) -> (Seconds, f64) {
    let costs = &calibration.metadata;
    let (cost, files) = match phase.pattern {
        Pattern::Split => (costs.split_s_per_file, phase.files_out),
        Pattern::Merge => (costs.merge_s_per_file, phase.files_in),
        Pattern::Simple | Pattern::Other => return (Seconds(0.0), 0.0),
    };
    (cost.map_or(Seconds(0.0), |cost| cost.value), phase.of_each(files, parallelism))
}

/// The conventional estimate (1) of a phase, for all of its bytes, as it was used before the paper.
pub fn conventional_of(calibration: &Calibration, phase: &Phase, nodes: u32) -> Seconds {
    let sequential = &calibration.sequential;
    let (read, write) = (sequential.read_mib_per_s.value, sequential.write_mib_per_s.value);
    let path = calibration.path_limit(nodes);
    conventional(phase.bytes_in, phase.written(), read, write, path)
}

/// The paper's forecast of a phase. One process: (1), (4) or (5). More: the fitted curve where the
/// calibration has one for the pattern, as in the paper's evaluation; (7), (8) or (9) where it has random
/// throughputs. As there, what one process has is computed for the data of one node.
///
/// # Errors
/// If there is neither a fit nor a random throughput for more than one process.
pub fn estimate(
    calibration: &Calibration,
    phase: &Phase,
    nodes: u32,
    processes: u32,
) -> Result<Estimate, Unforeseen> {
    let parallelism = f64::from(nodes) * f64::from(processes);
    let share = |bytes: Bytes| Bytes(bytes.0.div_ceil(u64::from(nodes)));
    let (input, output) = (share(phase.bytes_in), share(phase.written()));
    let path = calibration.path_limit(nodes);
    let (per_file, files) = files_of(calibration, phase, parallelism);
    let (read, write) =
        (calibration.sequential.read_mib_per_s.value, calibration.sequential.write_mib_per_s.value);
    let fit_of = |pattern| calibration.parallel.iter().find(|fit| fit.pattern == pattern);
    let one_way = fit_of(Pattern::Simple).filter(|_| parallelism > 1.0);
    // Where one process does not get what the storage has, the paper takes the curve's value instead.
    let alone =
        match one_way.and_then(|fit| Some(fit.a_mib_per_s.number() + fit.b_mib_per_s?.number())) {
            Some(alone) => (input + output) / MibPerSecond(alone),
            None => conventional(input, output, read, write, path),
        };
    let time = with_files(alone, per_file, files);
    let sequential = throughput(input, output, time);
    let throughput = if parallelism <= 1.0 {
        sequential
    } else if let Some(fit) = fit_of(phase.pattern) {
        let a = fit.a_mib_per_s.number();
        let b = fit.b_mib_per_s.map_or_else(|| fitted_through(a, sequential), |b| b.number());
        MibPerSecond(fitted(a, b, parallelism))
    } else {
        let random = calibration.random.as_ref().ok_or_else(|| Unforeseen {
            needs: format!(
                "the model 'paper' takes a [[parallel]] fit of the pattern '{}' or [random] \
                 throughputs for {parallelism} processes",
                phase.pattern
            ),
        })?;
        let (read, write) = (random.read_mib_per_s.value, random.write_mib_per_s.value);
        let time = with_files(conventional(input, output, read, write, path), per_file, files);
        of_processes(sequential, throughput(input, output, time), parallelism)
    };
    if throughput.0 <= 0.0 {
        return Err(Unforeseen {
            needs: format!(
                "its [[parallel]] fit gives {parallelism} processes no throughput at all"
            ),
        });
    }
    let total = phase.bytes_in + phase.written();
    let rates = [(input, read), (output, write)];
    let metadata_share = if time.0 > 0.0 { (per_file * files).0 / time.0 } else { 0.0 };
    // Where the curve's value stands for one process, the parts of (1) need not come to the time.
    let (reading, writing) = (input / read.min(path), output / write.min(path));
    let moving = if (reading + writing).0 > 0.0 { reading.0 / (reading + writing).0 } else { 0.0 };
    let reading_share = moving * (1.0 - metadata_share);
    Ok(Estimate {
        seconds: if total.0 == 0 { per_file * files } else { total / throughput },
        throughput,
        metadata_share,
        reading_share,
        path_binds: rates.iter().any(|(bytes, rate)| bytes.0 > 0 && path < *rate),
    })
}
