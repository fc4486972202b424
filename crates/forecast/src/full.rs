//! The project's own model of one phase, the default: how long reading, writing, computing and metadata
//! take for all processes together, and how much of that goes on at the same time. Owns the composition;
//! every constant is one of the calibration, and what that lacks is named in [`Parts::missing`].
//!
//! ```text
//! R     = F_I / T_read(n)                     cold or from memory, by what fits
//! W_a   = F_O / T_write(n)                    into memory, where there is write-back
//! W_d   = (F_O - memory) / sustained          once that is full
//! io    = max(both(R, W_a), both(R, W_d))     both(a, b) = max(a, b) + (1 - overlap) min(a, b)
//! move  = both(io without its records' cost, records' cost of this job + computing)
//! t     = start + both(move, names) + files
//! ```
//!
//! What files cost in turn was measured in whole runs, by their size and by processes: nothing of it goes on
//! beside the data. Operations on names of which only loops are known do.
//!
//! The overlap of reading and writing is not a constant: it follows from what n processes have reading,
//! writing and doing both, so it holds what streams do to each other as well.

use crate::bottleneck::{Bottleneck, Unforeseen};
use crate::calibration::{At, Calibration, Column};
use crate::job::{Access, Caches, Order, Pattern, Phase};
use crate::paper;
use crate::units::{Bytes, MibPerSecond, Seconds};

/// A phase, taken apart. All times are of all processes together, each as if nothing else was done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parts {
    pub(crate) total: Seconds,
    pub(crate) reading: Seconds,
    pub(crate) writing: Seconds,
    pub(crate) compute: Seconds,
    pub(crate) metadata: Seconds,
    pub(crate) start: Seconds,
    pub(crate) bottleneck: Bottleneck,
    /// Keys of the calibration that would have been needed.
    pub(crate) missing: Vec<&'static str>,
}

/// Where processes have this share of the most that any number of them had, more get no more.
const SATURATED: f64 = 0.9;

const ALONE: At = At { nodes: 1, processes: 1 };

/// What operations on names take.
struct Metadata {
    /// Known from loops, of which some goes on beside the data of other processes.
    names: Seconds,
    /// Known from whole runs over files of this size.
    files: Seconds,
}

/// A time, and what binds it.
struct Bound {
    time: Seconds,
    by: Bottleneck,
}

struct Model<'a> {
    calibration: &'a Calibration,
    phase: &'a Phase,
    at: At,
    missing: Vec<&'static str>,
}

/// Two works of which some goes on at the same time.
fn both(one: Seconds, other: Seconds, overlap: f64) -> Seconds {
    let (longer, shorter) = if one > other { (one, other) } else { (other, one) };
    longer + shorter * (1.0 - overlap.min(1.0))
}

/// What is left of two works that were measured together when one of them is known.
fn without(together: Seconds, known: Seconds, overlap: f64) -> Seconds {
    let apart = 1.0 - overlap.min(1.0);
    let longer = together.0 - apart * known.0;
    if longer >= known.0 {
        Seconds(longer)
    } else if apart > 0.0 {
        Seconds(((together.0 - known.0) / apart).clamp(0.0, known.0))
    } else {
        together
    }
}

/// Takes a phase apart.
///
/// # Errors
/// If the calibration has nothing from which it could follow.
pub(crate) fn parts(
    calibration: &Calibration,
    phase: &Phase,
    nodes: u32,
    processes: u32,
) -> Result<Parts, Unforeseen> {
    let at = At { nodes, processes };
    Model { calibration, phase, at, missing: Vec::new() }.parts()
}

impl Model<'_> {
    fn parts(mut self) -> Result<Parts, Unforeseen> {
        if self.is_only_fitted() {
            return self.parts_by_fit();
        }
        let read_rate = self.read_rate()?;
        let write_rate = self.write_rate()?;
        let reading = self.reading(read_rate);
        let (absorbed, drained) = self.writing(write_rate);
        let overlap = self.overlap_of_reading_and_writing();
        let drain_overlap =
            self.calibration.overlap.write_back.map_or(overlap, |overlap| overlap.number());
        let moved = both(reading.time, absorbed.time, overlap);
        let held_up = both(reading.time, drained.time, drain_overlap);
        let io = if held_up > moved { held_up } else { moved };
        let (transfer, compute) = self.with_compute(io);
        let Metadata { names, files } = self.metadata();
        let aside = if self.at.all() > 1.0 {
            self.calibration.overlap.metadata.map_or(0.0, |share| share.number())
        } else {
            0.0
        };
        let start = self.calibration.metadata.start_s.map_or(Seconds(0.0), |start| start.value);
        let writing = if drained.time > absorbed.time { drained } else { absorbed };
        let mut longest = (Seconds(-1.0), Bottleneck::Reading);
        for (time, by) in [
            (reading.time, reading.by),
            (writing.time, writing.by),
            (compute, Bottleneck::Compute),
            (names + files + start, Bottleneck::Metadata),
        ] {
            if time > longest.0 {
                longest = (time, by);
            }
        }
        Ok(Parts {
            total: start + both(transfer, names, aside) + files,
            reading: reading.time,
            writing: writing.time,
            compute,
            metadata: names + files,
            start,
            bottleneck: longest.1,
            missing: self.missing,
        })
    }

    /// Whether of so many processes nothing is known but the paper's curve of the very pattern, which is one of
    /// sequential access.
    fn is_only_fitted(&self) -> bool {
        self.at.all() > 1.0
            && self.phase.access == Access::Sequential
            && self.calibration.streams.is_empty()
            && self.calibration.parallel.iter().any(|fit| fit.pattern == self.phase.pattern)
    }

    /// The curve has reading, writing and files in it; what computes is beside them.
    fn parts_by_fit(mut self) -> Result<Parts, Unforeseen> {
        let At { nodes, processes } = self.at;
        let estimate = paper::estimate(self.calibration, self.phase, nodes, processes)?;
        for reading in [true, false] {
            // The curves are of files in turn.
            self.share_when_gone_round(reading);
        }
        let (total, compute) = self.with_compute(estimate.seconds);
        let bottleneck =
            if compute > estimate.seconds { Bottleneck::Compute } else { estimate.bottleneck() };
        Ok(Parts {
            total,
            reading: estimate.seconds * estimate.reading_share,
            writing: estimate.seconds * estimate.writing_share(),
            compute,
            metadata: estimate.seconds * estimate.metadata_share,
            start: Seconds(0.0),
            bottleneck,
            missing: self.missing,
        })
    }

    /// Moving data together with what this job computes, and that alone.
    fn with_compute(&self, io: Seconds) -> (Seconds, Seconds) {
        let (usual, compute) = self.compute();
        let overlap = self.calibration.overlap.compute.map_or(0.0, |share| share.number());
        (both(without(io, usual, overlap), compute, overlap), compute)
    }

    fn is_cached(&self) -> bool {
        let all = self.phase.bytes_in + self.phase.written();
        self.phase.caches == Caches::Warm && self.calibration.is_in_memory(all, self.at.nodes)
    }

    /// How a throughput grows with processes where only the paper's fit tells.
    fn growth_by_fit(&self) -> Option<f64> {
        let fits = &self.calibration.parallel;
        let fit = fits.iter().find(|fit| fit.pattern == Pattern::Simple)?;
        let (a, b) = (fit.a_mib_per_s.number(), fit.b_mib_per_s?.number());
        Some(((a / self.at.all() + b) / (a + b)).max(f64::MIN_POSITIVE))
    }

    /// The throughput of one direction, before files are gone round.
    fn rate(&mut self, column: Column, alone: f64, key: &'static str) -> f64 {
        if let Some(rate) = self.calibration.rate(column, self.at) {
            return rate;
        }
        if self.at.all() <= 1.0 {
            return alone;
        }
        self.missing.push(key);
        alone * self.growth_by_fit().unwrap_or(1.0)
    }

    fn random(&self) -> Result<(f64, f64), Unforeseen> {
        let random = self.calibration.random.as_ref().ok_or_else(|| Unforeseen {
            needs: "[random] throughputs are missing in the calibration, and the job's access is random"
                .to_owned(),
        })?;
        Ok((random.read_mib_per_s.number(), random.write_mib_per_s.number()))
    }

    fn read_rate(&mut self) -> Result<f64, Unforeseen> {
        if self.phase.bytes_in.0 == 0 {
            return Ok(f64::INFINITY);
        }
        let alone = self.calibration.sequential.read_mib_per_s.number();
        let cold = self.rate(Column::Read, alone, "streams.read_mib_per_s");
        if self.is_cached() {
            if let Some(rate) = self.calibration.rate(Column::CachedRead, self.at) {
                return Ok(rate);
            }
            self.missing.push("streams.cached_read_mib_per_s");
        } else if self.phase.access == Access::Random {
            let base = self.calibration.rate(Column::Read, ALONE).unwrap_or(alone);
            return Ok(self.random()?.0 * cold / base);
        }
        Ok(cold)
    }

    fn write_rate(&mut self) -> Result<f64, Unforeseen> {
        if self.phase.written().0 == 0 {
            return Ok(f64::INFINITY);
        }
        let alone = self.calibration.sequential.write_mib_per_s.number();
        let rate = self.rate(Column::Write, alone, "streams.write_mib_per_s");
        if self.phase.access == Access::Random {
            let base = self.calibration.rate(Column::Write, ALONE).unwrap_or(alone);
            return Ok(self.random()?.1 * rate / base);
        }
        Ok(rate)
    }

    /// The files that one process has open at a time, and goes round.
    fn gone_round(&self, files: u64) -> f64 {
        match self.phase.order {
            Order::RoundRobin => self.phase.of_each(files, self.at.all()).max(1.0),
            Order::Sequential => 1.0,
        }
    }

    /// The share of its throughput that a process keeps that goes round the files of one side.
    fn share_when_gone_round(&mut self, reading: bool) -> f64 {
        let (files, bytes, key) = if reading {
            (self.phase.files_in, self.phase.bytes_in, "interleaved.read_mib_per_s")
        } else {
            (self.phase.files_out, self.phase.written(), "interleaved.write_mib_per_s")
        };
        let files = self.gone_round(files);
        if files <= 1.0 || bytes.0 == 0 {
            return 1.0;
        }
        let share = self.calibration.share_when_interleaved(reading, files);
        if share.is_none() {
            self.missing.push(key);
        }
        share.unwrap_or(1.0)
    }

    fn reading(&mut self, rate: f64) -> Bound {
        let share = self.share_when_gone_round(true);
        let storage = rate * share;
        let path = self.calibration.path_limit(self.at.nodes).0;
        let bound = if self.is_cached() { storage } else { storage.min(path) };
        let by = if bound < storage {
            Bottleneck::Path
        } else if self.is_saturated(Column::Read, rate) && !self.is_cached() {
            Bottleneck::Server
        } else {
            Bottleneck::Reading
        };
        Bound { time: time_of(self.phase.bytes_in, bound), by }
    }

    /// Into memory (or all the way, where nothing is taken in), and after memory is full.
    fn writing(&mut self, rate: f64) -> (Bound, Bound) {
        let share = self.share_when_gone_round(false);
        let taken = rate * share;
        let path = self.calibration.path_limit(self.at.nodes).0;
        let written = self.phase.written();
        let Some(memory) = self.calibration.write_back else {
            let bound = taken.min(path);
            let by = if bound < taken {
                Bottleneck::Path
            } else if self.is_saturated(Column::Write, rate) {
                Bottleneck::Server
            } else {
                Bottleneck::Writing
            };
            let nothing = Bound { time: Seconds(0.0), by: Bottleneck::Server };
            return (Bound { time: time_of(written, bound), by }, nothing);
        };
        let sustained = memory.sustained_mib_per_s.number();
        let kept = memory.node_mib.number() * f64::from(self.at.nodes);
        let rest = (written.mib() - kept).max(0.0);
        let by = if path < sustained { Bottleneck::Path } else { Bottleneck::Server };
        (
            Bound { time: time_of(written, taken), by: Bottleneck::Writing },
            Bound { time: Seconds(rest / sustained.min(path)), by },
        )
    }

    /// Whether several processes have about all that any number of them had.
    fn is_saturated(&self, column: Column, rate: f64) -> bool {
        let range = self.calibration.range.processes;
        let most = At { processes: range.most as u32, ..self.at };
        let at_most = self.calibration.rate(column, most);
        self.at.all() > 1.0 && at_most.is_some_and(|most| rate >= SATURATED * most)
    }

    fn overlap_of_reading_and_writing(&self) -> f64 {
        let (read, mixed) = if self.is_cached() {
            (Column::CachedRead, Column::CachedMixed)
        } else {
            (Column::Read, Column::Mixed)
        };
        let rate = |column| self.calibration.rate(column, self.at);
        match (rate(read), rate(Column::Write), rate(mixed)) {
            (Some(read), Some(write), Some(mixed)) => {
                crate::fit::overlap(1.0 / read, 1.0 / write, 2.0 / mixed)
            }
            _ => 0.0,
        }
    }

    /// Processor time that the measured throughputs have in them, and that of this job.
    fn compute(&self) -> (Seconds, Seconds) {
        let (phase, made) = (self.phase, &self.calibration.made);
        let cpu = &self.calibration.cpu;
        let (input, output) = (phase.bytes_in, phase.written());
        let at_once = self.at.all().min(f64::from(made.machine.processors * self.at.nodes));
        let number = |cost: Option<crate::measured::Measured<Seconds>>| {
            cost.map_or(0.0, |cost| cost.number())
        };
        let cost = |record: f64, buffer: f64, files: [f64; 2]| {
            let (input, output) = (input.0 as f64, output.0 as f64);
            input / record * number(cpu.record_read_s)
                + output / record * number(cpu.record_written_s)
                + (input / buffer).max(files[0]) * number(cpu.request_read_s)
                + (output / buffer).max(files[1]) * number(cpu.request_written_s)
        };
        let usual = cost(made.record_bytes.0 as f64, made.buffer_bytes.0 as f64, [0.0; 2]);
        let all = |files| phase.of_each(files, self.at.all()) * self.at.all();
        let files = [(input, phase.files_in), (output, phase.files_out)]
            .map(|(bytes, files)| if bytes.0 > 0 { all(files) } else { 0.0 });
        let here = cost(phase.record_bytes.0 as f64, phase.buffer_bytes.0 as f64, files);
        let main = if input.0 > 0 { input } else { output };
        let own = main.0 as f64 * phase.compute_s_per_byte.0
            + phase.records(main) * phase.compute_s_per_record.0;
        (Seconds(usual / at_once), Seconds((here + own) / at_once))
    }

    fn cost(
        &mut self,
        costs: [Option<crate::measured::Measured<Seconds>>; 2],
        key: &'static str,
    ) -> f64 {
        let found = costs.into_iter().flatten().next();
        if found.is_none() {
            self.missing.push(key);
        }
        found.map_or(0.0, |cost| cost.number())
    }

    /// All operations on names. What processes do at the same time is measured for creating and
    /// opening; of the others nothing is known, and they follow opening.
    fn metadata(&mut self) -> Metadata {
        let all = self.at.all();
        let growth = |column| {
            let rate = |at| self.calibration.rate(column, at);
            match (rate(self.at), rate(ALONE)) {
                (Some(together), Some(alone)) => together / alone,
                _ => 1.0,
            }
        };
        let (creating, opening) = (growth(Column::Create), growth(Column::Open));
        let costs = self.calibration.metadata;
        let files_in = self.phase.of_each(self.phase.files_in, all) * all;
        let files_out = self.phase.of_each(self.phase.files_out, all) * all;
        // The first file of each process is in the time of a run that does nothing.
        let further = |files: f64| (files - all).max(0.0);
        let mut total = 0.0;
        if let Some(counts) = self.phase.operations {
            let of = |count| self.phase.of_each(count, all) * all;
            for (count, cost, also, key, growth) in [
                (
                    counts.create,
                    costs.create_s,
                    costs.split_s_per_file,
                    "metadata.create_s",
                    creating,
                ),
                (counts.open, costs.open_s, costs.merge_s_per_file, "metadata.open_s", opening),
                (counts.stat, costs.stat_s, None, "metadata.stat_s", opening),
                (counts.close, costs.close_s, None, "metadata.close_s", opening),
                (counts.unlink, costs.unlink_s, None, "metadata.unlink_s", creating),
            ] {
                if count > 0 {
                    total += of(count) * self.cost([cost, also], key) / growth;
                }
            }
            return Metadata { names: Seconds(total), files: Seconds(0.0) };
        }
        let (split, merged) = match self.phase.pattern {
            Pattern::Split => (files_out, further(files_in)),
            Pattern::Merge => (further(files_out), files_in),
            Pattern::Simple | Pattern::Other => (further(files_out), further(files_in)),
        };
        let mut measured = 0.0;
        if split > 0.0 {
            let empty = costs.create_s.map(|cost| cost.number() / creating);
            if let Some(cost) = self.cost_by_size(false, files_out, empty) {
                measured += further(files_out) * cost;
            } else {
                let costs = [costs.split_s_per_file, costs.create_s];
                total += split * self.cost(costs, "metadata.split_s_per_file") / creating;
            }
        }
        if merged > 0.0 {
            let empty = costs.open_s.map(|cost| cost.number() / opening);
            if let Some(cost) = self.cost_by_size(true, files_in, empty) {
                measured += further(files_in) * cost;
            } else {
                let costs = [costs.merge_s_per_file, costs.open_s];
                total += merged * self.cost(costs, "metadata.merge_s_per_file") / opening;
            }
        }
        Metadata { names: Seconds(total), files: Seconds(measured) }
    }

    /// What a file costs of which there are so many; `empty`: one without data, and one in memory, for which
    /// nobody waits. Files that are gone round are all open at once, and what going round costs beside that is in
    /// their throughput.
    fn cost_by_size(&self, reading: bool, files: f64, empty: Option<f64>) -> Option<f64> {
        let bytes = if reading { self.phase.bytes_in } else { self.phase.written() };
        let size = bytes.0 as f64 / files.max(1.0);
        let least = empty.unwrap_or(0.0);
        let cost = self.calibration.file_cost(reading, self.at, size, least)?;
        let is_in_memory = reading && self.is_cached();
        let waits = self.phase.order == Order::Sequential && !is_in_memory;
        Some(if waits { cost } else { empty.unwrap_or(cost) })
    }
}

fn time_of(bytes: Bytes, rate: f64) -> Seconds {
    if bytes.0 == 0 { Seconds(0.0) } else { bytes / MibPerSecond(rate) }
}
