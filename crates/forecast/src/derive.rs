//! From measured runs to a calibration: which runs give which value is in the crate's page. Owns how values
//! are taken out of times that have several things in them. Where runs are missing the value is absent, and
//! a forecast that needs it says so.
//!
//! The middle of the repetitions stands for a run, since what disturbs a machine makes runs longer and never
//! shorter; their spread stays that of all.

use crate::calibration::{
    Cache, Calibration, Cpu, FORMAT, Interleaved, Made, Metadata, Model, Overlaps, Parallel, Paths,
    Ranges, Span, Streams, Throughput,
};
use crate::fit::{Line, overlap as overlap_of};
use crate::job::{Caches, Order, Pattern, Phase};
use crate::measured::Measured;
use crate::runs::Run;
use crate::units::{Bytes, MibPerSecond, Overlap, PerSecond, Quantity, Seconds};
use crate::verify::residual;

/// What cannot be in a run of the batch I/O program, measured beside it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// `T_RR` and `T_RW`, in MiB/s.
    pub random_read: Vec<f64>,
    /// The same for writing.
    pub random_write: Vec<f64>,
    /// Loops over names.
    pub loops: Vec<Loops>,
}

/// Loops over names of so many processes: seconds of all together for each operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loops {
    /// Nodes, and processes of each.
    pub crew: (u32, u32),
    /// Creating and closing a file.
    pub create_s: Vec<f64>,
    /// Asking for attributes.
    pub stat_s: Vec<f64>,
    /// Opening and closing a file.
    pub open_s: Vec<f64>,
    /// Removing a file.
    pub unlink_s: Vec<f64>,
}

impl Beside {
    fn of(&self, nodes: u32, processes: u32) -> Option<&Loops> {
        self.loops.iter().find(|loops| loops.crew == (nodes, processes))
    }
}

/// Less than this a file does not cost, in seconds: below it is what the clock and the line make.
const FILE_S_MIN: f64 = 1e-7;
/// A second reading is from memory if it takes less than this share of the first.
const FROM_MEMORY: f64 = 0.8;
/// Rounds in which writing and its overlap with reading are found from each other.
const ROUNDS: usize = 8;

/// The middle of some numbers, with their spread.
fn middle<Q: Quantity>(numbers: &[f64]) -> Option<Measured<Q>> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let median = f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]);
    Some(Measured { value: Q::of(median), ..Measured::of(numbers)? })
}

/// The middle of a run's repetitions, in seconds.
fn typical(run: &Run) -> f64 {
    middle::<Seconds>(&run.seconds).map_or(f64::NAN, |seconds| seconds.number())
}

/// A run's spread as a share of its time.
fn spread(run: &Run) -> f64 {
    middle::<Seconds>(&run.seconds).map_or(0.0, |seconds| seconds.sd / seconds.number())
}

/// A throughput with the relative spread of the run that it comes from.
fn rate_of(run: &Run, bytes: Bytes, seconds: f64) -> Option<Measured<MibPerSecond>> {
    let rate = bytes.mib() / seconds;
    (rate > 0.0 && rate.is_finite()).then(|| Measured {
        value: MibPerSecond(rate),
        sd: rate * spread(run) * (typical(run) / seconds).max(1.0),
        runs: u32::try_from(run.seconds.len()).unwrap_or(1).max(1),
    })
}

/// How far the middle of a run's repetitions may be off, in seconds.
fn error_of(run: &Run) -> f64 {
    typical(run) * spread(run) / (run.seconds.len().max(1) as f64).sqrt()
}

/// How much a value counts that is known with an error, beside what is known otherwise.
fn known(value: f64, error: f64) -> f64 {
    value * value / (value * value + error * error).max(f64::MIN_POSITIVE)
}

fn ratio_of(phase: &Phase) -> f64 {
    phase.written().0 as f64 / phase.bytes_in.0.max(1) as f64
}

/// The runs, and what the usual one is.
struct Source<'a> {
    runs: &'a [Run],
    made: &'a Made,
    /// Bytes read by the usual run.
    usual: u64,
    start: f64,
    beside: &'a Beside,
}

/// What a run is asked for by.
#[derive(Clone, Copy)]
struct Wanted {
    pattern: Pattern,
    order: Order,
    files: u64,
    ratio: f64,
    caches: Caches,
    nodes: u32,
    processes: u32,
}

const SIMPLE: Wanted = Wanted {
    pattern: Pattern::Simple,
    order: Order::Sequential,
    files: 1,
    ratio: 0.0,
    caches: Caches::Cold,
    nodes: 1,
    processes: 1,
};

fn files_of(phase: &Phase) -> u64 {
    phase.files_in.max(phase.files_out)
}

fn phase_of(run: &Run) -> Option<&Phase> {
    run.job.phases.first()
}

impl<'a> Source<'a> {
    fn is_usual(&self, phase: &Phase) -> bool {
        phase.record_bytes == self.made.record_bytes && phase.buffer_bytes == self.made.buffer_bytes
    }

    /// Of several that fit, the one whose size is nearest to the usual.
    fn find(&self, wanted: Wanted) -> Option<&'a Run> {
        let fits = |run: &&Run| {
            phase_of(run).is_some_and(|phase| {
                self.is_usual(phase)
                    && phase.pattern == wanted.pattern
                    && phase.order == wanted.order
                    && files_of(phase) == wanted.files
                    && (ratio_of(phase) - wanted.ratio).abs() < 0.01 * wanted.ratio.max(1.0)
                    && phase.caches == wanted.caches
                    && (run.job.nodes, run.job.processes) == (wanted.nodes, wanted.processes)
            })
        };
        let far = |run: &&Run| {
            phase_of(run).map_or(u64::MAX, |phase| phase.bytes_in.0.abs_diff(self.usual))
        };
        self.runs.iter().filter(fits).min_by_key(far)
    }

    /// Numbers of nodes and processes that were measured, in order.
    fn crews(&self) -> Vec<(u32, u32)> {
        let mut crews: Vec<_> =
            self.runs.iter().map(|run| (run.job.nodes, run.job.processes)).collect();
        crews.sort_unstable();
        crews.dedup();
        crews
    }

    fn less_start(&self, run: &Run) -> f64 {
        (typical(run) - self.start).max(0.1 * typical(run))
    }

    /// A highest ratio that was run by so many, which is nearly all writing.
    fn mostly_writing(&self, nodes: u32, processes: u32) -> Option<&'a Run> {
        let ratio = |run: &&Run| phase_of(run).map_or(0.0, ratio_of);
        self.runs
            .iter()
            .filter(|run| (run.job.nodes, run.job.processes) == (nodes, processes))
            .filter(|run| {
                phase_of(run).is_some_and(|phase| {
                    phase.pattern == Pattern::Simple
                        && phase.caches == Caches::Cold
                        && self.is_usual(phase)
                })
            })
            .filter(|run| ratio(run) > 1.01)
            .max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
    }

    /// The run of a pattern with most files, in turn, and that with one file and the same data.
    fn many_and_one(
        &self,
        pattern: Pattern,
        nodes: u32,
        processes: u32,
    ) -> Option<(&'a Run, &'a Run)> {
        let simple = self.find(Wanted { ratio: 1.0, nodes, processes, ..SIMPLE })?;
        let many = self
            .runs
            .iter()
            .filter(|run| (run.job.nodes, run.job.processes) == (nodes, processes))
            .filter(|run| {
                phase_of(run).is_some_and(|phase| {
                    phase.pattern == pattern
                        && phase.order == Order::Sequential
                        && self.is_usual(phase)
                        && (ratio_of(phase) - 1.0).abs() < 0.01
                })
            })
            .max_by_key(|run| phase_of(run).map_or(0, files_of))?;
        Some((many, simple))
    }

    /// What a process alone takes for a file beside its data, in seconds: from the run with most files. Where
    /// the difference is lost in what runs differ anyway, what a loop over names takes counts more.
    fn file_cost(&self, pattern: Pattern) -> Option<f64> {
        let (many, simple) = self.many_and_one(pattern, 1, 1)?;
        let files = files_of(phase_of(many)?) as f64 - 1.0;
        if files <= 0.0 {
            return None;
        }
        let found = (self.less_start(many) - self.less_start(simple)) / files;
        let error = error_of(simple).hypot(error_of(many)) / files;
        let loops = self.beside.of(1, 1);
        let loops =
            loops.map(|one| if pattern == Pattern::Split { &one.create_s } else { &one.open_s });
        let otherwise = loops.and_then(|loops| middle::<Seconds>(loops));
        let otherwise = otherwise.map_or(found, |seconds| seconds.number());
        let known = if found > 0.0 { known(found, error) } else { 0.0 };
        Some((known * found + (1.0 - known) * otherwise).max(FILE_S_MIN))
    }

    /// How much of the work on names of several processes goes on during that on data: of all crews and
    /// patterns together, for each alone is little beside what runs differ anyway.
    fn overlap_of_metadata(&self) -> Option<Measured<Overlap>> {
        let (mut saved, mut shorter, mut squares) = (0.0, 0.0, 0.0);
        for (nodes, processes) in self.crews() {
            let all = f64::from(nodes) * f64::from(processes);
            if all <= 1.0 {
                continue;
            }
            for pattern in [Pattern::Split, Pattern::Merge] {
                let both = self.many_and_one(pattern, nodes, processes);
                let cost = self.file_cost(pattern).zip(self.growth(pattern, nodes, processes));
                let Some(((many, simple), (cost, growth))) = both.zip(cost) else { continue };
                let Some(phase) = phase_of(many) else { continue };
                let names = (files_of(phase) as f64 - 1.0) * all * cost / growth;
                let data = self.less_start(simple);
                saved += data + names - self.less_start(many);
                shorter += data.min(names);
                squares += error_of(simple).powi(2) + error_of(many).powi(2);
            }
        }
        if shorter <= 0.0 {
            return None;
        }
        let share = (saved / shorter * known(shorter, squares.sqrt())).clamp(-1.0, 1.0);
        Some(Measured::exactly(share))
    }

    /// How many times as many names a second so many processes work on as one does.
    fn growth(&self, pattern: Pattern, nodes: u32, processes: u32) -> Option<f64> {
        let of = |nodes, processes| {
            let loops = self.beside.of(nodes, processes)?;
            let seconds = if pattern == Pattern::Split { &loops.create_s } else { &loops.open_s };
            Some(middle::<Seconds>(seconds)?.number())
        };
        Some(of(1, 1)? / of(nodes, processes)?)
    }

    fn streams(&self, nodes: u32, processes: u32) -> Streams {
        let at = Wanted { nodes, processes, ..SIMPLE };
        let bytes = |run: &Run| phase_of(run).map_or(Bytes(0), |phase| phase.bytes_in);
        let all =
            |run: &Run| phase_of(run).map_or(Bytes(0), |phase| phase.bytes_in + phase.written());
        let read = self.find(at);
        let mixed = self.find(Wanted { ratio: 1.0, ..at });
        let read_rate = read.and_then(|run| rate_of(run, bytes(run), self.less_start(run)));
        let write_rate = self.write_rate(read_rate, mixed, nodes, processes);
        let warm = |ratio| self.find(Wanted { ratio, caches: Caches::Warm, ..at });
        let loops = self.beside.of(nodes, processes);
        let per_second = |seconds: fn(&Loops) -> &Vec<f64>| {
            let rates: Vec<f64> = seconds(loops?).iter().map(|one| 1.0 / one).collect();
            middle::<PerSecond>(&rates)
        };
        Streams {
            nodes,
            processes,
            read_mib_per_s: read_rate,
            write_mib_per_s: write_rate,
            mixed_mib_per_s: mixed.and_then(|run| rate_of(run, all(run), self.less_start(run))),
            cached_read_mib_per_s: warm(0.0)
                .and_then(|run| rate_of(run, bytes(run), self.less_start(run))),
            cached_mixed_mib_per_s: warm(1.0)
                .and_then(|run| rate_of(run, all(run), self.less_start(run))),
            create_per_s: per_second(|one| &one.create_s),
            open_per_s: per_second(|one| &one.open_s),
        }
    }

    /// Writing alone: a run that writes much and reads little, less what of the reading did not go on at the
    /// same time; how much that is follows from a run that does as much of both.
    fn write_rate(
        &self,
        read: Option<Measured<MibPerSecond>>,
        mixed: Option<&Run>,
        nodes: u32,
        processes: u32,
    ) -> Option<Measured<MibPerSecond>> {
        let read = read?.number();
        let run = self.mostly_writing(nodes, processes).or(mixed)?;
        let phase = phase_of(run)?;
        let (input, output) = (phase.bytes_in.mib(), phase.written());
        let mut share = 0.0;
        let mut seconds = self.less_start(run);
        for _ in 0..ROUNDS {
            let together = self.less_start(run);
            let reading = input / read;
            seconds = (together - (1.0 - share) * reading).max(0.1 * together);
            let Some(mixed) = mixed.and_then(|run| Some((run, phase_of(run)?))) else { break };
            let (read_s, write_s) =
                (mixed.1.bytes_in.mib() / read, mixed.1.written().mib() * seconds / output.mib());
            share = overlap_of(read_s, write_s, self.less_start(mixed.0)).clamp(-1.0, 1.0);
        }
        rate_of(run, output, seconds)
    }

    /// `C_C` and `C_O`: the slope of a line through the times over the files.
    fn slope(&self, pattern: Pattern) -> Option<Measured<Seconds>> {
        let simple = self.find(Wanted { ratio: 1.0, ..SIMPLE })?;
        let bytes = phase_of(simple)?.bytes_in;
        let mut points = vec![(1.0, typical(simple))];
        for run in self.runs {
            let Some(phase) = phase_of(run) else { continue };
            let alone = (run.job.nodes, run.job.processes) == (1, 1);
            let near = (ratio_of(phase) - 1.0).abs() < 0.01 && self.is_usual(phase);
            if alone && near && phase.pattern == pattern && phase.order == Order::Sequential {
                let scale = bytes.mib() / phase.bytes_in.mib();
                points.push((files_of(phase) as f64, typical(run) * scale));
            }
        }
        let line = Line::through(&points)?;
        let slope: Measured<Seconds> = line.measured_slope();
        Some(Measured { value: Seconds(slope.number().max(FILE_S_MIN)), ..slope })
    }

    /// Throughput of all parallelisms of a pattern, as the paper fits it.
    fn parallel(&self, pattern: Pattern) -> Option<Parallel> {
        let crews = self.crews();
        let points: Vec<(f64, f64)> = crews
            .iter()
            .filter_map(|(nodes, processes)| {
                let run = self.runs.iter().find(|run| {
                    (run.job.nodes, run.job.processes) == (*nodes, *processes)
                        && phase_of(run).is_some_and(|phase| {
                            phase.pattern == pattern
                                && (pattern == Pattern::Simple || files_of(phase) > 1)
                                && phase.order == Order::Sequential
                                && phase.caches == Caches::Cold
                                && (ratio_of(phase) - 1.0).abs() < 0.01
                                && self.is_usual(phase)
                        })
                })?;
                let phase = phase_of(run)?;
                let rate = (phase.bytes_in + phase.written()).mib() / typical(run);
                Some((f64::from(*nodes) * f64::from(*processes), rate))
            })
            .collect();
        let line = Line::over_inverse(&points)?;
        // A curve that falls to nothing is none.
        (line.intercept > 0.0).then(|| Parallel {
            pattern,
            a_mib_per_s: line.measured_slope(),
            b_mib_per_s: Some(line.measured_intercept()),
        })
    }

    /// One process that goes round its files.
    fn interleaved(&self, row: &Streams) -> Vec<Interleaved> {
        let (Some(read), Some(write)) = (row.read_mib_per_s, row.write_mib_per_s) else {
            return Vec::new();
        };
        let alone = |rate: Measured<MibPerSecond>| Measured { sd: 0.0, ..rate };
        let mut rows = vec![Interleaved {
            files: 1,
            read_mib_per_s: Some(alone(read)),
            write_mib_per_s: Some(alone(write)),
        }];
        let Some(simple) = self.find(Wanted { ratio: 1.0, ..SIMPLE }) else { return Vec::new() };
        for run in self.runs {
            let Some(phase) = phase_of(run) else { continue };
            let alone = (run.job.nodes, run.job.processes) == (1, 1);
            if !alone || phase.order != Order::RoundRobin || !self.is_usual(phase) {
                continue;
            }
            let files = files_of(phase);
            let cost = self.file_cost(phase.pattern).unwrap_or(0.0) * (files - 1) as f64;
            let Some(base) = phase_of(simple) else { continue };
            let one_way = self.less_start(simple) * phase.bytes_in.mib() / base.bytes_in.mib();
            // What it takes longer than in turn is put on the side that has the files.
            let more = (self.less_start(run) - cost - one_way).max(-0.5 * one_way);
            let (bytes, rate) = match phase.pattern {
                Pattern::Split => (phase.written(), write.number()),
                _ => (phase.bytes_in, read.number()),
            };
            let seconds = (bytes.mib() / rate + more).max(0.1 * bytes.mib() / rate);
            let rate = rate_of(run, bytes, seconds);
            let index = rows.iter().position(|row| row.files == files).unwrap_or_else(|| {
                rows.push(Interleaved { files, read_mib_per_s: None, write_mib_per_s: None });
                rows.len() - 1
            });
            match phase.pattern {
                Pattern::Split => rows[index].write_mib_per_s = rate,
                _ => rows[index].read_mib_per_s = rate,
            }
        }
        rows.sort_by_key(|row| row.files);
        if rows.len() > 1 { rows } else { Vec::new() }
    }

    /// The slope of time over records or requests, from warm runs of one process that vary only those.
    fn per_unit(&self, ratio: f64, length: impl Fn(&Phase) -> Bytes) -> Option<Measured<Seconds>> {
        let points: Vec<(f64, f64)> = self
            .runs
            .iter()
            .filter(|run| (run.job.nodes, run.job.processes) == (1, 1))
            .filter_map(|run| Some((run, phase_of(run)?)))
            .filter(|(_, phase)| {
                phase.pattern == Pattern::Simple
                    && phase.caches == Caches::Warm
                    && (ratio_of(phase) - ratio).abs() < 0.01
            })
            .map(|(run, phase)| {
                // For each byte, so that sizes need not be the same.
                (1.0 / length(phase).0 as f64, typical(run) / phase.bytes_in.0 as f64)
            })
            .collect();
        let line = Line::through(&points)?;
        (line.slope > 0.0).then(|| line.measured_slope())
    }

    fn cpu(&self) -> Cpu {
        let records = |phase: &Phase| phase.record_bytes;
        let buffers = |phase: &Phase| phase.buffer_bytes;
        let less = |both: Option<Measured<Seconds>>, one: Option<Measured<Seconds>>| {
            let (both, one) = (both?, one.map_or(0.0, |one| one.number()));
            Some(Measured { value: Seconds((both.number() - one).max(0.0)), ..both })
        };
        let only = |vary: fn(&Phase) -> Bytes, fixed: fn(&Phase, &Made) -> bool, ratio: f64| {
            let runs: Vec<Run> = self
                .runs
                .iter()
                .filter(|run| phase_of(run).is_some_and(|phase| fixed(phase, self.made)))
                .cloned()
                .collect();
            Source { runs: &runs, ..*self }.per_unit(ratio, vary)
        };
        let same_buffer = |phase: &Phase, made: &Made| phase.buffer_bytes == made.buffer_bytes;
        let same_record = |phase: &Phase, made: &Made| phase.record_bytes == made.record_bytes;
        let (record, record_both) =
            (only(records, same_buffer, 0.0), only(records, same_buffer, 1.0));
        let (request, request_both) =
            (only(buffers, same_record, 0.0), only(buffers, same_record, 1.0));
        Cpu {
            record_read_s: record,
            record_written_s: less(record_both, record),
            request_read_s: request,
            request_written_s: less(request_both, request),
        }
    }

    fn cache(&self) -> Option<Cache> {
        let from_memory = |run: &&Run| {
            let Some(phase) = phase_of(run) else { return false };
            let at = Wanted {
                ratio: ratio_of(phase),
                nodes: run.job.nodes,
                processes: run.job.processes,
                ..SIMPLE
            };
            let cold = self.find(at);
            phase.caches == Caches::Warm
                && cold.is_some_and(|cold| typical(run) < FROM_MEMORY * typical(cold))
        };
        let bytes = |run: &Run| phase_of(run).map(|phase| (phase.bytes_in + phase.written()).0);
        let most = self.runs.iter().filter(from_memory).filter_map(bytes).max()?;
        Some(Cache { node_bytes: Bytes(most) })
    }

    fn ranges(&self) -> Ranges {
        let span = |numbers: &dyn Fn(&Run, &Phase) -> u64| {
            let all = || self.runs.iter().filter_map(|run| Some(numbers(run, phase_of(run)?)));
            let least = all().min().unwrap_or(1).max(1);
            Span { least, most: all().max().unwrap_or(1).max(least) }
        };
        Ranges {
            files: span(&|_, phase| files_of(phase)),
            bytes: span(&|_, phase| (phase.bytes_in + phase.written()).0),
            processes: span(&|run, _| run.job.processes.into()),
            nodes: span(&|run, _| run.job.nodes.into()),
            record_bytes: span(&|_, phase| phase.record_bytes.0),
            buffer_bytes: span(&|_, phase| phase.buffer_bytes.0),
        }
    }
}

/// What a run takes whatever it does: the intercept of the time over bytes.
fn start_of(runs: &[Run], made: &Made) -> Option<Measured<Seconds>> {
    let points: Vec<(f64, f64)> = runs
        .iter()
        .filter(|run| (run.job.nodes, run.job.processes) == (1, 1))
        .filter_map(|run| Some((run, phase_of(run)?)))
        .filter(|(_, phase)| {
            phase.pattern == Pattern::Simple
                && phase.caches == Caches::Cold
                && phase.record_bytes == made.record_bytes
                && phase.buffer_bytes == made.buffer_bytes
                && (ratio_of(phase) - 1.0).abs() < 0.01
        })
        .map(|(run, phase)| (phase.bytes_in.mib(), typical(run)))
        .collect();
    let line = Line::through(&points)?;
    let least = points.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    let start: Measured<Seconds> = line.measured_intercept();
    // No run has more of it than the shortest took.
    Some(Measured { value: Seconds(start.number().clamp(0.0, 0.8 * least)), ..start })
}

/// The calibration that follows from runs; `None` if one process reading, and reading and writing as much,
/// are not among them.
pub fn derive(name: &str, made: Made, runs: &[Run], beside: &Beside) -> Option<Calibration> {
    let usual = runs.iter().filter_map(|run| Some(phase_of(run)?.bytes_in.0)).max()?;
    let start = start_of(runs, &made);
    let source = Source {
        runs,
        made: &made,
        usual,
        start: start.map_or(0.0, |start| start.number()),
        beside,
    };
    let streams: Vec<Streams> = source
        .crews()
        .into_iter()
        .map(|(nodes, processes)| source.streams(nodes, processes))
        .filter(|row| row.read_mib_per_s.is_some())
        .collect();
    let alone = *streams.iter().find(|row| (row.nodes, row.processes) == (1, 1))?;
    let sequential = sequential_of(&source)?;
    let random = middle(&beside.random_read)
        .zip(middle(&beside.random_write))
        .map(|(read_mib_per_s, write_mib_per_s)| Throughput { read_mib_per_s, write_mib_per_s });
    let metadata = Metadata {
        split_s_per_file: source.file_cost(Pattern::Split).and_then(|cost| {
            Some(Measured { value: Seconds(cost), ..source.slope(Pattern::Split)? })
        }),
        merge_s_per_file: source.file_cost(Pattern::Merge).and_then(|cost| {
            Some(Measured { value: Seconds(cost), ..source.slope(Pattern::Merge)? })
        }),
        start_s: start,
        create_s: beside.of(1, 1).and_then(|loops| middle(&loops.create_s)),
        open_s: beside.of(1, 1).and_then(|loops| middle(&loops.open_s)),
        stat_s: beside.of(1, 1).and_then(|loops| middle(&loops.stat_s)),
        close_s: None,
        unlink_s: beside.of(1, 1).and_then(|loops| middle(&loops.unlink_s)),
    };
    let patterns = [Pattern::Simple, Pattern::Split, Pattern::Merge];
    let parallel = patterns.into_iter().filter_map(|pattern| source.parallel(pattern)).collect();
    let (cpu, cache, interleaved) = (source.cpu(), source.cache(), source.interleaved(&alone));
    let overlap = Overlaps { metadata: source.overlap_of_metadata(), ..Overlaps::default() };
    let range = source.ranges();
    let mut calibration = Calibration {
        format: FORMAT,
        name: name.to_owned(),
        made,
        range,
        sequential,
        random,
        metadata,
        path: Paths::default(),
        parallel,
        cpu,
        overlap,
        write_back: None,
        cache,
        streams,
        interleaved,
        model: Model::default(),
    };
    let middles: Vec<Run> =
        runs.iter().map(|run| Run { seconds: vec![typical(run)], ..run.clone() }).collect();
    calibration.model.residual = residual(&calibration, &middles)?;
    Some(calibration)
}

/// `T_SR` from the run that only reads, `T_SW` from what a run that writes as much takes longer, as the
/// paper has it.
fn sequential_of(source: &Source<'_>) -> Option<Throughput> {
    let read = source.find(SIMPLE)?;
    let mixed = source.find(Wanted { ratio: 1.0, ..SIMPLE })?;
    let (reads, writes) = (phase_of(read)?, phase_of(mixed)?);
    let read_mib_per_s = rate_of(read, reads.bytes_in, typical(read))?;
    let reading = writes.bytes_in.mib() / read_mib_per_s.number();
    let longer = (typical(mixed) - reading).max(0.05 * typical(mixed));
    let write_mib_per_s = rate_of(mixed, writes.written(), longer)?;
    Some(Throughput { read_mib_per_s, write_mib_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::Machine;
    use crate::forecasting::{Model, forecast};
    use crate::job::Job;

    const READ: f64 = 200.0;
    const WRITE: f64 = 100.0;
    const FILE_S: f64 = 0.004;
    const START_S: f64 = 0.01;

    fn made() -> Made {
        let machine = Machine { processors: 4, ..Machine::default() };
        Made { machine, record_bytes: Bytes(1024), buffer_bytes: Bytes(1 << 20), ..Made::default() }
    }

    fn job(pattern: Pattern, files: u64, mib: u64, ratio: u64, processes: u32) -> Job {
        let key = if pattern == Pattern::Merge { "files_in" } else { "files_out" };
        let text = format!(
            "processes = {processes}\n[[phase]]\npattern = \"{pattern}\"\nbytes_in = \"{mib} MiB\"\n\
             bytes_out = \"{} MiB\"\n{key} = {files}\nrecord_bytes = 1024\nbuffer_bytes = \"1 MiB\"\n",
            ratio * mib
        );
        Job::parse(&text, std::path::Path::new("job")).unwrap()
    }

    /// A file system on which everything adds up, and processes share what one has.
    fn truth(job: &Job) -> f64 {
        let phase = &job.phases[0];
        let files = (files_of(phase) as f64 - 1.0) * f64::from(job.processes);
        START_S + phase.bytes_in.mib() / READ + phase.written().mib() / WRITE + files * FILE_S
    }

    fn run(job: Job) -> Run {
        let seconds = truth(&job);
        Run {
            name: String::new(),
            seconds: [0.99, 1.0, 1.02].map(|off| off * seconds).to_vec(),
            job,
            phase_seconds: Vec::new(),
            spent: Vec::new(),
            caches_dropped: true,
        }
    }

    fn runs() -> Vec<Run> {
        let mut jobs = vec![job(Pattern::Simple, 1, 16, 1, 1), job(Pattern::Simple, 1, 4, 1, 1)];
        for processes in [1, 2, 4] {
            for ratio in [0, 1] {
                jobs.push(job(Pattern::Simple, 1, 64, ratio, processes));
            }
            jobs.push(job(Pattern::Simple, 1, 8, 8, processes));
            for pattern in [Pattern::Split, Pattern::Merge] {
                jobs.push(job(pattern, 100, 64, 1, processes));
            }
        }
        jobs.into_iter().map(run).collect()
    }

    fn beside() -> Beside {
        // One name after the other, however many ask.
        let loops = |processes| Loops {
            crew: (1, processes),
            create_s: vec![FILE_S; 3],
            stat_s: vec![0.001; 3],
            open_s: vec![FILE_S; 3],
            unlink_s: vec![0.002; 3],
        };
        Beside {
            random_read: vec![50.0, 52.0, 51.0],
            random_write: vec![25.0],
            loops: [1, 2, 4].map(loops).to_vec(),
        }
    }

    fn near(value: f64, wanted: f64) {
        assert!((value / wanted - 1.0).abs() < 0.03, "{value} instead of {wanted}");
    }

    #[test]
    fn constants_of_synthetic_runs_are_found() {
        let found = derive("synthetic", made(), &runs(), &beside()).unwrap();
        near(found.metadata.start_s.unwrap().number(), START_S);
        near(found.metadata.split_s_per_file.unwrap().number(), FILE_S);
        near(found.metadata.merge_s_per_file.unwrap().number(), FILE_S);
        near(found.sequential.write_mib_per_s.number(), WRITE);
        near(found.random.unwrap().read_mib_per_s.number(), 51.0);
        assert_eq!(found.streams.len(), 3);
        for row in &found.streams {
            near(row.read_mib_per_s.unwrap().number(), READ);
            near(row.write_mib_per_s.unwrap().number(), WRITE);
        }
        assert!(found.overlap.metadata.unwrap().number().abs() < 0.05);
        assert!(found.model.residual < 0.02, "{}", found.model.residual);
        assert_eq!((found.range.files.most, found.range.processes.most), (100, 4));
        // It is a file that can be read again.
        Calibration::parse(&found.to_toml(), std::path::Path::new("fs")).unwrap();
    }

    #[test]
    fn other_batches_are_forecast_from_them() {
        let found = derive("synthetic", made(), &runs(), &beside()).unwrap();
        for (pattern, files, processes) in
            [(Pattern::Split, 40, 1), (Pattern::Merge, 70, 3), (Pattern::Split, 10, 4)]
        {
            let job = job(pattern, files, 32, 2, processes);
            let forecast = forecast(&found, &job, Model::Full).unwrap();
            near(forecast.seconds.0, truth(&job));
            assert!((forecast.low.0..forecast.high.0).contains(&truth(&job)));
        }
    }

    #[test]
    fn too_few_runs_give_nothing_and_a_few_what_they_can() {
        assert_eq!(derive("none", made(), &[], &Beside::default()), None);
        let few = [0, 1].map(|ratio| run(job(Pattern::Simple, 1, 64, ratio, 1)));
        assert_eq!(derive("one", made(), &few[..1], &Beside::default()), None);
        let found = derive("few", made(), &few, &Beside::default()).unwrap();
        near(found.sequential.read_mib_per_s.number(), 64.0 / (64.0 / READ + START_S));
        assert!(found.metadata.split_s_per_file.is_none() && found.random.is_none());
    }

    #[test]
    fn a_file_whose_cost_is_lost_in_noise_costs_what_loops_say() {
        let mut runs = runs();
        for run in &mut runs {
            if run.job.phases[0].pattern == Pattern::Split {
                run.seconds = vec![0.2, 1.0, 3.0];
            }
        }
        let found = derive("noisy", made(), &runs, &beside()).unwrap();
        let cost = found.metadata.split_s_per_file.unwrap().number();
        assert!((0.001..0.008).contains(&cost), "{cost}");
    }
}
